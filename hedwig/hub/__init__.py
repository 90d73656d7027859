"""The hub: topics persisted in ledgers, delivered in order, handed over when a hub dies. So far:

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

Nothing puts them together to a program yet.
"""
