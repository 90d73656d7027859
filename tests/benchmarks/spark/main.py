"""`make bench-spark`: the Spark sources beside their ceilings, in alternation, on a cluster of this machine.

    python -m tests.benchmarks.spark.main [--reps 5] [--cells memory,ledgers] [--rows-100 N] [--rows-1024 N]

One session, local[2]; three bookies; the same rows everywhere. Each repetition measures every cell once, of one size
after the other; which comes first rotates. The first repetition warms up and is thrown away. At last one bookie is
stopped, and what reads its directories in place is measured in the same way. Ratios are taken within a repetition.
No repetition begins that would end after --minutes. Prints every figure, medians and the goals; asserts nothing about
speed. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bookkeeper.console.output import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, CommandFailed, note
from bookkeeper.console.subcommands import at_least
from bookkeeper.console.supervision import stopping_on_signals
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.java import find_java
from tests.benchmarks.apache.machine import machine_facts
from tests.benchmarks.apache.processes import DISK_SETTINGS
from tests.benchmarks.apache.quiet import OTHERS_SHARE_MAX, others_share, read_cpu_times, tree_cpu_s
from tests.benchmarks.spark.audits import IN_PLACE, THROUGH_BOOKIES, copy_size
from tests.benchmarks.spark.cells import chosen
from tests.benchmarks.spark.ground import TASKS, Cell, Ground, fill, fill_fragmented
from tests.benchmarks.spark.report import IN_PLACE_MB_PER_S_MIN, Outcome, Volume, show
from tests.benchmarks.spark.trigger import smallest_trigger

SIZES = (100, 1024)
VOLUMES = (Volume(THROUGH_BOOKIES, copy_size), Volume(IN_PLACE, copy_size, IN_PLACE_MB_PER_S_MIN))
IN_PLACE_SHARE = 0.1
"""Of --minutes, kept for what comes after the repetitions."""


def main(arguments: Sequence[str]) -> int:
    """0: done; 1: a load failed; 2: usage; 130: interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=at_least(1), default=5, metavar="N", help="at most that count (default: 5)")
    parser.add_argument("--cells", metavar="NAMES", help="only those that one of these begins (default: all)")
    parser.add_argument("--rows-100", type=at_least(8), default=6_000_000, metavar="N",
                        help="rows of 100 B (default: %(default)s)")  # fmt: skip
    parser.add_argument("--rows-1024", type=at_least(8), default=1_500_000, metavar="N",
                        help="rows of 1 KiB (default: %(default)s)")  # fmt: skip
    parser.add_argument("--triggers", type=at_least(0), default=40, metavar="N",
                        help="micro-batches of one row (default: %(default)s)")  # fmt: skip
    parser.add_argument("--minutes", type=at_least(1), default=60, metavar="N",
                        help="about how long it may take (default: %(default)s)")  # fmt: skip
    parser.add_argument("--directory", type=Path, metavar="DIR", help="for the data, 25 GB (default: temporary)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append every figure as a line")
    options = parser.parse_args(arguments)
    try:
        cells = chosen(options.cells)
    except ValueError as error:
        print(f"bench-spark: {error}", file=sys.stderr)
        return EXIT_USAGE
    try:
        with stopping_on_signals(EXIT_INTERRUPTED):
            return _run(options, cells)
    except CommandFailed as error:
        print(f"bench-spark: {error}", file=sys.stderr)
        return EXIT_FAILURE


@contextmanager
def _session(directory: Path) -> Iterator[Any]:
    # Tasks import the source of the ceiling from the tests.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    from bookkeeper.spark.sessions import local_session
    from tests.benchmarks.spark.memory_source import MemorySource

    settings = {
        "spark.sql.shuffle.partitions": str(TASKS),
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.memory": "2g",
    }
    spark = local_session(f"local[{TASKS}]", name="bench-spark", config=settings)
    try:
        spark.dataSource.register(MemorySource)
        yield spark
    finally:
        spark.stop()


def _run(options: argparse.Namespace, cells: Sequence[Cell]) -> int:
    ends_s = time.monotonic() + options.minutes * 60
    where = Path(options.directory or tempfile.gettempdir())
    print(json.dumps(machine_facts(find_java().executable, where)))
    rows = {100: options.rows_100, 1024: options.rows_1024}
    with tempfile.TemporaryDirectory(prefix="bench-spark-", dir=options.directory) as made:
        directory = Path(made)
        with (
            LocalCluster(3, directory=directory / "cluster", settings=DISK_SETTINGS) as cluster,
            _session(directory) as spark,
        ):
            note("writing the ledgers")
            ledgers, fragmented = fill(cluster.uri, rows), fill_fragmented(cluster.uri, rows)
            bookie = cluster.bookies[0]
            ground = Ground(spark, cluster.uri, directory, rows, ledgers, fragmented, bookie.ledger_directory)
            if any(cell.name == "parquet" for cell in cells):
                ground.write_parquet()
            measuring = Measuring(ground, options.json)
            repeats_end_s = ends_s - options.minutes * 60 * IN_PLACE_SHARE
            measuring.repeat([cell for cell in cells if not cell.in_place], options.reps, repeats_end_s)
            trigger_s = smallest_trigger(ground, options.triggers) if options.triggers else None
            if in_place := [cell for cell in cells if cell.in_place]:
                bookie.stop()
                measuring.repeat(in_place, options.reps, ends_s)
    show(measuring.outcomes, rows, trigger_s, VOLUMES)
    return EXIT_OK


class Measuring:
    """Cells, one after the other, again and again; the first time to warm up. outcomes: of all other times."""

    def __init__(self, ground: Ground, lines: Path | None) -> None:
        self.outcomes: list[Outcome] = []
        self._ground, self._lines = ground, lines

    def repeat(self, cells: Sequence[Cell], count: int, ends_s: float) -> None:
        """`count` times; fewer where the time is up, at least once."""
        longest_s = 0.0
        for repetition in range(count + 1 if cells else 0):
            began_s = time.monotonic()
            if repetition > 1 and began_s + longest_s > ends_s:
                note(f"the time is up after {repetition - 1} of {count} repetitions")
                return
            turn = repetition % len(cells)
            for cell in [*cells[turn:], *cells[:turn]]:
                for size in SIZES:
                    for outcome in self._measure(cell, size, repetition):
                        self._note(outcome, count)
            longest_s = max(longest_s, time.monotonic() - began_s)

    def _measure(self, cell: Cell, size: int, repetition: int) -> list[Outcome]:
        """The load, and each part of it that is timed besides."""
        before = read_cpu_times(time.monotonic())
        load = cell.run(self._ground, size)
        after = read_cpu_times(time.monotonic())
        share = others_share(before, after, os.getpid(), os.cpu_count() or 1)
        cpu_us = tree_cpu_s(before, after, os.getpid()) * 1e6 / load.count if cell.timed_whole else None
        quiet = share <= OTHERS_SHARE_MAX
        whole = Outcome(cell.name, size, repetition, load.count / load.seconds, quiet, cpu_us)
        return [
            whole,
            *(
                Outcome(f"{cell.name}, {part}", size, repetition, load.count / load.parts[part], quiet)
                for part in cell.parts
            ),
        ]

    def _note(self, outcome: Outcome, repetitions: int) -> None:
        turn = outcome.repetition
        word = "warm-up" if turn == 0 else f"round {turn} of {repetitions}"
        note(f"{word}, {outcome.cell}, {outcome.size} B: {outcome.rate:,.0f} a second")
        if turn:
            self.outcomes.append(outcome)
        if self._lines is not None:
            with self._lines.open("a") as file:
                file.write(json.dumps(outcome.to_json()) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
