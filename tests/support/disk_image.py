"""A disk at one moment, and every disk that a power cut at that moment may leave behind.

    image = DiskImage.of(fs)             cheap; what did not change since the last image is shared with it
    image.units                          what was not synced: sectors, sizes of files, changes of names
    image.after_power_cut(survivors)     a new disk on which exactly these units survived
    image.after_kill()                   a new disk and cache, as a killed process leaves them: unsynced, but there

Units are independent of each other, as the disk's rules say (bookkeeper.filesystem), except that a sector behind the
old end of a file survives only with a size that reaches it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from tests.support.disk_nodes import SECTOR_SIZE, Directory, DirectoryImage, FileImage, Inode, NameChange, in_some_order
from tests.support.faulty_filesystem import FaultyFileSystem

EARLIER_SHARE = 0.3
"""How often a sector that survives by chance does so as it was at an earlier moment."""


@dataclass(frozen=True, slots=True, order=True)
class Sector:
    """512 bytes of a file that differ from what is stored."""

    serial: int
    offset: int


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """The end of a file that differs from the stored one."""

    serial: int


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """One change in a directory, by its place among the changes."""

    serial: int
    index: int


Unit = Sector | Size | Name


@dataclass(frozen=True, slots=True, eq=False)
class DiskImage:
    """Nodes by serial; `root` is the directory above all."""

    root: int
    files: dict[int, FileImage]
    directories: dict[int, DirectoryImage]
    nowait: bool

    @classmethod
    def of(cls, fs: FaultyFileSystem) -> DiskImage:
        """The disk and the cache as they are now."""
        files: dict[int, FileImage] = {}
        directories: dict[int, DirectoryImage] = {}
        waiting: list[Directory] = [fs.root]
        while waiting:
            directory = waiting.pop()
            if directory.serial in directories:
                continue
            directories[directory.serial] = directory.freeze()
            for node in directory.reachable():
                if isinstance(node, Directory):
                    waiting.append(node)
                elif node.serial not in files:
                    files[node.serial] = node.freeze()
        return cls(fs.root.serial, files, directories, fs.nowait)

    @property
    def units(self) -> list[Unit]:
        """Everything that survives or does not, in a fixed order: by age of file or directory, then by place."""
        found: list[Unit] = []
        for serial in sorted({*self.files, *self.directories}):
            if serial in self.files:
                found += _units_of(serial, self.files[serial])
            else:
                found += [Name(serial, index) for index in range(len(self.directories[serial].changes))]
        return found

    def after_power_cut(self, survivors: Iterable[Unit], rng: random.Random | None = None) -> FaultyFileSystem:
        """The machine starts again: only what was stored, and the survivors, are there.

        rng: surviving sectors may be older than the newest, surviving names come in any order.
        """
        chosen: dict[int, list[Unit]] = {}
        for unit in survivors:
            chosen.setdefault(unit.serial, []).append(unit)

        def file(serial: int, image: FileImage) -> Inode:
            stored = _survived(image, chosen.get(serial, ()), rng)
            return Inode(bytearray(stored), bytearray(stored))

        def directory(serial: int, image: DirectoryImage, nodes: dict[int, Inode | Directory]) -> Directory:
            names = {name: nodes[node] for name, node in image.durable.items()}
            units = chosen.get(serial, ())
            changes = [_change(image.changes[unit.index], nodes) for unit in units if isinstance(unit, Name)]
            for change in changes if rng is None else in_some_order(changes, rng):
                change.apply(names)
            return Directory(names, dict(names))

        return self._build(file, directory)

    def after_kill(self) -> FaultyFileSystem:
        """The process is dead; what it wrote is in the cache, and what it did not sync is still at risk."""

        def file(_: int, image: FileImage) -> Inode:
            return Inode(bytearray(image.data), bytearray(image.durable), list(image.dirty))

        def directory(_: int, image: DirectoryImage, nodes: dict[int, Inode | Directory]) -> Directory:
            return Directory(
                {name: nodes[node] for name, node in image.names.items()},
                {name: nodes[node] for name, node in image.durable.items()},
                [_change(change, nodes) for change in image.changes],
            )

        return self._build(file, directory)

    def _build(
        self,
        file: Callable[[int, FileImage], Inode],
        directory: Callable[[int, DirectoryImage, dict[int, Inode | Directory]], Directory],
    ) -> FaultyFileSystem:
        nodes: dict[int, Inode | Directory] = {serial: file(serial, image) for serial, image in self.files.items()}
        for serial in reversed(list(self.directories)):  # `of` meets a directory before those below it
            nodes[serial] = directory(serial, self.directories[serial], nodes)
        root = nodes[self.root]
        assert isinstance(root, Directory)
        fs = FaultyFileSystem()
        fs.nowait = self.nowait
        fs.root = root
        _count_links(root, fs)
        return fs


@lru_cache(maxsize=10_000)
def _units_of(serial: int, image: FileImage) -> tuple[Unit, ...]:
    """Asked again for the same image at every moment in which the file did not change."""
    found: list[Unit] = [Size(serial)] if len(image.data) != len(image.durable) else []
    offsets: set[int] = set()
    for start, end in image.dirty:
        offsets.update(range(start - start % SECTOR_SIZE, min(end, len(image.data)), SECTOR_SIZE))
    found += [
        Sector(serial, offset)
        for offset in sorted(offsets)
        if _sector(image.data, offset) != _sector(image.durable, offset)
    ]
    return tuple(found)


def _sector(data: bytes, offset: int) -> bytes:
    """A sector's bytes, zeros behind the end of the file."""
    return data[offset : offset + SECTOR_SIZE].ljust(SECTOR_SIZE, b"\0")


def _survived(image: FileImage, survivors: Iterable[Unit], rng: random.Random | None) -> bytes:
    """A file's bytes after the power cut."""
    if not image.dirty and len(image.data) == len(image.durable):
        return image.durable
    offsets = [unit.offset for unit in survivors if isinstance(unit, Sector)]
    if any(isinstance(unit, Size) for unit in survivors):
        size = len(image.data)
    else:
        size = max([len(image.durable), *(min(offset + SECTOR_SIZE, len(image.data)) for offset in offsets)])
    stored = bytearray(image.durable[:size].ljust(size, b"\0"))
    for offset in offsets:
        source = image.data
        if rng is not None and image.earlier and rng.random() < EARLIER_SHARE:
            source = rng.choice(image.earlier)
        part = source[offset : min(offset + SECTOR_SIZE, size)]
        stored[offset : offset + len(part)] = part
    return bytes(stored)


def _change(change: tuple[str | None, str | None, int | None], nodes: dict[int, Inode | Directory]) -> NameChange:
    removed, added, node = change
    return NameChange(removed, added, None if node is None else nodes[node])


def _count_links(root: Directory, fs: FaultyFileSystem) -> None:
    waiting = [root]
    while waiting:
        for node in waiting.pop().names.values():
            if isinstance(node, Directory):
                waiting.append(node)
            else:
                node.links += 1
                if node.links == 1:
                    fs.used_bytes += len(node.data)
