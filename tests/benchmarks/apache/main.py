"""`make bench-apache`: our system and Apache's, measured in alternation on this machine.

python -m tests.benchmarks.apache.main run [--cells GLOBS] [--reps N] [--seconds S] [--id NAME] ...
python -m tests.benchmarks.apache.main report [NAME or FILE]      the tables again; the newest run by default
python -m tests.benchmarks.apache.main plan [--cells GLOBS] ...   what would run, and how long

plan.py      what is measured, in which order          quiet.py    was the machine busy with other work?
processes.py the servers                               drivers.py  the clients: our_driver.py, java/BenchDriver.java
run.py       rounds, warming up, disk space            measure.py  one measurement
records.py   the JSON lines, resuming                  targets.py, report.py   goals and tables
options.py   the command line, and where runs are       session.py  a run from its first line to its last
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
from pathlib import Path

from bookkeeper.console.output import EXIT_INTERRUPTED
from tests.benchmarks.apache.machine import IN_MEMORY, code_id, machine_facts, settings
from tests.benchmarks.apache.options import Refused, file_of, parser_of, progress
from tests.benchmarks.apache.plan import (
    NothingChosen,
    Plan,
    bytes_to_start,
    chosen_cells,
    reserve_bytes,
    seconds_of,
)
from tests.benchmarks.apache.processes import CACHE, NoApache, find_genuine, mount_of
from tests.benchmarks.apache.records import Record, Records, load, rounds_left
from tests.benchmarks.apache.report import outcome, render
from tests.benchmarks.apache.run import Bench, DiskTooFull
from tests.benchmarks.apache.session import (
    DEFAULT_MINUTES,
    DEFAULT_REPETITIONS,
    DEFAULT_SECONDS,
    chosen,
    in_new_directory,
    measure_all,
    plan_text,
    told_end,
)


def main(arguments: list[str]) -> int:
    """0: done; 1: refused, or rounds are left; 2: usage; 130: interrupted."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "report":
            print(render(load(file_of(CACHE, options.name))), end="")
            return 0
        return _run(options)
    except (Refused, NothingChosen, NoApache, DiskTooFull) as error:
        print(f"bench-apache: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before anything was started
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    return parser_of(
        "bench-apache",
        "our system and Apache's, in alternation",
        example="write:128x1000:v2,read:*,start:*",
        repetitions=DEFAULT_REPETITIONS,
        seconds=DEFAULT_SECONDS,
        minutes=DEFAULT_MINUTES,
        cache=".cache/bench-apache",
    )


def plan_of(options: argparse.Namespace, records: list[Record]) -> Plan:
    """From the options and the run that is resumed, if one is. Raises Refused."""
    picked = chosen(options, records, code_id())
    return Plan(chosen_cells(picked.cells), picked.repetitions, picked.seconds)


def _run(options: argparse.Namespace) -> int:
    run_id = options.id or datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    options.id = run_id
    records = Records(CACHE / f"{run_id}.jsonl")
    plan = plan_of(options, records.all)
    rounds = rounds_left(records.all, list(plan.all_rounds()))
    expected_s = seconds_of(plan, rounds)
    parent = (options.directory or CACHE).absolute()
    usage = shutil.disk_usage(next(path for path in (parent, *parent.parents) if path.exists()))
    needed = bytes_to_start(plan, rounds) + reserve_bytes(usage.total)
    print(plan_text(plan, rounds, expected_s, needed), flush=True)
    if options.command == "plan":
        return 0
    parent.mkdir(parents=True, exist_ok=True)
    device, kind = mount_of(parent)
    if kind in IN_MEMORY:
        raise Refused(f"{parent} is in memory ({kind}): give a --directory on a disk")
    if usage.free < needed:
        raise DiskTooFull(f"{parent} has {usage.free / 1e9:.0f} GB free and needs {needed / 1e9:.0f} GB")
    print("looking for Apache's jars and a JDK; the first time, Maven fetches the jars", flush=True)
    genuine = find_genuine()
    facts = machine_facts(genuine.java, parent)
    recorded = {"cells": options.cells, "repetitions": plan.repetitions, "seconds": plan.seconds, "code": code_id()}
    records.add({"kind": "run", "id": run_id, "machine": facts, "settings": settings(plan), "plan": recorded})
    print(f"{'; '.join(f'{key} {value}' for key, value in facts.items())}")
    space = f"{usage.free / 1e9:.0f} GB free, at least {needed / 1e9:.0f} needed"
    print(f"run {run_id}: {records.path}; both write to {device} ({kind}): {space}", flush=True)

    def measure(directory: Path) -> None:
        with Bench(plan, records, genuine, directory, progress()) as bench:
            sizes = dict.fromkeys(each.cell.size for each in rounds)
            groups = [[each for each in rounds if each.cell.size == size] for size in sizes]
            measure_all(groups, records, bench.do, outcome, expected_s=expected_s, limit_s=options.minutes * 60)

    interrupted = in_new_directory(parent, measure)
    left = len(rounds_left(records.all, rounds))
    return told_end("bench-apache", options, render(records.all), left, interrupted=interrupted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
