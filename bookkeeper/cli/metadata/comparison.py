"""A comparison of the metadata store with the bookies: the ledgers that only one side has. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.bookie.gc.candidates import absent_from
from bookkeeper.bookie.gc.history.rules import ranges_of, within
from bookkeeper.console.output import counted
from bookkeeper.metadata.cluster.history_format import GeneratedIds, Ranges
from bookkeeper.model import BookieId

RANGES_SHOWN_MAX = 10
"""Maximum number of ranges of ledger ids in a line of text; JSON has all."""


@dataclass(frozen=True, slots=True)
class BookieFacts:
    """The ledgers of one bookie, and its last report.

    held: ledgers that the bookie has, ascending; None if it did not answer, for the reason in `problem`. finding: why
    it collects nothing, or "". kept: the known ranges of ledgers that it keeps for an operator. absent: ledgers that it
    held and the store lacked at its last report.
    """

    bookie_id: BookieId
    held: array[int] | None
    problem: str = ""
    finding: str = ""
    kept_count: int = 0
    kept: Ranges = ()
    absent: Ranges = ()
    reported_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """The ledgers of the store and of all bookies.

    ledgers: those of the store after the bookies were asked, ascending. deleted: those that the store had before and
    lacks now, ascending; a bookie may still hold them. unheld: closed ledgers with entries that no bookie has, among
    the first `facts.UNHELD_MAX` ledgers that no bookie has. unheld_unknown: why `unheld` is unknown or not complete,
    or "".
    """

    store: str
    ids: GeneratedIds
    ledgers: Sequence[int]
    bookies: Sequence[BookieFacts]
    unheld: Sequence[int] = ()
    unheld_unknown: str = ""
    deleted: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class BookieComparison:
    """One bookie compared with the store.

    absent: ledgers that the bookie holds and the store lacks. beyond: absent ledgers with ids that the generators, by
    their present values, have not given out. returned: ledgers that the bookie keeps and the store has.
    """

    facts: BookieFacts
    absent: array[int]
    beyond: array[int]
    returned: array[int]

    @property
    def is_undecided(self) -> bool:
        """Whether the store may have gone back, and the bookie has not compared it with what it has seen yet."""
        return bool(self.beyond) and not self.facts.finding and not self.facts.kept_count


@dataclass(frozen=True, slots=True)
class Comparison:
    """All bookies compared with the store."""

    facts: Facts
    bookies: Sequence[BookieComparison]

    @property
    def has_findings(self) -> bool:
        """Whether anything needs an operator.

        Ids beyond the generators alone do not: clients may choose such ids and delete the ledgers. Bookies judge them.
        """
        return bool(self.facts.unheld) or any(each.facts.finding or each.facts.kept_count for each in self.bookies)

    @property
    def is_partial(self) -> bool:
        """Whether a bookie could not be asked or has not compared yet, or there were too many ledgers to check."""
        return bool(self.facts.unheld_unknown) or any(
            each.facts.held is None or each.is_undecided for each in self.bookies
        )

    def lines(self) -> Iterator[str]:
        """Yield the comparison as lines of text."""
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
            yield f"ledgers that no bookie has: {ranges_text(ranges_of(facts.unheld))}"
        if facts.unheld_unknown:
            yield f"ledgers that no bookie has: not known: {facts.unheld_unknown}"
        yield from self._advice()

    def _advice(self) -> Iterator[str]:
        finding = any(each.facts.finding for each in self.bookies)
        kept = any(each.facts.kept_count for each in self.bookies)
        if not self.has_findings:
            yield "nothing to decide" + ("" if not self.is_partial else ", as far as is known now")
        else:
            yield "what can be done:"
        if finding:
            yield "  restore a newer copy of the metadata         bookies notice it, and collection continues"
            yield "  bookkeeper metadata keep --all               accept the store, and keep the ledgers that it lacks"
        if finding or kept:
            yield "  bookkeeper metadata discard IDS --all        let bookies delete these ledgers, such as 17,20-25"
        if self.facts.unheld:
            yield "  start the bookies that have these ledgers    if their disks still exist"
            yield "  bookkeeper ledger delete ID                  give up the entries of a ledger that no bookie has"
        if not finding and not kept and any(each.absent for each in self.bookies):
            yield "bookies compare the store with what they have seen about once a minute: check again after that"

    def json(self) -> Mapping[str, object]:
        """Return the comparison as a JSON object."""
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
                    "kept_and_in_store": ranges_of(each.returned),
                    "reported_ms": each.facts.reported_ms,
                }
                for each in self.bookies
            ],
            "unheld_ledgers": ranges_of(facts.unheld),
            "unheld_unknown": facts.unheld_unknown,
        }


def compare(facts: Facts) -> Comparison:
    """Compare each bookie with the store."""
    found: list[BookieComparison] = []
    for bookie in facts.bookies:
        held = bookie.held if bookie.held is not None else array("q")
        absent = array("q", absent_from(facts.deleted, absent_from(facts.ledgers, held)))
        beyond = array("q", (each for each in absent if each not in facts.ids))
        found.append(BookieComparison(bookie, absent, beyond, within(facts.ledgers, bookie.kept)))
    return Comparison(facts, found)


def held_by_none(ledgers: Sequence[int], bookies: Sequence[BookieFacts]) -> array[int]:
    """Return the ledgers of the store that no bookie holds. Every bookie must have answered."""
    missing = array("q", ledgers)
    for bookie in bookies:
        assert bookie.held is not None
        missing = array("q", absent_from(bookie.held, missing))
    return missing


def ranges_text(ranges: Ranges) -> str:
    """Return the ranges as text: `1-3, 7 (4 ledgers)`."""
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
        yield f"  keeps for an operator: {ranges_text(facts.kept)}"
    if found.returned:
        yield f"    of these, the store has: {ranges_text(ranges_of(found.returned))}; discard deletes none of them"
    if found.absent:
        yield f"  not in the store (deleted and not collected yet, or lost): {ranges_text(ranges_of(found.absent))}"
    elif facts.absent:
        yield f"  not in the store at its last report: {ranges_text(facts.absent)}"
    if found.beyond:
        yield f"  with ids that the store has not given out: {ranges_text(ranges_of(found.beyond))}"
