"""`bookkeeper demo`: a real cluster on this machine, real data, a killed bookie.

command.py   the parts and their order; other packages add parts through the entry-point group `bookkeeper.demo`
history.py   this machine's package history as entries (Debian changelogs, dpkg's log, Python's sources)
ledgers.py   part `ledgers`: write, kill a bookie in the middle, read back, verify
"""
