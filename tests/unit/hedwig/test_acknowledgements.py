"""Individual acknowledgement against a twin that keeps a state for each message."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from hedwig.errors import UnexpectedCondition
from hedwig.model import Gone, LocalId, SubscriberId, Topic
from hedwig.protocol.acknowledgements import Acknowledgements, Dead, DoneIds, Redelivery, dead_letter_properties

MANY = LocalId(1_000_000)


def of(floor: int = 0, **settings: float) -> Acknowledgements:
    return Acknowledgements(LocalId(floor), Redelivery(**settings))  # type: ignore[arg-type]


def deliver(acks: Acknowledgements, count: int, now_s: float = 0.0, durable: LocalId = MANY) -> list[int]:
    acks.advance(now_s)
    delivered = []
    for _ in range(count):
        local_id = acks.take(durable)
        if local_id is None:
            break
        acks.on_delivered(local_id, now_s)
        delivered.append(int(local_id))
    return delivered


def done(acks: Acknowledgements, *local_ids: int) -> None:
    for local_id in local_ids:
        assert acks.acknowledge(LocalId(local_id), LocalId(local_id)) == [local_id]


# --- ranges


def test_done_ids_say_what_a_set_says(rng: random.Random) -> None:
    for _ in range(300):
        floor = rng.randrange(3)
        found, twin = DoneIds(floor), set(range(floor + 1))
        for _ in range(rng.randrange(25)):
            first = rng.randint(1, 40)
            last = first + rng.randrange(6)
            found.add(first, last)
            twin |= set(range(first, last + 1))
            assert found.floor == next(each for each in range(60) if each + 1 not in twin)
            assert [each for each in range(60) if each in found] == sorted(twin)
            assert list(found.missing(1, 50)) == [each for each in range(1, 51) if each not in twin]
            start = rng.randint(0, 50)
            assert found.first_missing(start) == next(each for each in range(max(start, 1), 99) if each not in twin)
            end = rng.randint(found.floor, 50)
            assert found.last_missing(end) == max(
                each for each in range(end + 1) if each not in twin or each == found.floor
            )
            ranges = found.ranges
            assert all(first <= last for first, last in ranges)
            assert all(a[1] + 1 < b[0] for a, b in pairwise(ranges))
            assert not ranges or found.floor + 1 < ranges[0][0]


# --- deliveries


def test_the_floor_moves_only_over_what_is_done() -> None:
    acks = of(10)
    assert deliver(acks, 5) == [11, 12, 13, 14, 15]
    done(acks, 13, 12)
    floors = [acks.floor]
    done(acks, 11)
    assert [*floors, acks.floor] == [10, 13]
    assert acks.acknowledge(LocalId(1), LocalId(99)) == [14, 15], "no more than was delivered"
    assert (acks.floor, acks.next_id, acks.outstanding) == (15, 16, 0)
    assert acks.acknowledge(LocalId(15), LocalId(15)) == []


def test_what_is_not_acknowledged_in_time_comes_again_lowest_first_and_before_new_ones() -> None:
    acks = of(timeout_s=10)
    assert deliver(acks, 2, 0.0) == [1, 2]
    assert deliver(acks, 2, 5.0) == [3, 4]
    assert acks.next_deadline_s == 10.0
    done(acks, 2)
    assert acks.advance(9.9) == []
    assert acks.advance(15.0) == [1, 3, 4]
    assert [acks.next_deadline_s] == [None]
    assert deliver(acks, 4, 15.0) == [1, 3, 4, 5]
    assert (acks.attempts(LocalId(1)), acks.attempts(LocalId(5))) == (2, 1)


def test_a_late_acknowledgement_counts() -> None:
    acks = of(timeout_s=10)
    deliver(acks, 3)
    acks.advance(10.0)
    done(acks, 1)
    assert acks.floor == 1
    assert deliver(acks, 3, 10.0) == [2, 3, 4]


def test_what_is_given_back_comes_after_its_delay() -> None:
    acks = of(timeout_s=100)
    deliver(acks, 3)
    assert acks.give_back(LocalId(2), 0.0)
    assert acks.give_back(LocalId(1), 0.0, 5.0)
    assert not acks.give_back(LocalId(1), 0.0)
    assert not acks.give_back(LocalId(99), 0.0)
    assert acks.next_deadline_s == 5.0
    assert deliver(acks, 2, 1.0) == [2, 4]
    assert deliver(acks, 2, 5.0) == [1, 5]
    acks.give_back(LocalId(1), 5.0, 5.0)
    done(acks, 1)
    assert deliver(acks, 1, 50.0) == [6]


def test_a_message_with_all_its_attempts_is_dead_until_its_letter_is_stored() -> None:
    acks = of(timeout_s=10, attempts_max=2)
    deliver(acks, 2, 0.0)
    done(acks, 2)
    acks.advance(10.0)
    assert acks.take_dead() == []
    assert deliver(acks, 1, 10.0) == [1]
    acks.advance(20.0)
    assert deliver(acks, 1, 20.0) == [3], "the dead one is not delivered"
    assert acks.take_dead() == [Dead(LocalId(1), 2)]
    assert acks.take_dead() == []
    assert acks.floor == 0
    acks.on_dead_letter_failed(LocalId(1))
    assert acks.take_dead() == [Dead(LocalId(1), 2)]
    done(acks, 1)
    assert acks.floor == 2
    acks.on_dead_letter_failed(LocalId(1))
    assert acks.take_dead() == []


def test_no_more_than_so_many_are_outstanding() -> None:
    acks = of(outstanding_max=3, attempts_max=1, timeout_s=10)
    assert deliver(acks, 9) == [1, 2, 3]
    done(acks, 2)
    assert deliver(acks, 9) == [4]
    acks.advance(10.0)
    assert len(acks.take_dead()) == 3
    assert deliver(acks, 9, 10.0) == [], "dead ones count until their letters are stored"
    done(acks, 1, 3, 4)
    assert deliver(acks, 9, 10.0) == [5, 6, 7]


def test_what_is_durable_only_is_delivered() -> None:
    acks = of()
    assert deliver(acks, 5, durable=LocalId(2)) == [1, 2]
    assert deliver(acks, 5, durable=LocalId(2)) == []


def test_what_is_passed_over_is_done() -> None:
    acks = of(attempts_max=1, timeout_s=1)
    deliver(acks, 2)
    assert acks.pass_over(LocalId(3), LocalId(3)) == []
    assert deliver(acks, 1) == [4]
    acks.give_back(LocalId(2), 0.0)
    assert acks.pass_over(LocalId(1), LocalId(1_000_000_000)) == [1, 2, 4]
    assert (acks.floor, acks.outstanding, acks.take_dead()) == (1_000_000_000, 0, [])


def test_an_attempt_that_is_cancelled_does_not_count() -> None:
    acks = of(attempts_max=1)
    deliver(acks, 1)
    acks.cancel(LocalId(1))
    assert deliver(acks, 1) == [1]
    assert acks.attempts(LocalId(1)) == 1


def test_a_restart_delivers_again_what_was_not_done_and_counts_on() -> None:
    acks = of(5, attempts_max=2, timeout_s=10)
    deliver(acks, 6)
    done(acks, 8, 9)
    again = Acknowledgements.decode(acks.encode(), Redelivery(attempts_max=2, timeout_s=10))
    assert again.acknowledge(LocalId(6), LocalId(6)) == [], "not delivered to anybody since"
    assert deliver(again, 9, durable=LocalId(12)) == [6, 7, 10, 11, 12]
    again.advance(10.0)
    assert again.take_dead() == [Dead(LocalId(each), 2) for each in (6, 7, 10, 11)]


def test_deleted_messages_are_neither_done_nor_delivered() -> None:
    acks = of(timeout_s=10)
    deliver(acks, 5)
    done(acks, 2)
    acks.give_back(LocalId(4), 0.0)
    acks.on_deleted(LocalId(8))
    assert (acks.floor, acks.gone, acks.lost) == (8, Gone(LocalId(1), LocalId(8)), Gone(LocalId(4), LocalId(8)))
    assert acks.acknowledge(LocalId(1), LocalId(1)) == [1]
    assert acks.acknowledge(LocalId(4), LocalId(4)) == [4], "it was delivered, and is done"
    assert acks.acknowledge(LocalId(4), LocalId(4)) == []
    assert acks.gone == Gone(LocalId(3), LocalId(8))
    assert deliver(acks, 2) == [9, 10]
    acks.cancel(LocalId(5))
    acks.on_reported()
    assert (acks.gone, acks.lost) == (Gone(LocalId(3), LocalId(3)), None), "a consumer has 3"
    assert acks.advance(10.0) == [3, 9, 10]
    assert acks.lost == Gone(LocalId(3), LocalId(3))
    assert deliver(acks, 3, 10.0) == [9, 10, 11]


def test_what_is_done_among_many_deleted_messages_takes_no_room() -> None:
    """A client that does not read hw.gone never confirms it, so the range stays."""
    acks = of(outstanding_max=10)
    sizes = []
    for _ in range(20):
        some = deliver(acks, 10)
        for local_id in some[1::2]:
            acks.acknowledge(local_id, local_id)
        acks.on_deleted(some[-1])
        for local_id in some[::2]:
            acks.give_back(local_id, 0.0)
        sizes.append(len(acks.encode()))
    assert acks.gone == acks.lost == Gone(LocalId(1), LocalId(199))
    assert max(sizes) < 100


def test_which_deleted_messages_are_not_done_is_what_a_twin_says(rng: random.Random) -> None:
    for _ in range(200):
        acks = of(timeout_s=1e9)
        out: set[int] = set()
        over: set[int] = set()
        deleted = 0
        for _ in range(60):
            match rng.randrange(6):
                case 0 | 1:
                    out.update(deliver(acks, rng.randrange(4)))
                case 2:
                    first = rng.randint(1, acks.next_id)
                    last = min(acks.next_id - 1, first + rng.choice([0, 0, 3]))
                    acks.acknowledge(LocalId(first), LocalId(last))
                    over.update(range(first, last + 1))
                case 3 if out - over:
                    local_id = rng.choice(sorted(out - over))
                    acks.give_back(LocalId(local_id), 0.0)
                    out.discard(local_id)
                case 4 if rng.random() < 0.4:
                    deleted = max(deleted, rng.randrange(acks.next_id + 5))
                    acks.on_deleted(LocalId(deleted))
                case 5 if rng.random() < 0.2:
                    acks.on_reported()
                    over.update(each for each in range(1, deleted + 1) if each not in out)
            missing = [each for each in range(1, deleted + 1) if each not in over]
            lost = [each for each in missing if each not in out]
            assert acks.gone == (Gone(LocalId(missing[0]), LocalId(missing[-1])) if missing else None)
            assert acks.lost == (Gone(LocalId(lost[0]), LocalId(lost[-1])) if lost else None)
            assert acks.floor == next(each for each in range(deleted, 999) if each + 1 not in over)
            assert acks.floor >= deleted
            again = Acknowledgements.decode(acks.encode(), Redelivery())
            again.on_deleted(LocalId(deleted))
            assert (again.floor, again.gone) == (acks.floor, acks.gone)


def test_each_message_is_in_the_state_that_its_twin_is_in(rng: random.Random) -> None:
    """All events in any order, with restarts; the twin has one state for each message and looks through them all."""
    restarts = 0
    for _ in range(150):
        settings = Redelivery(
            timeout_s=rng.choice([1.0, 5.0]), attempts_max=rng.choice([0, 2]), outstanding_max=rng.choice([3, 20])
        )
        acks = Acknowledgements(LocalId(0), settings)
        now_s, durable, next_id = 0.0, 40, 1
        state: dict[int, tuple[str, float]] = {}  # out until, waiting until; dead; done
        attempts: dict[int, int] = {}

        def back(local_id: int, when_s: float) -> None:
            dead = settings.attempts_max and attempts[local_id] >= settings.attempts_max  # noqa: B023 - called here only
            state[local_id] = ("dead", 0.0) if dead else ("waiting", when_s)  # noqa: B023

        for _ in range(120):
            outstanding = [each for each, (kind, _) in state.items() if kind != "done"]
            match rng.randrange(7):
                case 0 | 1 | 2:
                    acks.advance(now_s)
                    for each, (kind, when_s) in list(state.items()):
                        if kind == "out" and when_s <= now_s:
                            back(each, now_s)
                    due = [each for each, (kind, when_s) in state.items() if kind == "waiting" and when_s <= now_s]
                    while state.get(next_id, ("", 0.0))[0] == "done":
                        next_id += 1
                    full = (
                        len([each for each, (kind, _) in state.items() if kind != "done"]) >= settings.outstanding_max
                    )
                    expected = min(due) if due else next_id if next_id <= durable and not full else None
                    assert acks.take(LocalId(durable)) == expected
                    if expected is not None:
                        attempts[expected] = attempts.get(expected, 0) + 1
                        assert acks.on_delivered(LocalId(expected), now_s) == attempts[expected]
                        state[expected] = ("out", now_s + settings.timeout_s)
                        next_id = max(next_id, expected + 1)
                case 3 if outstanding:
                    first = rng.choice(outstanding)
                    last = first + rng.choice([0, 0, 3])
                    news = [each for each in sorted(outstanding) if first <= each <= last]
                    assert acks.acknowledge(LocalId(first), LocalId(last)) == news
                    state.update(dict.fromkeys(news, ("done", 0.0)))
                case 4 if outstanding:
                    local_id = rng.choice(outstanding)
                    delay_s = rng.choice([0.0, 2.0])
                    assert acks.give_back(LocalId(local_id), now_s, delay_s) is (state[local_id][0] == "out")
                    if state[local_id][0] == "out":
                        back(local_id, now_s + delay_s)
                case 5:
                    now_s += rng.choice([0.5, 1.0, 4.0])
                case 6 if rng.random() < 0.2:
                    data = acks.encode()
                    acks = Acknowledgements.decode(data, settings)
                    assert acks.encode() == data
                    state = {each: found for each, found in state.items() if found[0] == "done"}
                    next_id, restarts = acks.floor + 1, restarts + 1
            undone = [each for each in range(1, durable + 2) if state.get(each, ("", 0.0))[0] != "done"]
            assert acks.floor == undone[0] - 1
            assert acks.outstanding == len([each for each, (kind, _) in state.items() if kind != "done"])
            assert acks.outstanding <= settings.outstanding_max
    assert restarts > 10


def test_a_snapshot_is_small_and_a_damaged_one_is_refused_or_means_something(rng: random.Random) -> None:
    acks = of(1_000_000, outstanding_max=10_000)
    deliver(acks, 10_000, durable=LocalId(2_000_000))
    done(acks, *range(1_000_002, 1_010_000, 2))
    assert len(acks.encode()) <= 20_020
    small = of(5)
    deliver(small, 9)
    done(small, 7, 8, 12)
    whole = small.encode()
    for size in range(len(whole)):
        with pytest.raises(UnexpectedCondition, match="znode /x of acknowledgements cannot be read"):
            Acknowledgements.decode(whole[:size], Redelivery(), where="znode /x")
    for wrong in (whole + b"\x00", b"HA\x02" + whole[3:]):
        with pytest.raises(UnexpectedCondition):
            Acknowledgements.decode(wrong, Redelivery())
    refused = 0
    for _ in range(1000):
        data = bytearray(whole)
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            Acknowledgements.decode(bytes(data), Redelivery()).take(MANY)
        except UnexpectedCondition:
            refused += 1
    assert refused


def test_a_dead_letter_says_where_it_could_not_be_consumed() -> None:
    topic, subscriber, dead = Topic(b"orders"), SubscriberId(b"billing"), Dead(LocalId(7), 3)
    assert dead_letter_properties(topic, subscriber, dead) == {
        "hw.dead.topic": b"orders",
        "hw.dead.subscriber": b"billing",
        "hw.dead.id": b"7",
        "hw.dead.attempts": b"3",
    }
    assert dead_letter_properties(topic, subscriber, dead, {"hw.dead.topic": b"first"}) == {}
