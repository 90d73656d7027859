"""Pure: what is measured of the journals, in which order, the goals, how long it takes and how much disk it needs.

    cell names    sync:<callers>   replay   failover

The sides of a cell are measured one after the other in a round, in an order that rotates, as in
tests/benchmarks/apache/plan.py; repetitions are outermost here, so that whatever changes with time meets every cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.benchmarks.apache.plan import chosen_from, rotated
from tests.benchmarks.apache.targets import Goal

CALLERS = (1, 16, 128)
RECORD_SIZE = 95
WARMING_S = 3.0
"""Of every process that measures `sync`, ours as well, before the measurement; a JVM needs it."""

SERVERS_WARMING_S = 10.0
"""Of bookies, and of JournalNodes, with WARMING_CALLERS, before the first measurement."""

WARMING_CALLERS = 128
REPLAYED = 200_000
"""Transactions of each journal that is replayed."""

KILLS = 5
"""Failovers in a round."""


@dataclass(frozen=True, slots=True)
class Side:
    """One journal. servers: which it needs ("ours", "quorum"), or None."""

    name: str
    servers: str | None

    @property
    def is_genuine(self) -> bool:
        """Of Hadoop."""
        return self in (QUORUM, FILES)


OURS = Side("ours", "ours")
OUR_FILES = Side("our-files", None)
QUORUM = Side("quorum", "quorum")
FILES = Side("hadoop-files", None)
SIDES = (OURS, OUR_FILES, QUORUM, FILES)


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload. callers: of "sync"; otherwise 0."""

    kind: str
    callers: int = 0

    @property
    def name(self) -> str:
        """As in CELLS."""
        return f"{self.kind}:{self.callers}" if self.callers else self.kind

    @property
    def sides(self) -> tuple[Side, ...]:
        """Who is measured."""
        return SIDES if self.kind == "sync" else (OURS,)


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
            for cell in self.cells:
                yield Round(cell, repetition, rotated(cell.sides, repetition))


DEFAULT_CELLS = (*(Cell("sync", callers) for callers in CALLERS), Cell("replay"), Cell("failover"))


def chosen_cells(patterns: str) -> tuple[Cell, ...]:
    """See chosen_from."""
    return chosen_from(DEFAULT_CELLS, patterns)


def needs_hadoop(rounds: Sequence[Round]) -> bool:
    """Something genuine is measured."""
    return any(side.is_genuine for each in rounds for side in each.sides)


def servers_of(rounds: Sequence[Round]) -> tuple[str, ...]:
    """That live through the run. A failover has a cluster of its own."""
    used = {side.servers for each in rounds if each.cell.kind != "failover" for side in each.sides}
    return tuple(name for name in ("ours", "quorum") if name in used)


# --- goals

SYNC_GOALS = {1: Goal(2.0), 16: Goal(1.2), 128: Goal(1.0)}
"""Operations/s, ours over those of the genuine quorum journal, by callers."""

OPAQUE_GOAL = Goal(200_000)
HDFS_GOAL = Goal(40_000)
"""Transactions/s of a replay; those of HDFS are applied to a namespace."""

FAILOVER_GOAL = Goal(0.4, higher_is_better=False)
"""Seconds from SIGKILL of the active to the first edit elsewhere, beyond the election's timeout."""


# --- how long and how much

PROCESS_S = {"sync": 2.5, "replay": 30.0, "failover": 20.0}
"""Around a measurement of `sync`; the whole of the others, but for the failovers themselves."""

FAILOVER_S = 8.0
SERVERS_S = 15.0
RECORDS_PER_S_MAX = 100_000
"""More than any of them has reached on two cores: for the disk space, which must suffice in any case."""

DISK_COPIES = 4
"""Three JournalNodes' files, or two bookies' journals and entry logs; and what is around the records."""


def measured_s(plan: Plan, rounds: Sequence[Round]) -> float:
    """Seconds in which records are written, warming up included, without replay and failover."""
    syncs = sum(len(each.sides) for each in rounds if each.cell.kind == "sync")
    servers = servers_of([each for each in rounds if each.cell.kind == "sync"])
    return syncs * (plan.seconds + WARMING_S) + len(servers) * SERVERS_WARMING_S


def seconds_of(plan: Plan, rounds: Sequence[Round]) -> float:
    """How long these rounds of the plan take if the machine is quiet."""
    around = sum(PROCESS_S[each.cell.kind] * len(each.sides) for each in rounds)
    failovers = sum(FAILOVER_S * KILLS for each in rounds if each.cell.kind == "failover")
    return measured_s(plan, rounds) + around + failovers + (SERVERS_S if servers_of(rounds) else 0.0)


def bytes_needed(plan: Plan, rounds: Sequence[Round]) -> int:
    """The most these rounds write; nothing but local files is removed before the end. And preallocated files."""
    replayed = sum(2 * REPLAYED * RECORD_SIZE * 2 for each in rounds if each.cell.kind == "replay")
    records = measured_s(plan, rounds) * RECORDS_PER_S_MAX
    return int((records * RECORD_SIZE + replayed) * DISK_COPIES) + (2 << 30)
