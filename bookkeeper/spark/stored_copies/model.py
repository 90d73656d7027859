"""What is asked of a bookie's stored copies, and what is answered. Pure; everything can be pickled.

Of an entry that a ledger's metadata places on the bookie the answers, plan and all units together, say one of:

    good       in some `GoodCopies`; this counts whatever else is said of it
    bad        in some `BadCopies`: there should be a copy, and it is no use
    unknown    in some `UnknownCopies`: could not be read, or what would name it could not
    missing    nowhere: certainly not held

Entries are kept in columns: four numbers an entry, no object.
"""

from __future__ import annotations

import enum
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from bookkeeper.bookie.gc.tombstones import TombstoneKind
from bookkeeper.model import DigestType, LogMark


@dataclass(frozen=True, slots=True)
class LedgerToVerify:
    """What its metadata say of a ledger. password: of the MAC digest; any other is not asked for it."""

    ledger_id: int
    digest_type: DigestType
    password: bytes = field(default=b"", repr=False)


# --- work -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PageRuns:
    """Index pages in columns: `counts` pages from `firsts` on, of a ledger whose file is in index directory `places`.

    Ledgers ascend, and the pages of one.
    """

    ledgers: array[int] = field(default_factory=lambda: array("q"))
    places: array[int] = field(default_factory=lambda: array("H"))
    firsts: array[int] = field(default_factory=lambda: array("I"))
    counts: array[int] = field(default_factory=lambda: array("I"))

    def add(self, ledger_id: int, place: int, page: int) -> None:
        """One page more, behind the others."""
        if self.ledgers and self.ledgers[-1] == ledger_id and self.firsts[-1] + self.counts[-1] == page:
            self.counts[-1] += 1
            return
        self.ledgers.append(ledger_id)
        self.places.append(place)
        self.firsts.append(page)
        self.counts.append(1)

    def by_ledger(self) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
        """Ledger id, index directory, (first page, number of pages) of each run."""
        start = 0
        while start < len(self.ledgers):
            ledger_id = self.ledgers[start]
            end = bisect_right(self.ledgers, ledger_id, start)
            yield ledger_id, self.places[start], list(zip(self.firsts[start:end], self.counts[start:end], strict=True))
            start = end


@dataclass(frozen=True, slots=True)
class LogUnit:
    """The copies that begin in a part of an entry log.

    start, end: offsets, `end` not included. size: bytes to be read at most. pages: of the indexes that name copies
    there. superseded: entries whose copy is in the journal, by ledger, ascending. doubtful: pages that are damaged:
    what they name is no copy unless it proves to be one. state: of the directories when this was planned.
    """

    log_id: int
    path: str
    start: int
    end: int
    size: int
    pages: PageRuns
    superseded: Mapping[int, array[int]]
    doubtful: frozenset[tuple[int, int]]
    state: int

    @property
    def ledger_ids(self) -> list[int]:
        """The ledgers that have copies there."""
        return list(dict.fromkeys(self.pages.ledgers))


@dataclass(frozen=True, slots=True)
class JournalUnit:
    """The copies that are in one journal behind its mark, so that the next start would replay them.

    index: of the journal. part, parts: every `parts`-th block of entries, so that no unit has too many. size: bytes to
    be read. ledgers: with copies there. repeated: entries that come more than once; the last one counts.
    superseded: entries that come in a later journal again. ledger ids and entry ids ascend.
    """

    index: int
    mark: LogMark
    part: int
    parts: int
    size: int
    ledgers: array[int]
    repeated: Mapping[int, array[int]]
    superseded: Mapping[int, array[int]]
    state: int

    @property
    def ledger_ids(self) -> list[int]:
        """The ledgers that have copies there."""
        return list(self.ledgers)


Unit = LogUnit | JournalUnit


# --- answers --------------------------------------------------------------------------------------------------------


class CopyFault(enum.Enum):
    """Why a copy is no use."""

    NO_PLACE = "the index names a place that does not exist"
    OTHER_ENTRY = "another entry is there"
    LENGTH = "its length cannot be right"
    DIGEST = "its digest is wrong"
    UNREADABLE = "the disk does not give its bytes"


