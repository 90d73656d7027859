"""What counts of a load: what is done between two moments, and how long each took. Pure but for the clock."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bookkeeper.cli.perf.latency import Latencies

_STAMP = struct.Struct(">d")
SIZE_MIN = _STAMP.size


@dataclass(slots=True)
class Meter:
    """start, end: of `time.monotonic`, which is one for all processes of a machine."""

    start: float
    end: float
    count: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def tick(self, now: float) -> bool:
        """Whether the measurement goes on."""
        return now < self.end

    def done(self, began: float, now: float, count: int = 1) -> None:
        """So many were done just now."""
        if self.start <= now < self.end:
            self.count += count
            self.latencies.add(now - began, count)

    def to_json(self) -> dict[str, object]:
        """For another process."""
        return {"count": self.count, "seconds": self.end - self.start, "latencies": self.latencies.to_json()}


def bodies(size: int) -> Callable[[float], bytes]:
    """Makes bodies of so many bytes that tell when they were handed over."""
    filler = os.urandom(size - SIZE_MIN)
    pack = _STAMP.pack
    return lambda at: pack(at) + filler


def handed_over(body: bytes) -> float:
    """When, by the body."""
    at: float = _STAMP.unpack_from(body)[0]
    return at


def from_now(warming_s: float, seconds: float) -> tuple[float, float]:
    """Start and end of what counts."""
    start = time.monotonic() + warming_s
    return start, start + seconds
