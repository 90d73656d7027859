"""Reading slices of ledgers in a task: Arrow batches, the next ones on their way while one is handed over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from twisted.logger import Logger

from bookkeeper.client.blocking import BlockingBookKeeper, BlockingReadHandle
from bookkeeper.errors import NoSuchLedger, WrongPassword
from bookkeeper.spark.bounds import Bounds
from bookkeeper.spark.columns import ledger_batch
from bookkeeper.spark.ledger_options import LedgerReadOptions
from bookkeeper.spark.options import READ_AHEAD_ENTRIES
from bookkeeper.spark.planning import Slice

log = Logger()

BATCH_ENTRIES = READ_AHEAD_ENTRIES // 2
"""Rows of one Arrow batch, about, where READ_BATCH_BYTES of the client are not less."""


def read_slices(
    client: BlockingBookKeeper, options: LedgerReadOptions, slices: Iterable[Slice], entry_ids: Bounds
) -> Iterator[Any]:
    """The entries of the slices that pass, in order.

    Raises LedgerError where an entry cannot be read from any copy, NoSuchLedger for a ledger that was deleted since
    (data loss; a warning where that is to be borne).
    """
    every = entry_ids == Bounds()
    for piece in slices:
        try:
            with _open(client, options, piece.ledger_id) as handle:
                handle.note_confirmed(piece.last_entry_id)
                for batch in handle.batches(piece.first_entry_id, piece.last_entry_id, entries_max=BATCH_ENTRIES):
                    rows = ledger_batch(piece.ledger_id, batch[0].entry_id, [entry.payload for entry in batch])
                    yield rows if every else rows.filter(pa.array([each.entry_id in entry_ids for each in batch]))
        except WrongPassword as error:
            raise WrongPassword(
                f"{error}. Name the ledgers that have the password given (option ledgers), or read all of them with "
                "option asAdministrator=true"
            ) from error
        except NoSuchLedger as error:
            what = (
                f"ledger {piece.ledger_id} was deleted while entries {piece.first_entry_id} to {piece.last_entry_id} "
            )
            what += "of it were being read"
            if options.fail_on_data_loss:
                raise NoSuchLedger(
                    f"{what}. With option failOnDataLoss=false its rest is left out with a warning"
                ) from error
            log.warn("{what}; its rest is left out (failOnDataLoss=false)", what=what)


def _open(client: BlockingBookKeeper, options: LedgerReadOptions, ledger_id: int) -> BlockingReadHandle:
    if options.as_administrator:
        return client.open_as_administrator(ledger_id, recover=False)
    return client.open_without_recovery(ledger_id)