@dataclass(slots=True)
class GoodCopies:
    """Copies of one ledger whose ids and digest are right, in columns of the same length; not in order.

    payload_crcs: CRC32C of the payload alone, so that copies packaged anew with another LAC have the same one, and two
    good copies with different ones have different payloads. lengths: the length field of each header.
    """

    ledger_id: int
    entry_ids: array[int] = field(default_factory=lambda: array("q"))
    payload_crcs: array[int] = field(default_factory=lambda: array("I"))
    payload_sizes: array[int] = field(default_factory=lambda: array("I"))
    lengths: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.entry_ids)

    def ranges(self) -> list[tuple[int, int]]:
        """First and last entry of each run of entries."""
        return runs(sorted(self.entry_ids))


@dataclass(frozen=True, slots=True)
class BadCopies:
    """Copies of consecutive entries, both ends included, that are bad for the same reason.

    path, offset: where the first one's body is, or would be. detail: what was found of the first one.
    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    fault: CopyFault
    path: str
    offset: int
    detail: str


@dataclass(frozen=True, slots=True)
class UnknownCopies:
    """Entries of which nothing can be said but what is said elsewhere, and why.

    ledger_id: None for every ledger. last_entry_id: included; None for all from the first on.
    """

    ledger_id: int | None
    first_entry_id: int
    last_entry_id: int | None
    path: str
    why: str


@dataclass(slots=True)
class OtherLedger:
    """A ledger that is held and was not asked for. byte_count: bodies, header and digest included."""

    entry_count: int = 0
    byte_count: int = 0


@dataclass(slots=True)
class UnitResult:
    """What was found in one unit. bytes_read: from entry log or journal. bytes_verified: payloads of good copies."""

    good: dict[int, GoodCopies] = field(default_factory=dict)
    bad: list[BadCopies] = field(default_factory=list)
    unknown: list[UnknownCopies] = field(default_factory=list)
    others: dict[int, OtherLedger] = field(default_factory=dict)
    bytes_read: int = 0

    @property
    def bytes_verified(self) -> int:
        """Of the payloads of all good copies."""
        return sum(sum(copies.payload_sizes) for copies in self.good.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """All work on one bookie, and what could be said before it.

    ledger_ids: of all ledgers that are held, ascending; some may have no entry. tombstones: why a ledger was deleted
    here; one that is held all the same was being deleted, or came back with a replay or a repair. bad, unknown: as in
    `UnitResult`; they belong to the answer.
    """

    bookie_id: str
    instance_id: str | None
    units: tuple[Unit, ...]
    ledger_ids: array[int]
    tombstones: Mapping[int, TombstoneKind]
    bad: tuple[BadCopies, ...]
    unknown: tuple[UnknownCopies, ...]

    @property
    def size(self) -> int:
        """Bytes that the units read at most."""
        return sum(unit.size for unit in self.units)


# --- columns --------------------------------------------------------------------------------------------------------


def runs(ascending: Iterable[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers; a number may repeat."""
    found: list[tuple[int, int]] = []
    numbers = list(ascending)
    if not numbers:
        return found
    first = numbers[0]
    for one, following in pairwise(numbers):
        if following > one + 1:
            found.append((first, one))
            first = following
    found.append((first, numbers[-1]))
    return found


def joined(copies: Iterable[BadCopies]) -> list[BadCopies]:
    """The same with neighbours that have the same fault in the same file made one."""
    found: list[BadCopies] = []
    for one in sorted(copies, key=lambda one: (one.ledger_id, one.first_entry_id)):
        last = found[-1] if found else None
        if (
            last is not None
            and (last.ledger_id, last.fault, last.path) == (one.ledger_id, one.fault, one.path)
            and one.first_entry_id <= last.last_entry_id + 1
        ):
            found[-1] = BadCopies(
                last.ledger_id,
                last.first_entry_id,
                max(last.last_entry_id, one.last_entry_id),
                last.fault,
                last.path,
                last.offset,
                last.detail,
            )
        else:
            found.append(one)
    return found
