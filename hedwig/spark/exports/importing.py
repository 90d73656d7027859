"""An import from beginning to end: the messages of an export published again, each once, and verified.

    1  check      all of the export (`checking`); until then nothing is published
    2  look       which of its messages the topics have already, by this import: by the numbers that are in them
    3  publish    a task for some of the topics publishes what is missing (`publishing`)
    4  verify     what the topics have by this import is read from their ledgers: number, order, digests

Messages are known again by the import's producer (of the export and the option `job`) and by their numbers. What is
looked at is what topics keep; what they do not show any more, or not yet, hubs know, who remember the last 1,000
producers of a topic. So an import that died is run again, by the same command, and goes on where it was; one that is
complete publishes nothing.

In its topic a message has another id, the time when it was published again, and this import's producer; the time that
it had is in the export's files. Messages of other publishers may come in between. Subscribers see messages as they are
published.

A topic without a subscription keeps nothing for long: while an import is under way a subscription of its own keeps what
it has published; option `subscription` names one that stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import connect
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import BookKeeperError, ConfigurationError
from bookkeeper.spark.arrow_map import map_in_arrow
from bookkeeper.spark.exports.manifest import check_directory
from bookkeeper.spark.pipeline import told_by_spark
from bookkeeper.spark.said_as import LOSS_BORNE, SAID_AS
from hedwig.model import SubscriberId
from hedwig.protocol.options import PRODUCER, SEQUENCE
from hedwig.spark.exports import publishing as task_publishing
from hedwig.spark.exports.checking import CheckedTopics, checked_topics, differing
from hedwig.spark.exports.contents import import_producer
from hedwig.spark.exports.manifest import TopicManifest
from hedwig.spark.exports.message_digests import topic_digests
from hedwig.spark.exports.options import IMPORT, TopicImportOptions
from hedwig.spark.exports.publishing import PUBLISHED_SCHEMA
from hedwig.spark.region_access import region_of
from hedwig.spark.region_options import WHERE, RegionOptions, TopicOptions, read_topic_options
from hedwig.spark.registration import register
from hedwig.spark.topic_extents import spans_of
from hedwig.spark.topic_options import EARLIEST, TopicReadOptions, topic_of
from hedwig.spark.topics.naming import words_of
from hedwig.spark.topics.question import nameable

AT_ONCE, TOLD_MAX = 64, 10

_SHUFFLE = "spark.sql.shuffle.partitions"

Say = Callable[[str], None]


class TopicImportFailed(BookKeeperError):
    """The import did not come to its end; why is in the text. What was published stays, and is not published again."""


@dataclass(frozen=True, slots=True)
class ImportedTopic:
    """One topic. messages: of the export. published: handed to hubs by this run, who store what they do not know from
    an earlier one; in a dry run: would be.

    is_verified: what the topic has by this import is what was exported. False in a dry run, and where not all of it is
    kept any more.
    """

    topic: str
    into: str
    messages: int
    published: int
    is_verified: bool


@dataclass(frozen=True, slots=True)
class TopicImport:
    """What was imported, or is to be (dry run)."""

    manifest: TopicManifest
    topics: tuple[ImportedTopic, ...]


@dataclass(slots=True)
class _Work:
    """What is to be done for a topic. there: messages it has by this import; last: the highest number of those.

    lowest_id: from where on they are in the topic; None: not known. highest_id: up to where hubs have acknowledged.
    """

    topic: str
    into: str
    first: int
    end: int
    digest: str
    there: int = 0
    last: int = 0
    lowest_id: int | None = None
    highest_id: int | None = None
    published: int = 0
    is_trimmed: bool = False

    @property
    def messages(self) -> int:
        """Of the export."""
        return self.end - self.first + 1

    @property
    def resume(self) -> int:
        """The number to go on with."""
        return max(self.first, self.last + 1)


def import_topics(
    spark: SparkSession,
    uri: str,
    directory: str,
    *,
    options: Mapping[str, object] | None = None,
    dry_run: bool = False,
    say: Say = lambda _: None,
) -> TopicImport:
    """Publish the messages of the export in `directory` to topics of the region at `uri`; repeatable.

    options: `exports.options.TopicImportOptions`, keys of the clients, hubs. dry_run: check everything, publish
    nothing. say: told in a line what begins. On return all is durable and verified.
    Raises ConfigurationError, NotAnExport (nothing was published), TopicImportFailed, BookKeeperError.
    """
    given = {"uri": uri, **{name: str(value) for name, value in (options or {}).items()}}
    chosen = read_topic_options(TopicImportOptions, given, where=IMPORT)
    register(spark)
    found = checked_topics(spark, check_directory(directory))
    reading = words_of(given, RegionOptions)
    reading[SAID_AS] = chosen.words.without(LOSS_BORNE).without("startingOffsets").text  # all of it is read
    this = _Import(spark, chosen, reading, found, say)
    try:
        return this.run(dry_run=dry_run)
    except PySparkException as error:
        raise TopicImportFailed(f"{directory}: {told_by_spark(error)}. What was published stays; run it again to go on"
        ) from error  # fmt: skip


class _Import:
    def __init__(
        self,
        spark: SparkSession,
        options: TopicOptions[TopicImportOptions],
        words: Mapping[str, str],
        export: CheckedTopics,
        say: Say,
    ) -> None:
        self._spark, self._options, self._words, self._export, self._say = spark, options, words, export, say
        self._producer = import_producer(export.manifest.export_id, options.own.job)
        self._keeper = options.own.subscriber or SubscriberId(b"import-" + self._producer)

    def run(self, *, dry_run: bool) -> TopicImport:
        """Every step behind the check of the export."""
        works = self._works()
        self._look(works)
        left = [work for work in works if work.resume <= work.end]
        for work in left:
            work.published = work.end - work.resume + 1
        if not dry_run:
            if left:
                self._say(f"publishing {sum(work.published for work in left):,} messages to {len(left):,} topics")
                self._publish(left)
            self._say("verifying what the topics have")
            self._verify(left)
            self._let_go(works)
        topics = tuple(
            ImportedTopic(
                work.topic, work.into, work.messages, work.published, is_verified=not (dry_run or work.is_trimmed)
            )
            for work in works
        )
        return TopicImport(self._export.manifest, topics)

    # --- before anything is published

    def _works(self) -> list[_Work]:
        prefix, said = self._options.own.prefix, self._options.words.word("prefix")
        found = [
            _Work(row.topic, prefix + row.topic, row.first_seq, row.last_seq, row.digest)
            for row in self._export.topics.orderBy("topic").toLocalIterator()
        ]
        _, others = nameable(work.into for work in found)
        for work in found:
            try:
                topic_of(work.into)
            except ValueError as error:
                raise ConfigurationError(f"{said}: {error}") from error
        if others:
            raise ConfigurationError(f"{said}: {others[0]!r} cannot be named in a list of topics")
        return found

    def _look(self, works: Sequence[_Work]) -> None:
        """What the topics have of this import already, as far as bookies know it to be confirmed.

        Raises TopicImportFailed where that is all of it, and not what was exported.
        """
        there = self._existing([work.into for work in works if work.messages])
        if not there:
            return
        self._say(f"looking at {len(there):,} topics that there are already")
        digests = topic_digests(self._numbered(there), self._export.manifest.range_messages)
        found = {row.topic: row for row in digests.collect()}
        for work in works:
            row = found.get(work.into)
            if row is None:
                continue
            work.there, work.last = row.messages, row.last_seq
            work.is_trimmed = work.last >= work.end and work.there < work.messages
            if work.last >= work.end and not work.is_trimmed and (row.last_seq, row.digest) != (work.end, work.digest):
                raise TopicImportFailed(
                    f"topic {work.into!r} has {row.messages:,} messages of an earlier run of this import, and they are "
                    "not what was exported" + self._options.words.remedy("Give this import another name ({})", "job")
                )

    def _existing(self, topics: Sequence[str]) -> list[str]:
        async def look(client: LedgerClient) -> list[str]:
            region = region_of(client, self._options)
            await region.check()
            found: list[str] = []

            async def one(name: str) -> None:
                if (await region.metadata.look(topic_of(name))).exists:
                    found.append(name)

            await in_parallel((one(name) for name in topics), AT_ONCE)
            return sorted(found)

        with connect(self._options.client.metadata_service_uri, self._options.client) as client:
            return client.run(lambda ledgers: Deferred.fromCoroutine(look(ledgers)))

    def _numbered(self, topics: Sequence[str], **positions: str) -> DataFrame:
        """The messages that topics have by this import: topic, offset, seq (its number), value, headers."""
        rows = (
            self._spark.read.format(WHERE)
            .options(**self._words, subscribe=",".join(topics), includeHeaders=True, **positions)
            .load()
        )
        producer = bytearray(self._producer)
        is_ours = F.exists("headers", lambda each: (each["key"] == PRODUCER) & (each["value"] == F.lit(producer)))
        number = F.filter("headers", lambda each: each["key"] == SEQUENCE)[0]["value"].cast("string").cast("long")
        return rows.where(is_ours).select("topic", "offset", number.alias("seq"), "value", "headers")

    # --- publishing

    def _publish(self, works: Sequence[_Work]) -> None:
        tasks = min(len(works), int(self._spark.conf.get(_SHUFFLE) or 1))
        planned = [(work.topic, work.into, work.resume, at % tasks) for at, work in enumerate(works)]
        plan = self._spark.createDataFrame(planned, "topic STRING, into STRING, resume LONG, task INT")
        rows = (
            self._export.messages.join(F.broadcast(plan), "topic")
            .where("seq >= resume")
            .select(F.col("into").alias("topic"), "seq", "value", "headers", "task")
            .repartitionById(tasks, "task")
            .sortWithinPartitions("topic", "seq")
            .select("topic", "seq", "value", "headers")
        )
        publish = task_publishing.publishing(self._options, self._producer, self._keeper)
        done = {row.topic: row for row in map_in_arrow(rows, publish, PUBLISHED_SCHEMA).collect()}
        for work in works:
            row = done.get(work.into)
            if row is None or row.messages != work.published:
                raise TopicImportFailed(
                    f"topic {work.into!r}: {0 if row is None else row.messages:,} messages were published, "
                    f"{work.published:,} were to be"
                )
            work.highest_id = row.highest_id
            if not work.there:
                work.lowest_id = row.lowest_id

    # --- afterwards

    def _verify(self, works: Sequence[_Work]) -> None:
        """Raise TopicImportFailed unless the topics have what was exported; note which do not keep it any more."""
        works = self._kept(works)
        if not works:
            return
        start = {work.into: EARLIEST if work.lowest_id is None else work.lowest_id for work in works}
        end = {work.into: work.highest_id + 1 for work in works if work.highest_id is not None}
        positions = {"startingOffsets": json.dumps(start)}
        if end:
            positions["acknowledgedOffsets"] = json.dumps(end)
        messages = self._numbered(sorted(start), **positions)
        names = self._spark.createDataFrame([(work.topic, work.into) for work in works], "topic STRING, into STRING")
        topics = self._export.topics.join(F.broadcast(names), "topic").drop("topic").withColumnRenamed("into", "topic")
        wrong = differing(topics, topic_digests(messages, self._export.manifest.range_messages))
        some = wrong.orderBy("name").limit(TOLD_MAX + 1).collect()
        if some:
            told = "; ".join(f"{row.name}: {row.why}" for row in some[:TOLD_MAX])
            raise TopicImportFailed(
                f"what the topics have is not what was exported: {told}{'; and more' if len(some) > TOLD_MAX else ''}. "
                "Where it is less, is all of it still kept? Nothing of it is published again"
            )

    def _kept(self, works: Sequence[_Work]) -> list[_Work]:
        """Those whose first message is still there, if it is known which that is."""
        if not works:
            return []
        names = ",".join(work.into for work in works)
        options = read_topic_options(TopicReadOptions, {**self._words, "subscribe": names})
        with connect(options.client.metadata_service_uri, options.client) as client:
            oldest = {topic: span.first for topic, span in spans_of(client, options).items()}
        for work in works:
            work.is_trimmed = work.lowest_id is not None and work.lowest_id < oldest[work.into]
        return [work for work in works if not work.is_trimmed]

    def _let_go(self, works: Sequence[_Work]) -> None:
        """Take away the subscriptions that kept the messages, but for one that was asked for."""
        names = [(work.into,) for work in works if work.messages]
        if names and self._options.own.subscriber is None:
            topics = self._spark.createDataFrame(names, "topic STRING").coalesce(1)
            map_in_arrow(topics, task_publishing.letting_go(self._options, self._keeper), "topic STRING").collect()
