"""Files of a bookie that does not run: inspection, checks, rebuilt indexes.

checksum_check    entry logs and index files compared with their checksums
consistency       index files compared with entry logs
fault             a fault in a bookie's files; pure
index_rebuild     index files made again out of entry logs, journals and old index files
inspection        entry logs and index files, ours or Apache's
local_check       all checks of one bookie: identity, marks, journals, storage
needed_entries    entries that the indexes name in given bytes of an entry log
"""
