"""`make bench-journals`: our journals and Hadoop's, measured in alternation on this machine.

python -m tests.benchmarks.journals.main run [--cells GLOBS] [--reps N] [--seconds S] [--id NAME] ...
python -m tests.benchmarks.journals.main report [NAME or FILE]      the tables again; the newest run by default
python -m tests.benchmarks.journals.main plan [--cells GLOBS] ...   what would run, and how long

plan.py     what is measured, in which order; goals    run.py      rounds and servers
clients.py  a measurement is a process                 report.py   tables
our_client.py    ours                                  genuine.py  Hadoop's, by JournalBench.java
tests/benchmarks/apache   the quiet check, the counters, the JSON lines, resuming, a run around its rounds
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bookkeeper.console.output import EXIT_INTERRUPTED, EXIT_OK, counted
from tests.benchmarks.apache.machine import IN_MEMORY, code_id, machine_facts
from tests.benchmarks.apache.options import Refused, file_of, parser_of, progress
from tests.benchmarks.apache.plan import NothingChosen, reserve_bytes
from tests.benchmarks.apache.processes import BOOKIES, DISK_SETTINGS, ROOT, mount_of
from tests.benchmarks.apache.records import Record, Records, load, rounds_left
from tests.benchmarks.apache.report import outcome
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
from tests.benchmarks.journals.genuine import JOURNAL_NODES, JVM_OPTIONS
from tests.benchmarks.journals.plan import (
    KILLS,
    RECORD_SIZE,
    REPLAYED,
    SERVERS_WARMING_S,
    WARMING_S,
    Plan,
    bytes_needed,
    chosen_cells,
    needs_hadoop,
    seconds_of,
)
from tests.benchmarks.journals.report import figure_text, render
from tests.benchmarks.journals.run import Bench
from tests.support.hadoop.fetched import HADOOP_VERSION, PACKAGE, Hadoop, find_hadoop

CACHE = ROOT / ".cache" / "bench-journals"
PACKAGES = ("bookkeeper", "journalmgr")


def main(arguments: Sequence[str]) -> int:
    """0: done, or skipped for want of Hadoop; 1: refused, or rounds are left; 2: usage; 130: interrupted."""
    options = parser_of(
        "bench-journals",
        "our journals and Hadoop's, in alternation",
        example="sync:16,sync:*,replay,failover",
        repetitions=DEFAULT_REPETITIONS,
        seconds=DEFAULT_SECONDS,
        minutes=DEFAULT_MINUTES,
        cache=".cache/bench-journals",
    ).parse_args(arguments)
    try:
        if options.command == "report":
            print(render(load(file_of(CACHE, options.name))), end="")
            return EXIT_OK
        return _run(options)
    except (Refused, NothingChosen) as error:
        print(f"bench-journals: {error}", file=sys.stderr)
        return 1
    except pytest.skip.Exception as missing:
        print(f"bench-journals: skipped: {missing}", file=sys.stderr)
        return EXIT_OK
    except KeyboardInterrupt:  # before anything was started
        return EXIT_INTERRUPTED


def plan_of(options: argparse.Namespace, records: Sequence[Record]) -> Plan:
    """From the options and the run that is resumed, if one is. Raises Refused."""
    picked = chosen(options, records, code_id(PACKAGES))
    return Plan(chosen_cells(picked.cells), picked.repetitions, picked.seconds)


def settings(plan: Plan) -> dict[str, str]:
    """What was set, in words."""
    disk = " ".join(f"{key}={value}" for key, value in DISK_SETTINGS.items())
    return {
        "all": f"records of {RECORD_SIZE} bytes, fsync before every answer; each measurement is a client process of "
        f"its own on a new journal: {WARMING_S:g} s of warming up, then {plan.seconds:g} s of which the first quarter "
        f"is thrown away; {counted(plan.repetitions, 'repetition')}",
        "servers": "run through all rounds, all at the same time, those that are not measured idle; "
        f"warmed up for {SERVERS_WARMING_S:g} s before the first",
        "ours": f"ZooKeeper and {BOOKIES} bookies of ours, E3 Qw2 Qa2, defaults but {disk}; opaque transactions, one "
        "reactor; 'our files': the same on local files",
        "Hadoop's": f"FSEditLog of {HADOOP_VERSION} alone, MKDIR operations, a thread for each caller; 'quorum': "
        f"{JOURNAL_NODES} JournalNodes; every JVM: {' '.join(JVM_OPTIONS)}",
        "replay": f"{REPLAYED:,} transactions each from our bookies, as `journalmgr perf replay`",
        "failover": f"{counted(KILLS, 'SIGKILL')} a round, as `journalmgr perf failover`: two metadata servers, four "
        "bookies of its own, two callers; nothing acknowledged may be missing or doubled",
        "ratios": "within a round, median (least-most) of quiet rounds; [..]: none was quiet",
    }


def _run(options: argparse.Namespace) -> int:
    run_id = options.id or datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    options.id = run_id
    records = Records(CACHE / f"{run_id}.jsonl")
    plan = plan_of(options, records.all)
    rounds = rounds_left(records.all, plan.rounds())
    expected_s = seconds_of(plan, rounds)
    parent = (options.directory or CACHE).absolute()
    usage = shutil.disk_usage(next(path for path in (parent, *parent.parents) if path.exists()))
    needed = bytes_needed(plan, rounds) + reserve_bytes(usage.total)
    print(plan_text(plan, rounds, expected_s, needed), flush=True)
    if options.command == "plan":
        return EXIT_OK
    hadoop = _hadoop() if needs_hadoop(rounds) else None
    parent.mkdir(parents=True, exist_ok=True)
    device, kind = mount_of(parent)
    if kind in IN_MEMORY:
        raise Refused(f"{parent} is in memory ({kind}): give a --directory on a disk")
    if usage.free < needed:
        raise Refused(f"{parent} has {usage.free / 1e9:.0f} GB free and needs {needed / 1e9:.0f} GB")
    facts = machine_facts(hadoop.java if hadoop else None, parent, PACKAGES)
    recorded = {
        "cells": options.cells,
        "repetitions": plan.repetitions,
        "seconds": plan.seconds,
        "code": code_id(PACKAGES),
    }
    records.add({"kind": "run", "id": run_id, "machine": facts, "settings": settings(plan), "plan": recorded})
    print("; ".join(f"{key} {value}" for key, value in facts.items()))
    print(f"run {run_id}: {records.path}; all write to {device} ({kind})", flush=True)

    def measure(directory: Path) -> None:
        with Bench(rounds, plan.seconds, records, hadoop, directory, progress()) as bench:
            measure_all(
                [rounds],
                records,
                bench.do,
                lambda lines: outcome(lines, figure_text),
                expected_s=expected_s,
                limit_s=options.minutes * 60,
            )

    interrupted = in_new_directory(parent, measure)
    left = len(rounds_left(records.all, rounds))
    return told_end("bench-journals", options, render(records.all), left, interrupted=interrupted)


def _hadoop() -> Hadoop:
    """With our driver compiled. Skips where it cannot be had."""
    print("looking for Hadoop's jars and a JDK; the first time, Maven fetches the jars", flush=True)
    hadoop = find_hadoop()
    hadoop.command(f"{PACKAGE}.JournalBench")
    return hadoop


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
