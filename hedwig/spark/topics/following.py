"""One query over topics, from its start to its end.

    each micro-batch    messages -> windows (Spark keeps what is open) -> lags, sizes asked -> every sink -> committed

A query that is started again with its checkpoint goes on behind the last batch that was committed; the one that was
under way is made again, with the same messages, windows and number. Without a checkpoint it begins anew each time.

Topics are those that were chosen at the start. One that is named, or found, since is read from its oldest message on
when the query is started again; what of it is older than the windows that were told counts as late.

State: open windows only. Thread: any one; Spark calls the sinks on another.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bookkeeper.clock import wall_ms
from bookkeeper.errors import BookKeeperError, ConfigurationError
from bookkeeper.spark.pipeline import told_by_spark
from hedwig.spark.region_options import WHERE, read_topic_options
from hedwig.spark.registration import register
from hedwig.spark.topic_options import TopicReadOptions
from hedwig.spark.topics.kept_line import read_line, write_line
from hedwig.spark.topics.measures import lags, sizes
from hedwig.spark.topics.naming import topics_chosen
from hedwig.spark.topics.question import Emit, Totals, Windows, format_question, query_of
from hedwig.spark.topics.sinks import LAGS, SIZES, WINDOWS, Sink
from hedwig.spark.topics.windows import of_batch, windowed

QUESTION = "topics-question"
"""Directory in a checkpoint."""

LOOK_S = 2.0
"""How often what Spark remembers of the newest micro-batches is looked at."""

STATE_PARTITIONS = 4
"""Tasks of the aggregate: open windows are few. A checkpoint keeps the number that it was made with."""

_SHUFFLE = "spark.sql.shuffle.partitions"
_MODES = {Emit.FINAL: "append", Emit.CHANGED: "update"}


class FollowFailed(BookKeeperError):
    """The query ended by an error; why is in the text. With its checkpoint it goes on where it was."""


def follow_topics(
    spark: SparkSession,
    uri: str,
    sinks: Sequence[Sink],
    *,
    topics: Sequence[str] | None = None,
    prefix: str = "",
    windows: Windows | None = None,
    checkpoint: str | None = None,
    once: bool = False,
    every_s: float = 10.0,
    options: Mapping[str, object] | None = None,
) -> Following:
    """Start a query over topics of the region at `uri`; it runs until it is stopped, with `once` until all is read.

    topics: their names; None: all whose names begin with `prefix`. checkpoint: a directory that Spark can write to.
    every_s: how often a micro-batch begins, where there is something new. options: of the format hedwig, as for a
    stream; startingOffsets is earliest where nothing is said.
    Raises ConfigurationError, InvalidArgument for a topic that there is not, BookKeeperError.
    """
    given = {"uri": uri, **{name: str(value) for name, value in (options or {}).items()}}
    asked = windows or Windows()
    if not sinks:
        raise ConfigurationError("a query over topics needs a sink at least")
    chosen = topics_chosen(given, topics, prefix)
    read_topic_options(TopicReadOptions, {**given, "subscribe": ",".join(chosen)}).own.check_use(stream=True)
    register(spark)
    query_id = _query_id(spark, asked, checkpoint)
    words = {name.lower() for name in given}
    if not words & {"startingoffsets", "startingtimestamp"}:
        given["startingOffsets"] = "earliest"
    messages = spark.readStream.format(WHERE).options(**given, subscribe=",".join(chosen)).load()
    batches = _Batches(spark, given, chosen, sinks, query_id)
    writer = windowed(messages, asked).writeStream.outputMode(_MODES[asked.emit]).foreachBatch(batches.take)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{every_s} seconds"}
    with _shuffled(spark, STATE_PARTITIONS):
        return Following(writer.trigger(**trigger).start(), chosen)


@contextlib.contextmanager
def _shuffled(spark: SparkSession, partitions: int) -> Iterator[None]:
    """What is started meanwhile has so many partitions behind a shuffle: a query takes the settings of its start."""
    before = str(spark.conf.get(_SHUFFLE))
    spark.conf.set(_SHUFFLE, str(partitions))
    try:
        yield
    finally:
        spark.conf.set(_SHUFFLE, before)


def _query_id(spark: SparkSession, windows: Windows, checkpoint: str | None) -> str:
    """Of the query that the checkpoint belongs to; a new one is noted in it. Raises ConfigurationError."""
    if checkpoint is None:
        return uuid.uuid4().hex
    path = f"{checkpoint.rstrip('/')}/{QUESTION}"
    line = read_line(spark, path)
    if line is not None:
        return query_of(line, windows, checkpoint)
    if read_line(spark, f"{checkpoint.rstrip('/')}/metadata") is not None:
        raise ConfigurationError(f"checkpoint {checkpoint} belongs to another query: use another checkpoint")
    query_id = uuid.uuid4().hex
    write_line(spark, path, format_question(windows, query_id))
    return query_id


class _Batches:
    """What is done with each micro-batch."""

    def __init__(
        self, spark: SparkSession, given: Mapping[str, str], topics: Sequence[str], sinks: Sequence[Sink], query_id: str
    ) -> None:
        self._spark, self._given, self._topics = spark, given, topics
        self._sinks, self._query_id = sinks, query_id

    def take(self, found: DataFrame, batch_id: int) -> None:
        """All rows of a batch to all sinks."""
        at_ms = wall_ms()
        self._hand_over(WINDOWS, batch_id, of_batch(found, batch_id, "window_start"))
        self._hand_over(LAGS, batch_id, self._measured(lags, batch_id, at_ms))
        self._hand_over(SIZES, batch_id, self._measured(sizes, batch_id, at_ms))

    def _measured(self, measure: Callable[..., DataFrame], batch_id: int, at_ms: int) -> DataFrame:
        return of_batch(measure(self._spark, self._given, self._topics, at_ms), batch_id, "at")

    def _hand_over(self, kind: str, batch_id: int, rows: DataFrame) -> None:
        """The same rows to each: asked again they might be others."""
        kept = rows.cache()
        try:
            for sink in self._sinks:
                sink.take(kind, self._query_id, batch_id, kept)
        finally:
            kept.unpersist()


class Following:
    """A query that runs. topics: those that it reads."""

    def __init__(self, query: Any, topics: Sequence[str]) -> None:
        self._query, self.topics, self.totals = query, tuple(topics), Totals()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until it has ended, or for so long; whether it has ended. Raises FollowFailed."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = LOOK_S if deadline is None else min(LOOK_S, deadline - time.monotonic())
            try:
                ended = bool(self._query.awaitTermination(max(left, 0.001)))
            except PySparkException as error:
                raise FollowFailed(f"the query over {_named(self.topics)} ended: {told_by_spark(error)}") from error
            self.totals.note(self._query.recentProgress)
            if ended or (deadline is not None and time.monotonic() >= deadline):
                return ended

    def stop(self) -> None:
        """End it, and wait until it has; the batch that is under way is made again at the next start."""
        self._query.stop()
        self.totals.note(self._query.recentProgress)


def _named(topics: Sequence[str]) -> str:
    return ", ".join(topics[:3]) + (f" and {len(topics) - 3} more" if len(topics) > 3 else "")
