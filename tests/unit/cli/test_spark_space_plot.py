"""What `bookkeeper spark space --plot` draws: a PNG, whatever is known."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.cli.spark.space_plot import BOOKIES_MAX, GROUPS_MAX, bars_of, draw_space
from bookkeeper.spark.space.grouping import GroupSums

GB = 10**9


def groups(count: int) -> list[dict[str, Any]]:
    """The greatest first; the last one of no known size."""
    of = {"ledgers": 1, "payload_bytes": 0}
    return [{**of, "group_name": f"owner {n}" if n else None, "stored_bytes": n * GB or None} for n in range(count)][
        ::-1
    ]


def all_groups(count: int) -> GroupSums:
    return GroupSums(count, max(0, count - 1), count, 0, sum(range(count)) * GB)


def bookies(count: int) -> list[dict[str, Any]]:
    silent = {"bookie": "silent:3181", "live_bytes": None, "garbage_bytes": None}
    return [silent, *({"bookie": f"b{n}:3181", "live_bytes": n, "garbage_bytes": 2 * n} for n in range(count))]


@pytest.mark.parametrize("count", [0, 1, GROUPS_MAX + BOOKIES_MAX])
def test_any_number_of_groups_and_bookies_is_drawn(count: int) -> None:
    pytest.importorskip("matplotlib")
    thresholds = [{"threshold": 0.5, "reclaimed_bytes": 7, "copied_bytes": 3}] * min(count, 1)
    assert draw_space("owner", groups(count), all_groups(count), bookies(count), thresholds).startswith(b"\x89PNG")


def test_the_bar_of_the_others_has_all_of_them_also_those_that_were_not_fetched() -> None:
    """150 owners, of which the 100 greatest were: no byte is left out of the picture."""
    bars = bars_of(groups(150)[:100], all_groups(150))
    assert [name for name, _ in bars[:2]] == ["owner 149", "owner 148"]
    assert (len(bars), bars[-1][0]) == (GROUPS_MAX + 1, f"{149 - GROUPS_MAX} others")
    assert sum(size for _, size in bars) == pytest.approx(sum(range(150)))


@pytest.mark.parametrize("count", [0, 1, 2, GROUPS_MAX, GROUPS_MAX + 1])
def test_where_all_groups_have_a_bar_there_are_no_others(count: int) -> None:
    bars = bars_of(groups(count), all_groups(count))
    assert [name for name, _ in bars] == [f"owner {n}" for n in range(count - 1, 0, -1)]
