"""Retention by age and size: which ledgers of a topic are deleted, beyond those that all have consumed.

    every trim_period:  Trimmer.trim(service) ---> sizes and times of its ledgers ---> trimming() ---> TopicLog.trim
                                                   (protocol/retention.py)

Where only consumption decides, nothing is read. Sizes are those in the ledgers' metadata. A ledger's age is that of its
newest message, by the time in it (hw.time); if that is absent, implausible or not given by the hub, by the creation of
the next ledger. Only as many ledgers are read as may be deleted. Facts about ended ledgers do not change, and are
cached. A listed ledger that does not exist is removed from the list.

Two clocks must agree that a ledger is old enough: the hub's, and the metadata store's. The store's is read by a write
to the hub's own registration, when something would be deleted by age, at most every STORE_TIME_S. It is also read every
COMPARE_S where ages matter, so that a hub whose clock is behind, and which finds nothing to delete, logs the reason.
Where it cannot be read, ages are unknown: nothing is deleted by age, and sizes decide alone. A topic without
subscription is checked again when its oldest ledger may be due, at most LOOK_AGAIN_S later.

A subscriber that had not consumed messages deleted by a limit continues behind them. It sees that from the next id; the
hub logs and counts it. Thread: reactor.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.clock import wall_ms
from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.outcome import pause
from bookkeeper.metrics import Counter
from hedwig.errors import UnexpectedCondition
from hedwig.hub.subscriptions.replay import published_ms
from hedwig.model import LedgerRange, LocalId, SubscriberId
from hedwig.names import shown
from hedwig.protocol.retention import (
    DOUBT_MS,
    LedgerFacts,
    Retention,
    Trimming,
    age_of,
    deletions,
    has_plausible_time,
    trimming,
)

if TYPE_CHECKING:
    from bookkeeper.ports import Clock
    from hedwig.hub.topics.service import TopicService

log = Logger()

REMEMBERED_MAX = 100_000
"""Ledgers, of all topics, whose facts are kept."""

LOOK_AGAIN_S = 3600.0
"""Longest time between two checks of a topic without subscription, so that a corrected clock is noticed."""

STORE_TIME_S = 60.0
"""Shortest time between two reads of the metadata store's clock."""

COMPARE_S = 3600.0
"""Longest time between two comparisons of the hub's clock with the store's."""

DECIDED_AT_ONCE = 100
"""Ledgers that are decided about in one turn of the reactor; their facts may all be known."""


