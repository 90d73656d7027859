"""Many ids, held as runs of consecutive ones, and cut into shares of about the same count. Pure.

Memory: 16 bytes a run. A share is what one task is told: first and last of each run, one after the other.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator


class IdRuns:
    """Ids that are added in ascending order."""

    def __init__(self) -> None:
        self._ends: array[int] = array("q")
        self.count = 0

    def add(self, ids: Iterable[int]) -> None:
        """Each above all before."""
        ends = self._ends
        for each in ids:
            if ends and each <= ends[-1]:
                raise ValueError(f"id {each} comes after {ends[-1]}")
            if ends and each == ends[-1] + 1:
                ends[-1] = each
            else:
                ends.extend((each, each))
            self.count += 1

    def runs(self) -> list[tuple[int, int]]:
        """First and last id of each run, ascending."""
        return list(_pairs(self._ends))

    def shares(self, count_max: int, shares_min: int = 1) -> list[array[int]]:
        """All ids, in order, at most `count_max` in a share; `shares_min` shares at least where there are enough."""
        size = max(1, min(count_max, -(-self.count // shares_min)))
        shares: list[array[int]] = []
        room = 0
        for first, last in _pairs(self._ends):
            while first <= last:
                if room == 0:
                    shares.append(array("q"))
                    room = size
                end = min(last, first + room - 1)
                shares[-1].extend((first, end))
                room -= end - first + 1
                first = end + 1
        return shares


def ids_of(share: array[int]) -> Iterator[int]:
    """The ids of a share, ascending."""
    for first, last in _pairs(share):
        yield from range(first, last + 1)


def _pairs(ends: array[int]) -> Iterator[tuple[int, int]]:
    return zip(ends[::2], ends[1::2], strict=True)
