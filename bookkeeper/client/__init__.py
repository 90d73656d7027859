"""The ledger client: one Deferred-native core under three faces.

    aio.py  blocking.py              asyncio on the caller's loop; a private reactor in a thread.
            \\    /                   connecting.py builds the real parts, loop_reactor.py and
          client.py                  reactor_thread.py are the reactors; client.py: create, open, delete, list
        /     |     \\
    writer  reader  recovery         handles; writing.py is what both write handles share, view.py what a reader knows
       |       |       |
    add_pipeline  range_read         drive protocol.adds, .reads, .lac (lac_read.py): events in, frames and timers out
        \\     |     /
        connection.py                one channel per bookie and protocol version over link.py, its TCP connection;
              |                      bookies.py finds, keeps and quarantines them
        security.py                  TLS and credentials, before the first request of every connection
        flushing.py                  once per turn: writers first, then one write per connection
        overdue.py  routes.py        the deadlines of all handles on one timer; the ways to an ensemble, worked out once

    ensemble_change, metadata_update, placement    a failed bookie becomes a new fragment, by compare-and-set
    new_ledger.py  occupancy.py                    a free id and its ensemble; what bookies hold under an id
    disk_space.py  weights.py                      how much room the bookies have; more room, chosen more often
    streaming.py  long_poll.py                     read-ahead and tails; waiting for the next entry
    entries.py                                     entries as a reader gets them: one by one, or payloads together
    entry_read.py  late_reads.py                   one entry, the short way; when it is late
    unconfirmed.py                                 entries after the LAC, and how a reader reports them
    batch_read.py  abilities.py                    many entries in one answer; which bookies cannot
    outstanding.py  reachability.py                of one channel: who waits for which answer; when to try again
    explicit_lac.py                                explicit LACs of writers that pause
    deferred_adds.py  forcing.py                   deferred sync: acknowledged first, confirmed by a force
    context.py                                     what all handles of a client share
    faces.py                                       objects of one process, and the iterators of both faces
"""
