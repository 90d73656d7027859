"""Which ledgers of a topic go, besides those that all have consumed: retention by age and size.

    every trim_period:  Trimmer.trim(service) ---> sizes and times of its ledgers ---> trimming() ---> TopicLog.trim
                                                   (protocol/retention.py)

Without retention nothing is asked of anybody, and consumption alone decides. Sizes are of the ledgers' metadata; a
ledger's age is its newest message's, by the time in it (hw.time); where that has none, the time when the next ledger
was made. Only as many ledgers are looked at as may go, and what is known of an ended ledger does not change, so it is
remembered. One that is listed and not there goes.

Who has not consumed what a limit took goes on behind it: with the first id that it is given then, a line in the log and
the meter it is told. Thread: reactor.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.metrics import Counter
from hedwig.errors import UnexpectedCondition
from hedwig.hub.replaying import published_ms
from hedwig.model import LedgerRange, LocalId
from hedwig.protocol.retention import LedgerFacts, Retention, trimming

if TYPE_CHECKING:
    from hedwig.hub.topic_service import TopicService

log = Logger()

REMEMBERED_MAX = 100_000
"""Ledgers, of all topics, whose facts are kept."""


def wall_clock_ms() -> int:
    """Since 1970, UTC."""
    return time.time_ns() // 1_000_000


class Trimmer:
    """Of one hub. lost: counts messages that a limit took before all who wanted them had consumed them."""

    def __init__(
        self, retention: Retention, now_ms: Callable[[], int] = wall_clock_ms, lost: Counter | None = None
    ) -> None:
        self._retention, self._now_ms, self._lost = retention, now_ms, lost or Counter()
        self._known: OrderedDict[int, LedgerFacts] = OrderedDict()

    async def trim(self, service: TopicService) -> int:
        """Delete what is to go of a topic; how many ledgers. Raises BookKeeperError."""
        if self._retention == Retention():
            return await service.trim()
        ranges = service.log.ranges
        if len(ranges) < 2 or not service.is_served:  # the last one stays
            return 0
        facts = await self._sizes(ranges, service)
        for index in range(len(facts)):
            if trimming(facts, service.needed_from, self._retention, self._now_ms()).count < index:
                break  # the one before stays, so nothing newer goes
            following = facts[index + 1].range if index + 1 < len(facts) else None
            facts[index] = await self._timed(facts[index], following, service)
        # From here on at once: who subscribes or goes back meanwhile needs more.
        needed_from = service.needed_from
        found = trimming(facts, needed_from, self._retention, self._now_ms())
        if not found.count or not service.is_served:
            return 0
        gone = await service.log.trim(found.through)
        for each in gone:
            self._known.pop(each.ledger_id, None)
        if gone:
            self._tell(service, gone, needed_from)
        return len(gone)

    async def _sizes(self, ranges: list[LedgerRange], service: TopicService) -> list[LedgerFacts]:
        """Of each ledger, if they matter."""
        if self._retention.keep_bytes is None and self._retention.limit_bytes is None:
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

    async def _timed(self, facts: LedgerFacts, following: LedgerRange | None, service: TopicService) -> LedgerFacts:
        """With the time of its newest message, or of the next ledger, if times matter."""
        last = facts.range.last
        if last is None or facts.last_ms is not None:
            return facts
        if self._retention.keep_ms is None and self._retention.limit_ms is None:
            return facts
        try:
            last_ms = await published_ms(last.local, service.reader)
        except UnexpectedCondition:
            return replace(facts, gone=True)
        if last_ms is None and following is not None:
            last_ms = (await service.reader.facts_of(following)).created_ms
        timed = replace(facts, last_ms=last_ms)
        if last_ms is not None:
            self._remember(timed)
        return timed

    def _remember(self, facts: LedgerFacts) -> None:
        self._known[facts.range.ledger_id] = facts
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)

    def _tell(self, service: TopicService, gone: list[LedgerRange], needed_from: LocalId) -> None:
        last = gone[-1].last
        assert last is not None
        lost = max(0, last.local + 1 - max(needed_from, gone[0].first or LocalId(1)))
        behind = service.on_trimmed(last.local)
        if not lost or not behind:
            return
        self._lost.add(lost)
        log.warn(
            "Topic {topic!r}: a limit of its age or size took {lost} messages up to {last} that {count} subscribers "
            "had not consumed: {names}",
            topic=service.topic,
            lost=lost,
            last=last.local,
            count=len(behind),
            names=", ".join(map(repr, behind[:10])) + (", ..." if len(behind) > 10 else ""),
        )
