"""What an export is about to read: the chosen ledgers looked at by tasks, and packed into files. Thread: a task's.

What is found is written down once and not asked again, so that all that follows speaks of the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, MapType, StringType, StructField, StructType
from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import MetadataCorrupt, NoSuchLedger, WrongPassword
from bookkeeper.model import LedgerMetadata
from bookkeeper.spark.arrow_map import ArrowMap
from bookkeeper.spark.cluster.ledgers import owner_of
from bookkeeper.spark.columns import arrow_schema
from bookkeeper.spark.exports.manifest import UNKNOWN_DATE, Status
from bookkeeper.spark.exports.options import ExportOptions
from bookkeeper.spark.exports.packing import LedgerSize, packed
from bookkeeper.spark.exports.stored import rows_of
from bookkeeper.spark.ledgers.slices import other_password
from bookkeeper.spark.options.tables import SourceOptions
from bookkeeper.spark.process_client import client_of
from bookkeeper.spark.said_as import Words

AT_ONCE = 64
"""Ledgers asked about at a time."""

PLANNED = "planned"
"""The status of a ledger that is to be exported, before that is done; others have their last one."""

CHOSEN_SCHEMA = StructType(
    [
        StructField("ledger_id", LongType(), nullable=False),
        StructField("status", StringType(), nullable=False),
        StructField("why", StringType(), nullable=False),
        StructField("date", StringType(), nullable=False),
        StructField("state", StringType()),
        StructField("ensemble_size", IntegerType()),
        StructField("write_quorum", IntegerType()),
        StructField("ack_quorum", IntegerType()),
        StructField("digest_type", StringType()),
        StructField("created_ms", LongType()),
        StructField("custom", MapType(StringType(), BinaryType())),
        StructField("last_entry_id", LongType()),
        StructField("expected_bytes", LongType()),
        StructField("size", LongType(), nullable=False),
    ]
)
"""last_entry_id: of those that are to be exported, -1: none. size: about how many bytes that is.

why: of one that is planned and not closed, which later entries may be acknowledged too.
"""

PIECE_SCHEMA = StructType(
    [
        StructField("date", StringType(), nullable=False),
        StructField("file", LongType(), nullable=False),
        StructField("ledger_id", LongType(), nullable=False),
        StructField("first_entry_id", LongType(), nullable=False),
        StructField("last_entry_id", LongType(), nullable=False),
    ]
)


def looking(options: SourceOptions[ExportOptions]) -> ArrowMap:
    """For `map_in_arrow`: rows of CHOSEN_SCHEMA for the ledgers whose ids are the only column."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                ids = batch.column(0).to_pylist()
                found = client_of(options.client).run(_look(ids, options))
                yield pa.RecordBatch.from_pylist(found, schema=arrow_schema(CHOSEN_SCHEMA))

    return look


def _look(ledger_ids: Sequence[int], options: SourceOptions[ExportOptions]) -> Any:
    async def look(client: LedgerClient) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}

        async def look_at(ledger_id: int) -> None:
            row = await _row(client, ledger_id, options.own, options.words)
            if row is not None:
                found[ledger_id] = row

        # This task may ask a server that lags: closed ledgers are open there, and would be left out (I-19).
        await client.store.sync()
        await in_parallel((look_at(ledger_id) for ledger_id in ledger_ids), AT_ONCE)
        return [found[ledger_id] for ledger_id in ledger_ids if ledger_id in found]

    return lambda client: Deferred.fromCoroutine(look(client))


async def _row(client: LedgerClient, ledger_id: int, options: ExportOptions, words: Words) -> dict[str, Any] | None:
    """What is known of a ledger; None where it was not chosen after all."""
    try:
        metadata = await client.metadata(ledger_id)
        if not _is_of(metadata, options):
            return None
        row = _facts(ledger_id, metadata)
        if metadata.is_closed:
            assert metadata.length is not None
            return row | {
                "status": PLANNED,
                "last_entry_id": metadata.last_entry_id,
                "expected_bytes": metadata.length,
                "size": metadata.length,
            }
        if not options.open_too:
            return row | {"status": Status.OPEN.value}
        open_it = (
            client.open_as_administrator(ledger_id, recover=False)
            if options.as_administrator
            else client.open_without_recovery(ledger_id)
        )
        async with await open_it as handle:
            await handle.read_last_confirmed()  # opening waits for a covering set only: later answers count by now
            row |= {"status": PLANNED, "last_entry_id": handle.last_add_confirmed, "size": handle.length}
            return row | {"why": await handle.report_unconfirmed() or ""}
    except WrongPassword as error:
        raise WrongPassword(str(error) + other_password(words, given=bool(client.settings.password))) from error
    except NoSuchLedger:
        if ledger_id not in options.ledgers.single:
            return None  # of a range, and deleted since it was listed
        return _lost(ledger_id, "it is not there: deleted, or never made")
    except MetadataCorrupt as error:
        return _lost(ledger_id, f"its metadata cannot be read: {error}")


def _is_of(metadata: LedgerMetadata, options: ExportOptions) -> bool:
    application = metadata.custom.get("application")
    return (not options.owner or owner_of(metadata.custom) == options.owner) and (
        not options.application or application == options.application.encode()
    )


def _facts(ledger_id: int, metadata: LedgerMetadata) -> dict[str, Any]:
    return {
        "ledger_id": ledger_id,
        "why": "",
        "date": date_of(metadata.created_ms),
        "state": metadata.state.name,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "digest_type": None if metadata.digest_type is None else metadata.digest_type.name,
        "created_ms": metadata.created_ms,
        "custom": sorted(metadata.custom.items()),
        "last_entry_id": None,
        "expected_bytes": None,
        "size": 0,
    }


def _lost(ledger_id: int, why: str) -> dict[str, Any]:
    return {"ledger_id": ledger_id, "status": Status.LOST.value, "why": why, "date": UNKNOWN_DATE, "size": 0}


def date_of(created_ms: int | None) -> str:
    """The day (UTC) of a time, as 2026-11-23."""
    if created_ms is None:
        return UNKNOWN_DATE
    try:
        return datetime.fromtimestamp(created_ms / 1000, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):  # no time that anybody means: years above 9999
        return UNKNOWN_DATE


def packing(file_bytes_max: int) -> ArrowMap:
    """For `map_in_arrow`: rows of PIECE_SCHEMA for each day, whose rows are date, ledgers (what LedgerSize has)."""

    def pack(batches: Iterator[Any]) -> Iterator[Any]:
        for day in rows_of(batches):
            pieces = packed(_sizes(day["ledgers"]), file_bytes_max)
            found = [
                {
                    "date": day["date"],
                    "file": piece.file,
                    "ledger_id": piece.ledger_id,
                    "first_entry_id": piece.first_entry_id,
                    "last_entry_id": piece.last_entry_id,
                }
                for piece in pieces
            ]
            yield pa.RecordBatch.from_pylist(found, schema=arrow_schema(PIECE_SCHEMA))

    return pack


def _sizes(rows: Iterable[dict[str, Any]]) -> Iterator[LedgerSize]:
    for row in rows:
        yield LedgerSize(row["ledger_id"], row["last_entry_id"], row["size"])
