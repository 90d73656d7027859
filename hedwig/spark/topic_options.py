"""The words of the format hedwig. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bookkeeper.config.keys import GIB, KIB, MIB, Kind, boolean, integer, key, text
from bookkeeper.errors import BookKeeperError
from bookkeeper.spark.ledgers.stream_offsets import Division, position_of
from bookkeeper.spark.options.kinds import check_use, or_none
from bookkeeper.spark.options.limits import Limits
from bookkeeper.texts import parse_json
from hedwig.model import SubscriberId, Topic
from hedwig.names import subscriber_part, topic_part
from hedwig.spark.region_options import RegionOptions

EARLIEST, LATEST = -2, -1
"""What these words mean as a position, as in Kafka's JSON."""

READING, PLANNING, STREAMING, WRITING = "What is read", "Partitions", "Streams", "What is published"


@dataclass(frozen=True, slots=True)
class Positions:
    """Where to begin or end: a position for all, or one for each topic named (others: `rest`)."""

    rest: int
    by_topic: Mapping[str, int]

    def of(self, topic: str) -> int:
        """A message's id, EARLIEST or LATEST."""
        return self.by_topic.get(topic, self.rest)


def topic_of(name: str) -> Topic:
    """A topic by its name. Raises ValueError for what none can be called."""
    topic = Topic(name.encode("utf-8", "surrogatepass"))
    try:
        topic_part(topic)
    except BookKeeperError as error:
        raise ValueError(str(error)) from error
    return topic


def parse_topics(value: str) -> tuple[str, ...]:
    """One topic, or several with commas. Raises ValueError."""
    names = [name.strip() for name in value.split(",")]
    for name in names:
        topic_of(name)
    return tuple(dict.fromkeys(names))


def parse_positions(value: str) -> Positions:
    """earliest, latest, or {"topic": id of a message, ...} in which -2 is earliest and -1 latest. Raises ValueError.

    Kafka's {"topic": {"0": id}} is read too: a topic here has the one partition; and an offset of a stream.
    """
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return Positions(EARLIEST if word == "earliest" else LATEST, {})
    try:
        given = parse_json(value)
        positions = {name: _position(each) for name, each in position_of(given).items()}
    except (ValueError, AttributeError):
        raise ValueError('want earliest, latest, or JSON such as {"news": 500, "sport": -2}') from None
    if any(position < EARLIEST for position in positions.values()):
        raise ValueError("positions are ids of messages, -2 for the earliest, -1 for the latest")
    return Positions(EARLIEST, positions)


def _position(given: Any) -> int:
    if isinstance(given, dict) and list(given) == ["0"]:
        given = given["0"]
    if type(given) is not int:
        raise ValueError("no position")
    return given


def parse_subscriber(value: str) -> SubscriberId:
    """A subscriber by its name. Raises ValueError for what none can be called."""
    subscriber = SubscriberId(value.encode("utf-8", "surrogatepass"))
    try:
        subscriber_part(subscriber)
    except BookKeeperError as error:
        raise ValueError(str(error)) from error
    return subscriber


def _topic_or_none(value: str) -> str | None:
    if value:
        topic_of(value)
    return value or None


OF_WRITING = {"topic": ("it is of writing: topics to read are named by {}", "subscribe")}
OF_READING = {"subscribe": ("it is of reading: the topic to publish to is named by {}", "topic")}
"""Words of the one use of the format that are given to the other; see `bookkeeper.spark.options.tables.read_tables`."""

_TOPICS: Kind[tuple[str, ...]] = Kind("a topic, or several: a,b", lambda value: parse_topics(value) if value else ())
_TOPIC: Kind[str | None] = Kind("a topic", _topic_or_none)
SUBSCRIBER = or_none(Kind("name", parse_subscriber))
_POSITIONS = or_none(Kind('earliest, latest, or JSON such as {"news": 500}', parse_positions))


_KEEP = or_none(integer("ms", 0, 1000 * 365 * 24 * 3_600_000), "ms; 0: only while subscriptions need them")
_COUNT = or_none(integer("", 1, 2**62), "1 or more; not set: no limit")
_TIME = or_none(integer("", 0, 2**62), "ms since 1970")


