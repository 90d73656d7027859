"""`make bench-apache`: our system and Apache's, measured in alternation on this machine.

python -m tests.benchmarks.apache.main run [--cells GLOBS] [--reps N] [--seconds S] [--id NAME] ...
python -m tests.benchmarks.apache.main report [NAME or FILE]      the tables again; the newest run by default
python -m tests.benchmarks.apache.main plan [--cells GLOBS] ...   what would run, and how long

plan.py      what is measured, in which order          quiet.py    was the machine busy with other work?
processes.py the servers                               drivers.py  the clients: our_driver.py, java/BenchDriver.java
run.py       rounds, warming up, disk space            measure.py  one measurement
records.py   the JSON lines, resuming                  targets.py, report.py   goals and tables
options.py   the command line, and where runs are
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bookkeeper.cli.output import EXIT_INTERRUPTED, counted
from bookkeeper.cli.supervise import stopping_on_signals
from tests.benchmarks.apache.machine import IN_MEMORY, code_id, machine_facts, settings
from tests.benchmarks.apache.options import Refused, file_of, minutes_text, parser_of, progress
from tests.benchmarks.apache.plan import (
    NothingChosen,
    Plan,
    Round,
    bytes_to_start,
    chosen_cells,
    reserve_bytes,
    seconds_of,
)
from tests.benchmarks.apache.processes import CACHE, NoApache, find_genuine, mount_of
from tests.benchmarks.apache.records import Record, Records, load, rounds_left
from tests.benchmarks.apache.report import outcome, render
from tests.benchmarks.apache.run import Bench, DiskTooFull

DEFAULT_REPETITIONS = 5
DEFAULT_SECONDS = 4.0
DEFAULT_MINUTES = 120.0


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
    """From the options; where they are silent, as the run that is resumed, else the defaults. Raises Refused."""
    earlier: Record = next((record["plan"] for record in records if record["kind"] == "run"), {})
    seconds = options.seconds or earlier.get("seconds", DEFAULT_SECONDS)
    if earlier and seconds != earlier["seconds"]:
        raise Refused(f"run {options.id} measures {earlier['seconds']:g} s, not {seconds:g} s: give another --id")
    if earlier and earlier["code"] != code_id():
        raise Refused(f"run {options.id} measured another revision of the programs: give another --id")
    return Plan(
        chosen_cells(options.cells or earlier.get("cells", "")),
        options.reps or earlier.get("repetitions", DEFAULT_REPETITIONS),
        seconds,
    )


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
    interrupted = False
    with stopping_on_signals(EXIT_INTERRUPTED):
        directory = Path(tempfile.mkdtemp(prefix=f"data-{os.getpid()}-", dir=parent)) / "run"
        try:
            with Bench(plan, records, genuine, directory, progress()) as bench:
                _measure_all(bench, records, rounds, expected_s, options.minutes * 60)
        except SystemExit:  # the signal; from here on further ones are ignored, until all is cleared away
            interrupted = True
        finally:
            shutil.rmtree(directory.parent, ignore_errors=True)
    if interrupted:
        print("\ninterrupted: everything is stopped, and the data removed")
    print(render(records.all), end="")
    left = len(rounds_left(records.all, rounds))
    if left:
        # Cells, repetitions and seconds are those of the run: its file has them.
        directory_too = f" ARGS='--directory {options.directory}'" if options.directory else ""
        left_text = counted(left, "round is", "rounds are")
        print(f"\n{left_text} left; go on with: make bench-apache ID={run_id}{directory_too}")
    return EXIT_INTERRUPTED if interrupted else int(left > 0)


def plan_text(plan: Plan, rounds: list[Round], expected_s: float, needed_bytes: int) -> str:
    """What would run, how long, and how much disk it needs."""
    lines = [
        f"{counted(len(plan.cells), 'cell')}, {counted(plan.repetitions, 'repetition')}, "
        f"{counted(len(rounds), 'round')} to do with "
        f"{counted(sum(len(each.sides) for each in rounds), 'measurement')}; "
        f"about {minutes_text(expected_s)} on a quiet machine, {needed_bytes / 1e9:.0f} GB of disk"
    ]
    lines += [f"  {cell.name}: {', '.join(side.name for side in cell.sides)}" for cell in plan.cells]
    return "\n".join(lines)


def _measure_all(bench: Bench, records: Records, rounds: list[Round], expected_s: float, limit_s: float) -> None:
    """Do all rounds, or those before the time is up.

    What was disturbed is repeated after the other rounds of its size: the disturbance may be over by then.
    """
    began = time.monotonic()
    for size in dict.fromkeys(each.cell.size for each in rounds):
        waiting = [each for each in rounds if each.cell.size == size]
        while waiting:
            for each in waiting:
                if time.monotonic() - began > limit_s:
                    return
                lines = bench.do(each)
                minutes = (time.monotonic() - began) / 60
                done = len(rounds) - len(rounds_left(records.all, rounds))
                clock = f"{minutes:.1f} of about {expected_s / 60:.0f} min"
                print(f"[{done}/{len(rounds)} done, {clock}] {outcome(lines)}", flush=True)
            waiting = rounds_left(records.all, waiting)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
