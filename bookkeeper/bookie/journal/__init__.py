"""Journal of a bookie: its write-ahead log.

    content         what the journals of a stopped bookie contain of its ledgers
    files           the file that is written, the next one, and the old ones
    format          the bytes of a journal file; pure
    group_commit    records that wait, records in flight, and the next group; pure
    mark            the log mark: where replay begins, in a file of each ledger directory
    records         records out of bytes, for a visitor
    replay          all journals from their marks on, at a start
    scan            one journal file: its records and its end
    settings        bounds of a journal; pure
    torn_records    what a torn tail seems to contain, for operators; pure
    torn_tails      torn tails, saved beside the journal before a replay clears them (I-51)
    writer          `Journal`: append records, answer after the sync that covers them (I-47)

    append --> group_commit --> one write + one fdatasync --> callbacks          replay <-- files from the mark on

Invariants: nothing is answered before the sync that covers it (I-47). After one I/O error nothing is answered (I-48).
One group is in flight at a time, so only the last group of the last file can be torn (I-51). A file has a name only
once its header is durable, and ids only grow (I-49, I-52). A file is deleted only below a mark that is durable in all
directories (I-56).
"""
