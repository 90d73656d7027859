"""Notes by which a bookie recognises a metadata store that went back in time. Pure. Not Apache's.

    U/history/<bookie id>            JSON, at most REPORT_SIZE_MAX bytes: the bookie's counter and its last report
        {"format": "bookkeeper history", "version": 1, "counter": 57, "reported_ms": ..., "finding": "...", ...}
    U/history                        JSON: raises of the id generators, with the values before each
        {"format": "bookkeeper id generators", "version": 1, "raises": [[1, 57, 0], [2, 90, 0]]}
    U/history/<bookie id>/decision   JSON: an operator's decision; the bookie removes it once it is applied
        {"format": "bookkeeper history decision", "version": 1, "decision": "discard", "ledgers": [[17, 20]]}

The counter only rises, and the bookie keeps on its own disk the highest value that it has written here. A smaller
value, or none, shows that the store was restored from a copy older than the bookie's last note. A bookie that was away
for long has no other evidence: the id generators and the transaction numbers of a restored store rise again.

Raising the generators past the ids of forgotten ledgers would destroy the evidence for the other bookies. So the values
before each raise are noted first, under a number. A bookie that finds a new number compares with the values noted.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bookkeeper.errors import MetadataCorrupt, MetadataTooNew
from bookkeeper.metadata.ledgers.paths import LEDGER_ID_MAX, SHORT_ID_LIMIT
from bookkeeper.texts import parse_json

VERSION = 1
REPORT_FORMAT = "bookkeeper history"
DECISION_FORMAT = "bookkeeper history decision"
RAISES_FORMAT = "bookkeeper id generators"

RAISES_MAX = 64
"""Maximum number of raises noted separately. Older raises are joined into one, with the lowest values before them."""

REPORT_SIZE_MAX = 256 * 1024
DECISION_SIZE_MAX = 512 * 1024

RANGES_MAX = 2048
"""Ranges of ledger ids in one report or decision."""

Ranges = tuple[tuple[int, int], ...]
"""Ranges of ledger ids, both ends included, ascending, not adjacent."""


@dataclass(frozen=True, slots=True)
class GeneratedIds:
    """The ids that the generators have given out: short ids below `short`, and long ids below `long`.

    A generator only counts up; that of long ids starts at 1 << 32. Ids that clients choose may lie anywhere.
    """

    short: int = 0
    long: int = 0

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id < (self.short if ledger_id < SHORT_ID_LIMIT else self.long)

    def is_behind(self, other: GeneratedIds) -> bool:
        """Return whether either generator shows less than in `other`."""
        return self.short < other.short or self.long < other.long

    def joined(self, other: GeneratedIds) -> GeneratedIds:
        """Return the higher value of each generator."""
        return GeneratedIds(max(self.short, other.short), max(self.long, other.long))

    def lower(self, other: GeneratedIds) -> GeneratedIds:
        """Return the lower value of each generator."""
        return GeneratedIds(min(self.short, other.short), min(self.long, other.long))


@dataclass(frozen=True, slots=True)
class Raise:
    """A raise of the generators past the ids of forgotten ledgers. shown: the values before it."""

    number: int
    shown: GeneratedIds


def with_raise(raises: Sequence[Raise], shown: GeneratedIds, number_min: int = 1) -> tuple[Raise, ...]:
    """Return the raises and one more, at most RAISES_MAX. number_min: lower bound of the new raise's number."""
    more = [*raises, Raise(max(raises[-1].number + 1 if raises else 1, number_min), shown)]
    while len(more) > RAISES_MAX:
        more[:2] = [Raise(more[1].number, more[0].shown.lower(more[1].shown))]
    return tuple(more)


def shown_since(raises: Sequence[Raise], number: int, now: GeneratedIds) -> GeneratedIds:
    """Return the lowest values that the generators have shown since raise `number`. now: the present values."""
    for each in raises:
        if each.number > number:
            now = now.lower(each.shown)
    return now


def format_raises(raises: Sequence[Raise]) -> bytes:
    """Return the content of U/history."""
    found = [[each.number, each.shown.short, each.shown.long] for each in raises]
    return json.dumps({"format": RAISES_FORMAT, "version": VERSION, "raises": found}, separators=(",", ":")).encode()


def parse_raises(data: bytes, path: str) -> tuple[Raise, ...]:
    """Return the raises in the content of U/history, none if it is empty. Raises MetadataCorrupt, MetadataTooNew."""
    if not data:
        return ()
    record = _Record(data, path, RAISES_FORMAT, REPORT_SIZE_MAX)
    found = [Raise(number, GeneratedIds(short, long)) for number, short, long in record.rows("raises", 3)]
    if any(before.number >= after.number for before, after in pairwise(found)):
        raise MetadataCorrupt(f"{path}: the numbers of the raises do not ascend")
    return tuple(found)


