"""Reading a journal into a state, and whether the two fit: nothing between them is missing, and none is ahead (I-81).

checkpoint covers ..C     journal has F..L, has seen ..S (what was purged counts)
C + 1 < F                 what lies between was purged: GapInTransactions
C < S, nothing left       the same
C > S, not in progress    the checkpoint is another journal's, or the journal lost its end: GapInTransactions
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from twisted.logger import Logger

from journalmgr.contract import JournalManager, RecordBatch
from journalmgr.errors import GapInTransactions
from journalmgr.model import TxId

log = Logger()


async def replay(
    journal: JournalManager, from_txid: TxId, *, in_progress_ok: bool = False
) -> AsyncIterator[RecordBatch]:
    """All transactions from a txid on, to the end of the journal. Raises GapInTransactions where any is missing (I-81).

    Empty where the journal ends before from_txid, see `check_not_ahead`. Of a segment in progress what is confirmed.
    """
    readers = await journal.select_input_streams(from_txid, in_progress_ok=in_progress_ok)
    expected: int = from_txid
    try:
        for reader in readers:
            while (batch := await reader.next()) is not None:
                found = batch.records[0].txid
                if found != expected:
                    raise _gap(journal, expected, found)
                expected = batch.records[-1].txid + 1
                yield batch
            await reader.close()
    finally:
        # Not awaited: a generator that nobody runs to its end cannot wait any more.
        for reader in readers:
            reader.close().addErrback(lambda failure: log.info("Closing a reader: {error}", error=failure.value))
    await _check_end(journal, TxId(expected))


async def _check_end(journal: JournalManager, expected: TxId) -> None:
    """It is the end indeed, or what comes is in progress or came since; not a gap."""
    seen = await journal.last_txid_seen()
    segments = await journal.segments()  # after the other: what has been seen is in the list then, or was purged
    if any(segment.covers(expected) for segment in segments):
        return
    later = next((segment.first_txid for segment in segments if segment.first_txid > expected), None)
    if later is not None:
        raise _gap(journal, expected, later)
    if seen >= expected:
        raise GapInTransactions(
            f"{journal.description}: gap in transactions: expected txid {expected}; the journal has had transactions "
            f"up to {seen}, and they were purged or are lost: start from a checkpoint that covers them",
            expected=expected,
            found=None,
        )


def _gap(journal: JournalManager, expected: int, found: int) -> GapInTransactions:
    return GapInTransactions(
        f"{journal.description}: gap in transactions: expected txid {expected}, and the next one there is {found}; "
        "what lies between was purged or is lost: start from a checkpoint that covers it",
        expected=expected,
        found=found,
    )


async def is_confirmed(journal: JournalManager, txid: TxId) -> bool:
    """Whether a state that covers transactions up to this one fits: they were written to this journal.

    False where the segment in progress may come to show it: a reader hears of what is durable a moment later than its
    writer. Raises GapInTransactions where it is certain that they never were.
    """
    if txid == 0 or txid <= await journal.last_txid_seen():
        return True
    readers = await journal.select_input_streams(txid, in_progress_ok=True)
    for reader in readers:
        await reader.close()
    if readers:
        return True
    segments = await journal.segments()
    seen = await journal.last_txid_seen()
    if txid <= seen:
        return True
    if any(segment.covers(txid) for segment in segments):
        return False
    raise ahead(journal, txid, seen)


def ahead(journal: JournalManager, txid: TxId, end: TxId) -> GapInTransactions:
    """The error of a state that has more than its journal."""
    return GapInTransactions(
        f"{journal.description}: the state was loaded from a checkpoint that covers txids up to {txid}, and the "
        f"journal ends at {end}: the checkpoint is of another journal, or the journal was formatted or cut since; "
        "start from a checkpoint of this journal, or from its first txid",
        expected=end + 1,
        found=txid + 1,
    )
