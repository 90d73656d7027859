"""Copies that bookies reported as bad: which, whether a good one is known, and who makes them good again. Pure.

    every bookie that should hold an entry reported it bad,       no good copy is known: waiting does not help
    or is not registered
    another bookie should hold it, and reported nothing           a worker copies from there, if one runs

A report may cover good copies as well, so that "no good copy is known" is the most that follows from it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX
from bookkeeper.cli.why.explanation import Explanation, clock_time, runs_text
from bookkeeper.cli.why.ledger_facts import LedgerFacts
from bookkeeper.cli.why.menders import Menders
from bookkeeper.console.output import counted, entries
from bookkeeper.errors import BookKeeperError
from bookkeeper.metadata.underreplication.damaged_copies_format import BadCopies, BadRange
from bookkeeper.model import BookieId
from bookkeeper.protocol.schedule import write_set
from bookkeeper.replication.copies.fragments import FragmentRange

RANGES_TOLD_MAX = 5
BOOKIES_TOLD_MAX = 20

REGENERATE = "regenerate-interleaved-storage-index-file"


def reported(facts: LedgerFacts) -> tuple[BadRange, ...]:
    """What bookies reported; empty too where that could not be read."""
    bad = facts.repair.bad_copies
    return bad.ranges if isinstance(bad, BadCopies) else ()


def say_damaged(facts: LedgerFacts, fragments: Sequence[FragmentRange], found: Explanation) -> None:
    """Everything about reports of damaged copies."""
    if isinstance(facts.repair.bad_copies, BookKeeperError):
        found.errors.append(
            f"whether bookies reported damaged copies of their own is unknown: {facts.repair.bad_copies}"
        )
        found.doubt()
    ranges = reported(facts)
    if not ranges:
        return
    bookies = list(dict.fromkeys(each.bookie_id for each in ranges))
    hopeless = without_good_copy(fragments, ranges, facts.registered)
    names = ", ".join(bookies[:BOOKIES_TOLD_MAX])
    if hopeless:
        gone = any(bookie not in facts.registered for each in fragments for bookie in each.ensemble)
        indexes = _with_bad_index(ranges)
        found.trouble(
            f"no {'copy can be read' if indexes else 'good copy is known'} of {_those(hopeless)}: every bookie that "
            f"should hold one reported damage{' or is not registered' if gone else ''}"
            + (f"; of {', '.join(indexes)} it is the index, and the entries may be whole" if indexes else "")
        )
    else:
        found.trouble(f"{names} reported damaged copies of {'its' if len(bookies) == 1 else 'their'} own")
    for bookie in bookies[:BOOKIES_TOLD_MAX]:
        found.errors.append(_report(bookie, ranges, fragments, facts.now_ms))
    if len(bookies) > BOOKIES_TOLD_MAX:
        found.errors.append(f"... and {counted(len(bookies) - BOOKIES_TOLD_MAX, 'more bookie')} reported some")
    _say_next(facts, hopeless, ranges, found)
    found.facts["damaged"] = {
        "reports": [
            {
                "bookie_id": each.bookie_id,
                "first_entry_id": each.first_entry_id,
                "last_entry_id": each.last_entry_id,
                "reported_ms": each.reported_ms,
                "reason": each.reason,
            }
            for each in ranges
        ],
        "without_good_copy": [[each.first, each.last, each.count] for each in hopeless],
    }


# --- which copies


@dataclass(frozen=True, slots=True)
class HopelessRun:
    """Entries first..last, `count` of them have no copy that is known to be good. count <= last + 1 - first."""

    first: int
    last: int
    count: int


def without_good_copy(
    fragments: Sequence[FragmentRange], ranges: Sequence[BadRange], registered: Container[BookieId]
) -> list[HopelessRun]:
    """Runs of entries whose write set reported them bad, or is not registered, every member of it; ascending."""
    runs: list[HopelessRun] = []
    for fragment in fragments:
        mine = [
            (max(each.first_entry_id, fragment.first_entry_id), min(each.last_entry_id, fragment.last_entry_id), each)
            for each in ranges
            if each.bookie_id in fragment.ensemble
        ]
        mine = [part for part in mine if part[0] <= part[1]]
        # Between two neighbouring edges the same bookies are bad.
        edges = sorted({edge for first, last, _ in mine for edge in (first, last + 1)})
        gone = {bookie for bookie in fragment.ensemble if bookie not in registered}
        for first, stop in pairwise(edges):
            bad = {each.bookie_id for low, high, each in mine if low <= first and stop - 1 <= high}
            run = _hopeless(fragment, bad, gone, first, stop) if bad else None
            if run is None:
                continue
            if runs and runs[-1].last + 1 == run.first:
                run = HopelessRun(runs[-1].first, run.last, runs.pop().count + run.count)
            runs.append(run)
    return runs


def _hopeless(
    fragment: FragmentRange, bad: set[BookieId], gone: set[BookieId], first: int, stop: int
) -> HopelessRun | None:
    size = len(fragment.ensemble)
    found: list[range] = []
    for start in range(first, min(first + size, stop)):
        members = {fragment.ensemble[index] for index in write_set(start, size, fragment.write_quorum)}
        if members & bad and members <= bad | gone:
            found.append(range(start, stop, size))
    if not found:
        return None
    return HopelessRun(min(each[0] for each in found), max(each[-1] for each in found), sum(map(len, found)))


def _those(hopeless: Sequence[HopelessRun]) -> str:
    count, spanned = sum(each.count for each in hopeless), sum(each.last + 1 - each.first for each in hopeless)
    runs = runs_text([(each.first, each.last) for each in hopeless], RANGES_TOLD_MAX)
    return f"{entries(count)} ({'' if count == spanned else 'among '}{runs})"


def _with_bad_index(ranges: Sequence[BadRange]) -> list[BookieId]:
    """Bookies that say that it is the index of the ledger that they cannot read: their reason names its remedy."""
    return list(dict.fromkeys(each.bookie_id for each in ranges if REGENERATE in each.reason))[:BOOKIES_TOLD_MAX]


def _report(bookie: BookieId, ranges: Sequence[BadRange], fragments: Sequence[FragmentRange], now_ms: int) -> str:
    mine = [each for each in ranges if each.bookie_id == bookie]
    newest = max(mine, key=lambda each: -1 if each.reported_ms is None else each.reported_ms)
    when = "" if newest.reported_ms is None else f" {clock_time(newest.reported_ms, now_ms)}"
    reasons = list(dict.fromkeys(each.reason for each in mine if each.reason))
    why = f": {reasons[0]}" if reasons else ""
    more = f" (and {counted(len(reasons) - 1, 'more reason')}: --json has all)" if len(reasons) > 1 else ""
    return f"{bookie} reported{when} that its copies of {which_entries(bookie, mine, fragments)} are bad{why}{more}"


def which_entries(bookie: BookieId, mine: Sequence[BadRange], fragments: Sequence[FragmentRange] = ()) -> str:
    """Its ranges in words; joined over entries that it does not store, as far as the fragments tell."""
    joined: list[tuple[int, int]] = []
    for each in mine:
        if joined and not _stores_any(bookie, fragments, joined[-1][1] + 1, each.first_entry_id - 1):
            joined[-1] = (joined[-1][0], max(joined[-1][1], each.last_entry_id))
        else:
            joined.append((each.first_entry_id, each.last_entry_id))
    first, last = joined[-1]
    if last < ENTRY_ID_MAX:
        return runs_text(joined, RANGES_TOLD_MAX)
    if len(joined) == 1 and first == 0:
        return "all entries"
    before = f"{runs_text(joined[:-1], RANGES_TOLD_MAX)}, and " if joined[:-1] else ""
    return f"{before}all entries from {first} on"


def _stores_any(bookie: BookieId, fragments: Sequence[FragmentRange], first: int, last: int) -> bool:
    """Whether the bookie may store an entry of first..last: what it does not store parts no two ranges of it."""
    if first <= last and last > max((each.last_entry_id for each in fragments), default=-1):
        return True  # of an open ledger: what comes after the last entry that is known
    for fragment in fragments:
        low, high = max(first, fragment.first_entry_id), min(last, fragment.last_entry_id)
        if low <= high and bookie in fragment.ensemble:
            size = len(fragment.ensemble)
            sample = range(low, min(low + size, high + 1))
            if fragment.stored_within(fragment.ensemble.index(bookie), sample[0], sample[-1]):
                return True
    return False


# --- what follows


def who_mends(facts: LedgerFacts) -> Menders:
    """Who makes damaged copies good again, as far as the facts tell."""
    repair = facts.repair
    works = any(answer.works for answer in facts.processes)
    return Menders(repair.enabled, repair.auditor, repair.announced, works)


def say_who_mends(facts: LedgerFacts, found: Explanation, what: str) -> bool:
    """Say what follows by itself: `what`, where somebody does it; whether somebody does."""
    menders = who_mends(facts)
    if not (nobody := menders.why_nobody):
        found.next.append(what)
        return True
    found.next.append(f"nothing by itself: {nobody}")
    found.do.append(menders.remedy)
    return False


def _say_next(
    facts: LedgerFacts, hopeless: Sequence[HopelessRun], ranges: Sequence[BadRange], found: Explanation
) -> None:
    troubles = [answer for answer in facts.processes if answer.trouble is not None]
    if hopeless:
        for bookie in _with_bad_index(ranges):
            found.do.append(
                f"first, on the host of {bookie}, which is stopped for it: bookkeeper shell --conf FILE {REGENERATE} "
                f"-ledgerIds {facts.ledger_id}; start it again. That brings back what its entry logs and journals have"
            )
        holders = " or ".join(list(dict.fromkeys(each.bookie_id for each in ranges))[:BOOKIES_TOLD_MAX])
        what = "a worker tries again ever more seldom; it succeeds only when one bookie has a good copy"
        found.do.append(
            f"bring a good copy back: stop {holders}, restore the files named above from a backup or the old disk, "
            "and start it; workers try again as soon as it registers"
        )
    elif troubles:
        what = "a worker tries again: the copies are written anew from good ones, verified by digest"
    else:
        what = (
            "a worker copies them from bookies that reported no damage, verified by digest; workers look at least once "
            "a minute"
        )
    if not say_who_mends(facts, found, what):
        return
    for answer in troubles:
        assert answer.trouble is not None
        found.next.append(f"the worker of {answer.where} tries in {answer.trouble.get('secondsToNextTry', '?')} s")
