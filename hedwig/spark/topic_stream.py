"""Data source `hedwig` as a stream: topics followed as far as their ledgers are confirmed.

One process of the query asks how far the topics are confirmed and plans the micro-batches; tasks read them as those of
a batch read. What a micro-batch holds, and how it is divided, follows from its end alone (`topic_offsets`, and
`stream_offsets` of bookkeeper), so that a query which is restarted from its checkpoint reads the same again, whatever
its options say by then, and a sink may know it again.

With option `subscription` the query has a subscription of its own in each topic, and the hub keeps messages until they
were read (`topic_cursors`). Spark tells of a commit one micro-batch late: the cursor stands behind the last batch but
one until another one begins, also while the query is stopped.

Thread: the process has one for Spark's calls; the clients others.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.spark.ledgers.stream_offsets import (
    Offset,
    check_cluster,
    initial_offset,
    next_offset,
    planned,
    position_of,
)
from bookkeeper.spark.ledgers.unconfirmed import Unconfirmed
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.options.limits import Limits
from bookkeeper.spark.options.stream_limits import default_limit, limits_of
from bookkeeper.spark.process_client import client_of, instance_of
from hedwig.spark.topic_cursors import TopicCursors
from hedwig.spark.topic_extents import Options, begin_of, plan_between, sight_of
from hedwig.spark.topic_offsets import Seen, advance, between, offset_of, read_offset
from hedwig.spark.topic_options import LATEST, Positions
from hedwig.spark.topic_partition import TopicPartition, topic_partitions
from hedwig.spark.topic_sight import TopicSight
from hedwig.spark.topic_slices import read_topic_slices

T = TypeVar("T")


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: Mapping[str, int] | None = None  # of a query that ends with what is there
        self._latest: Offset | None = None
        self._sight: TopicSight | None = None
        self._cursors: TopicCursors | None = None

    # --- positions

    def initialOffset(self) -> Offset:
        """Where a new query begins: option startingOffsets or startingTimestamp, by default the latest."""

        async def begin(client: LedgerClient) -> dict[str, int]:
            sight, own = self._sight_of(client), self._options.own
            seen = await sight.see(own.topics)
            latest = Positions(LATEST, {})
            return {topic: await begin_of(sight, own, kept, latest) for topic, kept in seen.items()}

        found = offset_of(self._ask(begin))
        if self._options.own.subscriber is not None:
            self._cursors_of(self._options).begin(found)
        return initial_offset(found, self._instance)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> Offset:
        """How far the next micro-batch goes; `start` itself where there is nothing new."""
        own = self._options.own
        begin = read_offset(position_of(start), own.topics)
        check_cluster(start, self._instance)
        limits = limits_of(limit, own.per_trigger)
        seen = self._see(begin, sizes=limits.size is not None)
        self._latest = advance(begin, seen, Limits())
        return next_offset(start, advance(begin, seen, limits), own.division, self._instance)

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say."""
        return default_limit(self._options.own.per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: what is acknowledged now. Hubs are asked if the bookies do not know."""
        self._target = None
        self._target = {topic: now.end for topic, now in self._see({}, sizes=False, is_last=True).items()}

    def reportLatestOffset(self) -> Offset | None:
        """How far the topics were confirmed when they were looked at last, for the query's status."""
        return self._latest

    def _see(self, begin: Mapping[str, int], *, sizes: bool, is_last: bool = False) -> dict[str, Seen]:
        """How far the topics are confirmed; of a query that ends, no further than its target.

        is_last: see `TopicSight.see`. Messages behind the ends that may be acknowledged are logged.
        """

        async def look(client: LedgerClient) -> dict[str, Seen]:
            sight = self._sight_of(client)
            found: dict[str, Seen] = {}
            unconfirmed = Unconfirmed()
            for topic, kept in (await sight.see(self._options.own.topics, is_last=is_last)).items():
                unconfirmed.note(kept.unconfirmed)
                await sight.check_reached(kept, begin.get(topic, kept.first))
                position = max(begin.get(topic, kept.first), kept.first)
                mean = await sight.mean_size(kept, position) if sizes else 0.0
                end = kept.end if self._target is None else min(kept.end, self._target[topic])
                found[topic] = Seen(kept.first, end, mean)
            unconfirmed.warn()
            return found

        return self._ask(look)

    def _ask(self, ask: Callable[[LedgerClient], Coroutine[Any, Any, T]]) -> T:
        client = client_of(self._options.client)
        return client.run(lambda ledgers: Deferred.fromCoroutine(ask(ledgers)))

    def _sight_of(self, client: LedgerClient) -> TopicSight:
        """Thread: the client's."""
        if self._sight is None or self._sight.region.client is not client:
            self._sight = sight_of(client, self._options)
        return self._sight

    # --- micro-batches

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Who reads what lies between two positions. Raises UnexpectedCondition for data loss (failOnDataLoss)."""
        topics = self._options.own.topics
        plan = planned(start, end, self._options.own.division)
        wanted = between(read_offset(plan.start, topics), read_offset(plan.end, topics))
        check_cluster(end, self._instance)
        found = topic_partitions(
            plan_between(client_of(self._options.client), self._options, wanted),
            partition_bytes_max=plan.division.partition_bytes_max,
            partitions_min=plan.division.partitions_min,
            offsets=Bounds(),
        )
        return found or [TopicPartition((), {})]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition as Arrow batches."""
        assert isinstance(partition, TopicPartition)
        return read_topic_slices(self._options, partition) if partition.slices else iter(())

    def commit(self, end: Mapping[str, Any]) -> None:
        """The query has done what is before `end`: the cursor of its subscription follows, if it has one.

        Raises TopicBusy where somebody else reads by that subscription; ServiceDown where no hub can be asked in time.
        """
        if self._options.own.subscriber is not None:
            position = read_offset(position_of(end), self._options.own.topics)
            self._cursors_of(self._options).move(
                {topic: position[topic] for topic in self._options.own.topics if topic in position}
            )

    def _cursors_of(self, options: Options) -> TopicCursors:
        if self._cursors is None:
            self._cursors = TopicCursors(options)
        return self._cursors

    def stop(self) -> None:
        """Nothing is held that needs it: connections end with the process."""

    @cached_property
    def _instance(self) -> str:
        """Id of the cluster that is read."""
        return instance_of(client_of(self._options.client))
