"""Fragments as re-replication sees them: where each ends, what each member stores of it, what of that to verify. Pure.

    ledger metadata                                   fragments
      first entry 0  ensemble a b c                     0 ..  9   a b c   agreed
      first entry 10 ensemble a d c                     10 .. 17  a d c   agreed
      first entry 18 ensemble a d e    OPEN, LAC 20     18 .. 20  a d e   open: a recovery may still move its end

Only agreed fragments are copied (I-74): those of a closed ledger, and of an open one all but the last. Their ranges
never change again, so what was copied for one holds for ever. The last fragment of an open ledger needs a recovery
first.

An ensemble index stores the entries whose write set contains it; of a short fragment that may be none. A fragment may
also have no entry at all (a ledger closed below its last fragment): then `last_entry_id` is below `first_entry_id`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bookkeeper.model import INVALID_ENTRY_ID, BookieId, EntryId, LedgerMetadata
from bookkeeper.protocol.schedule import entries_by_turn, held_entries, holds

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True, slots=True)
class FragmentRange:
    """A fragment with its end.

    last_entry_id: included; of the last fragment of an open ledger as far as is known. agreed: that is its end for
    ever.
    """

    first_entry_id: int
    last_entry_id: int
    ensemble: tuple[BookieId, ...]
    write_quorum: int
    agreed: bool

    @property
    def empty(self) -> bool:
        """It has no entries."""
        return self.last_entry_id < self.first_entry_id

    def stored_by(self, index: int) -> Sequence[int]:
        """The entries that an ensemble index stores, ascending. Takes time and space for each of them if E > Qw."""
        return self.stored_within(index, self.first_entry_id, self.last_entry_id)

    def stored_within(self, index: int, first_entry_id: int, last_entry_id: int) -> Sequence[int]:
        """Those of a part of the fragment."""
        first, last = max(first_entry_id, self.first_entry_id), min(last_entry_id, self.last_entry_id)
        return held_entries(index, first, last, len(self.ensemble), self.write_quorum)

    def first_stored_by(self, index: int) -> int | None:
        """The first entry that an ensemble index stores; None if it stores none."""
        size = len(self.ensemble)
        for entry_id in range(self.first_entry_id, min(self.first_entry_id + size - 1, self.last_entry_id) + 1):
            if holds(index, entry_id, size, self.write_quorum):
                return entry_id
        return None

    def last_stored_by(self, index: int) -> int | None:
        """The last one likewise."""
        size = len(self.ensemble)
        for entry_id in range(self.last_entry_id, max(self.last_entry_id - size, self.first_entry_id - 1), -1):
            if holds(index, entry_id, size, self.write_quorum):
                return entry_id
        return None

    def stored_count(self, index: int) -> int:
        """How many entries an ensemble index stores."""
        size = len(self.ensemble)
        counts = entries_by_turn(self.first_entry_id, self.last_entry_id, size)
        return sum(count for turn, count in enumerate(counts) if holds(index, turn, size, self.write_quorum))

    def indexes_of(self, bookies: frozenset[BookieId]) -> dict[int, BookieId]:
        """Where any of `bookies` stands in the ensemble."""
        return {index: bookie for index, bookie in enumerate(self.ensemble) if bookie in bookies}


def fragments_of(metadata: LedgerMetadata, last_confirmed: int = INVALID_ENTRY_ID) -> list[FragmentRange]:
    """All fragments of a ledger. last_confirmed: what is known of the end while it is not closed."""
    ranges: list[FragmentRange] = []
    for position, fragment in enumerate(metadata.fragments):
        if position + 1 < len(metadata.fragments):
            last, agreed = metadata.fragments[position + 1].first_entry_id - 1, True
        else:
            last, agreed = last_confirmed, metadata.is_closed
        if metadata.last_entry_id is not None:
            last = (
                min(last, metadata.last_entry_id) if position + 1 < len(metadata.fragments) else metadata.last_entry_id
            )
        last = max(last, fragment.first_entry_id - 1)
        ranges.append(
            FragmentRange(fragment.first_entry_id, last, fragment.ensemble, metadata.write_quorum, agreed=agreed)
        )
    return ranges


def agreed_lac(metadata: LedgerMetadata) -> EntryId:
    """The LAC to write into copies: what every reader may know already, and never more (I-07).

    Of a closed ledger its last entry; of another one the end of the fragments before its last, all acknowledged (I-09).
    """
    if metadata.last_entry_id is not None:
        return metadata.last_entry_id
    return EntryId(metadata.last_fragment.first_entry_id - 1)


def entries_to_verify(fragment: FragmentRange, index: int, percentage: float, rng: Random) -> list[int]:
    """Which entries to look for at an ensemble index: the first and the last stored, and a share of those between.

    percentage: 0 .. 100 of what the index stores; from 100 on all of it. Those between are spread: one at random in
    each of as many equal parts. Ascending, each once; empty if the index stores nothing.
    Source: Apache 4.18 client/LedgerChecker.java, verifyLedgerFragment.
    """
    first, last = fragment.first_stored_by(index), fragment.last_stored_by(index)
    if first is None or last is None:
        return []
    ends = [first] if first == last else [first, last]
    if percentage <= 0 or first == last:
        return ends
    if percentage >= 100:
        return list(fragment.stored_by(index))
    wanted = int(fragment.stored_count(index) * percentage / 100)
    between = last - first - 1
    parts = min(wanted, between)
    chosen = set(ends)
    size = len(fragment.ensemble)
    for part in range(parts):
        low, high = first + 1 + between * part // parts, first + 1 + between * (part + 1) // parts
        entry_id = rng.randrange(low, high)
        # The nearest one at or below it that the index stores: at most E - Qw steps away, and not below `first`.
        while not holds(index, entry_id, size, fragment.write_quorum):
            entry_id -= 1
        chosen.add(entry_id)
    return sorted(chosen)


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Which entries of a fragment go to which bookie.

    targets: by ensemble index, who is to store what belongs there: a new member, or the old one where its copies are
    written anew. ranges: ascending and disjoint parts of the fragment, both ends included, if not all of it is meant.
    """

    fragment: FragmentRange
    targets: Mapping[int, BookieId]
    ranges: tuple[tuple[int, int], ...] | None = None

    def batches(self, entries_max: int) -> Iterator[CopyBatch]:
        """The work in parts of at most `entries_max` entries, ascending; parts that concern no target are left out."""
        fragment = self.fragment
        whole = ((fragment.first_entry_id, fragment.last_entry_id),)
        for low, high in self.ranges if self.ranges is not None else whole:
            first, stop = max(low, fragment.first_entry_id), min(high, fragment.last_entry_id)
            while first <= stop:
                last = min(stop, first + entries_max - 1)
                wanted = {bookie: fragment.stored_within(index, first, last) for index, bookie in self.targets.items()}
                wanted = {bookie: entry_ids for bookie, entry_ids in wanted.items() if entry_ids}
                if wanted:
                    yield CopyBatch(_union(wanted), wanted)
                first = last + 1


@dataclass(frozen=True, slots=True)
class CopyBatch:
    """Entries to read once, and who gets which of them."""

    entry_ids: Sequence[int]
    wanted: Mapping[BookieId, Sequence[int]]


def _union(wanted: Mapping[BookieId, Sequence[int]]) -> Sequence[int]:
    parts = list(wanted.values())
    if len(parts) == 1:
        return parts[0]
    longest = max(parts, key=len)
    if isinstance(longest, range) and longest.step == 1:
        return longest  # E = Qw: every member stores everything
    merged: set[int] = set()
    merged.update(*parts)
    return sorted(merged)
