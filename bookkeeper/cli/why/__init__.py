"""`bookkeeper why`: what is the matter with a ledger, a disk, a read-only bookie, space that does not come back.

    command.py        options, printing
    plugins.py        subjects of other packages, and their searches for the owner of a ledger
    explanation.py    pure  the shape of every answer; times, sizes and shares as words
    host_facts.py     one bookie's host: settings, directories, status file, metadata store
    host.py           pure  those facts -> why disk, why readonly
    space.py          pure  those facts -> why space
    ledger_facts.py   one ledger: metadata, bookies, under-replication tree, what each bookie says it holds
    ledger.py         pure  those facts -> why ledger N

First everything is found out, then it is judged: what could not be found out is said to be unknown, and why. Every
sentence names numbers, ids and times that were looked up for this answer.
"""
