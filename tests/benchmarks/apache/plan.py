"""Pure: what is measured, in which order, how long it takes and how much disk it needs.

A *side* is a client on a cluster. A *cell* is one workload; all its sides are measured one after the other in a
*round*, in an order that rotates from repetition to repetition, so that a machine that gets slower is slow for all.

    cell names    write:<size>x<outstanding>:v<2|3>        read:<size>:<single|1x100|10x100|batch-1x100|...>:v<2|3>
                  start:bookie   start:client
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from tests.benchmarks.apache.records import AnyWorkload

Item = TypeVar("Item")

SIZES = (128, 1024, 10240)
OUTSTANDING = (1, 100, 1000, 5000)
READ_SHAPES = ("single", "1x100", "10x100", "batch-1x100", "batch-10x100")
READ_V3_SIZE = 1024
"""Reads over v3 are measured at this size only."""

REPLICATION = (3, 2, 2)
BATCH_REPLICATION = (2, 2, 2)
"""Batch reads need entries next to each other on one bookie: E = Qw."""

TUNED_OUTSTANDING_MAX = 100
"""Above it, journalFlushWhenQueueEmpty only makes Apache's bookies slower."""

CROSSED = ("write:128x100:v2", "write:128x1000:v2", "write:1024x1000:v2", "write:128x1000:v3", "read:1024:10x100:v2")
"""Cells that are measured with the crossed pairs as well."""

WARM_UP_S = 15.0
CROSSED_WARM_UP_S = 5.0
READ_WARM_UP_S = 10.0


@dataclass(frozen=True, slots=True)
class Side:
    """Whose client on whose bookies. "tuned": Apache's with journalFlushWhenQueueEmpty=true."""

    name: str
    client: str
    cluster: str

    @property
    def is_crossed(self) -> bool:
        """A client on the other kind's bookies."""
        return (self.client == "ours") != (self.cluster == "ours")


OURS = Side("ours", "ours", "ours")
APACHE = Side("apache", "apache", "apache")
TUNED = Side("tuned", "apache", "tuned")
OURS_ON_APACHE = Side("ours-on-apache", "ours", "apache")
APACHE_ON_OURS = Side("apache-on-ours", "apache", "ours")
SIDES = (OURS, APACHE, TUNED, OURS_ON_APACHE, APACHE_ON_OURS)


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload. shape: entries outstanding ("1000") of a write, of a read one of READ_SHAPES.

    kind: "write", "read" or "start"; of a start, `shape` is "bookie" or "client" and the rest says nothing.
    """

    kind: str
    size: int
    shape: str
    version: int

    @property
    def name(self) -> str:
        """As in CELLS."""
        if self.kind == "start":
            return f"start:{self.shape}"
        between = "x" if self.kind == "write" else ":"
        return f"{self.kind}:{self.size}{between}{self.shape}:v{self.version}"

    @property
    def is_batch(self) -> bool:
        """Read with batch reads."""
        return self.shape.startswith("batch-")

    @property
    def ranges(self) -> tuple[int, int]:
        """Of a read: ranges in flight, and entries of each."""
        if self.shape == "single":
            return 1, 1
        count, _, size = self.shape.removeprefix("batch-").partition("x")
        return int(count), int(size)

    @property
    def replication(self) -> tuple[int, int, int]:
        """E, Qw, Qa."""
        return BATCH_REPLICATION if self.is_batch else REPLICATION

    @property
    def sides(self) -> tuple[Side, ...]:
        """Who is measured."""
        sides = [OURS, APACHE]
        if self.kind == "write" and int(self.shape) <= TUNED_OUTSTANDING_MAX:
            sides.append(TUNED)
        if self.name in CROSSED:
            sides += [OURS_ON_APACHE, APACHE_ON_OURS]
        return tuple(sides)


@dataclass(frozen=True, slots=True)
class Round:
    """All sides of a cell, once, in this order."""

    cell: Cell
    repetition: int
    sides: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does. `rounds` is in order: sizes outermost, then repetitions, then cells."""

    cells: tuple[Cell, ...]
    repetitions: int
    seconds: float

    @property
    def sizes(self) -> tuple[int, ...]:
        """Entry sizes, in order; 0 stands for cells without one."""
        return tuple(dict.fromkeys(cell.size for cell in self.cells))

    @property
    def clusters(self) -> tuple[str, ...]:
        """Those that any cell needs, in a fixed order."""
        used = {side.cluster for cell in self.cells for side in cell.sides}
        return tuple(name for name in ("ours", "apache", "tuned") if name in used)

    def rounds(self, size: int) -> Iterator[Round]:
        """The rounds with entries of this size."""
        for repetition in range(self.repetitions):
            for number, cell in enumerate(cell for cell in self.cells if cell.size == size):
                yield Round(cell, repetition, rotated(cell.sides, repetition + number))

    def all_rounds(self) -> Iterator[Round]:
        """All, in order."""
        for size in self.sizes:
            yield from self.rounds(size)

    def warm_ups(self, size: int) -> list[WarmUp]:
        """What runs before the first measurement with entries of this size."""
        return warm_ups([cell for cell in self.cells if cell.size == size])


