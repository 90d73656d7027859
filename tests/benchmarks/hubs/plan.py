"""Pure: what is measured of hubs and their peers, in which order, the goals, how long it takes and how much disk.

    cell names    publish:<topics>x<outstanding>   deliver:<readers>x<outstanding>   paced:<messages/s>
                  drain:<topics>                   acquire

The sides of a cell are measured one after the other in a round, in an order that rotates, as in
tests/benchmarks/apache/plan.py. Repetitions are outermost, and each has new servers on empty directories.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tests.benchmarks.apache.plan import chosen_from, rotated
from tests.benchmarks.apache.targets import Goal
from tests.benchmarks.hubs.loads.load import BODY_SIZE, WARMING_SHARE, Load

DRAINED = 20_000
"""Messages of a backlog."""

DEFAULT_SECONDS = 3.0
"""Of a measurement that counts."""

PACE = 12_000
ACQUIRED_AT_ONCE = 100
PACED_OUTSTANDING = 5_000
"""No bound in practice: who cannot keep up shows it in the rate and in the latency."""

WARMING_S = 2.0
"""Of every client process, before what counts; a JVM needs it."""

SERVERS_WARMING_S = 6.0
"""Of new servers, with WARMING_OUTSTANDING on one topic, before the first measurement."""

WARMING_OUTSTANDING = 1000


@dataclass(frozen=True, slots=True)
class Side:
    """One system with its client."""

    name: str


OURS, GENUINE, REDIS, NATS, KAFKA = map(Side, ("ours", "genuine", "redis", "nats", "kafka"))
SIDES = (OURS, GENUINE, REDIS, NATS, KAFKA)


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload. readers: of a `deliver`. per_s: of a `paced`. sides: who is measured."""

    kind: str
    sides: tuple[Side, ...]
    topics: int = 1
    outstanding: int = 0
    readers: int = 0
    per_s: int = 0

    @property
    def name(self) -> str:
        """As in CELLS."""
        shape = {
            "publish": f":{self.topics}x{self.outstanding}",
            "deliver": f":{self.readers}x{self.outstanding}",
            "paced": f":{self.per_s}",
            "drain": f":{self.topics}",
            "acquire": "",
        }
        return self.kind + shape[self.kind]

    def load(self, seconds: float, tag: str) -> Load:
        """In the words of the client processes."""
        messages = DRAINED if self.kind == "drain" else 0
        return Load(
            self.kind, self.topics, self.outstanding, self.readers, self.per_s, messages, WARMING_S, seconds, tag
        )


@dataclass(frozen=True, slots=True)
class Round:
    """All sides of a cell, once, in this order."""

    cell: Cell
    repetition: int
    sides: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does."""

    cells: tuple[Cell, ...]
    repetitions: int
    seconds: float

    def rounds(self) -> Iterator[Round]:
        """All, in order."""
        for repetition in range(self.repetitions):
            for number, cell in enumerate(self.cells):
                yield Round(cell, repetition, rotated(cell.sides, repetition + number))


_FOUR = (OURS, GENUINE, REDIS, NATS)
"""Kafka is a ceiling on one hot topic; it flushes every partition by itself."""

_NOT_ALL_TOPICS = (OURS, REDIS)
"""The others would be making 10 000 topics for minutes in each repetition."""

_FAST_ENOUGH = (OURS, REDIS, KAFKA)
"""The others do not reach the pace."""

DEFAULT_CELLS = (
    *(Cell("publish", SIDES, 1, outstanding) for outstanding in (1, 100, 1000)),
    *(Cell("publish", _FOUR, 100, outstanding) for outstanding in (100, 1000)),
    *(Cell("deliver", SIDES, 1, outstanding, readers=1) for outstanding in (1, 100, 1000)),
    Cell("deliver", SIDES, 1, 1000, readers=10),
    Cell("paced", _FAST_ENOUGH, 1, PACED_OUTSTANDING, readers=1, per_s=PACE),
    Cell("drain", SIDES, 1, readers=1),
    Cell("drain", _FOUR, 100, readers=1),
    Cell("acquire", _FOUR, 0, ACQUIRED_AT_ONCE),
    # Last, because its topics stay until the repetition's servers end.
    Cell("publish", _NOT_ALL_TOPICS, 10_000, 1000),
)


def cells_of(missing: Collection[str]) -> tuple[Cell, ...]:
    """All cells, without the sides of these names, which cannot be had; without a side, no cell."""
    cells = (
        replace(cell, sides=tuple(side for side in cell.sides if side.name not in missing)) for cell in DEFAULT_CELLS
    )
    return tuple(cell for cell in cells if cell.sides)


def chosen_cells(patterns: str, missing: Collection[str] = ()) -> tuple[Cell, ...]:
    """See chosen_from."""
    return chosen_from(cells_of(missing), patterns)


def sides_of(rounds: Sequence[Round]) -> tuple[Side, ...]:
    """That any of these needs."""
    used = {side for each in rounds for side in each.sides}
    return tuple(side for side in SIDES if side in used)


def repetitions_of(rounds: Sequence[Round]) -> list[list[Round]]:
    """The rounds of each repetition, which share servers."""
    found: dict[int, list[Round]] = {}
    for each in rounds:
        found.setdefault(each.repetition, []).append(each)
    return list(found.values())


# --- goals: ours over a peer's, by cell

RATE_GOALS = {
    GENUINE: {
        "publish:1x100": Goal(3.0),
        "publish:1x1000": Goal(6.0),
        "publish:100x100": Goal(2.0),
        "publish:100x1000": Goal(2.0),
        "deliver:1x100": Goal(3.0),
        "drain:1": Goal(1.0),
        "drain:100": Goal(1.0),
        "acquire": Goal(3.0),
    },
    REDIS: {
        "publish:1x1": Goal(0.75),
        "publish:1x100": Goal(0.8),
        "publish:1x1000": Goal(1.0),
        "deliver:1x1000": Goal(0.9),
        "deliver:10x1000": Goal(1.0),
    },
    NATS: {
        "publish:1x1": Goal(1.5),
        "publish:1x100": Goal(4.0),
        "publish:1x1000": Goal(5.0),
        "deliver:1x1000": Goal(4.0),
        "deliver:10x1000": Goal(4.0),
    },
}
"""Of publishes, deliveries, topics per second. One at a time is held by its latency."""

P50_GOALS = {"deliver:1x1": Goal(1.0, higher_is_better=False)}
"""Of publish to delivery, ours over the genuine hub's."""

