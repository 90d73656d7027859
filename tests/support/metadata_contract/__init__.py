"""What every metadata store does, as one list of facts that run over each implementation.

A fact is a coroutine function of a World; `facts()` names them. The memory store runs them with simulated time (also
with delays, lag and lost connections), the ZooKeeper store against a real server.

    world.py            World, the declaration of facts, and the words they share
    ledgers.py          ids, versions, formats, paths, listings
    ledger_watches.py   what a watch of a ledger tells
    registrations.py    bookies: modes, epochs, session loss, rivals
    history.py          notes, generators and decisions, which show that the store went back in time
    administration.py   cookies, layout, formatting and nuking a cluster
    underreplication.py ledgers that lack copies, locks, switches, the auditor's election, bad copies
    request_sizes.py    requests that are too large, records that grow
    spark_commits.py    what Spark's writes have committed

Importing the package imports each module of facts, which declares them.
"""

from tests.support.metadata_contract import (
    administration,
    history,
    ledger_watches,
    ledgers,
    registrations,
    request_sizes,
    spark_commits,
    underreplication,
)
from tests.support.metadata_contract.world import (
    Fact,
    Heard,
    World,
    all_ids,
    facts,
    ledger,
    raises,
    service_info,
)

__all__ = [
    "Fact",
    "Heard",
    "World",
    "administration",
    "all_ids",
    "facts",
    "history",
    "ledger",
    "ledger_watches",
    "ledgers",
    "raises",
    "registrations",
    "request_sizes",
    "service_info",
    "spark_commits",
    "underreplication",
]
