"""Data source `bookkeeper.audit`: what an audit finds, as rows; each copy of each entry is read through its bookie.

    column            of a finding                                       of a chunk (kind `chunk`)
    ledger_id
    kind              divergent, bad, missing, unknown, lost             chunk
    first_entry_id    first and last entry that it is about              first and last entry
    last_entry_id
    bookie            whose copies; null where it is about no single one null
    good_copies       of each of the entries                             null
    detail            why, where that is known                           null
    entries, copies   null                                               entries, and copies they should have
    bytes             null                                               payload of its entries; null where one has no
                                                                         good copy

Each chunk has a row, whether something was found or not: what has none was not audited. Ledgers that are deleted
meanwhile have none. Nothing is fenced or changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from twisted.internet.defer import Deferred

from bookkeeper.errors import NoSuchLedger
from bookkeeper.pace import Pace
from bookkeeper.spark.audit.chunk_audit import audit_chunk
from bookkeeper.spark.audit.evidence import CHUNK_ENTRIES, chunk_of
from bookkeeper.spark.audit.judgement import ChunkVerdict
from bookkeeper.spark.audit.options import WHERE, AuditOptions
from bookkeeper.spark.bounds import Bounds
from bookkeeper.spark.columns import arrow_schema, check_schema
from bookkeeper.spark.ledger_extents import plan_extents
from bookkeeper.spark.ledger_options import LedgerReadOptions
from bookkeeper.spark.options import SourceOptions, read_options
from bookkeeper.spark.planning import Extent, Slice, partitions_of
from bookkeeper.spark.process_client import client_of

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


@dataclass
class AuditPartition(InputPartition):
    """chunks: slices in numbers of chunks, not of entries. ends: the last entry of each of the ledgers."""

    chunks: Sequence[Slice]
    ends: Mapping[int, int]


class AuditSource(DataSource):
    """The format."""

    @classmethod
    def name(cls) -> str:
        """The word for `format(...)`."""
        return WHERE

    def schema(self) -> StructType:
        """Of every read. Raises ConfigurationError for its options."""
        read_options(AuditOptions, self.options, where=WHERE)
        return AUDIT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """An audit. Raises ConfigurationError."""
        check_schema(schema, AUDIT_SCHEMA, WHERE)
        return AuditReader(read_options(AuditOptions, self.options, where=WHERE))


class AuditReader(DataSourceReader):
    """One audit."""

    def __init__(self, options: SourceOptions[AuditOptions]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Who audits what, by the bytes of all copies. Raises NoSuchLedger for one that was named by itself."""
        own = self._options.own
        chosen = LedgerReadOptions(ledgers=own.ledgers, as_administrator=True)
        extents = plan_extents(client_of(self._options.client), chosen, Bounds(), Bounds())
        chunks = [
            Extent(each.ledger_id, chunk_of(each.first_entry_id), chunk_of(each.last_entry_id), each.size * each.copies)
            for each in extents
        ]
        ends = {each.ledger_id: each.last_entry_id for each in extents}
        found = partitions_of(chunks, partition_bytes_max=own.partition_bytes_max, partitions_min=own.partitions_min)
        return [AuditPartition(part, {each.ledger_id: ends[each.ledger_id] for each in part}) for part in found] or [
            AuditPartition((), {})
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition, a batch for each chunk."""
        assert isinstance(partition, AuditPartition)
        if not partition.chunks:
            return
        client, pace = client_of(self._options.client), Pace(self._options.own.bytes_per_s)
        for piece in partition.chunks:
            end = partition.ends[piece.ledger_id]
            for chunk in range(piece.first_entry_id, piece.last_entry_id + 1):
                try:
                    verdict, size = client.run(_auditing(piece.ledger_id, end, chunk))
                except NoSuchLedger:
                    break  # deleted since: nothing of it is to be kept any more
                yield _rows(piece.ledger_id, chunk, end, verdict)
                delay_s = pace.delay_s(size, time.monotonic())
                if delay_s:
                    time.sleep(delay_s)


def _auditing(ledger_id: int, end: int, chunk: int) -> Any:
    return lambda client: Deferred.fromCoroutine(audit_chunk(client, ledger_id, end, chunk))


def _rows(ledger_id: int, chunk: int, end: int, verdict: ChunkVerdict) -> Any:
    rows: list[dict[str, object]] = [
        {
            "ledger_id": ledger_id,
            "kind": each.kind.value,
            "first_entry_id": each.first_entry_id,
            "last_entry_id": each.last_entry_id,
            "bookie": each.bookie or None,
            "good_copies": each.good_copies,
            "detail": each.detail or None,
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
    return pa.RecordBatch.from_pylist(rows, schema=_arrow_schema())
