"""Segments as spans of transactions: which hold a range, what is missing in it, how far a micro-batch goes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from journalmgr.model import Segment

_FINALISED = re.compile(r"edits_([0-9]{18,})_([0-9]{18,})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Span:
    """A segment, and how far it can be read now.

    last_txid: the last transaction: recorded, or of a segment in progress the last that is confirmed; first - 1 where
    nothing is. last_entry_id: the entry that holds it, where that was looked up.
    """

    segment: Segment
    last_txid: int
    last_entry_id: int | None = None

    @property
    def first_txid(self) -> int:
        """The first transaction."""
        return self.segment.first_txid


class Part(NamedTuple):
    """Transactions low..high of a span, both included."""

    span: Span
    low: int
    high: int


class Gap(NamedTuple):
    """Transactions first..last, both included, that no segment has. before: the segment behind them."""

    first: int
    last: int
    before: Segment


class Choice(NamedTuple):
    """What of a range there is. beyond: the first txid of the range that the journal does not reach; None: all is."""

    parts: list[Part]
    gaps: list[Gap]
    beyond: int | None


def choose(spans: Iterable[Span], low: int, high: int) -> Choice:
    """The parts of the spans that hold transactions low..high, and what is missing between.

    spans: by first txid. What two of them have is taken of the one that begins first.
    """
    parts: list[Part] = []
    gaps: list[Gap] = []
    wanted = low
    for span in spans:
        if wanted > high:
            break
        if span.last_txid < wanted:
            continue
        if span.first_txid > high:
            gaps.append(Gap(wanted, high, span.segment))
            wanted = high + 1
            break
        if span.first_txid > wanted:
            gaps.append(Gap(wanted, span.first_txid - 1, span.segment))
            wanted = span.first_txid
        last = min(high, span.last_txid)
        parts.append(Part(span, wanted, last))
        wanted = last + 1
    return Choice(parts, gaps, wanted if wanted <= high else None)


def finalised_end(name: str) -> int | None:
    """The last txid that the name of a finalised segment says; None for any other name."""
    found = _FINALISED.fullmatch(name)
    return None if found is None else int(found[2])


def without_twins(segments: Sequence[Segment]) -> list[Segment]:
    """By first txid; a finalised one hides the record in progress of the same ledger, which a crash left behind."""
    finalised = {(one.first_txid, one.ledger_id) for one in segments if not one.in_progress}
    kept = [one for one in segments if not one.in_progress or (one.first_txid, one.ledger_id) not in finalised]
    return sorted(kept, key=lambda one: (one.first_txid, one.in_progress))


class BytesLimit:
    """How far a micro-batch from `start` on may go: about `bytes_max`, at least one transaction."""

    def __init__(self, start: int, bytes_max: int) -> None:
        self.end = start
        """One past the last transaction that fits, of the parts seen so far."""
        self.is_reached = False
        self._left = float(bytes_max)
        self._count = 0

    def on_part(self, low: int, high: int, bytes_each: float) -> None:
        """Transactions low..high come next, of about that size each."""
        assert not self.is_reached
        count = high - low + 1
        fitting = min(count, int(self._left // max(bytes_each, 1.0)))
        self.is_reached = fitting < count
        if not self._count:
            fitting = max(fitting, 1)
        self._count += fitting
        self._left -= fitting * bytes_each
        if fitting:
            self.end = low + fitting
