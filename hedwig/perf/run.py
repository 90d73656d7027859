"""Measurements on a running cluster: client processes, and what the hub and the bookies spent meanwhile.

Publisher and readers are processes of their own, so that neither takes the interpreter from the other. Everything
blocks: for command lines.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bookkeeper.cli.perf.counters import process_cpu_seconds, process_memory_bytes, read_metrics
from bookkeeper.cli.perf.latency import Latencies
from bookkeeper.clock import wall_s
from bookkeeper.metrics import LONGEST_TURN
from hedwig.perf.meter import from_now
from hedwig.perf.plan import DRAINED, Cell
from hedwig.perf.process import ClientProcess

READY_TIMEOUT_S = 300.0
ANSWER_TIMEOUT_S = 120.0
WARMING_SHARE = 0.25
"""Of the seconds of a measurement, before what counts."""

_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Target:
    """hubs: addresses. hub_pids, bookie_pids: local processes with CPU times to show; may be empty.

    hub_metrics, bookie_metrics: URLs of servers' metrics with longest turns to show; may be empty.
    """

    hubs: tuple[str, ...]
    hub_pids: tuple[int, ...] = ()
    bookie_pids: tuple[int, ...] = ()
    hub_metrics: tuple[str, ...] = ()
    bookie_metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """count: messages (answers, deliveries, topics). hub_cpu_s, bookies_cpu_s: None if unknown.

    hub_turn_s, bookie_turn_s: the longest reactor turn of a server; None if unknown.
    """

    cell: Cell
    count: int
    seconds: float
    latencies: Latencies | None
    hub_cpu_s: float | None = None
    bookies_cpu_s: float | None = None
    hub_memory: int | None = None
    hub_turn_s: float | None = None
    bookie_turn_s: float | None = None

    @property
    def per_s(self) -> float:
        """Messages a second."""
        return self.count / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, object]:
        """Plain values; CPU in microseconds for each message."""

        def each(seconds: float | None) -> float | None:
            return None if seconds is None or not self.count else round(seconds / self.count * 1e6, 1)

        def milliseconds(seconds: float | None) -> float | None:
            return None if seconds is None else round(seconds * 1e3, 1)

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
            "hub_turn_ms": milliseconds(self.hub_turn_s),
            "bookie_turn_ms": milliseconds(self.bookie_turn_s),
        }


def _worker(target: Target, role: str, cell: Cell, prefix: str, size: int) -> ClientProcess:
    """See hedwig.perf.worker."""
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
    return ClientProcess("hedwig.perf.worker", role, task)


_ROLES = {"publish": ("publish",), "deliver": ("read", "publish"), "paced": ("read", "paced")}


def measure(target: Target, cell: Cell, *, seconds: float, size: int) -> Figures:
    """One measurement. Raises WorkerFailed."""
    prefix = f"perf-{os.getpid()}-{next(_NUMBERS)}-{int(wall_s())}"
    with ExitStack() as stack:
        workers: list[ClientProcess] = []
        for role in _ROLES.get(cell.kind, (cell.kind,)):
            worker = stack.enter_context(_worker(target, role, cell, prefix, size))
            worker.hear(READY_TIMEOUT_S)  # readers are there before anything is published
            workers.append(worker)
        start, end = from_now(0.0 if cell.kind == "drain" else seconds * WARMING_SHARE, seconds)
        for worker in workers:
            worker.tell({"start": start, "end": end})
        if cell.kind != "drain":
            time.sleep(max(0.0, start - time.monotonic()))
        _longest_turns(target)  # discard earlier turns
        before = _cpu(target)
        if cell.kind == "drain":
            told = workers[0].hear(ANSWER_TIMEOUT_S)
            after = _cpu(target)
        else:
            time.sleep(max(0.0, end - time.monotonic()))
            after = _cpu(target)
            told = workers[0].hear(ANSWER_TIMEOUT_S)
    turns = _longest_turns(target)
    latencies = None if told["latencies"] is None else Latencies.merged([told["latencies"]])
    return Figures(
        cell,
        told["count"],
        told["seconds"],
        latencies,
        None if before[0] is None or after[0] is None else after[0] - before[0],
        None if before[1] is None or after[1] is None else after[1] - before[1],
        max(map(process_memory_bytes, target.hub_pids), default=None),
        *turns,
    )


def _longest_turns(target: Target) -> tuple[float | None, float | None]:
    """Return the longest turns of the hubs and of the bookies since the last call."""

    def longest(urls: Sequence[str]) -> float | None:
        found = [read_metrics(url).get(LONGEST_TURN) for url in urls]
        return max((each for each in found if each is not None), default=None)

    return longest(target.hub_metrics), longest(target.bookie_metrics)


def _cpu(target: Target) -> tuple[float | None, float | None]:
    def spent(pids: Sequence[int]) -> float | None:
        return sum(map(process_cpu_seconds, pids)) if pids else None

    return spent(target.hub_pids), spent(target.bookie_pids)
