"""The run itself: clusters and drivers live through it, rounds follow the plan, every measurement becomes a line.

What disturbs or breaks a round is tried again a few times. Nothing outlives `Bench`: leaving its context ends every
process and removes what they wrote.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from tests.benchmarks.apache.attempts import AttemptFailed, carry_out
from tests.benchmarks.apache.drivers import Driver, DriverFailed
from tests.benchmarks.apache.measure import (
    Marks,
    NothingCompleted,
    command_words,
    disk_stat_of,
    figures,
    write_back,
)
from tests.benchmarks.apache.plan import (
    READ_ENTRIES,
    REPLICATION,
    Cell,
    Plan,
    Round,
    Side,
    bytes_max,
    preparation_bytes,
    reserve_bytes,
)
from tests.benchmarks.apache.processes import (
    Cluster,
    DidNotStart,
    Genuine,
    initialise,
    make_bookie,
    seconds_to_register,
)
from tests.benchmarks.apache.quiet import OTHERS_SHARE_MAX, others_share, read_cpu_times, resident_bytes
from tests.benchmarks.apache.records import Record, Records

CORES = os.cpu_count() or 1
WHOSE = {"ours": "our", "apache": "Apache's", "tuned": "Apache's tuned"}


class DiskTooFull(Exception):
    """There is not enough room for the next step even with nothing written yet."""


class Bench:
    """Everything that runs. `directory` must be empty, and is removed at the end.

    say: is told of what takes seconds, as it begins.
    """

    def __init__(
        self, plan: Plan, records: Records, genuine: Genuine, directory: Path, say: Callable[[str], None]
    ) -> None:
        self._say = say
        self._plan, self._records, self._genuine, self._directory = plan, records, genuine, directory
        self._zookeeper = EmbeddedZooKeeper(data_dir=directory / "zookeeper")
        self._stack = contextlib.ExitStack()
        self._stint_stack = contextlib.ExitStack()
        self._stint = 0
        self._clusters: dict[str, Cluster] = {}
        self._drivers: dict[str, Driver] = {}
        self._ready: set[int] = set()  # sizes that are warm and have ledgers to read, in this stint
        self._read_ledgers: dict[tuple[str, int, tuple[int, int, int]], int] = {}
        self._disk_stat: Path | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True)
        self._stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
        try:
            self._disk_stat = disk_stat_of(self._directory)
            self._say("starting ZooKeeper")
            self._zookeeper.start()
            self._stack.callback(self._zookeeper.kill)
            self._stack.callback(self._close_clusters)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # --- rounds

    def do(self, each: Round) -> list[Record]:
        """Carry out the next attempt at a round, if it needs one; its lines. Raises DiskTooFull."""
        return carry_out(self._records, each, each.sides, self._plan.seconds, lambda side: self._attempt(each, side))

    def _attempt(self, each: Round, side: Side) -> Record:
        try:
            self._prepare(each)
            found = self._start(each.cell, side) if each.cell.kind == "start" else self._measure(each.cell, side)
            return found | self._memory()
        except (DriverFailed, NothingCompleted, DidNotStart, TimeoutError) as error:
            if not isinstance(error, DriverFailed) or not error.usable:
                self._end_stint()
            raise AttemptFailed(str(error)) from error

    def _measure(self, cell: Cell, side: Side) -> Record:
        cluster, driver = self._clusters[side.cluster], self._drivers[side.client]
        settled_s = write_back(self._directory)
        marks = Marks(self._disk_stat)
        ledger_id = self._read_ledgers.get((side.cluster, cell.size, cell.replication))
        seconds = self._plan.seconds
        words = command_words(cell, cluster.uri, seconds, ledger_id)
        answer = driver.ask(*words, seconds=seconds, on_mark=marks)
        result = figures(answer, marks.taken, root=os.getpid(), client=driver.pid, bookies=cluster.pids, cores=CORES)
        self._after(cell, cluster, driver, answer)
        return {**result, "settle_s": round(settled_s, 2)}

    def _after(self, cell: Cell, cluster: Cluster, driver: Driver, answer: dict[str, Any]) -> None:
        if cell.kind == "write":
            cluster.entries += answer["all_operations"]
            driver.ask("delete", cluster.uri, cell.version, answer["ledger"])

    def _start(self, cell: Cell, side: Side) -> Record:
        before = read_cpu_times(time.perf_counter())
        if cell.shape == "client":
            uri = self._clusters[side.cluster].uri
            # A new ledger with one entry, which the driver tells once it has closed it: the same for both.
            began = time.perf_counter()
            with Driver(side.client, self._genuine, self._log_path(f"start-{side.client}")) as driver:
                driver.ask("fill", uri, 2, *REPLICATION, 128, 1)
                took_s = time.perf_counter() - began
                after = read_cpu_times(time.perf_counter())
        else:
            # A root of its own: no client of the other cells must find a bookie that is about to go.
            name = f"start-{side.cluster}-{self._stint}-{time.monotonic_ns()}"
            uri = f"zk+hierarchical://{self._zookeeper.address}/{name}"
            initialise(uri)
            directory = self._directory / name
            bookie = make_bookie(side.cluster, self._genuine, directory, uri)
            try:
                took_s = seconds_to_register(bookie, self._zookeeper.address, f"/{name}")
                after = read_cpu_times(time.perf_counter())
            finally:
                bookie.kill()
                shutil.rmtree(directory, ignore_errors=True)
        others = others_share(before, after, os.getpid(), CORES)
        return {"quiet": others <= OTHERS_SHARE_MAX, "others": round(others, 4), "took_s": took_s}

    # --- what a round needs

    def _prepare(self, each: Round) -> None:
        """See to clusters that run, are warm and have room for the round."""
        size = each.cell.size
        missing = 0 if size in self._ready else preparation_bytes(self._plan, size)
        if self._clusters and self._free_bytes() < self._needed_bytes(each) + missing:
            self._end_stint()
        if not self._clusters:
            missing = preparation_bytes(self._plan, size)
            free, needed = self._free_bytes(), self._needed_bytes(each) + missing
            if free < needed:
                raise DiskTooFull(
                    f"{self._directory} has {free / 1e9:.0f} GB free, {each.cell.name} needs {needed / 1e9:.0f} GB"
                )
            self._begin_stint()
        if size not in self._ready:
            self._warm_up(size)
            self._ready.add(size)

    def _needed_bytes(self, each: Round) -> int:
        return reserve_bytes(shutil.disk_usage(self._directory).total) + bytes_max(each, self._plan.seconds)

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._directory).free

    def _begin_stint(self) -> None:
        self._stint += 1
        for kind in self._plan.clusters:
            self._say(f"starting {WHOSE[kind]} bookies")
            cluster = Cluster(kind, self._stint, self._genuine, self._directory, self._zookeeper.address)
            self._clusters[kind] = self._stint_stack.enter_context(cluster)
        for kind in ("ours", "apache"):
            if kind not in self._drivers:
                self._say(f"starting {WHOSE[kind]} client")
                driver = Driver(kind, self._genuine, self._log_path(f"driver-{kind}"))
                self._drivers[kind] = self._stack.enter_context(driver)
        self._records.add({"kind": "memory", "moment": "idle", "stint": self._stint, **self._memory()})

    def _end_stint(self) -> None:
        """End the clusters, and drivers that no longer answer; the next round begins with new ones."""
        for kind, driver in list(self._drivers.items()):
            try:
                for cluster in self._clusters.values():
                    driver.ask("forget", cluster.uri)
            except DriverFailed:
                self._drivers.pop(kind).close()
        self._close_clusters()

    def _close_clusters(self) -> None:
        if self._clusters:
            self._records.add({"kind": "memory", "moment": "end", "stint": self._stint, **self._memory()})
        self._clusters.clear()
        self._read_ledgers.clear()
        self._ready.clear()
        self._stint_stack.close()

    def _warm_up(self, size: int) -> None:
        chosen = [cell for cell in self._plan.cells if cell.size == size and cell.kind == "read"]
        for kind in {side.cluster for cell in chosen for side in cell.sides}:
            cluster, driver = self._clusters[kind], self._drivers["ours" if kind == "ours" else "apache"]
            for replication in sorted({cell.replication for cell in chosen}):
                count = READ_ENTRIES[size]
                self._say(f"writing {count:,} entries of {size} B that are read, {WHOSE[kind]} bookies")
                answer = driver.ask("fill", cluster.uri, 2, *replication, size, count, seconds=60)
                self._read_ledgers[kind, size, replication] = answer["ledger"]
                cluster.entries += count
        warm_ups = self._plan.warm_ups(size)
        left_s = sum(warm_up.seconds for warm_up in warm_ups)
        for warm_up in warm_ups:
            name, seconds = f"{warm_up.side.name} with {warm_up.cell.name}", f"{warm_up.seconds:g} s"
            self._say(f"warming up {name}, {seconds}; about {left_s:.0f} s until measurements begin")
            left_s -= warm_up.seconds
            cluster, driver = self._clusters[warm_up.side.cluster], self._drivers[warm_up.side.client]
            ledger_id = self._read_ledgers.get((warm_up.side.cluster, size, warm_up.cell.replication))
            words = command_words(warm_up.cell, cluster.uri, warm_up.seconds, ledger_id)
            try:
                self._after(warm_up.cell, cluster, driver, driver.ask(*words, seconds=warm_up.seconds))
            except DriverFailed as error:
                if not error.usable:
                    raise
                # The cell itself will fail the same way, and tell; the others need not.
                self._records.add({"kind": "cold", "side": warm_up.side.name, "error": str(error)})

    def _memory(self) -> Record:
        resident = {f"client {kind}": resident_bytes(driver.pid) for kind, driver in self._drivers.items()}
        for kind, cluster in self._clusters.items():
            for number, pid in enumerate(cluster.pids, 1):
                resident[f"{kind} bookie {number}"] = resident_bytes(pid)
        entries = {kind: cluster.entries for kind, cluster in self._clusters.items()}
        return {"resident": resident, "entries": entries, "free_bytes": self._free_bytes()}

    def _log_path(self, name: str) -> Path:
        directory = self._records.path.with_suffix("")
        directory.mkdir(parents=True, exist_ok=True)
        return directory / f"{name}.log"
