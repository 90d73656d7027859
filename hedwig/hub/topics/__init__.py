"""Topics of a hub: publishes into ledgers, reads for deliveries, retention.

chain           the ledgers of a topic that are no longer written: ends, contents, gaps
log             a topic's messages: a chain of ledgers; only the last is written
log_settings    how messages are stored; pure
publish_once    numbered messages of a producer, stored once
read_retry      retries of failed reads
reads           messages from the ledgers of a topic
recent          the newest messages in memory; pure
service         one topic: attached subscriptions, and requests of clients
trimming        deletion of ledgers by age and size
"""
