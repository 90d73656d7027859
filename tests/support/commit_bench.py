"""A cluster in memory with commits of Spark below /spark, and a clock that its metadata store goes by."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.client.client import LedgerClient
from bookkeeper.metadata.memory.store import MemoryMetadata, MemoryMetadataStore
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata
from bookkeeper.spark.sink.commit_format import Commit, Kind, Owner, WrittenLedger
from bookkeeper.spark.sink.commits import SinkCommits, commits_at, oldest_of
from bookkeeper.spark.sink.purpose import Purpose
from bookkeeper.spark.sink.sweep import Swept, sweep_with
from tests.support.simulated_clock import SimulatedClock

QUERY, JOB = Owner(Kind.QUERY, "q"), Owner(Kind.JOB, "j")
AGE_S = 100.0

T = TypeVar("T")


class Bench:
    """A client of a cluster in memory, and commits below /spark."""

    def __init__(self) -> None:
        self.clock, rng = SimulatedClock(), random.Random(1)
        self.metadata = MemoryMetadata(clock=self.clock)
        store = MemoryMetadataStore(self.metadata, self.clock, rng)
        no_network: Any = None
        self.client = LedgerClient(store, no_network, self.clock, rng)
        self.commits: SinkCommits = self.run(commits_at(self.client, "/spark"))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns; the store answers at once."""
        outcome: list[Any] = []
        Deferred.fromCoroutine(coroutine).addBoth(outcome.append)
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        found: T = outcome[0]
        return found

    def grow_old(self) -> None:
        """What there is by now is older than AGE_S from now on."""
        self.clock.run_until(lambda: False, seconds=AGE_S + 1)

    def ledger(self, custom: dict[str, bytes], noted_ms: int | None = None) -> int:
        """A new ledger. noted_ms: what the clock of the machine said that made it."""
        fragment = Fragment(EntryId(0), (BookieId("bookie-a:3181"),))
        metadata = LedgerMetadata(1, 1, 1, (fragment,), custom=custom, ctime_ms=noted_ms)

        async def create() -> int:
            return int((await self.client.store.ledgers.create(metadata))[0])

        return self.run(create())

    def written(self, batch: int, *, write: str = "w", owner: Owner = QUERY, noted_ms: int | None = None) -> int:
        """A ledger that a task wrote."""
        head_id = self.run(self.commits.begin(owner))
        return self.ledger(Purpose(owner, write, batch, 0, 0, head_id, "/spark").custom(), noted_ms)

    def written_earlier(self, batch: int, *, write: str = "w", owner: Owner = QUERY) -> int:
        """A ledger that a task of an earlier release wrote."""
        custom = Purpose(owner, write, batch, 0, 0, None, "/spark").custom()
        return self.ledger({**custom, "spark.created": b"0"})

    def commit(self, batch: int, ledger_id: int, *, owner: Owner = QUERY) -> None:
        """Commit a ledger as a batch."""
        ledgers = (WrittenLedger(ledger_id, 1, 1, 0, 0, 0),)
        custom = dict(self.run(_custom(self.client, ledger_id)))
        head_id = int(custom["spark.head"]) if "spark.head" in custom else None
        oldest_ms = self.run(oldest_of(self.client, [ledger_id]))
        self.run(self.commits.commit(owner, Commit(batch, "w", ledgers), oldest_ms, head_id))

    def remove(self, path: str) -> None:
        """With all that is below, as an operator would."""
        nodes = self.metadata.znodes.leader.nodes
        for each in sorted((each for each in nodes if f"{each}/".startswith(f"{path}/")), reverse=True):
            self.metadata.znodes.delete(each, nodes[each].version)

    def sweep(self, *, dry_run: bool = False) -> Swept:
        """Of what is older than AGE_S."""
        return self.run(sweep_with(self.client, "/spark", AGE_S, dry_run=dry_run))

    def there(self) -> set[int]:
        """All ledgers."""

        async def listed() -> set[int]:
            return {int(each) async for batch in self.client.ids() for each in batch}

        return self.run(listed())


async def _custom(client: LedgerClient, ledger_id: int) -> Any:
    return (await client.metadata(ledger_id)).custom
