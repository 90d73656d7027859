"""Measure hubs, and kill them under load.

    rates       publishes, deliveries, latencies, a backlog, new topics; what the hub and the bookies spent on each;
                what `hedwig perf` does without an action
    failover    hubs and bookies are killed (or stopped) again and again while messages are published and delivered;
                checked: nothing acknowledged is lost, nothing out of order, no position goes back
    scale       very many topics with a subscription each on one hub: rate, memory; then kill -9 of that hub, and of
                ZooKeeper

Without --hubs a cluster of its own is started (rates: three bookies, one hub; failover: five and three) and removed
afterwards. Publisher and readers are processes of their own. A message counts as published when two bookies have synced
it, as delivered when the reader's program has it; its latency is taken from the moment when the publisher's program
handed it over.

examples:
  hedwig perf                                        the usual measurements on a cluster of its own
  hedwig perf rates --topics 1,100 --subscribers 1 --outstanding 1,100,1000 --seconds 5
  hedwig perf --cell publish:10000x1000 --cell deliver:1x10x100
  hedwig perf --hubs hub1:4080,hub2:4080 --cell paced:12000 --json
  hedwig perf failover --hub-kills 30 --bookie-kills 10 --topics 20 --subscribers 40
  hedwig perf failover --once                        publishers that must not store anything twice
  hedwig perf scale --topics 100000                  needs some 2 GB of memory and several minutes

Topics that are measured with are new ones, `perf-...`; on a cluster of yours they stay.
Figures of a busy machine mean nothing; quote ratios within one run.

exit codes: 0 ok, 1 failure (of `failover` too: a promise was broken), 2 usage, 130 stopped by Ctrl-C or SIGTERM
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.console.output import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    Progress,
    note,
    print_json,
    print_table,
)
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, at_least
from bookkeeper.console.supervision import stopping_on_signals

if TYPE_CHECKING:
    from hedwig.perf.drill import Outcome, Plan
    from hedwig.perf.plan import Cell
    from hedwig.perf.run import Target

RATES, FAILOVER, SCALE = "rates", "failover", "scale"

BOOKIES = 3
TOPICS, SUBSCRIBERS, OUTSTANDING = "1,100,10000", "1,10", "1,100,1000"
SIZE_MIN = 8

DRILL_BOOKIES, DRILL_HUBS = 5, 3
DRILL_SETTINGS = {
    "max_entries_per_ledger": "200",
    "messages_consumed_thread_run_interval": "1000",
    "consume_interval": "20",
}
"""Ledgers end and are deleted, positions are written, many times between two blows."""

SCALED_TOPICS = 10_000
TROUBLE_SHOWN = 10


def arrange(words: Sequence[str]) -> Sequence[str]:
    """Without an action the rates are meant."""
    return words if words and words[0] in (RATES, FAILOVER, SCALE, "-h", "--help") else [RATES, *words]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of `hedwig perf`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_rates(actions.add_parser(RATES, help="publishes, deliveries, latencies, a backlog, new topics (default)"))
    _add_failover(actions.add_parser(FAILOVER, help="kill hubs and bookies under load, and check what is left"))
    scale = actions.add_parser(SCALE, help="very many topics on one hub, which is killed")
    scale.add_argument("--topics", type=at_least(1), default=SCALED_TOPICS, metavar="N",
                       help="with a subscription each (default: %(default)s)")  # fmt: skip
    scale.add_argument("--json", action="store_true", help="print JSON")


def _add_rates(parser: argparse.ArgumentParser) -> None:
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


def _add_failover(parser: argparse.ArgumentParser) -> None:
    for option, usual, what in (
        ("--hub-kills", 10, "hubs by SIGKILL"),
        ("--bookie-kills", 3, "bookies by SIGKILL"),
        ("--hub-stops", 2, "hubs by SIGSTOP, SIGCONT some seconds later"),
        ("--bookie-stops", 1, "bookies by SIGSTOP, SIGCONT some seconds later"),
    ):
        parser.add_argument(option, type=at_least(0), default=usual, metavar="N",
                            help=f"{what} (default: %(default)s)")  # fmt: skip
    for option, least, usual, what in (
        ("--topics", 1, 20, "that are published to"),
        ("--subscribers", 1, 40, "of all topics, as many of each"),
        ("--outstanding", 1, 50, "publishes of a topic without an answer; every fourth topic has one"),
        ("--bookies", 3, DRILL_BOOKIES, "of the cluster"),
        ("--hubs", 2, DRILL_HUBS, "of the cluster"),
        ("--size", SIZE_MIN, 256, "of a message's body, in bytes"),
        ("--seed", 0, 1, "of what happens when"),
    ):
        parser.add_argument(option, type=at_least(least), default=usual, metavar="N",
                            help=f"{what} (default: %(default)s)")  # fmt: skip
    parser.add_argument("-D", "-o", dest="defines", action="append", default=[], metavar="KEY=VALUE",
                        help=f"one setting of the hubs, repeatable; {SEEN_BY_OTHERS}; the drill's own: "
                        + ", ".join(f"{key}={value}" for key, value in DRILL_SETTINGS.items()))  # fmt: skip
    parser.add_argument("--once", action="store_true",
                        help="publish by numbers: nothing may be stored twice, or overtaken")  # fmt: skip
    parser.add_argument("--rate", type=float, default=500.0, metavar="PER_S",
                        help="publishes a second, of all topics (default: %(default)g)")  # fmt: skip
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
    return {RATES: _rates, FAILOVER: _failover, SCALE: _scale}[args.action](args)


# --- scale


def _scale(args: argparse.Namespace) -> int:
    from hedwig.perf.scale import measure_scale

    with stopping_on_signals(EXIT_INTERRUPTED):
        figures = measure_scale(args.topics, note).to_json()
    if args.json:
        print_json(figures)
    else:
        print_table(["figure", "value"], [[name, value] for name, value in figures.items()])
    return EXIT_OK


# --- rates


def _rates(args: argparse.Namespace) -> int:
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

    with_http = {"httpServerEnabled": "true", "httpServerPort": "0"}
    with LocalCluster(args.bookies, settings=with_http) as cluster:
        hub = LocalHub.beside(cluster, 1, with_http)
        cluster.start_others([hub])
        note(f"A cluster of its own: ZooKeeper, {args.bookies} bookies and a hub in {cluster.directory}")
        try:
            yield Target(
                (hub.address,),
                (hub.pid,),
                tuple(bookie.pid for bookie in cluster.bookies),
                tuple(filter(None, [hub.metrics_url])),
                tuple(filter(None, [bookie.metrics_url for bookie in cluster.bookies])),
            )
        finally:
            hub.kill()  # its topics are thrown away: giving back ten thousand of them takes a while


# --- failover


def _failover(args: argparse.Namespace) -> int:
    plan, settings = _plan(args), _settings(args)
    with stopping_on_signals(EXIT_INTERRUPTED):
        outcome = drill(plan, settings, bookies=args.bookies, hubs=args.hubs)
    figures = to_json(outcome)
    if args.json:
        print_json(figures)
    else:
        after = [each.to_json() for each in outcome.pauses]
        print_table(["what", "count"], [[name, value] for name, value in figures.items() if name != "pauses"])
        if after:
            print_table(list(after[0]), [["" if value is None else value for value in row.values()] for row in after])
    if not outcome.kept:
        broken = [*outcome.findings.examples, *outcome.trouble[:TROUBLE_SHOWN]]
        raise CommandFailed("\n  ".join(["promises were broken:", *broken]))
    return EXIT_OK


def _plan(args: argparse.Namespace) -> Plan:
    from hedwig.perf.drill import Plan

    if args.rate <= 0:
        raise CommandFailed(f"--rate {args.rate:g}: want more than 0", EXIT_USAGE)
    each, left = divmod(args.subscribers, args.topics)
    if left or not each:
        raise CommandFailed(
            f"--subscribers {args.subscribers}: every topic has as many, so want a multiple of {args.topics}",
            EXIT_USAGE,
        )
    return Plan(
        hub_kills=args.hub_kills,
        bookie_kills=args.bookie_kills,
        hub_stops=args.hub_stops,
        bookie_stops=args.bookie_stops,
        topics=args.topics,
        subscribers_each=each,
        per_s=args.rate,
        outstanding=args.outstanding,
        size=args.size,
        seed=args.seed,
        once=args.once,
    )


def _settings(args: argparse.Namespace) -> dict[str, str]:
    """Of the drill's hubs. Raises CommandFailed for what no hub takes."""
    from bookkeeper.console.connection import parse_settings
    from bookkeeper.errors import ConfigurationError
    from hedwig.config.load import load_hub

    try:
        settings = {**DRILL_SETTINGS, **parse_settings(args.defines)}
        load_hub(None, settings)
    except ConfigurationError as error:
        raise CommandFailed(str(error), EXIT_USAGE) from error
    return settings


