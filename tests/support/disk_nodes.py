"""Files and directories of a disk in memory, each as programs see it (page cache) and as it is stored.

`freeze` gives an unchangeable picture of a node, shared by all that ask between two changes: taking one at every
operation costs about what the operation changed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

SECTOR_SIZE = 512
"""What a disk writes as a whole or not at all."""

EARLIER_MAX = 8
"""Unsynced states of a file that are remembered beside the newest."""

_serials = itertools.count(1)


@dataclass(frozen=True, slots=True, eq=False)
class FileImage:
    """A file at one moment.

    data: as read. durable: as stored. dirty: ranges of `data` that are not stored. earlier: what `data` was at other
    moments since the last sync; any sector may have been stored as it was then.
    """

    data: bytes
    durable: bytes
    dirty: tuple[tuple[int, int], ...]
    earlier: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DirectoryImage:
    """A directory at one moment; nodes by their serial. changes: of names, not stored yet, in their order."""

    names: dict[str, int]
    durable: dict[str, int]
    changes: tuple[tuple[str | None, str | None, int | None], ...]


@dataclass(eq=False)
class Inode:
    """A file's content; its names are in directories."""

    data: bytearray = field(default_factory=bytearray)  # as read
    durable: bytearray = field(default_factory=bytearray)  # as on the disk
    dirty: list[tuple[int, int]] = field(default_factory=list)  # ranges of data not on the disk, oldest first
    links: int = 0
    serial: int = field(default_factory=_serials.__next__)
    _image: FileImage | None = None
    _earlier: tuple[bytes, ...] = ()

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Put bytes where the file reaches already."""
        end = offset + len(data)
        self.data[offset:end] = data
        if end > offset:
            self._note_dirty(offset, end)

    def resize(self, size: int) -> None:
        """Cut, or grow with zeros."""
        change = size - len(self.data)
        if change < 0:
            self._note_dirty(size, len(self.data))
            del self.data[size:]
        else:
            self.data.extend(bytes(change))
        self._image = None

    def _note_dirty(self, start: int, end: int) -> None:
        self._image = None
        if self.dirty and self.dirty[-1][1] == start:
            start = self.dirty.pop()[0]
        self.dirty.append((start, end))

    def poke(self, offset: int, data: bytes) -> None:
        """Damage at rest: cache and disk."""
        for image in (self.data, self.durable):
            image[offset : offset + len(data)] = data
        self._image = None

    def forget_dirty(self) -> None:
        """A sync failed: the pages count as clean from now on, and no later one stores them (I-48)."""
        self.dirty.clear()
        self._image = None

    def store(self) -> None:
        """A sync succeeded."""
        data, durable = self.data, self.durable
        size = len(data)
        if len(durable) > size:
            del durable[size:]
        elif len(durable) < size:
            durable.extend(bytes(size - len(durable)))
        for start, end in self.dirty:
            durable[start : min(end, size)] = data[start:end]
        self.dirty.clear()
        self._image, self._earlier = None, ()

    def store_some(self, rng: random.Random) -> None:
        """Each unsynced sector reaches the disk or does not; so does the new size."""
        data, durable = self.data, self.durable
        if not self.dirty and len(data) == len(durable):
            return
        size = len(data) if rng.random() < 0.5 else len(durable)
        if len(durable) < size:
            durable.extend(bytes(size - len(durable)))
        else:
            del durable[size:]
        share = rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for start, end in self.dirty:
            end = min(end, size, len(data))
            for sector in range(start // SECTOR_SIZE * SECTOR_SIZE, end, SECTOR_SIZE):
                if rng.random() < share:
                    low, high = max(sector, start), min(sector + SECTOR_SIZE, end)
                    durable[low:high] = data[low:high]

    def lose_power(self, rng: random.Random | None) -> None:
        """The cache is gone; with a generator a part of what was not synced got to the disk."""
        if rng is not None:
            self.store_some(rng)
        self.data = bytearray(self.durable)
        self.dirty.clear()
        self._image, self._earlier = None, ()

    def freeze(self) -> FileImage:
        """The file as it is now."""
        if self._image is None:
            self._image = FileImage(bytes(self.data), bytes(self.durable), tuple(self.dirty), self._earlier)
            self._earlier = (*self._earlier[-EARLIER_MAX:], self._image.data)
        return self._image


@dataclass(frozen=True)
class NameChange:
    """One step in a directory: a name goes, a name comes, or both at once (rename)."""

    removed: str | None
    added: str | None
    node: Inode | Directory | None

    def apply(self, names: dict[str, Inode | Directory]) -> None:
        """Do it to a directory's names, as far as it still applies."""
        if self.removed is not None and (self.node is None or names.get(self.removed) is self.node):
            names.pop(self.removed, None)
        if self.added is not None and self.node is not None:
            names[self.added] = self.node


def in_some_order(changes: Sequence[NameChange], rng: random.Random) -> list[NameChange]:
    """Changes of names as a disk may take them: in any order, but those of one file in theirs."""
    shuffled = rng.sample(list(changes), len(changes))
    of_each: dict[Inode | Directory | None, list[NameChange]] = {}
    for change in reversed(changes):
        of_each.setdefault(change.node, []).append(change)
    return [of_each[change.node].pop() for change in shuffled]


@dataclass(eq=False)
class Directory:
    """Names as seen, as stored, and what happened between the two."""

    names: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)
    changes: list[NameChange] = field(default_factory=list)
    serial: int = field(default_factory=_serials.__next__)
    _image: DirectoryImage | None = None

    def change(self, change: NameChange) -> None:
        """A name comes or goes; stored at the next sync."""
        change.apply(self.names)
        self.changes.append(change)
        self._image = None

    def store(self) -> None:
        """A sync of the directory succeeded."""
        self.changes.clear()
        self.durable = dict(self.names)
        self._image = None

    def lose_power(self, rng: random.Random | None) -> None:
        """Only stored names are left; with a generator some changes got to the disk (`in_some_order`)."""
        if rng is not None and self.changes:
            for change in in_some_order([change for change in self.changes if rng.random() < 0.5], rng):
                change.apply(self.durable)
        self.changes.clear()
        self.names = dict(self.durable)
        self._image = None

    def reachable(self) -> list[Inode | Directory]:
        """Nodes that have a name here, had one that is still stored, or may have one after a power cut."""
        nodes: dict[int, Inode | Directory] = {}
        for names in (self.names, self.durable) if self.changes else (self.names,):
            nodes.update((node.serial, node) for node in names.values())
        nodes.update((change.node.serial, change.node) for change in self.changes if change.node is not None)
        return list(nodes.values())

    def freeze(self) -> DirectoryImage:
        """The directory as it is now."""
        if self._image is None:
            self._image = DirectoryImage(
                {name: node.serial for name, node in self.names.items()},
                {name: node.serial for name, node in self.durable.items()},
                tuple(
                    (change.removed, change.added, None if change.node is None else change.node.serial)
                    for change in self.changes
                ),
            )
        return self._image