class Verdict(enum.Enum):
    """An operator's decision about ledgers that a bookie holds and the store does not have."""

    KEEP = "keep"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with the ledgers to discard, none for KEEP.

    version, creation_id: of the znode; 0 before it is stored.
    """

    verdict: Verdict
    ledgers: Ranges = ()
    version: int = 0
    creation_id: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of a bookie's last garbage collection. Ledger ids are ranges, the first RANGES_MAX of them.

    finding: why nothing is collected, or "". ids: the highest generator values that the bookie has seen. absent:
    ledgers that the bookie holds and the store does not have. kept: absent ledgers that are kept for an operator.
    """

    reported_ms: int = 0
    finding: str = ""
    ids: GeneratedIds = field(default_factory=GeneratedIds)
    held_count: int = 0
    held_newest: int = -1
    absent_count: int = 0
    absent: Ranges = ()
    kept_count: int = 0
    kept: Ranges = ()


@dataclass(frozen=True, slots=True)
class Note:
    """The content of a bookie's znode, with the version of the znode."""

    counter: int
    report: Report
    version: int = 0


def format_note(counter: int, report: Report) -> bytes:
    """Return the content of a bookie's znode."""
    return json.dumps(
        {
            "format": REPORT_FORMAT,
            "version": VERSION,
            "counter": counter,
            "reported_ms": report.reported_ms,
            "finding": report.finding,
            "short_ids": report.ids.short,
            "long_ids": report.ids.long,
            "held_count": report.held_count,
            "held_newest": report.held_newest,
            "absent_count": report.absent_count,
            "absent": report.absent[:RANGES_MAX],
            "kept_count": report.kept_count,
            "kept": report.kept[:RANGES_MAX],
        },
        separators=(",", ":"),
    ).encode()


def parse_note(data: bytes, path: str, version: int) -> Note:
    """Parse the content of a bookie's znode. Raises MetadataCorrupt, MetadataTooNew."""
    record = _Record(data, path, REPORT_FORMAT, REPORT_SIZE_MAX)
    report = Report(
        reported_ms=record.number("reported_ms", -1),
        finding=record.text("finding"),
        ids=GeneratedIds(record.number("short_ids"), record.number("long_ids")),
        held_count=record.number("held_count"),
        held_newest=record.number("held_newest", -1),
        absent_count=record.number("absent_count"),
        absent=record.ranges("absent"),
        kept_count=record.number("kept_count"),
        kept=record.ranges("kept"),
    )
    return Note(record.number("counter"), report, version)


def format_decision(decision: Decision) -> bytes:
    """Return the content of a decision's znode."""
    return json.dumps(
        {
            "format": DECISION_FORMAT,
            "version": VERSION,
            "decision": decision.verdict.value,
            "ledgers": decision.ledgers,
        },
        separators=(",", ":"),
    ).encode()


def parse_decision(data: bytes, path: str, version: int, creation_id: int) -> Decision:
    """Parse the content of a decision's znode. Raises MetadataCorrupt, MetadataTooNew."""
    record = _Record(data, path, DECISION_FORMAT, DECISION_SIZE_MAX)
    word = record.text("decision")
    try:
        verdict = Verdict(word)
    except ValueError as error:
        raise MetadataCorrupt(f"{path}: {word!r} is not a decision") from error
    return Decision(verdict, record.ranges("ledgers"), version, creation_id)


class _Record:
    """The fields of one JSON object, each checked."""

    def __init__(self, data: bytes, path: str, form: str, size_max: int) -> None:
        self._path = path
        if len(data) > size_max:
            raise MetadataCorrupt(f"{path}: {len(data)} bytes, more than the limit of {size_max}")
        try:
            found: Any = parse_json(data)
        except ValueError as error:
            raise MetadataCorrupt(f"{path}: not JSON: {error}") from error
        if not isinstance(found, dict) or found.get("format") != form:
            raise MetadataCorrupt(f"{path}: not in the format {form!r}: {data[:100]!r}")
        self._fields: dict[str, Any] = found
        version = self.number("version")
        if version > VERSION:
            raise MetadataTooNew(f"{path}: format version {version}; this release reads up to {VERSION}")

    def number(self, name: str, least: int = 0) -> int:
        value = self._fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LEDGER_ID_MAX:
            raise MetadataCorrupt(f"{self._path}: {name} is {value!r}, not a number of at least {least}")
        return value

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise MetadataCorrupt(f"{self._path}: {name} is {value!r}, not a string")
        return value

    def rows(self, name: str, width: int) -> list[list[int]]:
        value = self._fields.get(name)
        if not isinstance(value, list) or len(value) > RANGES_MAX:
            raise MetadataCorrupt(f"{self._path}: {name} is not a list of at most {RANGES_MAX} rows")
        for row in value:
            if (
                not isinstance(row, list)
                or len(row) != width
                or not all(type(each) is int and 0 <= each <= LEDGER_ID_MAX for each in row)
            ):
                raise MetadataCorrupt(f"{self._path}: {name} has {row!r}, which is not {width} numbers")
        return value

    def ranges(self, name: str) -> Ranges:
        pairs = [(first, last) for first, last in self.rows(name, 2)]
        if any(first > last for first, last in pairs):
            raise MetadataCorrupt(f"{self._path}: {name} has a range of ledger ids that ends before it begins")
        return joined_ranges(pairs)


def includes(ranges: Ranges, ledger_id: int) -> bool:
    """Return whether a ledger id is in one of the ranges."""
    return any(first <= ledger_id <= last for first, last in ranges)


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ids of all ranges in as few ascending ranges as possible."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return tuple(joined)
