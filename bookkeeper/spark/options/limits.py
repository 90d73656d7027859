"""What one micro-batch of a stream may hold at most, shared by what it reads from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K", int, str)
"""Of what is read from: the id of a ledger, the name of a topic."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one micro-batch may hold at most; None: no limit. One entry may always pass."""

    entries: int | None = None
    size: int | None = None


def within(left: Mapping[K, int], mean_sizes: Mapping[K, float], limits: Limits) -> dict[K, int]:
    """How many entries of each ledger, or messages of each topic, of the `left` ones.

    The sums stay within the limits, but for one entry that is too large alone.
    """
    counts = dict(left)
    if limits.entries is not None:
        counts = _share(counts, dict.fromkeys(counts, 1.0), limits.entries)
    if limits.size is not None:
        counts = _share(counts, {each: max(1.0, mean_sizes[each]) for each in counts}, limits.size)
    if left and not any(counts.values()):
        counts[min(left)] = 1
    return counts


def _share(counts: Mapping[K, int], weights: Mapping[K, float], limit: int) -> dict[K, int]:
    total = sum(count * weights[each] for each, count in counts.items())
    if total <= limit:
        return dict(counts)
    shares = {each: int(count * limit / total) for each, count in counts.items()}
    room = limit - sum(count * weights[each] for each, count in shares.items())
    for each in sorted(counts):  # what rounding left over
        if shares[each] < counts[each] and weights[each] <= room:
            shares[each] += 1
            room -= weights[each]
    return shares
