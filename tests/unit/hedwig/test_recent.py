"""The newest messages in memory: one copy, no gap, a bound over all topics."""

from __future__ import annotations

import random

import pytest

from hedwig.hub.topics.recent import MESSAGE_OVERHEAD, RecentBudget, RecentMessages
from hedwig.model import LocalId


def test_what_was_added_is_there_from_any_id() -> None:
    recent = RecentMessages(RecentBudget(10_000), LocalId(5))
    assert recent.get(LocalId(5), 10) == []
    recent.add([b"five", b"six"])
    recent.add([b"seven"])
    assert recent.get(LocalId(5), 2) == [b"five", b"six"]
    assert recent.get(LocalId(6), 10) == [b"six", b"seven"]
    assert recent.get(LocalId(8), 10) == []
    assert recent.get(LocalId(4), 10) is None, "older than what is kept"
    recent.let_go(2 * (4 + MESSAGE_OVERHEAD) - 2)
    assert (recent.first, recent.next_id, len(recent)) == (7, 8, 1)
    recent.clear()
    assert (recent.first, recent.size) == (8, 0)
    assert recent.get(LocalId(7), 1) is None


@pytest.mark.parametrize("seed", range(10))
def test_all_topics_together_stay_within_the_budget(seed: int) -> None:
    rng = random.Random(seed)
    budget = RecentBudget(5000)
    topics = [RecentMessages(budget, LocalId(1)) for _ in range(3)]
    for number in range(300):
        topic = rng.choice(topics)
        topic.add([b"%d" % number * rng.randrange(1, 40) for _ in range(rng.randrange(1, 6))])
        if rng.random() < 0.1:
            rng.choice(topics).let_go(rng.randrange(5000))
        if rng.random() < 0.05:
            rng.choice(topics).clear()
        assert budget.size == sum(each.size for each in topics) <= budget.size_max
        for each in topics:
            found = each.get(each.first, 10_000)
            assert found is not None
            assert each.size == sum(len(message) + MESSAGE_OVERHEAD for message in found)
            assert each.next_id == each.first + len(found)


def test_a_message_larger_than_the_budget_is_not_kept() -> None:
    budget = RecentBudget(100)
    recent = RecentMessages(budget, LocalId(1))
    recent.add([bytes(200)])
    assert (len(recent), recent.next_id, budget.size) == (0, 2, 0)


def test_the_topic_that_stored_nothing_for_the_longest_time_lets_go_first() -> None:
    """What lies in topics that nobody publishes to any more must not keep the others out for ever."""
    budget = RecentBudget(10 * (100 + MESSAGE_OVERHEAD))
    idle, busy = RecentMessages(budget, LocalId(1)), RecentMessages(budget, LocalId(1))
    idle.add([bytes(100)] * 9)
    for _ in range(5):
        busy.add([bytes(100)])
    assert (len(idle), len(busy)) == (5, 5)
    for _ in range(20):
        busy.add([bytes(100)])
    assert (len(idle), len(busy)) == (0, 10)
    assert idle.get(LocalId(9), 1) is None
    assert idle.get(LocalId(10), 1) == []


def test_the_newest_messages_are_found_without_passing_the_older_ones() -> None:
    recent = RecentMessages(RecentBudget(1 << 30), LocalId(1))
    recent.add([b"%d" % number for number in range(1, 1001)])
    recent.let_go(sum(len(b"%d" % number) + MESSAGE_OVERHEAD for number in range(1, 300)))
    recent.let_go(sum(len(b"%d" % number) + MESSAGE_OVERHEAD for number in range(300, 310)))
    assert recent.get(LocalId(1000), 5) == [b"1000"]
    assert recent.get(LocalId(310), 2) == [b"310", b"311"]
    assert recent.get(LocalId(309), 2) is None
    assert not recent.let_go(1 << 30)
    assert (recent.first, recent.next_id, recent.size) == (1001, 1001, 0)
