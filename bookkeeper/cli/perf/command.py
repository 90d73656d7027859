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
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bookkeeper.cli.connection import (
    DIGESTS,
    add_connection_arguments,
    client_settings,
    digest_type_of,
    parse_settings,
)
from bookkeeper.cli.lazy import add_verbose
from bookkeeper.cli.output import EXIT_OK, note, print_json
from bookkeeper.cli.perf.calibrate import calibrate
from bookkeeper.cli.perf.counters import BookieProcess, process_memory_bytes
from bookkeeper.cli.perf.report import Cell, print_cells, print_legend
from bookkeeper.cli.perf.run import run_workload
from bookkeeper.cli.perf.worker import Task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands of `bookkeeper perf`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    write = actions.add_parser("write", help="append to new ledgers", description="Append to new ledgers.")
    read = actions.add_parser(
        "read", help="read closed ledgers again and again", description="Read closed ledgers again and again."
    )
    for single in (write, read):
        add_connection_arguments(single)
        _add_cell(single)
        _add_workload(single)
    _add_ledger_count(write)
    read.add_argument(
        "-ledger", type=int, action="append", required=True, metavar="ID", help="ledger to read, repeatable, required"
    )
    read.set_defaults(ledgers=1)
    bench = actions.add_parser(
        "bench",
        help="start a cluster, measure every cell, stop it",
        description="Start a cluster, measure every size x window x protocol version, stop it.",
    )
    _add_workload(bench)
    _add_ledger_count(bench)
    add_verbose(bench)
    bench.add_argument("--sizes", type=_numbers, default=[128, 1024, 10240], metavar="BYTES,...",
                       help="payload bytes (default: 128,1024,10240)")  # fmt: skip
    bench.add_argument("--windows", type=_numbers, default=[1, 100, 1000, 5000], metavar="N,...",
                       help="in flight per client process (default: 1,100,1000,5000)")  # fmt: skip
    bench.add_argument("--versions", type=_versions, default=[2, 3], metavar="V,...",
                       help="protocol versions (default: 2,3)")  # fmt: skip
    bench.add_argument("--bookies", type=int, default=3, metavar="N", help="(default: %(default)s)")
    bench.add_argument("--directory", type=Path, metavar="DIR",
                       help="for the data; its disk is what is measured (default: temporary)")  # fmt: skip
    bench.add_argument("--no-reads", action="store_true", help="writes only")
    bench.add_argument("-o", dest="settings", action="append", default=[], metavar="KEY=VALUE",
                       help="bookie setting, repeatable")  # fmt: skip


def _numbers(text: str) -> list[int]:
    numbers = [int(word) for word in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text}: each must be at least 1")
    return numbers


def _versions(text: str) -> list[int]:
    versions = _numbers(text)
    if not set(versions) <= {2, 3}:
        raise argparse.ArgumentTypeError(f"{text}: the protocol versions are 2 and 3")
    return versions


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text}: true or false")
    return text.lower() == "true"


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return number


def _add_cell(parser: argparse.ArgumentParser) -> None:
    """What is one cell of the table; `bench` goes through many."""
    group = parser.add_argument_group("cell")
    group.add_argument("-entrysize", type=int, default=128, metavar="BYTES", help="payload (default: %(default)s)")
    group.add_argument("-throttle", "--outstanding", type=_at_least_one, default=1000, metavar="N", dest="outstanding",
                       help="in flight per client process (default: %(default)s)")  # fmt: skip
    group.add_argument("-useV2", type=_boolean, default=True, metavar="BOOL", help="protocol v2 (default: true)")
    group.add_argument("--calibrate-on", type=Path, metavar="DIR",
                       help="disk to calibrate on (default: that of temporary files)")  # fmt: skip


def _add_ledger_count(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-ledgers", type=_at_least_one, default=1, metavar="N",
                        help="that each client process writes in turn (default: %(default)s)")  # fmt: skip