def rotated(sides: Sequence[Item], by: int) -> tuple[Item, ...]:
    """The same in an order that begins elsewhere; every other turn around, backwards."""
    turn, start = divmod(by, len(sides))
    order = (*sides[start:], *sides[:start])
    return order[::-1] if turn % 2 else order


def default_cells() -> tuple[Cell, ...]:
    """The whole table."""
    cells = [Cell("start", 0, "bookie", 0), Cell("start", 0, "client", 0)]
    for size in SIZES:
        cells += [Cell("write", size, str(count), version) for version in (2, 3) for count in OUTSTANDING]
        cells += [Cell("read", size, shape, 2) for shape in READ_SHAPES]
        if size == READ_V3_SIZE:
            cells += [Cell("read", size, shape, 3) for shape in READ_SHAPES if not shape.startswith("batch-")]
    return tuple(cells)


class NothingChosen(ValueError):
    """CELLS names what does not exist."""


def chosen_cells(patterns: str) -> tuple[Cell, ...]:
    """See chosen_from."""
    return chosen_from(default_cells(), patterns)


def chosen_from(cells: tuple[AnyWorkload, ...], patterns: str) -> tuple[AnyWorkload, ...]:
    """Those whose names match one of the comma-separated globs; all for "". Raises NothingChosen."""
    if not patterns.strip():
        return cells
    wanted: set[str] = set()
    for pattern in (each.strip() for each in patterns.split(",")):
        found = {cell.name for cell in cells if fnmatchcase(cell.name, pattern)}
        if not found:
            raise NothingChosen(
                f"no cell is named {pattern!r}; the cells: {', '.join(cell.name for cell in cells)} (globs are welcome)"
            )
        wanted |= found
    return tuple(cell for cell in cells if cell.name in wanted)


