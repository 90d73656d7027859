"""Where to begin again: never behind anything that was asked for, and with few reads."""

from __future__ import annotations

import math
import random

from hedwig.model import LedgerRange, LocalId, MessageId
from hedwig.protocol.replay import Begin, at_id, at_time, run_plan
from hedwig.protocol.retention import LedgerFacts


def facts(ends: list[int], created: list[int | None], *, first: int = 1, is_open: bool = True) -> list[LedgerFacts]:
    found, start = [], first
    for index, (end, created_ms) in enumerate(zip(ends, created, strict=True)):
        last = None if is_open and index == len(ends) - 1 else MessageId(LocalId(end))
        found.append(LedgerFacts(LedgerRange(index, LocalId(start), last), None, created_ms))
        start = end + 1
    return found


def begin(ledgers: list[LedgerFacts], times: dict[int, int | None], time_ms: int) -> tuple[int, int]:
    """Where, and after how many reads."""
    reads = []

    def read(local_id: LocalId) -> int | None:
        reads.append(local_id)
        return times[local_id]

    return run_plan(at_time(ledgers, LocalId(max(times, default=0)), time_ms), read), len(reads)


def test_at_a_message() -> None:
    def at(wanted: int) -> Begin:
        return at_id(LocalId(wanted), LocalId(5), LocalId(9))

    assert at(7) == Begin(LocalId(7))
    assert at(9) == Begin(LocalId(9))
    assert at(10) == at(99) == Begin(LocalId(10))
    assert at(2) == Begin(LocalId(5), lost=3)


def test_at_a_time_is_the_first_message_of_that_time_or_later() -> None:
    ledgers = facts([10, 20, 30], [0, 100, 200])
    times: dict[int, int | None] = {local_id: 10 * (local_id - 1) for local_id in range(1, 31)}
    for time_ms, expected in (
        (0, 1),
        (1, 2),
        (90, 10),
        (91, 11),
        (100, 11),
        (155, 17),
        (290, 30),
        (291, 31),
        (9999, 31),
    ):
        assert begin(ledgers, times, time_ms)[0] == expected


def test_equal_times_are_all_replayed() -> None:
    ledgers = facts([10, 20], [0, 5])
    assert begin(ledgers, dict.fromkeys(range(1, 21), 5), 5)[0] == 1
    assert begin(ledgers, dict.fromkeys(range(1, 21), 5), 6)[0] == 21


def test_a_topic_without_messages_begins_with_the_next_one() -> None:
    assert run_plan(at_time([], LocalId(7), 0), lambda local_id: None) == 8


def test_messages_without_a_time_come_with_the_ledger_that_was_written_then() -> None:
    ledgers = facts([10, 20, 30], [0, 100, 200])
    times: dict[int, int | None] = dict.fromkeys(range(1, 31))
    for time_ms, expected in ((0, 1), (50, 1), (100, 1), (101, 11), (200, 11), (201, 21), (999, 21)):
        assert begin(ledgers, times, time_ms)[0] == expected


def test_nothing_asked_for_is_left_out_whatever_clocks_and_old_hubs_did(rng: random.Random) -> None:
    """All of it, if all messages say when. Of those that do not, those behind a time that is old enough."""
    for _ in range(3000):
        count = rng.randint(1, 40)
        truth, now_ms = {}, 0
        for local_id in range(1, count + 1):
            now_ms += rng.choice([0, 1, 7])
            truth[local_id] = now_ms
        ends = sorted({*rng.sample(range(1, count + 1), rng.randint(0, min(5, count - 1))), count})
        starts = [1, *(end + 1 for end in ends[:-1])]
        skew = rng.choice([0, 0, 40])
        created: list[int | None] = [
            None if rng.random() < 0.1 else max(0, truth[start] + rng.randint(-skew, skew)) for start in starts
        ]
        exact = rng.random() < 0.5
        times = {each: time if exact or rng.random() < 0.6 else None for each, time in truth.items()}
        ledgers = facts(ends, created, is_open=rng.random() < 0.5)
        wanted = rng.randint(0, now_ms + 2)
        found, reads = begin(ledgers, times, wanted)
        expected = next((each for each, time in truth.items() if time >= wanted), count + 1)
        if exact:
            assert found == expected
        elif not skew:
            assert found <= expected
        assert reads <= 2 * len(ends) + len(ends) * math.ceil(math.log2(count + 1))


def test_few_messages_are_read_of_a_long_topic() -> None:
    ends = [1_000_000 * (index + 1) for index in range(100)]
    created: list[int | None] = [1 + 1_000_000 * index for index in range(100)]
    ledgers = facts(ends, created)
    reads = []

    def read(local_id: LocalId) -> int:
        reads.append(local_id)
        return local_id

    assert run_plan(at_time(ledgers, LocalId(ends[-1]), 34_567_890), read) == 34_567_890
    assert len(reads) <= 22


def test_where_no_ledger_says_when_it_was_made_few_messages_are_read() -> None:
    """Ledgers that hubs of 4.2 can read do not: a time is found by the messages alone."""
    ledgers = facts([10 * index for index in range(1, 1001)], [None] * 1000)
    times: dict[int, int | None] = {local_id: 7 * local_id for local_id in range(1, 10_001)}
    for time_ms in (0, 7, 8, 700, 35_000, 35_001, 69_999, 70_000, 70_001):
        found, reads = begin(ledgers, times, time_ms)
        assert found == min(max(1, -(-time_ms // 7)), 10_001)
        assert reads <= 20


def test_ledgers_without_times_in_their_messages_are_replayed_whole() -> None:
    ledgers = facts([10, 20, 30], [None] * 3)
    times: dict[int, int | None] = {local_id: None if local_id < 15 else local_id for local_id in range(1, 31)}
    assert begin(ledgers, times, 5)[0] == 1
    assert begin(ledgers, times, 25)[0] <= 25
