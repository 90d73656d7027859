"""Data source `hedwig`: the messages of topics as rows, read from the bookies in parallel; and rows, published.

    planner (one process)     which ledgers the topics have, how far they are confirmed -> partitions
    tasks (one each)          open the ledgers of their slices without fencing, read ahead, hand over Arrow batches

What a query reads is fixed when it is planned. A hub is asked only for a topic's end, if the bookies do not know it;
see hedwig.spark.topic_sight. As a stream: hedwig.spark.topic_stream. Publishing: hedwig.spark.topic_sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from bookkeeper.spark.columns import check_schema
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.options.filters import push
from bookkeeper.spark.process_client import client_of
from hedwig.spark.region_options import WHERE, read_topic_options
from hedwig.spark.topic_columns import topic_schema
from hedwig.spark.topic_extents import Options, plan_topics
from hedwig.spark.topic_options import OF_WRITING, TopicReadOptions
from hedwig.spark.topic_partition import TopicPartition, topic_partitions
from hedwig.spark.topic_sink import TopicStreamWriter, TopicWriter
from hedwig.spark.topic_slices import read_topic_slices
from hedwig.spark.topic_stream import TopicStreamReader


class TopicSource(DataSource):
    """The format for a session that does not push filters to Python data sources."""

    @classmethod
    def name(cls) -> str:
        """The word for `format(...)`."""
        return WHERE

    def schema(self) -> StructType:
        """Of every read. Raises ConfigurationError for its options: as early as `load()`."""
        return topic_schema(headers=_read(self.options).own.headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read. Raises ConfigurationError."""
        return TopicReader(self._read_options(schema, stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream. Raises ConfigurationError."""
        return TopicStreamReader(self._read_options(schema, stream=True))

    def _read_options(self, schema: StructType, *, stream: bool) -> Options:
        found = _read(self.options)
        check_schema(schema, topic_schema(headers=found.own.headers), WHERE)
        found.own.check_use(stream=stream)
        return found

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Publish a DataFrame. Raises ConfigurationError."""
        return TopicWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Publish a stream. Raises ConfigurationError."""
        return TopicStreamWriter(self.options, schema)


def _read(options: Mapping[str, str]) -> Options:
    return read_topic_options(TopicReadOptions, options, elsewhere=OF_WRITING)


class PushdownTopicSource(TopicSource):
    """The format for a session that pushes filters (spark.sql.python.filterPushdown.enabled)."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read that obeys filters on offsets. Raises ConfigurationError."""
        return PushdownTopicReader(self._read_options(schema, stream=False))


class TopicReader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._offsets = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read; raises as `plan_topics`."""
        own = self._options.own
        planned = plan_topics(client_of(self._options.client), self._options, self._offsets)
        found = topic_partitions(
            planned,
            partition_bytes_max=own.partition_bytes_max,
            partitions_min=own.partitions_min,
            offsets=self._offsets,
        )
        return found or [TopicPartition((), {})]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition as Arrow batches."""
        assert isinstance(partition, TopicPartition)
        return read_topic_slices(self._options, partition) if partition.slices else iter(())


class PushdownTopicReader(TopicReader):
    """The same with filters on offset."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Obey what is asked of the offset; the rest stays Spark's."""
        pushed = push(filters, ("offset",))
        self._offsets = pushed.bounds["offset"]
        return pushed.left
