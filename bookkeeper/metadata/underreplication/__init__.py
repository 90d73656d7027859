"""Work of auto-recovery in ZooKeeper: marks, locks, elections, reports, switches.

auditor_election           Apache's election of the auditor
damaged_copies             reports of damaged copies: U/badcopies (I-76)
damaged_copies_format      the bytes of these reports; pure
format                     names and bytes of the under-replication tree; pure
mark_directories           removal of empty directories of marks
mark_walk                  a walk over the marks, and news of them
recovery_process_format    the bytes of U/workers; pure
recovery_processes         processes that audit and repair: U/workers
repair_locks               locks on ledgers under repair
tree                       the under-replication tree
"""
