"""Draws what `bookkeeper spark whatif` answered as a PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bookkeeper.console.figures import new_figure, png_of

BOOKIES_MAX = 40
"""Bookies that are drawn: those that most changes for."""

_WIDTH_IN, _HEIGHT_IN, _GB = 10.0, 10.0, 1e9

Rows = Sequence[Mapping[str, Any]]


def draw_whatif(title: str, bookies: Rows, risks: Sequence[tuple[str, int]]) -> bytes:
    """A PNG: what each bookie keeps, loses and receives; entries at risk. risks: name and how many entries, in order.

    Raises CommandFailed without the library.
    """
    figure = new_figure(_WIDTH_IN, _HEIGHT_IN)
    who, risk = figure.subplots(2, 1, height_ratios=(3, 1))
    figure.suptitle(title)
    most = sorted(bookies, key=lambda row: (-row["gone_bytes"] - row["received_bytes"], -row["before_bytes"]))
    shown = sorted(most[:BOOKIES_MAX], key=lambda row: str(row["bookie"]))
    names = [f"{row['bookie']} ({'lost' if row['is_lost'] else row['state'] or 'unknown'})" for row in shown]
    kept = [(row["before_bytes"] - row["gone_bytes"]) / _GB for row in shown]
    received = [row["received_bytes"] / _GB for row in shown]
    who.barh(names, kept, label="stays")
    who.barh(names, received, left=kept, label="is received")
    after = [one + other for one, other in zip(kept, received, strict=True)]
    who.barh(
        names, [row["gone_bytes"] / _GB for row in shown], left=after, label="goes", color="none", edgecolor="gray"
    )
    who.invert_yaxis()
    left_out = len(bookies) - len(shown)
    who.set_title("payload by bookie" + (f"; the {len(shown)} for which most changes" if left_out else ""))
    who.set_xlabel("GB")
    if shown:
        who.margins(x=0.05)
        who.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.08))

    risk.barh([name for name, _ in risks], [count for _, count in risks])
    risk.invert_yaxis()
    risk.set_title("entries, before anything is made anew")
    risk.set_xlabel("entries")
    risk.ticklabel_format(axis="x", style="plain")
    risk.set_xlim(0, 1.2 * max((count for _, count in risks), default=0) or 1)  # room for the figures
    for at, (_, count) in enumerate(risks):
        risk.annotate(f" {count:,}", (count, at), verticalalignment="center")
    return png_of(figure)
