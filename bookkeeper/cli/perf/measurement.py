"""What one client process counts: operations and latencies of the part of its run that is kept."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

from bookkeeper.cli.perf.latency import Latencies

SKIPPED_SHARE = 0.25
"""The first quarter of a run is thrown away: connections, caches and the window are still settling."""


class Measurement:
    """Counts and latencies of the part of the run that is kept."""

    def __init__(self, seconds: float) -> None:
        self.latencies = Latencies()
        self._seconds = seconds
        self.done = 0
        self.started = self.kept_from = self.finish_at = 0.0
        self.kept_done = self.kept_payload_size = 0
        self._cpu_from = 0.0
        self._writes_from = 0
        self._count_writes: Callable[[], int] = int
        self._first_kept: float | None = None

    def start(self, count_writes: Callable[[], int]) -> None:
        """The clock runs from now on."""
        now = time.perf_counter()
        self.started, self.kept_from = now, now + self._seconds * SKIPPED_SHARE
        self.finish_at = now + self._seconds
        self._count_writes = count_writes

    def add(self, count: int, began: float, now: float, *, payload_size: int) -> None:
        """`count` operations that began at `began` are complete. payload_size: of all of them, in bytes."""
        self.done += count
        if self._first_kept is not None:
            self.kept_done += count
            self.kept_payload_size += payload_size
            self.latencies.add(now - began, count)
        elif now >= self.kept_from:
            # This acknowledgement ends the time before: rates are taken from here on.
            self._first_kept = now
            self._cpu_from, self._writes_from = cpu_seconds(), self._count_writes()

    def stop(self) -> dict[str, Any]:
        """Everything asked for is complete: the figures as plain values for the parent."""
        kept = self._first_kept is not None
        return {
            "operations": self.kept_done,
            "payload_size": self.kept_payload_size,
            "seconds": time.perf_counter() - self._first_kept if self._first_kept is not None else 0.0,
            "cpu_s": cpu_seconds() - self._cpu_from if kept else 0.0,
            "writes": self._count_writes() - self._writes_from if kept else 0,
            "all_operations": self.done,
            "latencies": self.latencies.to_json(),
        }


def cpu_seconds() -> float:
    """User and system time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