HUB_CPU_GOAL = Goal(0.5, higher_is_better=False)
"""us per message, ours over the genuine hub's, wherever messages are counted."""

LATENCY_GOALS = {
    "deliver:1x1": (Goal(1.0, higher_is_better=False), Goal(4.3, higher_is_better=False)),
    f"paced:{PACE}": (Goal(5.0, higher_is_better=False), Goal(20.0, higher_is_better=False)),
}
"""ms from publish to delivery, ours: p50 and p99."""

KEPT_SHARE = 0.98
"""Of the pace: below it the latencies of a `paced` are those of a queue that grows, and no goal is met."""

MANY_TOPICS_GOAL = Goal(0.8)
MANY_TOPICS, ONE_TOPIC = "publish:10000x1000", "publish:1x1000"
"""Publishes/s of ours in the one cell over those in the other, of the same repetition."""

ACQUIRED_GOAL = Goal(300)
"""Topics with a subscription per second, ours."""

HUB_MEMORY_GOAL = Goal(100, higher_is_better=False)
"""MB of the hub beyond the cache it is told to have, ours."""

HUB_START_GOAL = Goal(1.0, higher_is_better=False)
"""Seconds until a hub serves, ours."""


# --- how long and how much

AROUND_S = 1.6
"""Around a measurement: the client's start, its topics, writing back what is dirty."""

DRAIN_S = {OURS: 5.0, GENUINE: 8.0, REDIS: 4.0, NATS: 14.0, KAFKA: 6.0}
"""The whole of a drain, mostly the filling."""

MANY_TOPICS_S = 45.0
"""More than AROUND_S for the topics of MANY_TOPICS, on both sides together."""

SERVERS_S = {OURS: 5.0, GENUINE: 8.0, REDIS: 1.0, NATS: 3.0, KAFKA: 8.0}
MESSAGES_PER_S_MAX = {OURS: 60_000, GENUINE: 25_000, REDIS: 50_000, NATS: 12_000, KAFKA: 70_000}
"""More than any has reached on two cores: for the disk space, which must suffice in any case."""

DISK_COPIES = {OURS: 4, GENUINE: 4, REDIS: 2, NATS: 6, KAFKA: 2}
"""Of a message: two bookies' journals and entry logs; raft logs and streams."""

OVERHEAD = 100
"""Bytes around a message, at most."""


def seconds_of(plan: Plan, rounds: Sequence[Round]) -> float:
    """How long these rounds of the plan take if the machine is quiet."""
    total = 0.0
    for group in repetitions_of(rounds):
        total += sum(SERVERS_S[side] + SERVERS_WARMING_S for side in sides_of(group))
        for each in group:
            if each.cell.kind == "drain":
                total += sum(DRAIN_S[side] for side in each.sides)
            else:
                total += (WARMING_S + plan.seconds + AROUND_S) * len(each.sides)
            total += MANY_TOPICS_S if each.cell.name == MANY_TOPICS else 0.0
    return total


def bytes_needed(plan: Plan, rounds: Sequence[Round]) -> int:
    """The most that any repetition writes, which is removed behind it; and preallocated files."""
    most = 0.0
    for group in repetitions_of(rounds):
        written = 0.0
        for side in sides_of(group):
            message = (BODY_SIZE + OVERHEAD) * DISK_COPIES[side]
            measured = [each.cell for each in group if side in each.sides]
            loads = [cell for cell in measured if cell.kind in ("publish", "deliver", "paced")]
            seconds = SERVERS_WARMING_S + len(loads) * (WARMING_S + plan.seconds)
            drained = sum(cell.kind == "drain" for cell in measured) * DRAINED * (1 + WARMING_SHARE)
            written += (seconds * MESSAGES_PER_S_MAX[side] + drained) * message
        most = max(most, written)
    return int(most) + (4 << 30 if rounds else 0)
