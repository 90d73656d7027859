"""What happens when bookies or racks are lost, bookies are added, or quorums are others. Asking changes nothing.

    question    pure  what is asked: lost, added, other quorums
    situation   pure  the bookies then: who is lost, who takes copies, racks
    fragment    pure  one fragment: copies that are lost, read and written; entries at risk
    effects     pure  many fragments: by ledger and by bookie
    source            tasks that look at the ledgers: rows by fragment and by bookie
    report            the pipeline: all fragments of a cluster, on Spark

Importing this package imports neither pyspark nor a reactor.
"""
