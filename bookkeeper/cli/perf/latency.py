"""Latencies as a histogram with 1 % wide buckets: bounded memory, percentiles to 1 %.

Entries appended in one burst share their start, and acknowledgements come as ranges, so a sample carries a weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

BUCKET_RATIO = 1.01
_LOG_RATIO = math.log(BUCKET_RATIO)
_SMALLEST_S = 1e-7

PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclass(slots=True)
class Latencies:
    """Weighted samples in seconds. `buckets` maps floor(log1.01(s / 100 ns)) to a count."""

    buckets: dict[int, int] = field(default_factory=dict)
    count: int = 0
    max_s: float = 0.0

    def add(self, seconds: float, weight: int = 1) -> None:
        """Count `weight` samples of `seconds`."""
        key = int(math.log(max(seconds, _SMALLEST_S) / _SMALLEST_S) / _LOG_RATIO)
        self.buckets[key] = self.buckets.get(key, 0) + weight
        self.count += weight
        if seconds > self.max_s:
            self.max_s = seconds

    def percentile(self, percent: float) -> float:
        """The latency in seconds that `percent` of the samples do not exceed, to 1 %. 0.0 without samples."""
        wanted = self.count * percent / 100.0
        seen = 0
        for key in sorted(self.buckets):
            seen += self.buckets[key]
            if seen >= wanted:
                return min(self.max_s, _SMALLEST_S * BUCKET_RATIO ** (key + 1))
        return self.max_s

    def to_json(self) -> dict[str, object]:
        """Everything, for another process to merge."""
        return {"buckets": {str(key): value for key, value in self.buckets.items()}, "max_s": self.max_s}

    @classmethod
    def merged(cls, parts: Iterable[Mapping[str, object]]) -> Latencies:
        """Sum of several `to_json` values."""
        total = cls()
        for part in parts:
            buckets = part["buckets"]
            assert isinstance(buckets, Mapping)
            for key, value in buckets.items():
                total.buckets[int(key)] = total.buckets.get(int(key), 0) + int(value)
                total.count += int(value)
            total.max_s = max(total.max_s, float(str(part["max_s"])))
        return total
