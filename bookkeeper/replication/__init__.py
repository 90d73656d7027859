"""Auto-recovery: who lacks copies of which ledgers, and making them anew.

    fragments.py, verdicts.py, gather.py   pure: what is stored where, what answers mean, whom to ask next
    fragment_check.py                      looking for copies, bookie by bookie
    copying.py, ledger_adds.py, flow.py    reading good copies, writing them to others, within bounds and rates
    moving.py, target_check.py             copies first, metadata second (I-75); whether a bookie may take copies
    ledger_repair.py, bad_copies.py        one ledger: look, restore, recover where it is open (I-74); reported damage
    worker.py, troubles.py, read_ahead.py  marked ledgers, many at a time; what failed, when it is tried again (I-79)
    bookie_recovery.py                     all ledgers of some bookies, for an operator who waits for it
    auditor.py, audit*.py, replica_counts.py   the elected one: finds what lacks copies, and marks it
    daemon.py                              a client with a candidate for auditor and a worker, as a process runs them

A copy that the metadata names is durable before it does; an entry never has fewer listed holders than before. What
cannot be repaired now stays marked, with a reason.
"""
