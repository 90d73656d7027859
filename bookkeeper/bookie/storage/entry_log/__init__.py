"""Entry logs: files with the entries of many ledgers.

format         the bytes of an entry log; pure
ledgers_map    ledgers of an entry log: from its map, or by a scan (I-60)
logs           the entry logs of a bookie: append, roll, find
reads          bodies out of entry logs, many at a time
writer         one entry log while it is written
"""
