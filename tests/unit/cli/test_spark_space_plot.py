"""What `bookkeeper spark space --plot` draws: a PNG, whatever is known."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.cli.spark.space_plot import BOOKIES_MAX, GROUPS_MAX, draw_space


def groups(count: int) -> list[dict[str, Any]]:
    return [{"group_name": f"owner {n}" if n else None, "stored_bytes": n * 10**9 or None} for n in range(count)]


def bookies(count: int) -> list[dict[str, Any]]:
    silent = {"bookie": "silent:3181", "live_bytes": None, "garbage_bytes": None}
    return [silent, *({"bookie": f"b{n}:3181", "live_bytes": n, "garbage_bytes": 2 * n} for n in range(count))]


@pytest.mark.parametrize("count", [0, 1, GROUPS_MAX + BOOKIES_MAX])
def test_any_number_of_groups_and_bookies_is_drawn(count: int) -> None:
    pytest.importorskip("matplotlib")
    thresholds = [{"threshold": 0.5, "reclaimed_bytes": 7, "copied_bytes": 3}] * min(count, 1)
    assert draw_space("owner", groups(count), bookies(count), thresholds).startswith(b"\x89PNG")
