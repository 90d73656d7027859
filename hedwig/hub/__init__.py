"""The hub: topics persisted in ledgers, delivered in order, handed over when a hub dies.

    process         configuration in, exit code out; tuning: what the configuration means for the parts
        |
    server          the composition root: metadata, ledgers, topics, listeners; secure: the one with TLS
        |
    endpoint        a client's connection: requests in, answers and deliveries out; redirects
        |
    ownership       which topics this hub serves, and where the others are
        |
    topic_service   one topic: its subscriptions, and what is delivered to whom
      |    |    \\
      |    |     recent          the newest messages in memory, one copy of each
      |    topic_reading         older ones from the ledgers
    topic_log                    publishes into a chain of ledgers
        |
    metadata        the znodes: hubs, owners, ledgers of topics, subscriptions; everything by version

    meters          what is counted, by all of them
"""
