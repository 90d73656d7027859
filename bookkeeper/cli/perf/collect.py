"""Fill ledgers, delete a share of them, collect and compact, all while writing and reading goes on.

phases, of one load that never pauses:
  fill          until --fill MiB are written; not counted
  undisturbed   --time seconds
  delete        half of the deleted bytes are the oldest ledgers, so that entry logs die; the other half is drawn from
                the rest, so that entry logs keep a part of what they held and need compaction
  collect       rounds of collection with major compaction are ordered, until one gives nothing back
  after         --time seconds, undisturbed again
At the end everything that must be there is read to its last entry and compared.

examples:
  bookkeeper perf collect                              three bookies of its own, 1 KiB entries, as fast as it goes
  bookkeeper perf collect --rate 5000 --fill 2048      at a fixed rate, with more to collect
  bookkeeper perf collect --compaction-rate 0          compaction as fast as it can
  bookkeeper perf collect --uri zk://zk1/ledgers --http bk1:8080 --http bk2:8080 --http bk3:8080

With --uri it orders collections, with a major compaction, on the bookies that --http names: name all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.cli.localbookie import check_bookie_settings
from bookkeeper.cli.perf.arguments import (
    add_entry_size,
    add_quorums,
    boolean,
    check_entry_size,
    duration,
    replication_of,
    share,
)
from bookkeeper.cli.perf.calibrate import Calibration, calibrate
from bookkeeper.cli.perf.churn_ledgers import stored_size
from bookkeeper.cli.perf.churn_plan import ChurnPlan
from bookkeeper.cli.perf.churn_process import ChurnProcess
from bookkeeper.cli.perf.collect_report import Collected, PhaseFigures, Space, returned_after_s
from bookkeeper.cli.perf.collection import WatchedBookie, entry_log_bytes, space_counters
from bookkeeper.cli.perf.counters import device_written_bytes
from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import EXIT_USAGE, CommandFailed, Progress, note, readable_size
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose, at_least

if TYPE_CHECKING:
    from bookkeeper.cli.perf.worker import Replication

LOOK_INTERVAL_S = 0.25
SPACE_INTERVAL_S = 1.0
"""How often bookies are asked whether they are done, and disks are looked at."""

ROUNDS_MAX = 6
WORTH_SHARE = 0.02
"""A round that gives back less than this part of all before was the last."""

FILL_TIMEOUT_S = 1800.0
ROOM_BYTES = 2 << 30
"""Free disk space below which it ends: a disk that fills up is another measurement."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper perf collect`."""
    load = parser.add_argument_group("load")
    add_entry_size(load, least=1, default=1024)
    load.add_argument("-throttle", "--outstanding", type=at_least(1), default=1000, metavar="N", dest="outstanding",
                      help="most entries in flight (default: %(default)s)")  # fmt: skip
    load.add_argument("--rate", type=at_least(0), default=0, metavar="N",
                      help="entries a second; 0: as fast as it goes (default: %(default)s)")  # fmt: skip
    load.add_argument("-useV2", type=boolean, default=True, metavar="BOOL", help="protocol v2 (default: true)")
    load.add_argument("--checks", type=at_least(0), default=20, metavar="N",
                      help="ranges read and compared a second, all the time (default: %(default)s)")  # fmt: skip
    add_quorums(load)
    amount = parser.add_argument_group("amount")
    amount.add_argument("--fill", type=at_least(1), default=512, metavar="MIB",
                        help="payload to write before the time runs (default: %(default)s)")  # fmt: skip
    amount.add_argument("-time", type=duration, default=20.0, metavar="SECONDS",
                        help="undisturbed, before and after (default: %(default)g)")  # fmt: skip
    amount.add_argument("--delete", type=share, default=0.6, metavar="SHARE",
                        help="of what is closed when it deletes (default: %(default)s)")  # fmt: skip
    amount.add_argument("--time-limit", type=duration, default=300.0, metavar="SECONDS",
                        help="for all rounds of collection together (default: %(default)g)")  # fmt: skip
    own = parser.add_argument_group("a cluster of its own")
    own.add_argument("--bookies", type=at_least(1), default=3, metavar="N", help="(default: %(default)s)")
    own.add_argument("--directory", type=Path, metavar="DIR",
                     help="for the data; its disk is what is measured (default: temporary)")  # fmt: skip
    own.add_argument("--log-size", type=at_least(8), default=32, metavar="MIB",
                     help="of an entry log (default: %(default)s)")  # fmt: skip
    own.add_argument("--compaction-rate", type=at_least(0), default=10, metavar="MB",
                     help="10^6 bytes/s a bookie copies at most; 0: no limit (default: %(default)s)")  # fmt: skip
    own.add_argument("-o", dest="settings", action="append", default=[], metavar="KEY=VALUE",
                     help=f"bookie setting, repeatable; {SEEN_BY_OTHERS}")  # fmt: skip
    running = parser.add_argument_group("a cluster that runs")
    running.add_argument("--uri", help="metadata service URI (default: none, a cluster of its own)")
    running.add_argument("--http", action="append", default=[], metavar="HOST:PORT",
                         help="HTTP server of one of its bookies, repeatable; all are needed")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    add_verbose(parser)


