"""Lose a bookie with thousands of small ledgers, under a light write load, and measure until every copy is there again.

What happens, on a cluster of its own with one bookie more than the ensemble needs:
  perf write    the add rate of this cluster in this run, to compare with
  ledgers       --ledgers of --entries each, all of which have the victim as a member
  loss          the victim is killed while a load of --rate entries/s goes on; auto-recovery is a process of its own,
                whose weekly checks of all ledgers are noted as done, as they are in a cluster that has run for a while
  verify        no ledger names the victim, every member has its entries, and all entries are what was written

examples:
  bookkeeper perf rereplicate                                5000 ledgers of ten entries of 128 bytes
  bookkeeper perf rereplicate --ledgers 500 --entries 1000 -entrysize 1024 --workers 2
  bookkeeper perf rereplicate -o replicationRateByBytes=10000000        what a limit costs

Without a limit (-o replicationRateByBytes, replicationRateByEntries) it copies as fast as it can.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bookkeeper.cli.localbookie import check_bookie_settings
from bookkeeper.cli.perf.arguments import add_entry_size, add_quorums, check_entry_size, duration, replication_of
from bookkeeper.cli.perf.calibrate import Calibration, calibrate
from bookkeeper.cli.perf.churn_plan import ChurnPlan
from bookkeeper.cli.perf.churn_process import ChurnProcess
from bookkeeper.cli.perf.counters import read_metrics
from bookkeeper.cli.perf.damage import DamagePlan, verify_ledgers, write_ledgers
from bookkeeper.cli.perf.healing import Copied, Healing, await_healing
from bookkeeper.cli.perf.run import run_workload
from bookkeeper.cli.perf.worker import NewLedgers, Task
from bookkeeper.clock import wall_ms
from bookkeeper.config import ClientSettings
from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import counted, entries, note
from bookkeeper.console.reactor import with_client, with_store_and_clock
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose, at_least
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.server import LocalServer
from bookkeeper.metadata.underreplication.format import CheckKind

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient

RATE_GOAL = 0.5
"""Entries copied a second, of the entries that are written a second in the same run."""

WRITE_WINDOW = 1000
FAULTS_TOLD_MAX = 10

_ENTRIES = "replication_replication_worker_NUM_ENTRIES_WRITTEN"
_BYTES = "replication_replication_worker_NUM_BYTES_WRITTEN_sum"

Repairers = Callable[[LocalCluster], AbstractContextManager[Copied | None]]
"""Starts who repairs, and stops it at the end; what it gives tells how far it is, if anybody can tell."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """One measurement. rate: entries a second of the light load; 0: none. write_s: of `perf write`."""

    damage: DamagePlan
    rate: float
    write_s: float
    limit_s: float
    bookie_settings: Mapping[str, str]
    directory: Path | None = None
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class Repaired:
    """The outcome. written_per_s: of `perf write`. made_s: to create, fill and close all ledgers.

    faults: of ledgers that are not whole. errors: of the light load.
    """

    plan: RepairPlan
    calibration: Calibration
    written_per_s: float
    made_s: float
    healing: Healing
    verified_entries: int
    faults: tuple[str, ...]
    load_adds: int
    load_errors: tuple[str, ...]
    error_count: int

    @property
    def copies_per_s(self) -> float:
        """Copies of entries made a second, from the first mark until the last ledger was whole."""
        return self.plan.damage.lost_copies / self.healing.repair_s

    @property
    def ratio(self) -> float:
        """To the entries that are written a second."""
        return self.copies_per_s / self.written_per_s

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        damage = self.plan.damage
        return {
            "ledgers": damage.ledgers,
            "entries_per_ledger": damage.entries,
            "entry_size": damage.entry_size,
            "replication": damage.replication._asdict(),
            "load_rate": self.plan.rate,
            "calibration": self.calibration.to_json(),
            "written_per_s": self.written_per_s,
            "made_per_s": damage.ledgers * damage.entries / self.made_s,
            "lost_copies": damage.lost_copies,
            "marked_s": self.healing.marked_s,
            "healed_s": self.healing.healed_s,
            "repair_s": self.healing.repair_s,
            "copies_per_s": self.copies_per_s,
            "bytes_per_s": self.copies_per_s * damage.entry_size,
            "ledgers_per_s": damage.ledgers / self.healing.repair_s,
            "ratio": self.ratio,
            "verified_entries": self.verified_entries,
            "load_adds": self.load_adds,
            "error_count": self.error_count,
            "errors": [*self.faults[:FAULTS_TOLD_MAX], *self.load_errors],
        }

    def show(self) -> None:
        """Print it."""
        damage, healing = self.plan.damage, self.healing
        copies = damage.replication
        print(
            f"E={copies.ensemble} Qw={copies.write_quorum} Qa={copies.ack_quorum} digest {copies.digest}, "
            f"{counted(damage.ledgers, 'ledger')} of {entries(damage.entries)} of {damage.entry_size} B, "
            f"{entries(damage.lost_copies)} lost, light load {self.plan.rate:g} entries/s"
        )
        print(self.calibration.text)
        print(f"perf write, {WRITE_WINDOW} outstanding, {damage.entry_size} B: {self.written_per_s:,.0f} entries/s")
        print(
            f"the ledgers themselves, created, filled and closed: {damage.ledgers * damage.entries / self.made_s:,.0f} "
            f"entries/s, {damage.ledgers / self.made_s:,.0f} ledgers/s"
        )
        print(
            f"after the loss: first ledger marked after {healing.marked_s:.1f} s, all copies there again after "
            f"{healing.healed_s:.1f} s; the repair took {healing.repair_s:.1f} s"
        )
        print(
            f"copied {self.copies_per_s:,.0f} entries/s, {self.copies_per_s * damage.entry_size / 1e6:,.2f} MB/s, "
            f"{damage.ledgers / healing.repair_s:,.0f} ledgers/s: {self.ratio:.2f} of perf write "
            f"(goal >= {RATE_GOAL:g})"
        )
        print(
            f"verified: {entries(self.verified_entries)} in {counted(damage.ledgers, 'ledger')}; the light load added "
            f"{entries(self.load_adds)} meanwhile; errors: {self.error_count}"
        )
        for error in (*self.faults[:FAULTS_TOLD_MAX], *self.load_errors):
            print(f"  {error}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper perf rereplicate`."""
    damage = parser.add_argument_group("what is lost")
    damage.add_argument("--ledgers", type=at_least(1), default=5000, metavar="N", help="(default: %(default)s)")
    damage.add_argument("--entries", type=at_least(1), default=10, metavar="N",
                        help="of each ledger (default: %(default)s)")  # fmt: skip
    add_entry_size(damage, least=1, default=128)
    add_quorums(damage)
    repair = parser.add_argument_group("repair")
    repair.add_argument("--workers", type=at_least(1), default=1, metavar="N",
                        help="processes of auto-recovery (default: %(default)s)")  # fmt: skip
    repair.add_argument("-o", dest="settings", action="append", default=[], metavar="KEY=VALUE",
                        help=f"setting of bookies and auto-recovery, repeatable; {SEEN_BY_OTHERS}")  # fmt: skip
    repair.add_argument("--time-limit", type=duration, default=900.0, metavar="SECONDS",
                        help="until all is whole (default: %(default)g)")  # fmt: skip
    parser.add_argument("--rate", type=at_least(0), default=200, metavar="N",
                        help="entries a second of the light load; 0: none (default: %(default)s)")  # fmt: skip
    parser.add_argument("-time", type=duration, default=10.0, metavar="SECONDS",
                        help="of perf write before (default: %(default)g)")  # fmt: skip
    parser.add_argument("--directory", type=Path, metavar="DIR", help="for the data (default: temporary)")
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    add_verbose(parser)


