"""The pipeline `topics`: how much goes through topics, how far their subscriptions are behind, how large they are.

    question       pure: which windows, and what a checkpoint remembers of that
    naming         which topics there are
    windows        the query: messages -> windows;   measures    lags and sizes, asked once for each micro-batch
    sinks          where the rows go: files, a topic, a function
    following      one query from its start to its end;      kept_line   what it remembers of itself

    windows    topic, clock, window_start, window_end, messages, bytes, messages_per_s, bytes_per_s, first_seq, last_seq
    lags       topic, subscriber, at, consumed_seq, last_seq, messages_behind, owner, problem
    sizes      topic, at, messages, bytes, ledgers, first_seq, last_seq, subscriptions, owner, problem

Everything besides has `date` (UTC) and `batch`, the number of the micro-batch. Importing this package imports neither
pyspark nor a reactor.
"""
