"""Requests and responses, the same for both protocol versions.

The hot path has batches: AddBatch and ReadBatch are what consecutive requests of one chunk become, AddAcks and
ReadBodies what consecutive successes of one ledger become. They are the only mutable ones, because the decoder grows
them in place; once handed out they belong to whoever received them. Everything else is frozen.

`token` belongs to the codec: it says how to answer and means nothing to anybody else.
`request_id(s)` are None on v2, where a response is correlated by operation, ledger and entry; on v3 they are the ids
that the encoder returned.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bookkeeper.model import Status


class Operation(enum.Enum):
    """What a request asks for."""

    ADD = "add"
    READ = "read"
    AUTH = "auth"
    READ_LAC = "read LAC"
    WRITE_LAC = "write LAC"
    BOOKIE_INFO = "bookie info"
    BATCH_READ = "batch read"
    START_TLS = "start TLS"
    FORCE = "force ledger"
    LIST_ENTRIES = "list entries"
    UNKNOWN = "unknown operation"


# --- requests -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class AddBatch:
    """Adds of one ledger that arrived one after the other under the same key and flags.

    entry_ids, bodies: equally long, at least one; ids >= 0. A body is what the bookie stores: at least 32 bytes, and
    the ids in it are `ledger_id` and the entry's.
    last_confirmed: the greatest LAC inside the bodies (-1: none).
    """

    ledger_id: int
    master_key: bytes
    entry_ids: list[int]
    bodies: list[bytes]
    last_confirmed: int
    recovery: bool
    high_priority: bool
    deferred_sync: bool
    token: object

    def takes(self, ledger_id: int, master_key: bytes, token: bytes) -> bool:
        """True when a v2 add without flags, under this ledger, key and token, belongs to this batch."""
        return (
            ledger_id == self.ledger_id
            and master_key == self.master_key
            and not (self.recovery or self.high_priority or self.deferred_sync)
            and token == self.token
        )

    def absorb(self, other: AddBatch) -> bool:
        """Take over the entries of `other` when it continues this batch; else change nothing and return False."""
        if (
            other.ledger_id != self.ledger_id
            or other.master_key != self.master_key
            or other.recovery is not self.recovery
            or other.high_priority is not self.high_priority
            or other.deferred_sync is not self.deferred_sync
            or not _join_tokens(self.token, other.token)
        ):
            return False
        self.entry_ids += other.entry_ids
        self.bodies += other.bodies
        self.last_confirmed = max(self.last_confirmed, other.last_confirmed)
        return True


@dataclass(slots=True)
class ReadBatch:
    """Plain reads of one ledger that arrived one after the other. Entry -1 (the last entry held) only comes alone."""

    ledger_id: int
    entry_ids: list[int]
    token: object

    def absorb(self, other: ReadBatch) -> bool:
        """Take over the reads of `other` when it continues this batch; else change nothing and return False."""
        if (
            other.ledger_id != self.ledger_id
            or self.entry_ids[-1] < 0
            or other.entry_ids[0] < 0
            or not _join_tokens(self.token, other.token)
        ):
            return False
        self.entry_ids += other.entry_ids
        return True

    def take(self, count: int) -> ReadBatch:
        """Split off the first `count` reads, fewer than there are: both parts are batches that can be answered."""
        token = self.token
        if isinstance(token, list):
            token, self.token = token[:count], token[count:]
        head = ReadBatch(self.ledger_id, self.entry_ids[:count], token)
        self.entry_ids = self.entry_ids[count:]
        return head


def _join_tokens(mine: object, other: object) -> bool:
    """v3 tokens are lists with one element per entry and grow; v2 tokens are one value for all and must be equal."""
    if isinstance(mine, list) and isinstance(other, list):
        mine += other
        return True
    return mine == other


@dataclass(frozen=True, slots=True)
class FenceRead:
    """Fence the ledger, then read an entry (-1: the last). master_key None: the peer sent none; answer UNAUTHORIZED."""

    ledger_id: int
    entry_id: int
    master_key: bytes | None
    high_priority: bool
    token: object


@dataclass(frozen=True, slots=True)
class ReadLac:
    """Ask for the explicit LAC and the last entry."""

    ledger_id: int
    token: object


@dataclass(frozen=True, slots=True)
class WriteLac:
    """Store an explicit LAC. body: the packet with the LAC, at least 16 bytes, its ledger id checked."""

    ledger_id: int
    master_key: bytes
    body: bytes
    token: object


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """Ask for disk space: free, total, or both."""

    free: bool
    total: bool
    token: object


@dataclass(frozen=True, slots=True)
class Auth:
    """One step of the authentication plugin's handshake."""

    plugin: str
    payload: bytes
    token: object


