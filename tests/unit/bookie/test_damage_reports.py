"""Damaged copies are reported until they are repaired (I-67)."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.integrity.damage import reports
from bookkeeper.bookie.integrity.damage.record import NO_LEDGER, Damage, DamageRecord
from bookkeeper.bookie.integrity.damage.reports import (
    AGAIN_S,
    IN_FLIGHT_MAX,
    LOOK_INTERVAL_S,
    RANGES_MAX,
    DamageReports,
)
from bookkeeper.errors import MetadataUnavailable
from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange
from bookkeeper.model import BookieId

OURS = BookieId("b1:3181")


class Queue:
    """The cluster's queue of bad copies."""

    def __init__(self) -> None:
        self.told: list[tuple[int, list[tuple[int, int]]]] = []
        self.ranges: list[BadRange] = []
        self.error: Exception | None = None
        self.answer: Deferred[None] | None = None

    def report_bad_copies(self, ledger_id: int, ranges: Collection[BadRange]) -> Deferred[None]:
        if self.error is not None:
            return fail(self.error)
        self.ranges = list(ranges)
        self.told.append((ledger_id, [(each.first_entry_id, each.last_entry_id) for each in ranges]))
        return self.answer if self.answer is not None else succeed(None)


class Bench:
    def __init__(self) -> None:
        self.damage, self.queue, self.clock = DamageRecord(), Queue(), Clock()
        self.reports = DamageReports(self.damage, self.queue, self.clock, OURS, lambda: 1234)  # type: ignore[arg-type]
        self.reports.start()

    def find(self, ledger_id: int, first: int, last: int, offset: int = 0) -> None:
        self.damage.add(Damage(ledger_id, first, last, "/a/current/1.log", offset, "checksum"))

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(LOOK_INTERVAL_S)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_damage_is_reported_once_with_bookie_entries_and_reason(bench: Bench) -> None:
    bench.find(7, 3, 5, offset=4096)
    bench.find(NO_LEDGER, 0, 9)
    bench.look(3)
    assert bench.queue.told == [(7, [(3, 5)])]
    (told,) = bench.queue.ranges
    assert (told.bookie_id, told.reported_ms) == (OURS, 1234)
    assert told.reason == "/a/current/1.log at 4096: checksum"
    assert bench.reports.waiting == 0


def test_more_damage_of_a_ledger_and_what_stays_damaged_are_reported_again(bench: Bench) -> None:
    bench.find(7, 3, 5)
    bench.look()
    bench.find(7, 20, 21, offset=8192)
    bench.look()
    assert [ranges for _, ranges in bench.queue.told] == [[(3, 5)], [(3, 5), (20, 21)]]
    bench.clock.advance(AGAIN_S)
    bench.look()
    assert len(bench.queue.told) == 3


def test_what_is_left_while_a_repair_goes_on_is_no_news(bench: Bench) -> None:
    """Else a worker that repairs some entries, of many, is sent for all of them again."""
    bench.find(7, 0, 99)
    bench.find(7, 200, 299, offset=8192)
    bench.look()
    for first in range(0, 99, 3):
        bench.damage.replaced(7, [first, first + 1])
        bench.look()
    assert bench.queue.told == [(7, [(0, 99), (200, 299)])]
    bench.find(7, 4, 4)
    bench.look()
    assert len(bench.queue.told) == 2
    bench.clock.advance(AGAIN_S)
    bench.look()
    assert len(bench.queue.told) == 3


def test_what_was_repaired_is_reported_anew_when_it_is_damaged_again(bench: Bench) -> None:
    bench.find(7, 3, 3)
    bench.look()
    bench.damage.replaced(7, [3])
    bench.look()
    bench.find(7, 3, 3)
    bench.look()
    assert len(bench.queue.told) == 2


def test_a_store_that_cannot_be_reached_is_asked_again(bench: Bench) -> None:
    bench.queue.error = MetadataUnavailable("away")
    bench.find(7, 3, 5)
    bench.look(3)
    assert bench.reports.waiting == 1
    assert bench.reports.last_error == "away"
    bench.queue.error = None
    bench.look()
    assert bench.queue.told == [(7, [(3, 5)])]
    assert not bench.reports.last_error


def test_reports_under_way_are_bounded_and_each_ledger_has_one(bench: Bench) -> None:
    bench.queue.answer = Deferred()
    for ledger_id in range(IN_FLIGHT_MAX * 2):
        bench.find(ledger_id, 0, 0)
    bench.look(3)
    assert len(bench.queue.told) == IN_FLIGHT_MAX
    answer, bench.queue.answer = bench.queue.answer, None
    answer.callback(None)
    bench.look(2)
    assert {ledger_id for ledger_id, _ in bench.queue.told} == set(range(IN_FLIGHT_MAX * 2))


def test_very_many_ranges_of_a_ledger_become_one(bench: Bench) -> None:
    for number in range(RANGES_MAX + 1):
        bench.find(7, 10 * number, 10 * number, offset=4096 * number)
    bench.look()
    assert bench.queue.told == [(7, [(0, 10 * RANGES_MAX)])]


def test_nothing_is_reported_after_the_end(bench: Bench) -> None:
    bench.reports.stop()
    bench.find(7, 3, 5)
    bench.look(3)
    assert bench.queue.told == []
    assert not bench.clock.getDelayedCalls()
    assert reports.LOOK_INTERVAL_S < AGAIN_S


def test_what_was_reported_is_told_with_its_count(bench: Bench) -> None:
    for entry_id in (3, 4, 5, 9):
        bench.find(7, entry_id, entry_id, offset=1024)
    bench.damage.add(Damage.of_ledger(8, "/a/current/0/0/8.idx", 0, "checksum"))
    with capturedLogs() as events:
        bench.look()
    lines = [formatEvent(event) for event in events]
    assert lines == [
        "Reported damaged entries of ledger 7, for repair: 4 in 2 ranges",
        "Reported damaged entries of ledger 8, for repair: from some entry on, all of them",
    ]