def run(args: argparse.Namespace) -> Collected:
    """Measure. Raises CommandFailed when it cannot, SystemExit on a signal; what was started is stopped then."""
    replication = replication_of(args)
    check_entry_size(args.entrysize, replication)
    with _cluster(args, replication) as (uri, bookies, directory):
        calibration = None if directory is None else calibrate(directory)
        largest = max(1, min(args.fill << 20, 16 << 20) // args.entrysize)
        plan = ChurnPlan(
            uri=uri,
            replication=replication,
            entry_size=args.entrysize,
            outstanding=args.outstanding,
            use_v2=args.useV2,
            rate=float(args.rate),
            entries_smallest=min(64, largest),
            entries_largest=largest,
            checks_per_s=float(args.checks),
            verbose="verbose" in args,
        )
        with ChurnProcess(plan) as load:
            return _Collecting(args, load, bookies, directory, calibration).run()


@contextlib.contextmanager
def _cluster(
    args: argparse.Namespace, replication: Replication
) -> Iterator[tuple[str, list[WatchedBookie], Path | None]]:
    """The cluster's URI, its bookies, and where its data is, if that is on this machine."""
    if args.uri is not None:
        if not args.http:
            raise CommandFailed("--uri needs --http HOST:PORT of every bookie: they are told to collect", EXIT_USAGE)
        yield args.uri, [WatchedBookie(f"bookie {each}", f"http://{each}") for each in args.http], None
        return
    if args.http:
        raise CommandFailed("--http is for a cluster that runs: give its --uri, too", EXIT_USAGE)
    if replication.ensemble > args.bookies:
        raise CommandFailed(
            f"-ensemble {replication.ensemble}: that many bookies are needed, --bookies is {args.bookies}", EXIT_USAGE
        )
    from bookkeeper.embedded.cluster import LocalCluster

    given = parse_settings(args.settings)
    check_bookie_settings(given)
    settings = {
        "httpServerEnabled": "true",
        "httpServerPort": "0",
        "logSizeLimit": str(args.log_size << 20),
        "journalMaxSizeMB": "256",
        "journalMaxBackups": "0",
        "isThrottleByBytes": "true",
        "compactionRateByBytes": str(args.compaction_rate * 1_000_000 or -1),
        **given,
    }
    with LocalCluster(args.bookies, directory=args.directory, settings=settings) as cluster:
        yield cluster.uri, [WatchedBookie.of(bookie) for bookie in cluster.bookies], cluster.directory


class _Collecting:
    """One run, phase by phase."""

    def __init__(
        self,
        args: argparse.Namespace,
        load: ChurnProcess,
        bookies: Sequence[WatchedBookie],
        directory: Path | None,
        calibration: Calibration | None,
    ) -> None:
        self._args, self._load, self._bookies, self._directory = args, load, bookies, directory
        self._calibration = calibration
        self._phases: list[PhaseFigures] = []
        self._samples: list[tuple[float, int]] = []
        """Seconds since the first order, and bytes of entry logs beyond what must stay."""

    def run(self) -> Collected:
        """All of it."""
        started = self._counted = space_counters(self._bookies)
        device = self._device_bytes()
        self._load.start()
        self._fill()
        self._undisturbed("undisturbed")
        before = self._space()
        note(f"deleting {self._args.delete:.0%} of what is closed")
        deleted = self._load.delete(self._args.delete)
        self._phase("delete")
        full = self._space()
        counted = space_counters(self._bookies)
        rounds, took_s = self._collect()
        self._phase("collect")
        after = self._space()
        collected = space_counters(self._bookies).since(counted)
        self._undisturbed("after")
        note("reading everything that must be there")
        end = self._load.stop(verify=True)
        return Collected(
            plan=self._load.plan,
            calibration=self._calibration,
            phases=tuple(self._phases),
            deleted_ledgers=deleted["chosen_ledgers"],
            deleted_bytes=self._stored(deleted["chosen_entries"]),
            before=before,
            full=full,
            after=after,
            rounds=rounds,
            collect_s=took_s,
            returned_s=self._returned_s(),
            collected=collected,
            device_bytes=self._device_bytes(device),
            whole=space_counters(self._bookies).since(started),
            added_bytes=end["all_adds"] * self._load.plan.entry_size,
            verified_entries=end["verified_entries"],
            error_count=end["error_count"],
            errors=tuple(end["errors"]),
        )

    def _stored(self, entries: int) -> int:
        plan = self._load.plan
        return stored_size(entries, plan.entry_size, plan.replication.digest) * plan.replication.write_quorum

    def _fill(self) -> None:
        """Write what there will be to delete; nothing of that is counted."""
        wanted = -(-(self._args.fill << 20) // self._args.entrysize)
        deadline = time.monotonic() + FILL_TIMEOUT_S
        note(f"filling: {self._args.fill} MiB of payload")
        progress = Progress("filling: entries", wanted, lines_every_s=10.0)
        while (done := self._load.totals()["all_adds"]) < wanted:
            progress.update(done)
            self._check_room()
            if time.monotonic() > deadline:
                raise CommandFailed(f"--fill: {done:,} of {wanted:,} entries after {FILL_TIMEOUT_S:g} s; take less")
            time.sleep(LOOK_INTERVAL_S)
        progress.close()

    def _undisturbed(self, name: str) -> None:
        note(f"{name}: {self._args.time:g} s")
        self._load.phase()
        self._counted = space_counters(self._bookies)
        deadline = time.monotonic() + self._args.time
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, SPACE_INTERVAL_S))
            self._check_room()
        self._phase(name)

    def _phase(self, name: str) -> None:
        """End a phase."""
        before, self._counted = self._counted, space_counters(self._bookies)
        written = self._counted.since(before).written_bytes
        self._phases.append(PhaseFigures.from_json(name, self._load.phase(), written))

    def _space(self) -> Space:
        """Entry logs on disk, and the least that what stays takes. What write buffers hold is in the latter only."""
        live = self._stored(self._load.totals()["live_entries"])
        return Space(entry_log_bytes(self._bookies), live)

    def _collect(self) -> tuple[int, float]:
        """Order rounds until one gives nothing worth mentioning back; how many there were, and how long all took.

        What was deleted may still be in an entry log that is written, so one round is rarely enough.
        """
        began, deadline = time.monotonic(), time.monotonic() + self._args.time_limit
        progress = Progress("collecting: MB given back", lines_every_s=5.0)
        counted = start = space_counters(self._bookies)
        for number in range(1, ROUNDS_MAX + 1):
            for bookie in self._bookies:
                bookie.force_collection()
            while waiting := [bookie for bookie in self._bookies if bookie.is_forced()]:
                if time.monotonic() > deadline:
                    names = ", ".join(bookie.name for bookie in waiting)
                    raise CommandFailed(
                        f"round {number} of collection is not over after {self._args.time_limit:g} s on {names}; "
                        "take a longer --time-limit, less --fill or a higher --compaction-rate"
                    )
                self._check_room()
                space = self._space()
                self._samples.append((time.monotonic() - began, space.garbage_bytes))
                given_back = space_counters(self._bookies).since(start).reclaimed_bytes
                progress.update(
                    given_back // 1_000_000,
                    f"round {number} of {', '.join(bookie.name for bookie in waiting)}",
                    besides=f"entry logs {readable_size(space.log_bytes)}, live {readable_size(space.live_bytes)}",
                )
                time.sleep(SPACE_INTERVAL_S)
            now = space_counters(self._bookies)
            if now.since(counted).reclaimed_bytes < WORTH_SHARE * max(1, now.since(start).reclaimed_bytes):
                break
            counted = now
        progress.close()
        took_s = time.monotonic() - began
        self._samples.append((took_s, self._space().garbage_bytes))
        return number, took_s

    def _returned_s(self) -> float:
        """When nine tenths of what came back was back, seconds after the first order."""
        return returned_after_s(self._samples, 0.9)

    def _device_bytes(self, since: int | None = 0) -> int | None:
        now = None if self._directory is None else device_written_bytes(self._directory)
        return None if now is None or since is None else now - since

    def _check_room(self) -> None:
        if self._directory is not None and (free := shutil.disk_usage(self._directory).free) < ROOM_BYTES:
            raise CommandFailed(
                f"the disk of {self._directory} has {readable_size(free)} left: take less --fill, a --rate, or "
                "--directory on a larger disk"
            )
