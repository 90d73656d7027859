"""Errors of the metadata store and of the ledger client as errors of the journal. Pure.

could not be asked, or the outcome is open     JournalUnavailable: repeating the operation is safe
the ledger or its record is not readable       SegmentUnreadable
another client ended the ledger                WriterReplaced (writing only)
closed by us                                   JournalClosed
anything else, as a refused password           JournalError
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper.errors import (
    BookKeeperError,
    ClientClosed,
    EntryCorrupt,
    EntryMissing,
    LedgerClosed,
    LedgerFencedOff,
    MetadataCorrupt,
    NoSuchLedger,
    WrongDigestType,
    WrongPassword,
)
from journalmgr.errors import (
    JournalClosed,
    JournalError,
    JournalUnavailable,
    SegmentUnreadable,
    StreamFailed,
    WriterReplaced,
)

_UNREADABLE = (NoSuchLedger, WrongPassword, WrongDigestType, EntryMissing, EntryCorrupt, MetadataCorrupt)


def translated(what: str, error: BookKeeperError) -> JournalError:
    """The journal's error for one of the store's or the client's; `what` was being done."""
    if isinstance(error, JournalError):
        return error
    message = f"{what}: {error}"
    if isinstance(error, ClientClosed):
        return JournalClosed(message)
    if isinstance(error, _UNREADABLE):
        return SegmentUnreadable(message)
    if error.retriable:
        return JournalUnavailable(f"{message}; try again")
    return JournalError(message)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Errors of the store and the client that leave the block say what was being done."""
    try:
        yield
    except JournalError:
        raise
    except BookKeeperError as error:
        raise translated(what, error) from error


def write_failure(what: str, error: BookKeeperError) -> WriterReplaced | StreamFailed:
    """Why a stream ended: another writer took the segment over, or something failed."""
    if isinstance(error, LedgerFencedOff | LedgerClosed):
        return WriterReplaced(
            f"{what}: another writer took the journal over ({type(error).__name__}); this one must stop serving, and "
            "read the journal again before it writes"
        )
    return StreamFailed(
        f"{what}: Failed to write to bookkeeper; Error is ({error.code}) {error}; what was not flushed before may be "
        "lost or kept: recover the journal, read it, and start a new segment"
    )
