"""A file system in memory that loses, tears, fails and fills up as disks do, and always the same way for one seed.

Each file has its bytes as a reader sees them (the page cache) and as they are on the disk; each directory its entries
as seen and as stored. `sync` and `sync_dir` bring the second in line with the first; `crash` makes the second the only
one. With a random generator `crash` also lets any subset of what was not synced survive: 512-byte sectors of file data,
the new size, changes of names, in any order (a rename stays one change).

Not thread-safe: the simulation has one thread.
"""

from __future__ import annotations

import copy
import enum
import errno as errno_codes
import os
import posixpath
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookkeeper.errors import DirectoryInUse
from bookkeeper.filesystem import DiskUsage, File, OpenMode
from tests.support.disk_nodes import SECTOR_SIZE, Directory, Inode, NameChange

DISK_SIZE = 1 << 40
"""What `usage` reports as the total where no quota is set."""


class Op(enum.Enum):
    """Kinds of operations that can be counted and made to fail."""

    OPEN = "open"
    CREATE = "create"
    READ = "read"
    WRITE = "write"
    SYNC = "sync"
    SYNC_DIR = "sync_dir"
    TRUNCATE = "truncate"
    RENAME = "rename"
    LINK = "link"
    UNLINK = "unlink"
    MAKE_DIR = "make_dir"
    LIST = "list"
    CLOSE = "close"


CHANGING = frozenset(
    {Op.CREATE, Op.WRITE, Op.SYNC, Op.SYNC_DIR, Op.TRUNCATE, Op.RENAME, Op.LINK, Op.UNLINK, Op.MAKE_DIR}
)
"""Operations at which a power cut can make a difference."""


class PowerCut(BaseException):
    """The machine lost power at this operation. Not an Exception: no error handling of the code under test sees it."""


@dataclass
class _PlannedFailure:
    op: Op
    countdown: int
    errno: int
    path: str | None
    drop_dirty: bool


class FaultyFile:
    """An open file of a FaultyFileSystem."""

    def __init__(self, fs: FaultyFileSystem, path: str, inode: Inode, *, writable: bool) -> None:
        self._fs = fs
        self._inode = inode
        self._boot = fs.boots
        self._writable = writable
        self._closed = False
        self.path = path

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def _check(self, op: Op) -> None:
        if self._closed:
            raise OSError(errno_codes.EBADF, "the file is closed", self.path)
        if self._boot != self._fs.boots:
            raise OSError(errno_codes.EBADF, "the file was opened before the crash", self.path)
        self._fs.enter(op, self.path)

    def pread(self, size: int, offset: int) -> bytes:
        """See File."""
        self._check(Op.READ)
        return bytes(self._inode.data[offset : offset + size])

    def pread_nowait(self, size: int, offset: int) -> bytes | None:
        """See File. None for everything while the file system's `nowait` is False."""
        if not self._fs.nowait:
            return None
        data = self.pread(size, offset)
        return data if len(data) == size else None

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """See File. Beyond the quota a part is written, then ENOSPC; a failure planned by `fail_nth` writes half."""
        self._check_writable()
        self._fs.writing = (self._inode, offset, data)
        try:
            self._check(Op.WRITE)
        except OSError as error:
            if error.errno != errno_codes.EBADF:
                half = offset + len(data) // 2
                end = half if self._fs.tears_sectors else half // SECTOR_SIZE * SECTOR_SIZE
                self._write(memoryview(data)[: max(0, end - offset)], offset)
            raise
        self._write(data, offset)

    def _check_writable(self) -> None:
        if not self._writable:
            raise OSError(errno_codes.EBADF, "the file is open for reading only", self.path)

    def _write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        inode, fs = self._inode, self._fs
        size = len(data)
        end = offset + size
        growth = end - len(inode.data)
        if growth > 0:
            room = fs.room_for(growth, self.path)
            if room < growth:
                fits = max(0, size - (growth - room))
                if fits:
                    self._write(memoryview(data)[:fits], offset)
                raise OSError(errno_codes.ENOSPC, os.strerror(errno_codes.ENOSPC), self.path)
            fs.used_bytes += growth
            inode.resize(end)
        inode.write(offset, data)

    def sync(self) -> None:
        """See File."""
        try:
            self._check(Op.SYNC)
        except OSError:
            if self._fs.last_failure_drops:
                # The kernel marks the pages clean: readers still see them, no later sync stores them.
                self._inode.forget_dirty()
            raise
        self._inode.store()

    def size(self) -> int:
        """See File."""
        if self._closed or self._boot != self._fs.boots:
            self._check(Op.READ)
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        """See File."""
        self._check_writable()
        self._check(Op.TRUNCATE)
        inode = self._inode
        change = size - len(inode.data)
        if change > 0:
            self._fs.take_space(change, self.path)
        else:
            self._fs.used_bytes += change
        inode.resize(size)

    def start_writeback(self, offset: int, size: int) -> None:
        """Makes nothing durable."""

    def preallocate(self, offset: int, size: int) -> None:
        """See File."""
        self.pwrite(bytes(size), offset)

    def close(self) -> None:
        """See File."""
        if not self._closed:
            self._closed = True
            if self._boot == self._fs.boots:
                self._fs.enter(Op.CLOSE, self.path)


