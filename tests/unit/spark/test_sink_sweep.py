"""The sweep over a simulated metadata store."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.client.client import LedgerClient
from bookkeeper.metadata.memory import MemoryMetadata, MemoryMetadataStore
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata
from bookkeeper.spark.sink_commit_format import Commit, CommitRefused, Kind, Owner, WrittenLedger
from bookkeeper.spark.sink_commits import SinkCommits, commits_at
from bookkeeper.spark.sink_purpose import Fate, Purpose
from bookkeeper.spark.sink_sweep import Swept, sweep_with
from tests.support.simulated_clock import SimulatedClock

QUERY, JOB = Owner(Kind.QUERY, "q"), Owner(Kind.JOB, "j")
BEFORE_MS = 1000
YOUNG_MS, OLD_MS = BEFORE_MS, BEFORE_MS - 1

T = TypeVar("T")


class Bench:
    """A client of a cluster in memory, and commits below /spark."""

    def __init__(self) -> None:
        self.metadata = MemoryMetadata()
        clock, rng = SimulatedClock(), random.Random(1)
        store = MemoryMetadataStore(self.metadata, clock, rng)
        no_network: Any = None
        self.client = LedgerClient(store, no_network, clock, rng)
        self.commits: SinkCommits = self.run(commits_at(self.client, "/spark"))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns; the store answers at once."""
        outcome: list[Any] = []
        Deferred.fromCoroutine(coroutine).addBoth(outcome.append)
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        found: T = outcome[0]
        return found

    def ledger(self, custom: dict[str, bytes]) -> int:
        """A new ledger."""
        fragment = Fragment(EntryId(0), (BookieId("bookie-a:3181"),))

        async def create() -> int:
            return int((await self.client.store.ledgers.create(LedgerMetadata(1, 1, 1, (fragment,), custom=custom)))[0])

        return self.run(create())

    def written(self, batch: int, *, created_ms: int = YOUNG_MS, write: str = "w", owner: Owner = QUERY) -> int:
        """A ledger that a task wrote."""
        return self.ledger(Purpose(owner, write, batch, 0, 0, created_ms, "/spark").custom())

    def commit(self, batch: int, ledger_id: int, *, created_ms: int = YOUNG_MS, owner: Owner = QUERY) -> None:
        """Commit a ledger as a batch."""
        ledgers = (WrittenLedger(ledger_id, 1, 1, 0, 0, 0),)
        self.run(self.commits.commit(owner, Commit(batch, "w", ledgers), created_ms))

    def sweep(self, *, dry_run: bool = False) -> Swept:
        """Of what was made before BEFORE_MS."""
        return self.run(sweep_with(self.client, "/spark", BEFORE_MS, dry_run=dry_run))

    def there(self) -> set[int]:
        """All ledgers."""

        async def listed() -> set[int]:
            return {int(each) async for batch in self.client.ids() for each in batch}

        return self.run(listed())


@pytest.mark.parametrize("dry_run", [True, False])
def test_orphans_go_and_everything_else_stays(dry_run: bool) -> None:
    bench = Bench()
    strangers = {
        bench.ledger({"application": b"else"}),
        bench.ledger({"application": b"bookkeeper-spark"}),
        bench.ledger(Purpose(QUERY, "w", 0, 0, 0, 0, "/other").custom()),
    }
    committed, again = bench.written(0, created_ms=OLD_MS), bench.written(0, write="v")
    bench.commit(0, committed, created_ms=OLD_MS)
    given_up = bench.written(1, write="given up")
    bench.run(bench.commits.give_up(QUERY, 1, "given up"))
    in_flight, too_old = bench.written(1), bench.written(1, created_ms=OLD_MS)
    new_job, old_job = bench.written(0, owner=JOB), bench.written(0, owner=JOB, created_ms=OLD_MS)
    before = bench.there()
    swept = bench.sweep(dry_run=dry_run)
    assert {orphan.ledger_id: orphan.fate for orphan in swept.orphans} == {
        again: Fate.SUPERSEDED,
        given_up: Fate.ABORTED,
        too_old: Fate.TOO_OLD,
        old_job: Fate.TOO_OLD,
    }
    assert swept.left == {Fate.COMMITTED: 1, Fate.IN_FLIGHT: 2, Fate.UNKNOWN: 1}
    assert bench.there() == (before if dry_run else {*strangers, committed, in_flight, new_job})
    if dry_run:
        bench.commit(1, too_old, created_ms=OLD_MS)  # it was not forbidden
    else:
        with pytest.raises(CommitRefused, match="sweep"):
            bench.commit(1, too_old, created_ms=OLD_MS)
    bench.commit(2, in_flight)


def test_a_ledger_whose_commit_cannot_be_read_is_left_alone() -> None:
    """Unknown is not "no"."""
    bench = Bench()
    bench.commit(0, bench.written(0))
    orphan = bench.written(0, write="v", created_ms=OLD_MS)
    bench.metadata.damage("/spark/queries/q", b"garbage")
    assert bench.sweep().orphans == ()
    assert orphan in bench.there()


def test_ledgers_of_a_cluster_that_was_formatted_since_are_left_alone() -> None:
    bench = Bench()
    bench.commit(0, bench.written(0))
    bench.metadata.damage("/ledgers/INSTANCEID", b"00000000-0000-4000-8000-000000000001")
    orphan = bench.written(0, write="v", created_ms=OLD_MS)
    swept = bench.sweep()
    assert (swept.orphans, swept.left) == ((), {Fate.UNKNOWN: 2})
    assert orphan in bench.there()
