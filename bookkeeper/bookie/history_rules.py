"""Which absent ledgers may be collected where the metadata store may have gone back in time. Pure.

A ledger that is here and not in the store was deleted, or was created in a time that the store has forgotten. What
tells the two apart, the exact evidence first:

    the store shows                             collected
    less than this bookie has seen of it: a     nothing, until an operator decides, or until the store shows
      smaller counter, or smaller generators    the counter again; the finding is on disk
    all that was seen, and the ledger was       as ever: the store remembers a moment after the ledger's first entry
      here when the counter was written last
    all that was seen, no connection broke      as ever: a store is not restored under a connection
      since then
    all that was seen, a connection broke       as ever, unless a ledger with entries lies beyond the generators:
      (or this process has just begun)          then all that came since the counter was written last are kept

The last row is the only doubtful one. Ids that callers name themselves lie beyond the generators, too: those are kept
for an operator that were created since the counter was last written, and were deleted before the store was looked at
again behind a broken connection. Entries that strangers wrote under ids not given out are treated alike. Nothing else
is held up by either, but for copies that belong to other bookies by the store's account: those of ledgers that came
since the counter was last written stay until the process ends. What is kept stays so until an operator discards it:
where the store has a ledger of that id again, it may be another one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from bookkeeper.bookie.history_format import Finding, History
from bookkeeper.bookie.storage.garbage import absent_from, ranges_above
from bookkeeper.metadata.history_format import GeneratedIds, Ranges, joined_ranges
from bookkeeper.metadata.paths import SHORT_ID_LIMIT

NEAR_IDS = 100_000
"""Ids beyond a generator that it may have given out in a time that the store has forgotten."""

KEPT_RANGES_MAX = 100_000
"""Ranges of ledgers that are kept; beyond it the highest are joined, with whatever lies between them."""


def went_back(history: History, counter: int, ids: GeneratedIds) -> bool:
    """Whether the store shows less than this bookie has seen of it. counter: 0 where it shows none."""
    return counter < history.counter or ids.is_behind(history.ids)


def came_back(history: History, finding: Finding, counter: int) -> bool:
    """Whether a newer copy of the store was restored since the finding.

    Only the counter is evidence of that: generators are raised after a finding.
    """
    return finding.counter < history.counter <= counter


def newcomers(history: History, ledger_ids: Sequence[int]) -> list[int]:
    """Those of the ascending ids that came since the counter was written last."""
    return absent_from(history.held, ledger_ids)


def newer(history: History, shown: GeneratedIds, local: Sequence[int]) -> list[int]:
    """Ledgers here that the store forgot, as their ids show: they lie beyond the generators that it shows now.

    The store gives such ids out again. A ledger that has one of them later need not be the one that is here.
    """
    unknown = set(newcomers(history, local))
    return [each for each in local if each not in shown and (each in history.ids or each in unknown)]


def past(shown: GeneratedIds, forgotten: Iterable[int]) -> GeneratedIds:
    """Generators that give out none of the forgotten ids again: those that lie near enough to be theirs.

    Strangers may write under any id, and callers name theirs; neither may use up the ids of a cluster.
    """
    short, long = shown.short, shown.long
    for each in forgotten:
        if each < SHORT_ID_LIMIT and each < shown.short + NEAR_IDS:
            short = max(short, each + 1)
        elif each >= SHORT_ID_LIMIT and shown.long <= each < shown.long + NEAR_IDS:
            long = max(long, each + 1)
    return GeneratedIds(short, long)


def within(ledger_ids: Sequence[int], ranges: Ranges) -> array[int]:
    """Those of the ascending ids that lie in the ranges."""
    found = array("q")
    for first, last in ranges:
        found.extend(ledger_ids[bisect_left(ledger_ids, first) : bisect_right(ledger_ids, last)])
    return found


def without(ledger_ids: Sequence[int], ranges: Ranges) -> array[int]:
    """Those of the ascending ids that lie in none of the ranges."""
    found, place = array("q"), 0
    for first, last in ranges:
        found.extend(ledger_ids[place : bisect_left(ledger_ids, first)])
        place = max(place, bisect_right(ledger_ids, last))
    found.extend(ledger_ids[place:])
    return found


def ranges_of(ledger_ids: Sequence[int]) -> Ranges:
    """The ascending ids as ranges."""
    return tuple(ranges_above(ledger_ids, -1))


def kept_with(kept: Ranges, ledger_ids: Iterable[int]) -> Ranges:
    """The ranges with more ids; at most KEPT_RANGES_MAX, which may keep too much and never too little."""
    joined = joined_ranges((*kept, *ranges_of(sorted(ledger_ids))))
    if len(joined) <= KEPT_RANGES_MAX:
        return joined
    rest = joined[KEPT_RANGES_MAX - 1 :]
    return (*joined[: KEPT_RANGES_MAX - 1], (rest[0][0], rest[-1][1]))


def taken_out(kept: Ranges, discarded: Ranges) -> Ranges:
    """The ranges without those ids."""
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
