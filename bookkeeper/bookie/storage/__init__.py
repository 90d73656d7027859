"""Where a bookie keeps entries: write buffer, entry logs, index files, and the checkpoint that makes them durable.

    add --> memtable --(full)--> snapshot --flush--> entry log (interleaved, sorted by ledger and entry)
                                                --> index cache (dirty) --checkpoint--> index files
    read: memtable, snapshots, index cache or index file, entry log

Files, all Apache's (either bookie starts on the other's directories), below `<dir>/current`:

    <hex>.log            entry log: header, records [i32 size][body], ledgers map      entry_log_format.py
    <g>/<p>/<hex>.idx    index of one ledger: header, then one i64 location per entry  index_format.py
    lastId, lastMark     highest entry log id; the journal's mark (bookie.journal.mark)

Threads: the reactor adds and reads, the storage worker flushes and checkpoints, the read worker reads what is not in
the page cache. What they share is guarded by one lock, taken per batch.

What is assumed of disks: bookkeeper.filesystem. What a crash leaves behind is said beside the code that copes.
"""
