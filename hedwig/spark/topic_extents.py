"""What of each topic a query is to read: from where to where, and in which ledgers. Thread: any; one crossing each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import InvalidArgument, NoSuchLedger
from bookkeeper.spark.ledgers.plan import Extent, extent_of
from bookkeeper.spark.ledgers.unconfirmed import Unconfirmed
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.said_as import LOSS_BORNE
from hedwig.admin.topic_ends import TopicEnds
from hedwig.errors import UnexpectedCondition
from hedwig.model import FIRST_ID, Gone, LocalId
from hedwig.protocol.replay import at_time
from hedwig.protocol.retention import LedgerFacts, is_made_by
from hedwig.spark.region_access import region_of
from hedwig.spark.region_options import TopicOptions
from hedwig.spark.topic_options import EARLIEST, LATEST, Positions, TopicReadOptions
from hedwig.spark.topic_parts import Kept, Search, TopicPart, loss_text, lost_of, parts_of
from hedwig.spark.topic_sight import AT_ONCE, NO_IDS, TopicSight

log = Logger()

GUESSED_SIZE = 1024
"""Bytes of a message of a stream, for dividing the work: what is known of it may be another number the next time."""

Options = TopicOptions[TopicReadOptions]


class Planned(NamedTuple):
    """A part of a topic, and the same for the planner of partitions."""

    part: TopicPart
    extent: Extent


def plan_topics(client: BlockingBookKeeper, options: Options, offsets: Bounds) -> list[Planned]:
    """What a batch read reads, in the order of topics and messages.

    Raises InvalidArgument for a topic that there is not, or a position beyond its end; UnexpectedCondition for data
    loss, unless that is to be borne; BookKeeperError.
    """
    return client.run(lambda ledgers: Deferred.fromCoroutine(_plan(ledgers, options, offsets)))


class Span(NamedTuple):
    """The messages that a read of a topic returns: the first, and one past the last.

    unconfirmed: text naming messages behind them that may be acknowledged; None if there are none.
    """

    first: int
    stop: int
    unconfirmed: str | None


def spans_of(client: BlockingBookKeeper, options: Options, *, reader: str = "") -> dict[str, Span]:
    """Return the messages that a batch read of each topic would return now. Raises as `plan_topics`.

    reader: the reader, as a noun for warnings of deleted messages (`begin_of`) and of messages behind the end that may
    be acknowledged. Empty: no warnings.
    """

    async def look(ledgers: LedgerClient) -> dict[str, Span]:
        own, warn = options.own, bool(reader)
        sight = sight_of(ledgers, options)
        try:
            found: dict[str, Span] = {}
            unconfirmed = Unconfirmed(reader)
            for topic, kept in (await sight.see(own.topics, is_last=warn)).items():
                start = await begin_of(sight, own, kept, Positions(EARLIEST, {}), warn=warn)
                stop = await _stop_of(sight, own, kept)
                report = kept.unconfirmed if stop == kept.end and _reads_to_end(own, topic) else None
                found[topic] = Span(start, max(start, stop), report)
                unconfirmed.note(report)
            unconfirmed.warn()
            return found
        finally:
            await sight.close()

    return client.run(lambda ledgers: Deferred.fromCoroutine(look(ledgers)))


def sight_of(client: LedgerClient, options: Options, acknowledged: Mapping[str, int] = NO_IDS) -> TopicSight:
    """The sight of one reader with these options. acknowledged: see TopicSight."""
    return TopicSight(
        region_of(client, options),
        fail_on_data_loss=options.own.fail_on_data_loss,
        acknowledged=acknowledged,
        words=options.words,
        ends=lambda: TopicEnds(client.context.clock, client.context.network, options.hubs),
    )


async def _plan(client: LedgerClient, options: Options, offsets: Bounds) -> list[Planned]:
    own = options.own
    acknowledged = {} if own.acknowledged is None else own.acknowledged.by_topic
    sight = sight_of(client, options, acknowledged)
    try:
        seen, unconfirmed = await sight.see(own.topics, is_last=True), Unconfirmed()
        parts: list[TopicPart] = []
        for topic in own.topics:
            kept = seen[topic]
            start = await begin_of(sight, own, kept, Positions(EARLIEST, {}))
            stop = await _stop_of(sight, own, kept)
            low, high = offsets.range
            if stop == kept.end <= high and _reads_to_end(own, topic):
                unconfirmed.note(kept.unconfirmed)
            parts += kept_parts(options, kept, max(start, low), min(stop, high + 1))
        unconfirmed.warn()
        return await _sized(sight, options, parts)
    finally:
        await sight.close()


async def begin_of(
    sight: TopicSight, own: TopicReadOptions, kept: Kept, otherwise: Positions, *, warn: bool = True
) -> int:
    """Return the first requested message, by id or time. Raises InvalidArgument for one beyond the end.

    warn: if that is the earliest one, log which messages before it are deleted.
    """
    positions = own.start or otherwise
    word = sight.words.word("startingOffsets")
    if own.start_ms is not None:
        found = await _at_time(sight, kept, own.start_ms)
        is_earliest = found == kept.first and not await _is_first_made_by(sight, kept, own.start_ms)
        remark = ", and some or all may be older than the requested time"
    else:
        found = _position_in(kept, positions, word)
        is_earliest, remark = positions.of(kept.topic) == EARLIEST, ""
    if warn and is_earliest and kept.first > FIRST_ID:
        log.warn(
            "{gone} of topic {topic!r} are deleted{remark}: the read begins with {first}",
            gone=str(Gone(FIRST_ID, LocalId(kept.first - 1))).capitalize(),
            topic=kept.topic,
            first=kept.first,
            remark=remark,
        )
    return found


async def _stop_of(sight: TopicSight, own: TopicReadOptions, kept: Kept) -> int:
    """One past the last message that was asked for."""
    if own.end_ms is None:
        return _position_in(kept, own.end or Positions(LATEST, {}), sight.words.word("endingOffsets"))
    search = Search(kept.first, kept.end)
    while (asked := search.ask) is not None:
        search.tell(is_older=await _is_older(sight, kept, asked, own.end_ms))
    return search.low


def _reads_to_end(own: TopicReadOptions, topic: str) -> bool:
    """Return whether the read ends with the topic, not at a position."""
    return own.end is None or own.end.of(topic) == LATEST


async def _is_older(sight: TopicSight, kept: Kept, message_id: int, time_ms: int) -> bool:
    """Whether a message may have been published before a time. One that is lost counts as the last before it that is
    there: so what is lost is in the range that was asked for, and told, where it may belong there.
    """
    for each in reversed(kept.ranges):
        first, last = each.first or FIRST_ID, message_id if each.last is None else min(message_id, each.last.local)
        if not first <= last:
            continue
        try:
            said = await sight.time_of_message(kept, last)
        except NoSuchLedger:
            continue
        return said is None or said < time_ms
    return True


def _position_in(kept: Kept, positions: Positions, word: str | None) -> int:
    position = positions.of(kept.topic)
    if position == EARLIEST:
        return kept.first
    if position == LATEST:
        return kept.end
    if position > kept.end and kept.lost_from is None:
        raise InvalidArgument(
            f"{word}: topic {kept.topic!r} ends with message {kept.end - 1} so far; {position} is beyond. "
            "Use latest (-1)"
        )
    return max(position, FIRST_ID)


async def _at_time(sight: TopicSight, kept: Kept, time_ms: int) -> int:
    """The first message that is not known to be older."""
    if kept.first >= kept.end:
        return kept.end
    facts: list[LedgerFacts] = []
    for each in kept.ranges:
        try:
            known = await sight.facts(each.ledger_id)
        except NoSuchLedger:
            continue
        facts.append(LedgerFacts(each, known.length, known.metadata.created_ms))
    plan = at_time(facts, LocalId(kept.end - 1), time_ms)
    try:
        asked = next(plan)
        while True:
            asked = plan.send(await sight.time_of_message(kept, asked))
    except StopIteration as found:
        position: LocalId = found.value
        return position


async def _is_first_made_by(sight: TopicSight, kept: Kept, time_ms: int) -> bool:
    """Return whether all deleted messages are older than a time: the first kept ledger was created before it."""
    try:
        made = (await sight.facts(kept.ranges[0].ledger_id)).metadata if kept.ranges else None
    except NoSuchLedger:
        return False
    return made is not None and is_made_by(
        LedgerFacts(kept.ranges[0], created_ms=made.created_ms, stored_ms=made.stored_ms), time_ms
    )


def kept_parts(options: Options, kept: Kept, start: int, stop: int) -> list[TopicPart]:
    """Who holds messages start..stop - 1; what is lost of them is told."""
    if start >= stop:
        return []
    for lost in lost_of(kept, start, stop):
        data_loss(options, loss_text(kept.topic, *lost))
    return parts_of(kept, max(start, min(kept.first, stop)), stop) if stop > kept.first else []


def data_loss(options: Options, what: str) -> None:
    """Raise UnexpectedCondition, or warn where that is to be borne."""
    words = options.words
    if options.own.fail_on_data_loss:
        remedy = words.remedy("With {} they are left out with a warning", LOSS_BORNE)
        raise UnexpectedCondition(what + (remedy or words.remedy("Begin behind them ({})", "startingOffsets")))
    log.warn("{what}; they are left out ({word})", what=what, word=words.word(LOSS_BORNE))


async def _sized(sight: TopicSight, options: Options, parts: Sequence[TopicPart]) -> list[Planned]:
    found: dict[int, Planned] = {}

    async def look(at: int, part: TopicPart) -> None:
        try:
            metadata, end, length = await sight.facts(part.ledger_id)
        except NoSuchLedger:
            data_loss(options, f"{loss_text(part.topic, part.first, part.last)}: ledger {part.ledger_id} is gone")
            return
        first, last = part.first_entry_id, part.last_entry_id
        found[at] = Planned(part, extent_of(part.ledger_id, metadata, first, last, length=length, end=end))

    await in_parallel((look(at, part) for at, part in enumerate(parts)), AT_ONCE)
    return [found[at] for at in sorted(found)]


def plan_between(client: BlockingBookKeeper, options: Options, wanted: Mapping[str, tuple[int, int]]) -> list[Planned]:
    """What lies between two positions of a stream, always cut alike. Raises as `plan_topics`."""
    kept = client.run(lambda ledgers: Deferred.fromCoroutine(_see(ledgers, options, wanted))) if wanted else {}
    planned: list[Planned] = []
    for topic, (first, stop) in wanted.items():
        for part in kept_parts(options, kept[topic], first, stop):
            size = (part.last - part.first + 1) * GUESSED_SIZE
            extent = Extent(part.ledger_id, part.first_entry_id, part.last_entry_id, size)
            planned.append(Planned(part, extent))
    return planned


async def _see(client: LedgerClient, options: Options, topics: Mapping[str, object]) -> dict[str, Kept]:
    sight = sight_of(client, options)
    try:
        return await sight.see(topics)
    finally:
        await sight.close()
