"""How far each ledger reaches that is audited, asked once, when the audit is planned. Thread: any.

Metadata say it of closed ledgers, bookies of the others. Where nobody can tell (metadata that cannot be read, an open
ledger without a bookie that answers) that ledger alone is not audited, and a finding says why: unknown is not empty.

Asked in groups of GROUP ledgers, AT_ONCE of them at a time; who waits is told every SAY_S seconds how far it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import NoSuchLedger
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.spark.cluster.extents import Reach, known_reach
from bookkeeper.spark.cluster.id_runs import IdRuns
from bookkeeper.spark.ledgers.options import LedgerChoice
from bookkeeper.spark.ledgers.plan import Extent

AT_ONCE = 64
GROUP = 1000
SAY_S = 5.0

Say = Callable[[str], None]


@dataclass(slots=True)
class LedgerEnds:
    """What is audited, ascending. lengths: in bytes, of closed ledgers. unknown: those that nobody can tell of, why."""

    extents: list[Extent] = field(default_factory=list)
    lengths: dict[int, int] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)

    def add(self, ledger_id: int, reach: Reach) -> None:
        """The next one."""
        if reach.metadata is None or reach.end is None or reach.length is None:
            self.unknown[ledger_id] = reach.problem or "nobody can say how far it reaches"
            return
        if reach.metadata.is_closed:
            self.lengths[ledger_id] = reach.length
        if reach.end >= 0:
            self.extents.append(Extent(ledger_id, 0, reach.end, reach.length, copies=reach.metadata.write_quorum))


def ledger_ends(
    client: BlockingBookKeeper, chosen: LedgerChoice, there: IdRuns | None = None, say: Say = lambda _: None
) -> LedgerEnds:
    """Of the chosen ledgers. there: the ledgers of the cluster, None: they are listed here.

    Raises NoSuchLedger for one that was named by itself and is gone, MetadataError.
    """
    there = there if there is not None or (chosen.ranges is not None and _all_named(chosen)) else ids_there(client)
    named = frozenset(chosen.single)
    of_all = f" of {there.count:,}" if there is not None and chosen.ranges is None else ""
    found, said_s, done = LedgerEnds(), time.monotonic(), 0
    ids = _chosen(chosen, there)
    while group := list(islice(ids, GROUP)):
        for ledger_id, reach in _asked(client, group):
            if reach is not None:
                found.add(ledger_id, reach)
            elif ledger_id in named:
                raise NoSuchLedger(
                    f"ledger {ledger_id} was to be audited and is not there: deleted, or never made. Leave it out; of "
                    "a range those count that are there"
                )
        done += len(group)
        if time.monotonic() - said_s >= SAY_S:
            said_s = time.monotonic()
            say(f"planning: looked at {done:,}{of_all} ledgers")
    return found


def ids_there(client: BlockingBookKeeper) -> IdRuns:
    """The ledgers of the cluster now, seen after a sync (I-19)."""

    async def listed(ledgers: LedgerClient) -> IdRuns:
        runs = IdRuns()
        await ledgers.store.sync()
        strays = BadRecords()
        async for batch in ledgers.ids(strays):
            runs.add(batch)
        ReportedRecords().report(strays, "it is passed over because it is not a ledger")
        return runs

    return client.run(lambda ledgers: Deferred.fromCoroutine(listed(ledgers)))


def _all_named(chosen: LedgerChoice) -> bool:
    return len(chosen.single) == len(chosen.ranges or ())


def _chosen(chosen: LedgerChoice, there: IdRuns | None) -> Iterator[int]:
    """Ascending: those that were named by themselves, there or not, and of ranges those that are there."""
    runs = [] if there is None else there.runs()
    if chosen.ranges is None:
        for first, last in runs:
            yield from range(first, last + 1)
        return
    at = 0
    for low, high in chosen.ranges:
        if low == high:
            yield low
            continue
        while at < len(runs) and runs[at][1] < low:
            at += 1
        for first, last in islice(runs, at, None):
            if first > high:
                break
            yield from range(max(first, low), min(last, high) + 1)


def _asked(client: BlockingBookKeeper, ledger_ids: list[int]) -> Iterator[tuple[int, Reach | None]]:
    found: dict[int, Reach | None] = {}

    async def ask(ledgers: LedgerClient) -> None:
        await ledgers.store.sync()

        async def look(ledger_id: int) -> None:
            found[ledger_id] = await known_reach(ledgers, ledger_id)

        await in_parallel((look(each) for each in ledger_ids), AT_ONCE)

    client.run(lambda ledgers: Deferred.fromCoroutine(ask(ledgers)))
    return ((ledger_id, found[ledger_id]) for ledger_id in ledger_ids)