class FaultyLock:
    """A lock held in a FaultyFileSystem."""

    def __init__(self, locks: dict[str, list[FaultyLock]], path: str, *, shared: bool) -> None:
        self._locks = locks
        self._path = path
        self.shared = shared

    def release(self) -> None:
        """See Lock."""
        held = self._locks.get(self._path, [])
        if self in held:
            held.remove(self)


class FaultyFileSystem:
    """See the module. `/` exists; everything else is made with `make_dirs`.

    quota_bytes: writes beyond it fail with ENOSPC; None is no bound. May be changed at any time.
    free_below: share of its size, 0..1, that the disk of a directory has free, where `usage` is to say less than the
    quota leaves; with 0 no file below it grows any more.
    nowait: False makes pread_nowait answer None, as for data outside the page cache.
    """

    def __init__(self, quota_bytes: int | None = None) -> None:
        self.quota_bytes = quota_bytes
        self.used_bytes = 0
        self.free_below: dict[str, float] = {}
        self.nowait = True
        self.counts: Counter[Op] = Counter()
        self.boots = 0
        self.last_failure_drops = False
        self.tears_sectors = True
        """A write that fails leaves half of its bytes; False: whole sectors, up to about half."""
        self.root = Directory()
        self._failures: list[_PlannedFailure] = []
        self._locks: dict[str, list[FaultyLock]] = {}
        self._cut_countdown: int | None = None
        self.on_operation: Callable[[Op, str], None] | None = None
        """Called before each operation; for tests that look at the state between any two of them. May raise OSError."""
        self.writing: tuple[Inode, int, bytes | bytearray | memoryview] | None = None
        """File, offset and bytes of the write that was begun last."""

    # --- faults

    def fail_nth(self, op: Op, n: int, errno: int, *, path: str | None = None, drop_dirty: bool = False) -> None:
        """Make the n-th operation of this kind from now (1 = the next) fail once with `errno`.

        path: count only operations whose path contains this. drop_dirty: a failed sync forgets the unsynced bytes, and
        the next one succeeds without them (I-48).
        """
        self._failures.append(_PlannedFailure(op, n, errno, path, drop_dirty))

    def cut_power_at(self, n: int) -> None:
        """Make the n-th changing operation from now (1 = the next) and all after it raise PowerCut, until `crash`."""
        self._cut_countdown = n

    @property
    def power_is_cut(self) -> bool:
        """True from the operation at which the power went until `crash`."""
        return self._cut_countdown is not None and self._cut_countdown <= 0

    def forget_faults(self) -> None:
        """Take back the failures and the power cut that were planned and have not happened."""
        if not self.power_is_cut:
            self._cut_countdown = None
        self._failures.clear()

    def enter(self, op: Op, path: str) -> None:
        """Count an operation, and fail where that was planned."""
        if self._cut_countdown is not None and (op in CHANGING or self._cut_countdown <= 0):
            self._cut_countdown -= 1
            if self._cut_countdown <= 0:
                raise PowerCut(f"{op.value} {path}")
        self.counts[op] += 1
        if self.on_operation is not None:
            self.on_operation(op, path)
        if self._failures:
            self._fail_if_planned(op, path)

    def _fail_if_planned(self, op: Op, path: str) -> None:
        for failure in self._failures:
            if failure.op is op and (failure.path is None or failure.path in path):
                failure.countdown -= 1
                if failure.countdown == 0:
                    self._failures.remove(failure)
                    self.last_failure_drops = failure.drop_dirty
                    raise OSError(failure.errno, os.strerror(failure.errno), path)

    def crash(self, rng: random.Random | None = None) -> None:
        """Cut the power and start the machine again: handles die, locks are free, planned failures are forgotten."""
        self.boots += 1
        self._cut_countdown = None
        self._failures.clear()
        self._locks.clear()
        self.used_bytes = 0
        self._crash_directory(self.root, rng, set())

    def end_processes(self) -> None:
        """Every process is killed: handles die, locks are free. What was written stays in the cache."""
        self.boots += 1
        self._locks.clear()

    def _crash_directory(self, directory: Directory, rng: random.Random | None, seen: set[int]) -> None:
        directory.lose_power(rng)
        for name in sorted(directory.names):
            node = directory.names[name]
            if isinstance(node, Directory):
                self._crash_directory(node, rng, seen)
                continue
            if id(node) in seen:
                node.links += 1
                continue
            seen.add(id(node))
            node.lose_power(rng)
            node.links = 1
            self.used_bytes += len(node.data)

    def clone(self) -> FaultyFileSystem:
        """An independent copy of the disk and the cache; without planned failures, hooks and locks."""
        twin = FaultyFileSystem(self.quota_bytes)
        twin.used_bytes = self.used_bytes
        twin.nowait = self.nowait
        twin.root = copy.deepcopy(self.root)
        return twin

    # --- for tests that look underneath

    def paths(self) -> list[str]:
        """Every file, as a reader sees it, by name."""
        found: list[str] = []
        waiting: list[tuple[str, Directory]] = [("", self.root)]
        while waiting:
            base, directory = waiting.pop()
            for name, node in directory.names.items():
                if isinstance(node, Directory):
                    waiting.append((f"{base}/{name}", node))
                else:
                    found.append(f"{base}/{name}")
        return sorted(found)

    def contents(self, path: str) -> bytes:
        """A file's bytes as a reader sees them."""
        return bytes(self._inode(path).data)

    def durable_contents(self, path: str) -> bytes:
        """A file's bytes as they are on the disk, whether its name is durable or not."""
        return bytes(self._inode(path).durable)

    def poke(self, path: str, offset: int, data: bytes) -> None:
        """Damage a file at rest: overwrite bytes on the disk and in the cache."""
        self._inode(path).poke(offset, data)

    # --- FileSystem

    def open(self, path: str, mode: OpenMode) -> FaultyFile:
        """See FileSystem."""
        if mode is OpenMode.CREATE_EXCLUSIVE:
            self.enter(Op.CREATE, path)
            directory, name = self._parent(path)
            if name in directory.names:
                raise _error(errno_codes.EEXIST, path)
            inode = Inode(links=1)
            directory.change(NameChange(None, name, inode))
            return FaultyFile(self, path, inode, writable=True)
        self.enter(Op.OPEN, path)
        return FaultyFile(self, path, self._inode(path), writable=mode is OpenMode.UPDATE)

    def listdir(self, path: str) -> list[str]:
        """See FileSystem."""
        self.enter(Op.LIST, path)
        return sorted(self._directory(path).names)

    def exists(self, path: str) -> bool:
        """See FileSystem."""
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        """See FileSystem."""
        return isinstance(self._find(path), Directory)

    def is_wider(self, path: str) -> bool:
        """See FileSystem. Always False: directories have no modes here."""
        return False

    def make_dirs(self, path: str) -> None:
        """See FileSystem."""
        missing = self._missing_dirs(path)
        self.sync_dir(posixpath.dirname(missing[0][0] if missing else path))
        for parent, child in missing:
            self._make_dir(child)
            self.sync_dir(parent)

    def _missing_dirs(self, path: str) -> list[tuple[str, str]]:
        """Parent and child, from the top down."""
        missing = []
        while not self.is_dir(path):
            parent = posixpath.dirname(path)
            missing.append((parent, path))
            path = parent
        return missing[::-1]

    def _make_dir(self, path: str) -> None:
        self.enter(Op.MAKE_DIR, path)
        parent, name = self._parent(path)
        if name in parent.names:
            raise _error(errno_codes.ENOTDIR, path)
        parent.change(NameChange(None, name, Directory()))

    def unlink(self, path: str) -> None:
        """See FileSystem."""
        self.enter(Op.UNLINK, path)
        inode = self._inode(path)
        directory, name = self._parent(path)
        directory.change(NameChange(name, None, None))
        self._drop_link(inode)

    def rename(self, source: str, target: str) -> None:
        """See FileSystem. Files only."""
        self.enter(Op.RENAME, source)
        inode = self._inode(source)
        source_dir, source_name = self._parent(source)
        target_dir, target_name = self._parent(target)
        replaced = target_dir.names.get(target_name)
        if replaced is inode:
            return
        if isinstance(replaced, Directory):
            raise _error(errno_codes.EISDIR, target)
        if source_dir is target_dir:
            source_dir.change(NameChange(source_name, target_name, inode))
        else:
            target_dir.change(NameChange(None, target_name, inode))
            source_dir.change(NameChange(source_name, None, None))
        if replaced is not None:
            self._drop_link(replaced)

    def link(self, source: str, target: str) -> None:
        """See FileSystem."""
        self.enter(Op.LINK, target)
        inode = self._inode(source)
        directory, name = self._parent(target)
        if name in directory.names:
            raise _error(errno_codes.EEXIST, target)
        inode.links += 1
        directory.change(NameChange(None, name, inode))

    def sync_dir(self, path: str) -> None:
        """See FileSystem."""
        self.enter(Op.SYNC_DIR, path)
        self._directory(path).store()

    def usage(self, path: str) -> DiskUsage:
        """See FileSystem."""
        self._directory(path)
        total = DISK_SIZE if self.quota_bytes is None else self.quota_bytes
        free = max(0, total - self.used_bytes)
        for directory, free_share in self.free_below.items():
            if _is_below(path, directory):
                free = min(free, round(total * free_share))
        return DiskUsage(total=total, free=free)

    def lock(self, path: str) -> FaultyLock:
        """See FileSystem."""
        return self._lock(path, shared=False)

    def lock_shared(self, path: str) -> FaultyLock | None:
        """See FileSystem. Whether there is a lock file is not told apart: `lock` makes none here."""
        return self._lock(path, shared=True)

    def _lock(self, path: str, *, shared: bool) -> FaultyLock:
        held = self._locks.setdefault(path, [])
        if any(not (shared and lock.shared) for lock in held):
            raise DirectoryInUse(f"{path} is locked by another process")
        held.append(FaultyLock(self._locks, path, shared=shared))
        return held[-1]

    def sync_many(self, files: Sequence[File]) -> None:
        """See FileSystem."""
        for file in files:
            file.sync()

    def sync_dirs(self, paths: Sequence[str]) -> None:
        """See FileSystem."""
        for path in paths:
            self.sync_dir(path)

    def make_dirs_many(self, paths: Sequence[str]) -> None:
        """See FileSystem."""
        parents: dict[str, None] = {}
        for path in paths:
            for parent, child in self._missing_dirs(path):
                self._make_dir(child)
                parents[parent] = None
        self.sync_dirs(list(parents))

    # --- inside

    def room_for(self, size: int, path: str) -> int:
        """How many of so many bytes a file can still grow by."""
        if any(free_share <= 0 and _is_below(path, directory) for directory, free_share in self.free_below.items()):
            return 0
        return size if self.quota_bytes is None else max(0, min(size, self.quota_bytes - self.used_bytes))

    def take_space(self, size: int, path: str) -> None:
        """Count bytes as used, or fail with ENOSPC."""
        if size > 0 and self.room_for(size, path) < size:
            raise _error(errno_codes.ENOSPC, path)
        self.used_bytes += size

    def _drop_link(self, inode: Inode) -> None:
        inode.links -= 1
        if inode.links == 0:
            self.used_bytes -= len(inode.data)

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self.root
        for name in _split(path):
            if not isinstance(node, Directory):
                return None
            node = node.names.get(name)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._find(path)
        if node is None:
            raise _error(errno_codes.ENOENT, path)
        if isinstance(node, Directory):
            raise _error(errno_codes.EISDIR, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise _error(errno_codes.ENOENT, path)
        if not isinstance(node, Directory):
            raise _error(errno_codes.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        head, name = posixpath.split(path)
        return self._directory(head), name


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
