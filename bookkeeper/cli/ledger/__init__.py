"""`bookkeeper ledger`: ledgers from the command line, as kcat does for topics.

command.py   the sub-commands and their options
lines.py     entries in and out of streams: lines, length-prefixed, formats, JSON
listener.py  is anybody still reading the output?
transfer.py  write, read, tail: streams to ledgers and back
inspect.py   create, list, show, delete
emptied.py   close-empty: close a ledger that its bookies refuse to recover
"""
