"""The audit: every copy of every entry of every ledger verified by content and digest.

    evidence       pure  what one bookie has of some consecutive entries of a ledger: a verdict, a checksum, a size each
    judgement      pure  the evidence of all bookies beside what the metadata say: findings
    bookie_copies        copies read through the bookies that should have them
    chunk_audit          one chunk of a ledger, asked for and judged
    options        pure  the words
    source               the format bookkeeper.audit: findings as rows, from tasks that audit in parallel
    report               a whole audit: rows kept, ledgers as a whole, counts;   repairs   findings for auto-recovery

Importing this package imports neither pyspark nor a reactor.
"""
