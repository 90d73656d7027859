"""What tasks find in the directories of bookies, as rows that can be shuffled, and evidence made of such rows. Pure.

    kind      ledger_id  chunk  position   first step count crcs sizes            said                     entries bytes
    copies    ledger     chunk  its part   good copies of one chunk, in columns   -                        -       -
    said      ledger     chunk  its part   -                                      [[verdict, first, last, why], ...]
    held      ledger     -      -          -                                      -                        -       -
    other     ledger     -      -          -                                      -                        copies of a
                                                                                                 ledger not asked for
    unit      -          -      -          -                                      a UnitDone
    unread    -          -      -          -                                      why this bookie is not read in place

Of a chunk there may be many rows of one bookie: from several logs and journals. A bookie is whole when each unit of its
plan, and the plan itself, has a row `unit`; only then is missing what no row says (`whole_bookies`).
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import ge
from typing import Any, Final

from bookkeeper.spark.audit.evidence import BAD, CHUNK_ENTRIES, UNKNOWN, Evidence, chunk_of
from bookkeeper.spark.stored_copies.model import BadCopies, GoodCopies, UnknownCopies
from bookkeeper.texts import parse_json

COPIES, SAID, HELD, OTHER, UNIT, UNREAD = "copies", "said", "held", "other", "unit", "unread"

COLUMNS: Final = (
    "kind STRING, bookie STRING, ledger_id LONG, chunk LONG, first LONG, step INT, count INT, positions BINARY, "
    "crcs BINARY, sizes BINARY, said STRING, entries LONG, bytes LONG"
)
"""Of the rows, as SQL writes them."""

CHUNKS_MAX = 16
"""Chunks over which something that is unknown is spread as rows; what is longer belongs to the whole bookie."""

UNKNOWN_MAX = 1000
"""Unknown ranges that are kept of one unit; where there are more, everything that nothing better is said of is."""

PLAN: Final = -1
"""The number of the plan among the units."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Entries first..last of a ledger of which a bookie's files cannot tell. ledger_id None: of all; last None: all."""

    ledger_id: int | None
    first: int
    last: int | None
    why: str


@dataclass(frozen=True, slots=True)
class UnitDone:
    """A unit was verified. plan: which one, the same for all units of it; units: how many these are."""

    directory: str
    plan: int
    unit: int
    units: int
    unknown: tuple[Unknown, ...] = ()

    def format(self) -> str:
        """As text."""
        unknown = [[each.ledger_id, each.first, each.last, each.why] for each in self.unknown]
        return json.dumps([self.directory, self.plan, self.unit, self.units, unknown])

    @classmethod
    def parse(cls, text: str) -> UnitDone:
        """Of the text."""
        directory, plan, unit, units, unknown = parse_json(text)
        return cls(directory, plan, unit, units, tuple(Unknown(*each) for each in unknown))


# --- rows -----------------------------------------------------------------------------------------------------------


def copies_rows(bookie: str, copies: GoodCopies) -> Iterator[Row]:
    """Rows of the good copies of a ledger, one for each chunk."""
    ids, crcs, sizes = copies.entry_ids, copies.payload_crcs, copies.payload_sizes
    if any(map(ge, ids, islice(ids, 1, None))):
        order = sorted(range(len(ids)), key=ids.__getitem__)
        ids, crcs, sizes = (array(each.typecode, [each[at] for at in order]) for each in (ids, crcs, sizes))
    start = 0
    while start < len(ids):
        chunk = chunk_of(ids[start])
        end = bisect_left(ids, (chunk + 1) * CHUNK_ENTRIES, start)
        yield _chunk_row(bookie, copies.ledger_id, chunk, ids[start:end], crcs[start:end], sizes[start:end])
        start = end


def _chunk_row(bookie: str, ledger_id: int, chunk: int, ids: array[int], crcs: array[int], sizes: array[int]) -> Row:
    first, count = ids[0], len(ids)
    step = (ids[-1] - first) // (count - 1) if count > 1 else 1
    regular = step > 0 and ids == array("q", range(first, first + count * step, step))
    low = chunk * CHUNK_ENTRIES
    return {
        "kind": COPIES,
        "bookie": bookie,
        "ledger_id": ledger_id,
        "chunk": chunk,
        "first": first,
        "step": step if regular else 0,
        "count": count,
        "positions": None if regular else array("H", [each - low for each in ids]).tobytes(),
        "crcs": crcs.tobytes(),
        "sizes": sizes.tobytes(),
    }


