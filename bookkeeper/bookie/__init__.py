"""One bookie: takes entries, makes them durable, serves them, and never forgets a fence.

    server.py      composition root: settings, replay, storage, listener, registration
    endpoint.py    connections: bytes in and out, back-pressure          dispatch.py   request -> Bookie call -> answer
    bookie.py      add, read, fence, LAC; owns the order of durability   seams.py      what it needs of both
    fencing.py     master key and fence of each ledger                   mode.py       writable or read-only
    identity.py    cookies: these directories belong to this bookie      duplicates.py the same entry once more
    journal/       write-ahead log, group commit, replay, last mark
    storage/       write buffer, entry logs, index files, checkpoint

    add:  endpoint -> bookie -> storage (memory, visible at once)
                             -> journal (one write and one fdatasync per group) -> answer
    checkpoint: take the journal's mark, make all storage durable, persist the mark, drop journal files below it

Nothing is answered before the sync that covers it (I-47); after a disk error the process ends and replays (I-48).
"""
