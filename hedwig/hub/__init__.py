"""The hub: topics persisted in ledgers, delivered in order, handed over when a hub dies.

metadata    the znodes: hubs, owners, ledgers of topics, subscriptions; everything by version
"""
