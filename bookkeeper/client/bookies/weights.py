"""How much likelier a bookie with more free disk space is chosen (diskWeightBasedPlacementEnabled).

Pure. A weight is free space in bytes. Among the bookies that are equally good otherwise (placement.py) each is chosen
with a probability proportional to its weight, where

    not known, or none free    counts as the smallest weight known among them; 1 for all while nothing is known, so that
                               a bookie that was not asked yet, or did not answer, is still chosen
    far above the others       counts as `multiple_max` times their median, so that new bookies with empty disks do not
                               get every ledger

Source: Apache 4.18 client/DynamicWeightedRandomSelectionImpl.java. Differs from Apache: the median is of the weights
after the unknown ones have their value, not of zeros in their place; there, while most have not answered, nothing is
limited and the largest one gets nearly everything.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bookkeeper.model import BookieId


@dataclass(frozen=True, slots=True)
class DiskWeights:
    """What is known of the bookies' free space, and how far it may count. multiple_max: below 1, without limit."""

    free_bytes: Mapping[BookieId, int]
    multiple_max: int

    def of(self, candidates: Sequence[BookieId]) -> list[int]:
        """The weight of each, at least 1."""
        told = [max(self.free_bytes.get(bookie_id, 0), 0) for bookie_id in candidates]
        least = min((free for free in told if free), default=1)
        weights = [free or least for free in told]
        if self.multiple_max < 1:
            return weights
        largest = self.multiple_max * _median(weights)
        return [min(weight, largest) for weight in weights]

    def pick(self, candidates: Sequence[BookieId], rng: random.Random) -> BookieId:
        """One of them; of n free bytes of all of them, each of the n is as likely to decide."""
        until = list(accumulate(self.of(candidates)))
        ticket = rng.randrange(until[-1])
        return next(bookie_id for bookie_id, end in zip(candidates, until, strict=True) if ticket < end)


def _median(weights: Sequence[int]) -> int:
    """The middle one, or the whole part of the mean of the middle two."""
    ordered = sorted(weights)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2
