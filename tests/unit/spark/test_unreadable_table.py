"""Rows of the table `unreadable`: records that can have no row in another table, each by its path."""

from __future__ import annotations

import random
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.metadata.ledgers.paths import hierarchical_path
from bookkeeper.metadata.memory.store import MemoryMetadata, MemoryMetadataStore
from bookkeeper.model import BookieId, LedgerId
from bookkeeper.spark.cluster import unreadable
from bookkeeper.spark.cluster.unreadable import UNREADABLE, unreadable_rows
from tests.support.metadata_contract.world import ledger
from tests.support.simulated_clock import SimulatedClock

U = "/ledgers/underreplication"

STRAYS = {
    "/ledgers/notaledger": "ledger",
    "/ledgers/00/00zz": "ledger",
    f"{U}/ledgers/x": "underreplicated",
    f"{U}/badcopies/x": "damaged",
    f"{U}/workers/x": "recovery_process",
}


class Cluster:
    """A cluster with one ledger, which is marked."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.shared = MemoryMetadata(clock=self.clock)
        self.store = MemoryMetadataStore(self.shared, self.clock, random.Random(1))
        self.now(self.store.ledgers.create(ledger(), LedgerId(1)))
        self.now(self.store.underreplication.mark(LedgerId(1), [BookieId("a:1")], now_ms=1))

    def now(self, done: Deferred[Any]) -> None:
        found: list[object] = []
        done.addBoth(found.append)
        self.clock.run_until(lambda: bool(found), seconds=60.0)

    def rows(self) -> list[dict[str, Any]]:
        names, found = [column.name for column in UNREADABLE.columns], list[dict[str, Any]]()

        async def collect() -> None:
            async for piece in unreadable_rows(self.store):
                found.extend(dict(zip(names, row, strict=True)) for row in piece)

        self.now(Deferred.fromCoroutine(collect()))
        return found


def test_each_stray_is_a_row_with_the_list_that_lacks_it() -> None:
    cluster = Cluster()
    assert cluster.rows() == []
    for path in STRAYS:
        cluster.shared.plant(path, b"\xff")
    found = cluster.rows()
    assert {row["path"]: row["kind"] for row in found} == STRAYS
    assert all(row["problem"] for row in found)


def test_a_record_that_has_a_row_in_its_own_table_is_none_here() -> None:
    cluster = Cluster()
    cluster.shared.damage(f"/ledgers{hierarchical_path(LedgerId(1))}", b"\xff")
    assert cluster.rows() == []


def test_strays_beyond_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "NAMED_MAX", 2)
    cluster = Cluster()
    for number in range(5):
        cluster.shared.plant(f"/ledgers/stray{number}", b"")
    found = cluster.rows()
    assert [row["path"] for row in found] == ["/ledgers/stray0", "/ledgers/stray1", None]
    assert (found[-1]["kind"], found[-1]["problem"]) == ("ledger", "3 more are not named here")
