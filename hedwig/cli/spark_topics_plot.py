"""Draws what `bookkeeper spark topics` read as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bookkeeper.console.figures import new_figure, png_of

TOPICS_MAX, LAGS_MAX = 10, 30
"""Lines and bars of a drawing; the busiest topics, the longest lags."""

_WIDTH_IN, _HEIGHT_IN = 10.0, 13.0

Rows = Sequence[dict[str, Any]]


def draw_topics(windows: Rows, lags: Rows) -> bytes:
    """A PNG: messages and bytes per second of each topic over time, messages that subscriptions are behind.

    A topic without messages in a window has none there, and no point. Raises CommandFailed without the library.
    """
    figure = new_figure(_WIDTH_IN, _HEIGHT_IN)
    messages, sizes, behind = figure.subplots(3, 1)
    of_topic: dict[str, dict[Any, tuple[float, float]]] = {}
    for row in windows:
        points = of_topic.setdefault(row["topic"], {})
        count, size = points.get(row["window_start"], (0.0, 0.0))
        points[row["window_start"]] = (count + row["messages_per_s"], size + row["bytes_per_s"])
    busiest = sorted(of_topic, key=lambda topic: -sum(count for count, _ in of_topic[topic].values()))[:TOPICS_MAX]
    for topic in busiest:
        times = sorted(of_topic[topic])
        messages.plot(times, [of_topic[topic][time][0] for time in times], marker=".", label=topic)
        sizes.plot(times, [of_topic[topic][time][1] for time in times], marker=".", label=topic)
    left_out = len(of_topic) - len(busiest)
    messages.set_title("messages per second" + (f"; the {TOPICS_MAX} busiest topics" if left_out else ""))
    sizes.set_title("bytes per second")
    for axes in (messages, sizes):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if busiest:
            axes.legend()
    known = sorted((row for row in lags if row["messages_behind"] is not None), key=lambda row: -row["messages_behind"])
    shown = known[:LAGS_MAX]
    behind.barh([f"{row['topic']}: {row['subscriber']}" for row in shown], [row["messages_behind"] for row in shown])
    behind.invert_yaxis()
    behind.set_title("messages behind" + (f"; the {LAGS_MAX} longest" if len(known) > LAGS_MAX else ""))
    return png_of(figure)
