"""Draws what `bookkeeper spark space` found as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bookkeeper.console.figures import new_figure, png_of
from bookkeeper.spark.space.grouping import GroupSums

GROUPS_MAX, BOOKIES_MAX = 20, 40
"""Bars of each drawing; the others are one bar together, and no bookie's bar stands for two."""

_WIDTH_IN, _HEIGHT_IN, _GB = 10.0, 13.0, 1e9

Rows = Sequence[dict[str, Any]]


def bars_of(groups: Rows, all_groups: GroupSums) -> list[tuple[str, float]]:
    """Names and GB: of the greatest a bar each, and one of all others that have a size.

    groups: the greatest first, GROUPS_MAX of those with a size at least, or all there are.
    """
    drawn = [row for row in groups if row["stored_bytes"] is not None][:GROUPS_MAX]
    bars = [(_name(row), row["stored_bytes"] / _GB) for row in drawn]
    others = all_groups.without(drawn)
    return [*bars, (f"{others.known:,} others", others.stored_bytes / _GB)] if others.known else bars


def draw_space(by: str, groups: Rows, all_groups: GroupSums, bookies: Rows, thresholds: Rows) -> bytes:
    """A PNG: bytes by group, live bytes and garbage by bookie, what each threshold of compaction gives and copies.

    groups: as of `bars_of`. Raises CommandFailed without the library.
    """
    figure = new_figure(_WIDTH_IN, _HEIGHT_IN)
    whose, where, gives = figure.subplots(3, 1)
    bars = bars_of(groups, all_groups)
    whose.barh([name for name, _ in bars], [size for _, size in bars])
    whose.invert_yaxis()
    whose.set_title(f"payload of all copies, by {by}")
    whose.set_xlabel("GB")

    told = [row for row in bookies if row["live_bytes"] is not None]
    shown = sorted(told, key=lambda row: -row["garbage_bytes"])[:BOOKIES_MAX]
    names = [row["bookie"] for row in shown]
    live = [row["live_bytes"] / _GB for row in shown]
    where.barh(names, live, label="live")
    where.barh(names, [row["garbage_bytes"] / _GB for row in shown], left=live, label="garbage")
    where.invert_yaxis()
    left_out = len(told) - len(shown)
    where.set_title(
        "entry logs"
        + (f"; the {len(shown)} bookies with the most garbage" if left_out else "")
        + (f"; not known of {len(bookies) - len(told)}" if len(told) < len(bookies) else "")
    )
    where.set_xlabel("GB")
    if shown:
        where.legend()

    limits = [row["threshold"] for row in thresholds]
    gives.plot(limits, [row["reclaimed_bytes"] / _GB for row in thresholds], marker="o", label="gives back")
    gives.plot(limits, [row["copied_bytes"] / _GB for row in thresholds], marker="o", label="copies")
    gives.set_title("compaction of logs with a live share below")
    gives.set_ylabel("GB")
    gives.set_ylim(bottom=0)
    gives.grid(alpha=0.3)
    gives.legend()
    return png_of(figure)


def _name(row: dict[str, Any]) -> str:
    return "(none)" if row["group_name"] is None else str(row["group_name"])
