"""Ledgers that this bookie deleted and whose old writers must still be refused (I-04). Pure.

    kind      deleted because                      adds              recovery adds       fences, explicit LACs
    DELETED   the metadata store has it no more    FENCED            FENCED              NO_LEDGER
    MOVED     its copy here was one too many       FENCED            taken, fenced anew  UNKNOWN_LEDGER_STATE

A fence goes away with a ledger's files; without these a writer that was fenced, and slept until the ledger was deleted,
would be acknowledged. DELETED is kept of fenced ledgers, MOVED of all: only closed ledgers are moved. A MOVED copy may
be wanted again, by a repair, which writes with recovery adds (I-66).

File `current/tombstones`, in one or more ledger directories, their union counts; records of 32 bytes, so that none lies
in two sectors:

    "pyTS" | kind u8, 1 = DELETED, 2 = MOVED | 3 zeros | ledger id i64 | deleted at, ms since 1970, i64
           | 4 zeros | CRC32C of the first 28 bytes u32

Differs from Apache: it keeps this in memory only, so a restart forgets it.
"""

from __future__ import annotations

import enum
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import crc32c

FILE_NAME = "tombstones"

KEPT_S = 7 * 24 * 3600
"""How long after the deletion; longer than a client lives on without hearing that its ledger is gone. As Apache."""

TOMBSTONES_MAX = 2_000_000
"""Beyond it the oldest go first: 12 bytes of memory and 32 bytes of file each."""

RECORD = struct.Struct(">4sB3xqq4xI")
RECORD_SIZE = RECORD.size
_MAGIC = b"pyTS"
_CHECKED_SIZE = RECORD_SIZE - 4

_RECENT_MAX = 4096
_HOUR_MS = 3_600_000
_NEVER = 1 << 62


class TombstoneKind(enum.Enum):
    """Why the ledger is not here any more."""

    DELETED = 1
    MOVED = 2


@dataclass(frozen=True, slots=True)
class Tombstone:
    """deleted_ms: since 1970."""

    ledger_id: int
    kind: TombstoneKind
    deleted_ms: int


def encode(tombstone: Tombstone) -> bytes:
    """A record."""
    data = RECORD.pack(_MAGIC, tombstone.kind.value, tombstone.ledger_id, tombstone.deleted_ms, 0)
    return data[:_CHECKED_SIZE] + crc32c.crc32c(data[:_CHECKED_SIZE]).to_bytes(4, "big")


def decode_all(data: bytes) -> tuple[list[Tombstone], list[int]]:
    """The intact records of a file, and the offsets of those that are not.

    A record cut at the end, or of zeros, is what a crash leaves of an append that was never reported done; it counts as
    not intact like any other.
    """
    found: list[Tombstone] = []
    damaged: list[int] = []
    for offset in range(0, len(data), RECORD_SIZE):
        record = data[offset : offset + RECORD_SIZE]
        tombstone = _decode(record)
        if tombstone is None:
            damaged.append(offset)
        else:
            found.append(tombstone)
    return found, damaged


def _decode(record: bytes) -> Tombstone | None:
    if len(record) < RECORD_SIZE:
        return None
    magic, kind, ledger_id, deleted_ms, crc = RECORD.unpack(record)
    if magic != _MAGIC or kind not in (1, 2) or crc != crc32c.crc32c(record[:_CHECKED_SIZE]):
        return None
    return Tombstone(ledger_id, TombstoneKind(kind), deleted_ms)


class TombstoneBook:
    """Tombstones by ledger id, compact: whole hours, and the kind in their lowest bit.

    The newest tombstone of a ledger counts. Thread: one at a time; `get` may be called while nobody else is in a call.
    """

    def __init__(self, *, count_max: int = TOMBSTONES_MAX) -> None:
        self._count_max = count_max
        self._ids = array("q")
        self._codes = array("I")
        self._recent: dict[int, int] = {}
        self._oldest = _NEVER  # hour; none is older

    def __len__(self) -> int:
        return len(self._ids) + sum(1 for ledger_id in self._recent if self._find(ledger_id) is None)

    def __bool__(self) -> bool:
        return bool(self._ids) or bool(self._recent)

    def get(self, ledger_id: int) -> TombstoneKind | None:
        """Why the ledger is gone; None when nothing is remembered of it."""
        code = self._recent.get(ledger_id)
        if code is None:
            place = self._find(ledger_id)
            if place is None:
                return None
            code = self._codes[place]
        return TombstoneKind.MOVED if code & 1 else TombstoneKind.DELETED

    def put(self, tombstones: Iterable[Tombstone]) -> int:
        """Remember these; return how many older ones had to go for them."""
        for tombstone in tombstones:
            code = tombstone.deleted_ms // _HOUR_MS << 1 | (tombstone.kind is TombstoneKind.MOVED)
            self._recent[tombstone.ledger_id] = code
            self._oldest = min(self._oldest, code >> 1)
        if len(self._recent) > _RECENT_MAX or len(self) > self._count_max:
            return self._merge()
        return 0

    def expire(self, now_ms: int) -> int:
        """Drop those older than KEPT_S; return how many. Cheap when there are none."""
        oldest = (now_ms - KEPT_S * 1000) // _HOUR_MS
        if self._oldest >= oldest:
            return 0
        before = len(self)
        self._rebuild((ledger_id, code) for ledger_id, code in self._items() if code >> 1 >= oldest)
        return before - len(self)

    def __iter__(self) -> Iterator[Tombstone]:
        """All of them, by ledger id; times are those of the whole hours."""
        for ledger_id, code in self._items():
            kind = TombstoneKind.MOVED if code & 1 else TombstoneKind.DELETED
            yield Tombstone(ledger_id, kind, (code >> 1) * _HOUR_MS)

    def _find(self, ledger_id: int) -> int | None:
        place = bisect_left(self._ids, ledger_id)
        return place if place < len(self._ids) and self._ids[place] == ledger_id else None

    def _items(self) -> Iterator[tuple[int, int]]:
        """All of them, by ledger id. The recent ones are few: the columns are cut where they belong, and not sorted."""
        ids, codes, at = self._ids, self._codes, 0
        for ledger_id, code in sorted(self._recent.items()):
            place = bisect_left(ids, ledger_id, at)
            yield from zip(ids[at:place], codes[at:place], strict=True)
            yield ledger_id, code
            at = place + (place < len(ids) and ids[place] == ledger_id)
        yield from zip(ids[at:], codes[at:], strict=True)

    def _merge(self) -> int:
        surplus = len(self) - self._count_max
        if surplus <= 0:
            self._rebuild(self._items())
            return 0
        gone = {ledger_id for ledger_id, _ in sorted(self._items(), key=lambda item: item[1])[:surplus]}
        self._rebuild(item for item in self._items() if item[0] not in gone)
        return surplus

    def _rebuild(self, items: Iterable[tuple[int, int]]) -> None:
        ids, codes, oldest = array("q"), array("I"), _NEVER
        for ledger_id, code in items:
            ids.append(ledger_id)
            codes.append(code)
            if code >> 1 < oldest:
                oldest = code >> 1
        self._ids, self._codes, self._recent, self._oldest = ids, codes, {}, oldest
