"""`make bench-hubs`: our hub and its peers, measured in alternation on this machine.

python -m tests.benchmarks.hubs.main run [--cells GLOBS] [--reps N] [--seconds S] [--id NAME] ...
python -m tests.benchmarks.hubs.main report [NAME or FILE]      the tables again; the newest run by default
python -m tests.benchmarks.hubs.main plan [--cells GLOBS] ...   what would run, and how long

plan.py   what is measured, in which order; goals      run.py      rounds and servers
peers/    how each side is had, and its servers        report.py   tables
loads/    a measurement is a client process            java/       the genuine client's
tests/benchmarks/apache     the quiet check, the counters, the JSON lines, resuming, a run around its rounds
tests/benchmarks/journals   a client process and its marks
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from bookkeeper.cli.perf.calibrate import Calibration, calibrate
from bookkeeper.console.output import EXIT_INTERRUPTED, EXIT_OK, counted
from bookkeeper.embedded.java import JavaNotFoundError, find_java
from tests.benchmarks.apache.machine import IN_MEMORY, code_id, machine_facts
from tests.benchmarks.apache.options import Refused, file_of, parser_of, progress
from tests.benchmarks.apache.plan import NothingChosen, reserve_bytes
from tests.benchmarks.apache.processes import mount_of
from tests.benchmarks.apache.records import Record, Records, load, rounds_left
from tests.benchmarks.apache.report import outcome
from tests.benchmarks.apache.session import (
    DEFAULT_REPETITIONS,
    chosen,
    in_new_directory,
    measure_all,
    plan_text,
    told_end,
)
from tests.benchmarks.hubs.loads.load import BODY_SIZE
from tests.benchmarks.hubs.peers import genuine, kafka, nats, ours, redis
from tests.benchmarks.hubs.peers.peer import CACHE, Peer
from tests.benchmarks.hubs.plan import (
    DEFAULT_SECONDS,
    DRAINED,
    GENUINE,
    KAFKA,
    NATS,
    OURS,
    REDIS,
    SERVERS_WARMING_S,
    WARMING_S,
    Plan,
    Side,
    bytes_needed,
    chosen_cells,
    repetitions_of,
    seconds_of,
    sides_of,
)
from tests.benchmarks.hubs.report import figure_text, render, skipped_of
from tests.benchmarks.hubs.run import Bench
from tests.support.java_programs import Missing

PACKAGES = ("bookkeeper", "hedwig")
MINUTES = 75.0

FIND: Mapping[Side, Callable[[], Peer]] = {
    OURS: ours.find,
    GENUINE: genuine.find,
    REDIS: redis.find,
    NATS: nats.find,
    KAFKA: kafka.find,
}


def main(arguments: Sequence[str]) -> int:
    """0: done; 1: refused, or rounds are left; 2: usage; 130: interrupted. A peer that is missing is told, no error."""
    options = parser_of(
        "bench-hubs",
        "our hub and its peers, in alternation",
        example="publish:1x*,deliver:*,acquire",
        repetitions=DEFAULT_REPETITIONS,
        seconds=DEFAULT_SECONDS,
        minutes=MINUTES,
        cache=".cache/bench-hubs",
    ).parse_args(arguments)
    try:
        if options.command == "report":
            print(render(load(file_of(CACHE, options.name))), end="")
            return EXIT_OK
        return _run(options)
    except (Refused, NothingChosen) as error:
        print(f"bench-hubs: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before anything was started
        return EXIT_INTERRUPTED


def plan_of(options: argparse.Namespace, records: Sequence[Record], missing: Collection[str]) -> Plan:
    """From the options and the run that is resumed, if one is; without the sides of these names. Raises Refused."""
    options.seconds = options.seconds or (None if records else DEFAULT_SECONDS)
    picked = chosen(options, records, code_id(PACKAGES))
    return Plan(chosen_cells(picked.cells, missing), picked.repetitions, picked.seconds)


def settings(plan: Plan, peers: Mapping[Side, Peer]) -> dict[str, str]:
    """What was set, in words."""
    return {
        "all": f"messages of {BODY_SIZE} bytes; each measurement is a client process of its own on new topics: "
        f"{WARMING_S:g} s of warming up, then {plan.seconds:g} s that count; {counted(plan.repetitions, 'repetition')}",
        "servers": "new in each repetition, all at the same time, those that are not measured idle; warmed up for "
        f"{SERVERS_WARMING_S:g} s; a hub of ours and a genuine one have a ZooKeeper and bookies of their own",
        "publish": "so many unanswered, on the topics in turn; Redis: that many in a pipeline, one WAIT behind them",
        "deliver": "publishing with one topic and so many readers, who are a process beside the publisher's (genuine: "
        "in it), from handing over to delivery; paced: from when a message was due",
        "drain": f"{DRAINED:,} messages in all that waited for a subscription, from its attaching to the last",
        "acquire": "a topic with a subscription; Redis: a stream with a consumer group; NATS: a stream with a durable "
        "consumer, three copies of each, ten at a time",
        **{side.name: peer.durability for side, peer in peers.items()},
        "ratios": "ours over the peer's within a round, median (least-most) of quiet rounds; [..]: none was quiet",
    }


def found(wanted: Sequence[Side]) -> tuple[dict[Side, Peer], dict[str, str]]:
    """The sides that can be had here; of the others, why not."""
    peers: dict[Side, Peer] = {}
    skipped: dict[str, str] = {}
    for side in wanted:
        try:
            peers[side] = FIND[side]()
        except Missing as missing:
            skipped[side.name] = str(missing)
    return peers, skipped


def calibration_text(found: Calibration) -> str:
    """What the machine did at the start of the run, before any server."""
    return (
        f"{found.echo_frames_per_s:,.0f} echoes/s, fdatasync p50 {found.fdatasync_p50_s * 1e3:.2f} ms "
        f"p99 {found.fdatasync_p99_s * 1e3:.2f} ms, {found.append_records_per_s:,.0f} records/s appended"
    )


def _java() -> Path | None:
    try:
        return find_java().executable
    except JavaNotFoundError:
        return None


def _run(options: argparse.Namespace) -> int:
    run_id = options.id or datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    options.id = run_id
    records = Records(CACHE / f"{run_id}.jsonl")
    plan = plan_of(options, records.all, skipped_of(records.all))
    peers: dict[Side, Peer] = {}
    skipped: dict[str, str] = {}
    if options.command == "run":
        print("looking for the peers; the first time, they are fetched", flush=True)
        peers, skipped = found(sides_of(list(plan.rounds())))
        for name, why in skipped.items():
            print(f"bench-hubs: skipped: {name}: {why}", file=sys.stderr, flush=True)
        if records.all and (gone := skipped.keys() - skipped_of(records.all).keys()):
            raise Refused(f"run {run_id} measured {', '.join(sorted(gone))}, which is not to be had now: another --id")
        skipped |= skipped_of(records.all)
        plan = plan_of(options, records.all, skipped)
    rounds = rounds_left(records.all, plan.rounds())
    expected_s = seconds_of(plan, rounds)
    parent = (options.directory or CACHE).absolute()
    usage = shutil.disk_usage(next(path for path in (parent, *parent.parents) if path.exists()))
    needed = bytes_needed(plan, rounds) + reserve_bytes(usage.total)
    print(plan_text(plan, rounds, expected_s, needed), flush=True)
    if options.command == "plan":
        return EXIT_OK
    parent.mkdir(parents=True, exist_ok=True)
    device, kind = mount_of(parent)
    if kind in IN_MEMORY:
        raise Refused(f"{parent} is in memory ({kind}): give a --directory on a disk")
    if usage.free < needed:
        raise Refused(f"{parent} has {usage.free / 1e9:.0f} GB free and needs {needed / 1e9:.0f} GB")
    facts = machine_facts(_java(), parent, PACKAGES)
    if rounds:
        facts["calibration"] = calibration_text(calibrate(parent))
    recorded = {
        "cells": options.cells,
        "repetitions": plan.repetitions,
        "seconds": plan.seconds,
        "code": code_id(PACKAGES),
    }
    run: Record = {"kind": "run", "id": run_id, "machine": facts, "settings": settings(plan, peers)}
    records.add({**run, "skipped": skipped, "plan": recorded})
    print("; ".join(f"{key} {value}" for key, value in facts.items()))
    print(f"run {run_id}: {records.path}; all write to {device} ({kind})", flush=True)

    def measure(directory: Path) -> None:
        with Bench(rounds, plan.seconds, records, peers, directory, progress()) as bench:
            measure_all(
                repetitions_of(rounds),
                records,
                bench.do,
                lambda lines: outcome(lines, figure_text),
                expected_s=expected_s,
                limit_s=options.minutes * 60,
            )

    interrupted = in_new_directory(parent, measure)
    left = len(rounds_left(records.all, rounds))
    return told_end("bench-hubs", options, render(records.all), left, interrupted=interrupted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
