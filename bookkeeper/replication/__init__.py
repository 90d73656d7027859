"""Auto-recovery: finds ledgers that lack copies, and makes these copies.

    audit/             the auditor
    bookie_recovery    everything moved from some bookies to others (`recover`, `decommissionbookie`)
    copies/            copies: checked, gathered, copied
    daemon             auto-recovery in a process: auditor candidate and worker
    repair/            the replication worker

A copy that the metadata names is durable before it does (I-75). An entry never has fewer listed holders than before.
What cannot be repaired now stays marked, with a reason (I-79).
"""
