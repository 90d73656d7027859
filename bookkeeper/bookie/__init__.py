"""A bookie: it takes entries, makes them durable, serves them, and never forgets a fence.

    bookie          the bookie: adds, reads, fences, LACs, over its storage and journals
    connections/    connections: bytes, handshakes, limits, dispatch
    gc/             garbage collection: deleted ledgers, compaction, tombstones
    identity/       bookie id, cookies, registration
    integrity/      checksums, damage, scrub
    journal/        the write-ahead log
    offline/        files of a bookie that does not run
    process/        parts of a bookie process: start, threads, status, HTTP
    requests/       what each kind of request means
    server          the bookie process put together: settings in, exit code out
    storage/        entries on disk: memtable, entry logs, index files, checkpoint

    add:  endpoint -> bookie -> storage (memory, visible at once)
                             -> journal (one write and one fdatasync per group) -> answer
    checkpoint: take the journal's mark, make all storage durable, store the mark, delete journal files below it

Nothing is answered before the sync that covers it (I-47), except adds with deferred sync. After a
disk error the process ends, and the next start replays the journal (I-48).
"""
