"""Draws how a namespace grew as a PNG."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

from bookkeeper.console.figures import new_figure, png_of

_WIDTH_IN, _HEIGHT_IN = 10.0, 9.0
_STEPS = {"day": datetime.timedelta(days=1), "hour": datetime.timedelta(hours=1)}
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "bytes"))

Rows = Sequence[dict[str, Any]]


def draw_growth(txid: int, by: str, growth: Rows) -> bytes:
    """A PNG: bytes and files that there were at the end of each day or hour, and what came and went in it.

    growth: ms (None: no time), bytes, files, bytes_added, bytes_removed, by time. Raises CommandFailed without the
    library.
    """
    figure = new_figure(_WIDTH_IN, _HEIGHT_IN)
    there, changes = figure.subplots(2, 1, sharex=True)
    timed = [row for row in growth if row["ms"] is not None]
    begins = [datetime.datetime.fromtimestamp(row["ms"] / 1000, datetime.UTC) for row in timed]
    ends = [each + _STEPS[by] for each in begins]
    scale, unit = _unit_of(row["bytes"] for row in timed)
    there.plot(ends, [row["bytes"] / scale for row in timed], marker=".", color="tab:blue", label=unit)
    there.set_ylabel(f"{unit}, one copy of each file")
    there.set_ylim(bottom=0)
    counts = there.twinx()
    counts.plot(ends, [row["files"] for row in timed], marker=".", color="tab:orange", label="files")
    counts.set_ylabel("files")
    counts.set_ylim(bottom=0)
    there.legend(handles=[*there.get_lines(), *counts.get_lines()])
    there.set_title(f"the namespace up to txid {txid:,}")
    scale, unit = _unit_of(max(row["bytes_added"], row["bytes_removed"]) for row in timed)
    changes.bar(begins, [row["bytes_added"] / scale for row in timed], _STEPS[by], align="edge", label="added")
    changes.bar(begins, [-row["bytes_removed"] / scale for row in timed], _STEPS[by], align="edge", label="removed")
    changes.set_ylabel(f"{unit} in each {by} (UTC)")
    changes.axhline(0, color="black", linewidth=0.5)
    changes.legend()
    figure.autofmt_xdate()
    return png_of(figure)


def _unit_of(sizes: Iterable[int]) -> tuple[float, str]:
    """In what the greatest of them is told."""
    most = max(sizes, default=0)
    return next(((scale, unit) for scale, unit in _UNITS if most >= scale), _UNITS[-1])