def run(args: argparse.Namespace) -> Repaired:
    """Measure. Raises CommandFailed, SystemExit on a signal; what was started is stopped then."""
    given = parse_settings(args.settings)
    check_bookie_settings(given)
    replication = replication_of(args)
    check_entry_size(args.entrysize, replication)
    damage = DamagePlan(args.ledgers, args.entries, args.entrysize, replication)
    settings = {"zkTimeout": "4000", **given}
    plan = RepairPlan(
        damage, float(args.rate), args.time, args.time_limit, settings, args.directory, verbose="verbose" in args
    )
    return measure(plan, lambda cluster: our_repairers(cluster, settings, args.workers))


@contextlib.contextmanager
def our_repairers(cluster: LocalCluster, settings: Mapping[str, str], count: int) -> Iterator[Copied]:
    """Processes of `bookkeeper autorecovery`, which the cluster stops before its bookies."""
    servers = [AutoRecoveryProcess(number, cluster, settings) for number in range(1, count + 1)]
    cluster.start_others(servers)

    def copied() -> tuple[int, int]:
        sums = [0.0, 0.0]
        for server in servers:
            assert server.metrics_url is not None
            with contextlib.suppress(OSError):  # it is progress only
                metrics = read_metrics(server.metrics_url)
                sums = [total + metrics.get(name, 0.0) for total, name in zip(sums, (_ENTRIES, _BYTES), strict=True)]
        return int(sums[0]), int(sums[1])

    yield copied