@dataclass(frozen=True, slots=True)
class LongPollRead:
    """Wait until the LAC passes `previous_lac`, at most `timeout_ms` (None: do not wait)."""

    ledger_id: int
    entry_id: int
    previous_lac: int
    timeout_ms: int | None
    piggyback: bool
    token: object


@dataclass(frozen=True, slots=True)
class ForceLedger:
    """Answer once everything queued before is on disk."""

    ledger_id: int
    token: object


@dataclass(frozen=True, slots=True)
class ListEntries:
    """Ask which entries of the ledger the bookie holds."""

    ledger_id: int
    token: object


@dataclass(frozen=True, slots=True)
class StartTls:
    """Ask to turn the connection into TLS."""

    token: object


@dataclass(frozen=True, slots=True)
class BatchRead:
    """Read consecutive entries into one answer (v2 only).

    count_max: <= 0 means no limit. size_max: of the answer; whatever it says, even if negative, the first entry comes.
    """

    ledger_id: int
    first_entry_id: int
    request_id: int
    count_max: int
    size_max: int
    fence: bool
    master_key: bytes | None
    token: object


@dataclass(frozen=True, slots=True)
class Malformed:
    """A request that is well framed and refused all the same: answer it with `status`. `reason` is for the log.

    ledger_id, entry_id: as the peer sent them (-1 where the operation has none); echoed in the answer.
    """

    operation: Operation
    status: Status
    ledger_id: int
    entry_id: int
    reason: str
    token: object


Request: TypeAlias = (
    AddBatch
    | ReadBatch
    | FenceRead
    | ReadLac
    | WriteLac
    | BookieInfo
    | Auth
    | LongPollRead
    | ForceLedger
    | ListEntries
    | StartTls
    | BatchRead
    | Malformed
)


REQUESTS_AT_ONCE = 1024
"""Requests that are decoded together: 5 ms at 5 us each, and 512 KiB of memory. Consecutive adds or reads of one ledger
count as one request."""


def append_request(requests: list[Request], request: Request) -> None:
    """Append, or let the last batch absorb `request`."""
    if requests:
        last = requests[-1]
        if isinstance(last, AddBatch):
            if isinstance(request, AddBatch) and last.absorb(request):
                return
        elif isinstance(last, ReadBatch) and isinstance(request, ReadBatch) and last.absorb(request):
            return
    requests.append(request)


# --- responses ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class AddAcks:
    """Entries of one ledger that the bookie stored durably."""

    ledger_id: int
    entry_ids: list[int]
    request_ids: list[int] | None

    def absorb(self, other: AddAcks) -> bool:
        """Take over `other` when it is of the same ledger; else change nothing and return False."""
        if other.ledger_id != self.ledger_id:
            return False
        self.entry_ids += other.entry_ids
        if self.request_ids is not None and other.request_ids is not None:
            self.request_ids += other.request_ids
        return True


@dataclass(frozen=True, slots=True)
class MixedAddAcks:
    """Stored entries of several ledgers, as their answers followed each other (v2): many ledgers, few entries of each.

    pairs: ledger id and entry id of each, at least one.
    """

    pairs: list[tuple[int, int]]

    @property
    def entry_ids(self) -> list[int]:
        """The entry ids alone."""
        return [entry_id for _, entry_id in self.pairs]


