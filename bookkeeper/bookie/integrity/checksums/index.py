"""Checksums of index pages: the records they are kept in, and the table that the records build. Pure.

Apache's index file has no room for checksums, and a page whose locations turned into zeros says "no entry" of entries
that are there (I-31, I-59). So each index directory has one file `indexChecksums` (Apache ignores it), a row of records
that are appended and now and then written anew; each is a multiple of 512 bytes, so that a power cut tears what was
not synced and no other:

    0     "pyID" | kind u32 | count u32 | size u32 | offset u64, where the record is
    24    synced u64: what is before it in the file was durable when the record was written
    32    count x ledger i64, then count x page u32, then count x value i64 (the columns that the kind has)
          zeros
    -4    CRC32C of the bytes before u32

    kind       columns                 meaning
    HOLD       ledger, page, value     these pages have these checksums
    WRITING    ledger, page, value     these pages are about to be written; synced before they are
    SETTLED                            the pages of all WRITING before are written, synced, and so are their names
    VOID                               what is not settled never will be: those pages are unknown
    GONE       ledger                  these ledgers are being deleted; synced before their files are
    LOGS       ledger (one)            the highest id of an entry log this bookie has made; synced before it is
    COMPLETE                           all pages of the directory have been read once; those not known are zeros

    value      CRC32C of the 8192 bytes, zeros behind the end of the file included
               DAMAGED | c   the page was written although its old bytes failed their checksum: its zeros mean nothing;
                         c: the CRC32C it would have but for that damage, 0 where that is not known
               UNKNOWN   nothing is known any more
    page       HEADER_ROW   of a ledger that has no page: its file exists

What a crash leaves behind: WRITING without SETTLED, pages that have their old bytes or the new ones; nothing is known
of them then, until the replay writes them again or the scrub has read them. But that the file of a ledger must be there
stays known, and that a page was damaged: the journal has neither. SETTLED is synced before the mark moves, so of
every ledger that the journal may forget it is known that it has a file. A bad record that no good one behind it knows
to be durable was not synced, nor was anything behind it: of several the disk may have stored the last alone. Nothing
that they speak of was begun, and the file ends there. One that is known to have been durable is damage: the file is
dropped, as is that of a bookie that finds a newer entry log than it has made (Apache's has written to the index since):
everything is unknown then, and read anew by the scrub.
"""

from __future__ import annotations

import enum
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import crc32c

FILE_NAME = "indexChecksums"
ALIGNMENT = 512
MAGIC = b"pyID"
RECORD_ROWS_MAX = 8192
RECORD_SIZE_MAX = 512 * 1024
DAMAGED = 1 << 32
UNKNOWN = -1
HEADER_ROW = 0xFFFFFFFF

_HEAD = struct.Struct(">4sIIIQQ")
HEAD_SIZE = _HEAD.size
ROW_SIZE = 8 + 4 + 8


class Kind(enum.IntEnum):
    """What a record says."""

    HOLD = 1
    WRITING = 2
    SETTLED = 3
    GONE = 4
    LOGS = 5
    VOID = 6
    COMPLETE = 7


_WITH_VALUES = frozenset({Kind.HOLD, Kind.WRITING})


@dataclass(slots=True)
class Rows:
    """Columns: ledger ids, page numbers, values; the last two empty where a record has none."""

    ledgers: array[int] = field(default_factory=lambda: array("q"))
    pages: array[int] = field(default_factory=lambda: array("I"))
    values: array[int] = field(default_factory=lambda: array("q"))

    def add(self, ledger_id: int, page: int, value: int) -> None:
        """One row more."""
        self.ledgers.append(ledger_id)
        self.pages.append(page)
        self.values.append(value)

    def __len__(self) -> int:
        return len(self.ledgers)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.ledgers, self.pages, self.values, strict=True)

    def unknown(self) -> Rows:
        """The same pages, of which nothing is known; but those that are damaged whether they were written or not."""
        values = array("q", [DAMAGED if is_damaged(value) else UNKNOWN for value in self.values])
        return Rows(self.ledgers[:], self.pages[:], values)

    def without(self, ledger_ids: set[int]) -> Rows:
        """The rows of other ledgers."""
        left = Rows()
        for row in self:
            if row[0] not in ledger_ids:
                left.add(*row)
        return left

    def part(self, start: int, stop: int) -> Rows:
        """Some of the rows."""
        return Rows(self.ledgers[start:stop], self.pages[start:stop], self.values[start:stop])


