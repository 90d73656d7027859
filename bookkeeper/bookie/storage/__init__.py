"""Storage of entries: memtable, entry logs, index files, and the checkpoint that makes them durable.

    checkpoint        when to flush and when to checkpoint; what the journal may forget then
    disks             directories that take new files; when the bookie turns read-only (I-68)
    entry_log/        entry logs
    held              entries of a ledger that are held, in memtables or by the index
    index/            index files
    ledger_storage    the storage: memtables, index and entry logs together
    memtable          entries that are in the journal and not yet in an entry log; pure
    memtable_flush    one memtable into the entry log, its locations into the index
    open_files        a bounded number of open files
    reads             where an entry is read: memtables, index, entry log
    settings          bounds and intervals
    write_buffers     the memtable that takes entries, and full ones that wait for the disk

    add --> memtable --(full)--> snapshot --flush--> entry log (interleaved, sorted by ledger and entry)
                                                --> index cache (dirty) --checkpoint--> index files
    read: memtable, snapshots, index cache or index file, entry log

All files are Apache's (either bookie starts on the other's directories); bookkeeper/bookie/FORMATS.md 2.1 lists them.

Threads: the reactor adds and reads, the storage worker flushes and checkpoints, the read worker reads what is not in
the page cache. One lock, taken per batch, guards what they share. `bookkeeper.filesystem` states what is assumed of
disks.
"""
