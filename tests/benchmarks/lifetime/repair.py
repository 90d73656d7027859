"""`make bench-repair`: our auto-recovery and genuine Apache's on the same damage, in alternation.

    python -m tests.benchmarks.lifetime.repair [--ledgers 5000] [--entries 10] [--reps 3] [--rate 200]

Each round makes a new cluster of our bookies for each side: the same ledgers, the same bookie killed, the same light
load; only who repairs differs. Which side comes first rotates. Prints every round, medians and the ratio; asserts
nothing about speed. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bookkeeper.cli.perf.damage import DamagePlan
from bookkeeper.cli.perf.healing import Copied
from bookkeeper.cli.perf.rereplicate import Repaired, RepairPlan, measure, our_repairers
from bookkeeper.cli.perf.worker import Replication
from bookkeeper.console.output import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, CommandFailed, note, print_table
from bookkeeper.console.subcommands import at_least
from bookkeeper.console.supervision import stopping_on_signals
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from tests.benchmarks.apache.machine import machine_facts
from tests.benchmarks.apache.processes import DISK_SETTINGS, Genuine, NoApache, find_genuine
from tests.benchmarks.lifetime.genuine import JavaServer

SIDES = ("ours", "apache")
SESSION_MS = "4000"


@contextlib.contextmanager
def apache_repairers(genuine: Genuine, cluster: LocalCluster) -> Iterator[Copied | None]:
    """The genuine auditor and worker with their defaults. How far it is, only the marks tell."""
    directory = cluster.directory / "apache-autorecovery"
    settings = {
        "metadataServiceUri": cluster.uri,
        "bookiePort": str(free_port()),
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "zkTimeout": SESSION_MS,
    }
    with JavaServer(genuine, directory, "org.apache.bookkeeper.replication.AutoRecoveryMain", settings):
        yield None


def main(arguments: Sequence[str]) -> int:
    """0: done; 1: something was not repaired, or there is no Apache; 2: usage; 130: interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledgers", type=at_least(1), default=5000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--entries", type=at_least(1), default=10, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--size", type=at_least(1), default=128, metavar="BYTES", help="(default: %(default)s)")
    parser.add_argument("--rate", type=at_least(0), default=200, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--reps", type=at_least(1), default=3, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--limit", type=at_least(1), default=1800, metavar="SECONDS", help="(default: %(default)s)")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="for the data (default: temporary)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append every outcome as a line")
    options = parser.parse_args(arguments)
    try:
        with stopping_on_signals(EXIT_INTERRUPTED):
            return _run(options, find_genuine())
    except (NoApache, CommandFailed) as error:
        print(f"bench-repair: {error}", file=sys.stderr)
        return EXIT_FAILURE


def _run(options: argparse.Namespace, genuine: Genuine) -> int:
    print(json.dumps(machine_facts(genuine.java, Path(options.directory or tempfile.gettempdir()))))
    outcomes: dict[str, list[Repaired]] = {side: [] for side in SIDES}
    for repetition in range(options.reps):
        for side in SIDES if repetition % 2 == 0 else reversed(SIDES):
            note(f"round {repetition + 1} of {options.reps}, {side}")
            outcome = _measure(options, genuine, side)
            outcomes[side].append(outcome)
            print(f"\nround {repetition + 1}, {side}")
            outcome.show()
            if options.json is not None:
                with options.json.open("a") as file:
                    file.write(json.dumps({"side": side, "round": repetition + 1, **outcome.to_json()}) + "\n")
    print("\nmedians")
    print_table(
        ["side", "s of repair", "entries/s", "ledgers/s", "of perf write", "errors"], map(_row, outcomes.items())
    )
    repairs = {side: median(each.healing.repair_s for each in found) for side, found in outcomes.items()}
    print(f"our repair takes {repairs['ours'] / repairs['apache']:.2f} of the time of Apache's")
    return EXIT_FAILURE if any(each.error_count for found in outcomes.values() for each in found) else EXIT_OK


def _measure(options: argparse.Namespace, genuine: Genuine, side: str) -> Repaired:
    damage = DamagePlan(options.ledgers, options.entries, options.size, Replication(3, 2, 2, "CRC32C"))
    settings = {**DISK_SETTINGS, "zkTimeout": SESSION_MS}
    with tempfile.TemporaryDirectory(prefix="bench-repair-", dir=options.directory) as directory:
        plan = RepairPlan(damage, float(options.rate), 10.0, float(options.limit), settings, Path(directory))
        if side == "ours":
            return measure(plan, lambda cluster: our_repairers(cluster, {"zkTimeout": SESSION_MS}, 1))
        return measure(plan, lambda cluster: apache_repairers(genuine, cluster))


def _row(item: tuple[str, list[Repaired]]) -> list[str]:
    side, found = item
    damage = found[0].plan.damage
    return [
        side,
        f"{median(each.healing.repair_s for each in found):.1f}",
        f"{median(each.copies_per_s for each in found):,.0f}",
        f"{median(damage.ledgers / each.healing.repair_s for each in found):,.0f}",
        f"{median(each.ratio for each in found):.3f}",
        str(sum(each.error_count for each in found)),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
