"""Index files: the place of each entry, by ledger.

cache           ledgers in memory: password, fence, LAC, locations
files           reading of one ledger's index file
flush           changed ledgers written to index files, durably
format          the bytes of an index file; pure
ledger_state    one ledger in memory; pure
"""
