"""Ledger metadata in ZooKeeper.

codec           ledger metadata as bytes, versions 1, 2 and 3; pure
id_generator    ledger ids from sequential znodes
listing         a walk over the tree of ledgers
paths           ledger id <-> path, for each layout; pure
store           ledger metadata in a tree of znodes
watch           watches of single ledgers' metadata
"""
