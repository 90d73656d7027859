"""What `bookkeeper perf collect` found, and how it is shown. Pure but for printing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bookkeeper.cli.perf.calibrate import Calibration
from bookkeeper.cli.perf.churn_plan import ChurnPlan
from bookkeeper.cli.perf.collection import SpaceCounters
from bookkeeper.cli.perf.latency import Latencies
from bookkeeper.console.output import counted, entries, print_table, readable_size

RATE_GOAL, P99_GOAL = 0.7, 2.0
"""What collection may cost: this part of the undisturbed add rate stays, p99 is at most so many times as long."""

PERCENTILES = (50.0, 99.0)
UNDISTURBED = ("undisturbed", "after")


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """One phase of the load. cpu_s: of its process. written_bytes: by bookies to files; None: not known."""

    name: str
    seconds: float
    adds: int
    checked_entries: int
    latencies: Latencies
    cpu_s: float
    written_bytes: int | None

    @classmethod
    def from_json(cls, name: str, counted: Mapping[str, Any], written_bytes: int | None) -> PhaseFigures:
        """Of what the load's process counted."""
        latencies = Latencies.merged([counted["latencies"]])
        adds, checked = counted["adds"], counted["checked_entries"]
        return cls(name, counted["seconds"], adds, checked, latencies, counted["cpu_s"], written_bytes)

    @property
    def adds_per_s(self) -> float:
        """Acknowledged."""
        return self.adds / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "phase": self.name,
            "seconds": self.seconds,
            "adds": self.adds,
            "adds_per_s": self.adds_per_s,
            "latency_ms": {f"p{each:g}": self.latencies.percentile(each) * 1e3 for each in PERCENTILES},
            "max_ms": self.latencies.max_s * 1e3,
            "checked_entries": self.checked_entries,
            "written_bytes": self.written_bytes,
            "client_cpu_us": self.cpu_s * 1e6 / self.adds if self.adds else None,
        }


@dataclass(frozen=True, slots=True)
class Space:
    """Entry logs on disk; and what the entries that must stay take in them at least, all copies."""

    log_bytes: int
    live_bytes: int

    @property
    def garbage_bytes(self) -> int:
        """What could be given back at most."""
        return max(0, self.log_bytes - self.live_bytes)


def returned_after_s(samples: Sequence[tuple[float, int]], part: float) -> float:
    """When so much of what came back was back. samples: seconds, garbage in bytes; the last is the end."""
    most, least = max(garbage for _, garbage in samples), samples[-1][1]
    wanted = most - part * (most - least)
    since_most = samples[next(index for index, each in enumerate(samples) if each[1] == most) :]
    return next(seconds for seconds, garbage in since_most if garbage <= wanted)


