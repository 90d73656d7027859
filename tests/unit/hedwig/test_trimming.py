"""Deciding about many ledgers takes linear time, and the reactor runs in between."""

from __future__ import annotations

import random
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hedwig.errors import UnexpectedCondition
from hedwig.hub.trimming import Trimmer
from hedwig.model import LedgerRange, LocalId, MessageId
from hedwig.protocol import retention as rules_module
from hedwig.protocol.retention import DOUBT_MS, LedgerFacts, Retention, has_plausible_time

NOW_MS = 10**12
DAY_MS = 24 * 3_600_000


class Topic:
    """A topic whose ledgers are given, each with ten ids; the last one is being written."""

    def __init__(self, ledgers: list[LedgerFacts], clock: Clock, *, named: set[int | None] | None = None) -> None:
        self.ledgers, self.clock, self.log, self.reader = ledgers, clock, self, self
        self.ranges = [each.range for each in ledgers]
        self.may_be_named_ms: set[int | None] = {None} if named is None else named
        self.topic, self.is_timed, self.is_served, self.is_subscribed = b"t", True, True, False
        self.look_again_s, self.ledger_bytes = 0.0, 100
        self.needed_from = LocalId(10 * len(ledgers) + 1)
        self.through = 0
        self.read: list[int] = []

    async def named_keep_ms(self) -> None:
        """See TopicService."""

    async def facts_of(self, ledger: LedgerRange) -> LedgerFacts:
        """See TopicReader."""
        self.read.append(-ledger.ledger_id)
        facts = self.ledgers[ledger.ledger_id - 1]
        return LedgerFacts(ledger, facts.size, facts.created_ms, None, facts.gone, facts.stored_ms)

    async def published_ms(self, last: LocalId, _: object) -> int | None:
        """See replaying.published_ms."""
        self.read.append(last // 10)
        if self.ledgers[last // 10 - 1].gone:
            raise UnexpectedCondition("no such ledger")
        return self.ledgers[last // 10 - 1].last_ms

    async def trim(self, through: LocalId | None = None) -> list[LedgerRange]:
        """See TopicLog, and TopicService."""
        self.through = self.needed_from - 1 if through is None else through
        return []


def ledger(number: int, last_ms: int | None, **facts: Any) -> LedgerFacts:
    end = MessageId(LocalId(10 * number))
    return LedgerFacts(LedgerRange(number, LocalId(10 * number - 9), end), 100, last_ms=last_ms, **facts)


def written(number: int) -> LedgerFacts:
    return LedgerFacts(LedgerRange(number, LocalId(10 * number - 9), None), created_ms=NOW_MS, stored_ms=NOW_MS)


def old_ledgers(count: int) -> list[LedgerFacts]:
    return [
        *(ledger(n, 1000 * n + 500, created_ms=1000 * n, stored_ms=1000 * n) for n in range(1, count + 1)),
        written(count + 1),
    ]


async def trimmed(topic: Topic, trimmer: Trimmer, patch: pytest.MonkeyPatch) -> int:
    patch.setattr("hedwig.hub.trimming.published_ms", topic.published_ms)
    topic.through = 0
    await trimmer.trim(topic)  # type: ignore[arg-type]
    return topic.through


def test_many_due_ledgers_are_decided_in_linear_time_and_not_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = turns = 0
    age_of = rules_module.age_of

    def count(*facts: Any) -> int | None:
        nonlocal counted
        counted += 1
        return age_of(*facts)

    monkeypatch.setattr(rules_module, "age_of", count)
    clock = Clock()
    later = clock.callLater

    def call_later(*call: Any) -> Any:
        nonlocal turns
        turns += 1
        return later(*call)

    monkeypatch.setattr(clock, "callLater", call_later)
    topic = Topic(old_ledgers(300), clock, named={None, *range(20)})
    trimmer = Trimmer(Retention(keep_unsubscribed_ms=DAY_MS), lambda: NOW_MS)
    for _ in range(2):  # with facts to be read, and with known ones
        counted = turns = 0
        trimming = Deferred.fromCoroutine(trimmed(topic, trimmer, monkeypatch))
        clock.advance(0)
        assert trimming.called
        assert topic.through == 3000
        assert counted < 8 * 300
        assert turns >= 2


class QuadraticTrimmer(Trimmer):
    """The simple twin: decides about all ledgers before each date is read."""

    async def _date(self, facts: list[LedgerFacts], now_ms: int, topic: Any) -> None:
        for index in range(len(facts)):
            if topic.decide(facts, now_ms).count < index:
                break
            facts[index] = await self._timed(facts[index], topic.service)
            if index + 1 < len(facts) and not facts[index].gone and not has_plausible_time(facts[index], now_ms):
                facts[index + 1] = await self._made(facts[index + 1], topic.service)


def test_dates_are_read_and_ledgers_deleted_as_by_deciding_about_all_ledgers_each_time(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("keep_ms", "limit_ms", "keep_bytes", "limit_bytes", "keep_unsubscribed_ms")
    values = {"keep_bytes": 600, "limit_bytes": 900}
    deleted = 0
    for _ in range(500):
        count = rng.randint(1, 8)
        ledgers = []
        for number in range(1, count + 1):
            made_ms = NOW_MS - DAY_MS * (count + 1 - number)
            ledgers.append(
                ledger(
                    number,
                    rng.choice([None, made_ms + 1, made_ms + DAY_MS // 2, 0, NOW_MS + 2 * DOUBT_MS]),
                    created_ms=made_ms,
                    stored_ms=rng.choice([made_ms, made_ms, None]),
                    gone=rng.random() < 0.1,
                )
            )
        rules = Retention(
            **{each: rng.choice([None, None, rng.randrange(values.get(each, count * DAY_MS))]) for each in names}  # type: ignore[arg-type]
        )
        named = rng.choice([{None}, {None, DAY_MS}, {0, DAY_MS}, {None, 0, DAY_MS, 3 * DAY_MS}])
        needed_from, is_subscribed = LocalId(rng.randrange(1, 10 * count + 2)), rng.random() < 0.5
        found = []
        for kind in (Trimmer, QuadraticTrimmer):
            topic = Topic([*ledgers, written(count + 1)], Clock(), named=named)
            topic.needed_from, topic.is_subscribed = needed_from, is_subscribed
            trimming = Deferred.fromCoroutine(trimmed(topic, kind(rules, lambda: NOW_MS), monkeypatch))
            assert trimming.called
            found.append((topic.through, topic.read))
        assert found[0] == found[1], (rules, ledgers, named)
        deleted += found[0][0] > 0
    assert 50 < deleted < 450


@pytest.mark.parametrize("named", [{None, 0}, {None, 0, 2 * DAY_MS}, {0, 2 * DAY_MS, 4 * DAY_MS}, {None, 8 * DAY_MS}])
def test_while_a_retention_is_changed_each_of_its_values_keeps(
    named: set[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers = [*(ledger(n, NOW_MS - (7 - n) * DAY_MS, stored_ms=0) for n in range(1, 7)), written(7)]
    found = {}
    for values in (named, *({each} for each in named)):
        topic = Topic(ledgers, Clock(), named=values)
        trimming = trimmed(topic, Trimmer(Retention(keep_unsubscribed_ms=3 * DAY_MS), lambda: NOW_MS), monkeypatch)
        assert Deferred.fromCoroutine(trimming).called
        found[frozenset(values)] = topic.through
    assert found.pop(frozenset(named)) == min(found.values())
