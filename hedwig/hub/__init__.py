"""The hub: topics stored in ledgers, delivered in order, handed over when a hub dies.

endpoint           a client's connection: requests, answers, deliveries, redirects
metadata           znodes: hubs, owners, ledgers of topics, subscriptions; every change by version
meters             counters of a hub
named_retention    retention of a topic, set by its publishers
ownership          topics that this hub serves, and the hubs of other topics
process            configuration in, exit code out
regions/           messages of other regions
release            POST /release: topics given up in order
server             one hub put together: metadata, ledgers, topics, listeners
subscriptions/     records, deliveries, outstanding messages
tls                TLS of the second port
topics/            publishes into ledgers, reads, retention
tuning             settings of all parts, from the configuration
turns              time of a reactor turn for deliveries and large requests

process -> server -> endpoint -> ownership -> topics.service -> topics.log -> ledger
                                                   |
                                 subscriptions.attachment <- topics.recent, topics.reads
"""
