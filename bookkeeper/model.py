"""The nouns of the system: ids, ledger metadata, fragments, marks.

Pure values. A `LedgerMetadata` that exists satisfies every structural rule of a ledger (I-01, I-10, I-17): whoever
parses or changes one gets `InvalidMetadata` instead of a wrong object.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, NewType, TypeVar

from bookkeeper.errors import InvalidMetadata

LedgerId = NewType("LedgerId", int)
EntryId = NewType("EntryId", int)
BookieId = NewType("BookieId", str)

INVALID_ENTRY_ID = EntryId(-1)
"""Last entry of an empty ledger; the LAC before anything was acknowledged."""

LAST_ENTRY = EntryId(-1)
"""In a read request: the last entry the bookie holds."""

MASTER_KEY_SIZE = 20
"""Bytes of the key that an add or a fence presents."""

ENTRY_HEADER_SIZE = 32
"""Bytes of ledger id, entry id, LAC and length at the start of every entry body."""

FRAME_SIZE_MAX_DEFAULT = 5 * 1024 * 1024
"""Default bound of one frame's length field, in bytes (nettyMaxFrameSizeBytes)."""


class DigestType(enum.Enum):
    """How entries are protected. The values are those of the ledger metadata."""

    CRC32 = 1
    MAC = 2
    CRC32C = 3
    DUMMY = 4


class LedgerState(enum.Enum):
    """Life of a ledger; it only moves forward (I-13). The values are those of the ledger metadata."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class Status(enum.Enum):
    """A bookie's verdict on one request, free of wire versions. `wire.v2` and `wire.v3` hold the numbers."""

    OK = "ok"
    NO_LEDGER = "no such ledger"
    NO_ENTRY = "no such entry"
    BAD_REQUEST = "bad request"
    IO_ERROR = "I/O error"
    UNAUTHORIZED = "unauthorized"
    BAD_VERSION = "protocol version not supported"
    FENCED = "ledger fenced"
    READ_ONLY = "bookie is read-only"
    TOO_MANY_REQUESTS = "too many requests"
    UNKNOWN_LEDGER_STATE = "ledger state unknown"


EXPLICIT_NEGATIVES = frozenset({Status.NO_LEDGER, Status.NO_ENTRY})
"""The only verdicts that say "I never held it" (I-30); every other failure is unknown."""


@dataclass(frozen=True, slots=True, order=True)
class LogMark:
    """A position in a bookie's journal: everything before it is stored elsewhere."""

    journal_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class Fragment:
    """The entries from `first_entry_id` up to the next fragment; they share one ensemble."""

    first_entry_id: EntryId
    ensemble: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """Everything the metadata store knows of a ledger. Immutable; changes make a new value.

    format_version: 1..3, kept on every rewrite.
    last_entry_id, length: entries and payload bytes; present exactly when CLOSED (-1 and 0 for an empty ledger).
    digest_type, password: both None for ledgers older than 4.2.
    stored_ms: no part of the record: when the metadata store made it, where that was asked.
    """

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: tuple[Fragment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry_id: EntryId | None = None
    length: int | None = None
    digest_type: DigestType | None = DigestType.CRC32C
    password: bytes | None = b""
    custom: Mapping[str, bytes] = field(default_factory=dict)
    ctime_ms: int | None = None
    creator_token: int | None = None
    format_version: int = 3
    stored_ms: int | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_quorum(self.ensemble_size, self.write_quorum, self.ack_quorum)
        if self.format_version not in (1, 2, 3):
            raise InvalidMetadata(f"metadata format version {self.format_version} is not 1, 2 or 3")
        if (self.digest_type is None) != (self.password is None):
            raise InvalidMetadata("digest type and password must both be present or both be absent")
        closed = self.state is LedgerState.CLOSED
        if closed != (self.last_entry_id is not None) or closed != (self.length is not None):
            raise InvalidMetadata(
                f"state {self.state.name} with last entry {self.last_entry_id} and length {self.length}: "
                "both belong to a CLOSED ledger and to no other"
            )
        if (closed and (self.last_entry_id or 0) < -1) or (closed and (self.length or 0) < 0):
            raise InvalidMetadata(f"closed at entry {self.last_entry_id} with length {self.length}")
        _check_fragments(self.fragments, self.ensemble_size)
        object.__setattr__(self, "custom", MappingProxyType(dict(self.custom)))

    @property
    def created_ms(self) -> int | None:
        """When the ledger was made: as its creator noted, else as the metadata store did; milliseconds since 1970."""
        return self.stored_ms if self.ctime_ms is None else self.ctime_ms

    def __reduce__(self) -> tuple[object, ...]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["custom"] = dict(self.custom)
        return (_rebuild_metadata, (values,))

    @property
    def last_fragment(self) -> Fragment:
        """The fragment that takes new entries."""
        return self.fragments[-1]

    @property
    def is_closed(self) -> bool:
        """True when the end of the ledger is agreed for ever."""
        return self.state is LedgerState.CLOSED

    def fragment_of(self, entry_id: int) -> Fragment:
        """The fragment with the greatest first entry id that is not above `entry_id` (>= 0)."""
        for fragment in reversed(self.fragments):
            if fragment.first_entry_id <= entry_id:
                return fragment
        raise ValueError(f"entry id {entry_id} is negative")

    def with_fragment(self, first_entry_id: EntryId, ensemble: Iterable[BookieId]) -> LedgerMetadata:
        """Replace the last fragment when it starts at `first_entry_id`, else append one (I-09, I-17).

        Raises InvalidMetadata for a first entry below the last fragment's, or when the ledger is CLOSED.
        """
        if self.is_closed:
            raise InvalidMetadata("a closed ledger takes no new fragment")
        fragment = Fragment(first_entry_id, tuple(ensemble))
        kept = self.fragments
        if kept[-1].first_entry_id == first_entry_id:
            kept = kept[:-1]
        return dataclasses.replace(self, fragments=(*kept, fragment))

    def in_recovery(self) -> LedgerMetadata:
        """OPEN -> IN_RECOVERY (or unchanged). Raises InvalidMetadata when CLOSED (I-13)."""
        if self.is_closed:
            raise InvalidMetadata("a closed ledger is not recovered again")
        return dataclasses.replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, last_entry_id: EntryId, length: int) -> LedgerMetadata:
        """OPEN or IN_RECOVERY -> CLOSED. Raises InvalidMetadata when CLOSED already (I-13)."""
        if self.is_closed:
            raise InvalidMetadata("the ledger is closed already")
        return dataclasses.replace(self, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)