@dataclass(slots=True)
class ReadBodies:
    """Entries of one ledger, unverified.

    entry_ids: as in the answers; on v2 a read of entry -1 is answered with -1 (the real id is in the body).
    max_lac: the greatest LAC the bookie told beside the entries (v3), None when it told none.
    """

    ledger_id: int
    entry_ids: list[int]
    bodies: list[bytes]
    max_lac: int | None
    request_ids: list[int] | None

    def absorb(self, other: ReadBodies) -> bool:
        """Take over `other` when it is of the same ledger; else change nothing and return False."""
        if other.ledger_id != self.ledger_id:
            return False
        self.entry_ids += other.entry_ids
        self.bodies += other.bodies
        if other.max_lac is not None:
            self.max_lac = other.max_lac if self.max_lac is None else max(self.max_lac, other.max_lac)
        if self.request_ids is not None and other.request_ids is not None:
            self.request_ids += other.request_ids
        return True

    def take_out(self, place: int) -> LongPollReply:
        """Remove one entry (v3), which answers a long poll: only its request id told it from those around it."""
        assert self.request_ids is not None
        return LongPollReply(
            self.ledger_id, self.entry_ids.pop(place), self.bodies.pop(place), self.max_lac, self.request_ids.pop(place)
        )


@dataclass(frozen=True, slots=True)
class AddFailed:
    """An add that the bookie refused."""

    ledger_id: int
    entry_id: int
    status: Status
    request_id: int | None


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """A read that the bookie could not or would not serve."""

    ledger_id: int
    entry_id: int
    status: Status
    request_id: int | None


@dataclass(frozen=True, slots=True)
class ReadLacReply:
    """explicit_lac: packet as stored; last_entry: body of the last entry held. Either may come beside a failure."""

    ledger_id: int
    status: Status
    explicit_lac: bytes | None
    last_entry: bytes | None
    request_id: int


@dataclass(frozen=True, slots=True)
class WriteLacReply:
    """Answer to a WriteLac."""

    ledger_id: int
    status: Status
    request_id: int


@dataclass(frozen=True, slots=True)
class BookieInfoReply:
    """Answer to a BookieInfo; None for what was not asked or not told."""

    status: Status
    total_bytes: int | None
    free_bytes: int | None
    request_id: int


@dataclass(frozen=True, slots=True)
class AuthReply:
    """One step of the authentication plugin's handshake. v2 has no status: always OK."""

    status: Status
    plugin: str
    payload: bytes
    request_id: int | None


@dataclass(frozen=True, slots=True)
class LongPollReply:
    """What a long poll is answered with; matched by its request id alone. A bookie says OK without a body to it only.

    entry_id: the entry after the LAC asked about when `body` is there, else -1. body: unverified; None when the bookie
    has no news, or does not hold that entry. max_lac: the LAC the bookie knows, under no digest.
    """

    ledger_id: int
    entry_id: int
    body: bytes | None
    max_lac: int | None
    request_id: int


@dataclass(frozen=True, slots=True)
class ForceReply:
    """Answer to a ForceLedger."""

    ledger_id: int
    status: Status
    request_id: int


@dataclass(frozen=True, slots=True)
class ListEntriesReply:
    """availability: which entries the bookie holds, as `wire.availability` encodes it; None unless OK."""

    ledger_id: int
    status: Status
    availability: bytes | None
    request_id: int


@dataclass(frozen=True, slots=True)
class StartTlsReply:
    """The bookie is ready for TLS when OK; everything after this answer is TLS."""

    status: Status
    request_id: int


@dataclass(frozen=True, slots=True)
class BatchReadReply:
    """Consecutive entries from `first_entry_id` on, unverified; empty unless OK."""

    ledger_id: int
    first_entry_id: int
    status: Status
    bodies: Sequence[bytes]
    request_id: int


@dataclass(frozen=True, slots=True)
class GenericFailure:
    """A v3 refusal that names no ledger or entry, as before authentication."""

    operation: Operation
    status: Status
    request_id: int


Response: TypeAlias = (
    AddAcks
    | MixedAddAcks
    | ReadBodies
    | AddFailed
    | ReadFailed
    | ReadLacReply
    | WriteLacReply
    | BookieInfoReply
    | AuthReply
    | LongPollReply
    | ForceReply
    | ListEntriesReply
    | StartTlsReply
    | BatchReadReply
    | GenericFailure
)


def append_response(responses: list[Response], response: Response) -> None:
    """Append, or let the last batch absorb `response`."""
    if responses:
        last = responses[-1]
        if isinstance(last, AddAcks):
            if isinstance(response, AddAcks) and last.absorb(response):
                return
        elif isinstance(last, ReadBodies) and isinstance(response, ReadBodies) and last.absorb(response):
            return
    responses.append(response)
