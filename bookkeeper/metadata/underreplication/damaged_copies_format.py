"""Copies that the bookie holding them found bad: U/badcopies/urL%010d, protobuf text. Pure.

    range { bookieId: "10.0.0.1:3181" firstEntryId: 17 lastEntryId: 40 reason: "checksum" ctime: 1700000000000 }

Not Apache's, and no Apache program looks at it. A bookie that finds a damaged file reports what it can no longer serve;
a replication worker writes it anew from the other copies and takes the ranges out again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bookkeeper.errors import InvalidMetadata, MetadataCorrupt
from bookkeeper.metadata.textproto import parse_text, print_text
from bookkeeper.model import BookieId, EntryId, LedgerId
from bookkeeper.wire.proto import DataFormats_pb2 as pb

BAD_RANGES_MAX = 512
"""Ranges noted per ledger; beyond it ranges of one bookie are joined over the good entries between them."""

REASON_SIZE_MAX = 600
"""Characters that a reason takes as text, where a byte beyond ASCII takes four. Enough for a path and a remedy; with
the bound on ranges, a node stays below ZooKeeper's megabyte."""

CUT = "..."
"""The end of a reason that was longer."""


@dataclass(frozen=True, slots=True, order=True)
class BadRange:
    """Entries first..last, both inclusive, of which a bookie says that its own copies are bad.

    It may cover good copies as well: readers check. reported_ms: since 1970; None where that is not noted.
    """

    bookie_id: BookieId
    first_entry_id: EntryId
    last_entry_id: EntryId
    reason: str = ""
    reported_ms: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.first_entry_id <= self.last_entry_id:
            raise InvalidMetadata(f"{self.first_entry_id}..{self.last_entry_id} is not a range of entries")


@dataclass(frozen=True, slots=True)
class BadCopies:
    """What is noted of one ledger; version, creation_id: of the znode, what a change names."""

    ledger_id: LedgerId
    ranges: tuple[BadRange, ...]
    version: int
    creation_id: int


def format_bad_copies(ranges: Iterable[BadRange]) -> bytes:
    """The bytes of a ledger's bad copies."""
    return print_text(
        pb.BadCopiesFormat(
            range=[
                pb.BadCopiesFormat.Range(
                    bookieId=bad.bookie_id,
                    firstEntryId=bad.first_entry_id,
                    lastEntryId=bad.last_entry_id,
                    reason=bounded_reason(bad.reason) or None,
                    ctime=bad.reported_ms,
                )
                for bad in ranges
            ]
        )
    )


def bounded_reason(reason: str) -> str:
    """The reason, or so much of its beginning as fits into REASON_SIZE_MAX, with CUT behind it."""
    size, kept = 0, 0
    for at, character in enumerate(reason):
        size += _printed_size(character)
        if size > REASON_SIZE_MAX:
            return reason[:kept] + CUT
        if size <= REASON_SIZE_MAX - len(CUT):
            kept = at + 1
    return reason


def _printed_size(character: str) -> int:
    """At most: each byte that is no plain character is printed as four."""
    if character.isascii() and character.isprintable() and character not in "\"'\\":
        return 1
    return 4 * len(character.encode(errors="replace"))


def parse_bad_copies(data: bytes, path: str) -> tuple[BadRange, ...]:
    """A ledger's bad copies. Raises MetadataCorrupt."""
    try:
        return tuple(
            BadRange(
                BookieId(bad.bookieId),
                EntryId(bad.firstEntryId),
                EntryId(bad.lastEntryId),
                bad.reason,
                bad.ctime if bad.HasField("ctime") else None,
            )
            for bad in parse_text(data, pb.BadCopiesFormat(), path).range
        )
    except InvalidMetadata as error:
        raise MetadataCorrupt(f"{path}: {error}") from error


def join_ranges(ranges: Iterable[BadRange]) -> tuple[BadRange, ...]:
    """All of them, sorted, those of one bookie that overlap or touch as one; at most BAD_RANGES_MAX.

    A joined range has the reason and the time that were noted last. Too many are made fewer by joining over the
    smallest gaps of one bookie: it loses nothing, some good copies are looked at in vain.
    """
    joined: list[BadRange] = []
    for bad in sorted(ranges, key=lambda bad: (bad.bookie_id, bad.first_entry_id, bad.last_entry_id)):
        if joined and _gap(joined[-1], bad) <= 0:
            joined[-1] = _over(joined[-1], bad)
        else:
            joined.append(bad)
    excess = len(joined) - BAD_RANGES_MAX
    if excess <= 0:
        return tuple(joined)
    # Joining two ranges changes no other gap, so the smallest gaps can be chosen at once.
    inside = [at for at in range(1, len(joined)) if joined[at - 1].bookie_id == joined[at].bookie_id]
    closed = set(sorted(inside, key=lambda at: _gap(joined[at - 1], joined[at]))[:excess])
    fewer: list[BadRange] = []
    for at, bad in enumerate(joined):
        if at in closed:
            fewer[-1] = _over(fewer[-1], bad)
        else:
            fewer.append(bad)
    return tuple(fewer)


def without_ranges(ranges: Iterable[BadRange], removed: Iterable[BadRange]) -> tuple[BadRange, ...]:
    """What of `ranges` is left without the entries of `removed`, bookie by bookie."""
    left = list(ranges)
    for gone in removed:
        left = [part for bad in left for part in _minus(bad, gone)]
    return tuple(left)


_APART = 2**63
"""More than there can be between two ranges of one bookie."""


def _gap(one: BadRange, next_one: BadRange) -> int:
    """Entries between two ranges; _APART where they are two bookies'."""
    if one.bookie_id != next_one.bookie_id:
        return _APART
    return next_one.first_entry_id - one.last_entry_id - 1


def _over(one: BadRange, other: BadRange) -> BadRange:
    newer = max(one, other, key=lambda bad: -1 if bad.reported_ms is None else bad.reported_ms)
    return BadRange(
        one.bookie_id,
        min(one.first_entry_id, other.first_entry_id),
        max(one.last_entry_id, other.last_entry_id),
        newer.reason or one.reason or other.reason,
        newer.reported_ms,
    )


def _minus(bad: BadRange, gone: BadRange) -> list[BadRange]:
    if (
        bad.bookie_id != gone.bookie_id
        or gone.last_entry_id < bad.first_entry_id
        or bad.last_entry_id < gone.first_entry_id
    ):
        return [bad]
    parts = []
    if bad.first_entry_id < gone.first_entry_id:
        parts.append(
            BadRange(bad.bookie_id, bad.first_entry_id, EntryId(gone.first_entry_id - 1), bad.reason, bad.reported_ms)
        )
    if gone.last_entry_id < bad.last_entry_id:
        parts.append(
            BadRange(bad.bookie_id, EntryId(gone.last_entry_id + 1), bad.last_entry_id, bad.reason, bad.reported_ms)
        )
    return parts
