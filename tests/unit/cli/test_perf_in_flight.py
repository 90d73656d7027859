"""One window over all ledgers: it is always full, never more, and every ledger has its turn."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.cli.perf.in_flight import RANGE_MAX, LedgerReaders, LedgerWriters
from bookkeeper.cli.perf.measurement import Measurement
from bookkeeper.client.read.read_handle import Entry
from bookkeeper.errors import WindowFull

SECONDS = 8.0


def running() -> Measurement:
    measurement = Measurement(SECONDS)
    measurement.start(lambda: 0)
    return measurement


class WrittenLedger:
    """The part of a WriteHandle that is used; a test acknowledges."""

    def __init__(self) -> None:
        self.on_acknowledged: Callable[[range], object] = lambda _: None
        self.on_failed: Callable[[Exception], object] = lambda _: None
        self.appended = self.acknowledged = 0

    @property
    def in_flight(self) -> int:
        return self.appended - self.acknowledged

    def append_batch_nowait(self, payloads: list[bytes]) -> range:
        assert payloads == [b"p"] * len(payloads)
        first = self.appended
        self.appended += len(payloads)
        return range(first, self.appended)

    def acknowledge(self, count: int) -> None:
        first = self.acknowledged
        self.acknowledged += count
        assert self.acknowledged <= self.appended
        self.on_acknowledged(range(first, self.acknowledged))


def writers_of(ledgers: list[WrittenLedger], window: int, measurement: Measurement) -> LedgerWriters:
    handles: list[Any] = list(ledgers)
    return LedgerWriters(handles, b"p", window, measurement)


@pytest.mark.parametrize(("count", "window"), [(1, 1), (1, 100), (3, 100), (7, 7), (50, 4), (1000, 1)])
def test_writes_fill_the_window_and_reach_every_ledger(
    count: int, window: int, seed: int, advance: Callable[[float], None]
) -> None:
    rng = random.Random(seed)
    ledgers = [WrittenLedger() for _ in range(count)]
    measurement = running()
    finished = writers_of(ledgers, window, measurement).run()
    for _ in range(3 * count):
        assert sum(ledger.in_flight for ledger in ledgers) == window
        ledger = rng.choice([ledger for ledger in ledgers if ledger.in_flight])
        ledger.acknowledge(rng.randint(1, ledger.in_flight))
    appended = [ledger.appended for ledger in ledgers]
    assert min(appended) >= 1
    assert sum(appended) == window + measurement.done
    advance(SECONDS)
    while busy := [ledger for ledger in ledgers if ledger.in_flight]:
        assert not finished.called
        busy[0].acknowledge(busy[0].in_flight)
    assert finished.called
    assert [ledger.appended for ledger in ledgers] == appended
    assert measurement.done == sum(appended)


def test_turns_are_even_however_the_answers_come(advance: Callable[[float], None]) -> None:
    fast, slow = WrittenLedger(), WrittenLedger()
    writers_of([fast, slow], 10, running()).run()
    for _ in range(4):
        fast.acknowledge(fast.in_flight)
    assert (fast.appended, slow.appended) == (10, 10)
    assert (fast.in_flight, slow.in_flight) == (0, 10)


def test_a_warm_up_ends_after_its_entries_and_counts_nothing() -> None:
    ledgers = [WrittenLedger() for _ in range(3)]
    measurement = running()
    writers = writers_of(ledgers, 4, measurement)
    finished = writers.run(10)
    while busy := [ledger for ledger in ledgers if ledger.in_flight]:
        busy[-1].acknowledge(1)
    assert finished.called
    assert sum(ledger.appended for ledger in ledgers) == 10
    assert measurement.done == 0
    assert not writers.run().called
    assert sum(ledger.in_flight for ledger in ledgers) == 4


class NarrowLedger(WrittenLedger):
    """Its window holds `room` entries, and an entry that is acknowledged keeps its place until `answer`."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room, self.waiting = room, list[Deferred[None]]()

    def append_batch_nowait(self, payloads: list[bytes]) -> range:
        if len(payloads) > self.room:
            raise WindowFull("the window is full")
        self.room -= len(payloads)
        return super().append_batch_nowait(payloads)

    def ready(self) -> Deferred[None]:
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def answer(self, count: int) -> None:
        self.room += count
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(None)


