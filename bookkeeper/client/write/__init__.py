"""Writing ledgers: handles, the window of pending adds, ensemble changes, forces, explicit LACs.

add_deadlines        deadlines of the adds of all handles, over one timer
chosen_ids           a write handle with entry ids chosen by the caller (Apache's LedgerHandleAdv)
deferred_pipeline    adds with deferred sync: acknowledged before they are durable, confirmed by a force
ensemble_change      replacements for failed bookies, and the compare-and-set that names them (I-09 to I-11)
explicit_lac         the LAC of a writer that pauses, sent to the bookies
force                everything acknowledged so far made durable
new_ledger           id and ensemble of a new ledger
occupancy            what bookies hold under an id that a new ledger is about to use
overload_retry       adds that a bookie refused because it had too much to do, sent again later
pipeline             adds of one ledger: packaged, encoded, sent in batches, acknowledged as ranges
routes               channels of an ensemble, and which entries each of them gets
turn_flush           once per reactor turn: adds into frames, frames into connections
write_handle         a write handle: append one or many, acknowledged in order, close
write_handle_base    parts that both kinds of write handle share
"""