@dataclass(frozen=True, slots=True)
class Collected:
    """The whole outcome. deleted_bytes: of all copies. whole, collected: counters of the run, of the collection.

    device_bytes: what the disk of the data took meanwhile, from the whole machine.
    """

    plan: ChurnPlan
    calibration: Calibration | None
    phases: tuple[PhaseFigures, ...]
    deleted_ledgers: int
    deleted_bytes: int
    before: Space
    full: Space
    after: Space
    rounds: int
    collect_s: float
    returned_s: float
    collected: SpaceCounters
    whole: SpaceCounters
    device_bytes: int | None
    added_bytes: int
    verified_entries: int
    error_count: int
    errors: tuple[str, ...]

    @property
    def undisturbed(self) -> PhaseFigures:
        """Both undisturbed phases together: a machine's speed drifts, the mean of before and after drifts less."""
        phases = [phase for phase in self.phases if phase.name in UNDISTURBED]
        written = [phase.written_bytes for phase in phases if phase.written_bytes is not None]
        return PhaseFigures(
            "undisturbed, both",
            sum(phase.seconds for phase in phases),
            sum(phase.adds for phase in phases),
            sum(phase.checked_entries for phase in phases),
            Latencies.merged([phase.latencies.to_json() for phase in phases]),
            sum(phase.cpu_s for phase in phases),
            None if len(written) < len(phases) else sum(written),
        )

    @property
    def collecting(self) -> PhaseFigures:
        """While it collected and compacted."""
        return next(phase for phase in self.phases if phase.name == "collect")

    @property
    def rate_ratio(self) -> float | None:
        """Add rate while collecting, of the undisturbed one."""
        usual = self.undisturbed.adds_per_s
        return self.collecting.adds_per_s / usual if usual else None

    @property
    def p99_ratio(self) -> float | None:
        """p99 while collecting, of the undisturbed one."""
        usual = self.undisturbed.latencies.percentile(99.0)
        return self.collecting.latencies.percentile(99.0) / usual if usual else None

    @property
    def amplification(self) -> float | None:
        """Bytes that bookies wrote to files for one byte of payload that was added; the copies are in it."""
        written = self.whole.written_bytes
        return written / self.added_bytes if written and self.added_bytes else None

    @property
    def amplification_of_copies(self) -> float | None:
        """The same for one byte of one copy."""
        whole = self.amplification
        return None if whole is None else whole / self.plan.replication.write_quorum

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        whole, collected = self.whole, self.collected
        return {
            "replication": self.plan.replication._asdict(),
            "entry_size": self.plan.entry_size,
            "outstanding": self.plan.outstanding,
            "rate": self.plan.rate,
            "calibration": self.calibration.to_json() if self.calibration is not None else None,
            "phases": [phase.to_json() for phase in (*self.phases, self.undisturbed)],
            "rate_ratio": self.rate_ratio,
            "p99_ratio": self.p99_ratio,
            "deleted_ledgers": self.deleted_ledgers,
            "deleted_bytes": self.deleted_bytes,
            "space": {
                name: {"log_bytes": space.log_bytes, "live_bytes": space.live_bytes}
                for name, space in (("before", self.before), ("deleted", self.full), ("after", self.after))
            },
            "rounds": self.rounds,
            "collect_s": self.collect_s,
            "returned_s": self.returned_s,
            "removed_bytes": collected.removed_bytes,
            "rewritten_bytes": collected.rewritten_bytes,
            "copied_bytes": collected.copied_bytes,
            "logs_compacted": collected.logs_compacted,
            "added_bytes": self.added_bytes,
            "written_bytes": whole.written_bytes,
            "journal_bytes": whole.journal_bytes,
            "device_bytes": self.device_bytes,
            "amplification": self.amplification,
            "amplification_of_copies": self.amplification_of_copies,
            "verified_entries": self.verified_entries,
            "error_count": self.error_count,
            "errors": list(self.errors),
        }

    def show(self) -> None:
        """Print it."""
        plan, copies = self.plan, self.plan.replication
        pace = f"{plan.rate:,.0f} entries/s" if plan.rate else f"{plan.outstanding:,} outstanding"
        print(
            f"E={copies.ensemble} Qw={copies.write_quorum} Qa={copies.ack_quorum} digest {copies.digest}, "
            f"{plan.entry_size} B, {pace}, protocol v{2 if plan.use_v2 else 3}, {plan.lanes} ledgers side by side, "
            f"{plan.checks_per_s:g} ranges checked a second"
        )
        if self.calibration is not None:
            print(self.calibration.text)
        print_table(
            ["phase", "s", "adds/s", "p50 ms", "p99 ms", "max ms", "client us/add", "entries checked", "MB/s to files"],
            [_row(phase) for phase in (*self.phases, self.undisturbed)],
        )
        print(
            f"while collecting: add rate {_times(self.rate_ratio)} of the undisturbed one (goal >= {RATE_GOAL:g}), p99 "
            f"{_times(self.p99_ratio)} times (goal <= {P99_GOAL:g})"
        )
        print(f"deleted {counted(self.deleted_ledgers, 'ledger')}, {readable_size(self.deleted_bytes)} with all copies")
        self._print_space()
        done = self.collected
        nine_tenths = "" if self.elsewhere else f", nine tenths after {self.returned_s:.1f} s"
        print(
            f"given back {readable_size(done.reclaimed_bytes)} in {counted(self.rounds, 'round')} and "
            f"{self.collect_s:.1f} s{nine_tenths}: {readable_size(done.removed_bytes)} "
            f"by removing entry logs, {readable_size(done.rewritten_bytes)} by rewriting {done.logs_compacted:,}, "
            f"for which {readable_size(done.copied_bytes)} were copied"
        )
        records = f"{readable_size(self.whole.journal_bytes)}{'' if self.elsewhere else ' of that'}"
        print(f"{self._written()}; {records} are records of journals")
        if self.device_bytes is not None:
            print(f"the disk itself took {readable_size(self.device_bytes)} meanwhile, from the whole machine")
        print(f"verified at the end: {entries(self.verified_entries)}; errors: {self.error_count}")
        for error in self.errors:
            print(f"  {error}")

    @property
    def elsewhere(self) -> bool:
        """The bookies, or one of them, are seen over HTTP only: what their disks hold is not known."""
        return self.whole.written_bytes is None

    def _print_space(self) -> None:
        moments = (("before", self.before), ("deleted", self.full), ("collected", self.after))
        if self.elsewhere:  # logs that are written are missing, and no round may have looked yet: no difference is one
            print_table(
                ["entry logs", "closed, at the last round", "live at least"],
                [[name, readable_size(each.log_bytes), readable_size(each.live_bytes)] for name, each in moments],
            )
            return
        print_table(
            ["entry logs", "on disk", "live at least", "beyond that"],
            [
                [name, readable_size(each.log_bytes), readable_size(each.live_bytes), readable_size(each.garbage_bytes)]
                for name, each in moments
            ],
        )

    def _written(self) -> str:
        added = readable_size(self.added_bytes)
        if self.amplification is None or self.amplification_of_copies is None:
            return f"added {added}; what bookies wrote is not known here"
        written = readable_size(self.whole.written_bytes or 0)
        return (
            f"write amplification {self.amplification:.2f}: bookies wrote {written} to files for {added} added, "
            f"{self.amplification_of_copies:.2f} per copy"
        )


def _row(phase: PhaseFigures) -> list[str]:
    cpu_us = f"{phase.cpu_s * 1e6 / phase.adds:.2f}" if phase.adds else "-"
    return [
        phase.name,
        f"{phase.seconds:.1f}",
        f"{phase.adds_per_s:,.0f}",
        *(f"{phase.latencies.percentile(percent) * 1e3:.2f}" for percent in PERCENTILES),
        f"{phase.latencies.max_s * 1e3:.1f}",
        cpu_us,
        f"{phase.checked_entries:,}",
        "-" if phase.written_bytes is None else f"{phase.written_bytes / phase.seconds / 1e6:,.1f}",
    ]


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"
