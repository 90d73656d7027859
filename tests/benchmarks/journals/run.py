"""The run itself: servers live through it, every measurement is a client process of its own on a new journal.

    <directory>/servers-<n>/cluster/         ZooKeeper and three bookies of ours
    <directory>/servers-<n>/journal-node-<i>/
    <directory>/journal-<n>/                 of one measurement: local files, the client's log

What disturbs or breaks a round is tried again a few times; after a failure with new servers. Nothing outlives `Bench`:
leaving its context ends every process and removes what they wrote.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bookkeeper.embedded.cluster import LocalCluster, LocalProcessFailed
from bookkeeper.embedded.process import dying_with_parent
from tests.benchmarks.apache.attempts import AttemptFailed, carry_out
from tests.benchmarks.apache.measure import Marks, disk_stat_of, shares, write_back
from tests.benchmarks.apache.processes import BOOKIES, DISK_SETTINGS
from tests.benchmarks.apache.quiet import OTHERS_SHARE_MAX, others_share, read_cpu_times
from tests.benchmarks.apache.records import Record, Records
from tests.benchmarks.journals.clients import Answer, Failed, ask
from tests.benchmarks.journals.genuine import JournalNode, journal_nodes, measure, quorum_uri
from tests.benchmarks.journals.plan import (
    KILLS,
    OUR_FILES,
    OURS,
    REPLAYED,
    SERVERS_WARMING_S,
    WARMING_CALLERS,
    WARMING_S,
    Cell,
    Round,
    Side,
    servers_of,
)
from tests.support.hadoop.fetched import Hadoop
from tests.support.process_output import tail

CORES = os.cpu_count() or 1
SKIPPED_SHARE = 0.25
"""Of every measurement, as `measure_sync` has it."""

END_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 600.0


class Bench:
    """Everything that runs. `directory` must not exist, and is removed at the end.

    rounds: that may come. hadoop: None where nothing genuine is among them.
    say: is told of what takes seconds, as it begins.
    """

    def __init__(
        self,
        rounds: Sequence[Round],
        seconds: float,
        records: Records,
        hadoop: Hadoop | None,
        directory: Path,
        say: Callable[[str], None],
    ) -> None:
        self._rounds, self._seconds = list(rounds), seconds
        self._records, self._hadoop, self._directory, self._say = records, hadoop, directory, say
        self._servers = contextlib.ExitStack()
        self._cluster: LocalCluster | None = None
        self._nodes: Sequence[JournalNode] = ()
        self._serving = False
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

    # --- rounds

    def do(self, each: Round) -> list[Record]:
        """Carry out the next attempt at a round, if it needs one; its lines."""
        return carry_out(self._records, each, each.sides, self._seconds, lambda side: self._attempt(each.cell, side))

    def _attempt(self, cell: Cell, side: Side) -> Record:
        try:
            return self._measure(cell, side)
        except (Failed, LocalProcessFailed) as error:
            self._end_servers()
            raise AttemptFailed(str(error)) from error

    def _measure(self, cell: Cell, side: Side) -> Record:
        if cell.kind == "failover":
            return self._failover()
        self._begin_servers()
        return self._replay() if cell.kind == "replay" else self._sync(cell, side)

    def _sync(self, cell: Cell, side: Side) -> Record:
        settled_s = write_back(self._directory)
        marks = Marks(self._disk_stat)
        answer = self._client(side, cell.callers, WARMING_S, self._seconds, marks)
        told = answer.told
        if not told["operations"]:
            raise Failed("nothing was completed in the time that counts: take more SECONDS")
        found = shares(
            marks.taken,
            told["operations"],
            root=os.getpid(),
            client=answer.pid,
            bookies=self._pids(side),
            cores=CORES,
        )
        found["server_cpu_us"] = found.pop("bookie_cpu_us")
        return {
            "operations": told["operations"],
            "per_s": told["operations_per_s"],
            "p50_ms": told["p50_ms"],
            "p99_ms": told["p99_ms"],
            "log_flushes": told["flushes"],
            **found,
            "settle_s": round(settled_s, 2),
        }

    def _client(
        self, side: Side, callers: int, warming_s: float, seconds: float, on_mark: Callable[[str], None]
    ) -> Answer:
        """A process that measures a side on a new journal. Raises Failed."""
        name = self._new_name("journal")
        place = self._directory / name
        local = (place / "edits").as_uri()
        try:
            if side.is_genuine:
                assert self._hadoop is not None
                return measure(
                    self._hadoop,
                    quorum_uri(self._nodes, name) if side.servers else local,
                    place,
                    callers=callers,
                    warming_s=warming_s + seconds * SKIPPED_SHARE,
                    seconds=seconds * (1 - SKIPPED_SHARE),
                    on_mark=on_mark,
                )
            place.mkdir(parents=True)
            uri = local if side is OUR_FILES else self._uri(name)
            words = [sys.executable, "-m", "tests.benchmarks.journals.our_client", uri, callers, warming_s, seconds]
            timeout_s = warming_s + seconds + END_TIMEOUT_S
            return ask([str(word) for word in words], place / "client.log", timeout_s=timeout_s, on_mark=on_mark)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _replay(self) -> Record:
        found, share = self._command("replay", self._uri(self._new_name("replay")), "--force",
                                     "--transactions", str(REPLAYED))  # fmt: skip
        opaque, hdfs = found["replay"]
        return {"opaque_per_s": opaque["transactions_per_s"], "hdfs_per_s": hdfs["transactions_per_s"], **share}

    def _failover(self) -> Record:
        found, share = self._command("failover", "--kills", str(KILLS), "--stop-share", "0")
        told = found["failover"]
        return {
            "failover_s": told["failover_s_median"],
            "failover_s_most": told["failover_s_most"],
            "election_timeout_s": told["election_timeout_s"],
            "beyond_timeout_s": told["beyond_timeout_s_median"],
            "kills": told["kills"],
            "acknowledged": told["acknowledged"],
            **share,
        }

    def _command(self, *words: str) -> tuple[dict[str, Any], Record]:
        """Run `journalmgr perf`, whole; what it tells, and whether it had the machine to itself. Raises Failed."""
        directory = self._directory / self._new_name("command")
        directory.mkdir()
        write_back(self._directory)
        command = [sys.executable, "-m", "journalmgr.cli.main", "perf", *words, "--json"]
        log_path = directory / "command.log"
        before = read_cpu_times(time.perf_counter())
        try:
            with log_path.open("wb") as log:
                process = subprocess.Popen(
                    dying_with_parent(command),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env={**os.environ, "TMPDIR": str(directory)},  # a cluster of its own writes to this disk too
                    start_new_session=True,  # so that Ctrl-C reaches the one that measures
                )
            try:
                out, _ = process.communicate(timeout=COMMAND_TIMEOUT_S)
            except subprocess.TimeoutExpired as error:
                raise Failed(f"perf {words[0]}: no end within {COMMAND_TIMEOUT_S:g} s\n{tail(log_path)}") from error
            finally:
                process.kill()
                process.wait()
            if process.returncode != 0:
                raise Failed(f"perf {words[0]} ended with code {process.returncode}\n{tail(log_path)}")
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        # The command and all it started are gone by now, and waited for: their time is in that of our children.
        after = read_cpu_times(time.perf_counter())
        others = others_share(before, after, os.getpid(), CORES)
        found: dict[str, Any] = json.loads(out)
        return found, {"quiet": others <= OTHERS_SHARE_MAX, "others": round(others, 4)}

    # --- servers

    def _begin_servers(self) -> None:
        """Start those that the plan needs, and warm them up; once."""
        if self._serving:
            return
        directory = self._directory / self._new_name("servers")
        needed = servers_of(self._rounds)
        if "ours" in needed:
            self._say("starting ZooKeeper and our bookies")
            cluster = LocalCluster(BOOKIES, directory=directory / "cluster", settings=DISK_SETTINGS)
            self._cluster = self._servers.enter_context(cluster)
        if "quorum" in needed:
            assert self._hadoop is not None
            self._say("starting Hadoop's JournalNodes")
            self._nodes = self._servers.enter_context(journal_nodes(self._hadoop, directory))
        sides = {side for each in self._rounds if each.cell.kind == "sync" for side in each.sides if side.servers}
        for side in sorted(sides, key=lambda side: side.name):
            self._say(f"warming up {'our bookies' if side is OURS else 'the JournalNodes'}, {SERVERS_WARMING_S:g} s")
            self._client(side, WARMING_CALLERS, 0.0, SERVERS_WARMING_S, lambda mark: None)
        self._serving = True

    def _end_servers(self) -> None:
        self._serving = False
        with contextlib.suppress(LocalProcessFailed):  # it is gone all the same, and what it cost has been told
            self._servers.close()
        self._cluster, self._nodes = None, ()

    def _pids(self, side: Side) -> list[int]:
        if side is OURS:
            assert self._cluster is not None
            return [bookie.pid for bookie in self._cluster.bookies]
        return [node.pid for node in self._nodes] if side.servers else []

    def _uri(self, journal: str) -> str:
        assert self._cluster is not None
        assert self._cluster.zookeeper is not None
        return f"bookkeeper://{self._cluster.zookeeper.address}/{journal}"

    def _new_name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"
