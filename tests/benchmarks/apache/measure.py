"""One measurement: a command to a driver, and what the machine did between its two marks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bookkeeper.cli.perf.latency import Latencies
from tests.benchmarks.apache.plan import Cell
from tests.benchmarks.apache.quiet import (
    OTHERS_SHARE_MAX,
    CpuTimes,
    descendants,
    others_share,
    parse_flushes,
    read_cpu_times,
)

WRITE_BACK_TIMEOUT_S = 60.0


class NothingCompleted(Exception):
    """No operation completed in the time that counts."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The machine at a mark. flushes: of the disk, since the system started."""

    cpu: CpuTimes
    flushes: int | None


@dataclass(slots=True)
class Marks:
    """Takes a snapshot at each mark of a driver."""

    disk_stat: Path | None
    taken: dict[str, Snapshot] = field(default_factory=dict)

    def __call__(self, name: str) -> None:
        flushes = parse_flushes(self.disk_stat.read_text()) if self.disk_stat is not None else None
        self.taken[name] = Snapshot(read_cpu_times(time.perf_counter()), flushes)


def figures(
    answer: Mapping[str, Any],
    taken: Mapping[str, Snapshot],
    *,
    root: int,
    client: int,
    bookies: Sequence[int],
    cores: int,
) -> dict[str, Any]:
    """What is recorded of a measurement. root: the process whose descendants are all ours. Raises NothingCompleted."""
    operations = answer["operations"]
    if not operations:
        raise NothingCompleted("nothing was completed in the time that counts: take more SECONDS")
    latencies = Latencies.merged(answer["latencies"])
    return {
        "operations": operations,
        "per_s": operations / answer["seconds"],
        "p50_ms": latencies.percentile(50) * 1e3,
        "p95_ms": latencies.percentile(95) * 1e3,
        "p99_ms": latencies.percentile(99) * 1e3,
        "p999_ms": latencies.percentile(99.9) * 1e3,
        "max_ms": latencies.max_s * 1e3,
        **shares(taken, operations, root=root, client=client, bookies=bookies, cores=cores),
    }


def shares(
    taken: Mapping[str, Snapshot], operations: int, *, root: int, client: int, bookies: Sequence[int], cores: int
) -> dict[str, Any]:
    """Who had how much of the machine and the disk between the two marks. root, bookies: as `figures`."""
    start, end = taken["start"], taken["end"]
    others = others_share(start.cpu, end.cpu, root, cores)
    bystanders = descendants(end.cpu.processes, root) - {client, *bookies}
    elapsed = end.cpu.seconds - start.cpu.seconds

    def cpu_s(pids: Sequence[int]) -> float:
        return end.cpu.cpu_s(pids) - start.cpu.cpu_s(pids)

    flushes = end.flushes - start.flushes if end.flushes is not None and start.flushes is not None else None
    return {
        "quiet": others <= OTHERS_SHARE_MAX,
        "others": round(others, 4),
        "bystanders": round(cpu_s(sorted(bystanders)) / (elapsed * cores), 4),
        "client_cpu_us": cpu_s([client]) * 1e6 / operations,
        "bookie_cpu_us": cpu_s(bookies) * 1e6 / operations,
        "flushes": flushes,
    }


def command_words(cell: Cell, uri: str, seconds: float, ledger_id: int | None) -> list[object]:
    """The command for a cell. ledger_id: of a read."""
    if cell.kind == "write":
        return ["write", uri, cell.version, *cell.replication, cell.size, cell.shape, seconds]
    assert ledger_id is not None
    return ["batch" if cell.is_batch else "read", uri, cell.version, ledger_id, *cell.ranges, seconds]


def disk_stat_of(path: Path) -> Path | None:
    """The counters of the disk that holds `path`; None where the kernel shows none."""
    device = path.stat().st_dev
    stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return stat if stat.exists() else None


def write_back(directory: Path) -> float:
    """What earlier measurements left dirty is written now, not under the next one; seconds it took."""
    began = time.perf_counter()
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["sync", "-f", str(directory)], check=True, timeout=WRITE_BACK_TIMEOUT_S)
    return time.perf_counter() - began
