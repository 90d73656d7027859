"""Metadata of ledgers, bookies and the cluster, in ZooKeeper as Apache keeps it.

    store.py           the seams: LedgerStore, BookieWatch, Registration, Cookies, ClusterAdmin, MetadataStore
      znode_store.py   puts together ledgers.py (idgen, listing, ledger_watch), bookies.py, registration.py,
                       cookies.py, admin.py, underreplication.py (mark_walk, repair_locks, bad_copies,
                       auditor_election, node_watch), history.py, all written once over
      bad_records.py   stray znodes and unreadable records, which walks pass over
      bookie_counts.py counts of bookies by their records
      outcome.py       retries, and what became of a change whose answer was lost (I-16), over
    tree.py            the seam below: one session's znodes
      session.py       ... of a real ZooKeeper; the only user of kazoo; zookeeper.py connects it
      memory.py        ... of a simulated one (memory_session, memory_tree)

    codec.py cookie.py service_info.py layout.py paths.py uri.py textproto.py
    underreplication_format.py bad_copies_format.py history_format.py    pure: bytes and names

Invariants: every change is a compare-and-set (I-15); a lost answer is looked up before anybody acts on it (I-16);
absent, unreadable and unreachable are different errors (I-18); "absent" is said only after a sync (I-19).
"""
