"""Which hubs give up how many topics."""

from __future__ import annotations

import pytest

from hedwig.admin.balance import surplus
from hedwig.model import HubAddress

HUBS = [HubAddress("10.0.0.1", 4080 + number) for number in range(4)]


@pytest.mark.parametrize(
    ("loads", "tolerance", "expected"),
    [
        ([], 10, []),
        ([5], 10, []),
        ([0, 0], 10, []),
        ([1, 0], 10, []),
        ([2, 0], 10, []),
        ([2, 0], 0, [(0, 1)]),
        ([110, 90], 10, []),
        ([111, 89], 10, [(0, 11)]),
        ([101, 99], 0, [(0, 1)]),
        ([30, 100, 0, 70], 10, [(1, 50), (3, 20)]),
    ],
)
def test_a_hub_above_the_tolerance_gives_up_what_is_above_the_average(
    loads: list[int], tolerance: float, expected: list[tuple[int, int]]
) -> None:
    found = surplus(dict(zip(HUBS, loads, strict=False)), tolerance)
    assert list(found.items()) == [(HUBS[hub], count) for hub, count in expected]
