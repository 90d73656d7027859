"""Draws what a soak recorded as a PNG. Needs matplotlib, the extra `plot`; a soak without it records all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bookkeeper.cli.perf.soak_record import LOAD, SoakLine, processes, series
from bookkeeper.console.figures import new_figure, png_of

_WIDTH_IN, _HEIGHT_IN = 11.0, 15.0


def draw(lines: Sequence[SoakLine], title: str, warm_up_s: float) -> bytes:
    """A PNG of memory, file handles, disk, adds, latency and collection. Raises CommandFailed without the library."""
    figure = new_figure(_WIDTH_IN, _HEIGHT_IN)
    everyone = processes(lines)
    bookies = [process for process in everyone if process != LOAD]
    figure.suptitle(title)
    memory, files, disk, adds, latency, collection = figure.subplots(6, 1, sharex=True)

    def plot(axes: Any, who: Sequence[str], name: str, scale: float = 1.0, label: Callable[[str], str] = str) -> None:
        for process in who:
            points = series(lines, process, name)
            if points:
                xs, ys = [seconds / 60 for seconds, _ in points], [value / scale for _, value in points]
                axes.plot(xs, ys, label=label(process), linewidth=0.9)

    plot(memory, everyone, "resident_bytes", 1e6)
    plot(files, everyone, "open_files")
    plot(disk, bookies, "ledger_bytes", 1e6, "{}, ledgers".format)
    plot(disk, bookies, "journal_bytes", 1e6, "{}, journal".format)
    plot(disk, [LOAD], "live_bytes", 1e6 * max(1, len(bookies)), lambda _: "entries that stay, a bookie's share")
    plot(adds, [LOAD], "adds_per_s")
    plot(latency, [LOAD], "p50_ms", label=lambda _: "p50")
    plot(latency, [LOAD], "p99_ms", label=lambda _: "p99")
    plot(collection, bookies, "gc_bytes_removed", 1e6, "{}, removed".format)
    plot(collection, bookies, "gc_bytes_copied", 1e6, "{}, copied".format)
    for axes, what in (
        (memory, "resident MB"),
        (files, "open files"),
        (disk, "MB on disk"),
        (adds, "adds/s"),
        (latency, "ms"),
        (collection, "collection, MB"),
    ):
        axes.set_ylabel(what)
        axes.grid(alpha=0.3)
        if what != "ms":
            axes.set_ylim(bottom=0)
        else:
            axes.set_yscale("log")
        axes.axvline(warm_up_s / 60, color="grey", linestyle=":")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="x-small", ncols=3, loc="upper left")
    collection.set_xlabel("minutes; dotted: the end of the warm-up")
    return png_of(figure)
