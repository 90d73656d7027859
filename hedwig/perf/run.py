"""Measurements on a running cluster: client processes, and what the hub and the bookies spent meanwhile.

Publisher and readers are processes of their own, so that neither takes the interpreter from the other. Everything
blocks: for command lines.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from bookkeeper.cli.perf.counters import process_cpu_seconds, process_memory_bytes
from bookkeeper.cli.perf.latency import Latencies
from bookkeeper.embedded.process import dying_with_parent
from bookkeeper.errors import BookKeeperError
from hedwig.perf.meter import from_now
from hedwig.perf.plan import DRAINED, Cell

READY_TIMEOUT_S = 300.0
ANSWER_TIMEOUT_S = 120.0
WARMING_SHARE = 0.25
"""Of the seconds of a measurement, before what counts."""

_NUMBERS = itertools.count(1)


class WorkerFailed(BookKeeperError):
    """A client process came to nothing; the message says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """hubs: addresses. hub_pids, bookie_pids: of processes on this machine whose CPU time is told; may be empty."""

    hubs: tuple[str, ...]
    hub_pids: tuple[int, ...] = ()
    bookie_pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """count: messages (answers, deliveries, topics). hub_cpu_s, bookies_cpu_s: None where not known."""

    cell: Cell
    count: int
    seconds: float
    latencies: Latencies | None
    hub_cpu_s: float | None = None
    bookies_cpu_s: float | None = None
    hub_memory: int | None = None

    @property
    def per_s(self) -> float:
        """Messages a second."""
        return self.count / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, object]:
        """Plain values; CPU in microseconds for each message."""

        def each(seconds: float | None) -> float | None:
            return None if seconds is None or not self.count else round(seconds / self.count * 1e6, 1)

        latencies = self.latencies
        return {
            "cell": self.cell.name,
            "count": self.count,
            "per_s": round(self.per_s),
            "p50_ms": None if latencies is None else round(latencies.percentile(50) * 1e3, 3),
            "p99_ms": None if latencies is None else round(latencies.percentile(99) * 1e3, 3),
            "hub_cpu_us": each(self.hub_cpu_s),
            "bookies_cpu_us": each(self.bookies_cpu_s),
            "hub_memory_mib": None if self.hub_memory is None else round(self.hub_memory / 2**20, 1),
        }


class Worker:
    """A client process; see hedwig.perf.worker. A context manager."""

    def __init__(self, target: Target, role: str, cell: Cell, prefix: str, size: int) -> None:
        self._role = role
        self._process = subprocess.Popen(
            dying_with_parent([sys.executable, "-m", "hedwig.perf.worker"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        task = {
            "hubs": target.hubs,
            "role": role,
            "prefix": prefix,
            "topics": cell.topics,
            "outstanding": cell.outstanding,
            "subscribers": cell.subscribers,
            "per_s": cell.per_s,
            "messages": DRAINED,
            "size": size,
        }
        self.tell(task)

    def tell(self, line: dict[str, object]) -> None:
        """One line to it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerFailed(f"the client process ({self._role}) ended; its output says why") from None

    def hear(self, timeout_s: float) -> dict[str, Any]:
        """Its next line. Raises WorkerFailed."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not readable:
            raise WorkerFailed(f"the client process ({self._role}) said nothing for {timeout_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(f"the client process ({self._role}) ended; its output says why")
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise WorkerFailed(f"the client process ({self._role}): {told['error']}")
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


_ROLES = {"publish": ("publish",), "deliver": ("read", "publish"), "paced": ("read", "paced")}


def measure(target: Target, cell: Cell, *, seconds: float, size: int) -> Figures:
    """One measurement. Raises WorkerFailed."""
    prefix = f"perf-{os.getpid()}-{next(_NUMBERS)}-{int(time.time())}"
    with ExitStack() as stack:
        workers: list[Worker] = []
        for role in _ROLES.get(cell.kind, (cell.kind,)):
            worker = stack.enter_context(Worker(target, role, cell, prefix, size))
            worker.hear(READY_TIMEOUT_S)  # readers are there before anything is published
            workers.append(worker)
        start, end = from_now(0.0 if cell.kind == "drain" else seconds * WARMING_SHARE, seconds)
        for worker in workers:
            worker.tell({"start": start, "end": end})
        if cell.kind != "drain":
            time.sleep(max(0.0, start - time.monotonic()))
        before = _cpu(target)
        if cell.kind == "drain":
            told = workers[0].hear(ANSWER_TIMEOUT_S)
            after = _cpu(target)
        else:
            time.sleep(max(0.0, end - time.monotonic()))
            after = _cpu(target)
            told = workers[0].hear(ANSWER_TIMEOUT_S)
    latencies = None if told["latencies"] is None else Latencies.merged([told["latencies"]])
    return Figures(
        cell,
        told["count"],
        told["seconds"],
        latencies,
        None if before[0] is None or after[0] is None else after[0] - before[0],
        None if before[1] is None or after[1] is None else after[1] - before[1],
        max(map(process_memory_bytes, target.hub_pids), default=None),
    )


def _cpu(target: Target) -> tuple[float | None, float | None]:
    def spent(pids: Sequence[int]) -> float | None:
        return sum(map(process_cpu_seconds, pids)) if pids else None

    return spent(target.hub_pids), spent(target.bookie_pids)
