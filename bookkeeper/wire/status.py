"""A bookie's status as the error of the client; one table."""

from __future__ import annotations

from bookkeeper.errors import (
    BookieError,
    BookieIOError,
    BookieReadOnly,
    LedgerFenced,
    LedgerStateUnknown,
    NoSuchEntry,
    NoSuchLedgerOnBookie,
    TooManyRequests,
    UnauthorizedAccess,
    UnsupportedVersion,
)
from bookkeeper.model import Status

# Status, class, what to do about it.
_ERRORS: dict[Status, tuple[type[BookieError | UnsupportedVersion], str]] = {
    Status.NO_LEDGER: (NoSuchLedgerOnBookie, ""),
    Status.NO_ENTRY: (NoSuchEntry, ""),
    # A refused request tells nothing about the entry, just as a failed disk does.
    Status.BAD_REQUEST: (BookieIOError, "the bookie does not take such a request"),
    Status.IO_ERROR: (BookieIOError, "see the bookie's log"),
    Status.UNAUTHORIZED: (UnauthorizedAccess, "check the ledger's password"),
    Status.BAD_VERSION: (
        UnsupportedVersion,
        "the bookie does not serve this version of the protocol: change useV2WireProtocol, or its release",
    ),
    Status.FENCED: (LedgerFenced, "another client took the ledger over"),
    Status.READ_ONLY: (BookieReadOnly, "write to another bookie"),
    Status.TOO_MANY_REQUESTS: (TooManyRequests, "try again later"),
    Status.UNKNOWN_LEDGER_STATE: (LedgerStateUnknown, "the bookie may have lost entries; ask another"),
}


def error_of(
    status: Status, *, bookie_id: str = "", ledger_id: int | None = None, entry_id: int | None = None
) -> BookieError | UnsupportedVersion:
    """The exception for a status other than OK."""
    error, remedy = _ERRORS[status]
    where = [
        f"bookie {bookie_id}" if bookie_id else "",
        f"ledger {ledger_id}" if ledger_id is not None else "",
        f"entry {entry_id}" if entry_id is not None else "",
    ]
    subject = " ".join(filter(None, where)) or "bookie"
    message = f"{subject}: {status.value}" + (f" ({remedy})" if remedy else "")
    return error(message, bookie_id=bookie_id, ledger_id=ledger_id, entry_id=entry_id)
