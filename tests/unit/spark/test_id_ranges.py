"""Sets of ids as ranges, beside sets."""

from __future__ import annotations

import random

import pytest

from bookkeeper.spark.options.id_ranges import IdRanges


def ids_of(ranges: IdRanges) -> set[int]:
    assert list(ranges.ranges) == sorted(ranges.ranges)
    return {each for low, high in ranges.ranges for each in range(low, high + 1)}


@pytest.mark.parametrize("seed", range(200))
def test_what_sets_do_ranges_do(seed: int) -> None:
    rng = random.Random(seed)
    one, other = (set(rng.sample(range(30), rng.randint(0, 30))) for _ in range(2))
    ranges, others = IdRanges.of(one), IdRanges.of(other)
    assert ids_of(ranges) == one
    assert ids_of(ranges & others) == one & other
    assert ids_of(ranges - others) == one - other
    assert ids_of(ranges | others) == one | other
    assert {each for each in range(-1, 31) if each in ranges} == one
    assert IdRanges.parse(str(ranges)) == ranges
