"""The hub: topics persisted in ledgers, handed over when a hub dies. So far:

metadata    the znodes: hubs, owners, ledgers of topics, subscriptions; everything by version
topic_log   one topic's messages while this hub owns it: a chain of ledgers
"""
