"""Stored messages as Arrow record batches: Kafka's columns, and where a message lies.

key binary        the header property `key`, null where there is none
value binary      the body
topic string, partition int (0), offset bigint (the message's id)
timestamp         when it was published, null where it does not say
ledger_id, entry_id bigint
headers           with includeHeaders: all header properties, as Kafka's array of key and value
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.spark.columns import arrow_schema
from hedwig.errors import UnexpectedCondition
from hedwig.model import KEY_PROPERTY
from hedwig.protocol.publish_time import time_of
from hedwig.wire.view import MessageView

_FIELDS = [
    StructField("key", BinaryType(), nullable=True),
    StructField("value", BinaryType(), nullable=False),
    StructField("topic", StringType(), nullable=False),
    StructField("partition", IntegerType(), nullable=False),
    StructField("offset", LongType(), nullable=False),
    StructField("timestamp", TimestampType(), nullable=True),
    StructField("ledger_id", LongType(), nullable=False),
    StructField("entry_id", LongType(), nullable=False),
]

HEADERS = ArrayType(
    StructType([StructField("key", StringType(), nullable=False), StructField("value", BinaryType(), nullable=False)]),
    containsNull=False,
)

LAST_MS = 253_402_300_799_999
"""The year 9999 ends: later ones are no times that Spark can show."""


@cache
def topic_schema(*, headers: bool) -> StructType:
    """Rows of the format hedwig."""
    return StructType([*_FIELDS, *([StructField("headers", HEADERS, nullable=False)] if headers else [])])


@cache
def _topic_arrow_schema(*, headers: bool) -> Any:
    return arrow_schema(topic_schema(headers=headers))


def topic_batch(
    topic: str, ledger_id: int, base: int, first_entry_id: int, payloads: Sequence[bytes], *, headers: bool
) -> Any:
    """A record batch of consecutive entries of one ledger, whose entry 0 is message `base` of the topic.

    Raises UnexpectedCondition where an entry is not the message that it is to be.
    """
    views = [MessageView(bytes(payload)) for payload in payloads]
    try:
        found_id = views[0].id
        properties = [view.properties for view in views]
        bodies = [view.body for view in views]
    except RemoteProtocolError as error:
        raise UnexpectedCondition(
            f"ledger {ledger_id} of topic {topic!r}: one of the entries from {first_entry_id} on is no message: {error}"
        ) from error
    first = base + first_entry_id
    if found_id is not None and found_id.local != first:
        raise UnexpectedCondition(
            f"ledger {ledger_id} of topic {topic!r}: entry {first_entry_id} is message {found_id.local}, and the "
            f"topic's list of ledgers says {first}"
        )
    count, schema = len(views), _topic_arrow_schema(headers=headers)
    columns = [
        pa.array([each.get(KEY_PROPERTY) for each in properties], pa.binary()),
        pa.array(bodies, pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(0, pa.int32()), count),
        pa.array(range(first, first + count), pa.int64()),
        pa.array([_microseconds(time_of(each)) for each in properties], pa.timestamp("us", tz="UTC")),
        pa.repeat(pa.scalar(ledger_id, pa.int64()), count),
        pa.array(range(first_entry_id, first_entry_id + count), pa.int64()),
    ]
    if headers:
        columns.append(_headers(properties, schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _microseconds(time_ms: int | None) -> int | None:
    return None if time_ms is None or time_ms > LAST_MS else time_ms * 1000


def _headers(properties: Sequence[Mapping[str, bytes]], kind: Any) -> Any:
    offsets, at = [0], 0
    for each in properties:
        at += len(each)
        offsets.append(at)
    entry = kind.value_type
    pairs = pa.StructArray.from_arrays(
        [
            pa.array([name for each in properties for name in each], entry.field(0).type),
            pa.array([value for each in properties for value in each.values()], entry.field(1).type),
        ],
        fields=[entry.field(0), entry.field(1)],
    )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=kind)