@pytest.mark.parametrize("limit", [None, 40])
def test_what_a_window_does_not_take_goes_when_it_has_room(limit: int | None, advance: Callable[[float], None]) -> None:
    """A third bookie that answers late holds places of entries that two have acknowledged."""
    ledger = NarrowLedger(12)
    finished = writers_of([ledger], 10, running()).run(limit)
    ledger.acknowledge(10)
    assert (ledger.appended, ledger.room) == (12, 0)
    ledger.acknowledge(2)
    while not finished.called and ledger.appended < 40:
        ledger.answer(3)
        ledger.acknowledge(ledger.in_flight)
    if limit is None:
        assert not finished.called
        advance(SECONDS)
        while not finished.called:
            ledger.answer(3)
            ledger.acknowledge(ledger.in_flight)
    assert ledger.appended == (limit or 42)
    assert ledger.in_flight == 0


def test_latency_is_that_of_each_burst(advance: Callable[[float], None]) -> None:
    ledger = WrittenLedger()
    measurement = running()
    added: list[tuple[int, float, float]] = []
    sizes: list[int] = []

    def add(count: int, began: float, now: float, *, payload_size: int) -> None:
        added.append((count, began, now))
        sizes.append(payload_size)

    measurement.add = add  # type: ignore[method-assign]
    writers_of([ledger], 4, measurement).run()
    advance(1.0)
    ledger.acknowledge(3)
    advance(1.0)
    ledger.acknowledge(2)
    assert added == [(3, 100.0, 101.0), (1, 100.0, 102.0), (1, 101.0, 102.0)]
    assert sizes == [3 * len(b"p"), 1, 1]


def test_a_failed_ledger_ends_the_run() -> None:
    ledgers = [WrittenLedger(), WrittenLedger()]
    finished = writers_of(ledgers, 2, running()).run()
    failures: list[Any] = []
    finished.addErrback(failures.append)
    ledgers[1].on_failed(ValueError("gone"))
    ledgers[0].on_failed(ValueError("too"))
    assert [failure.getErrorMessage() for failure in failures] == ["gone"]


class ReadLedger:
    """The part of a ReadHandle that is used; a test answers."""

    def __init__(self, size: int) -> None:
        self.last_add_confirmed = size - 1
        self.asked: list[tuple[int, int]] = []
        self.waiting: list[tuple[int, Deferred[list[Entry]]]] = []

    def read(self, first: int, last: int) -> Deferred[list[Entry]]:
        assert 0 <= first <= last <= self.last_add_confirmed
        self.asked.append((first, last))
        answer: Deferred[list[Entry]] = Deferred()
        self.waiting.append((last - first + 1, answer))
        return answer

    def answer(self, payload: bytes = b"p") -> None:
        count, answer = self.waiting.pop(0)
        answer.callback([Entry(0, payload, len(payload))] * count)

    @property
    def in_flight(self) -> int:
        return sum(count for count, _ in self.waiting)


def readers_of(ledgers: list[ReadLedger], window: int, measurement: Measurement) -> LedgerReaders:
    handles: list[Any] = list(ledgers)
    return LedgerReaders(handles, window, measurement)


@pytest.mark.parametrize(("count", "window"), [(1, 1), (1, 150), (3, 1000), (50, 4), (12, 100), (300, 1)])
def test_reads_fill_the_window_and_reach_every_ledger(
    count: int, window: int, seed: int, advance: Callable[[float], None]
) -> None:
    rng = random.Random(seed)
    ledgers = [ReadLedger(1_000_000) for _ in range(count)]
    measurement = running()
    finished = readers_of(ledgers, window, measurement).run()
    for _ in range(2 * count):
        assert sum(ledger.in_flight for ledger in ledgers) == window
        rng.choice([ledger for ledger in ledgers if ledger.waiting]).answer()
    assert all(ledger.asked for ledger in ledgers)
    assert max(last - first + 1 for ledger in ledgers for first, last in ledger.asked) <= RANGE_MAX
    advance(SECONDS)
    while busy := [ledger for ledger in ledgers if ledger.waiting]:
        assert not finished.called
        busy[0].answer()
    assert finished.called


def test_a_ledger_is_read_to_its_end_and_from_its_start_again() -> None:
    ledger = ReadLedger(250)
    readers_of([ledger], 100, running()).run()
    for _ in range(3):
        ledger.answer()
    assert ledger.asked == [(0, 99), (100, 199), (200, 249), (0, 99)]


def test_what_was_read_is_counted_by_its_own_size(advance: Callable[[float], None]) -> None:
    ledger = ReadLedger(1_000_000)
    measurement = running()
    readers_of([ledger], 10, measurement).run()
    advance(SECONDS / 2)
    ledger.answer()  # starts the part that is counted
    ledger.answer(b"four")
    ledger.answer(b"")
    assert measurement.stop()["operations"] == 20
    assert measurement.stop()["payload_size"] == 10 * 4
