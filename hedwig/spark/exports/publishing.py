"""Exported messages published again by tasks: each topic by one task, in order, as one producer. Thread: a task's.

    a task's rows, sorted     topic   seq    value    headers
                              news    501    ...               -> number 501 of the import's producer in `news`
                              news    502    ...
                              sport   1      ...               -> number 1 of the same producer in `sport`

The number of a message is the id that it had where it was exported: whoever publishes it again, after a task, a hub or
the import has died, gives it the same, and the hub stores it once (hedwig.protocol.producers).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, StructField, StructType

from bookkeeper.spark.arrow_map import ArrowMap
from bookkeeper.spark.columns import arrow_schema
from bookkeeper.spark.exports.lines import NotAnExport
from hedwig.client.faces.blocking import BlockingClient
from hedwig.errors import AlreadySubscribed, NotSubscribed
from hedwig.model import Preferences, SubscribeMode, SubscriberId
from hedwig.spark.exports.options import TopicImportOptions
from hedwig.spark.hub_client import hub_client_of
from hedwig.spark.region_options import TopicOptions
from hedwig.spark.topic_publishing import publish_noted
from hedwig.spark.topic_rows import Row, RowsOf

PUBLISHED_SCHEMA = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("messages", LongType(), nullable=False),
        StructField("lowest_id", LongType()),
        StructField("highest_id", LongType()),
    ]
)
"""Ids that the messages have now, as far as hubs said (`topic_publishing.Noted`)."""

ONE = Preferences(window_size=1)
"""Nothing is read by the subscription that keeps the messages."""


def publishing(options: TopicOptions[TopicImportOptions], producer: bytes, keeper: SubscriberId) -> ArrowMap:
    """For `map_in_arrow` on rows topic, seq, value, headers, so sorted: a row of PUBLISHED_SCHEMA for each topic.

    keeper: a subscription that is made in a topic before its first message. When a row is handed over all messages of
    its topic are durable. Raises NotAnExport for a message that is missing, PubSubError.
    """

    def publish(batches: Iterator[Any]) -> Iterator[Any]:
        for topic, pieces in groupby(topic_pieces(batches), key=itemgetter(0)):
            hubs = hub_client_of(options)
            keep(hubs, topic, keeper)
            rows = MessagesOf(topic, (piece for _, piece in pieces))
            noted = publish_noted(hubs, producer, rows.first, rows)
            found = {"topic": topic, "messages": noted.messages, "lowest_id": noted.lowest_id}
            yield pa.RecordBatch.from_pylist(
                [found | {"highest_id": noted.highest_id}], schema=arrow_schema(PUBLISHED_SCHEMA)
            )

    return publish


def keep(hubs: BlockingClient, topic: str, keeper: SubscriberId) -> None:
    """Make the subscription, if there is none. Raises PubSubError."""
    with suppress(AlreadySubscribed):
        hubs.subscribe(topic, keeper, SubscribeMode.CREATE, preferences=ONE, auto_consume=False).close()


def letting_go(options: TopicOptions[TopicImportOptions], keeper: SubscriberId) -> ArrowMap:
    """For `map_in_arrow` on rows topic: take the subscription away from these, where it is; the same rows."""

    def let_go(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for topic in batch.column("topic").to_pylist():
                with suppress(NotSubscribed):
                    hub_client_of(options).unsubscribe(topic, keeper)
            yield batch

    return let_go


def topic_pieces(batches: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Arrow batches, cut where another topic begins. None is empty."""
    for batch in batches:
        at = 0
        for run in pc.run_end_encode(batch.column("topic")).run_ends.to_pylist() if batch.num_rows else ():
            yield batch.column("topic")[at].as_py(), batch.slice(at, run - at)
            at = run


class MessagesOf:
    """The messages of a topic, in pieces, once. first: the number of the first."""

    def __init__(self, topic: str, pieces: Iterator[Any]) -> None:
        self._topic, self._pieces = topic, pieces
        self._piece = next(pieces)
        self.first: int = self._piece.column("seq")[0].as_py()

    def __iter__(self) -> Iterator[list[Row]]:
        """Raises NotAnExport where a number is left out, or there twice."""
        rows_of = RowsOf(self._topic)
        wanted, piece = self.first, self._piece
        while piece is not None:
            found = piece.column("seq").to_pylist()
            odd = next((seq for at, seq in enumerate(found) if seq != wanted + at), None)
            if odd is not None:
                raise NotAnExport(
                    f"topic {self._topic!r}: message {odd} does not follow the one before it; from {self.first} on "
                    "there must be all, and each once"
                )
            wanted += len(found)
            yield list(rows_of(piece))
            piece = next(self._pieces, None)