@dataclass(frozen=True, slots=True)
class Record:
    """One record as read. size: bytes it takes in the file. synced: what was durable before it, from the begin."""

    kind: Kind
    rows: Rows
    size: int
    synced: int


def page_checksum(data: bytes) -> int:
    """The value of a page of 8192 bytes; `data` may lack zeros at its end."""
    return crc32c.crc32c(data.ljust(8192, b"\0"))


def is_damaged(value: int) -> bool:
    """True for DAMAGED, whatever checksum comes with it."""
    return value >= DAMAGED


def damaged_value(value: int, before: bytes = b"", after: bytes = b"") -> int:
    """DAMAGED, with the checksum that a page would have but for its damage, where that is known.

    value: what was noted of the page so far. before, after: what its file has and gets. CRC32C is linear: a change of
    some bytes changes the checksum by the same bits, whatever the other bytes are.
    """
    expected = expected_checksum(value)
    return DAMAGED if expected is None else DAMAGED | expected ^ page_checksum(before) ^ page_checksum(after)


def expected_checksum(value: int) -> int | None:
    """The checksum that the page would have but for its damage, None where it is not known."""
    return None if value in (UNKNOWN, DAMAGED) else value & DAMAGED - 1


def encode_record(kind: Kind, rows: Rows, offset: int, synced: int) -> bytes:
    """The bytes of a record that is put at `offset`. rows: at most RECORD_ROWS_MAX. synced: see the module."""
    columns = _big_endian(rows.ledgers)
    if kind in _WITH_VALUES:
        columns += _big_endian(rows.pages) + _big_endian(rows.values)
    size = _HEAD.size + len(columns) + 4
    size += -size % ALIGNMENT
    body = (_HEAD.pack(MAGIC, kind, len(rows), size, offset, synced) + columns).ljust(size - 4, b"\0")
    return body + crc32c.crc32c(body).to_bytes(4, "big")


def record_size(head: bytes, offset: int) -> int | None:
    """Bytes of the record that begins like this; None when none begins like this at this place."""
    if len(head) < _HEAD.size:
        return None
    magic, _, count, size, found_offset, _ = _HEAD.unpack_from(head)
    good = magic == MAGIC and found_offset == offset and size % ALIGNMENT == 0 and _HEAD.size + 4 <= size
    return int(size) if good and size <= RECORD_SIZE_MAX and count <= RECORD_ROWS_MAX else None


def decode_record(data: bytes, offset: int) -> Record | None:
    """The record; None unless it is intact and was written at this place."""
    size = record_size(data, offset)
    if size is None or len(data) != size or crc32c.crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
        return None
    _, kind, count, _, _, synced = _HEAD.unpack_from(data)
    try:
        kind = Kind(kind)
    except ValueError:
        return None
    rows = Rows()
    at = _HEAD.size
    if at + count * (ROW_SIZE if kind in _WITH_VALUES else 8) > size - 4:
        return None
    rows.ledgers = _from_big_endian("q", data[at : at + 8 * count])
    if kind in _WITH_VALUES:
        at += 8 * count
        rows.pages = _from_big_endian("I", data[at : at + 4 * count])
        at += 4 * count
        rows.values = _from_big_endian("q", data[at : at + 8 * count])
    return Record(kind, rows, size, synced)


def _big_endian(column: array[int]) -> bytes:
    if sys.byteorder == "little":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _from_big_endian(code: str, data: bytes) -> array[int]:
    column = array(code, data)
    if sys.byteorder == "little":
        column.byteswap()
    return column


