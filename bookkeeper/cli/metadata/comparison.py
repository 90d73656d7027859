"""The metadata store and the bookies compared: which ledgers one side has and the other lacks. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bookkeeper.bookie.history_rules import ranges_of
from bookkeeper.bookie.storage.garbage import absent_from
from bookkeeper.cli.output import counted
from bookkeeper.metadata.history_format import GeneratedIds, Ranges
from bookkeeper.model import BookieId

RANGES_SHOWN_MAX = 10
"""Ranges of ledger ids in one line for people; JSON has all of them."""


@dataclass(frozen=True, slots=True)
class BookieFacts:
    """One bookie. held: the ledgers that it has, ascending; None where it did not say, and `problem` says why.

    finding: why it collects nothing, "" for no such reason. kept: ledgers that it keeps for an operator, by ranges as
    far as they are known, and their number. absent: at its last report, of those it holds, what the store lacked.
    """

    bookie_id: BookieId
    held: array[int] | None
    problem: str = ""
    finding: str = ""
    kept_count: int = 0
    kept: Ranges = ()
    absent: Ranges = ()
    reported_ms: int | None = None
    seen_ids: GeneratedIds = field(default_factory=GeneratedIds)


@dataclass(frozen=True, slots=True)
class Facts:
    """ledgers: all of the store, ascending. unheld: of those, with entries, what no bookie has by its own account."""

    store: str
    ids: GeneratedIds
    ledgers: Sequence[int]
    bookies: Sequence[BookieFacts]
    unheld: Sequence[int] = ()
    unheld_unknown: str = ""


@dataclass(frozen=True, slots=True)
class BookieComparison:
    """absent: ledgers that it holds and the store lacks; beyond: those of them that were never given out, as the
    generators show now.
    """

    facts: BookieFacts
    absent: array[int]
    beyond: array[int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All of it."""

    facts: Facts
    bookies: Sequence[BookieComparison]

    @property
    def has_findings(self) -> bool:
        """Whether somebody has to look at something."""
        return bool(self.facts.unheld) or any(
            each.beyond or each.facts.finding or each.facts.kept_count for each in self.bookies
        )

    @property
    def is_partial(self) -> bool:
        """Whether a bookie could not be asked."""
        return any(each.facts.held is None for each in self.bookies)

    def lines(self) -> Iterator[str]:
        """For people."""
        facts = self.facts
        yield (
            f"{facts.store}: {counted(len(facts.ledgers), 'ledger')}"
            + (f", the newest is {facts.ledgers[-1]}" if facts.ledgers else "")
            + f"; ids given out: below {facts.ids.short}"
            + (f", and below {facts.ids.long}" if facts.ids.long else "")
        )
        for each in self.bookies:
            yield from _bookie_lines(each)
        if facts.unheld:
            yield f"ledgers with entries that no bookie has: {words_of(ranges_of(facts.unheld))}"
        if facts.unheld_unknown:
            yield f"ledgers with entries that no bookie has: not known: {facts.unheld_unknown}"
        yield from self._advice()

    def _advice(self) -> Iterator[str]:
        if not self.has_findings:
            yield "nothing to decide" + ("" if not self.is_partial else ", as far as bookies could be asked")
            return
        if any(each.facts.finding or each.facts.kept_count for each in self.bookies):
            yield "what can be done:"
            yield "  restore a newer copy of the metadata         bookies notice it, and collection continues"
            yield "  bookkeeper metadata keep --all               the store is right as it is; what it lacks is kept"
            yield "  bookkeeper metadata discard IDS --all        these ledgers may be deleted, such as 17,20-25"

    def json(self) -> Mapping[str, object]:
        """For programs."""
        facts = self.facts
        return {
            "store": facts.store,
            "findings": self.has_findings,
            "partial": self.is_partial,
            "ledgers": len(facts.ledgers),
            "newest_ledger": facts.ledgers[-1] if facts.ledgers else None,
            "ids_below": facts.ids.short,
            "long_ids_below": facts.ids.long,
            "bookies": [
                {
                    "bookie": each.facts.bookie_id,
                    "problem": each.facts.problem,
                    "held": None if each.facts.held is None else len(each.facts.held),
                    "newest_held": each.facts.held[-1] if each.facts.held else None,
                    "absent": None if each.facts.held is None else len(each.absent),
                    "absent_ledgers": ranges_of(each.absent) if each.facts.held is not None else each.facts.absent,
                    "beyond_ids": None if each.facts.held is None else len(each.beyond),
                    "beyond_ids_ledgers": ranges_of(each.beyond),
                    "finding": each.facts.finding,
                    "kept": each.facts.kept_count,
                    "kept_ledgers": each.facts.kept,
                    "reported_ms": each.facts.reported_ms,
                }
                for each in self.bookies
            ],
            "unheld_ledgers": ranges_of(facts.unheld),
            "unheld_unknown": facts.unheld_unknown,
        }


def compare(facts: Facts) -> Comparison:
    """Each bookie with the store."""
    found: list[BookieComparison] = []
    for bookie in facts.bookies:
        held = bookie.held if bookie.held is not None else array("q")
        absent = array("q", absent_from(facts.ledgers, held))
        beyond = array("q", (each for each in absent if each not in facts.ids))
        found.append(BookieComparison(bookie, absent, beyond))
    return Comparison(facts, found)


def held_by_none(ledgers: Sequence[int], bookies: Sequence[BookieFacts]) -> array[int]:
    """The ledgers of the store that no bookie says to hold. Every bookie has to have said."""
    missing = array("q", ledgers)
    for bookie in bookies:
        assert bookie.held is not None
        missing = array("q", absent_from(bookie.held, missing))
    return missing


def words_of(ranges: Ranges) -> str:
    """`1-3, 7 (4 ledgers)`."""
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges[:RANGES_SHOWN_MAX])
    more = ", ..." if len(ranges) > RANGES_SHOWN_MAX else ""
    return f"{shown}{more} ({counted(sum(last - first + 1 for first, last in ranges), 'ledger')})"


def _bookie_lines(found: BookieComparison) -> Iterator[str]:
    facts = found.facts
    if facts.held is None:
        yield f"{facts.bookie_id}: could not be asked: {facts.problem}"
    else:
        yield f"{facts.bookie_id}: {counted(len(facts.held), 'ledger')}" + (
            f", the newest is {facts.held[-1]}" if facts.held else ""
        )
    if facts.finding:
        yield f"  collects nothing: {facts.finding}"
    if facts.kept_count:
        yield f"  keeps for an operator: {words_of(facts.kept)}"
    if found.absent:
        yield f"  not in the store, deleted ones that wait for collection included: {words_of(ranges_of(found.absent))}"
    elif facts.absent:
        yield f"  not in the store at its last report: {words_of(facts.absent)}"
    if found.beyond:
        yield f"  of these with ids that the store has not given out: {words_of(ranges_of(found.beyond))}"