@dataclass(frozen=True, slots=True)
class TopicReadOptions(RegionOptions):
    """How topics are read."""

    topics: tuple[str, ...] = key("subscribe", _TOPICS, "", READING, "Topics to read.")
    start: Positions | None = key(
        "startingOffsets", _POSITIONS, "", READING,
        "First message of each topic. Not set: earliest; of a new stream latest.",
    )  # fmt: skip
    end: Positions | None = key(
        "endingOffsets", _POSITIONS, "", READING,
        "One past the last message of each topic; batch only. Not set: latest.",
    )  # fmt: skip
    start_ms: int | None = key(
        "startingTimestamp", _TIME, "", READING,
        "Begin with what was published then or later, by the times in the messages; those without one may come too.",
    )  # fmt: skip
    end_ms: int | None = key(
        "endingTimestamp", _TIME, "", READING, "End before what was published then or later; batch only.",
    )  # fmt: skip
    acknowledged: Positions | None = key(
        "acknowledgedOffsets", _POSITIONS, "", READING,
        "One past the last message of a topic that a hub has acknowledged to who reads it: read up to there even where "
        "the bookies were not told yet that it is confirmed; batch only.",
    )  # fmt: skip
    fail_on_data_loss: bool = key(
        "failOnDataLoss", boolean(), "true", READING,
        "Fail where messages that were to be read are not kept any more; false: warn and continue. A read that begins "
        "with the earliest kept message does not fail: a warning names the deleted messages before it.",
    )  # fmt: skip
    headers: bool = key(
        "includeHeaders", boolean(), "false", READING, "Add the column headers: the properties of each message.",
    )  # fmt: skip
    partitions_min: int = key(
        "minPartitions", integer("partitions", 1, 100_000), "1", PLANNING, "Read with at least so many tasks.",
    )  # fmt: skip
    partition_bytes_max: int = key(
        "maxPartitionBytes", integer("bytes", 64 * KIB, 64 * GIB), "67108864", PLANNING,
        "About how much one task reads at most.",
    )  # fmt: skip
    messages_max: int | None = key(
        "maxOffsetsPerTrigger", _COUNT, "", STREAMING, "Messages of one micro-batch at most; streams only.",
    )  # fmt: skip
    messages_max_alias: int | None = key(
        "maxEntriesPerTrigger", _COUNT, "", STREAMING, "The same by another name.",
    )  # fmt: skip
    bytes_max: int | None = key(
        "maxBytesPerTrigger", _COUNT, "", STREAMING,
        "About how many bytes one micro-batch holds at most; one message always passes. Streams only.",
    )  # fmt: skip
    subscriber: SubscriberId | None = key(
        "subscription", SUBSCRIBER, "", STREAMING,
        "Subscription, of this query alone, whose cursor is moved to what the query has committed. Made where there is "
        "none. It keeps messages from being deleted before they were read. Streams only.",
    )  # fmt: skip

    def faults(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """What is wrong between words."""
        if not self.topics:
            yield ("subscribe",), "is missing: which topics to read, e.g. news or news,sport"
        for word, positions in (
            ("startingOffsets", self.start), ("endingOffsets", self.end), ("acknowledgedOffsets", self.acknowledged)
        ):  # fmt: skip
            unknown = [] if positions is None else sorted(set(positions.by_topic) - set(self.topics))
            if unknown and self.topics:
                yield (word,), f"{word} names {', '.join(unknown)}, which is none of the topics that are read"
        for one, other, both in (
            ("startingOffsets", "startingTimestamp", (self.start, self.start_ms)),
            ("endingOffsets", "endingTimestamp", (self.end, self.end_ms)),
            ("maxOffsetsPerTrigger", "maxEntriesPerTrigger", (self.messages_max, self.messages_max_alias)),
        ):
            if None not in both and both[0] != both[1]:
                yield (one, other), f"{one} and {other} say the same thing in two ways: give one of them"

    def check_use(self, *, stream: bool) -> None:
        """Raise ConfigurationError for words that have no meaning in a stream, or none but in a stream."""
        check_use(
            stream=stream,
            of_batches={
                "endingOffsets": self.end,
                "endingTimestamp": self.end_ms,
                "acknowledgedOffsets": self.acknowledged,
            },
            of_streams={
                "maxOffsetsPerTrigger": self.messages_max,
                "maxEntriesPerTrigger": self.messages_max_alias,
                "maxBytesPerTrigger": self.bytes_max,
                "subscription": self.subscriber,
            },
        )

    @property
    def per_trigger(self) -> Limits:
        """What one micro-batch holds at most."""
        return Limits(self.messages_max_alias if self.messages_max is None else self.messages_max, self.bytes_max)

    @property
    def division(self) -> Division:
        """How a read, or a micro-batch from now on, is divided among tasks."""
        return Division(self.partitions_min, self.partition_bytes_max)


class RowOrder(enum.Enum):
    """By what the rows of a task are numbered; see hedwig.spark.topic_sink."""

    ARRIVAL = "arrival"
    CONTENT = "content"


def _row_order(value: str) -> RowOrder:
    try:
        return RowOrder(value.lower())
    except ValueError:
        raise ValueError("want arrival or content") from None


_ROW_ORDER: Kind[RowOrder] = Kind("arrival or content", _row_order)


@dataclass(frozen=True, slots=True)
class TopicWriteOptions(RegionOptions):
    """How rows are published."""

    topic: str | None = key(
        "topic", _TOPIC, "", WRITING, "Topic of all rows. Not set: the column topic says it for each.",
    )  # fmt: skip
    row_order: RowOrder = key(
        "rowOrder", _ROW_ORDER, "arrival", WRITING,
        "How the rows of a task are ordered and numbered: as they come, or by their content, for plans whose rows may "
        "come in another order when a task is tried again (behind a shuffle).",
    )  # fmt: skip
    sort_bytes_max: int = key(
        "maxSortBytes", integer("bytes", MIB, 64 * GIB), "268435456", WRITING,
        "With rowOrder=content, what the rows of one task may take in memory: their bytes, 320 more for each row, and "
        "300 for each key and header.",
    )  # fmt: skip
    keep_ms: int | None = key(
        "keepMs", _KEEP, "", WRITING,
        "Retention of the topics: hubs keep all their messages for this time, consumed or not; 0: only while "
        "subscriptions need them. It applies until another value is set. Not set: unchanged, at first "
        "keep_unsubscribed_ms of the hubs. Limits of the hubs may be shorter.",
    )  # fmt: skip
    job: str = key(
        "job", text("a name"), "", WRITING,
        "Name of a batch write: run again under it, with the same rows in the same partitions and order, it publishes "
        "nothing twice. In foreachBatch of a stream micro-batches are told apart under one name, and a replayed one is "
        "known again; there each write of a micro-batch needs a name of its own, and is made on the thread of "
        "foreachBatch, or by a function wrapped there with pyspark.inheritable_thread_target(session): else rows of "
        "later micro-batches count as repeats, and are missing. Not set: each run is another.",
    )  # fmt: skip
