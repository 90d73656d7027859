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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import compress

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
_AT_ONCE = 16_384
"""Looked at in one step that holds the interpreter."""

_SLACK_SHARE = 256
"""Of the bound: so many more go where there are too many, so that the next ones do not make it necessary again."""

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


@dataclass(frozen=True, slots=True)
class Columns:
    """Tombstones by ledger id; codes: whole hours, and the kind in the lowest bit.

    oldest: an hour that none is older than. surplus: how many went because there were too many.
    """

    ids: array[int]
    codes: array[int]
    oldest: int = _NEVER
    surplus: int = 0


class TombstoneBook:
    """Tombstones in columns, and those that came last beside them. The newest tombstone of a ledger counts.

    To put columns in order takes a second where there are millions: `merged` and `unexpired` make new ones and change
    nothing, so that others may go on with `get` until `replace`.

    Thread: one at a time that changes; `get` beside `merged` and `unexpired` alone.
    """

    def __init__(self, *, count_max: int = TOMBSTONES_MAX) -> None:
        self._count_max = count_max
        self._columns = Columns(array("q"), array("I"))
        self._recent: dict[int, int] = {}
        self._recent_oldest = _NEVER

    def __len__(self) -> int:
        return len(self._columns.ids) + sum(1 for ledger_id in self._recent if self._find(ledger_id) is None)

    def __bool__(self) -> bool:
        return bool(self._columns.ids) or bool(self._recent)

    def get(self, ledger_id: int) -> TombstoneKind | None:
        """Why the ledger is gone; None when nothing is remembered of it."""
        code = self._recent.get(ledger_id)
        if code is None:
            place = self._find(ledger_id)
            if place is None:
                return None
            code = self._columns.codes[place]
        return TombstoneKind.MOVED if code & 1 else TombstoneKind.DELETED

    def put(self, tombstones: Iterable[Tombstone]) -> None:
        """Remember these. `merged` is to follow where it is due."""
        for tombstone in tombstones:
            code = tombstone.deleted_ms // _HOUR_MS << 1 | (tombstone.kind is TombstoneKind.MOVED)
            self._recent[tombstone.ledger_id] = code
            self._recent_oldest = min(self._recent_oldest, code >> 1)

    @property
    def should_merge(self) -> bool:
        """True when many came since the last time, or there are too many."""
        count = len(self._recent)
        return count > _RECENT_MAX or (count + len(self._columns.ids) > self._count_max and len(self) > self._count_max)

    def merged(self) -> Columns:
        """All of them in order; without the oldest, and some more, where they are too many."""
        columns = self._in_order()
        surplus = len(columns.ids) - self._count_max
        if surplus <= 0:
            return columns
        return _without_oldest(columns, surplus + self._count_max // _SLACK_SHARE)

    def unexpired(self, now_ms: int) -> Columns | None:
        """Without those older than KEPT_S; None, at once, when there are none."""
        oldest = (now_ms - KEPT_S * 1000) // _HOUR_MS
        if min(self._columns.oldest, self._recent_oldest) >= oldest:
            return None
        return _chosen(self._in_order(), lambda code: code >> 1 >= oldest)

    def replace(self, columns: Columns) -> None:
        """Take what `merged` or `unexpired` returned, nothing having been put since."""
        self._columns, self._recent, self._recent_oldest = columns, {}, _NEVER

    def __iter__(self) -> Iterator[Tombstone]:
        """All of them, by ledger id; times are those of the whole hours."""
        columns = self._in_order()
        for ledger_id, code in zip(columns.ids, columns.codes, strict=True):
            kind = TombstoneKind.MOVED if code & 1 else TombstoneKind.DELETED
            yield Tombstone(ledger_id, kind, (code >> 1) * _HOUR_MS)

    def _find(self, ledger_id: int) -> int | None:
        ids = self._columns.ids
        place = bisect_left(ids, ledger_id)
        return place if place < len(ids) and ids[place] == ledger_id else None

    def _in_order(self) -> Columns:
        """The recent ones are few: the columns are cut where they belong, and not sorted."""
        ids, codes, at = self._columns.ids, self._columns.codes, 0
        new_ids, new_codes = array("q"), array("I")
        for ledger_id, code in sorted(self._recent.items()):
            place = bisect_left(ids, ledger_id, at)
            _extend(new_ids, ids, at, place)
            _extend(new_codes, codes, at, place)
            new_ids.append(ledger_id)
            new_codes.append(code)
            at = place + (place < len(ids) and ids[place] == ledger_id)
        _extend(new_ids, ids, at, len(ids))
        _extend(new_codes, codes, at, len(ids))
        return Columns(new_ids, new_codes, min(self._columns.oldest, self._recent_oldest))


def _extend(column: array[int], more: array[int], start: int, stop: int) -> None:
    for low in range(start, stop, _AT_ONCE):
        column += more[low : min(stop, low + _AT_ONCE)]


def _without_oldest(columns: Columns, count: int) -> Columns:
    """Without so many of the oldest. Hours are few: they are counted, and nothing is sorted."""
    in_hour: Counter[int] = Counter()
    for start in range(0, len(columns.codes), _AT_ONCE):
        in_hour.update(code >> 1 for code in columns.codes[start : start + _AT_ONCE])
    last, left = _NEVER, count
    for hour in sorted(in_hour):
        last = hour
        if in_hour[hour] >= left:
            break
        left -= in_hour[hour]

    def stays(code: int) -> bool:
        nonlocal left
        if code >> 1 == last and left > 0:
            left -= 1
            return False
        return code >> 1 >= last

    chosen = _chosen(columns, stays)
    return Columns(chosen.ids, chosen.codes, chosen.oldest, len(columns.ids) - len(chosen.ids))


def _chosen(columns: Columns, stays: Callable[[int], bool]) -> Columns:
    """Those whose codes are to stay, in pieces: no other thread waits long for the interpreter."""
    ids, codes, oldest = array("q"), array("I"), _NEVER
    for start in range(0, len(columns.ids), _AT_ONCE):
        some = columns.codes[start : start + _AT_ONCE]
        flags = [stays(code) for code in some]
        ids.extend(compress(columns.ids[start : start + _AT_ONCE], flags))
        kept = array("I", compress(some, flags))
        codes += kept
        oldest = min(oldest, min(kept, default=_NEVER << 1) >> 1)
    return Columns(ids, codes, oldest)
