"""Measure hubs: publishes, deliveries, latencies, a backlog, new topics; what the hub and the bookies spent on each.

Without --hubs a cluster of its own is started (three bookies, one hub) and removed afterwards. Publisher and readers
are processes of their own. A message counts as published when two bookies have synced it, as delivered when the
reader's program has it; its latency is taken from the moment when the publisher's program handed it over.

examples:
  hedwig perf                                        the usual measurements on a cluster of its own
  hedwig perf --topics 1,100 --subscribers 1 --outstanding 1,100,1000 --seconds 5
  hedwig perf --cell publish:10000x1000 --cell deliver:1x10x100
  hedwig perf --hubs hub1:4080,hub2:4080 --cell paced:12000 --json

Topics that are measured with are new ones, `perf-...`; on a cluster of yours they stay.
Figures of a busy machine mean nothing; quote ratios within one run.

exit codes: 0 ok, 1 failure, 2 usage, 130 stopped by Ctrl-C or SIGTERM
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bookkeeper.cli.lazy import at_least
from bookkeeper.cli.output import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    note,
    print_json,
    print_table,
)
from bookkeeper.cli.supervise import stopping_on_signals

if TYPE_CHECKING:
    from hedwig.perf.plan import Cell
    from hedwig.perf.run import Target

BOOKIES = 3
TOPICS, SUBSCRIBERS, OUTSTANDING = "1,100,10000", "1,10", "1,100,1000"
SIZE_MIN = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `hedwig perf`."""
    parser.add_argument("--hubs", metavar="HOST:PORT,...", help="measure these hubs (default: a cluster of its own)")
    parser.add_argument("--bookies", type=at_least(1), default=BOOKIES, metavar="N",
                        help="of its own cluster (default: %(default)s)")  # fmt: skip
    parser.add_argument("--cell", action="append", default=[], metavar="NAME",
                        help="one measurement, by its name in the table; repeatable (default: all)")  # fmt: skip
    for option, usual, what in (
        ("--topics", TOPICS, "published to in turn"),
        ("--subscribers", SUBSCRIBERS, "of each topic"),
        ("--outstanding", OUTSTANDING, "publishes without an answer"),
    ):
        parser.add_argument(option, type=_numbers, default=_numbers(usual), metavar="N,N",
                            help=f"{what} (default: {usual})")  # fmt: skip
    parser.add_argument("--size", type=at_least(SIZE_MIN), default=1024, metavar="BYTES",
                        help="of a message's body (default: %(default)s)")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (default: %(default)g)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: want whole numbers from 1 on, separated by commas")
    return numbers


def run(args: argparse.Namespace) -> int:
    """Measure, and print."""
    from hedwig.perf.run import measure

    wanted = _wanted(args)
    rows: list[dict[str, object]] = []
    with stopping_on_signals(EXIT_INTERRUPTED), _target(args) as target:
        for number, cell in enumerate(wanted, 1):
            figures = measure(target, cell, seconds=args.seconds, size=args.size)
            note(f"{number} of {len(wanted)}: {cell.name}: {figures.per_s:,.0f}/s")
            rows.append(figures.to_json())
    if args.json:
        print_json(rows)
    else:
        print_table(list(rows[0]), [["" if value is None else value for value in row.values()] for row in rows])
    return EXIT_OK


def _wanted(args: argparse.Namespace) -> list[Cell]:
    from bookkeeper.errors import InvalidArgument
    from hedwig.perf.plan import cells, parse_cell

    if args.seconds <= 0:
        raise CommandFailed(f"--seconds {args.seconds:g}: want more than 0", EXIT_USAGE)
    try:
        chosen = [parse_cell(text) for text in args.cell]
    except InvalidArgument as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    return chosen or cells(args.topics, args.subscribers, args.outstanding)


@contextlib.contextmanager
def _target(args: argparse.Namespace) -> Iterator[Target]:
    from hedwig.perf.run import Target

    if args.hubs:
        yield Target(tuple(args.hubs.split(",")))
        return
    from bookkeeper.embedded.cluster import LocalCluster
    from hedwig.embedded import LocalHub

    with LocalCluster(args.bookies) as cluster:
        hub = LocalHub.beside(cluster, 1)
        cluster.start_others([hub])
        note(f"A cluster of its own: ZooKeeper, {args.bookies} bookies and a hub in {cluster.directory}")
        try:
            yield Target((hub.address,), (hub.pid,), tuple(bookie.pid for bookie in cluster.bookies))
        finally:
            hub.kill()  # its topics are thrown away: giving back ten thousand of them takes a while
