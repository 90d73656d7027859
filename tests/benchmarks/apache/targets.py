"""Pure: the goals a figure is held against, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmarks.apache.plan import Cell

PASS, SHORT, BELOW = "pass", "short", "BELOW FLOOR"


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio ours/Apache. `floor` always holds; None: there is none."""

    target: float
    floor: float | None = None
    higher_is_better: bool = True

    def verdict(self, ratio: float) -> str:
        """What the ratio is worth. Rounded as it is printed: a printed 1.90 reaches 1.9."""
        sign = 1 if self.higher_is_better else -1
        rounded = round(ratio, 2)
        if sign * rounded >= sign * self.target:
            return PASS
        if self.floor is not None and sign * rounded < sign * self.floor:
            return BELOW
        return SHORT


# adds/s, v2: (size, outstanding) -> target, target against tuned Apache, floor
_ADDS = {
    (128, 1): (5.0, 0.9, 3.0),
    (128, 100): (2.2, 1.6, 1.3),
    (128, 1000): (1.9, None, 1.0),
    (128, 5000): (2.2, None, 1.1),
    (1024, 1): (5.0, 0.9, 3.0),
    (1024, 100): (1.7, 1.3, 1.0),
    (1024, 1000): (1.2, None, 0.8),
    (1024, 5000): (1.6, None, 0.9),
    (10240, 100): (0.8, None, 0.5),
    (10240, 1000): (1.0, None, 0.5),
    (10240, 5000): (1.1, None, 0.5),
}
_V3_TARGET, _V3_FLOOR = 1.1, 0.6

P99 = Goal(1.0, higher_is_better=False)
P99_AT_1000 = Goal(0.5, 1.0, higher_is_better=False)
CLIENT_CPU = Goal(0.5, higher_is_better=False)
BOOKIE_CPU = Goal(0.45, higher_is_better=False)
READS = Goal(1.0)
SINGLE_READ_P50 = Goal(1.5, higher_is_better=False)
APACHE_ON_OURS = Goal(1.3)
START = Goal(0.5, higher_is_better=False)
IDLE_MEMORY = Goal(0.3, higher_is_better=False)
LOADED_MEMORY_BYTES = 400_000_000
LOADED_MEMORY_ENTRIES = 10_000_000


def rate_goal(cell: Cell) -> Goal | None:
    """Of operations per second. v3 is held to 1.1 and 0.6, or to v2's figures of the cell where those are lower."""
    if cell.kind == "read":
        return READS
    known = _ADDS.get((cell.size, int(cell.shape)))
    if cell.version == 2:
        return Goal(known[0], known[2]) if known else None
    if known is None:
        return Goal(_V3_TARGET, _V3_FLOOR)
    return Goal(min(_V3_TARGET, known[0]), min(_V3_FLOOR, known[2]))


def tuned_goal(cell: Cell) -> Goal | None:
    """Of adds per second, against Apache's bookies with journalFlushWhenQueueEmpty."""
    known = _ADDS.get((cell.size, int(cell.shape))) if cell.kind == "write" and cell.version == 2 else None
    return Goal(known[1]) if known and known[1] is not None else None


def p99_goal(cell: Cell) -> Goal:
    """Of the 99th percentile of the latency."""
    return P99_AT_1000 if (cell.kind, cell.size, cell.shape, cell.version) == ("write", 128, "1000", 2) else P99