def _rebuild_metadata(values: dict[str, object]) -> LedgerMetadata:
    return LedgerMetadata(**values)  # type: ignore[arg-type]


def check_quorum(ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
    """Raise InvalidMetadata unless E >= Qw >= Qa >= 1 (I-01)."""
    if not ensemble_size >= write_quorum >= ack_quorum >= 1:
        raise InvalidMetadata(
            f"ensemble size {ensemble_size}, write quorum {write_quorum}, ack quorum {ack_quorum}: "
            "need ensemble >= write quorum >= ack quorum >= 1"
        )


def _check_fragments(fragments: tuple[Fragment, ...], ensemble_size: int) -> None:
    if not fragments:
        raise InvalidMetadata("a ledger has at least one fragment")
    if fragments[0].first_entry_id != 0:
        raise InvalidMetadata(f"the first fragment starts at entry {fragments[0].first_entry_id}, not 0")
    previous = -1
    for fragment in fragments:
        if fragment.first_entry_id <= previous:
            raise InvalidMetadata(f"fragment at entry {fragment.first_entry_id} does not follow the one at {previous}")
        previous = fragment.first_entry_id
        if len(fragment.ensemble) != ensemble_size:
            raise InvalidMetadata(
                f"fragment at entry {fragment.first_entry_id} names {len(fragment.ensemble)} bookies, "
                f"the ensemble size is {ensemble_size}"
            )
        if len(set(fragment.ensemble)) != ensemble_size:
            raise InvalidMetadata(f"fragment at entry {fragment.first_entry_id} names a bookie twice")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address a bookie serves on, as published in its registration."""

    id: str
    host: str
    port: int
    protocol: str
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BookieServiceInfo:
    """What a bookie publishes about itself."""

    endpoints: tuple[Endpoint, ...]
    properties: Mapping[str, str] = field(default_factory=dict)

    def address(self) -> tuple[str, int] | None:
        """Host and port of the first `bookie-rpc` endpoint."""
        for endpoint in self.endpoints:
            if endpoint.protocol == "bookie-rpc":
                return endpoint.host, endpoint.port
        return None


class BookieMode(enum.Enum):
    """How a bookie is registered."""

    WRITABLE = "writable"
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True)
class AvailableBookies:
    """The registered bookies at one moment; a bookie may briefly be in both sets while it changes its mode.

    unusable: bookies of either set with a registration that cannot be read or has no address, and the reason. They do
    not count as lost, but get no new ledgers or copies.
    """

    writable: Mapping[BookieId, BookieServiceInfo]
    read_only: Mapping[BookieId, BookieServiceInfo]
    unusable: Mapping[BookieId, str] = field(default_factory=dict)


V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Versioned(Generic[V_co]):
    """A value and the store's version of it, together, so that a compare-and-set names what it decided on (I-15)."""

    value: V_co
    version: int
