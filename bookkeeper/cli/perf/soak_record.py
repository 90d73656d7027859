"""What a soak records, every few seconds a line for each process, and what it says in the end. Pure.

    seconds,process,pid,resident_bytes,open_files,...        one header, then lines; a figure that is none is empty

Process "load" has the figures of the client, "bookie N" those of a bookie. Counters are since the start of the process.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from bookkeeper.errors import PortableError

LOAD = "load"

OF_ALL = ("resident_bytes", "open_files", "cpu_s")
OF_LOAD = ("adds_per_s", "p50_ms", "p99_ms", "checked_entries", "ledgers", "live_bytes", "errors")
OF_BOOKIES = (
    "ledger_bytes",
    "journal_bytes",
    "gc_ledgers",
    "gc_ledgers_deleted",
    "gc_bytes_removed",
    "gc_bytes_rewritten",
    "gc_bytes_copied",
    "gc_logs_compacted",
    "gc_logs_quarantined",
)
FIGURES = (*OF_ALL, *OF_LOAD, *OF_BOOKIES)
COLUMNS = ("seconds", "process", "pid", *FIGURES)

JUDGED = ("resident_bytes", "open_files", "ledger_bytes", "journal_bytes", "adds_per_s", "p50_ms", "p99_ms")
"""Figures of which the end tells how they went; the others only stand in the file."""


class NoSoak(PortableError, ValueError):
    """A file that no soak has written."""


@dataclass(frozen=True, slots=True)
class SoakLine:
    """What one process was like at one moment. figures: by name, those that it has."""

    seconds: float
    process: str
    pid: int
    figures: Mapping[str, float]


class SoakWriter:
    """Writes lines as they come; each is in the file when `add` returns, so an end in the middle loses nothing."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._csv = out, csv.writer(out)
        self._csv.writerow(COLUMNS)
        out.flush()

    def add(self, lines: Iterable[SoakLine]) -> None:
        """Of one moment."""
        for line in lines:
            figures = [_text(line.figures.get(name)) for name in FIGURES]
            self._csv.writerow([f"{line.seconds:.1f}", line.process, line.pid, *figures])
        self._out.flush()


def _text(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:.0f}" if float(figure).is_integer() else f"{figure:.4g}"


def read_soak(file: TextIO) -> list[SoakLine]:
    """All lines of a file; a last one that is not whole is left out. Raises NoSoak."""
    rows = csv.reader(file)
    if tuple(next(rows, ())) != COLUMNS:
        raise NoSoak("its first line is not that of a soak")
    lines = []
    for row in rows:
        if len(row) < len(COLUMNS):
            continue
        try:
            figures = {name: float(text) for name, text in zip(FIGURES, row[3:], strict=True) if text}
            lines.append(SoakLine(float(row[0]), row[1], int(row[2]), figures))
        except ValueError as error:
            raise NoSoak(f"line {rows.line_num}: {error}") from error
    return lines


@dataclass(frozen=True, slots=True)
class Trend:
    """How one figure of one process went after the warm-up. slope_per_h: of the straight line that fits best."""

    process: str
    figure: str
    mean: float
    least: float
    most: float
    slope_per_h: float

    @property
    def share_per_h(self) -> float | None:
        """The slope as a part of the mean."""
        return self.slope_per_h / self.mean if self.mean else None


def series(lines: Sequence[SoakLine], process: str, figure: str) -> list[tuple[float, float]]:
    """Seconds and values of one figure."""
    return [
        (each.seconds, each.figures[figure]) for each in lines if each.process == process and figure in each.figures
    ]


def processes(lines: Sequence[SoakLine]) -> list[str]:
    """In the order of their first lines."""
    return list(dict.fromkeys(line.process for line in lines))


def trends(lines: Sequence[SoakLine], warm_up_s: float) -> list[Trend]:
    """Of every judged figure of every process; none where fewer than three moments are left."""
    found = []
    for figure in JUDGED:
        for process in processes(lines):
            points = [point for point in series(lines, process, figure) if point[0] >= warm_up_s]
            if len(points) >= 3:
                values = [value for _, value in points]
                mean = sum(values) / len(values)
                found.append(Trend(process, figure, mean, min(values), max(values), slope(points) * 3600))
    return found


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line through the points with the least squares; 0.0 for points at one moment."""
    count = len(points)
    middle_x, middle_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0
