"""Every error of a journal that a caller may act on, one class per reason. Pure.

    JournalError             retriable: trying again later may help
      NotFormatted             nothing is there yet; format it
      HasData                  format would destroy what is there
      NamespaceMismatch        the journal belongs to another namespace (I-87)
      SegmentError             a segment's record in the journal's list
        SegmentExists            another segment is in progress, or has this name
        SegmentAbsent            no such segment in progress
        SegmentConflict          what was to be recorded differs from what is (I-83)
        SegmentUnreadable        the record cannot be parsed; it is not treated as absent
        SegmentEmpty             no transaction in it
      TxIdSeen                 the txid was used already (I-81)
      WriterReplaced           somebody else writes now: this writer can never acknowledge again (I-80)
      LogFull                  too much waits to be written; nothing was taken
      StreamFailed             an earlier write failed: nothing more is taken, nothing is acknowledged (I-82)
      GapInTransactions        a txid is missing where it was expected (I-81)
      EditsError               the bytes of the transactions
        EditsCorrupt             wrong checksum, impossible length, broken field: with the offset
        UnknownOp                an operation that this layout does not have
        UnsupportedLayout        a layout version that cannot be read, or not be written
        TransactionTooLarge      cannot be written in one piece
      NotApplicable            a state machine refuses a transaction of its journal
      JournalUnavailable       the journal could not be reached or the outcome is open
      NotSupported             this kind of journal cannot do that
      JournalClosed            the journal or stream was closed

Errors of the ledger client and of the metadata store are chained as causes.
"""

from __future__ import annotations

from typing import ClassVar

from bookkeeper.errors import BookKeeperError


class JournalError(BookKeeperError):
    """Base of all; journal: which one, for messages."""

    retriable: ClassVar[bool] = False


class NotFormatted(JournalError):
    """The journal was never formatted."""


class HasData(JournalError):
    """There is data already, and nobody confirmed that it may go."""


class NamespaceMismatch(JournalError):
    """The journal belongs to another namespace (I-87)."""


class SegmentError(JournalError):
    """What the journal's list says of a segment."""


class SegmentExists(SegmentError):
    """A segment is in progress already, or one of this name exists."""


class SegmentAbsent(SegmentError):
    """There is no such segment in progress."""


class SegmentConflict(SegmentError):
    """The segment is recorded already, and differently; or its content is not what is to be recorded (I-83)."""


class SegmentUnreadable(SegmentError):
    """The record of a segment, or its ledger or file, is there and cannot be read: never the same as absent."""


class SegmentEmpty(SegmentError):
    """The segment holds no transaction."""


class TxIdSeen(JournalError):
    """A segment cannot start at or below the greatest txid seen (I-81)."""


class WriterReplaced(JournalError):
    """Another writer took the journal over (I-80)."""


class StreamFailed(JournalError):
    """An earlier write of this stream failed; the first error is the cause (I-82)."""


class LogFull(JournalError):
    """More waits to be written than may; nothing was taken. Await what was appended, or `ready()`."""

    retriable = True


class GapInTransactions(JournalError):
    """expected: the txid that should have come; found: the one that did, None for the end of the journal."""

    def __init__(self, message: str, *, expected: int, found: int | None) -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found


class EditsError(JournalError):
    """Bytes of transactions. source: segment or file; offset: of the record in it, bytes; txid: if it is known."""

    def __init__(self, why: str, *, source: str = "", offset: int = -1, txid: int | None = None) -> None:
        where = (
            source + (f" at offset {offset}" if offset >= 0 else "") + (f", txid {txid}" if txid is not None else "")
        )
        super().__init__(f"{where}: {why}" if where else why)
        self.why = why
        self.source = source
        self.offset = offset
        self.txid = txid


class EditsCorrupt(EditsError):
    """The bytes are not what was written."""


class UnknownOp(EditsError):
    """An opcode that the layout version does not have."""


class UnsupportedLayout(EditsError):
    """A layout version that is too old or too new."""


class TransactionTooLarge(EditsError):
    """One transaction larger than what can be written in one piece."""


class NotApplicable(JournalError):
    """The state machine refuses a transaction of the journal; its error is the cause."""


class JournalUnavailable(JournalError):
    """The journal's servers could not be asked, or what became of a change is not known."""

    retriable = True


class NotSupported(JournalError):
    """This kind of journal has no such operation."""


class JournalClosed(JournalError):
    """The journal, or the stream, was closed."""