def said_rows(
    bookie: str, bad: Iterable[BadCopies], unknown: Iterable[UnknownCopies]
) -> tuple[list[Row], tuple[Unknown, ...]]:
    """Rows of what is not good, one for each chunk; and what is unknown of more than rows should be made of."""
    by_chunk: dict[tuple[int, int], list[tuple[int, int, int, str]]] = {}
    whole: list[Unknown] = []
    for fault in bad:
        _spread(by_chunk, fault.ledger_id, BAD, fault.first_entry_id, fault.last_entry_id, _why(fault))
    for gap in unknown:
        first, last = gap.first_entry_id, gap.last_entry_id
        if gap.ledger_id is None or last is None or chunk_of(last) - chunk_of(first) >= CHUNKS_MAX:
            whole.append(Unknown(gap.ledger_id, first, last, f"{gap.why} ({gap.path})"))
        else:
            _spread(by_chunk, gap.ledger_id, UNKNOWN, first, last, f"{gap.why} ({gap.path})")
    if len(whole) > UNKNOWN_MAX:
        whole = [
            Unknown(None, 0, None, f"{len(whole):,} parts of its files cannot be read; one of them: {whole[0].why}")
        ]
    rows: list[Row] = [
        {"kind": SAID, "bookie": bookie, "ledger_id": ledger_id, "chunk": chunk, "said": json.dumps(said)}
        for (ledger_id, chunk), said in by_chunk.items()
    ]
    return rows, tuple(whole)


def _why(fault: BadCopies) -> str:
    return f"{fault.fault.value}: {fault.detail} ({fault.path}, {fault.offset})"


def _spread(
    by_chunk: dict[tuple[int, int], list[tuple[int, int, int, str]]],
    ledger_id: int, verdict: int, first: int, last: int, why: str,
) -> None:  # fmt: skip
    for chunk in range(chunk_of(first), chunk_of(last) + 1):
        low, high = chunk * CHUNK_ENTRIES, (chunk + 1) * CHUNK_ENTRIES - 1
        by_chunk.setdefault((ledger_id, chunk), []).append((verdict, max(first, low), min(last, high), why))


# --- evidence -------------------------------------------------------------------------------------------------------


def take_row(evidence: Evidence, row: Mapping[str, Any]) -> None:
    """Add what a row says of the chunk."""
    if row["kind"] == SAID:
        for verdict, first, last, why in parse_json(row["said"]):
            evidence.add(verdict, range(first, last + 1), why)
        return
    crcs, sizes = _array("I", row["crcs"]), _array("I", row["sizes"])
    if row["step"]:
        first, step = row["first"], row["step"]
        evidence.add_good(range(first, first + step * row["count"], step), crcs, sizes)
    else:
        low = evidence.first_entry_id
        evidence.add_good([low + at for at in _array("H", row["positions"])], crcs, sizes)


def _array(typecode: str, data: bytes) -> array[int]:
    made: array[int] = array(typecode)
    made.frombytes(data)
    return made


@dataclass(slots=True)
class StoredBookie:
    """What is known of a bookie that was read in place. whole: nothing of it was left out."""

    bookie: str
    whole: bool
    unknown: dict[int | None, list[Unknown]] = field(default_factory=dict)

    def finish(self, evidence: Evidence) -> None:
        """All rows of the chunk were taken: say what the others are."""
        low, high = evidence.first_entry_id, evidence.first_entry_id + CHUNK_ENTRIES - 1
        for gap in (*self.unknown.get(evidence.ledger_id, ()), *self.unknown.get(None, ())):
            last = high if gap.last is None else min(gap.last, high)
            evidence.add(UNKNOWN, range(max(gap.first, low), last + 1), gap.why)
        if self.whole:
            evidence.complete()


def stored_bookies(done: Iterable[tuple[str, UnitDone]]) -> dict[str, StoredBookie]:
    """The bookies of which anything was read in place; of each (bookie, unit that was done)."""
    units: dict[str, dict[int, set[int]]] = {}
    sizes: dict[tuple[str, int], int] = {}
    found: dict[str, StoredBookie] = {}
    for bookie, unit in done:
        units.setdefault(bookie, {}).setdefault(unit.plan, set()).add(unit.unit)
        sizes[bookie, unit.plan] = unit.units
        known = found.setdefault(bookie, StoredBookie(bookie, whole=False))
        for gap in unit.unknown:
            known.unknown.setdefault(gap.ledger_id, []).append(gap)
    for bookie, known in found.items():
        known.whole = any(
            wanted <= there for plan, there in units[bookie].items() for wanted in [{PLAN, *range(sizes[bookie, plan])}]
        )
    return found
