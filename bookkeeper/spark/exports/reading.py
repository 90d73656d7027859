"""The entries of an export, read by tasks from the bookies. Thread: a task's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from twisted.logger import Logger

from bookkeeper.errors import EntryCorrupt, EntryMissing, EntryUnreadable
from bookkeeper.spark.arrow_map import ArrowMap
from bookkeeper.spark.columns import arrow_schema
from bookkeeper.spark.exports.options import ExportOptions
from bookkeeper.spark.exports.stored import ENTRY_SCHEMA, rows_of
from bookkeeper.spark.ledgers.options import LedgerReadOptions
from bookkeeper.spark.ledgers.plan import Slice
from bookkeeper.spark.ledgers.slices import read_slices
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.options.tables import SourceOptions
from bookkeeper.spark.process_client import client_of
from bookkeeper.spark.said_as import LOSS_BORNE

log = Logger()


def reading(options: SourceOptions[ExportOptions]) -> ArrowMap:
    """For `map_in_arrow` on rows of PIECE_SCHEMA: their entries, rows of ENTRY_SCHEMA, in order.

    Raises LedgerError where an entry cannot be read from any copy, NoSuchLedger for a ledger that is gone; with
    failOnDataLoss=false the rest of that piece is left out with a warning.
    """

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        schema = arrow_schema(ENTRY_SCHEMA)
        for row in rows_of(batches):
            for rows in _entries(options, row["ledger_id"], row["first_entry_id"], row["last_entry_id"]):
                date = pa.repeat(pa.scalar(row["date"], pa.string()), rows.num_rows)
                yield pa.RecordBatch.from_arrays([*rows.columns, date], schema=schema)

    return read


def _entries(options: SourceOptions[ExportOptions], ledger_id: int, first: int, last: int) -> Iterator[Any]:
    own = options.own
    how = LedgerReadOptions(fail_on_data_loss=own.fail_on_data_loss, as_administrator=own.as_administrator)
    piece = Slice(ledger_id, first, last, 0)
    try:
        yield from read_slices(client_of(options.client), how, [piece], Bounds(), options.words)
    except (EntryUnreadable, EntryMissing, EntryCorrupt) as error:
        if own.fail_on_data_loss:
            raise
        log.warn(
            "ledger {ledger_id}: the rest of entries {first} to {last} is left out ({word}): {error}",
            ledger_id=ledger_id,
            first=first,
            last=last,
            word=options.words.word(LOSS_BORNE),
            error=error,
        )