class AutoRecoveryProcess(LocalServer):
    """`bookkeeper autorecovery`, with its HTTP server for its metrics."""

    def __init__(self, number: int, cluster: LocalCluster, settings: Mapping[str, str]) -> None:
        super().__init__(
            f"auto-recovery {number}",
            cluster.directory / f"autorecovery-{number}",
            conf_name="autorecovery.conf",
            log_name="autorecovery.log",
            command=("bookkeeper.cli.main", "autorecovery"),
            environment_prefix="BK_",
            settings={
                "metadataServiceUri": cluster.uri,
                "httpServerEnabled": "true",
                "httpServerPort": "0",
                **settings,
            },
        )

    @property
    def address(self) -> str:
        """Of its HTTP server."""
        return f"127.0.0.1:{self.settings['httpServerPort']}"


def measure(plan: RepairPlan, repairers: Repairers) -> Repaired:
    """The whole of it, with whoever repairs."""
    damage = plan.damage
    with LocalCluster(
        damage.replication.ensemble + 1, directory=plan.directory, settings=plan.bookie_settings
    ) as cluster:
        settings = ClientSettings(metadata_service_uri=cluster.uri)
        calibration = calibrate(cluster.directory)
        note(f"perf write for {plan.write_s:g} s")
        task = Task(
            uri=cluster.uri,
            outstanding=WRITE_WINDOW,
            seconds=plan.write_s,
            use_v2=True,
            new=NewLedgers(damage.replication, damage.entry_size, 1, WRITE_WINDOW),
            verbose=plan.verbose,
        )
        written = run_workload(task)
        *kept, victim = cluster.bookies
        others = [bookie.bookie_id for bookie in kept]

        async def prepare(client: LedgerClient) -> list[int]:
            for ledger_id in written.ledger_ids:  # or it would be repaired, too
                await client.delete(ledger_id)
            began_s = time.monotonic()
            ledger_ids = await write_ledgers(client, damage, victim.bookie_id, others)
            made_s.append(time.monotonic() - began_s)
            for check in CheckKind:
                await client.context.store.underreplication.set_check_time(check, wall_ms())
            return ledger_ids

        made_s: list[float] = []
        ledger_ids = with_client(settings, prepare)
        light = ChurnPlan(
            uri=cluster.uri,
            replication=damage.replication,
            entry_size=damage.entry_size,
            outstanding=WRITE_WINDOW,
            rate=plan.rate,
            lanes=2,
            checks_per_s=5.0,
            verbose=plan.verbose,
        )
        with repairers(cluster) as copied, contextlib.ExitStack() as stack:
            load = stack.enter_context(ChurnProcess(light)) if plan.rate else None
            if load is not None:
                load.start()
            note(f"{victim.name} is killed: {counted(len(ledger_ids), 'ledger')} lose a member")
            lost_s = time.monotonic()
            victim.kill()
            healing = with_store_and_clock(
                settings,
                lambda store, clock: await_healing(
                    store,
                    clock,
                    ledger_ids,
                    victim.bookie_id,
                    since_loss_s=lambda: time.monotonic() - lost_s,
                    limit_s=plan.limit_s,
                    copied=copied,
                ),
            )
            end: dict[str, Any] = {"all_adds": 0, "error_count": 0, "errors": []}
            if load is not None:
                end = load.stop(verify=True)
        good, faults = with_client(
            settings, lambda client: verify_ledgers(client, damage, ledger_ids, victim.bookie_id)
        )
        return Repaired(
            plan,
            calibration,
            written.operations_per_s,
            made_s[0],
            healing,
            good,
            tuple(faults),
            end["all_adds"],
            tuple(end["errors"]),
            len(faults) + end["error_count"],
        )
