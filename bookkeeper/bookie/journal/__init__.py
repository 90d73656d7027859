"""A bookie's write-ahead log: what was answered is in it, and survives a crash.

    format.py        pure  file header, records, padding, our group record; the bytes are drawn there, once
    group_commit.py  pure  what waits, what is in flight, what the next group is
    files.py               the file being written: groups, zeros ahead, roll, recycle, collect    (thread: journal)
    writer.py              `Journal`: append, answer after the sync, sticky failure          (thread: reactor)
    scan.py                one file's records, and where and how they end
    replay.py              all files from the mark on; torn tail or corruption; the true end
    set_aside.py           what stood at the end and was no whole group, kept before it is cleared
    torn_records.py        what can be made out in such bytes
    mark.py                lastMark in every ledger directory

    append ──> group_commit ──> one write + one fdatasync ──> callbacks          replay <── files from the mark on

Invariants: nothing is answered before the sync that covers it (I-47); after one I/O error nothing is answered at all
(I-48); one group is in flight at a time, so at most the last group of the last file can be torn (I-51); a file is named
only once its header is durable, and ids only grow (I-49, I-52); a file goes only below a mark that is durable
everywhere (I-56).
"""
