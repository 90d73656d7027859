"""The decisions of a ledger client, apart from every wire, clock and socket.

    add_deadlines    deadlines of pending adds
    add_decisions    decisions of the window of adds, for its driver
    add_rings        state of each pending add
    adds             pending adds: acknowledged in order, ensemble changes
    connection       requests of one connection that wait for an answer
    forces           what of a ledger with deferred sync is durable
    handshake        a new connection: TLS, credentials, ready
    lac              the last add confirmed, asked of all bookies of the last fragment
    long_poll        the wait for a LAC
    reads            a range of entries: next replica, speculation, present / absent / unknown
    recovery         fence, find the tail, write it back, close; uses reads and adds
    schedule         which bookies hold an entry; when enough of them have answered
    transitions      the only changes a client makes to ledger metadata, for a compare-and-set loop
    unreadable       why an entry that may exist cannot be read

    events (answers, failures, time)  ->  machine  ->  decisions (batches of entry ids, ranges, actions)

Everything here is pure: no I/O, clock, thread or logging; `now` is a number of seconds handed in. Batches and ranges go
in and out, never one object per entry. Comments and tests cite the safety rules by number (I-01 ... I-46).
"""
