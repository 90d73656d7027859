"""`bookkeeper shell`: Apache's administration commands with their names and flags.

    command.py   the table of commands
    cluster.py   metaformat initnewcluster whatisinstanceid listbookies bookieinfo clusterinfo
    cookies.py   cookie_create cookie_delete cookie_generate cookie_get cookie_update
    updatecookie.py  ledgernames.py  updatecookie; updateledgers updateBookieInLedger
    recover.py   recover decommissionbookie
    autorecovery.py  listunderreplicated whoisauditor triggeraudit autorecovery queryautorecoverystatus
                 lostbookierecoverydelay
    damaged.py   listunderreplicated -damaged
    ledgers.py   listledgers ledgermetadata readledger deleteledger
    onebookie.py one bookie's answers    onecopy.py  its copy of a ledger (readledger -b)
    checks.py    simpletest bookiesanity
    local.py     bookieformat
    activeledgers.py activeledgers
    diskcheck.py localconsistencycheck
    regenerate.py regenerate-interleaved-storage-index-file
    offline.py   lastmark readjournal readlog readlogmetadata ledger listfilesondisc: files only, no server

Each command is a `ShellCommand`: its summary, its arguments and what it does.
"""
