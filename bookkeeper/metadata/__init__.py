"""Metadata of ledgers, bookies and the cluster, in ZooKeeper as Apache keeps it.

    bad_records          stray znodes and unreadable records of a walk, as values
    bookies/             registrations, service info, cookies
    cluster/             creation and format of a cluster, layout, history
    directories          creation of missing directories, once for many operations
    election             election of one process by an ephemeral znode
    grouped_changes      many small transactions as few large ones
    ledgers/             ledger metadata
    memory/              a simulated ZooKeeper
    node_watch           one znode followed across sessions
    outcome              retries, and the outcome of a change whose answer was lost (I-16)
    session              a session with a real ZooKeeper; the only user of kazoo
    store                interfaces between the system and its metadata
    textproto            protobuf text format as protobuf-java prints it; pure
    tree                 interface of a tree of znodes
    underreplication/    marks, locks, elections and reports of auto-recovery
    uri                  metadataServiceUri; pure
    watches              listeners by path
    znode_store          the metadata store over a tree: its parts put together
    zookeeper            connection to the metadata of a cluster in ZooKeeper

    store           interfaces
      znode_store   ledgers, bookies, cluster and underreplication, written once over
        tree        one session's znodes, of a real ZooKeeper (session) or of a simulated one (memory)

Invariants: every change is a compare-and-set (I-15). A lost answer is looked up before anything depends on it (I-16).
Absent, unreadable and unreachable are different errors (I-18). "Absent" follows a sync (I-19).
"""
