"""Sets of ids as ranges: small where ids follow each other, as those of ledgers do. Pure, immutable.

Written `1-500,502`: ascending, disjoint, not even adjacent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Ranges = tuple[tuple[int, int], ...]

ID_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class IdRanges:
    """Ids low..high of each range, both included."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, ids: Iterable[int]) -> IdRanges:
        """The set of some ids."""
        return cls(_merged((each, each) for each in ids))

    @classmethod
    def parse(cls, text: str) -> IdRanges:
        """Read back what `str` gives; "" is the empty set. Raises ValueError."""
        found = []
        for part in text.split(",") if text else []:
            low, _, high = part.partition("-")
            found.append((int(low), int(high or low)))
            if found[-1][0] > found[-1][1]:
                raise ValueError(f"{part!r} ends before it begins")
        return cls(_merged(found))

    def __str__(self) -> str:
        return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in self.ranges)

    def __contains__(self, wanted: int) -> bool:
        at = bisect_right(self.ranges, (wanted, 2**64)) - 1
        return at >= 0 and wanted <= self.ranges[at][1]

    def __and__(self, other: IdRanges) -> IdRanges:
        return IdRanges(tuple(_common(self.ranges, other.ranges)))

    def __sub__(self, other: IdRanges) -> IdRanges:
        return self & IdRanges(tuple(_between(other.ranges)))

    def __or__(self, other: IdRanges) -> IdRanges:
        return IdRanges(_merged([*self.ranges, *other.ranges])) if other.ranges else self


def _common(ones: Ranges, others: Ranges) -> Iterator[tuple[int, int]]:
    """What is in both."""
    one = other = 0
    while one < len(ones) and other < len(others):
        low, high = max(ones[one][0], others[other][0]), min(ones[one][1], others[other][1])
        if low <= high:
            yield low, high
        if ones[one][1] < others[other][1]:
            one += 1
        else:
            other += 1


def _between(ranges: Ranges) -> Iterator[tuple[int, int]]:
    """Ids, from 0 on, that are in none."""
    after = 0
    for low, high in ranges:
        if after < low:
            yield after, low - 1
        after = high + 1
    yield after, ID_MAX


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(_joined(sorted(ranges)))


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    current: tuple[int, int] | None = None
    for low, high in ranges:
        if current is not None and low <= current[1] + 1:
            current = (current[0], max(current[1], high))
        else:
            if current is not None:
                yield current
            current = (low, high)
    if current is not None:
        yield current