class StoreTime:
    """The metadata store's clock. ask: reads it, in milliseconds since 1970; raises BookKeeperError."""

    def __init__(self, clock: Clock, ask: Callable[[], Awaitable[int]]) -> None:
        self._clock, self._ask = clock, ask
        self._asked: tuple[int | None, float] | None = None
        self._differs = False

    async def compare(self, hub_ms: int) -> None:
        """Log a warning if the clocks differ, at most every COMPARE_S."""
        if self._asked is None or not 0 <= self._clock.seconds() - self._asked[1] < COMPARE_S:
            await self.earlier_of(hub_ms)

    async def earlier_of(self, hub_ms: int) -> int | None:
        """Return the earlier of the hub's time and the store's; None: the store's is unknown."""
        if self._asked is None or not 0 <= self._clock.seconds() - self._asked[1] < STORE_TIME_S:
            self._asked = await self._read(), self._clock.seconds()
        asked_ms, asked_s = self._asked
        if asked_ms is None:
            return None
        store_ms = asked_ms + round((self._clock.seconds() - asked_s) * 1000)
        differs = abs(hub_ms - store_ms) > DOUBT_MS
        if differs and not self._differs:
            log.warn(
                "This hub's clock and the metadata store's differ by {seconds:.0f} s; ledgers are deleted by age only "
                "if they are old enough by both: synchronize the clocks by NTP",
                seconds=(hub_ms - store_ms) / 1000,
            )
        self._differs = differs
        return min(hub_ms, store_ms)

    async def _read(self) -> int | None:
        try:
            return await self._ask()
        except BookKeeperError as error:
            log.warn("The metadata store's clock was not read; no ledger is deleted by age now: {error}", error=error)
            return None


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic with the rules that apply to it. settings: of the hub."""

    service: TopicService
    settings: Retention

    @property
    def rules(self) -> list[Retention]:
        """The settings combined with the retention set by publishers; two at most, while it is being changed.

        Of several numbers only the largest counts: what it deletes, smaller ones delete too.
        """
        named = self.service.may_be_named_ms
        longest = max((each for each in named if each is not None), default=None)
        return [self.settings.named(each) for each in named & {None, longest}]

    @property
    def uses_ages(self) -> bool:
        """Whether a rule needs the ages of ledgers."""
        return any(each.uses_ages(subscribed=self.service.is_subscribed) for each in self.rules)

    @property
    def uses_sizes(self) -> bool:
        """Whether a rule needs the sizes of ledgers."""
        return any(each.uses_sizes() for each in self.rules)

    def decide(self, facts: Sequence[LedgerFacts], now_ms: int | None) -> Trimming:
        """Return which ledgers to delete now: those that all rules delete."""
        service = self.service
        needed_from, subscribed = service.needed_from, service.is_subscribed
        found = [trimming(facts, needed_from, each, now_ms, subscribed=subscribed) for each in self.rules]
        return min(found, key=lambda each: each.count, default=Trimming())

    def deletions(self, facts: Sequence[LedgerFacts], now_ms: int) -> list[Iterator[Trimming]]:
        """Return the deletions by each rule."""
        service = self.service
        needed_from, subscribed = service.needed_from, service.is_subscribed
        return [deletions(facts, needed_from, each, now_ms, subscribed=subscribed) for each in self.rules]

    def plan(self, facts: Sequence[LedgerFacts], now_ms: int | None, now_s: float) -> None:
        """Set when to check the topic again, if only age decides."""
        if len(self.service.may_be_named_ms) != 1:
            return
        [rules] = self.rules
        keep_ms = max(rules.keep_unsubscribed_ms or 0, rules.keep_named_ms or 0)
        age_ms = age_of(facts[0], facts[1], now_ms)
        by_age = replace(rules, keep_unsubscribed_ms=None, keep_named_ms=None) == Retention()
        if by_age and age_ms is not None:
            self.service.look_again_s = now_s + min(max(0, keep_ms - age_ms) / 1000, LOOK_AGAIN_S)


class Trimmer:
    """The retention of one hub.

    lost: counts messages that a limit deleted before all subscribers had consumed them. store_time: None: only the
    hub's clock decides.
    """

    def __init__(
        self,
        retention: Retention,
        now_ms: Callable[[], int] = wall_ms,
        lost: Counter | None = None,
        store_time: StoreTime | None = None,
    ) -> None:
        self._retention, self._now_ms, self._lost = retention, now_ms, lost or Counter()
        self._store_time = store_time
        self._known: OrderedDict[int, LedgerFacts] = OrderedDict()

    async def trim(self, service: TopicService) -> int:
        """Delete the ledgers of a topic that are due; return how many. Raises BookKeeperError."""
        ranges, now_s = service.log.ranges, service.clock.seconds()
        if len(ranges) < 2 or not service.is_served:  # the last one stays
            return 0
        if not service.is_subscribed and now_s < service.look_again_s:
            return 0
        by_consumption = not (self._retention.uses_ages(subscribed=True) or self._retention.uses_sizes())
        if by_consumption and (ranges[0].last is None or ranges[0].last.local >= service.needed_from):
            return 0
        await service.named_keep_ms()
        topic = _Topic(service, self._retention)
        uses_ages = topic.uses_ages
        if not uses_ages and not topic.uses_sizes:
            return await service.trim()
        facts = await self._sizes(ranges, service)
        hub_ms = self._now_ms()
        now_ms: int | None = hub_ms
        if uses_ages:
            if self._store_time is not None:
                await self._store_time.compare(hub_ms)
            await self._date(facts, hub_ms, topic)
        if topic.decide(facts, now_ms).count and uses_ages and self._store_time is not None:
            now_ms = await self._store_time.earlier_of(self._now_ms())
            if now_ms is not None:
                await self._date(facts, now_ms, topic)  # some dates may be implausible now
        # Decide again; no await from here to the deletion. A subscriber that came or went back may need more, and a
        # publish that sets another retention may have been acknowledged.
        needed_from = service.needed_from
        found = topic.decide(facts, now_ms)
        if not found.count or not service.is_served:
            topic.plan(facts, now_ms, now_s)
            return 0
        consumed = service.consumed
        gone = await service.log.trim(found.through)
        for each in gone:
            self._known.pop(each.ledger_id, None)
        if gone:
            self._tell(service, gone, needed_from, consumed)
        return len(gone)

    async def _sizes(self, ranges: list[LedgerRange], service: TopicService) -> list[LedgerFacts]:
        """Return the known facts of each ledger, with sizes if a rule needs them."""
        if not self._retention.uses_sizes():
            return [self._known.get(each.ledger_id) or LedgerFacts(each) for each in ranges]
        found = []
        for each in ranges:
            known = self._known.get(each.ledger_id)
            if each.last is None:
                known = LedgerFacts(each, service.log.ledger_bytes)
            elif known is None:
                known = await service.reader.facts_of(each)
                self._remember(known)
            found.append(known)
        return found

    async def _date(self, facts: list[LedgerFacts], now_ms: int, topic: _Topic) -> None:
        """Read the dates of as many ledgers as may be deleted."""
        deciding = topic.deletions(facts, now_ms)
        for index in range(len(facts)):
            if index % DECIDED_AT_ONCE == DECIDED_AT_ONCE - 1:
                await pause(topic.service.clock, 0)
            facts[index] = await self._timed(facts[index], topic.service)
            if index + 1 < len(facts) and not facts[index].gone and not has_plausible_time(facts[index], now_ms):
                facts[index + 1] = await self._made(facts[index + 1], topic.service)
            if not all(next(each, None) for each in deciding):
                break  # the ledger is kept, so no newer one is deleted

    async def _timed(self, facts: LedgerFacts, service: TopicService) -> LedgerFacts:
        """Return the facts with the time of the ledger's newest message."""
        last = facts.range.last
        if last is None or facts.gone or facts.looked:
            return facts
        last_ms = None
        try:
            if service.log.is_timed:
                last_ms = await published_ms(last.local, service.reader)
        except UnexpectedCondition:
            return replace(facts, gone=True)
        found = replace(await self._made(facts, service), last_ms=last_ms, looked=True)
        self._remember(found)
        return found

    async def _made(self, facts: LedgerFacts, service: TopicService) -> LedgerFacts:
        """Return the facts with the creation time of the ledger."""
        if facts.gone or facts.created_ms is not None or facts.stored_ms is not None:
            return facts
        found = await service.reader.facts_of(facts.range)
        found = replace(
            found,
            last_ms=facts.last_ms,
            looked=facts.looked,
            size=found.size if facts.size is None else facts.size,
        )
        if facts.range.last is not None:
            self._remember(found)
        return found

    def _remember(self, facts: LedgerFacts) -> None:
        if facts.gone:
            return
        self._known[facts.range.ledger_id] = facts
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)

    def _tell(
        self,
        service: TopicService,
        gone: list[LedgerRange],
        needed_from: LocalId,
        consumed: Mapping[SubscriberId, LocalId],
    ) -> None:
        last = gone[-1].last
        assert last is not None
        lost = max(0, last.local + 1 - max(needed_from, gone[0].first or LocalId(1)))
        behind = service.on_trimmed(last.local, consumed)
        if not lost or not behind:
            return
        self._lost.add(lost)
        log.warn(
            "Topic {topic!r}: a limit of its age or size took {lost} messages up to {last} that {count} subscribers "
            "had not consumed: {names}",
            topic=shown(service.topic),
            lost=lost,
            last=last.local,
            count=len(behind),
            names=", ".join(map(repr, behind[:10])) + (", ..." if len(behind) > 10 else ""),
        )
