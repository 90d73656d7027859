"""The run itself: all servers live through a repetition, every measurement is a client process of its own.

    <directory>/<side>-<n>/        what the servers of a side keep, and their logs
    <directory>/client-<n>.log     of one measurement

What disturbs or breaks a round is tried again a few times; after a failure with new servers of the side that failed.
Nothing outlives `Bench`: leaving its context ends every process and removes what they wrote.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from bookkeeper.cli.perf.latency import Latencies
from bookkeeper.embedded.cluster import LocalProcessFailed
from bookkeeper.embedded.zookeeper import ZooKeeperUnavailable
from tests.benchmarks.apache.attempts import AttemptFailed, carry_out
from tests.benchmarks.apache.measure import Marks, disk_stat_of, shares, write_back
from tests.benchmarks.apache.quiet import resident_bytes
from tests.benchmarks.apache.records import Record, Records
from tests.benchmarks.hubs.loads.load import Load
from tests.benchmarks.hubs.peers.peer import Peer, Serving
from tests.benchmarks.hubs.plan import (
    SERVERS_WARMING_S,
    WARMING_OUTSTANDING,
    Cell,
    Round,
    Side,
    sides_of,
)
from tests.benchmarks.journals.clients import Answer, Failed, ask

CORES = os.cpu_count() or 1
END_TIMEOUT_S = 240.0
"""For making topics, and clearing away; ten thousand of them take their time."""


class SideFailed(Exception):
    """Servers or a client of a side failed; the message says why."""

    def __init__(self, side: Side, why: str) -> None:
        super().__init__(why)
        self.side = side


class Bench:
    """Everything that runs. `directory` must not exist, and is removed at the end.

    rounds: that may come. say: is told of what takes seconds, as it begins.
    """

    def __init__(
        self,
        rounds: Sequence[Round],
        seconds: float,
        records: Records,
        peers: Mapping[Side, Peer],
        directory: Path,
        say: Callable[[str], None],
    ) -> None:
        self._rounds, self._seconds, self._records = list(rounds), seconds, records
        self._peers, self._directory, self._say = peers, directory, say
        self._servers: dict[Side, contextlib.ExitStack] = {}
        self._serving: dict[Side, Serving] = {}
        self._repetition: int | None = None  # whose servers run
        self._disk_stat: Path | None = None
        self._count = 0  # names are used once

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True)
        self._disk_stat = disk_stat_of(self._directory)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end_servers()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def do(self, each: Round) -> list[Record]:
        """Carry out the next attempt at a round, if it needs one; its lines."""
        return carry_out(self._records, each, each.sides, self._seconds, lambda side: self._attempt(each, side))

    def _attempt(self, each: Round, side: Side) -> Record:
        try:
            self._begin_all(each.repetition)
            return self._measure(each.cell, side)
        except SideFailed as failure:
            self._end(failure.side)
            raise AttemptFailed(str(failure), failure.side) from failure

    def _measure(self, cell: Cell, side: Side) -> Record:
        serving = self._serving[side]
        settled_s = write_back(self._directory)
        marks = Marks(self._disk_stat)
        answer = self._client(side, cell.load(self._seconds, self._new_name("t")), marks)
        told = answer.told
        operations = told["operations"]
        if not operations:
            raise SideFailed(side, "nothing was completed in the time that counts: take more SECONDS")
        of_hub = shares(
            marks.taken, operations, root=os.getpid(), client=answer.pid, bookies=serving.hub_pids, cores=CORES
        )
        all_pids = (*serving.hub_pids, *serving.store_pids)
        of_all = shares(marks.taken, operations, root=os.getpid(), client=answer.pid, bookies=all_pids, cores=CORES)
        found: Record = {
            "operations": operations,
            "per_s": operations / told["seconds"],
            **of_all,
            "hub_cpu_us": of_hub["bookie_cpu_us"],
            "hub_memory_mb": sum(map(resident_bytes, serving.hub_pids)) / 1e6,
            "hub_start_s": serving.hub_start_s,
            "settle_s": round(settled_s, 2),
        }
        found["server_cpu_us"] = found.pop("bookie_cpu_us")
        if told.get("latencies"):
            latencies = Latencies.merged(told["latencies"])
            found |= {"p50_ms": latencies.percentile(50) * 1e3, "p99_ms": latencies.percentile(99) * 1e3}
        return found

    def _client(self, side: Side, load: Load, on_mark: Callable[[str], None]) -> Answer:
        """A process that measures. Raises SideFailed."""
        log_path = self._directory / f"client-{load.tag}.log"
        timeout_s = load.warming_s + load.seconds + END_TIMEOUT_S
        try:
            return ask(self._serving[side].command(load), log_path, timeout_s=timeout_s, on_mark=on_mark)
        except Failed as error:
            raise SideFailed(side, str(error)) from error
        finally:
            log_path.unlink(missing_ok=True)

    # --- servers

    def _begin_all(self, repetition: int) -> None:
        """Start those that the plan needs on empty directories; once for each repetition."""
        if self._repetition != repetition:
            self._end_servers()
            self._repetition = repetition
        for side in sides_of(self._rounds):
            if side not in self._serving:
                self._begin(side)

    def _begin(self, side: Side) -> None:
        """Start and warm up. Raises SideFailed."""
        self._say(f"starting and warming up {side.name}, {SERVERS_WARMING_S:g} s")
        directory = self._directory / f"{side.name}-{self._new_name('servers')}"
        stack = self._servers[side] = contextlib.ExitStack()
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            self._serving[side] = stack.enter_context(self._peers[side].serve(directory))
        except (Failed, LocalProcessFailed, ZooKeeperUnavailable) as error:
            raise SideFailed(side, str(error)) from error
        tag = self._new_name("warm")
        load = Load("publish", 1, WARMING_OUTSTANDING, 0, 0.0, 0, 0.0, SERVERS_WARMING_S, tag)
        self._client(side, load, lambda mark: None)

    def _end(self, side: Side) -> None:
        self._serving.pop(side, None)
        stack = self._servers.pop(side, None)
        if stack is not None:
            with contextlib.suppress(LocalProcessFailed):  # it is gone all the same, and what it cost has been told
                stack.close()

    def _end_servers(self) -> None:
        for side in list(self._servers):
            self._end(side)

    def _new_name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"
