"""A run from its first line to its last, whatever is measured: what was chosen, all its rounds, how it ends."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from bookkeeper.console.output import EXIT_INTERRUPTED, counted
from bookkeeper.console.supervision import stopping_on_signals
from tests.benchmarks.apache.options import Refused, minutes_text
from tests.benchmarks.apache.records import AnyRound, Record, Records, Round, Workload, rounds_left

DEFAULT_REPETITIONS = 5
DEFAULT_SECONDS = 4.0
DEFAULT_MINUTES = 120.0


class Chosen(NamedTuple):
    """cells: the globs. seconds: of a measurement."""

    cells: str
    repetitions: int
    seconds: float


def chosen(options: argparse.Namespace, records: Iterable[Record], code: str) -> Chosen:
    """From the options; where they are silent, as the run that is resumed, else the defaults. Raises Refused.

    code: what is measured now, see code_id.
    """
    earlier: Record = next((record["plan"] for record in records if record["kind"] == "run"), {})
    seconds = options.seconds or earlier.get("seconds", DEFAULT_SECONDS)
    if earlier and seconds != earlier["seconds"]:
        raise Refused(f"run {options.id} measures {earlier['seconds']:g} s, not {seconds:g} s: give another --id")
    if earlier and earlier["code"] != code:
        raise Refused(f"run {options.id} measured another revision of the programs: give another --id")
    return Chosen(
        options.cells or earlier.get("cells", ""),
        options.reps or earlier.get("repetitions", DEFAULT_REPETITIONS),
        seconds,
    )


class Planned(Protocol):
    """What a run does."""

    @property
    def cells(self) -> Sequence[Workload]:
        """What is measured."""

    @property
    def repetitions(self) -> int:
        """Of each cell."""


def plan_text(plan: Planned, rounds: Sequence[Round], expected_s: float, needed_bytes: int) -> str:
    """What would run, how long, and how much disk it needs."""
    lines = [
        f"{counted(len(plan.cells), 'cell')}, {counted(plan.repetitions, 'repetition')}, "
        f"{counted(len(rounds), 'round')} to do with "
        f"{counted(sum(len(each.sides) for each in rounds), 'measurement')}; "
        f"about {minutes_text(expected_s)} on a quiet machine, {needed_bytes / 1e9:.0f} GB of disk"
    ]
    lines += [f"  {cell.name}: {', '.join(side.name for side in cell.sides)}" for cell in plan.cells]
    return "\n".join(lines)


def in_new_directory(parent: Path, work: Callable[[Path], object]) -> bool:
    """Do it with the name of a directory that is still to be made, and is removed; whether a signal ended it."""
    with stopping_on_signals(EXIT_INTERRUPTED):
        directory = Path(tempfile.mkdtemp(prefix=f"data-{os.getpid()}-", dir=parent)) / "run"
        try:
            work(directory)
        except SystemExit:  # the signal; from here on further ones are ignored, until all is cleared away
            return True
        finally:
            shutil.rmtree(directory.parent, ignore_errors=True)
    return False


def measure_all(
    groups: Iterable[Sequence[AnyRound]],
    records: Records,
    do: Callable[[AnyRound], list[Record]],
    outcome: Callable[[list[Record]], str],
    *,
    expected_s: float,
    limit_s: float,
) -> None:
    """Do all rounds, or those before the time is up.

    What was disturbed is repeated after the other rounds of its group: the disturbance may be over by then.
    do: carries out a round; its lines. outcome: those in words.
    """
    groups = [list(group) for group in groups]
    rounds = [each for group in groups for each in group]
    began = time.monotonic()
    for group in groups:
        waiting = group
        while waiting:
            for each in waiting:
                if time.monotonic() - began > limit_s:
                    return
                lines = do(each)
                done = len(rounds) - len(rounds_left(records.all, rounds))
                clock = f"{(time.monotonic() - began) / 60:.1f} of about {expected_s / 60:.0f} min"
                print(f"[{done}/{len(rounds)} done, {clock}] {outcome(lines)}", flush=True)
            waiting = rounds_left(records.all, waiting)


def told_end(name: str, options: argparse.Namespace, tables: str, left: int, *, interrupted: bool) -> int:
    """Print how a run ended, and how to go on with the rounds that are left; the exit code. name: of make's target."""
    if interrupted:
        print("\ninterrupted: everything is stopped, and the data removed")
    print(tables, end="")
    if left:
        # Cells, repetitions and seconds are those of the run: its file has them.
        directory_too = f" ARGS='--directory {options.directory}'" if options.directory else ""
        left_text = counted(left, "round is", "rounds are")
        print(f"\n{left_text} left; go on with: make {name} ID={options.id}{directory_too}")
    return EXIT_INTERRUPTED if interrupted else int(left > 0)