def _add_workload(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("workload")
    group.add_argument("-ensemble", type=int, default=3, metavar="E", help="bookies (default: %(default)s)")
    group.add_argument("-quorum", type=int, default=2, metavar="QW", help="copies (default: %(default)s)")
    group.add_argument("-ackQuorum", type=int, default=2, metavar="QA",
                       help="copies to wait for (default: %(default)s)")  # fmt: skip
    group.add_argument("-time", type=float, default=10.0, metavar="SECONDS",
                       help="a cell; the first quarter is not counted (default: %(default)g)")  # fmt: skip
    group.add_argument("-warmupMessages", type=int, default=1000, metavar="N",
                       help="entries before the time runs, at least one a ledger (default: %(default)s)")  # fmt: skip
    group.add_argument("--digest", choices=DIGESTS, default="crc32c", help="checksum (default: %(default)s)")
    group.add_argument("-password", default="", metavar="TEXT", help="the ledgers' (default: none)")
    group.add_argument("--clients", type=_at_least_one, default=1, metavar="N",
                       help="client processes (default: %(default)s)")  # fmt: skip
    group.add_argument("--json", action="store_true", help="JSON instead of a table")


def _writing(args: argparse.Namespace, uri: str, entry_size: int, outstanding: int, *, use_v2: bool) -> Task:
    return Task(
        uri=uri,
        kind="write",
        ensemble=args.ensemble,
        write_quorum=args.quorum,
        ack_quorum=args.ackQuorum,
        entry_size=entry_size,
        outstanding=outstanding,
        ledgers=args.ledgers,
        seconds=args.time,
        warmup_entries=args.warmupMessages,
        use_v2=use_v2,
        digest=digest_type_of(args.digest).name,
        password=args.password,
    )


def run(args: argparse.Namespace) -> int:
    """Run the chosen measurement and print it."""
    if args.action == "bench":
        cells = list(_bench(args))
    else:
        uri = client_settings(args).metadata_service_uri
        task = _writing(args, uri, args.entrysize, args.outstanding, use_v2=args.useV2)
        if args.action == "read":
            task = task.reading(args.ledger)
        directory = args.calibrate_on or Path(tempfile.gettempdir())
        cell = run_workload(task, clients=args.clients)
        cells = [dataclasses.replace(cell, calibration=calibrate(directory))]
    if args.json:
        print_json([cell.to_json() for cell in cells])
        return EXIT_OK
    print_legend(cells[0])
    print_cells(cells)
    if args.action == "write":
        note(f"ledgers written: {' '.join(map(str, cells[0].ledger_ids))}")
    return EXIT_OK


def _bench(args: argparse.Namespace) -> Iterator[Cell]:
    from bookkeeper.embedded.cluster import LocalCluster

    settings = {"httpServerEnabled": "true", "httpServerPort": "0", **parse_settings(args.settings)}
    with LocalCluster(args.bookies, directory=args.directory, settings=settings) as cluster:
        bookies = [BookieProcess(bookie.pid, bookie.metrics_url) for bookie in cluster.bookies]
        note(f"bookies are up, idle memory {_memory(bookies)}")
        for version, size in itertools.product(args.versions, args.sizes):
            calibration = calibrate(cluster.directory)
            for window in args.windows:
                write = _writing(args, cluster.uri, size, window, use_v2=version == 2)
                write = dataclasses.replace(write, warmup_entries=min(args.warmupMessages, window * 50))
                note(f"write {size} B x {window}, v{version}")
                cell = run_workload(write, clients=args.clients, bookies=bookies, calibration=calibration)
                yield cell
                if not args.no_reads:
                    read = write.reading(cell.ledger_ids)
                    note(f"read  {size} B x {window}, v{version}")
                    yield run_workload(read, clients=args.clients, bookies=bookies, calibration=calibration)
        note(f"memory of the bookies afterwards: {_memory(bookies)}")


def _memory(bookies: Sequence[BookieProcess]) -> str:
    return f"{', '.join(f'{process_memory_bytes(bookie.pid) / 1e6:.0f}' for bookie in bookies)} MB"
