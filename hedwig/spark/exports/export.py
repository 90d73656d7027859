"""An export from beginning to end: topics to Parquet, verified, with a manifest.

    1  choose     which topics there are, and of each what is kept and confirmed now: all that follows is about that
    2  copy       tasks read ledgers, straight from bookies, and write files     -> messages/
    3  verify     number, ids and digest of what is in the files
    4  describe   a line for each topic and file                                 -> topics/, files/, manifest/

What is in the files is what counts: digests are made of what is read back from them. Nothing is fenced, and no
subscription moves. Messages that a hub deletes during the export, as consumed or by a limit of age or size, fail it
(data loss): begin behind them (startingOffsets), or keep them by a subscription. An export that fails leaves a
directory without a manifest; take another one for the next.

The export ends with the last message that is known to be acknowledged; see hedwig.spark.topic_sight. Later messages
that may be acknowledged are named in a warning and in the line of their topic.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bookkeeper.client.faces.blocking import connect
from bookkeeper.clock import wall_ms
from bookkeeper.errors import BookKeeperError, ConfigurationError
from bookkeeper.spark.arrow_map import map_in_arrow
from bookkeeper.spark.exports.digests import NOTHING
from bookkeeper.spark.exports.entry_digests import lines_digest
from bookkeeper.spark.exports.manifest import Files, check_directory
from bookkeeper.spark.exports.stored import (
    FILES,
    file_lines,
    files_of,
    lines_of,
    rows_of,
    text_batches,
    write_lines,
    write_manifest_line,
)
from bookkeeper.spark.outputs import OutputState, Stage, check_new
from bookkeeper.spark.pipeline import told_by_spark
from bookkeeper.spark.said_as import LOSS_BORNE, SAID_AS, Words
from hedwig.names import Paths
from hedwig.spark.exports.manifest import (
    RANGE_MESSAGES,
    TOPICS,
    ExportedTopic,
    TopicManifest,
    format_manifest,
    format_topic,
)
from hedwig.spark.exports.message_digests import topic_digests
from hedwig.spark.exports.options import EXPORTED
from hedwig.spark.exports.stored import MESSAGES, PATH, messages_of, topics_of, write_messages
from hedwig.spark.region_options import WHERE, TopicOptions, read_topic_options
from hedwig.spark.registration import register
from hedwig.spark.topic_extents import Span, spans_of
from hedwig.spark.topic_options import TopicReadOptions
from hedwig.spark.topics.naming import topics_chosen

LINES_EACH = 50_000
"""Lines that one file of them has."""

TOLD_MAX = 10
"""Topics named in an error."""

Say = Callable[[str], None]


class TopicExportFailed(BookKeeperError):
    """The export did not come to its end; why is in the text."""


@dataclass(frozen=True, slots=True)
class TopicExport:
    """What was exported. topics: lines as rows topic, first_seq, last_seq, messages, bytes, digest, line."""

    directory: str
    manifest: TopicManifest
    topics: DataFrame


def export_topics(
    spark: SparkSession,
    uri: str,
    *,
    output: str,
    topics: Sequence[str] | None = None,
    prefix: str = "",
    options: Mapping[str, object] | None = None,
    state: OutputState | None = None,
    say: Say = lambda _: None,
) -> TopicExport:
    """Export topics of the region at `uri` to the directory `output`, which must not be there or be empty.

    topics: their names; None: all whose names begin with `prefix`. output: any path that Spark can write to. options:
    of the region and the client, and `options.EXPORTED`, as for a read of the format hedwig. state: moved on as
    `output` is written; for who interrupts this. say: told in a line what begins. The export is there on return: its
    manifest is written last.
    Raises ConfigurationError, InvalidArgument for a topic that there is not or an `output` in which there is anything,
    TopicExportFailed, BookKeeperError.
    """
    given = {"uri": uri, **{name: str(value) for name, value in (options or {}).items()}}
    words = Words.among(given).without(LOSS_BORNE)
    given[SAID_AS] = words.text
    directory = check_directory(output)
    try:
        check_new(spark, directory)
        chosen = topics_chosen(given, topics, prefix)
        read = read_topic_options(TopicReadOptions, {**given, "subscribe": ",".join(chosen)})
        _check_words(given, words)
        register(spark)
        return _Export(spark, directory, given, read, state or OutputState(), say).run()
    except PySparkException as error:
        raise TopicExportFailed(f"{directory}: {told_by_spark(error)}") from error


def _check_words(given: Mapping[str, str], words: Words) -> None:
    other = {"subscribe", "failondataloss", "includeheaders", "subscription", "maxbytespertrigger"}
    other |= {"maxoffsetspertrigger", "maxentriespertrigger"}
    wrong = [words.word(word) or word for word in sorted(given) if word.lower() in other]
    if wrong:
        raise ConfigurationError(
            f"{', '.join(wrong)}: not of an export of topics, which has of the format {WHERE} "
            f"{', '.join(EXPORTED)}, and those of the region and the client"
        )


class _Export:
    def __init__(
        self,
        spark: SparkSession,
        directory: str,
        given: Mapping[str, str],
        options: TopicOptions[TopicReadOptions],
        state: OutputState,
        say: Say,
    ) -> None:
        self._spark, self._directory, self._given = spark, directory, given
        self._options, self._state, self._say = options, state, say

    def run(self) -> TopicExport:
        """Every step."""
        created_ms, export_id = wall_ms(), uuid.uuid4().hex
        own = self._options.own
        self._say(f"looking at {len(own.topics):,} topics")
        with connect(self._options.client.metadata_service_uri, self._options.client) as client:
            spans = spans_of(client, self._options, reader="export")
        count = sum(span.stop - span.first for span in spans.values())
        self._say(f"copying {count:,} messages")
        self._state.stage = Stage.BEGUN
        write_messages(self._messages(spans), self._directory)
        self._say("verifying what is in the files")
        topics = self._describe(spans, messages_of(self._spark, self._directory, any_files=count > 0))
        files = self._list(any_files=count > 0)
        sums = topics.agg(F.count("*").alias("count"), F.sum("messages"), F.sum("bytes")).collect()[0]
        manifest = TopicManifest(
            export_id,
            created_ms,
            Paths(own.zk_prefix, own.region).root,
            RANGE_MESSAGES,
            sums["count"],
            lines_digest(topics.select("line")),
            sums["sum(messages)"],
            sums["sum(bytes)"],
            files,
        )
        self._state.stage = Stage.ENDING
        write_manifest_line(self._spark, self._directory, format_manifest(manifest))
        self._state.stage = Stage.COMPLETE
        return TopicExport(self._directory, manifest, topics)

    def _messages(self, spans: Mapping[str, Span]) -> DataFrame:
        """Exactly those."""
        ranged = {"startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp"}
        words = {word: text for word, text in self._given.items() if word.lower() not in ranged}
        return (
            self._spark.read.format(WHERE)
            .options(
                **words,
                subscribe=",".join(self._options.own.topics),
                startingOffsets=json.dumps({topic: span.first for topic, span in spans.items()}),
                endingOffsets=json.dumps({topic: span.stop for topic, span in spans.items()}),
                includeHeaders=True,
            )
            .load()
        )

    def _describe(self, spans: Mapping[str, Span], messages: DataFrame) -> DataFrame:
        """Write the lines of the topics; those lines as rows. Raises TopicExportFailed where something is missing."""
        rows = [(topic, span.first, span.stop, span.unconfirmed or "") for topic, span in spans.items()]
        wanted = self._spark.createDataFrame(rows, "topic STRING, first LONG, stop LONG, why STRING")
        found = wanted.join(topic_digests(messages), "topic", "left").cache()
        try:
            wrong = found.where(
                "coalesce(messages, 0) <> stop - first OR (messages > 0 AND first_seq <> first) "
                "OR (messages > 0 AND last_seq <> stop - 1)"
            )
            self._refuse(wrong)
            spread = found.repartitionByRange(len(rows) // LINES_EACH + 1, "topic").sortWithinPartitions("topic")
            write_lines(map_in_arrow(spread, _described, "line STRING"), self._directory, TOPICS)
        finally:
            found.unpersist()
        return topics_of(lines_of(self._spark, self._directory, TOPICS))

    def _refuse(self, wrong: DataFrame) -> None:
        some = wrong.orderBy("topic").limit(TOLD_MAX + 1).collect()
        if some:
            told = "; ".join(
                f"topic {row.topic!r}: {row.messages or 0:,} of {row.stop - row.first:,} messages from {row.first} on"
                for row in some[:TOLD_MAX]
            )
            raise TopicExportFailed(
                f"{told}{'; and more' if len(some) > TOLD_MAX else ''}. {self._directory} is no export: it has no "
                "manifest"
            )

    def _list(self, *, any_files: bool) -> Files:
        """Write the lines of the files."""
        if any_files:
            lines = file_lines(self._spark, self._directory, MESSAGES, PATH).orderBy("line")
        else:
            lines = self._spark.createDataFrame([], "line STRING")
        write_lines(lines.coalesce(1), self._directory, FILES)
        written = lines_of(self._spark, self._directory, FILES)
        total = files_of(written).agg(F.count("*").alias("files"), F.sum("bytes").alias("bytes")).collect()[0]
        return Files(total.files, total["bytes"] or 0, lines_digest(written))


def _described(batches: Iterator[Any]) -> Iterator[Any]:
    """For `map_in_arrow`: lines of topics."""
    return text_batches(format_topic(_exported(row)) for row in rows_of(batches))


def _exported(row: Mapping[str, Any]) -> ExportedTopic:
    first, stop = row["first"], row["stop"]
    size, digest = row["bytes"] or 0, row["digest"] or NOTHING
    return ExportedTopic(row["topic"], first, stop - 1, stop - first, size, digest, row["why"])
