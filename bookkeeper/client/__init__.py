"""The ledger client: one Deferred-native core under three faces.

    bookies/           bookies: directory, connections, placement
    client             create, open, delete and list ledgers
    connecting         a client of a real cluster: ZooKeeper, TCP, a reactor
    context            what all handles of a client share: ports, settings, bookies
    deadline_timer     a timer that ignores time in which this process was suspended; pure
    faces/             asyncio and blocking clients
    metadata_update    a change of a ledger's metadata: read, decide, compare-and-set (I-15, I-16)
    parallel           many pieces of work, some at a time
    read/              reading
    recovery           recovery of a ledger, over the channels and the metadata store
    write/             writing

    faces           asyncio on the caller's loop, or a reactor in a thread
      |
    client          create, open, delete, list
    /    |    \\
    write  read  recovery      handles; they drive the machines of `bookkeeper.protocol`
    \\    |    /
    bookies.connection         one channel for each bookie and protocol version, over bookies.link
"""
