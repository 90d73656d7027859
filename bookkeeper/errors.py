"""Every error a caller may act on, one class per reason, with Apache's number.

    BookKeeperError        code: Apache's BKException number; retriable: trying again later may help
      ProtocolError          LocalProtocolError (our misuse), RemoteProtocolError (the peer's)
      BookieError            one bookie's verdict
      BookieUnavailable      no verdict from a bookie
      LedgerError            after the quorum
      MetadataError          the metadata store
      StorageError           a bookie's disk
      ConfigurationError     settings

Numbers of wire status codes are in `wire.v2` and `wire.v3`, not here.

Every class below `PortableError` survives pickle and copy with its fields, notes and cause. An error that is stored and
raised again is raised through `again`: an exception object that is raised twice collects the tracebacks of both.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

E = TypeVar("E", bound=BaseException)


class PortableError(Exception):
    """An exception that pickle and copy rebuild from its fields, whatever arguments its constructor takes.

    A field or cause that pickle cannot carry is replaced: an exception by an UnportableError, a value by its repr.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # `pickle` sets the items of the state by setattr: BaseException.__setstate__.
        return _rebuild, (type(self), _portable(self.args)), _portable(_state_of(self))

    def __copy__(self) -> Self:
        """Return a copy that shares the fields."""
        made = _rebuild(type(self), self.args)
        made.__setstate__(_state_of(self))
        return made


class UnportableError(PortableError):
    """A replacement, after pickling, for an exception of another package that pickle could not carry."""


def again(error: E) -> E:
    """Return a new exception like `error`, with `error` as its cause.

    For an error that is stored and raised more than once: each raise gets an object of its own, so that no traceback
    grows, nor refers to the frames of an earlier caller.
    """
    try:
        made = copy.copy(error)
    except Exception:  # noqa: BLE001 - an exception of another package, with unknown constructor arguments
        return error
    if made is error or type(made) is not type(error):
        return error
    cause = error.__cause__
    first = cause if type(cause) is type(error) and cause.args == error.args else error
    made.__traceback__ = None
    made.__cause__ = first
    if notes := getattr(made, "__notes__", None):
        made.__notes__ = list(notes)  # shared by the copy
    return made


def _rebuild(kind: type[E], arguments: tuple[object, ...]) -> E:
    made = kind.__new__(kind, *arguments)
    made.args = arguments
    return made


def _state_of(error: BaseException) -> dict[str, object]:
    state = dict(error.__dict__)
    if error.__cause__ is not None:
        state["__cause__"] = error.__cause__
    if error.__suppress_context__:
        state["__suppress_context__"] = True
    return state


_CARRIED = (str, bytes, int, float, bool, range, type(None), PortableError)


