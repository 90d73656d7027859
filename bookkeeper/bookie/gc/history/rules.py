"""Rules for collection where the metadata store may have gone back in time. Pure.

A ledger that is here and not in the store was deleted, or was created in a time that the store has forgotten. A ledger
that the store assigns to other bookies belongs to them, or is a later one with the id of a forgotten one. The terms:

    counter     a number that this bookie raises in the store at each look, and saves durably
    held        the ledger was here before the counter was written; otherwise it is a newcomer
    finding     the store shows less than this bookie has seen of it: a smaller counter, or smaller generators
    in doubt    no finding, but the connection broke since the counter was written, or the process has just begun: the
                store may be a copy that is newer than the counter, and lack what came later
    evidence    in doubt, and one of these: an absent newcomer has entries and an id beyond the generators; another
                bookie noted since then that it raised generators; servers refused this process, which had seen a later
                state than theirs; the store shows again the counter of a finding

    a ledger here, by the store    finding   in doubt, evidence   in doubt      neither
    absent, a newcomer             stays     kept                 collected     collected
    absent, held                   stays     collected            collected     collected
    elsewhere, a newcomer:
      its id is from the time
        since the counter          stays     kept                 stays         moved
      an older id                  stays     stays                stays         moved
    elsewhere, held                stays     moved                moved         moved
    here and not closed, newcomer,
      id since the counter         stays     kept                 stays         stays
    here, any other                stays     stays                stays         stays
    kept                           stays     stays                stays         stays

"Elsewhere": no fragment has this bookie in its ensemble, in any state of the ledger, or the record cannot be read. Only
a closed ledger is moved, which deletes the copy here. Where it stays in doubt, it stays as long as the process.

A finding ends in two ways. If the store shows the counter again, a newer copy was restored, and the column "in doubt,
evidence" applies. If an operator decides "keep", all absent ledgers, all ledgers elsewhere, and those that may have
another ledger's id (`newer`) are kept. From then on the counters are higher than in any other copy of the store, so
that such a copy, newer or not, is found to have gone back. "Discard" removes ledgers from the kept ones, and lets
absent ones go during a finding. A kept ledger stays until it is discarded, even if the store has its id again: that may
be another ledger.

Unsaved (full disks): a finding and kept ledgers are in memory, a raise is in the store, and the file has an older
counter. A process that reads the file sees the ledgers as newcomers in doubt, with the raise as evidence. A "keep" is
applied only once it is saved: else the file's finding would seem to end by a newer copy.

One false alarm is accepted, since nothing distinguishes it from a loss. Ledgers of the last minute before a broken
connection are kept if a caller deleted one with a chosen id in that minute, or a stranger wrote under an id that was
not given out.

Not covered: a copy newer than the counter, where ids of forgotten ledgers were given out before any bookie looked, and
no running bookie was refused. Such ledgers look like deleted or moved ones; most are of the latter kind, since
auto-recovery moves the ledgers of each crashed bookie, and to keep these would need an operator after each crash.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bookkeeper.bookie.gc.candidates import absent_from, ranges_above
from bookkeeper.bookie.gc.history.format import Finding, History
from bookkeeper.metadata.cluster.history_format import GeneratedIds, Ranges, joined_ranges
from bookkeeper.metadata.ledgers.paths import SHORT_ID_LIMIT

COUNTERS_UNSAVED_MAX = 1_000_000
"""Counters that a bookie may have written without saving them, on full disks: more than a year of them."""

NEAR_IDS = 100_000
"""Ids beyond a generator that it may have given out in a forgotten time; farther ones are taken for chosen ids."""

KEPT_RANGES_MAX = 100_000
"""Ranges of kept ledgers; if there are more, the highest are joined, with the ids between them."""


def went_back(history: History, counter: int, ids: GeneratedIds) -> bool:
    """Return whether the store shows less than this bookie has seen of it. counter: 0 if it shows none."""
    return counter < history.counter or ids.is_behind(history.ids)


def came_back(history: History, finding: Finding, counter: int) -> bool:
    """Return whether a newer copy of the store was restored since the finding.

    Only the counter is evidence: generators are raised after a finding.
    """
    return finding.counter < history.counter <= counter


def next_counter(history: History, counter: int) -> int:
    """Return the counter to write. counter: the one that the store shows; 0 if it shows none."""
    return max(history.counter, history.used, counter) + 1


def accepted(history: History, counter: int, ids: GeneratedIds, raised: int, kept: Ranges) -> History:
    """Return the history after an operator accepted the store as it is, with these values.

    The next counters are higher than any that another copy of the store may have. So if such a copy is restored, its
    counter is smaller, and the ledgers that came since the decision are safe.
    """
    used = max(history.used, history.counter, counter) + COUNTERS_UNSAVED_MAX
    return replace(history, finding=None, counter=counter, used=used, ids=ids, raised=raised, kept=kept, discarded=())


def belonging_to(history: History, bookie_id: str) -> History:
    """Return the history for a bookie that may have a new id: no counter exists under that id yet.

    The generators still are evidence, and a finding stays until an operator decides.
    """
    if history.bookies[-1:] == (bookie_id,):
        return history
    counter = history.counter if not history.bookies else 0
    former = tuple(each for each in history.bookies if each != bookie_id)
    return replace(history, bookies=(*former, bookie_id), counter=counter)


def newcomers(history: History, ledger_ids: Sequence[int]) -> list[int]:
    """Return those of the ascending ids that came since the counter was written last."""
    return absent_from(history.held, ledger_ids)


def newer(history: History, shown: GeneratedIds, local: Sequence[int]) -> list[int]:
    """Return the ledgers here that the store forgot: their ids lie beyond the generators that it shows now.

    The store gives such ids out again, and then to ledgers other than those here.
    """
    unknown = set(newcomers(history, local))
    return [each for each in local if each not in shown and (each in history.ids or each in unknown)]


def past(shown: GeneratedIds, forgotten: Iterable[int]) -> GeneratedIds:
    """Return generators that give out no forgotten id within NEAR_IDS again.

    Strangers may write under any id, and callers choose ids; neither may use up the ids of a cluster.
    """
    short, long = shown.short, shown.long
    for each in forgotten:
        if each < SHORT_ID_LIMIT and each < shown.short + NEAR_IDS:
            short = max(short, each + 1)
        elif each >= SHORT_ID_LIMIT and shown.long <= each < shown.long + NEAR_IDS:
            long = max(long, each + 1)
    return GeneratedIds(short, long)


def within(ledger_ids: Sequence[int], ranges: Ranges) -> array[int]:
    """Return those of the ascending ids that lie in the ranges."""
    found = array("q")
    for first, last in ranges:
        found.extend(ledger_ids[bisect_left(ledger_ids, first) : bisect_right(ledger_ids, last)])
    return found


def without(ledger_ids: Sequence[int], ranges: Ranges) -> array[int]:
    """Return those of the ascending ids that lie in none of the ranges."""
    found, place = array("q"), 0
    for first, last in ranges:
        found.extend(ledger_ids[place : bisect_left(ledger_ids, first)])
        place = max(place, bisect_right(ledger_ids, last))
    found.extend(ledger_ids[place:])
    return found


def ranges_of(ledger_ids: Sequence[int]) -> Ranges:
    """Return the ascending ids as ranges."""
    return tuple(ranges_above(ledger_ids, -1))


def kept_with(kept: Ranges, ledger_ids: Iterable[int]) -> Ranges:
    """Return the ranges with more ids. Joins ranges beyond KEPT_RANGES_MAX, which keeps too much, never too little."""
    joined = joined_ranges((*kept, *ranges_of(sorted(ledger_ids))))
    if len(joined) <= KEPT_RANGES_MAX:
        return joined
    rest = joined[KEPT_RANGES_MAX - 1 :]
    return (*joined[: KEPT_RANGES_MAX - 1], (rest[0][0], rest[-1][1]))


def taken_out(kept: Ranges, discarded: Ranges) -> Ranges:
    """Return the ranges without the discarded ids."""
    left: list[tuple[int, int]] = []
    for first, last in kept:
        for gone_first, gone_last in discarded:
            if gone_last < first or gone_first > last:
                continue
            if gone_first > first:
                left.append((first, gone_first - 1))
            first = gone_last + 1
            if first > last:
                break
        if first <= last:
            left.append((first, last))
    return tuple(left)
