"""From what is to be read of ledgers to the partitions that Spark's tasks read. Pure.

    extents      what is to be read of each ledger: a range of entries, its size, where its fragments begin
       |  cut at fragment borders; a piece above the target is cut further, evenly
    slices       ranges of one ledger and one ensemble each
       |  neighbours that are small together share a partition
    partitions   lists of slices, in the order of the extents

The target is what each partition should hold: `partition_bytes_max`, or less where `partitions_min` asks for more
partitions. A slice weighs at least OPEN_COST_BYTES, because to open a ledger takes about as long as to read that much.
Every entry of the extents is in exactly one slice; a partition is at most twice the target, but for an entry that is
larger by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import itemgetter

from bookkeeper.model import LedgerMetadata

OPEN_COST_BYTES = 64 * 1024
SLICES_MAX = 4096
"""Slices of one partition: bounds what is pickled to a task."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What is to be read of one ledger: entries first..last, both included.

    size: about how many bytes. borders: entries at which a fragment begins, ascending. copies: of each entry.
    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    size: int
    borders: tuple[int, ...] = ()
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Slice:
    """Entries first..last of a ledger, both included, for one task."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    size: int
    """About how many bytes."""

    @property
    def weight(self) -> int:
        """What reading it costs, in bytes."""
        return max(self.size, OPEN_COST_BYTES)


def extent_of(ledger_id: int, metadata: LedgerMetadata, first: int, last: int, *, length: int, end: int) -> Extent:
    """The extent of entries first..last of a ledger of which entries 0..end, `length` bytes, are known."""
    mean = length / (end + 1) if end >= 0 else 0.0
    borders = tuple(fragment.first_entry_id for fragment in metadata.fragments)
    return Extent(ledger_id, first, last, int(mean * (last - first + 1)), borders, metadata.write_quorum)


def partitions_of(
    extents: Sequence[Extent], *, partition_bytes_max: int, partitions_min: int = 1
) -> list[tuple[Slice, ...]]:
    """Who reads what; no partition is empty, and nothing to read makes none."""
    total = sum(max(extent.size, OPEN_COST_BYTES) for extent in extents)
    share = -(-total // partitions_min) if partitions_min > 1 else partition_bytes_max
    target = max(1, min(partition_bytes_max, share))
    slices = [piece for extent in extents for piece in _slices(extent, target)]
    return _at_least(partitions_min, _packed(slices, target))


def _at_least(count: int, partitions: list[tuple[Slice, ...]]) -> list[tuple[Slice, ...]]:
    """So many partitions, or as many as there are entries. Of ledgers of unknown size: what has the most is halved."""
    if len(partitions) >= count:
        return partitions
    # The first of those that have the most: by its place, and in which half of what was there each time.
    heap: list[tuple[int, tuple[int, ...], tuple[Slice, ...]]] = [
        (-_entries(partition), (at,), partition) for at, partition in enumerate(partitions)
    ]
    heapify(heap)
    while 0 < len(heap) < count and heap[0][0] <= -2:
        _, place, widest = heappop(heap)
        for half, partition in enumerate(_halves(widest)):
            heappush(heap, (-_entries(partition), (*place, half), partition))
    return [partition for _, _, partition in sorted(heap, key=itemgetter(1))]


def _entries(partition: Iterable[Slice]) -> int:
    return sum(piece.last_entry_id - piece.first_entry_id + 1 for piece in partition)


def _slices(extent: Extent, target: int) -> Iterable[Slice]:
    count = extent.last_entry_id - extent.first_entry_id + 1
    if count <= 0:
        return
    inner = [border for border in extent.borders if extent.first_entry_id < border <= extent.last_entry_id]
    starts = [extent.first_entry_id, *inner]
    for first, after in zip(starts, [*inner, extent.last_entry_id + 1], strict=True):
        size = extent.size * (after - first) // count
        parts = min(after - first, max(1, -(-size // target)))
        for part in range(parts):
            low, high = (first + (after - first) * step // parts for step in (part, part + 1))
            yield Slice(extent.ledger_id, low, high - 1, size * (high - low) // (after - first))


def _packed(slices: Iterable[Slice], target: int) -> list[tuple[Slice, ...]]:
    partitions: list[tuple[Slice, ...]] = []
    current: list[Slice] = []
    weight = 0
    for piece in slices:
        if current and (weight + piece.weight > target or len(current) >= SLICES_MAX):
            partitions.append(tuple(current))
            current, weight = [], 0
        last = current[-1] if current else None
        if last is not None and last.ledger_id == piece.ledger_id and last.last_entry_id + 1 == piece.first_entry_id:
            current[-1] = Slice(
                piece.ledger_id, last.first_entry_id, piece.last_entry_id, last.size + piece.size
            )  # two fragments, one reader
        else:
            current.append(piece)
        weight += piece.weight
    if current:
        partitions.append(tuple(current))
    return partitions


def _halves(partition: tuple[Slice, ...]) -> list[tuple[Slice, ...]]:
    """Two partitions of half the entries each, in order."""
    left, right, wanted = [], [], _entries(partition) // 2
    for piece in partition:
        count = piece.last_entry_id - piece.first_entry_id + 1
        if wanted >= count:
            left.append(piece)
        elif wanted <= 0:
            right.append(piece)
        else:
            middle = piece.first_entry_id + wanted
            size = piece.size * wanted // count
            left.append(Slice(piece.ledger_id, piece.first_entry_id, middle - 1, size))
            right.append(Slice(piece.ledger_id, middle, piece.last_entry_id, piece.size - size))
        wanted -= min(count, max(wanted, 0))
    return [tuple(left), tuple(right)]
