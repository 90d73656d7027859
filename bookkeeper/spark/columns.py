"""Entries as Arrow record batches, and the schemas of the rows.

A batch is made of whole columns: the ids are counted by Arrow, the payloads are copied once into one buffer.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from bookkeeper.errors import ConfigurationError

LEDGER_SCHEMA = StructType(
    [
        StructField("ledger_id", LongType(), nullable=False),
        StructField("entry_id", LongType(), nullable=False),
        StructField("value", BinaryType(), nullable=False),
    ]
)
"""Rows of the format bookkeeper."""


@cache
def _ledger_arrow_schema() -> Any:
    return arrow_schema(LEDGER_SCHEMA)


def arrow_schema(schema: StructType) -> Any:
    """The Arrow schema that Spark wants of a source whose rows have `schema`."""
    return to_arrow_schema(schema, timezone="UTC")


def check_schema(given: StructType, ours: StructType, where: str) -> None:
    """Raise ConfigurationError where a user asks a source for rows of another shape."""
    wanted, known = ([(each.name, each.dataType) for each in schema.fields] for schema in (given, ours))
    if wanted != known:
        raise ConfigurationError(
            f"format {where}: its rows are ({ours.simpleString()}), not ({given.simpleString()}); "
            "leave .schema(...) out and select or cast afterwards"
        )


COUNTED_TOGETHER = 8192


@cache
def _numbers() -> Any:
    """0, 1, 2 and so on: what most columns of ids are a part of, moved."""
    return pa.array(range(COUNTED_TOGETHER), pa.int64())


def counted(first: int, count: int) -> Any:
    """A column of `count` consecutive numbers, without a Python object for each."""
    if count > COUNTED_TOGETHER:
        return pa.array(range(first, first + count), pa.int64())
    return pc.add(_numbers().slice(0, count), pa.scalar(first, pa.int64()))


def binary_column(payloads: Sequence[bytes]) -> Any:
    """A column of payloads, copied once: a builder that grows copies twice and more.

    Raises OverflowError for 2 GiB, which is more than such a column holds.
    """
    sizes = list(map(len, payloads))
    if 0 < len(sizes) < COUNTED_TOGETHER and sizes.count(sizes[0]) == len(sizes) and sizes[0] < 1 << 17:
        ends = pc.multiply(_numbers().slice(0, len(sizes) + 1), sizes[0]).cast(pa.int32()).buffers()[1]
    else:
        ends = pa.py_buffer(array("i", accumulate(sizes, initial=0)))
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, ends, pa.py_buffer(b"".join(payloads))])


def ledger_batch(ledger_id: int, first_entry_id: int, payloads: Sequence[bytes]) -> Any:
    """A record batch of consecutive entries of one ledger."""
    count = len(payloads)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(ledger_id, pa.int64()), count),
            counted(first_entry_id, count),
            binary_column(payloads),
        ],
        schema=_ledger_arrow_schema(),
    )
