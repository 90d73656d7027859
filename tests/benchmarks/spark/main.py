"""`make bench-spark`: the Spark sources beside their ceilings, in alternation, on a cluster of this machine.

    python -m tests.benchmarks.spark.main [--reps 5] [--cells memory,ledgers] [--rows-100 N] [--rows-1024 N]

One session, local[2]; three bookies; the same rows everywhere. Each repetition measures every cell once, of one size
after the other; which comes first rotates. The first repetition warms up and is thrown away. Ratios are taken within
a repetition. Prints every figure, medians and the goals; asserts nothing about speed. Progress goes to standard error.
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

from bookkeeper.cli.lazy import at_least
from bookkeeper.cli.output import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, CommandFailed, note
from bookkeeper.cli.supervise import stopping_on_signals
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.java import find_java
from tests.benchmarks.apache.machine import machine_facts
from tests.benchmarks.apache.processes import DISK_SETTINGS
from tests.benchmarks.apache.quiet import OTHERS_SHARE_MAX, others_share, read_cpu_times
from tests.benchmarks.spark.cells import READ_CELLS, TASKS, Cell, Ground, fill, smallest_trigger, write_parquet
from tests.benchmarks.spark.report import Outcome, show

SIZES = (100, 1024)


def main(arguments: Sequence[str]) -> int:
    """0: done; 1: a load failed; 2: usage; 130: interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=at_least(1), default=5, metavar="N", help="that count (default: %(default)s)")
    parser.add_argument("--cells", metavar="NAMES", help="only these, comma-separated (default: all)")
    parser.add_argument("--rows-100", type=at_least(1), default=2_000_000, metavar="N",
                        help="rows of 100 B (default: %(default)s)")  # fmt: skip
    parser.add_argument("--rows-1024", type=at_least(1), default=500_000, metavar="N",
                        help="rows of 1 KiB (default: %(default)s)")  # fmt: skip
    parser.add_argument("--triggers", type=at_least(0), default=40, metavar="N",
                        help="micro-batches of one row (default: %(default)s)")  # fmt: skip
    parser.add_argument("--directory", type=Path, metavar="DIR", help="for the data (default: temporary)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append every figure as a line")
    options = parser.parse_args(arguments)
    names = None if options.cells is None else options.cells.split(",")
    unknown = set(names or ()) - {cell.name for cell in READ_CELLS}
    if unknown:
        print(f"bench-spark: no cell {', '.join(sorted(unknown))}; there are "
              f"{', '.join(cell.name for cell in READ_CELLS)}", file=sys.stderr)  # fmt: skip
        return EXIT_USAGE
    cells = [cell for cell in READ_CELLS if names is None or cell.name in names]
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
    from bookkeeper.spark.local_session import local_session
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
    where = Path(options.directory or tempfile.gettempdir())
    print(json.dumps(machine_facts(find_java().executable, where)))
    rows = {100: options.rows_100, 1024: options.rows_1024}
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="bench-spark-", dir=options.directory) as made:
        directory = Path(made)
        with (
            LocalCluster(3, directory=directory / "cluster", settings=DISK_SETTINGS) as cluster,
            _session(directory) as spark,
        ):
            note("writing the ledgers")
            ground = Ground(spark, cluster.uri, directory, rows, fill(cluster.uri, rows))
            if any(cell.name == "parquet" for cell in cells):
                write_parquet(ground)
            for repetition in range(options.reps + 1):
                turn = repetition % len(cells)
                for cell in [*cells[turn:], *cells[:turn]]:
                    for size in SIZES:
                        outcome = _measure(ground, cell, size, repetition)
                        word = "warm-up" if repetition == 0 else f"round {repetition} of {options.reps}"
                        note(f"{word}, {cell.name}, {size} B: {outcome.rate:,.0f} rows/s")
                        if repetition:
                            outcomes.append(outcome)
                        if options.json is not None:
                            with options.json.open("a") as file:
                                file.write(json.dumps(outcome.to_json()) + "\n")
            trigger_s = smallest_trigger(ground, options.triggers) if options.triggers else None
    show(outcomes, rows, trigger_s)
    return EXIT_OK


def _measure(ground: Ground, cell: Cell, size: int, repetition: int) -> Outcome:
    before = read_cpu_times(time.monotonic())
    count, seconds = cell.run(ground, size)
    after = read_cpu_times(time.monotonic())
    share = others_share(before, after, os.getpid(), os.cpu_count() or 1)
    return Outcome(cell.name, size, repetition, count / seconds, share <= OTHERS_SHARE_MAX)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