# --- the table ------------------------------------------------------------------------------------------------------

RECENT_ROWS_MIN = 65_536
"""So many changed rows, or a quarter of all, are kept aside before they are put in order with the others."""


class ChecksumTable:
    """(ledger, page) -> value. 20 bytes of memory for an index page: 20 MB for a million of small ledgers.

    In order of ledger and page, three columns; what changed since lies beside them in dictionaries.
    """

    __slots__ = ("_gone", "_recent", "_recent_count", "_rows")

    def __init__(self) -> None:
        self._rows = Rows()
        self._recent: dict[int, dict[int, int]] = {}
        self._recent_count = 0
        self._gone: set[int] = set()  # ledgers whose rows in the columns count no more

    def __len__(self) -> int:
        """Rows, about: one that changed may count twice."""
        return len(self._rows) + self._recent_count

    def get(self, ledger_id: int, page: int) -> int:
        """The value of a page, UNKNOWN when nothing is known."""
        recent = self._recent.get(ledger_id)
        if recent is not None and (value := recent.get(page)) is not None:
            return value
        places, pages = self._places(ledger_id), self._rows.pages
        at = bisect_left(pages, page, places.start, places.stop)
        return self._rows.values[at] if at < places.stop and pages[at] == page else UNKNOWN

    @property
    def any_damaged(self) -> bool:
        """True when some page is DAMAGED; one of a ledger that was dropped may count."""
        recent = (max(pages.values()) for pages in self._recent.values() if pages)
        return is_damaged(max(self._rows.values, default=UNKNOWN)) or any(map(is_damaged, recent))

    def pages_of(self, ledger_id: int) -> dict[int, int]:
        """The known pages of a ledger with their values; empty for one of which nothing is known."""
        pages = {self._rows.pages[at]: self._rows.values[at] for at in self._places(ledger_id)}
        pages.update(self._recent.get(ledger_id, {}))
        return {page: value for page, value in pages.items() if value != UNKNOWN}

    def _places(self, ledger_id: int) -> range:
        ledgers = self._rows.ledgers
        low = bisect_left(ledgers, ledger_id)
        if low == len(ledgers) or ledgers[low] != ledger_id or ledger_id in self._gone:
            return range(0)
        return range(low, bisect_left(ledgers, ledger_id + 1, low))

    def put(self, rows: Rows) -> None:
        """Set values."""
        for ledger_id, page, value in rows:
            recent = self._recent.setdefault(ledger_id, {})
            self._recent_count += page not in recent
            recent[page] = value

    def drop(self, ledger_ids: Sequence[int]) -> None:
        """Forget ledgers."""
        for ledger_id in ledger_ids:
            self._recent_count -= len(self._recent.pop(ledger_id, ()))
            self._gone.add(ledger_id)

    @property
    def should_merge(self) -> bool:
        """True when many rows changed since the last time."""
        return self._recent_count + len(self._gone) > max(RECENT_ROWS_MIN, len(self._rows) // 4)

    def merged(self) -> Rows:
        """All that is known, in order. Changes nothing: others may look up values meanwhile."""
        old, new, at = self._rows, Rows(), 0
        for ledger_id in sorted({*self._recent, *self._gone}):
            low = bisect_left(old.ledgers, ledger_id, at)
            _extend(new, old, at, low)
            at = bisect_left(old.ledgers, ledger_id + 1, low)
            for page, value in sorted(self.pages_of(ledger_id).items()):
                new.add(ledger_id, page, value)
        _extend(new, old, at, len(old))
        return new

    def replace(self, rows: Rows) -> None:
        """Take what `merged` returned, nothing having changed since; it is not to be changed any more."""
        self._rows, self._recent, self._recent_count, self._gone = rows, {}, 0, set()


def _extend(rows: Rows, more: Rows, start: int, stop: int) -> None:
    rows.ledgers += more.ledgers[start:stop]
    rows.pages += more.pages[start:stop]
    rows.values += more.values[start:stop]
