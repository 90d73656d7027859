"""Entries without a copy on any bookie, and what can still be done. Pure.

bookies that should hold an entry                        the entry
all answered, none has it                                gone
some answered, none of those has it; the others are      away: those others may have it
not registered
some did not answer                                      unknown: never counted here
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bookkeeper.cli.why.explanation import Explanation, runs_text
from bookkeeper.console.output import counted, entries
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import BookieId, LedgerId, LedgerMetadata
from bookkeeper.protocol.schedule import write_set
from bookkeeper.replication.audit.conclusions import lost_members
from bookkeeper.replication.copies.fragments import FragmentRange

Held = Mapping[BookieId, Sequence[range] | BookKeeperError]
"""The entries that bookies list, as ascending ranges, or the bookies' errors."""

BOOKIES_NAMED_MAX = 5


@dataclass(slots=True)
class EntrySpan:
    """A number of entries, with the first and the last; -1: none. Others between the two may be there."""

    count: int = 0
    first: int = -1
    last: int = -1

    def add(self, found: range) -> None:
        """Add entries that are not counted yet."""
        if found:
            self.first = found[0] if not self.count else min(self.first, found[0])
            self.last = max(self.last, found[-1])
            self.count += len(found)

    def __str__(self) -> str:
        whole = self.count == self.last - self.first + 1
        return (
            f"{entries(self.count)} ({runs_text([(self.first, self.last)])})"
            if whole
            else (f"{entries(self.count)} between {self.first} and {self.last}")
        )


@dataclass(frozen=True, slots=True)
class LostEntries:
    """The entries that no bookie has, by what bookies answered. away_bookies: the unregistered ones of `away`."""

    gone: EntrySpan = field(default_factory=EntrySpan)
    away: EntrySpan = field(default_factory=EntrySpan)
    away_bookies: tuple[BookieId, ...] = ()


def lost_entries(
    metadata: LedgerMetadata, fragments: Sequence[FragmentRange], registered: Container[BookieId], held: Held
) -> LostEntries:
    """Return the entries that all their bookies lack. Entries on unregistered bookies alone do not count."""
    lost = lost_members(metadata, registered)
    gone, away, away_bookies = EntrySpan(), EntrySpan(), dict[BookieId, None]()
    for fragment in fragments:
        size, first, last = len(fragment.ensemble), fragment.first_entry_id, fragment.last_entry_id
        # Entries with the same remainder e mod E have the same bookies.
        for start in range(first, min(first + size, last + 1)):
            bookies = [fragment.ensemble[index] for index in write_set(start, size, fragment.write_quorum)]
            absent = [each for each in bookies if each in lost]
            answers = [held.get(each) for each in bookies if each not in lost]
            runs = [run for answer in answers if isinstance(answer, Sequence) for run in answer]
            if not answers or not all(isinstance(answer, Sequence) for answer in answers):
                continue
            for gap in _gaps(runs, start, last):
                found = range(gap[0] + (start - gap[0]) % size, gap[-1] + 1, size)
                (away if absent else gone).add(found)
                away_bookies |= dict.fromkeys(absent if found else ())
    return LostEntries(gone, away, tuple(away_bookies))


def _gaps(runs: Sequence[range], first: int, last: int) -> Iterator[range]:
    """Yield the parts of first..last that are in no run."""
    at = first
    for run in sorted((each for each in runs if each), key=lambda each: each[0]):
        if run[0] > last:
            break
        if run[0] > at:
            yield range(at, run[0])
        at = max(at, run[-1] + 1)
    if at <= last:
        yield range(at, last + 1)


def say_lost(
    ledger_id: LedgerId,
    lost: LostEntries,
    elsewhere: Held,
    away: Sequence[BookieId],
    found: Explanation,
) -> None:
    """Report lost entries. elsewhere: what bookies outside the ensembles hold. away: bookies that may come back."""
    if lost.away.count:
        names = ", ".join(lost.away_bookies[:BOOKIES_NAMED_MAX])
        found.errors.append(
            f"{lost.away} cannot be read now: the bookies that answered do not have them, and {names} "
            f"{'is' if len(lost.away_bookies) == 1 else 'are'} not registered"
        )
        found.do.append(f"bring {names} back before anything else: its copies are the last")
    if not lost.gone.count:
        return
    found.next.append(f"nothing for {entries(lost.gone.count)}: auto-recovery can only copy an existing good copy")
    other = [each for each, held in elsewhere.items() if isinstance(held, Sequence) and any(held)]
    silent = [each for each, held in elsewhere.items() if not isinstance(held, Sequence)]
    for bookie in other:
        runs = [(run[0], run[-1]) for run in elsewhere[bookie] if run]  # type: ignore[union-attr]
        found.holds.append(f"{bookie}, which is not in its ensembles, holds entries {runs_text(runs)}")
    if silent:
        found.holds.append(f"whether {_named(silent)} may have them is unknown: no answer")
    if other:
        found.do.append(
            f"keep the ledger: {_named(other)} may have these entries; a newer copy of the ledger's metadata names it "
            "(bookkeeper metadata check)"
        )
        return
    candidates = f", such as {_named([*silent, *away])}" if silent or away else ""
    found.do.append(f"bring back a bookie or a disk that has these entries{candidates}")
    found.do.append(
        f"if there is none, give the ledger up: bookkeeper ledger delete {ledger_id} --force; all its entries are lost "
        "then (not the newest ledger of a topic: its hub needs that)"
    )


def _named(bookies: Sequence[BookieId]) -> str:
    more = len(bookies) - BOOKIES_NAMED_MAX
    return ", ".join(bookies[:BOOKIES_NAMED_MAX]) + (f" and {counted(more, 'more bookie')}" if more > 0 else "")
