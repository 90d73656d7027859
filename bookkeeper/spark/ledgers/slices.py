"""Reading slices of ledgers in a task: Arrow batches, the next ones on their way while one is handed over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from twisted.internet.defer import succeed
from twisted.logger import Logger

from bookkeeper.client.faces.blocking import BlockingBookKeeper, BlockingReadHandle
from bookkeeper.client.read.entries import PayloadBatch
from bookkeeper.errors import NoSuchLedger, WrongPassword
from bookkeeper.spark.columns import ledger_batch
from bookkeeper.spark.ledgers.options import LedgerReadOptions
from bookkeeper.spark.ledgers.plan import Slice
from bookkeeper.spark.options.bounds import Bounds
from bookkeeper.spark.said_as import AS_ADMINISTRATOR, LOSS_BORNE, OF_OPTIONS, Words

log = Logger()


def read_slices(
    client: BlockingBookKeeper,
    options: LedgerReadOptions,
    slices: Iterable[Slice],
    entry_ids: Bounds,
    words: Words = OF_OPTIONS,
) -> Iterator[Any]:
    """The entries of the slices that pass, in order: a batch of rows for each batch that a bookie sends.

    words: of who asks, for errors.
    Raises LedgerError where an entry cannot be read from any copy, NoSuchLedger for a ledger that was deleted since
    (data loss; a warning where that is to be borne).
    """
    for piece in slices:
        try:
            with _open(client, options, piece.ledger_id) as handle:
                handle.note_confirmed(piece.last_entry_id)
                for batch in handle.payload_batches(piece.first_entry_id, piece.last_entry_id):
                    rows = ledger_batch(piece.ledger_id, batch.first_entry_id, batch.payloads)
                    yield _passing(rows, batch, entry_ids)
        except WrongPassword as error:
            given = client.run(lambda ledgers: succeed(bool(ledgers.settings.password)))
            raise WrongPassword(str(error) + other_password(words, given=given)) from error
        except NoSuchLedger as error:
            what = (
                f"ledger {piece.ledger_id} was deleted while entries {piece.first_entry_id} to {piece.last_entry_id} "
                "of it were being read"
            )
            if options.fail_on_data_loss:
                remedy = words.remedy("With {} its rest is left out with a warning", LOSS_BORNE)
                raise NoSuchLedger(f"{what}{remedy}") from error
            log.warn("{what}; its rest is left out ({word})", what=what, word=words.word(LOSS_BORNE))
            warn_of_other_rows(words)


def warn_of_other_rows(words: Words) -> None:
    """Where a task has left out what is lost: one that was tried before may have handed it over then.

    A sink that knows rows again by their place (format hedwig) takes the rows behind it for those, and leaves them out.
    """
    task = TaskContext.get()
    if task is not None and task.attemptNumber() > 0:
        log.warn(
            "attempt {attempt} of the task of partition {partition} has other rows than the first one may have had; "
            "format hedwig, if they are published by it, may leave out as many others as were published already: to "
            "store each row once, do without {word}",
            attempt=task.attemptNumber(),
            partition=task.partitionId(),
            word=words.word(LOSS_BORNE) or LOSS_BORNE,
        )


def other_password(words: Words, *, given: bool) -> str:
    """What a user can do about a ledger that has another password; to follow what is wrong. given: one was given."""
    if given:
        sentence = "Name the ledgers that have the password given ({}), or read all of them with {}"
        return words.remedy(sentence, "ledgers", AS_ADMINISTRATOR)
    # Under the name that Spark hides in its plans; a command has the key of the client, and hides it itself.
    first = words.remedy("No password was given: give {}", "passwd" if words.of_a_command else "password")
    return first + words.remedy(
        "Or name the ledgers that have none ({}), or read all of them with {}", "ledgers", AS_ADMINISTRATOR
    )


def _passing(rows: Any, batch: PayloadBatch, entry_ids: Bounds) -> Any:
    """The rows of a batch that pass; mostly all, as only what may pass is read."""
    first, last = batch.entry_ids[0], batch.entry_ids[-1]
    if entry_ids.only is None and entry_ids.low <= first and last <= entry_ids.high:
        return rows
    return rows.filter(pa.array([each in entry_ids for each in batch.entry_ids]))


def _open(client: BlockingBookKeeper, options: LedgerReadOptions, ledger_id: int) -> BlockingReadHandle:
    if options.as_administrator:
        return client.open_as_administrator(ledger_id, recover=False)
    return client.open_without_recovery(ledger_id)
