"""Data source `hedwig`, publishing: the rows of a DataFrame become messages of topics, through the hubs.

    planner     checks the columns; a batch gets the id of its job
    tasks       each publishes the rows of its partition, in their order, as a producer of its own (topic_numbers)
    commit      nothing to do: what a task was answered is durable, and delivered already; abort takes nothing back.
                Of a job with a name it warns of rows that were in the topic before

What is promised

* A stream, whose micro-batches are the same rows in the same partitions and order each time they are planned: each row
  is stored once, whatever became of tasks, workers, hubs, commits and the driver. A replayed row has the same producer
  and number as before, and the hub answers it with the id that it has. Rows of one partition that go to one topic are
  in their order. Sources of this package, of bookkeeper and of Kafka are such, with everything that keeps rows in their
  partitions (select, where, from_json ...). How formats of this package divide a micro-batch is kept in the
  checkpoint with it: minPartitions and maxPartitionBytes may be others when it is replayed.
* Not so what the query itself does to the rows (where, repartition, another select), and what divides them in other
  sources (minPartitions of Kafka): that must stay as it is while a micro-batch may be replayed, which is so when the
  query failed or was killed. A query that is changed then has some rows missing and others twice, and nobody can tell.
  Let it end that micro-batch as it is (trigger availableNow), and change it afterwards.
* Of other sources, that a batch has the same rows is not enough (Spark 4.3): who divides them, and by what?
      files    how many cores there are, spark.sql.files.*: the same only as long as these are
      rate     option numPartitions, which is the number of cores where it is not said
      a shuffle without state (repartition by columns, a join with a table)
               what is set when the query is started (spark.sql.shuffle.partitions), and adaptive execution by sizes
               and cores: nothing of it is in the checkpoint. The latter is kept out by the setting
               spark.sql.adaptive.streaming.stateless.enabled=false
      a shuffle with state (an aggregation, dropDuplicates, a join of streams)
               the checkpoint keeps the number; the order in a partition may differ: give rowOrder=content
  rowOrder=content numbers the rows of a task by their content; without it a row that takes another one's place counts
  as a repeat of it, and is missing. What makes any source that gives the same rows one that is published once, whatever
  is set and however many cores there are: a number of partitions and columns that say which, and that order:
      frame.repartition(8, "value").writeStream.format("hedwig").option("rowOrder", "content")
  repartition(8) alone does not: it deals rows out in the order in which they come.
* What differs in itself (now(), rand(), a source that does not replay) cannot be known again. Nor what a source leaves
  out because it is gone (failOnDataLoss=false): if it goes between two attempts of a task, or before a micro-batch is
  replayed, the rows behind it take its numbers, and as many of them as were published before are missing, besides what
  the source warns of. Each row once needs failOnDataLoss=true at the source, which is the default.
* A batch: each row at least once if the job succeeds; a task that is tried again repeats nothing, under the same
  conditions. A job that is run again publishes all rows again, but for one with a name (option job): that one repeats
  nothing either, as long as the hub remembers its producers.
* A job with a name in foreachBatch of a stream: as a stream. The name may be the same in all micro-batches: they are
  told apart, and a replayed one is known again. Within one, each write needs a name of its own. It must be written on
  the thread on which Spark calls the function, or by a function that was wrapped there with
  pyspark.inheritable_thread_target(session): another thread (of an executor, say) does not carry which query and batch
  it works for, so each micro-batch counts as the same job that is run again, and rows of later ones are missing. Nobody
  can tell that from a job that is run again; so either is warned of where rows were in the topic before the job began.
  That is looked at where option topic names it and hubs are found by the region (no option hubs). (Spark 4.3 does not
  find formats of Python on a thread without an active session, so that the write fails. createDataFrame makes one
  active.)

The hub remembers 1,000 producers of a topic, those that published last: a task that is replayed after so many others
have published since is not known again. Every partition of a stream or job is one, so use no more of them than needed.
A hub of Apache's knows no producers, and stores again what it is sent again: each row at least once, then.
Subscribers see messages as they are published: a micro-batch becomes visible row by row, before Spark commits it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import BookKeeperError, ConfigurationError, InvalidArgument
from bookkeeper.spark.process_client import client_of
from hedwig.spark.hub_client import hub_client_of
from hedwig.spark.region_access import region_of
from hedwig.spark.region_options import TopicOptions, read_topic_options
from hedwig.spark.topic_numbers import (
    ROWS_MAX,
    batch_producer,
    first_number,
    named_producer,
    named_stream_producer,
    stream_producer,
)
from hedwig.spark.topic_options import OF_READING, RowOrder, TopicWriteOptions, topic_of
from hedwig.spark.topic_publishing import publish_noted
from hedwig.spark.topic_rows import Row, RowsOf, check_columns

log = Logger()

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"

SinkOptions = TopicOptions[TopicWriteOptions]


@dataclass
class Published(WriterCommitMessage):
    """What one task has published. repeated: of them, rows that were in the topic before the job began."""

    count: int
    repeated: int = 0


class TopicWriter(DataSourceArrowWriter):
    """A batch. Made once for a job, and pickled to its tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError('format hedwig: a topic cannot be overwritten; write with .mode("append")')
        self._options = _sink_options(options, schema)
        self._job = uuid.uuid4().hex
        self._newest_id = _newest_id(self._options)

    def write(self, iterator: Iterator[Any]) -> Published:
        """Publish a partition's rows; all are durable on return. Raises PubSubError, InvalidArgument."""
        task, name = _task(), self._options.own.job
        partition = task.partitionId()
        if not name:
            return _publish(self._options, iterator, batch_producer(self._job, partition), 1)
        query_id, batch_id = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query_id is None or batch_id is None:
            return _publish(self._options, iterator, named_producer(name, partition), 1, newest_id=self._newest_id)
        # In foreachBatch: another micro-batch under the same name has other rows, a replayed one the same.
        producer = named_stream_producer(name, query_id, partition)
        return _publish(self._options, iterator, producer, first_number(int(batch_id)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do; rows that were there before are warned of."""
        _warn_of_repeated(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was published stays."""
        _warn_of_aborted(messages)


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch of a stream."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = _sink_options(options, schema)
        if self._options.own.job:
            raise ConfigurationError("job belongs to a batch write; leave it out of a stream, which has its checkpoint")

    def write(self, iterator: Iterator[Any]) -> Published:
        """See TopicWriter."""
        task = _task()
        query_id, batch_id = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query_id is None or batch_id is None:
            raise InvalidArgument(f"the task does not say which query and batch it is of ({QUERY_ID}, {BATCH_ID})")
        producer = stream_producer(query_id, task.partitionId())
        return _publish(self._options, iterator, producer, first_number(int(batch_id)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to do, however often."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was published stays, and is known again when the batch is replayed."""


def _sink_options(options: Mapping[str, str], schema: StructType) -> SinkOptions:
    found = read_topic_options(TopicWriteOptions, options, needs_uri=False, elsewhere=OF_READING)
    check_columns(schema, found.own.topic)
    return found


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None
    return task


def _newest_id(options: SinkOptions) -> int:
    """Of the topic now; 0 where it is not known, or nobody needs it. Only for a warning, so it fails nothing."""
    own = options.own
    if not own.job or own.topic is None or options.names_hubs:
        return 0
    topic = topic_of(own.topic)
    try:
        return client_of(options.client).run(
            lambda ledgers: Deferred.fromCoroutine(region_of(ledgers, options).last_id(topic))
        )
    except BookKeeperError as error:
        log.info("The end of topic {topic!r} is not known: {error}", topic=own.topic, error=error)
        return 0


def _publish(
    options: SinkOptions, batches: Iterator[Any], producer: bytes, first: int, *, newest_id: int = 0
) -> Published:
    rows_of = RowsOf(options.own.topic)
    rows: Iterator[Sequence[Row]] = (found for batch in batches if (found := list(rows_of(batch))))
    if options.own.row_order is RowOrder.CONTENT:
        rows = _by_content(rows, options.own.sort_bytes_max)
    rows = _bounded(rows)
    some = next(rows, None)
    if some is None:
        return Published(0)  # nothing to connect for
    keep_ms = options.own.keep_ms
    noted = publish_noted(
        hub_client_of(options),
        producer,
        first,
        _and_then(some, rows),
        newest_id=newest_id,
        keep_s=None if keep_ms is None else keep_ms / 1000,
    )
    return Published(noted.messages, noted.repeated)


def _bounded(batches: Iterable[Sequence[Row]]) -> Iterator[Sequence[Row]]:
    """What is beyond would have numbers of the next micro-batch."""
    count = 0
    for rows in batches:
        count += len(rows)
        if count > ROWS_MAX:
            raise InvalidArgument(f"a task has more than {ROWS_MAX} rows: let more tasks share them (repartition)")
        yield rows


def _and_then(first: Sequence[Row], rest: Iterable[Sequence[Row]]) -> Iterator[Sequence[Row]]:
    yield first
    yield from rest


def _by_content(batches: Iterable[Sequence[Row]], size_max: int) -> Iterator[Sequence[Row]]:
    rows: list[Row] = []
    size = 0
    for batch in batches:
        rows += batch
        size += sum(row.cost for row in batch)
        if size > size_max:
            raise InvalidArgument(
                f"rowOrder=content: the rows of one task take more than maxSortBytes={size_max} bytes; let more tasks "
                "share them (repartition), or raise it"
            )
    rows.sort(key=lambda row: row.order)
    if rows:
        yield rows


def _warn_of_repeated(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    published = [each for each in messages if isinstance(each, Published)]
    repeated = sum(each.repeated for each in published)
    if repeated:
        client_of(options.client)  # in this process: it shows warnings
        log.warn(
            "{repeated} of {count} rows count as rows that topic {topic!r} had before, and are not stored again: job "
            "{job!r} has run before. If it has not, but is written in foreachBatch on a thread of your own, they are "
            "lost: write on the thread of foreachBatch, or wrap the function there with "
            "pyspark.inheritable_thread_target(session)",
            repeated=repeated,
            count=sum(each.count for each in published),
            topic=options.own.topic,
            job=options.own.job,
        )


def _warn_of_aborted(messages: Sequence[WriterCommitMessage | None]) -> None:
    count = sum(each.count for each in messages if isinstance(each, Published))
    log.warn("The job failed; {count} rows of tasks that had ended are published, and stay", count=count)
