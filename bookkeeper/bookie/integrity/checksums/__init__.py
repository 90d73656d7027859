"""Checksums in side files, for formats without checksums.

entry_log          checksums of an entry log: bytes, and growth with the log; pure
entry_log_files    side files of entry logs: written with the log, read by reads and the scrub
index              checksums of index pages: records and table; pure
index_files        the file with checksums of index pages in each index directory
"""
