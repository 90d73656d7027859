"""What `bookkeeper spark whatif --plot` draws: a PNG, whatever the answer is."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.cli.spark.whatif_plot import BOOKIES_MAX, draw_whatif


def bookies(count: int) -> list[dict[str, Any]]:
    return [
        {
            "bookie": f"b{n}:3181",
            "state": None if n == 2 else "writable",
            "is_lost": n == 1,
            "before_bytes": n * 10**9,
            "gone_bytes": n * 10**8,
            "received_bytes": 5,
        }
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 3, BOOKIES_MAX + 1])
def test_any_number_of_bookies_and_risks_is_drawn(count: int) -> None:
    pytest.importorskip("matplotlib")
    risks = [("left with one copy", 10**9), ("left with no copy at all", 0)][: count and 2]
    assert draw_whatif("b1:3181 is lost", bookies(count), risks).startswith(b"\x89PNG")
