"""Data source `bookkeeper.audit`: what an audit finds, as `rows` says; each copy is read through its bookie.

Nothing is fenced or changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.errors import NoSuchLedger
from bookkeeper.spark.audit.bookie_copies import BookiePaces
from bookkeeper.spark.audit.chunk_audit import audit_chunk
from bookkeeper.spark.audit.division import Piece, pieces_of
from bookkeeper.spark.audit.ledger_ends import Say, ledger_ends
from bookkeeper.spark.audit.options import WHERE, AuditOptions
from bookkeeper.spark.audit.rows import AUDIT_SCHEMA, batch_of, chunk_rows, unknown_row
from bookkeeper.spark.cluster.id_runs import IdRuns
from bookkeeper.spark.columns import check_schema
from bookkeeper.spark.options.tables import SourceOptions, read_options
from bookkeeper.spark.process_client import client_of


@dataclass
class AuditPartition(InputPartition):
    """pieces: in order. bytes_per_s: of each bookie. unknown: findings of no piece, see AuditPlan."""

    pieces: Sequence[Piece]
    bytes_per_s: float
    unknown: Mapping[int, str] = field(default_factory=dict)


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
        plan = planned(client_of(self._options.client), self._options.own)
        for piece in plan.pieces:
            parts.setdefault(piece.part, []).append(piece)
        share = self._options.own.bytes_per_s / max(1, len(parts))  # all may run at once
        made = [AuditPartition(pieces, share) for pieces in parts.values()]
        return [*made, AuditPartition((), 0, plan.unknown)] if plan.unknown or not made else made

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition, a batch for each chunk."""
        assert isinstance(partition, AuditPartition)
        if partition.unknown:
            yield batch_of([unknown_row(ledger_id, why) for ledger_id, why in partition.unknown.items()])
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


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What is audited; and the ledgers that are not, since nobody can say how far they reach, with the reason."""

    pieces: Sequence[Piece]
    unknown: Mapping[int, str]


def planned(
    client: BlockingBookKeeper,
    options: AuditOptions,
    *,
    tasks: int = 1,
    there: IdRuns | None = None,
    say: Say = lambda _: None,
) -> AuditPlan:
    """The audit, divided for at least `tasks` tasks. there: the ledgers of the cluster, None: they are listed here.

    Raises NoSuchLedger for one that was named by itself.
    """
    ends = ledger_ends(client, options.ledgers, there, say)
    least = max(tasks, options.partitions_min)
    pieces = pieces_of(
        ends.extents, ends.lengths, partition_bytes_max=options.partition_bytes_max, partitions_min=least
    )
    return AuditPlan(list(pieces), ends.unknown)


def _auditing(piece: Piece, chunk: int, paces: BookiePaces) -> Any:
    def audit(client: LedgerClient) -> Any:
        return Deferred.fromCoroutine(audit_chunk(client, piece.ledger_id, piece.last_entry_id, chunk, paces=paces))

    return audit
