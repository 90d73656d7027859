"""Batch reads: Apache's way of counting, where they end, what they cost, and the fence before them."""

from __future__ import annotations

import struct

import pytest

from bookkeeper.bookie.bookie import BookieBounds
from bookkeeper.bookie.requests import batch_read
from bookkeeper.bookie.requests.batch_read import ANSWER_BYTES, LOOK_UP_FIRST, LOOK_UP_MAX
from bookkeeper.model import Status
from bookkeeper.wire import v2_server
from bookkeeper.wire.messages import BatchRead
from bookkeeper.wire.packed_bodies import PackedBodies, packed
from tests.support.bookie_fakes import OTHER_KEY, BookieBench, body_of

SIZE = 32 + 68
"""Of each entry."""


def bench_with(count: int, *, bounds: BookieBounds | None = None) -> BookieBench:
    """Ledger 7 with `count` entries of SIZE bytes."""
    bench = BookieBench(bounds=bounds)
    bench.add(list(range(count)), payload=b"x" * 68)
    bench.settle()
    return bench


def ids_in(answers: list[tuple[Status, list[bytes]]]) -> list[int]:
    """Entry ids of the one answer, which is OK."""
    ((status, bodies),) = answers
    assert status is Status.OK
    return [int.from_bytes(body[8:16], "big", signed=True) for body in bodies]


def test_entries_come_in_order_from_the_first_on() -> None:
    bench = bench_with(10)
    assert bench.batch_read(3, 4) == [(Status.OK, [body_of(7, entry_id, b"x" * 68) for entry_id in (3, 4, 5, 6)])]


@pytest.mark.parametrize("count_max", [0, -1, 1000])
def test_no_count_means_up_to_the_last_one(count_max: int) -> None:
    assert ids_in(bench_with(10).batch_read(3, count_max)) == list(range(3, 10))


@pytest.mark.parametrize(
    ("size_max", "count"),
    [
        (ANSWER_BYTES + 3 * (SIZE + 4), 3),
        (ANSWER_BYTES + 3 * (SIZE + 4) - 1, 2),
        (ANSWER_BYTES + 2 * (SIZE + 4) - 1, 1),
        (ANSWER_BYTES, 1),
        (1, 1),
        (0, 1),  # as Apache: no size is one entry, unlike no count
        (-1, 1),
    ],
)
def test_the_size_counts_the_frame_and_the_first_entry_always_comes(size_max: int, count: int) -> None:
    assert len(ids_in(bench_with(10).batch_read(0, 0, size_max))) == count


def test_the_bookies_own_bound_counts_as_the_requests() -> None:
    bounds = BookieBounds(batch_read_bytes_max=ANSWER_BYTES + 5 * (SIZE + 4))
    assert ids_in(bench_with(100, bounds=bounds).batch_read(0, 50)) == [0, 1, 2, 3, 4]


def test_it_ends_before_the_first_entry_that_is_missing() -> None:
    bench = bench_with(3)
    bench.add([4, 5], payload=b"x" * 68)
    assert ids_in(bench.batch_read(0, 10)) == [0, 1, 2]
    assert bench.batch_read(3, 10) == [(Status.NO_ENTRY, [])]
    assert bench.batch_read(9, 10) == [(Status.NO_ENTRY, [])]
    assert bench.batch_read(0, 10, ledger_id=99) == [(Status.NO_LEDGER, [])]


def test_an_unreadable_first_entry_is_an_error_and_a_later_one_ends_the_batch() -> None:
    """I-31: an entry that cannot be read is not missing."""
    bench = bench_with(3)
    bench.storage.cold_entries.add((7, 1))
    bench.storage.cold_error = OSError(5, "Input/output error")
    answers = [bench.batch_read(1, 2)]
    bench.worker.run_all()
    assert answers == [[(Status.IO_ERROR, [])]]
    bench.storage.cold_error = None
    bench.storage.entries[7][1] = Status.IO_ERROR  # type: ignore[assignment]
    bench.storage.cold_entries.clear()
    assert ids_in(bench.batch_read(0, 3)) == [0]
    assert bench.bookie.in_flight == 0


def test_the_last_entry_comes_alone() -> None:
    assert ids_in(bench_with(5).batch_read(-1, 10)) == [4]
    assert BookieBench().batch_read(-1, 10) == [(Status.NO_LEDGER, [])]


def test_sizes_that_grow_beyond_the_guess_stay_within_the_bound() -> None:
    bench = BookieBench()
    bench.add(list(range(100)), payload=b"")
    bench.add(list(range(100, 200)), payload=b"y" * 5000)
    bench.settle()
    ids = ids_in(bench.batch_read(0, 0, 100_000))
    total = ANSWER_BYTES + sum(4 + len(bench.storage.entries[7][entry_id]) for entry_id in ids)
    assert ids == list(range(len(ids)))
    assert total <= 100_000 < total + 5036


