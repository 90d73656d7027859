"""One bookie: takes entries, makes them durable, serves them, and never forgets a fence.

    server.py      composition root: order of start and stop             surroundings.py  what all of it is given
    claim.py       these directories are ours from now on                registered.py  in the metadata store
    storage_side.py    replay, storage, journals, disks                  listening.py   ports, opened and shut
    background.py  collection, reports of damage, scrub                  http_side.py   what operators see and order
    service.py     all connections: how many, how much, flushing         endpoint.py    one of them: in, out, held back
    dispatch.py    request -> Bookie call -> answer
    security.py    what is asked before the first request                entrance.py    TLS, authentication
    bookie.py      all requests; owns the order of durability            intake.py     what they share
    adds.py        adds, deferred or not                                 read_requests.py  reads, fences, batch reads
    lac_requests.py    explicit LACs                                     long_poll.py  reads that wait for a LAC
    ledger_requests.py force, list of entries                            seams.py      what they need of the rest
    fencing.py     master key and fence of each ledger                   mode.py       writable or read-only
    history_guard.py   keeps ledgers if the metadata store went back     history_rules.py   which may be collected then
    history_file.py    the bookie's memory of the metadata store         history_format.py  layout of that file
    identity.py    cookies: these directories belong to this bookie      duplicates.py the same entry once more
    journal/       write-ahead log, group commit, replay, last mark
    storage/       write buffer, entry logs, index files, checkpoint

    add:  endpoint -> bookie -> storage (memory, visible at once)
                             -> journal (one write and one fdatasync per group) -> answer
    checkpoint: take the journal's mark, make all storage durable, persist the mark, drop journal files below it

Nothing is answered before the sync that covers it (I-47), except adds whose writer asked for less (deferred sync);
after a disk error the process ends and replays (I-48).
"""
