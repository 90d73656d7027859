"""Crash points of a story, and the disks that a crash at each of them can leave behind.

A point is the moment just before an operation that changes the disk. With every choice of what survives of the unsynced
that is all there is: an operation that tore is the operation before with a part of it surviving (writes by sectors,
names one by one), and "after" is "before" the next one. Only a killed process can leave half a write in the cache.

Ids: story:op:file:number:choice, as in `checkpoints:rename:l1/lastMark.0.tmp:2:none`: before the second rename of that
file. Choices:

    none, all     nothing, everything unsynced survives
    +3, -3        only the fourth unsynced unit (sector, size, name) survives; all but it
    +f1, -f1      all units of the second file or directory with any; all others
    r0, r1, ...   a random subset, sectors as they were at any moment since the sync, names in any order
    kill, torn    no power cut: the process is killed before the operation, or halfway through the write
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.crashpoints.history import Event, History, PowerLost
from tests.crashpoints.life import Life
from tests.crashpoints.machine import Machine, Stored
from tests.crashpoints.story import Story
from tests.support.disk_image import DiskImage, Unit
from tests.support.disk_nodes import SECTOR_SIZE, FileImage
from tests.support.faulty_filesystem import CHANGING, FaultyFileSystem, Op

SINGLES_MAX = 12
"""Units, and files, that survive or are lost one by one; of more, as many evenly spread."""

RANDOM_SUBSETS = 4


@dataclass(frozen=True, slots=True)
class Point:
    """One moment of a story.

    name: operation, file and number, as in ids. moment: events of the history so far. stored: in the metadata store.
    torn: the disk and cache when half of the write has been done; None for other operations.
    """

    name: str
    image: DiskImage
    moment: int
    stored: Stored
    torn: DiskImage | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A machine after a crash. was_killed: the process died, and the cache did not."""

    id: str
    fs: FaultyFileSystem
    events: list[Event]
    stored: Stored
    was_killed: bool

    def machine(self, story: Story) -> Machine:
        """To start a bookie on."""
        return Machine(story.layout, self.fs, stored=self.stored, events=self.events)


def is_kill(choice: str) -> bool:
    """The choices without a power cut."""
    return choice in ("kill", "torn")


class Names:
    """Numbers the operations of each kind on each file."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def next(self, op: Op, path: str) -> str:
        """The name of an operation that is about to happen."""
        kind = f"{op.value}:{path.strip('/').replace('/current/', '/') or '.'}"
        self._counts[kind] += 1
        return f"{kind}:{self._counts[kind]}"


def points_of(story: Story) -> tuple[list[Point], list[Event]]:
    """Tell the story once; every point of it, the end included, and all its events."""
    points: list[Point] = []
    names = Names()

    def watch(op: Op, path: str) -> None:
        if op in CHANGING:
            machine = life.machine
            image = DiskImage.of(machine.fs)
            torn = half_written(machine.fs, image) if op is Op.WRITE else None
            points.append(Point(names.next(op, path), image, life.history.moment, machine.stored, torn))

    life = Life(story.name, story.layout, watch)
    story.tell(life)
    machine = life.machine
    points.append(Point("end:.:1", DiskImage.of(machine.fs), life.history.moment, machine.stored))
    return points, life.history.events


def half_written(fs: FaultyFileSystem, image: DiskImage) -> DiskImage | None:
    """The image with the first half of the write that was just begun, by sectors; None when it is within one."""
    assert fs.writing is not None
    inode, offset, data = fs.writing
    before = image.files.get(inode.serial)
    end = (offset + len(data) // 2) // SECTOR_SIZE * SECTOR_SIZE
    if before is None or end <= offset:
        return None
    half = bytes(data[: end - offset])
    content = before.data[:offset].ljust(offset, b"\0") + half + before.data[end:]
    after = FileImage(content, before.durable, (*before.dirty, (offset, end)), before.earlier)
    return replace(image, files={**image.files, inode.serial: after})


def choices_at(point: Point) -> list[str]:
    """Every choice tried at a point, most telling first."""
    units = point.image.units
    found = ["none", "kill"]
    if units:
        found.append("all")
    if len(units) > 1:
        spread = _spread(len(units))
        found += [f"+{index}" for index in spread] + [f"-{index}" for index in spread]
        owners = len({unit.serial for unit in units})
        if 1 < owners < len(units):
            found += [f"{sign}f{index}" for index in _spread(owners) for sign in "+-"]
        found += [f"r{index}" for index in range(RANDOM_SUBSETS)]
    if point.torn is not None:
        found.append("torn")
    return found


def _spread(count: int) -> list[int]:
    """Up to SINGLES_MAX of the numbers below `count`, evenly, the first and the last among them."""
    if count <= SINGLES_MAX:
        return list(range(count))
    return sorted({round(index * (count - 1) / (SINGLES_MAX - 1)) for index in range(SINGLES_MAX)})


def crashed(image: DiskImage, choice: str, seed: str, torn: DiskImage | None = None) -> FaultyFileSystem:
    """The disk after a crash. seed: decides what survives by chance."""
    if choice == "kill":
        return image.after_kill()
    if choice == "torn":
        assert torn is not None
        return torn.after_kill()
    units = image.units
    if choice == "none":
        return image.after_power_cut(())
    if choice == "all":
        return image.after_power_cut(units)
    if choice.startswith("r"):
        rng = random.Random(f"{seed}:{choice}")
        share = rng.choice((0.1, 0.5, 0.5, 0.9))
        return image.after_power_cut([unit for unit in units if rng.random() < share], rng)
    alone: set[Unit]
    if choice[1] == "f":
        serial = sorted({unit.serial for unit in units})[int(choice[2:])]
        alone = {unit for unit in units if unit.serial == serial}
    else:
        alone = {units[int(choice[1:])]}
    return image.after_power_cut([unit for unit in units if (unit in alone) is (choice[0] == "+")])


def state_at(story: Story, point: Point, events: list[Event], choice: str) -> State:
    """One state."""
    fs = crashed(point.image, choice, f"{story.name}:{point.name}", point.torn)
    known = History(events[: point.moment])
    if not is_kill(choice):
        known.note(PowerLost())
    return State(f"{story.name}:{point.name}:{choice}", fs, known.events, point.stored, is_kill(choice))


def states_at(story: Story, point: Point, events: list[Event]) -> Iterator[State]:
    """All states at a point that differ."""
    seen: set[int] = set()
    for choice in choices_at(point):
        state = state_at(story, point, events, choice)
        if not is_kill(choice):
            content = signature(state.fs)
            if content in seen:
                continue
            seen.add(content)
        yield state


def signature(fs: FaultyFileSystem) -> int:
    """Equal for disks with the same files, as stored."""
    return hash(frozenset((path, bytes(fs.contents(path))) for path in fs.paths()))