def drill(plan: Plan, settings: Mapping[str, str], *, bookies: int, hubs: int) -> Outcome:
    """Run it on a cluster of its own. Raises BookKeeperError where it did not come to its end."""
    from bookkeeper.embedded.cluster import LocalCluster
    from hedwig.embedded import LocalHub
    from hedwig.perf.drill import run_drill

    blows = plan.hub_kills + plan.hub_stops + plan.bookie_kills + plan.bookie_stops
    directory = Path(tempfile.mkdtemp(prefix="hedwig-drill-"))
    is_evidence = True
    try:
        with LocalCluster(bookies, directory=directory / "cluster") as cluster:
            group = [LocalHub.beside(cluster, number, settings) for number in range(1, hubs + 1)]
            cluster.start_others(group)
            note(f"A cluster of its own: ZooKeeper, {bookies} bookies and {hubs} hubs in {cluster.directory}")
            progress = Progress("kills and stops", blows)
            try:
                outcome = run_drill(cluster, group, plan, directory, tell=progress.update)
            finally:
                progress.close()
        is_evidence = not outcome.kept
        return outcome
    except SystemExit:  # somebody stopped it
        is_evidence = False
        raise
    finally:
        if is_evidence:
            note(f"What was noted, and the logs, are kept in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


def to_json(outcome: Outcome) -> dict[str, object]:
    """Plain values: what was done, what was counted, which promises were broken how often."""
    from hedwig.perf.drill_check import LOST, ONCE, ONE_MESSAGE, ORDER, POSITION, REFUSED_STORED

    found = outcome.findings
    kinds = ("hub kill", "hub stop", "bookie kill", "bookie stop")
    return {
        **{f"{kind}s": sum(blow.kind == kind for blow in outcome.blows) for kind in kinds},
        "acknowledged": found.acknowledged,
        "delivered": found.delivered,
        "lost": found.faults[LOST],
        "order violations": found.faults[ORDER] + found.faults[ONCE],
        "ids with two messages": found.faults[ONE_MESSAGE],
        "positions back or ahead": found.faults[POSITION],
        "refused and stored": found.faults[REFUSED_STORED],
        "publishes that failed": found.unknown + found.refused,
        "delivered again": found.delivered_again,
        "stored twice": found.stored_again,
        "overtaken in flight": found.overtaken,
        "subscription objects": found.sessions,
        "attached while busy": outcome.busy,
        "positions read": found.positions,
        "messages in deleted ledgers": outcome.trimmed,
        "seconds": round(outcome.seconds, 1),
        "pauses": [each.to_json() for each in outcome.pauses],
    }
