"""What an audit is planned from: how far each ledger reaches, as far as that can be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.config import ClientSettings
from bookkeeper.errors import NoSuchLedger
from bookkeeper.spark.audit import ledger_ends as module
from bookkeeper.spark.audit.ledger_ends import LedgerEnds, ids_there, ledger_ends
from bookkeeper.spark.ledgers.options import parse_ledgers
from tests.support.fake_bookie import SILENCE, FakeCluster


class Planning:
    """A cluster of four; as the blocking client of a planner. Ledgers 0 to 3 are closed, 10 bytes each."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(4)
        self.client = self.cluster.client(ClientSettings(explicit_lac_interval_s=0.0, read_timeout_s=1.0))
        self.ids = [self.written() for _ in range(4)]

    def run(self, start: Callable[[LedgerClient], Deferred[Any]]) -> Any:
        return self.cluster.wait(start(self.client))

    def written(self, *, close: bool = True, **how: Any) -> int:
        ledger = self.cluster.wait(self.client.create(**how))
        self.cluster.wait(ledger.append_many([b"12345"] * 2))
        if close:
            self.cluster.wait(ledger.close())
        return int(ledger.ledger_id)

    def ends(self, ledgers: str = "all", **how: Any) -> LedgerEnds:
        planner: Any = self
        return ledger_ends(planner, parse_ledgers(ledgers), **how)


def ids_of(ends: LedgerEnds) -> list[int]:
    return [each.ledger_id for each in ends.extents]


def test_all_ledgers_are_planned_or_those_of_ranges_that_there_are_and_those_that_were_named() -> None:
    planning = Planning()
    planner: Any = planning
    assert ids_of(planning.ends()) == planning.ids == [0, 1, 2, 3]
    assert ids_of(planning.ends("2-900")) == [2, 3]
    assert ids_of(planning.ends("0,2-3")) == [0, 2, 3]
    assert ids_of(planning.ends("1,3")) == [1, 3]
    assert ids_of(planning.ends("1-2", there=ids_there(planner))) == [1, 2]
    assert planning.ends().lengths == dict.fromkeys(planning.ids, 10)
    with pytest.raises(NoSuchLedger, match="ledger 77 was to be audited and is not there"):
        planning.ends("1,77")


def test_an_open_ledger_that_no_bookie_tells_of_is_unknown_and_the_others_are_planned() -> None:
    planning = Planning()
    silent = planning.cluster.bookies[3]
    alone = {"ensemble": 1, "write_quorum": 1, "ack_quorum": 1, "bookies": [silent.bookie_id]}
    dark = planning.written(close=False, **alone)
    silent.rule = lambda request: SILENCE
    found = planning.ends()
    assert ids_of(found) == planning.ids
    assert set(found.unknown) == {dark}
    assert "what is confirmed of it is not known" in found.unknown[dark]


def test_how_far_the_planning_is_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP", 2)
    monkeypatch.setattr(module, "SAY_S", 0.0)
    said: list[str] = []
    Planning().ends(say=said.append)
    assert said == ["planning: looked at 2 of 4 ledgers", "planning: looked at 4 of 4 ledgers"]
