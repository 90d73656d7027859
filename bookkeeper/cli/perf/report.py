"""One measured cell, and how cells are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bookkeeper.cli.perf.calibrate import Calibration
from bookkeeper.cli.perf.counters import BookieCounters
from bookkeeper.cli.perf.latency import PERCENTILES, Latencies
from bookkeeper.cli.perf.worker import Replication, Task
from bookkeeper.console.output import counted, print_table


@dataclass(frozen=True, slots=True)
class Cell:
    """The outcome of one workload; sums over its client processes.

    entry_size: payload bytes on average, of what was written or read. replications: of the ledgers that were.
    batched_operations: how many of all_operations came by batch reads.
    """

    job: Task
    clients: int
    operations_per_s: float
    latencies: Latencies
    client_cpu_us: float
    client_writes_per_operation: float
    all_operations: int
    bookies: BookieCounters | None
    calibration: Calibration | None
    ledger_ids: tuple[int, ...]
    entry_size: float
    replications: tuple[Replication, ...]
    batched_operations: int = 0

    @property
    def megabytes_per_s(self) -> float:
        """Payload, 10^6 bytes."""
        return self.operations_per_s * self.entry_size / 1e6

    @property
    def batched_share(self) -> float:
        """Part of the entries that came by batch reads."""
        return self.batched_operations / self.all_operations if self.all_operations else 0.0

    @property
    def what(self) -> str:
        """The workload, and how much of it was read in batches."""
        share = f"{self.batched_share:.0%}"
        return self.job.kind if share == "0%" else f"{self.job.kind}, batches {share}"

    @property
    def longest_turn_ms(self) -> float | None:
        """Longest time in which a bookie answered nothing because it worked on other requests."""
        longest_s = None if self.bookies is None else self.bookies.longest_turn_s
        return None if longest_s is None else longest_s * 1e3

    def ratios(self) -> dict[str, float | None]:
        """The machine-independent figures."""
        calibration, bookies = self.calibration, self.bookies
        copies = self.job.new.replication.write_quorum if self.job.new is not None else 1
        values: dict[str, float | None] = {
            "copies_per_echo": None,
            "p50_per_fdatasync": None,
            "bookie_cpu_us": None,
            "entries_per_sync": None,
            "bookie_writes_per_operation": None,
        }
        if calibration is not None:
            values["copies_per_echo"] = copies * self.operations_per_s / calibration.echo_frames_per_s
            values["p50_per_fdatasync"] = self.latencies.percentile(50.0) / calibration.fdatasync_p50_s
        if bookies is not None and self.all_operations:
            values["bookie_cpu_us"] = bookies.cpu_s * 1e6 / self.all_operations
            if bookies.syncs and self.job.new is not None:
                values["entries_per_sync"] = self.all_operations * copies / bookies.syncs
            if bookies.reply_writes is not None:
                values["bookie_writes_per_operation"] = bookies.reply_writes / self.all_operations
        return values

    def to_json(self) -> dict[str, Any]:
        """Everything but the histogram. What differs among the ledgers that were read is None."""
        job = self.job
        return {
            "workload": job.kind,
            "batched_share": self.batched_share,
            "entry_size": self.entry_size,
            "outstanding": job.outstanding * self.clients,
            "clients": self.clients,
            "ledgers": job.ledger_count,
            **{
                name: values[0] if len(set(values)) == 1 else None
                for name, values in zip(Replication._fields, zip(*self.replications, strict=True), strict=True)
            },
            "protocol": 2 if job.use_v2 else 3,
            "seconds": job.seconds,
            "operations_per_s": self.operations_per_s,
            "megabytes_per_s": self.megabytes_per_s,
            "latency_ms": {
                **{f"p{percent:g}": self.latencies.percentile(percent) * 1e3 for percent in PERCENTILES},
                "max": self.latencies.max_s * 1e3,
            },
            "client_cpu_us": self.client_cpu_us,
            "client_writes_per_operation": self.client_writes_per_operation,
            "bookie_longest_turn_ms": self.longest_turn_ms,
            **self.ratios(),
            "calibration": self.calibration.to_json() if self.calibration else None,
            "ledger_ids": list(self.ledger_ids),
        }


HEADER = (
    "what", "bytes", "window", "v", "ops/s", "MB/s", "p50 ms", "p95", "p99", "p99.9", "max",
    "cpu us/op", "bookies", "per sync", "writes/op", "bookie w/op", "turn", "x echo", "p50/sync",
)  # fmt: skip


BATCHES = "batches: part of the entries that came many in one answer (v2, E = Qw, batchReadEnabled)"
EXPLANATION = """\
bytes: payload of an entry on average   window: entries in flight   v: protocol version   times in ms
cpu us/op, bookies: CPU microseconds per entry, of clients and of bookies   per sync: copies that one sync covers
writes/op, bookie w/op: socket writes per entry   turn: longest reactor turn of a bookie   -: not known here
x echo: copies/s divided by the echo frames/s above   p50/sync: p50 divided by the fdatasync p50 above"""


def print_cells(cells: Sequence[Cell]) -> None:
    """A table, a row a cell, and what its columns mean."""
    print_table(HEADER, [_row(cell) for cell in cells])
    if any("batches" in cell.what for cell in cells):
        print(BATCHES)
    print(EXPLANATION)


def print_settings(cell: Cell) -> None:
    """Settings and calibration, without which no figure means anything."""
    job = cell.job
    replications = " and ".join(
        f"E={each.ensemble} Qw={each.write_quorum} Qa={each.ack_quorum} digest {each.digest}"
        for each in cell.replications
    )
    durable = ", fdatasync before every answer" if job.new is not None else ""
    print(
        f"{replications}, {counted(cell.clients, 'client process', 'client processes')}, "
        f"{counted(job.ledger_count, 'ledger')} each, {job.seconds:g} s a cell{durable}"
    )
    if cell.calibration is not None:
        print(cell.calibration.text)


def _row(cell: Cell) -> list[str]:
    ratios = cell.ratios()
    milliseconds = [f"{cell.latencies.percentile(percent) * 1e3:.2f}" for percent in PERCENTILES]
    return [
        cell.what,
        f"{cell.entry_size:.0f}",
        str(cell.job.outstanding * cell.clients),
        "2" if cell.job.use_v2 else "3",
        f"{cell.operations_per_s:,.0f}",
        f"{cell.megabytes_per_s:,.1f}",
        *milliseconds,
        f"{cell.latencies.max_s * 1e3:.1f}",
        f"{cell.client_cpu_us:.2f}",
        _number(ratios["bookie_cpu_us"], 2),
        _number(ratios["entries_per_sync"], 0),
        f"{cell.client_writes_per_operation:.3f}",
        _number(ratios["bookie_writes_per_operation"], 3),
        _number(cell.longest_turn_ms, 1),
        _number(ratios["copies_per_echo"], 3),
        _number(ratios["p50_per_fdatasync"], 1),
    ]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
