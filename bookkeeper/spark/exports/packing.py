"""Which entries of a day's ledgers go to which file. Pure.

    ledgers of one day, ascending     5: 10 MB   6: 300 MB                      7: 1 MB   8: 2 MB   ...
    pieces                            5          6 (128) | 6 (128) | 6 (44)     7         8
    files, at most 128 MB             5 |        6       | 6       | 6, 7, 8, ...

A ledger that is larger than a file is cut into pieces that are as large as a file; pieces fill files in their order, so
that the entries of a ledger are in order in each file, and in files that follow each other. Nothing else makes a file
small but that its day has no more. A piece weighs LEDGER_BYTES at least: to open a ledger takes its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LEDGER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class LedgerSize:
    """Entries 0..last_entry_id of a ledger, -1: none; about `size` bytes together."""

    ledger_id: int
    last_entry_id: int
    size: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Entries first..last of a ledger, both included, that go to a file of the day, counted from 0."""

    file: int
    ledger_id: int
    first_entry_id: int
    last_entry_id: int


def packed(ledgers: Iterable[LedgerSize], file_bytes_max: int) -> Iterator[Piece]:
    """The pieces of one day's ledgers, in order; a ledger without entries has none."""
    file, filled = 0, 0
    for ledger in sorted(ledgers, key=lambda each: each.ledger_id):
        for first, last, size in _cut(ledger, file_bytes_max):
            weight = max(size, LEDGER_BYTES)
            if filled and filled + weight > file_bytes_max:
                file, filled = file + 1, 0
            filled += weight
            yield Piece(file, ledger.ledger_id, first, last)


def _cut(ledger: LedgerSize, file_bytes_max: int) -> Iterator[tuple[int, int, int]]:
    count = ledger.last_entry_id + 1
    if count <= 0:
        return
    step = max(1, count * file_bytes_max // max(1, ledger.size)) if ledger.size > file_bytes_max else count
    for first in range(0, count, step):
        after = min(count, first + step)
        yield first, after - 1, ledger.size * (after - first) // count
