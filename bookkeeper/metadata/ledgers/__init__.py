"""Ledger metadata in ZooKeeper.

codec           ledger metadata as bytes, versions 1, 2 and 3; pure
id_generator    ledger ids from sequential znodes
paths           ledger id <-> path, for each layout; pure
store           ledger metadata in a tree of znodes
walk            a walk over the tree of ledgers
watch           watches of single ledgers' metadata
"""
