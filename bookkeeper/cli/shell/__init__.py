"""`bookkeeper shell`: Apache's administration commands with their names and flags.

    command.py   the table of commands
    cluster.py   metaformat initnewcluster whatisinstanceid listbookies bookieinfo
    ledgers.py   listledgers ledgermetadata readledger deleteledger
    onebookie.py one bookie's copy, for readledger -b
    checks.py    simpletest bookiesanity
    local.py     bookieformat
    diskcheck.py localconsistencycheck
    regenerate.py regenerate-interleaved-storage-index-file
    offline.py   lastmark readjournal readlog readlogmetadata ledger listfilesondisc: files only, no server

Each command is a `ShellCommand`: its summary, its arguments and what it does.
"""
