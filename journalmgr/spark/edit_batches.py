"""Transactions as Arrow record batches, and the schemas of the rows.

Each operation's bucket becomes a table of whole columns, the columns that it lacks are nulls; the tables are put
together, and the rows into the order of the journal in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from bookkeeper.spark.columns import arrow_schema
from journalmgr.spark.edit_columns import (
    BINARY,
    BLOCKS,
    BOOLEAN,
    COLUMNS,
    INT,
    LONG,
    PLACE_COLUMNS,
    RAW_COLUMNS,
    STRING,
    STRINGS,
    TIME,
    Bucket,
    Column,
)

BLOCK = StructType([StructField(name, LongType(), nullable=False) for name in ("id", "num_bytes", "generation_stamp")])
_TYPES: dict[str, DataType] = {
    LONG: LongType(),
    INT: IntegerType(),
    STRING: StringType(),
    BOOLEAN: BooleanType(),
    BINARY: BinaryType(),
    TIME: TimestampType(),
    STRINGS: ArrayType(StringType(), containsNull=False),
    BLOCKS: ArrayType(BLOCK, containsNull=False),
}


def _schema(columns: Sequence[Column]) -> StructType:
    return StructType([StructField(each.name, _TYPES[each.type], nullable=not each.always) for each in columns])


EDITS_SCHEMA = _schema((*COLUMNS, *PLACE_COLUMNS))
"""Rows whose operations are taken apart."""

RAW_SCHEMA = _schema((*RAW_COLUMNS, *PLACE_COLUMNS))
"""Rows of whole records."""


@cache
def _arrow(*, raw: bool) -> Any:
    return arrow_schema(RAW_SCHEMA if raw else EDITS_SCHEMA)


class Place:
    """Of the rows of one batch: the segment, and each row's txid and entry."""

    __slots__ = ("entry_ids", "layout_version", "ledger_id", "segment_first_txid", "txids")

    def __init__(self, ledger_id: int, segment_first_txid: int, layout_version: int) -> None:
        self.ledger_id, self.segment_first_txid, self.layout_version = ledger_id, segment_first_txid, layout_version
        self.txids: list[int] = []
        self.entry_ids: list[int] = []

    def columns(self) -> dict[str, Any]:
        """The columns that every form has."""
        count = len(self.txids)
        return {
            "txid": pa.array(self.txids, pa.int64()),
            "ledger_id": pa.repeat(pa.scalar(self.ledger_id, pa.int64()), count),
            "entry_id": pa.array(self.entry_ids, pa.int64()),
            "segment_first_txid": pa.repeat(pa.scalar(self.segment_first_txid, pa.int64()), count),
            "layout_version": pa.repeat(pa.scalar(self.layout_version, pa.int32()), count),
        }


def raw_batch(place: Place, opcodes: Sequence[int], records: Sequence[bytes]) -> Any:
    """A record batch of whole records."""
    schema = _arrow(raw=True)
    columns = {
        **place.columns(),
        "opcode": pa.array(opcodes, pa.int32()),
        "record": pa.array(records, pa.binary()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def edits_batch(place: Place, buckets: Sequence[Bucket]) -> Any:
    """A record batch of operations in the order of the journal. buckets: of all rows of `place`; at least one."""
    schema = _arrow(raw=False)
    columns: dict[str, Any] = place.columns()
    own = [field for field in schema if field.name not in columns]
    parts = [[_column(bucket, field) for field in own] for bucket in buckets]
    if len(parts) == 1:
        columns.update((field.name, column) for field, column in zip(own, parts[0], strict=True))
    else:
        order = pa.array(_places_of(buckets), pa.int64())
        for at, field in enumerate(own):
            pieces = [part[at] for part in parts]
            if all(piece.null_count == len(piece) for piece in pieces):
                columns[field.name] = pa.nulls(len(place.txids), field.type)
            else:
                columns[field.name] = pa.concat_arrays(pieces).take(order)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _places_of(buckets: Sequence[Bucket]) -> list[int]:
    """For each row where it is when the buckets are put one behind the other."""
    places = [0] * sum(len(bucket.rows) for bucket in buckets)
    at = 0
    for bucket in buckets:
        for row in bucket.rows:
            places[row] = at
            at += 1
    return places


def _column(bucket: Bucket, field: Any) -> Any:
    count = len(bucket.rows)
    if field.name == "op":
        return pa.repeat(pa.scalar(bucket.op, field.type), count)
    if field.name == "opcode":
        return pa.repeat(pa.scalar(bucket.opcode, field.type), count)
    values = bucket.columns.get(field.name)
    if values is None:
        return pa.nulls(count, field.type)
    if field.name == "blocks":
        return blocks_column(values, field.type)
    return pa.array(values, field.type)


def blocks_column(values: Sequence[Any], kind: Any) -> Any:
    """A column of lists of blocks. kind: its Arrow type."""
    offsets, end = [0], 0
    for blocks in values:
        end += len(blocks)
        offsets.append(end)
    flat = list(chain.from_iterable(values))
    by_field = list(zip(*flat, strict=True)) if flat else [(), (), ()]
    children = [pa.array(column, pa.int64()) for column in by_field]
    structs = pa.StructArray.from_arrays(children, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs, type=kind)
