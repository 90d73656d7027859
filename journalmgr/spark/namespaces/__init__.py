"""A name node's edit log as the namespace that it makes: every inode, who uses how much, how it grew.

    txids      pure  which transactions are folded: from the first, or on from a snapshot made earlier
    fold       pure  one transaction after the other onto a tree of inodes
    growth     pure  what was made and removed, by the hour
    inode_rows pure  an inode as a row of the snapshot and back
    fold_task        the fold as Spark runs it: one task, records in, rows out
    tables           usage by owner, directory, extension, storage and time, in SQL
    options          words of the format editlog, and those that the pipeline sets itself
    stored           a snapshot's directory, written and read
    report           the pipeline: `journalmgr.spark.namespace`

Importing this package imports neither pyspark nor a reactor.
"""
