"""CommitQueue against a simple twin: order, bounds, one group in flight."""

import random

import pytest

from bookkeeper.bookie.journal.group_commit import Append, CommitQueue
from bookkeeper.errors import JournalFull


def append_of(number: int, size: int) -> Append:
    return Append([b""], size, 1, lambda _: None, float(number))


def test_nothing_to_take_while_nothing_waits():
    assert CommitQueue(group_bytes_max=10, pending_bytes_max=10).take() == []


def test_one_group_is_in_flight_at_a_time():
    queue = CommitQueue(group_bytes_max=10, pending_bytes_max=100)
    first, second = append_of(1, 5), append_of(2, 5)
    queue.add(first)
    assert queue.take() == [first]
    queue.add(second)
    assert queue.take() == []
    assert queue.landed() == [first]
    assert queue.take() == [second]


def test_abandon_returns_everything_in_order_and_empties():
    queue = CommitQueue(group_bytes_max=10, pending_bytes_max=100)
    appends = [append_of(number, 8) for number in range(4)]
    for append in appends:
        queue.add(append)
    queue.take()
    assert queue.abandon() == appends
    assert queue.is_idle
    assert queue.pending_bytes == 0
    assert queue.abandon() == []


def test_an_empty_queue_takes_what_exceeds_its_bound():
    queue = CommitQueue(group_bytes_max=10, pending_bytes_max=10)
    queue.add(append_of(1, 50))
    with pytest.raises(JournalFull):
        queue.add(append_of(2, 1))


def test_very_small_appends_are_bounded_by_the_memory_they_take():
    queue = CommitQueue(group_bytes_max=1 << 20, pending_bytes_max=5000, append_overhead=500)
    for number in range(9):
        queue.add(append_of(number, 20))
    assert queue.pending_bytes == 9 * 520
    with pytest.raises(JournalFull):
        queue.add(append_of(9, 20))
    queue.take()
    queue.landed()
    assert queue.pending_bytes == 0


def test_random_runs_agree_with_a_plain_list(rng: random.Random):
    """Everything leaves once, in order, in groups within the bound (or of one append), and the counters add up."""
    for _ in range(50):
        group_max, pending_max = rng.randint(1, 60), rng.randint(1, 200)
        queue = CommitQueue(group_bytes_max=group_max, pending_bytes_max=pending_max)
        model: list[Append] = []
        in_flight = 0
        for number in range(200):
            choice = rng.random()
            if choice < 0.5:
                append = append_of(number, rng.randint(1, 40))
                pending = sum(one.size for one in model)
                if pending and pending + append.size > pending_max:
                    with pytest.raises(JournalFull):
                        queue.add(append)
                else:
                    queue.add(append)
                    model.append(append)
            elif choice < 0.8:
                group = queue.take()
                if in_flight or not model:
                    assert group == []
                else:
                    in_flight = len(group)
                    assert group == model[:in_flight]
                    assert in_flight == 1 or sum(one.size for one in group) <= group_max
                    whole = model[: in_flight + 1]
                    assert len(whole) == in_flight or sum(one.size for one in whole) > group_max
            else:
                assert queue.landed() == model[:in_flight]
                del model[:in_flight]
                in_flight = 0
            assert queue.pending_bytes == sum(one.size for one in model)
            assert queue.is_idle == (not model)
            assert queue.is_congested == (queue.pending_bytes * 2 > pending_max)
            assert queue.waiting_count == len(model) - in_flight