def test_a_second_batch_of_the_same_ledger_takes_few_look_ups() -> None:
    bench = bench_with(250)
    looked_up: list[int] = []
    read = bench.storage.read

    def counted(ledger_id: int, entry_ids: list[int]) -> list[bytes | Status | None]:
        looked_up.append(len(entry_ids))
        return read(ledger_id, entry_ids)

    bench.storage.read = counted  # type: ignore[method-assign, assignment]
    assert len(ids_in(bench.batch_read(0, 100))) == 100
    assert looked_up == [LOOK_UP_FIRST, 100 - LOOK_UP_FIRST]
    looked_up.clear()
    assert len(ids_in(bench.batch_read(100, 100))) == 100
    assert looked_up == [100]
    looked_up.clear()
    assert len(ids_in(bench.batch_read(0, 250))) == 250
    assert looked_up == [LOOK_UP_MAX, 250 - LOOK_UP_MAX]


def test_what_lies_together_is_sent_as_it_lies_and_the_rest_one_by_one() -> None:
    """Entries 10 to 39 and 50 to 59 are runs, of at most 20 entries each."""
    bench = bench_with(100)
    asked: list[int] = []

    def runs(ledger_id: int, first: int, count_max: int, size_max: int) -> PackedBodies | None:
        asked.append(first)
        held = bench.storage.entries[ledger_id]
        stop = 40 if 10 <= first < 40 else 60 if 50 <= first < 60 else first
        count = min(20, stop - first, count_max, size_max // (SIZE + 4))
        together = b"".join(struct.pack(">i", SIZE) + held[first + at] for at in range(max(0, count)))
        return packed(together, 0, len(together)) if count > 1 else None

    bench.storage.runs = runs
    for first, count, size_max in [
        (0, 100, 1 << 20),
        (10, 5, 1 << 20),
        (12, 100, 36 + 40 * 104 + 50),
        (59, 2, 1 << 20),
    ]:
        ((status, bodies),) = bench.batch_read(first, count, size_max)
        expected = min(count, 100 - first, (size_max - 36) // 104)
        assert ids_in([(status, list(bodies))]) == list(range(first, first + expected))
        request = BatchRead(7, first, 1, 0, 0, False, None, bytes(12))
        one_by_one = v2_server.batch_read_reply(request, status, list(bodies))
        assert v2_server.batch_read_reply(request, status, bodies) == one_by_one
    assert asked[:4] == [0, 16, 36, 40]


def test_very_many_look_ups_are_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_read, "LOOK_UP_FIRST", 1)
    monkeypatch.setattr(batch_read, "LOOK_UP_MAX", 1)
    assert len(ids_in(bench_with(3000).batch_read(0))) == 3000


def test_cold_entries_are_read_by_the_worker_and_the_ledger_is_loaded_first() -> None:
    bench = bench_with(5)
    bench.storage.cold_ledgers.add(7)
    bench.storage.cold_entries.update((7, entry_id) for entry_id in range(5))
    answers = bench.batch_read(1, 3)
    assert answers == []
    bench.worker.run_all()
    assert ids_in(answers) == [1, 2, 3]


def test_a_fence_comes_before_the_entries_and_is_durable_before_the_answer() -> None:
    """I-23."""
    bench = bench_with(3)
    answers, missing = bench.batch_read(0, 3, fence=True), bench.batch_read(7, 3, fence=True)
    assert answers == missing == []
    assert bench.add([9]) == [Status.FENCED]
    bench.journal.sync()
    assert ids_in(answers) == [0, 1, 2]
    assert missing == [(Status.NO_ENTRY, [])]
    assert bench.batch_read(0, 1, fence=True) != []  # it is durable now


@pytest.mark.parametrize("key", [None, OTHER_KEY])
def test_a_fence_without_the_ledgers_key_fences_nothing(key: bytes | None) -> None:
    """I-26."""
    bench = bench_with(3)
    assert bench.batch_read(0, 3, fence=True, key=key) == [(Status.UNAUTHORIZED, [])]
    answers = bench.add([3])
    bench.settle()
    assert answers == [Status.OK]


def test_a_fence_whose_sync_fails_answers_nothing() -> None:
    """I-48."""
    bench = bench_with(3)
    answers = bench.batch_read(0, 3, fence=True)
    bench.journal.fail(OSError(5, "Input/output error"))
    assert answers == []
    assert len(bench.exits) == 1
