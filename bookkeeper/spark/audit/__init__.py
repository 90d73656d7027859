"""The audit: every copy of every entry of every ledger verified by content and digest.

    evidence     pure  what one bookie has of some consecutive entries of a ledger: a verdict, a checksum, a size each
    judgement    pure  the evidence of all bookies beside what the metadata say: findings

Importing this package imports neither pyspark nor a reactor.
"""
