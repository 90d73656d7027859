"""Where the disk space of a cluster is: whose ledgers take it, what is garbage, what compaction would give back.

    grouping   pure  by what ledgers are put together
    report           the pipeline: ledgers by owner; entry logs by bookie; each threshold of compaction

What takes space counts as payload: heads of records, indexes and journals are not in it. Importing this package imports
neither pyspark nor a reactor.
"""
