"""What a churning load does, and what it counts."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from bookkeeper.cli.perf.latency import Latencies
from bookkeeper.cli.perf.measurement import cpu_seconds
from bookkeeper.cli.perf.worker import Replication

ERRORS_TOLD_MAX = 10


@dataclass(frozen=True, slots=True)
class ChurnPlan:
    """What a load does, on which cluster.

    rate: entries a second, 0: as fast as it goes. outstanding: most entries in flight, over all ledgers. lanes: ledgers
    written side by side. entries_smallest, _largest: of a ledger. ledgers_max: no more are begun; 0: no bound.
    keep_bytes: payload of closed ledgers that stays, what is older goes all the time; 0: nothing goes. checks_per_s:
    ranges read and compared; 0: none. bookies: the first ensemble of every ledger; empty: the client's choice.
    """

    uri: str
    replication: Replication
    entry_size: int
    outstanding: int
    use_v2: bool = True
    rate: float = 0.0
    lanes: int = 8
    entries_smallest: int = 64
    entries_largest: int = 16_384
    ledgers_max: int = 0
    keep_bytes: int = 0
    checks_per_s: float = 20.0
    bookies: tuple[str, ...] = ()
    seed: int = 1
    verbose: bool = False

    def to_json(self) -> str:
        """For the command line of the load's process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ChurnPlan:
        """The inverse."""
        values = json.loads(text)
        return cls(
            **{**values, "replication": Replication(*values["replication"]), "bookies": tuple(values["bookies"])}
        )


class Counts:
    """What happened: since the phase began, and in all. latencies: of adds."""

    def __init__(self) -> None:
        self.all_adds = self.error_count = 0
        self.errors: list[str] = []
        self.begin_phase()

    def begin_phase(self) -> None:
        """Count from zero what belongs to a phase."""
        self._began, self._cpu_s = time.perf_counter(), cpu_seconds()
        self.latencies = Latencies()
        self.adds = self.checks = self.checked_entries = self.created = self.deleted = 0

    def acknowledged(self, count: int, due: float, now: float) -> None:
        """`count` entries that were due together."""
        self.adds += count
        self.all_adds += count
        self.latencies.add(now - due, count)

    def error(self, what: str, error: object) -> None:
        """One more thing that must not happen; the first few are told."""
        self.error_count += 1
        if len(self.errors) < ERRORS_TOLD_MAX:
            self.errors.append(f"{what}: {error}")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "seconds": time.perf_counter() - self._began,
            "adds": self.adds,
            "checks": self.checks,
            "checked_entries": self.checked_entries,
            "created": self.created,
            "deleted": self.deleted,
            "cpu_s": cpu_seconds() - self._cpu_s,
            "latencies": self.latencies.to_json(),
            "all_adds": self.all_adds,
            "error_count": self.error_count,
            "errors": self.errors,
        }
