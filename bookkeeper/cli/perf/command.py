"""Measure a cluster: adds/s and reads/s, latencies, CPU, beside what the machine can do in the same run.

examples:
  bookkeeper perf write                                       128-byte entries, 1000 outstanding, 10 s, against --uri
  bookkeeper perf write -entrysize 1024 -throttle 100 -ensemble 3 -quorum 3 -ackQuorum 2 -time 20
  bookkeeper perf write --clients 12                          the classic workload: twelve client processes
  bookkeeper perf read -ledger 7 -throttle 1000               reads a ledger again and again
  bookkeeper perf bench                                       a cluster of its own, every cell of the table
  bookkeeper perf bench --sizes 128 --windows 1000 --json     one cell as JSON
  bookkeeper perf collect                                     what deletion and compaction cost under load
  bookkeeper perf rereplicate                                 how long until a lost bookie's copies are there again
  bookkeeper perf soak --minutes 480                          memory, file handles and disk over time

`read` never disturbs a writer: of a ledger that is still open it reads what is confirmed.

exit codes: 0 ok, 1 failure, 2 usage, 130 stopped by Ctrl-C or SIGTERM; the client processes end with this one

Figures of a busy machine mean nothing; quote ratios within one run. Option names are those of Apache's benchmark.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.cli.localbookie import check_bookie_settings
from bookkeeper.cli.perf import collect, rereplicate, soak
from bookkeeper.cli.perf.arguments import (
    add_entry_size,
    add_quorums,
    boolean,
    check_entry_size,
    duration,
    replication_of,
)
from bookkeeper.cli.perf.calibrate import calibrate
from bookkeeper.cli.perf.counters import BookieProcess, process_memory_bytes
from bookkeeper.cli.perf.report import Cell, print_cells, print_settings
from bookkeeper.cli.perf.run import run_workload
from bookkeeper.cli.perf.worker import NewLedgers, Task
from bookkeeper.console.connection import add_connection_arguments, client_settings, connect, parse_settings
from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    counted,
    note,
    print_json,
)
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose, at_least
from bookkeeper.console.supervision import stopping_on_signals

if TYPE_CHECKING:
    from bookkeeper.client.faces.blocking import BlockingBookKeeper


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands of `bookkeeper perf`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    write = actions.add_parser("write", help="append to new ledgers", description="Append to new ledgers.")
    read = actions.add_parser(
        "read", help="read ledgers again and again", description="Read ledgers again and again, without closing any."
    )
    for single in (write, read):
        add_connection_arguments(single)
        _add_cell(single)
        _add_workload(single)
    add_entry_size(write, least=0, default=128)
    _add_new_ledgers(write)
    read.add_argument(
        "-ledger", type=at_least(0), action="append", required=True, metavar="ID",
        help="ledger to read, repeatable, required",
    )  # fmt: skip
    collecting = actions.add_parser(
        "collect",
        help="delete, collect and compact under load: what it costs, what comes back",
        description=collect.__doc__,
    )
    collect.add_arguments(collecting)
    soaking = actions.add_parser(
        "soak",
        help="a fixed rate for an hour: memory, file handles and disk, recorded and drawn",
        description=soak.__doc__,
    )
    soak.add_arguments(soaking)
    losing = actions.add_parser(
        "rereplicate",
        help="lose a bookie with thousands of ledgers: the time until every copy is there again",
        description=rereplicate.__doc__,
    )
    rereplicate.add_arguments(losing)
    bench = actions.add_parser(
        "bench",
        help="start a cluster, measure every cell, stop it",
        description="Start a cluster, measure every size x window x protocol version, stop it.",
    )
    _add_workload(bench)
    _add_new_ledgers(bench)
    add_verbose(bench)
    bench.add_argument("--sizes", type=_numbers, default=[128, 1024, 10240], metavar="BYTES,...",
                       help="payload bytes (default: 128,1024,10240)")  # fmt: skip
    bench.add_argument("--windows", type=_numbers, default=[1, 100, 1000, 5000], metavar="N,...",
                       help="in flight per client process (default: 1,100,1000,5000)")  # fmt: skip
    bench.add_argument("--versions", type=_versions, default=[2, 3], metavar="V,...",
                       help="protocol versions (default: 2,3)")  # fmt: skip
    bench.add_argument("--bookies", type=at_least(1), default=3, metavar="N", help="(default: %(default)s)")
    bench.add_argument("--directory", type=Path, metavar="DIR",
                       help="for the data; its disk is what is measured (default: temporary)")  # fmt: skip
    bench.add_argument("--no-reads", action="store_true", help="writes only")
    bench.add_argument("--no-batch-reads", action="store_true", help="read entry by entry where batches are possible")
    bench.add_argument("-o", dest="settings", action="append", default=[], metavar="KEY=VALUE",
                       help=f"bookie setting, repeatable; {SEEN_BY_OTHERS}")  # fmt: skip


def _numbers(text: str) -> list[int]:
    return [at_least(1)(word) for word in text.split(",")]


def _versions(text: str) -> list[int]:
    versions = _numbers(text)
    if not set(versions) <= {2, 3}:
        raise argparse.ArgumentTypeError(f"{text}: the protocol versions are 2 and 3")
    return versions


def _add_cell(parser: argparse.ArgumentParser) -> None:
    """What is one cell of the table; `bench` goes through many."""
    group = parser.add_argument_group("cell")
    group.add_argument("-throttle", "--outstanding", type=at_least(1), default=1000, metavar="N", dest="outstanding",
                       help="in flight per client process (default: %(default)s)")  # fmt: skip
    group.add_argument("-useV2", type=boolean, default=True, metavar="BOOL", help="protocol v2 (default: true)")
    group.add_argument("--calibrate-on", type=Path, metavar="DIR",
                       help="disk to calibrate on (default: that of temporary files)")  # fmt: skip


def _add_new_ledgers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("ledgers that are written")
    add_quorums(group)
    group.add_argument("-ledgers", type=at_least(1), default=1, metavar="N",
                       help="that each client process writes in turn (default: %(default)s)")  # fmt: skip
    group.add_argument("-warmupMessages", type=at_least(0), default=1000, metavar="N",
                       help="entries before the time runs, at least one a ledger (default: %(default)s)")  # fmt: skip


def _add_workload(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("workload")
    group.add_argument("-time", type=duration, default=10.0, metavar="SECONDS",
                       help="a cell; the first quarter is not counted (default: %(default)g)")  # fmt: skip
    group.add_argument(
        "-password", metavar="TEXT", help=f"the ledgers'; {SEEN_BY_OTHERS} (default: the setting passwd, else none)"
    )
    group.add_argument("--clients", type=at_least(1), default=1, metavar="N",
                       help="client processes (default: %(default)s)")  # fmt: skip
    group.add_argument("--json", action="store_true", help="JSON instead of a table")


def _new_ledgers(args: argparse.Namespace, entry_size: int, warmup_entries: int) -> NewLedgers:
    """What a client process is to write. Raises CommandFailed for quorums that cannot be."""
    return NewLedgers(replication_of(args), entry_size, args.ledgers, warmup_entries)


def run(args: argparse.Namespace) -> int:
    """Run the chosen measurement and print it."""
    if args.action in ("collect", "rereplicate"):
        return _run_of_its_own(args)
    if args.action == "soak":
        with stopping_on_signals(EXIT_INTERRUPTED):
            return soak.run(args)
    with stopping_on_signals(EXIT_INTERRUPTED):
        cells = list(_bench(args)) if args.action == "bench" else [_measure(args)]
    if args.json:
        print_json([cell.to_json() for cell in cells])
        return EXIT_OK
    print_settings(cells[0])
    print_cells(cells)
    if args.action == "write":
        note(f"ledgers written: {' '.join(map(str, cells[0].ledger_ids))}")
    return EXIT_OK


def _run_of_its_own(args: argparse.Namespace) -> int:
    with stopping_on_signals(EXIT_INTERRUPTED):
        outcome = collect.run(args) if args.action == "collect" else rereplicate.run(args)
    if args.json:
        print_json(outcome.to_json())
    else:
        outcome.show()
    return EXIT_FAILURE if outcome.error_count else EXIT_OK


def _measure(args: argparse.Namespace) -> Cell:
    """One cell against a cluster that runs already. What cannot work is found before a client process starts."""
    settings = client_settings(args)
    task = Task(
        uri=settings.metadata_service_uri,
        outstanding=args.outstanding,
        seconds=args.time,
        use_v2=args.useV2,
        password=args.password,
        conf=None if args.conf is None else str(args.conf),
        defines=parse_settings(args.defines),
        verbose="verbose" in args,
    )
    if args.action == "read":
        with connect(args) as client:
            for ledger_id in args.ledger:
                _check_readable(client, ledger_id, args.password)
        task = task.reading(args.ledger)
    else:
        new = _new_ledgers(args, args.entrysize, args.warmupMessages)
        check_entry_size(new.entry_size, new.replication, settings.frame_size_max)
        with connect(args) as client:
            writable = len(client.available_bookies().writable)
        if writable < args.ensemble:
            raise CommandFailed(
                f"-ensemble {args.ensemble}: the cluster has {counted(writable, 'writable bookie')} now"
            )
        task = dataclasses.replace(task, new=new)
    cell = run_workload(task, clients=args.clients)
    return dataclasses.replace(cell, calibration=calibrate(args.calibrate_on or Path(tempfile.gettempdir())))


def _check_readable(client: BlockingBookKeeper, ledger_id: int, password: str | None) -> None:
    """Make sure that there is something to read. Raises CommandFailed, and what opening a ledger raises."""
    ledger = client.open_without_recovery(ledger_id, None if password is None else password.encode())
    last = ledger.last_add_confirmed
    if last < 0:
        what = "is empty" if ledger.closed else "is still open, and nothing of it is confirmed yet"
        raise CommandFailed(f"ledger {ledger_id} {what}: nothing to read")
    if not ledger.closed:
        note(f"ledger {ledger_id} is still open: reading what is confirmed, up to entry {last} now; it stays open")


def _bench(args: argparse.Namespace) -> Iterator[Cell]:
    from bookkeeper.embedded.cluster import LocalCluster

    check_entry_size(max(args.sizes), replication_of(args))
    if args.ensemble > args.bookies:
        raise CommandFailed(
            f"-ensemble {args.ensemble}: that many bookies are needed, --bookies is {args.bookies}", EXIT_USAGE
        )
    given = parse_settings(args.settings)
    check_bookie_settings(given)
    settings = {"httpServerEnabled": "true", "httpServerPort": "0", **given}
    with LocalCluster(args.bookies, directory=args.directory, settings=settings) as cluster:
        bookies = [BookieProcess(bookie.pid, bookie.metrics_url) for bookie in cluster.bookies]
        note(f"bookies are up, idle memory {_memory(bookies)}")
        for version, size in itertools.product(args.versions, args.sizes):
            calibration = calibrate(cluster.directory)
            for window in args.windows:
                write = Task(
                    uri=cluster.uri,
                    outstanding=window,
                    seconds=args.time,
                    use_v2=version == 2,
                    new=_new_ledgers(args, size, min(args.warmupMessages, window * 50)),
                    password=args.password,
                    verbose="verbose" in args,
                )
                note(f"write {size} B x {window}, v{version}")
                cell = run_workload(write, clients=args.clients, bookies=bookies, calibration=calibration)
                yield cell
                if not args.no_reads:
                    read = write.reading(cell.ledger_ids)
                    if args.no_batch_reads:
                        read = dataclasses.replace(read, defines={"batchReadEnabled": "false"})
                    note(f"read  {size} B x {window}, v{version}")
                    yield run_workload(read, clients=args.clients, bookies=bookies, calibration=calibration)
        note(f"memory of the bookies afterwards: {_memory(bookies)}")


def _memory(bookies: Sequence[BookieProcess]) -> str:
    return f"{', '.join(f'{process_memory_bytes(bookie.pid) / 1e6:.0f}' for bookie in bookies)} MB"
