"""The audit: every copy of every entry of every ledger verified by content and digest.

    evidence       pure  what one bookie has of some consecutive entries of a ledger: a verdict, a checksum, a size each
    judgement      pure  the evidence of all bookies beside what the metadata say: findings
    bookie_copies        copies read through the bookies that should have them
    chunk_audit          one chunk of a ledger, asked for and judged
    rows                 findings and audited chunks as rows of Spark
    options        pure  the words
    source               the format bookkeeper.audit: those rows, from tasks that audit in parallel

    stored_evidence pure what is found in the directories of bookies, as rows for a shuffle
    in_place             tasks that find such a directory and read it;   unit_queue   who reads what, on one machine
    judging              tasks that judge chunks by such rows and by what bookies answer

    division       pure  an audit divided into parts (tasks) and rounds (jobs)
    work_directory       what is kept of an audit, so that it can go on
    whole_ledgers        findings about ledgers as a whole;   orphans   what bookies have and the cluster has not
    report               a whole audit;   repairs   its findings, queued for auto-recovery

Importing this package imports neither pyspark nor a reactor.
"""
