"""`make bench-apache`: our system and Apache's, measured in alternation on this machine.

python -m tests.benchmarks.apache.main run [--cells GLOBS] [--reps N] [--seconds S] [--id NAME] ...
python -m tests.benchmarks.apache.main report [NAME or FILE]      the tables again; the newest run by default
python -m tests.benchmarks.apache.main plan [--cells GLOBS] ...   what would run, and how long

plan.py      what is measured, in which order          quiet.py    was the machine busy with other work?
processes.py the servers                               drivers.py  the clients: our_driver.py, java/BenchDriver.java
run.py       rounds, warming up, disk space            measure.py  one measurement
records.py   the JSON lines, resuming                  targets.py, report.py   goals and tables
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bookkeeper.cli.output import EXIT_INTERRUPTED, counted
from bookkeeper.cli.supervise import stopping_on_signals
from tests.benchmarks.apache.machine import IN_MEMORY, code_id, machine_facts, settings
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
from tests.benchmarks.apache.records import Record, Records, load, next_attempt
from tests.benchmarks.apache.report import render
from tests.benchmarks.apache.run import Bench, DiskTooFull

DEFAULT_REPETITIONS = 5
DEFAULT_SECONDS = 4.0
DEFAULT_MINUTES = 120.0

RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
"""A run's id names a file and a directory in CACHE, never one elsewhere and never a hidden one."""


class Refused(Exception):
    """It cannot run so; the message says why."""


def main(arguments: list[str]) -> int:
    """0: done; 1: refused, or rounds are left; 2: usage; 130: interrupted."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "report":
            print(render(load(_file_of(options.name))), end="")
            return 0
        return _run(options)
    except (Refused, NothingChosen, NoApache, DiskTooFull) as error:
        print(f"bench-apache: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before anything was started
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench-apache", description="our system and Apache's, in alternation")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, meaning in (("run", "measure, or resume with --id"), ("plan", "only say what would run")):
        command = commands.add_parser(name, help=meaning)
        command.add_argument("--cells", default="", help="comma-separated globs: write:128x1000:v2,read:*,start:*")
        command.add_argument("--reps", type=_positive(int), help=f"repetitions ({DEFAULT_REPETITIONS})")
        command.add_argument("--seconds", type=_positive(float), help=f"of a measurement ({DEFAULT_SECONDS:g})")
        command.add_argument("--id", type=_run_id, default="", help="of the run; one that exists is resumed")
        command.add_argument("--directory", type=Path, help="where both write (.cache/bench-apache of the checkout)")
        command.add_argument("--minutes", type=_positive(float), default=DEFAULT_MINUTES, help="stop after these")
    report = commands.add_parser("report", help="the tables again")
    report.add_argument(
        "name", nargs="?", type=_name, default="", help="id of a run or a file; the newest run when absent"
    )
    return parser


def _positive(kind: type[int] | type[float]) -> type[int] | type[float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not (value > 0 and math.isfinite(value)):
            raise argparse.ArgumentTypeError(f"{text!r} is not a {'whole ' * (kind is int)}number above 0")
        return value

    return parse  # type: ignore[return-value]  # argparse takes any callable


def _run_id(text: str) -> str:
    if text and not RUN_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no id of a run: use letters, digits, '-', '_' and '.', not '.' first, 100 at most"
        )
    return text


def _name(text: str) -> str:
    return text if text.endswith(".jsonl") else _run_id(text)


def _file_of(name: str) -> Path:
    """The JSON lines of a run. Raises Refused."""
    if not name:
        files = sorted(CACHE.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
        if not files:
            raise Refused(f"no run in {CACHE}")
        return files[-1]
    path = Path(name) if name.endswith(".jsonl") else CACHE / f"{name}.jsonl"
    if not path.exists():
        raise Refused(f"there is no {path}")
    return path


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
    rounds = _left(records, list(plan.all_rounds()))
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
    facts = machine_facts(genuine, parent)
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
    left = len(_left(records, rounds))
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
        f"about {_minutes(expected_s)} on a quiet machine, {needed_bytes / 1e9:.0f} GB of disk"
    ]
    lines += [f"  {cell.name}: {', '.join(side.name for side in cell.sides)}" for cell in plan.cells]
    return "\n".join(lines)


def _minutes(seconds: float) -> str:
    return counted(max(1, round(seconds / 60)), "minute")


def progress() -> Callable[[str], None]:
    """Tells what goes on before there are results, each line with the seconds since now."""
    began = time.monotonic()
    return lambda text: print(f"[{time.monotonic() - began:3.0f} s] {text}", flush=True)


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
                done = len(rounds) - len(_left(records, rounds))
                clock = f"{minutes:.1f} of about {expected_s / 60:.0f} min"
                print(f"[{done}/{len(rounds)} done, {clock}] {_outcome(lines)}", flush=True)
            waiting = _left(records, waiting)


def _left(records: Records, rounds: list[Round]) -> list[Round]:
    return [each for each in rounds if next_attempt(records.all, each) is not None]


def _outcome(lines: list[Record]) -> str:
    """An attempt in one line."""
    parts = []
    for line in lines:
        if line["kind"] == "failed":
            told: list[str] = line["error"].splitlines()
            parts.append(f"{line['side']} FAILED: {' ... '.join(dict.fromkeys([told[0], told[-1]]))}")
        elif "took_s" in line:
            parts.append(f"{line['side']} {line['took_s']:.2f} s")
        else:
            parts.append(f"{line['side']} {line['per_s']:,.0f}/s")
    others = max((line["others"] for line in lines if "others" in line), default=0.0)
    quiet = "quiet" if all(line.get("quiet") for line in lines) else "DOES NOT COUNT"
    name, number = lines[0]["cell"], lines[0]["repetition"] + 1
    return f"{name} #{number}: {', '.join(parts)}; other work up to {others:.0%}, {quiet}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
