"""The decisions of a ledger client, apart from every wire, clock and socket.

    handshake     a new connection: TLS, credentials, ready
    schedule      which bookies hold an entry; when enough of them have answered
    adds          entries on their way: acknowledged in order, ensemble changes; add_rings keeps where each stands,
                  add_deadlines when it was sent, add_decisions is what the window tells its driver
    forces        what of a ledger with deferred sync is durable
    reads         a range of entries: next replica, speculation, present / absent / unknown
    lac           the last add confirmed, asked of all bookies of the last fragment
    recovery      fence, find the tail, write it back, close; uses reads and adds
    transitions   the only changes a client makes to ledger metadata, for a compare-and-set loop

    events (answers, failures, time)  ->  machine  ->  decisions (batches of entry ids, ranges, actions)

Everything here is pure: no I/O, clock, thread or logging; `now` is a number of seconds handed in. Batches and ranges go
in and out, never one object per entry. Comments and tests cite the safety rules by number (I-01 ... I-46).
"""
