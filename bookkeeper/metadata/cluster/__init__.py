"""A cluster in ZooKeeper: created, formatted, removed; its layout, and signs that the store went back in time.

admin             creation, format and removal of a cluster
history           znodes that show whether the store went back in time
history_format    the bytes of these znodes; pure
layout            LAYOUT: the scheme of ledger paths; pure
stored_layout     the LAYOUT znode of a cluster
"""
