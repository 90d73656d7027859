"""Damage: which stored entries are not what was written.

entries          entries in damaged bytes of an entry log, or in a log that is gone, by the indexes
index_texts      texts about damaged index files; pure
log_lines        bounded log lines about damaged and missing entry logs
places           look-up of damage by ledger, path and entry; pure
record           the bounded record of damage
reports          reports of damaged copies in the metadata store, for replication (I-67)
suspect_bytes    bytes of entry logs that a read found damaged, for the scrub
wanted_bytes     places of an entry log that lie in damaged bytes; pure
"""
