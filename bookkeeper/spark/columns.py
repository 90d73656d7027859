"""Entries as Arrow record batches, and the schemas of the rows.

A batch is made of whole columns: the ids are counted, the payloads are copied once into one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa
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


def ledger_batch(ledger_id: int, first_entry_id: int, payloads: Sequence[bytes]) -> Any:
    """A record batch of consecutive entries of one ledger."""
    count = len(payloads)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(ledger_id, pa.int64()), count),
            pa.array(range(first_entry_id, first_entry_id + count), pa.int64()),
            pa.array(payloads, pa.binary()),
        ],
        schema=_ledger_arrow_schema(),
    )
