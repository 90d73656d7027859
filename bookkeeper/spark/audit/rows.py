"""What an audit finds, as rows of Spark.

    column            of a finding                                       of a chunk (kind `chunk`)
    ledger_id
    kind              divergent, bad, missing, unknown, lost;            chunk
                      length, no_data, orphan of whole ledgers
    first_entry_id    first and last entry that it is about              first and last entry
    last_entry_id     -1 where there is none
    bookie            whose copies; null where it is about no single one null
    good_copies       of each of the entries                             null
    detail            why, where that is known                           null
    entries           that it is about; null where that is not known     entries
    copies            null                                               copies that they should have
    bytes             null; bytes of an orphan where they are known      payload of its entries; null where one has no
                                                                         good copy

Each chunk has a row, whether something was found or not: what has none was not audited. Ledgers that are deleted
meanwhile have none. A ledger of which nobody can say how far it reaches has one finding, `unknown`, and no chunk.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from bookkeeper.spark.audit.evidence import CHUNK_ENTRIES
from bookkeeper.spark.audit.judgement import DETAIL_MAX, ChunkVerdict, FindingKind
from bookkeeper.spark.columns import arrow_schema

CHUNK = "chunk"
"""The kind of a row that says that a chunk was audited."""

AUDIT_SCHEMA = StructType(
    [
        StructField("ledger_id", LongType(), nullable=False),
        StructField("kind", StringType(), nullable=False),
        StructField("first_entry_id", LongType(), nullable=False),
        StructField("last_entry_id", LongType(), nullable=False),
        StructField("bookie", StringType()),
        StructField("good_copies", IntegerType()),
        StructField("detail", StringType()),
        StructField("entries", LongType()),
        StructField("copies", LongType()),
        StructField("bytes", LongType()),
    ]
)


@cache
def _arrow_schema() -> Any:
    return arrow_schema(AUDIT_SCHEMA)


def batch_of(rows: list[dict[str, object]]) -> Any:
    """An Arrow batch."""
    return pa.RecordBatch.from_pylist(rows, schema=_arrow_schema())


def unknown_row(ledger_id: int, why: str) -> dict[str, object]:
    """The finding of a ledger of which nobody can say what there should be of it."""
    return {
        "ledger_id": ledger_id,
        "kind": FindingKind.UNKNOWN.value,
        "first_entry_id": 0,
        "last_entry_id": -1,
        "detail": why[:DETAIL_MAX],
    }


def chunk_rows(ledger_id: int, chunk: int, end: int, verdict: ChunkVerdict) -> list[dict[str, object]]:
    """The findings in a chunk, and that it was audited."""
    rows: list[dict[str, object]] = [
        {
            "ledger_id": ledger_id,
            "kind": each.kind.value,
            "first_entry_id": each.first_entry_id,
            "last_entry_id": each.last_entry_id,
            "bookie": each.bookie or None,
            "good_copies": each.good_copies,
            "detail": each.detail or None,
            "entries": each.entries,
        }
        for each in verdict.findings
    ]
    first = chunk * CHUNK_ENTRIES
    rows.append(
        {
            "ledger_id": ledger_id,
            "kind": CHUNK,
            "first_entry_id": first,
            "last_entry_id": min(end, first + CHUNK_ENTRIES - 1),
            "entries": verdict.entry_count,
            "copies": verdict.copy_count,
            "bytes": verdict.size,
        }
    )
    return rows