# --- warming up


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A side runs one workload whose figures are thrown away."""

    side: Side
    cell: Cell
    seconds: float


WARM_UP_OUTSTANDING = 1000


def warm_ups(cells: Sequence[Cell]) -> list[WarmUp]:
    """For each side 15 s of writes of the size, shared by the protocol versions it is measured with, and 10 s of reads.

    The same for ours as for Apache's, although only a JVM needs it. The crossed pairs get less: their client and
    their bookies are warm by then, only not to one another.
    """
    found: list[WarmUp] = []
    for side in SIDES:
        for kind, total_s in (("write", WARM_UP_S), ("read", READ_WARM_UP_S)):
            kinds: dict[tuple[int, bool], Cell] = {}
            for cell in cells:
                if cell.kind == kind and side in cell.sides:
                    shape = str(WARM_UP_OUTSTANDING) if kind == "write" else cell.shape
                    kinds[cell.version, cell.is_batch] = Cell(kind, cell.size, shape, cell.version)
            seconds = (CROSSED_WARM_UP_S if side.is_crossed else total_s) / max(1, len(kinds))
            found += [WarmUp(side, cell, seconds) for cell in kinds.values()]
    return found


# --- how long and how much

ADDS_PER_S_MAX = {128: 250_000, 1024: 130_000, 10240: 30_000}
"""More than either system has reached on two cores: for the disk space, which must suffice in any case."""

READ_ENTRIES = {128: 100_000, 1024: 100_000, 10240: 20_000}
"""Entries of the ledgers that are read."""

ENTRY_OVERHEAD = 100
"""Bytes around a payload in a journal or entry log, at most."""

START_S = {"bookie": 4.0, "client": 2.0}
AROUND_S = {128: 0.7, 1024: 1.0, 10240: 2.0}
"""Around a measurement: create, drain, close, delete, write back what is dirty."""
CLUSTERS_S = 10.0
"""Starting all clusters, once."""


def seconds_of(plan: Plan, rounds: Sequence[Round]) -> float:
    """How long these rounds of the plan take, warm-ups included, if the machine is quiet."""
    total = CLUSTERS_S
    for size in dict.fromkeys(each.cell.size for each in rounds):
        total += sum(warm_up.seconds for warm_up in plan.warm_ups(size))
    for each in rounds:
        if each.cell.kind == "start":
            total += START_S[each.cell.shape] * len(each.sides)
        else:
            total += (plan.seconds + AROUND_S[each.cell.size]) * len(each.sides)
    # Disk space is won back by new clusters, which are warmed up again.
    for size in dict.fromkeys(each.cell.size for each in rounds):
        again = sum(warm_up.seconds for warm_up in plan.warm_ups(size)) + CLUSTERS_S
        written = sum(expected_bytes(each, plan.seconds) for each in rounds if each.cell.size == size)
        total += again * written / STINT_BYTES
    return total


STINT_BYTES = 50 << 30
"""What is written before the directories are renewed, roughly."""

USUAL_SHARE = 0.4
"""Of the most a round can write, what it does write."""


DISK_COPIES = 1.5
"""Entry logs keep every entry, deleted or not, until the directories are renewed; journals go when they are full."""


def entry_bytes(size: int) -> float:
    """What an entry takes on the disk, on all its bookies together."""
    return (size + ENTRY_OVERHEAD) * REPLICATION[1] * DISK_COPIES


def bytes_max(each: Round, seconds: float) -> int:
    """The most a round can write."""
    if each.cell.kind != "write":
        return 0
    adds = ADDS_PER_S_MAX[each.cell.size] * seconds * 1.1
    return int(adds * entry_bytes(each.cell.size) * len(each.sides))


def expected_bytes(each: Round, seconds: float) -> float:
    """What a round writes usually; little with few outstanding."""
    few = each.cell.kind == "write" and int(each.cell.shape) < TUNED_OUTSTANDING_MAX
    return bytes_max(each, seconds) * USUAL_SHARE * (0.05 if few else 1.0)


def preparation_bytes(plan: Plan, size: int) -> int:
    """What preparing for entries of a size writes: ledgers that are read, warm-ups; and preallocated files."""
    if not size:
        return 1 << 30
    writing = sum(warm_up.seconds for warm_up in plan.warm_ups(size) if warm_up.cell.kind == "write")
    entries = ADDS_PER_S_MAX[size] * writing * USUAL_SHARE + READ_ENTRIES[size] * 2 * len(plan.clusters)
    return int(entries * entry_bytes(size)) + (1 << 30)


RESERVE_BYTES = 8 << 30
RESERVE_SHARE = 0.03
"""Of the disk: Apache's bookies become read-only on a disk that is 99 % full (our setting here; 95 % by default)."""


def reserve_bytes(total: int) -> int:
    """What must stay free on a disk of this size."""
    return max(RESERVE_BYTES, int(total * RESERVE_SHARE))


def bytes_to_start(plan: Plan, rounds: Sequence[Round]) -> int:
    """Free space without which the run would have to stop, above the reserve: directories are renewed as they fill."""
    return max((preparation_bytes(plan, each.cell.size) + bytes_max(each, plan.seconds) for each in rounds), default=0)
