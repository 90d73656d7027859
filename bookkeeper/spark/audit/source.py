"""Data source `bookkeeper.audit`: what an audit finds, as `rows` says; each copy is read through its bookie.

Nothing is fenced or changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from twisted.internet.defer import Deferred

from bookkeeper.client.blocking import BlockingBookKeeper
from bookkeeper.client.client import LedgerClient
from bookkeeper.errors import NoSuchLedger
from bookkeeper.spark.audit.bookie_copies import BookiePaces
from bookkeeper.spark.audit.chunk_audit import audit_chunk
from bookkeeper.spark.audit.division import Piece, pieces_of
from bookkeeper.spark.audit.options import WHERE, AuditOptions
from bookkeeper.spark.audit.rows import AUDIT_SCHEMA, batch_of, chunk_rows
from bookkeeper.spark.bounds import Bounds
from bookkeeper.spark.columns import check_schema
from bookkeeper.spark.ledger_extents import plan_extents
from bookkeeper.spark.ledger_options import LedgerReadOptions
from bookkeeper.spark.options import SourceOptions, read_options
from bookkeeper.spark.process_client import client_of


@dataclass
class AuditPartition(InputPartition):
    """pieces: in order. bytes_per_s: of each bookie."""

    pieces: Sequence[Piece]
    bytes_per_s: float


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
        parts: dict[int, list[Piece]] = {}
        for piece in planned(client_of(self._options.client), self._options.own):
            parts.setdefault(piece.part, []).append(piece)
        share = self._options.own.bytes_per_s / max(1, len(parts))  # all may run at once
        return [AuditPartition(pieces, share) for pieces in parts.values()] or [AuditPartition((), 0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition, a batch for each chunk."""
        assert isinstance(partition, AuditPartition)
        if not partition.pieces:
            return
        client, paces = client_of(self._options.client), BookiePaces(partition.bytes_per_s)
        for piece in partition.pieces:
            for chunk in range(piece.first_chunk, piece.last_chunk + 1):
                try:
                    verdict = client.run(_auditing(piece, chunk, paces))
                except NoSuchLedger:
                    break  # deleted since: nothing of it is to be kept any more
                yield batch_of(chunk_rows(piece.ledger_id, chunk, piece.last_entry_id, verdict))


def planned(client: BlockingBookKeeper, options: AuditOptions, *, tasks: int = 1) -> Sequence[Piece]:
    """What is audited, divided for at least `tasks` tasks. Raises NoSuchLedger for one that was named by itself."""
    chosen = LedgerReadOptions(ledgers=options.ledgers, as_administrator=True)
    extents = plan_extents(
        client, chosen, Bounds(), Bounds(), remedy=". Leave it out; of a range those count that are there"
    )
    least = max(tasks, options.partitions_min)
    return list(pieces_of(extents, partition_bytes_max=options.partition_bytes_max, partitions_min=least))


def _auditing(piece: Piece, chunk: int, paces: BookiePaces) -> Any:
    def audit(client: LedgerClient) -> Any:
        return Deferred.fromCoroutine(audit_chunk(client, piece.ledger_id, piece.last_entry_id, chunk, paces=paces))

    return audit
