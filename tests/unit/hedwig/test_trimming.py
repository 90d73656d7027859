"""Which ledgers the Trimmer asks about and deletes, and what that costs."""

from __future__ import annotations

import random
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from hedwig.errors import ServiceDown, StaleVersion, UnexpectedCondition
from hedwig.hub.server import Hub, HubSettings
from hedwig.hub.topics.trimming import STORE_TIME_S, StoreTime, Trimmer
from hedwig.model import LedgerRange, LocalId, MessageId, SubscriberId, Topic
from hedwig.protocol import retention as rules_module
from hedwig.protocol.retention import DOUBT_MS, LedgerFacts, Retention, has_plausible_time
from tests.support.logged import logged

NOW_MS = 10**12
DAY_MS = 24 * 3_600_000


class Ledgers:
    """A topic whose ledgers are given, each with ten ids; the last one is being written."""

    def __init__(self, ledgers: list[LedgerFacts], clock: Clock, *, named: set[int | None] | None = None) -> None:
        self.ledgers, self.clock, self.log, self.reader = ledgers, clock, self, self
        self.ranges = [each.range for each in ledgers]
        self.may_be_named_ms: set[int | None] = {None} if named is None else named
        self.topic, self.is_timed, self.is_served, self.is_subscribed = b"t", True, True, False
        self.look_again_s, self.ledger_bytes = 0.0, 100
        self.consumed: dict[SubscriberId, LocalId] = {}
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


async def trimmed(topic: Ledgers, trimmer: Trimmer, patch: pytest.MonkeyPatch) -> int:
    patch.setattr("hedwig.hub.topics.trimming.published_ms", topic.published_ms)
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
    topic = Ledgers(old_ledgers(300), clock, named={None, *range(20)})
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
            topic = Ledgers([*ledgers, written(count + 1)], Clock(), named=named)
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
        topic = Ledgers(ledgers, Clock(), named=values)
        trimming = trimmed(topic, Trimmer(Retention(keep_unsubscribed_ms=3 * DAY_MS), lambda: NOW_MS), monkeypatch)
        assert Deferred.fromCoroutine(trimming).called
        found[frozenset(values)] = topic.through
    assert found.pop(frozenset(named)) == min(found.values())


@pytest.mark.parametrize("rule", ["keep_ms", "limit_ms", "keep_unsubscribed_ms"])
@pytest.mark.parametrize(("sizes", "deleted"), [({}, 0), ({"limit_bytes": 250}, 5)])
def test_an_unknown_store_time_is_asked_for_once_a_minute_and_stops_only_rules_of_age(
    rule: str, sizes: dict[str, int], deleted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, answers = Clock(), []
    clock.advance(1000)

    def ask() -> Deferred[int]:
        answers.append(clock.seconds())
        return succeed(NOW_MS) if clock.seconds() > 1100 else fail(StaleVersion("the registration is gone"))

    trimmer = Trimmer(Retention(**{rule: 5000}, **sizes), lambda: NOW_MS, store_time=StoreTime(clock, ask))

    def trim(first: int) -> int:
        ledgers = [ledger(number, 1000, created_ms=0, stored_ms=0) for number in range(first, first + 6)]
        topic = Ledgers([*ledgers, written(first + 6)], clock)
        topic.ledgers[:0] = ledgers[:1] * (first - 1)  # ids of ledgers are places
        topic.needed_from = LocalId(1 if rule == "limit_ms" else 10 * first + 70)
        assert Deferred.fromCoroutine(trimmed(topic, trimmer, monkeypatch)).called
        assert topic.look_again_s == 0
        return max(0, topic.through // 10 - first + 1)

    with logged() as lines:
        for number in range(50):  # topics
            assert trim(1 + 7 * number) == deleted
            clock.advance(1)
        assert answers == [1000]
        clock.advance(STORE_TIME_S - 45)
        assert trim(351) == deleted
        assert answers == [1000, pytest.approx(1065)]
        clock.advance(STORE_TIME_S)
        assert trim(358) == 6, "by age"
    assert len([each for each in lines if "clock was not read" in each]) == 2


@pytest.mark.parametrize("error", [ValueError("a fault"), ServiceDown("try again")])
@pytest.mark.parametrize("part", ["store_due", "trim", "end_if_idle"])
def test_a_fault_of_one_topic_does_not_stop_the_trimming_of_others(part: str, error: Exception) -> None:
    clock, trimmed = Clock(), []
    hub = Hub(clock, HubSettings(metadata_uri="zk://store/ledgers", host="127.0.0.1"))

    class Service:
        def __init__(self, name: str) -> None:
            self.name, self.log = name, self

        def step(self, name: str) -> None:
            if self.name == "bad" and name == part:
                raise error

        def store_due(self) -> None:
            self.step("store_due")

        def end_if_idle(self) -> None:
            self.step("end_if_idle")

    class AnyTrimmer:
        async def trim(self, service: Service) -> None:
            service.step("trim")
            trimmed.append(service.name)

    services = {Topic(each.encode()): Service(each) for each in ("bad", "good")}
    vars(hub).update(ownership=SimpleNamespace(owned=services), _trimmers=defaultdict(AnyTrimmer))
    with logged() as lines:
        for _ in range(2):
            hub._trim()  # noqa: SLF001 - the periodic call
    assert [each for each in trimmed if each == "good"] == ["good"] * 2
    assert len(lines) == 2
