"""Shared subscriptions: every message to one consumer at a time, none forgotten."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import pytest

from hedwig.errors import TopicBusy
from hedwig.model import LocalId
from hedwig.protocol.acknowledgements import Acknowledgements, Dead, Redelivery
from hedwig.protocol.work_queue import Assignment, WorkQueue

MANY = LocalId(1000)


def queue(*consumers: str, in_flight_max: int = 100, settings: Redelivery | None = None) -> WorkQueue[str]:
    found: WorkQueue[str] = WorkQueue(Acknowledgements(LocalId(0), settings or Redelivery()), in_flight_max)
    for consumer in consumers:
        found.attach(consumer)
    return found


def given(assigned: list[Assignment[str]]) -> list[tuple[str, int]]:
    return [(each.consumer, int(each.local_id)) for each in assigned]


def test_consumers_take_turns() -> None:
    work = queue("a", "b", "c")
    assert given(work.assign(0.0, LocalId(4))) == [("a", 1), ("b", 2), ("c", 3), ("a", 4)]
    assert given(work.assign(0.0, LocalId(6))) == [("b", 5), ("c", 6)], "whose turn it is, is remembered"
    assert work.assign(0.0, LocalId(6)) == []
    assert queue().assign(0.0, MANY) == []


def test_a_full_consumer_and_one_whose_connection_takes_nothing_are_passed_over() -> None:
    work = queue("a", "b", "c", in_flight_max=2)
    assert given(work.assign(0.0, MANY, lambda consumer: consumer != "b")) == [("a", 1), ("c", 2), ("a", 3), ("c", 4)]
    assert given(work.assign(0.0, MANY, count_max=1)) == [("b", 5)]
    assert given(work.assign(0.0, MANY)) == [("b", 6)]
    assert work.acknowledge(LocalId(2), LocalId(3)) == [2, 3]
    assert sorted(given(work.assign(0.0, MANY))) == [("a", 7), ("c", 8)]
    assert [work.in_flight(each) for each in "abc"] == [2, 2, 2]


def test_what_a_consumer_had_goes_to_others_in_order_and_one_attempt_counts() -> None:
    """The lowest was worked on: it may be what ended the consumer, and must not end all others, one by one."""
    work = queue("a", settings=Redelivery(attempts_max=2))
    work.assign(0.0, LocalId(3))
    assert work.detach("a", 0.0) == [1, 2, 3]
    assert work.detach("a", 0.0) == []
    work.attach("b")
    assert [(each.local_id, each.attempt) for each in work.assign(0.0, LocalId(4))] == [(1, 2), (2, 1), (3, 1), (4, 1)]
    work.detach("b", 0.0)
    assert work.acknowledgements.take_dead() == [Dead(LocalId(1), 2)]
    work.attach("c")
    assert given(work.assign(0.0, LocalId(4))) == [("c", 2), ("c", 3), ("c", 4)]


def test_a_consumer_that_did_not_end_by_itself_uses_up_no_attempt() -> None:
    work = queue("a", settings=Redelivery(attempts_max=1))
    work.assign(0.0, LocalId(3))
    assert work.detach("a", 0.0, counts=False) == [1, 2, 3]
    work.attach("b")
    assert [(each.local_id, each.attempt) for each in work.assign(0.0, LocalId(3))] == [(1, 1), (2, 1), (3, 1)]
    assert work.acknowledgements.take_dead() == []


def test_any_consumer_may_acknowledge_but_give_back_only_its_own() -> None:
    work = queue("a", "b")
    work.assign(0.0, LocalId(4))
    assert not work.give_back("a", LocalId(2), 0.0)
    assert work.give_back("b", LocalId(2), 0.0)
    assert work.acknowledge(LocalId(1), LocalId(1)) == [1]
    assert given(work.assign(0.0, LocalId(4))) == [("a", 2)]
    assert work.acknowledge(LocalId(3), LocalId(4)) == [3, 4]
    assert [work.in_flight(each) for each in "ab"] == [1, 0]


def test_a_timeout_gives_a_message_to_somebody_else_and_a_late_acknowledgement_counts() -> None:
    work = queue("a", settings=Redelivery(timeout_s=10))
    work.assign(0.0, LocalId(1))
    work.attach("b")
    assert given(work.assign(9.9, LocalId(1), lambda consumer: consumer == "b")) == []
    assert given(work.assign(10.0, LocalId(1), lambda consumer: consumer == "b")) == [("b", 1)]
    assert [work.in_flight(each) for each in "ab"] == [0, 1]
    assert work.acknowledge(LocalId(1), LocalId(1)) == [1]
    assert work.in_flight("b") == 0
    assert work.acknowledgements.floor == 1


def test_what_is_passed_over_is_nobodys() -> None:
    work = queue("a", "b")
    work.assign(0.0, LocalId(4))
    work.pass_over(LocalId(1), LocalId(3))
    assert [work.in_flight(each) for each in "ab"] == [0, 1]
    assert work.acknowledgements.floor == 3


def test_there_is_an_end_to_consumers() -> None:
    work: WorkQueue[str] = WorkQueue(Acknowledgements(LocalId(0), Redelivery()), 1, consumers_max=1)
    work.attach("a")
    work.attach("a")
    with pytest.raises(TopicBusy, match="has 1 consumers already"):
        work.attach("b")
    assert work.consumers == ["a"]


def test_every_message_is_with_one_consumer_at_a_time_and_all_are_done_in_the_end(rng: random.Random) -> None:
    for _ in range(100):
        in_flight_max = rng.randint(1, 5)
        settings = Redelivery(timeout_s=5.0, outstanding_max=rng.choice([4, 50]))
        work = queue(in_flight_max=in_flight_max, settings=settings)
        now_s, last = 0.0, LocalId(60)
        holding: dict[str, dict[int, float]] = {}
        acknowledged: set[int] = set()
        for step in range(600):
            calm = step > 300
            action = rng.random()
            if action < 0.1 and len(holding) < 4:
                holding.setdefault(name := f"c{rng.randrange(6)}", {})
                work.attach(name)
            elif action < 0.15 and holding and not calm:
                name = rng.choice(list(holding))
                assert work.detach(name, now_s) == sorted(holding.pop(name))
            elif action < 0.5 and any(holding.values()):
                name = rng.choice([each for each, held in holding.items() if held])
                local_id = rng.choice(list(holding[name]))
                del holding[name][local_id]
                if calm or rng.random() < 0.7:
                    assert work.acknowledge(LocalId(local_id), LocalId(local_id)) == [local_id]
                    acknowledged.add(local_id)
                else:
                    assert work.give_back(name, LocalId(local_id), now_s, rng.choice([0.0, 3.0]))
            elif action < 0.6:
                now_s += rng.choice([0.5, 2.0])
                for held in holding.values():
                    for local_id in [each for each, given_s in held.items() if given_s + 5.0 <= now_s]:
                        del held[local_id]
                work.advance(now_s)
            else:
                assigned = work.assign(now_s, last, count_max=rng.choice([None, 1, 3]))
                with_somebody = [each for held in holding.values() for each in held]
                for each in assigned:
                    assert each.local_id not in with_somebody
                    assert each.local_id not in acknowledged
                    with_somebody.append(each.local_id)
                    holding[each.consumer][each.local_id] = now_s
            assert {name: work.in_flight(name) for name in holding} == {
                name: len(held) for name, held in holding.items()
            }
            assert all(len(held) <= in_flight_max for held in holding.values())
        name = next(iter(holding), "last")
        work.attach(name)
        for _ in range(200):
            now_s += 5.0
            for each in work.assign(now_s, last):
                work.acknowledge(each.local_id, each.local_id)
        assert work.acknowledgements.floor == last


def test_what_was_not_sent_is_taken_back_and_does_not_count() -> None:
    work = queue(in_flight_max=2)
    work.attach("one")
    first = work.assign(0.0, LocalId(5))
    assert [each.local_id for each in first] == [1, 2]
    work.take_back(LocalId(1))
    assert work.in_flight("one") == 1
    [again] = work.assign(0.0, LocalId(5))
    assert (again.local_id, again.attempt) == (1, 1)


def test_settings_may_change_while_messages_are_out() -> None:
    work = queue(in_flight_max=1)
    work.attach("one")
    work.assign(0.0, LocalId(5))
    work.in_flight_max = 3
    work.acknowledgements.settings = Redelivery(timeout_s=1.0)
    assert [each.local_id for each in work.assign(0.0, LocalId(5))] == [2, 3]
    assert work.advance(2.0) == [], "what was out keeps its deadline, and those behind it wait for it"
    assert work.advance(60.0) == [1, 2, 3]


def calls_of(work: Callable[[], object]) -> int:
    """Count the calls of Python functions."""
    count = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "change",
    [
        lambda work: work.detach("one", 1.0),
        lambda work: work.advance(100.0),
        lambda work: work.acknowledge(LocalId(1), MANY),
        lambda work: (work.detach("one", 1.0), work.acknowledge(LocalId(1), MANY)),
        lambda work: (work.detach("one", 1.0), work.acknowledgements.on_deleted(MANY)),
    ],
    ids=["detach", "time out", "acknowledge", "acknowledge what waits", "delete"],
)
def test_many_messages_change_their_state_together(change: Callable[[WorkQueue[str]], object]) -> None:
    """One by one, each message took 1 us, and 2 us more in a sorted set: a hub served nothing else for seconds."""
    work = queue("one", in_flight_max=MANY)
    assert len(work.assign(0.0, MANY)) == MANY
    assert calls_of(lambda: change(work)) < 1.5 * MANY
    assert work.acknowledgements.outstanding in (0, MANY)


def test_many_delayed_messages_become_due_together() -> None:
    work = queue("one", in_flight_max=MANY)
    for each in work.assign(0.0, MANY):
        work.give_back("one", each.local_id, 0.0, 5.0 + each.local_id % 3)
    assert calls_of(lambda: work.advance(6.0)) < 1.5 * MANY
    assert len(work.assign(6.0, LocalId(0))) == MANY // 3 * 2 + 1, "those of 5 and 6 s"
    assert calls_of(lambda: work.acknowledge(LocalId(1), MANY)) < 1.5 * MANY
    assert (work.acknowledgements.floor, work.acknowledgements.next_deadline_s) == (MANY, None)
