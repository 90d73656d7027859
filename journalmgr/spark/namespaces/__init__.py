"""A name node's edit log as the namespace that it makes: every inode, who uses how much, how it grew.

    fold          one transaction after the other onto a tree of inodes; pure
    fold_task     the fold as Spark runs it: one task, records in, rows out
    growth        what was made and removed, by the hour; pure
    inode_rows    an inode as a row of the snapshot, and back; pure
    options       options of the format editlog, and those that the pipeline sets itself
    report        the pipeline, from beginning to end
    stored        a snapshot's directory, written and read
    tables        usage by owner, directory, extension, storage and time, in SQL
    txids         which transactions are folded: from the first, or after an earlier snapshot; pure

Importing this package imports neither pyspark nor a reactor.
"""
