"""The pipeline `topics`: how much goes through topics, how far their subscriptions are behind, how large they are.

    following    one query from its start to its end
    kept_line    what a query remembers of itself
    measures     lags and sizes, for each micro-batch
    naming       topics of a pipeline
    question     which windows, and what a checkpoint remembers of that; pure
    sinks        where the rows go: files, a topic, a function
    windows      the query: messages -> windows

    windows    topic, clock, window_start, window_end, messages, bytes, messages_per_s, bytes_per_s, first_seq, last_seq
    lags       topic, subscriber, at, consumed_seq, last_seq, messages_behind, owner, problem
    sizes      topic, at, messages, bytes, ledgers, first_seq, last_seq, subscriptions, owner, problem

Everything besides has `date` (UTC) and `batch`, the number of the micro-batch. Importing this package imports neither
pyspark nor a reactor.
"""
