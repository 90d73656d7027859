"""How an audit is divided: chunks of ledgers into parts, for a task each, and parts into rounds, for a job each. Pure.

    chunks, in the order of ledgers    | part 0 | part 1 | part 2 | part 3 | part 4 |
                                       |     round 0     |     round 1     | round 2|

A part is some ranges of chunks of about the same weight; a round is what is kept as one when it is done, and not done
again when an audit goes on where it ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bookkeeper.spark.audit.evidence import chunk_of
from bookkeeper.spark.ledgers.plan import Extent, partitions_of

ROUNDS_MAX = 200
PARTS_PER_TASK = 4
"""Parts of a round for each task that runs at once: the slowest one is a small share of the round."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Chunks first..last, both included, of a ledger up to its last entry; `size`: about, in bytes of all copies.

    length: of the whole ledger, one copy, as its metadata say; None of one that is not closed.
    """

    part: int
    ledger_id: int
    first_chunk: int
    last_chunk: int
    last_entry_id: int
    size: int
    length: int | None = None


def chunk_extents(extents: Sequence[Extent]) -> list[Extent]:
    """Extents in numbers of chunks, with the bytes of all copies."""
    return [
        Extent(each.ledger_id, chunk_of(each.first_entry_id), chunk_of(each.last_entry_id), each.size * each.copies)
        for each in extents
    ]


def pieces_of(
    extents: Sequence[Extent],
    lengths: Mapping[int, int] = MappingProxyType({}),
    *,
    partition_bytes_max: int,
    partitions_min: int,
) -> Iterator[Piece]:
    """All chunks of the extents, each in one piece; in order. lengths: of closed ledgers."""
    ends = {each.ledger_id: each.last_entry_id for each in extents}
    chunks = chunk_extents(extents)
    for part, slices in enumerate(
        partitions_of(chunks, partition_bytes_max=partition_bytes_max, partitions_min=partitions_min)
    ):
        for each in slices:
            yield Piece(
                part, each.ledger_id, each.first_entry_id, each.last_entry_id, ends[each.ledger_id], each.size,
                lengths.get(each.ledger_id),
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Division:
    """Where each part begins, as (ledger, chunk), ascending; and how many parts a round has."""

    starts: tuple[tuple[int, int], ...]
    parts_per_round: int

    @classmethod
    def of(cls, pieces: Sequence[Piece], *, tasks: int, one_round: bool = False) -> Division:
        """For `tasks` that run at once."""
        starts: list[tuple[int, int]] = []
        for piece in pieces:
            if piece.part == len(starts):
                starts.append((piece.ledger_id, piece.first_chunk))
        least = -(-len(starts) // (1 if one_round else ROUNDS_MAX))
        return cls(tuple(starts), max(1, least if one_round else max(least, PARTS_PER_TASK * tasks)))

    @property
    def rounds(self) -> int:
        """How many there are."""
        return -(-len(self.starts) // self.parts_per_round)

    def part_of(self, ledger_id: int, chunk: int) -> int:
        """The part that has a chunk; some part for one that is in none; -1 for one before all of them."""
        return bisect_right(self.starts, (ledger_id, chunk)) - 1

    def round_of(self, part: int) -> int:
        """The round that has a part."""
        return part // self.parts_per_round

    def parts_of(self, number: int) -> range:
        """The parts of a round."""
        first = number * self.parts_per_round
        return range(first, min(len(self.starts), first + self.parts_per_round))
