"""The JSON lines of a run: one line a measurement, appended and flushed at once, so that a run can be resumed.

A line of kind "run" tells the machine and the settings each time the run is started or resumed; "memory" the resident
memory of every process at a moment; "measured" and "failed" belong to an attempt at a round.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

ATTEMPTS_MAX = 3
"""Attempts at a round that is not quiet, or fails."""

Record = dict[str, Any]


class Named(Protocol):
    """A side."""

    @property
    def name(self) -> str:
        """Of a line's `side`."""


class Workload(Named, Protocol):
    """A cell."""

    @property
    def sides(self) -> Sequence[Named]:
        """Who is measured."""


class Round(Protocol):
    """All sides of a cell, once."""

    @property
    def cell(self) -> Workload:
        """What is measured."""

    @property
    def repetition(self) -> int:
        """From 0."""

    @property
    def sides(self) -> Sequence[Named]:
        """In which order."""


AnyWorkload = TypeVar("AnyWorkload", bound=Workload)
AnyRound = TypeVar("AnyRound", bound=Round)


class Records:
    """The file, and what it holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all = load(path)

    def add(self, record: Record) -> None:
        """Append one line; it is in the file on return."""
        self.all.append(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())


def load(path: Path) -> list[Record]:
    """All lines; [] when there is no file. A last line that was cut off is dropped, and cut off in the file."""
    if not path.exists():
        return []
    text = path.read_text()
    whole, _, rest = text.rpartition("\n")
    if rest:
        path.write_text(whole + "\n" if whole else "")
    return [json.loads(line) for line in whole.splitlines() if line]


def attempts(records: Iterable[Record], cell: str, repetition: int) -> dict[int, list[Record]]:
    """What is known of one round: attempt -> its lines."""
    found: dict[int, list[Record]] = {}
    for record in records:
        if record["kind"] in ("measured", "failed") and (record["cell"], record["repetition"]) == (cell, repetition):
            found.setdefault(record["attempt"], []).append(record)
    return found


def is_complete(lines: Sequence[Record], sides: Iterable[str]) -> bool:
    """Every side was measured in this attempt."""
    return {line["side"] for line in lines if line["kind"] == "measured"} >= set(sides)


def is_quiet(lines: Sequence[Record]) -> bool:
    """Nothing disturbed this attempt, and nothing failed."""
    return all(line["kind"] == "measured" and line["quiet"] for line in lines)


def next_attempt(records: Iterable[Record], each: Round) -> int | None:
    """The number of the next attempt at a round; None when it is done, or was tried often enough."""
    known = attempts(records, each.cell.name, each.repetition)
    sides = [side.name for side in each.sides]
    if any(is_complete(lines, sides) and is_quiet(lines) for lines in known.values()):
        return None
    # An attempt that was interrupted is not one that was lost.
    tried = sum(
        is_complete(lines, sides) or any(line["kind"] == "failed" for line in lines) for lines in known.values()
    )
    return max(known, default=-1) + 1 if tried < ATTEMPTS_MAX else None


def rounds_left(records: Sequence[Record], rounds: Iterable[AnyRound]) -> list[AnyRound]:
    """Those of which another attempt is due."""
    return [each for each in rounds if next_attempt(records, each) is not None]


def best_attempt(records: Iterable[Record], cell: str, repetition: int, sides: Sequence[str]) -> list[Record]:
    """The lines to report for a round: of a quiet attempt, else of the last complete one, else none."""
    complete = [lines for lines in attempts(records, cell, repetition).values() if is_complete(lines, sides)]
    quiet = [lines for lines in complete if is_quiet(lines)]
    chosen = (quiet or complete)[-1:]
    return [line for lines in chosen for line in lines if line["kind"] == "measured"]
