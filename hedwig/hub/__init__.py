"""The hub: topics persisted in ledgers, delivered in order, handed over when a hub dies.

    process         configuration in, exit code out; tuning: what the configuration means for the parts
        |
    server          the composition root: metadata, ledgers, topics, listeners; secure: the one with TLS
        |
    endpoint        a client's connection: requests in, answers and deliveries out; redirects
        |
    ownership       which topics this hub serves, and where the others are
        |
    topic_service   one topic: who is attached, and what clients ask of it
      |    |    |\\
      |    |    | subscription_records   what is stored of subscriptions; replaying, where they begin
      |    |    |\\
      |    |    | attachment     what a connection has of a subscription; shared_attachment: acknowledged one by one,
      |    |    |                 by one or several; dead_letters, where messages go then that nobody can do;
      |    |    |                 turns, the time of a reactor turn that all of them may use; delivery_budget, the
      |    |    |                 bound on outstanding messages of all subscriptions
      |    |     \\
      |    |     recent          the newest messages in memory, one copy of each
      |    topic_reading         older ones from the ledgers; read_retry: delays and log lines of reads that failed
    topic_log                    publishes into a chain of ledgers; trimming: which of them are deleted;
        |                        named_retention: retention set by publishers
    metadata        the znodes: hubs, owners, ledgers of topics, subscriptions; everything by version

    regions         what is published in other regions: a feed for each topic and region (regions_feed)

    meters          what is counted, by all of them
"""
