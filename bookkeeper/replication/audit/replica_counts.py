"""What bookies say they hold, against what the metadata says they should. Pure.

One byte for each entry and ensemble index, of CHUNK_ENTRIES_MAX entries at a time: comparing what is stored with what
should be is one operation on large integers, and only where something is missing entries are looked at one by one.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from bookkeeper.protocol.schedule import holds, write_set
from bookkeeper.replication.copies.fragments import FragmentRange

CHUNK_ENTRIES_MAX = 65_536
"""Entries that one call of `count_missing` may look at: some ten milliseconds where every one of them is missing."""

Held = Sequence[range] | None
"""Entries that a bookie says it holds, ascending and disjoint; None where it did not say."""


class Shortage(enum.IntEnum):
    """How bad it is for the worst-off entry; what is unknown counts as there."""

    NONE = 0
    BELOW_WRITE_QUORUM = 1
    BELOW_ACK_QUORUM = 2
    NO_COPY = 3


def chunks(fragment: FragmentRange) -> list[tuple[int, int]]:
    """First and last entry, both included, of pieces that can be counted."""
    starts = range(fragment.first_entry_id, fragment.last_entry_id + 1, CHUNK_ENTRIES_MAX)
    return [(first, min(first + CHUNK_ENTRIES_MAX - 1, fragment.last_entry_id)) for first in starts]


def count_missing(
    fragment: FragmentRange, ack_quorum: int, held: Mapping[int, Held], first: int, last: int
) -> tuple[dict[int, int], Shortage]:
    """Entries of first..last that each ensemble index should hold and says it does not, and how bad that is.

    held: by ensemble index. An index of which nothing is missing is not in the result.
    """
    assert last - first < CHUNK_ENTRIES_MAX
    size, count = len(fragment.ensemble), last - first + 1
    stored: dict[int, bytearray] = {}
    missing: dict[int, int] = {}
    for index in range(size):
        ranges = held[index]
        if ranges is None:
            continue
        has = _marked(ranges, first, count)
        stored[index] = has
        pattern = bytes(holds(index, first + offset, size, fragment.write_quorum) for offset in range(size))
        should = (pattern * (count // size + 1))[:count]
        lacking = int.from_bytes(should, "big") & ~int.from_bytes(has, "big")
        if lacking:
            missing[index] = lacking.bit_count()
    if not missing:
        return {}, Shortage.NONE
    fewest = fragment.write_quorum
    for offset in range(count):
        places = write_set(first + offset, size, fragment.write_quorum)
        copies = sum(1 for index in places if index not in stored or stored[index][offset])
        if copies < fewest:
            fewest = copies
            if not fewest:
                break
    return missing, _shortage(fewest, fragment.write_quorum, ack_quorum)


def _marked(ranges: Sequence[range], first: int, count: int) -> bytearray:
    """A byte for each of `count` entries from `first` on: 1 where it is in one of the ranges."""
    marks = bytearray(count)
    for position in range(bisect_right(ranges, first, key=_stop), len(ranges)):
        start, stop = ranges[position].start - first, ranges[position].stop - first
        if start >= count:
            break
        start, stop = max(start, 0), min(stop, count)
        marks[start:stop] = b"\1" * (stop - start)
    return marks


def _stop(entries: range) -> int:
    return entries.stop


def _shortage(fewest: int, write_quorum: int, ack_quorum: int) -> Shortage:
    if fewest == 0:
        return Shortage.NO_COPY
    if fewest < ack_quorum:
        return Shortage.BELOW_ACK_QUORUM
    return Shortage.BELOW_WRITE_QUORUM if fewest < write_quorum else Shortage.NONE
