"""The retention of a topic: which rule keeps each of its ledgers, and until when.

Read from the topic's records and ledgers. No hub is asked, so the caller passes the hubs' settings. A ledger's date is
that of its newest message, which is read, in at most the DATED_MAX oldest ledgers. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bookkeeper.clock import wall_ms
from bookkeeper.errors import BookKeeperError, NoSuchLedger, RemoteProtocolError
from hedwig.admin.region import LedgerPart, Region, Subscribed, in_order
from hedwig.model import HubAddress, LedgerRange, LocalId, MessageId, Topic
from hedwig.protocol.kept_ledgers import KeptLedger, kept_ledgers
from hedwig.protocol.publish_time import time_of
from hedwig.protocol.retention import LedgerFacts, Retention
from hedwig.protocol.subscription import topic_bound, trim_point
from hedwig.wire.view import MessageView

DATED_MAX = 200
AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """The retention of one topic.

    rules: the settings, with named_ms applied. named_ms: what publishers named; None: nothing. ledgers: in order; empty
    if they could not be determined, for the reason in `problem`. is_record_readable: if not, publishers may have named
    a retention, so `rules` and `named_ms` are not the topic's.
    """

    rules: Retention
    named_ms: int | None
    ledgers: Sequence[KeptLedger] = ()
    problem: str | None = None
    is_record_readable: bool = True


@dataclass(frozen=True, slots=True)
class TopicRecords:
    """All that is recorded of a topic, and its retention."""

    owner: HubAddress | None
    parts: Sequence[LedgerPart]
    subscribed: Sequence[Subscribed]
    retention: TopicRetention


async def look(region: Region, topic: Topic, settings: Retention, *, timed: bool) -> TopicRecords:
    """Look at one topic. settings, timed: its hubs'. Raises InvalidArgument if there is no such topic."""
    owner = await region.owner(topic)
    parts, subscribed = await region.parts(topic), await region.subscriptions_of(topic)
    retention = await topic_retention_of(region, topic, parts, subscribed, settings, timed=timed)
    return TopicRecords(owner, parts, subscribed, retention)


def retention_of(numbers: Mapping[str, int]) -> Retention:
    """Return the numbers of HubConfig.retention_of as a Retention; 0 (off) becomes None."""
    return Retention(**{name: number or None for name, number in numbers.items()})


async def topic_retention_of(
    region: Region,
    topic: Topic,
    parts: Sequence[LedgerPart],
    subscribed: Sequence[Subscribed],
    settings: Retention,
    *,
    dated_max: int = DATED_MAX,
    timed: bool = True,
) -> TopicRetention:
    """Return the retention of one topic.

    parts, subscribed: its ledgers, in order, and all its subscriptions. dated_max: oldest ledgers in which the newest
    message is read for its date. timed: hubs give its messages times; if not, none is read.
    """
    try:
        named_ms = (await region.metadata.retention(topic)).value.keep_ms
    except BookKeeperError as error:
        return TopicRetention(settings, None, problem=str(error), is_record_readable=False)
    rules = settings.named(named_ms)
    unreadable = next((each for each in subscribed if not each.is_readable), None)
    if unreadable is not None:
        return TopicRetention(rules, named_ms, problem=f"subscriber {unreadable.subscriber!r} cannot be read")
    # The newest ledger is always kept, and times that publishers wrote do not count.
    dated = max(0, min(len(parts) - 1, dated_max)) if timed else 0
    facts = [facts async for _, facts in in_order(parts[:dated], lambda part: _dated(region, part), AT_ONCE)]
    facts += [_facts(part) for part in parts[dated:]]
    last = parts[-1].last if parts else LocalId(0)
    if last is None:
        return TopicRetention(rules, named_ms, problem="the topic's end cannot be read")
    bound = topic_bound(each.record.preferences for each in subscribed)
    consumed = [(each.subscriber, each.record.consumed.local) for each in subscribed]
    needed_from = LocalId(trim_point([position for _, position in consumed], bound, last) + 1)
    now_ms = wall_ms()
    return TopicRetention(rules, named_ms, kept_ledgers(facts, consumed, needed_from, rules, now_ms))


def _facts(part: LedgerPart) -> LedgerFacts:
    last = None if part.is_open or part.last is None else MessageId(part.last)
    size = part.confirmed_size if part.size is None else part.size
    return LedgerFacts(LedgerRange(part.ledger_id, part.first, last), size, part.created_ms, stored_ms=part.stored_ms)


async def _dated(region: Region, part: LedgerPart) -> LedgerFacts:
    facts = _facts(part)
    last_ms, gone = None, False
    try:
        handle = await region.open(part.ledger_id)
        try:
            last_ms = time_of(MessageView(bytes((await handle.read_last()).payload)).properties)
        finally:
            await handle.close()
    except NoSuchLedger:
        gone = True
    except (BookKeeperError, RemoteProtocolError):
        pass  # the creation time of the next ledger dates it
    return replace(facts, last_ms=last_ms, gone=gone)
