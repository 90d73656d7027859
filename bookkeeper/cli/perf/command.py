"""Measure a cluster: adds/s and reads/s, latencies, CPU, beside what the machine can do in the same run.

examples:
  bookkeeper perf write                                       128-byte entries, 1000 outstanding, 10 s, against --uri
  bookkeeper perf write -entrysize 1024 -throttle 100 -ensemble 3 -quorum 3 -ackQuorum 2 -time 20
  bookkeeper perf write --clients 12                          the classic workload: twelve client processes
  bookkeeper perf read -ledger 7 -throttle 1000               reads a closed ledger again and again
  bookkeeper perf bench                                       a cluster of its own, every cell of the table
  bookkeeper perf bench --sizes 128 --windows 1000 --json     one cell as JSON

Figures of a busy machine mean nothing; quote ratios within one run. Option names are those of Apache's benchmark.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bookkeeper.cli.connection import add_connection_arguments, client_settings
from bookkeeper.cli.output import CommandFailed, note, print_json
from bookkeeper.cli.perf.calibrate import calibrate
from bookkeeper.cli.perf.counters import BookieProcess, process_memory_bytes
from bookkeeper.cli.perf.report import Cell, print_cells, print_legend
from bookkeeper.cli.perf.run import run_workload
from bookkeeper.cli.perf.worker import Task

DIGESTS = {"crc32c": "CRC32C", "crc32": "CRC32", "mac": "MAC", "dummy": "DUMMY"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands of `bookkeeper perf`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    write = actions.add_parser("write", help="append to new ledgers")
    add_connection_arguments(write)
    _add_workload(write)
    read = actions.add_parser("read", help="read closed ledgers again and again")
    add_connection_arguments(read)
    _add_workload(read)
    read.add_argument(
        "-ledger", type=int, action="append", default=[], metavar="ID", help="ledger to read, repeatable, required"
    )
    bench = actions.add_parser("bench", help="start a cluster, measure every cell, stop it")
    _add_workload(bench)
    bench.add_argument(
        "--sizes", type=_numbers, default=[128, 1024, 10240], metavar="BYTES,...", help="(default: 128,1024,10240)"
    )
    bench.add_argument(
        "--windows",
        type=_numbers,
        default=[1, 100, 1000, 5000],
        metavar="N,...",
        help="outstanding (default: 1,100,1000,5000)",
    )
    bench.add_argument(
        "--versions", type=_numbers, default=[2, 3], metavar="2|3,...", help="protocol versions (default: 2,3)"
    )
    bench.add_argument("--bookies", type=int, default=3, help="(default: %(default)s)")
    bench.add_argument("--directory", type=Path, help="for the data; its disk is what is measured (default: temporary)")
    bench.add_argument("--no-reads", action="store_true", help="writes only")
    bench.add_argument("-o", dest="settings", action="append", default=[], metavar="KEY=VALUE",
                       help="bookie setting, repeatable")  # fmt: skip


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _add_workload(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("workload")
    group.add_argument("-ensemble", type=int, default=3, help="(default: %(default)s)")
    group.add_argument("-quorum", type=int, default=2, help="copies (default: %(default)s)")
    group.add_argument("-ackQuorum", type=int, default=2, help="copies to wait for (default: %(default)s)")
    group.add_argument("-entrysize", type=int, default=128, help="payload bytes (default: %(default)s)")
    group.add_argument(
        "-throttle", "--outstanding", type=int, default=1000, help="in flight per client process (default: %(default)s)"
    )
    group.add_argument("-ledgers", type=int, default=1, help="per client process (default: %(default)s)")
    group.add_argument(
        "-time", type=float, default=10.0, help="seconds; the first quarter is not counted (default: %(default)s)"
    )
    group.add_argument("-warmupMessages", type=int, default=1000, help="before the time runs (default: %(default)s)")
    group.add_argument(
        "-useV2", type=lambda text: text.lower() == "true", default=True, metavar="BOOL", help="(default: true)"
    )
    group.add_argument("--digest", choices=DIGESTS, default="crc32c", help="(default: %(default)s)")
    group.add_argument("-password", default="", help="(default: none)")
    group.add_argument("--clients", type=int, default=1, help="client processes (default: %(default)s)")
    group.add_argument(
        "--calibrate-on", type=Path, metavar="DIR", help="disk to calibrate on (default: temporary files')"
    )
    group.add_argument("--json", action="store_true", help="JSON instead of a table")


def _job(args: argparse.Namespace, uri: str, kind: str) -> Task:
    return Task(
        uri=uri,
        kind=kind,
        ensemble=args.ensemble,
        write_quorum=args.quorum,
        ack_quorum=args.ackQuorum,
        entry_size=args.entrysize,
        outstanding=args.outstanding,
        ledgers=args.ledgers,
        seconds=args.time,
        warmup_entries=args.warmupMessages,
        use_v2=args.useV2,
        digest=DIGESTS[args.digest],
        password=args.password,
    )


def run(args: argparse.Namespace) -> int:
    """Run the chosen measurement and print it."""
    if args.outstanding < args.ledgers:
        raise CommandFailed(f"{args.outstanding} outstanding for {args.ledgers} ledgers: need at least one each", 2)
    if args.action == "bench":
        cells = list(_bench(args))
    else:
        uri = client_settings(args).metadata_service_uri
        job = _job(args, uri, args.action)
        if args.action == "read":
            if not args.ledger:
                raise CommandFailed("which ledger? Give -ledger ID; `bookkeeper perf write` prints the ids it wrote", 2)
            job = dataclasses.replace(job, ledger_ids=tuple(args.ledger))
        directory = args.calibrate_on or Path(tempfile.gettempdir())
        cells = [run_workload(job, clients=args.clients, calibration=calibrate(directory))]
    if args.json:
        print_json([cell.to_json() for cell in cells])
        return 0
    print_legend(cells[0])
    print_cells(cells)
    if args.action == "write":
        note(f"ledgers written: {' '.join(map(str, cells[0].ledger_ids))}")
    return 0


def _bench(args: argparse.Namespace) -> Iterator[Cell]:
    from bookkeeper.cli.connection import parse_settings
    from bookkeeper.embedded.cluster import LocalCluster

    settings = {"httpServerEnabled": "true", "httpServerPort": "0", **parse_settings(args.settings)}
    with LocalCluster(args.bookies, directory=args.directory, settings=settings) as cluster:
        bookies = [BookieProcess(bookie.pid, bookie.metrics_url) for bookie in cluster.bookies]
        idle = [process_memory_bytes(bookie.pid) / 1e6 for bookie in bookies]
        note(f"bookies are up, idle memory {', '.join(f'{size:.0f}' for size in idle)} MB")
        job = _job(args, cluster.uri, "write")
        for version in args.versions:
            for size in args.sizes:
                calibration = calibrate(cluster.directory)
                for window in args.windows:
                    job = dataclasses.replace(job, use_v2=version == 2, entry_size=size, outstanding=window)
                    job = dataclasses.replace(job, warmup_entries=min(args.warmupMessages, window * 50), kind="write")
                    job = dataclasses.replace(job, ledger_ids=())
                    note(f"write {size} B x {window}, v{version}")
                    cell = run_workload(job, clients=args.clients, bookies=bookies, calibration=calibration)
                    yield cell
                    if args.no_reads:
                        continue
                    job = dataclasses.replace(job, kind="read", ledger_ids=cell.ledger_ids)
                    note(f"read  {size} B x {window}, v{version}")
                    yield run_workload(job, clients=args.clients, bookies=bookies, calibration=calibration)
        after = [process_memory_bytes(bookie.pid) / 1e6 for bookie in bookies]
        note(f"memory of the bookies afterwards: {', '.join(f'{size:.0f}' for size in after)} MB")
