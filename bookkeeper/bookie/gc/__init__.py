"""Garbage collection: deleted ledgers are removed, entry logs are deleted or compacted.

candidates        ledgers that may be deleted, and entry logs worth compacting; pure
collector         rounds: proof, deletion, removal of logs, compaction
compaction        one entry log rewritten: live entries copied, index switched, old log deleted (I-62)
compactor         compaction of several logs: threads, rate, stop
deletion          index files and directories of deleted ledgers (I-63, I-64)
history/          protection against a metadata store that went back in time
logs              entry logs: which are removed, which are compacted
proof             proof that a ledger was deleted or belongs to others (I-64, I-66)
removal           deletion of ledgers while the bookie serves
settings          settings of garbage collection; pure
status            what the collector did and does next, for operators; pure
tombstone_file    tombstones on disk
tombstones        deleted ledgers with old writers that must be refused (I-04); pure
view              the collector in the status file and over HTTP
"""