def _portable(value: Any) -> Any:
    """Return the value, or a replacement if pickle cannot carry it to another process and back."""
    if isinstance(value, _CARRIED):
        return value
    if type(value) is dict:
        return {key: _portable(item) for key, item in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(map(_portable, value))
    import pickle

    try:
        pickle.loads(pickle.dumps(value))
    except Exception as error:  # noqa: BLE001 - whatever another package's class raises
        if isinstance(value, BaseException):
            return UnportableError(f"{type(value).__qualname__}: {value}")
        return f"{value!r} ({type(error).__name__})"
    return value


class BookKeeperError(PortableError):
    """Base of all. `code` is Apache's BKException number."""

    code: ClassVar[int] = -999
    retriable: ClassVar[bool] = False


class InvalidArgument(BookKeeperError, ValueError):
    """A value the caller passed can never work; the message names it and the remedy."""

    code = -14


class ClientClosed(BookKeeperError):
    """The client was closed while the operation was pending, or before it began."""

    code = -19


class WrongThread(BookKeeperError, RuntimeError):
    """A blocking call on the client's own thread, where it would wait for itself; make it on another thread."""

    code = -14


class WrongLoop(BookKeeperError, RuntimeError):
    """A call from another event loop than the client's, or from none; connect again in that loop."""

    code = -14


# --- protocol -------------------------------------------------------------------------------------------------------


class ProtocolError(BookKeeperError):
    """Bytes or messages out of order."""

    code = -16


class LocalProtocolError(ProtocolError):
    """We were asked to send something the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something the protocol does not allow; the connection cannot go on."""


class OtherProtocol(RemoteProtocolError):
    """The peer sent a frame that is no message of the protocol version that was spoken to it."""


# --- one bookie's verdict -------------------------------------------------------------------------------------------


class BookieError(BookKeeperError):
    """A bookie answered, and the answer is not OK."""

    code = -1

    def __init__(self, message: str, *, bookie_id: str = "", ledger_id: int | None = None, entry_id: int | None = None):
        super().__init__(message)
        self.bookie_id = bookie_id
        self.ledger_id = ledger_id
        self.entry_id = entry_id


class NoSuchLedgerOnBookie(BookieError):
    """The bookie never held the ledger."""

    code = -7


class NoSuchEntry(BookieError):
    """The bookie (or, after the quorum, the ledger) never held the entry."""

    code = -13


class LedgerFenced(BookieError):
    """Another client took the ledger over; the writer must stop (I-08)."""

    code = -101


class BookieReadOnly(BookieError):
    """The bookie takes no new entries for now."""

    code = -104
    retriable = True


class UnauthorizedAccess(BookieError):
    """Wrong ledger password, or the connection is not authenticated."""

    code = -102


class TooManyRequests(BookieError):
    """The bookie is overloaded."""

    code = -105
    retriable = True


class BookieIOError(BookieError):
    """The bookie could not read or write its disk, or found the request malformed: no verdict on the entry."""

    code = -12


class LedgerStateUnknown(BookieError):
    """The bookie may have lost data of this ledger and cannot tell."""

    code = -108


class DigestMismatch(BookieError):
    """A copy of the entry is damaged, or the digest type or password is not the writer's."""

    code = -5


# --- no verdict -----------------------------------------------------------------------------------------------------


class BookieUnavailable(BookKeeperError):
    """A bookie did not answer; nothing is known of what it did."""

    code = -8
    retriable = True

    def __init__(self, message: str, *, bookie_id: str = ""):
        super().__init__(message)
        self.bookie_id = bookie_id


class ConnectFailed(BookieUnavailable):
    """No connection could be made."""


class TlsFailed(ConnectFailed):
    """The connection could not be protected as the settings ask; nothing was sent in clear text. Says which check."""

    code = -24
    retriable = False


class AuthenticationRefused(ConnectFailed):
    """The bookie does not accept the credentials, or wants some; or the provider does not accept the bookie."""

    code = -102
    retriable = False


class UnsupportedVersion(BookieUnavailable):
    """The bookie does not speak the client's protocol version; the message names the setting."""

    code = -16
    retriable = False

    def __init__(self, message: str, *, bookie_id: str = "", ledger_id: int | None = None, entry_id: int | None = None):
        super().__init__(message, bookie_id=bookie_id)
        self.ledger_id = ledger_id
        self.entry_id = entry_id


class ConnectionLost(BookieUnavailable):
    """The connection ended with requests outstanding."""


class RequestTimedOut(BookieUnavailable):
    """No answer in time; a late one is ignored."""

    code = -23


class RequestNotSent(BookieUnavailable):
    """Too much was asked of the bookie's connection at once: it was never sent, and says nothing about the bookie."""

    code = -23


# --- after the quorum -----------------------------------------------------------------------------------------------


class LedgerError(BookKeeperError):
    """An operation on a ledger failed after all replicas were considered.

    ledger_id, entry_id: of the operation (None where there is none). answers: what each bookie said, as text; its error
    where it said nothing of what was asked.
    """

    code = -999

    def __init__(
        self,
        message: str,
        *,
        ledger_id: int | None = None,
        entry_id: int | None = None,
        answers: Mapping[str, object] | None = None,
    ):
        if answers:
            message += " [" + ", ".join(f"{bookie}: {answer}" for bookie, answer in answers.items()) + "]"
        super().__init__(message)
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.answers = dict(answers or {})


class NotEnoughBookies(LedgerError):
    """Fewer usable bookies are registered than the ledger needs."""

    code = -6
    retriable = True


class AddQuorumTimedOut(LedgerError):
    """An add did not reach its ack quorum in time; its outcome is open (I-41)."""

    code = -21


class AddFailed(LedgerError):
    """An add could not be completed and the ledger handle is finished; the outcome of pending adds is open (I-41)."""

    code = -12


class NotDurable(LedgerError):
    """A force failed. With deferred sync the handle is finished, and `entry_ids` were acknowledged in vain.

    They are not in the ledger, unless somebody else recovered it before this handle closed it (I-41).
    """

    code = -12

    def __init__(
        self, message: str, *, ledger_id: int, entry_ids: range, answers: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message, ledger_id=ledger_id, answers=answers)
        self.entry_ids = entry_ids


class WindowFull(LedgerError):
    """The window of unanswered adds is at its bound; nothing was taken. Wait until there is room (I-14)."""

    code = -105
    retriable = True


class LedgerClosed(LedgerError):
    """The ledger or the handle is closed; it takes no more entries."""

    code = -11


class LedgerFencedOff(LedgerError):
    """Another client recovered the ledger; this writer can never acknowledge again (I-08)."""

    code = -101


class LedgerIdOccupied(LedgerError):
    """A ledger id that another key claimed at bookies, or under which they hold entries of another ledger.

    From a create or a first append: nothing was acknowledged, and another id helps. From a recovery: bookies refuse the
    ledger's own key, and whether entries were acknowledged is unknown. From re-replication: a bookie that gets no
    copies. answers: what each bookie holds.
    """

    code = -20


class EntryUnreadable(LedgerError):
    """No replica could deliver the entry, and not enough of them deny having it."""

    code = -1
    retriable = True


class EntryMissing(LedgerError):
    """Enough replicas deny that the entry was ever written."""

    code = -13


class EntryCorrupt(LedgerError):
    """Every reachable copy of the entry fails its digest."""

    code = -5


class ReadBeyondEnd(LedgerError):
    """The read asks for entries past the last confirmed one (I-42)."""

    code = -1


class DuplicateEntry(LedgerError):
    """The chosen entry id was used already."""

    code = -22


class WrongPassword(LedgerError):
    """The password is not the ledger's."""

    code = -102


class WrongDigestType(LedgerError):
    """The digest type asked for is not the ledger's."""

    code = -5


class RecoveryFailed(LedgerError):
    """The ledger could not be recovered now; it stays IN_RECOVERY and another attempt may succeed."""

    code = -10
    retriable = True


class UnclosedFragment(LedgerError):
    """The fragment may still be written: its members are not replaced before the ledger is closed (I-74)."""

    code = -103
    retriable = True


class ReplicationFailed(LedgerError):
    """Copies of a fragment could not be made, or could not be made known; the ledger stays under-replicated."""

    code = -200
    retriable = True


class NotInProtocolVersion(LedgerError):
    """The protocol version that the client is set to does not have the operation (Apache: IllegalOp)."""

    code = -100


class NotSupportedByBookie(LedgerError):
    """The operation needs protocol v3 and a bookie does not speak it."""

    code = -100


# --- metadata -------------------------------------------------------------------------------------------------------


class MetadataError(BookKeeperError):
    """The metadata store said no, or said nothing."""

    code = -9


class LedgerExists(MetadataError):
    """A ledger with this id exists."""

    code = -20


class NoSuchLedger(MetadataError):
    """The metadata store has no ledger with this id: authoritative absence, nothing else (I-18)."""

    code = -25


class VersionConflict(MetadataError):
    """Somebody else changed the record first; re-read and decide again (I-15)."""

    code = -17
    retriable = True


class MetadataUnavailable(MetadataError):
    """The metadata store cannot be reached."""

    retriable = True


class MetadataOutcomeUnknown(MetadataUnavailable):
    """The connection was lost during a write and the store could not be asked whether it happened (I-16)."""


class MetadataTooLarge(MetadataError):
    """A request that is larger than the metadata store accepts. It was not sent, and nothing was changed.

    path: the znode; for a transaction, the znode of its largest step. size: bytes of the request, including headers.
    limit: the largest size allowed.
    """

    def __init__(self, message: str, *, path: str, size: int, limit: int) -> None:
        super().__init__(message)
        self.path = path
        self.size = size
        self.limit = limit


class InvalidMetadata(MetadataError, ValueError):
    """Metadata that breaks a structural rule."""

    code = -107


class MetadataCorrupt(MetadataError):
    """A record exists but cannot be read; it is not treated as absent (I-18).

    version: the version of a ledger record, which a compare-and-set can replace; None if it is unknown.
    """

    code = -107
    version: int | None = None


class MetadataTooNew(MetadataCorrupt):
    """A record was written in a newer format than this release reads."""


class LayoutMismatch(MetadataError):
    """The cluster's ledger layout is not the one configured, or no cluster is there."""


class NotInitialised(MetadataError):
    """There is no cluster under this root."""


class AccessDenied(MetadataError):
    """The metadata store refused the credentials."""


class AlreadyRegistered(MetadataError):
    """Another process holds the registration of this bookie id."""


class ClusterExists(MetadataError):
    """There is a cluster under this root already."""


class ClusterInUse(MetadataError):
    """The cluster cannot be removed: bookies are registered, or not everything under its root is ours to remove."""


# --- a bookie's disk ------------------------------------------------------------------------------------------------


class StorageError(BookKeeperError):
    """A bookie's files."""


class CorruptRecord(StorageError):
    """Stored bytes are not what was written. `path`, `offset` and `why` say where and how it shows."""

    def __init__(self, path: str, offset: int, why: str):
        super().__init__(f"{path} is damaged at offset {offset}: {why}")
        self.path = path
        self.offset = offset
        self.why = why


class UnknownFormatVersion(StorageError):
    """A file was written in a format this release does not read."""


class NoWritableDisk(StorageError):
    """Every ledger directory is full or failed."""

    retriable = True


class JournalFull(StorageError):
    """The journal's queue is at its bound; nothing was queued."""

    retriable = True


class CookieMismatch(StorageError):
    """The directories or the metadata store belong to another bookie, or some of them lost their data (I-70, I-71)."""


class DirectoryInUse(StorageError):
    """Another process owns the directory (I-52)."""


class DirectoryUnusable(StorageError):
    """A directory of the configuration cannot be made, or not written by this user."""


# --- settings -------------------------------------------------------------------------------------------------------


class ConfigurationError(BookKeeperError):
    """Settings that cannot work; the message lists all faults."""

    code = -14
