"""The disk seam: `FileSystem` and the real one.

Everything a bookie stores goes through `FileSystem`, so that a test can put a disk underneath that forgets unsynced
bytes and names, tears writes, fails or fills up. What is assumed of a disk, and nothing more:

- written bytes survive a power cut once `File.sync` returned; before that, any subset of their 512-byte sectors may;
- a new, renamed or removed name survives once `sync_dir` of its directory returned; before that it may or may not;
- `rename` within a directory is atomic: after a crash the target is the old file or the new one;
- after a failed `sync` nothing is known of the bytes it covered, and a later successful one proves nothing (I-48).

Paths are `str`. All calls block; errors are OSError unless a docstring says otherwise. Multi-step changes of names go
through `create_durable`, `replace_durable` and `remove_durable` (I-49).

Files and directories are created with access only for the user of the process (0600, 0700), since they contain data,
keys and passwords. `RealFileSystem(private=False)` leaves the modes to the umask, as Java's programs do. Existing files
keep their modes: `wider_directories` finds directories with files that other users can reach.

Thread: any; one `File` may be read by several threads at once, and is written by one.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import fcntl
import itertools
import os
import platform
import re
import resource
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from bookkeeper.errors import CorruptRecord, DirectoryInUse

SYNC_EACH_MAX = 64
"""Up to this many files `sync_many` syncs one by one; beyond it one syncfs per file system is cheaper."""

ZEROS_SIZE = 1024 * 1024
_ZEROS = bytes(ZEROS_SIZE)

# os.RWF_NOWAIT is missing from interpreters built on an old C library whose kernel knows the flag all the same.
_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 8)


class OpenMode(enum.Enum):
    """What a file is opened for."""

    READ = "read"
    CREATE_EXCLUSIVE = "create"
    """A new file, for reading and writing; FileExistsError when the name is taken."""
    UPDATE = "update"
    """An existing file, for reading and writing."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Size of a file system and what an ordinary user may still write, in bytes.

    reserved: free too, but for root alone; counted as used here, as in Java, and as neither by `df`.
    """

    total: int
    free: int
    reserved: int = 0

    @property
    def used_fraction(self) -> float:
        """0.0 empty to 1.0 full."""
        return 1.0 - self.free / self.total if self.total else 1.0

    @property
    def written(self) -> int:
        """Bytes that something is in."""
        return self.total - self.free - self.reserved


class File(Protocol):
    """An open file. There is no position: every read and write names its offset."""

    @property
    def path(self) -> str:
        """The name it was opened under."""

    @property
    def closed(self) -> bool:
        """True after `close`."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the end of the file."""

    def pread_nowait(self, size: int, offset: int) -> bytes | None:
        """Exactly `size` bytes if that needs no disk access, else None (also where the system cannot tell)."""

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data`, or raise; then any part of it may have been written. Not durable before `sync`."""

    def sync(self) -> None:
        """Make everything written so far durable. An error is final for the file's owner (I-48)."""

    def start_writeback(self, offset: int, size: int) -> None:
        """Let the disk begin with what was written there. Promises nothing, reports nothing: a later `sync` does both.

        Without it bytes gather in the page cache, and the sync of hundreds of MiB at once holds up every other sync on
        the same disk.
        """

    def size(self) -> int:
        """Bytes up to the end of the file."""

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros, to `size`. Not durable before `sync`."""

    def preallocate(self, offset: int, size: int) -> None:
        """Write `size` zero bytes at `offset`, so that later syncs of that range change no metadata.

        Not durable before `sync`.
        """

    def close(self) -> None:
        """Release the handle; syncs nothing. A second call does nothing."""


class Lock(Protocol):
    """A held lock on a path; the kernel drops it when the process dies."""

    def release(self) -> None:
        """Give it up."""


class FileSystem(Protocol):
    """Files and directories; see the module's list of what is durable when."""

    def open(self, path: str, mode: OpenMode) -> File:
        """Open a file; FileNotFoundError or FileExistsError as the mode asks."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def exists(self, path: str) -> bool:
        """True for a file or a directory."""

    def is_dir(self, path: str) -> bool:
        """True for a directory."""

    def is_wider(self, path: str) -> bool:
        """Whether the mode of a directory gives other users more rights than the mode of a new directory."""

    def make_dirs(self, path: str) -> None:
        """Create a directory and what is missing above it, durably.

        One that exists is made durable, too: whoever created it may have been killed before it synced the name.
        """

    def unlink(self, path: str) -> None:
        """Remove a file's name. Not durable before `sync_dir`."""

    def rename(self, source: str, target: str) -> None:
        """Move a file, atomically replacing `target`. Not durable before `sync_dir`."""

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; FileExistsError when it is taken. Not durable before `sync_dir`."""

    def sync_dir(self, path: str) -> None:
        """Make all changes of names in a directory durable."""

    def usage(self, path: str) -> DiskUsage:
        """Space of the file system that holds `path`."""

    def lock(self, path: str) -> Lock:
        """Take an exclusive lock on a lock file, creating it. Raises DirectoryInUse when another process holds it."""

    def lock_shared(self, path: str) -> Lock | None:
        """Keep everybody from `lock` for as long as it is held; several may. None where there is no such lock file.

        Changes nothing, and needs only the right to read. Raises DirectoryInUse when somebody holds the lock.
        """

    def sync_many(self, files: Sequence[File]) -> None:
        """Sync all of these files; like calling `sync` on each, but cheaper for very many."""

    def sync_dirs(self, paths: Sequence[str]) -> None:
        """Make all changes of names in these directories durable; like `sync_dir` on each, but cheaper for many."""

    def make_dirs_many(self, paths: Sequence[str]) -> None:
        """Create all of these directories, durably; cheaper than `make_dirs` on each for very many.

        Of those that exist the names are not synced again.
        """


_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_no_space(error: OSError) -> bool:
    """True for a full disk or quota: nothing is broken, but nothing more fits either."""
    return error.errno in _NO_SPACE


# --- steps that must not be taken apart (I-49) ------------------------------------------------------------------------


def create_durable(fs: FileSystem, path: str, data: bytes) -> None:
    """Create a file with this content; on return content and name are durable.

    Raises FileExistsError when the name is taken.
    """
    _write_new(fs, path, data)
    fs.sync_dir(os.path.dirname(path))


def replace_durable(fs: FileSystem, path: str, data: bytes) -> None:
    """Give `path` this content; a reader, also after a power cut, sees the old or the new content, nothing else.

    Uses `path` + ".tmp"; one left over by a crash is replaced.
    """
    temporary = path + ".tmp"
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(temporary)
    _write_new(fs, temporary, data)
    fs.rename(temporary, path)
    fs.sync_dir(os.path.dirname(path))


def remove_durable(fs: FileSystem, path: str) -> None:
    """Remove a file; on return it cannot come back."""
    fs.unlink(path)
    fs.sync_dir(os.path.dirname(path))


def read_whole(fs: FileSystem, path: str, *, size_max: int) -> bytes:
    """The content of a small file. FileNotFoundError when there is none, CorruptRecord when it exceeds `size_max`."""
    file = fs.open(path, OpenMode.READ)
    try:
        data = file.pread(size_max + 1, 0)
    finally:
        file.close()
    if len(data) > size_max:
        raise CorruptRecord(path, size_max, f"it is longer than the {size_max} bytes such a file can have")
    return data


def wider_directories(fs: FileSystem, paths: Iterable[str]) -> list[str]:
    """Return the directories with files that other users can reach: the directory and its `current` both allow it."""
    found = []
    for path in paths:
        inner = os.path.join(path, "current")
        if fs.is_dir(inner) and fs.is_wider(inner) and fs.is_wider(path):
            found.append(path)
    return found


def _write_new(fs: FileSystem, path: str, data: bytes) -> None:
    file = fs.open(path, OpenMode.CREATE_EXCLUSIVE)
    try:
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()


def mount_of(path: str) -> str | None:
    """Return "DEVICE at MOUNT-POINT" of a path, or None if the system does not show it. No disk is accessed."""
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    path, found = os.path.abspath(path), ("", "")
    for line in table.splitlines():
        left, _, right = line.partition(" - ")
        mount, source = (_unescaped(word) for word in (left.split(" ")[4], right.split(" ")[1]))
        if len(mount) >= len(found[0]) and (path + "/").startswith(mount.rstrip("/") + "/"):
            found = mount, source  # the later one of two mounts at the same point wins
    mount, source = found
    return f"{source} at {mount}" if mount else None


def _unescaped(word: str) -> str:
    r"""Return a word of mountinfo with its octal escapes (\040 is a space) replaced."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word)


def _naming(error: OSError, path: str) -> OSError:
    """Return the error with the name of its file: calls on descriptors do not set one."""
    if error.filename is None:
        error.filename = path
    return error


# --- the real one -----------------------------------------------------------------------------------------------------


class RealFile:
    """An open file of the operating system."""

    __slots__ = ("_fd", "_metadata_changed", "path", "serial")

    def __init__(self, path: str, fd: int, serial: int) -> None:
        self.path = path
        self._fd = fd
        self._metadata_changed = False
        self.serial = serial
        """Order of opening among the files of one RealFileSystem."""

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._fd < 0

    def fileno(self) -> int:
        """The descriptor. OSError after `close`: its number may mean another file by then, and is never used again."""
        if self._fd < 0:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._fd

    def pread(self, size: int, offset: int) -> bytes:
        """See File."""
        try:
            data = os.pread(self.fileno(), size, offset)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size:
                data = os.pread(self.fileno(), size - got, offset + got)
                if not data:
                    break
                parts.append(data)
                got += len(data)
        except OSError as error:
            raise _naming(error, self.path) from None
        return b"".join(parts)

    def pread_nowait(self, size: int, offset: int) -> bytes | None:
        """See File. Linux with preadv2; None elsewhere."""
        if not _nowait_works:
            return None
        buffer = bytearray(size)
        try:
            got = os.preadv(self.fileno(), [buffer], offset, _RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                return None
            raise _naming(error, self.path) from None
        # A short read may be the end of the file or the end of what is cached; the caller's slow path tells them apart.
        return bytes(buffer) if got == size else None

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """See File."""
        fd = self.fileno()
        size = len(data)
        try:
            written = os.pwrite(fd, data, offset)
            if written == size:
                return
            rest = memoryview(data)
            while written < size:
                # A nearly full disk may write only a part; the next call then raises the reason.
                step = os.pwrite(fd, rest[written:], offset + written)
                if step == 0:
                    raise OSError(errno.EIO, "the disk wrote no bytes", self.path)
                written += step
        except OSError as error:
            raise _naming(error, self.path) from None

    def sync(self) -> None:
        """See File. fdatasync; a full fsync after `truncate`, whose new size fdatasync need not store."""
        try:
            if self._metadata_changed:
                os.fsync(self.fileno())
                self._metadata_changed = False
            else:
                _fdatasync(self.fileno())
        except OSError as error:
            raise _naming(error, self.path) from None

    def start_writeback(self, offset: int, size: int) -> None:
        """See File. sync_file_range on Linux; elsewhere the system writes when it likes."""
        if _sync_file_range is not None:
            _sync_file_range(self.fileno(), offset, size, _SYNC_FILE_RANGE_WRITE)

    def size(self) -> int:
        """See File."""
        try:
            return os.fstat(self.fileno()).st_size
        except OSError as error:
            raise _naming(error, self.path) from None

    def truncate(self, size: int) -> None:
        """See File."""
        try:
            os.ftruncate(self.fileno(), size)
        except OSError as error:
            raise _naming(error, self.path) from None
        self._metadata_changed = True

    def preallocate(self, offset: int, size: int) -> None:
        """See File. Real zeros: blocks that are only reserved would change metadata at their first write."""
        end = offset + size
        while offset < end:
            step = min(ZEROS_SIZE, end - offset)
            self.pwrite(_ZEROS if step == ZEROS_SIZE else bytes(step), offset)
            offset += step

    def close(self) -> None:
        """See File."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


# struct flock: type, whence, start, length (0: to the end), pid (0 for a lock of the open file).
_WHOLE_FILE = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_WHOLE_FILE_SHARED = struct.pack("hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)


def _open(path: str, flags: int, mode: int = 0) -> int:
    """Open a file that child processes do not inherit. If descriptors run out, the error names limits and remedy."""
    try:
        return os.open(path, flags | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        text = f"{error.strerror} (ulimit -n is {limit}); raise ulimit -n, or lower openFileLimit of a bookie"
        raise OSError(errno.EMFILE, text, path) from error


class RealLock:
    """Locks on a lock file. The file stays: removing it would let two processes lock two files of one name."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """See Lock. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealFileSystem:
    """The operating system's files. private: create files and directories with access only for the process's user."""

    _FLAGS: ClassVar[Mapping[OpenMode, int]] = {
        OpenMode.READ: os.O_RDONLY,
        OpenMode.CREATE_EXCLUSIVE: os.O_RDWR | os.O_CREAT | os.O_EXCL,
        OpenMode.UPDATE: os.O_RDWR,
    }

    def __init__(self, *, private: bool = True) -> None:
        self._serials = itertools.count()
        self._file_mode, self._directory_mode = (0o600, 0o700) if private else (0o666, 0o777)

    def open(self, path: str, mode: OpenMode) -> RealFile:
        """See FileSystem."""
        serial = next(self._serials)
        return RealFile(path, _open(path, self._FLAGS[mode], self._file_mode), serial)

    def listdir(self, path: str) -> list[str]:
        """See FileSystem."""
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        """See FileSystem. Unlike os.path.exists it does not take "may not look" for "no"."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        """See FileSystem."""
        return self.exists(path) and os.path.isdir(path)

    def is_wider(self, path: str) -> bool:
        """See FileSystem."""
        return os.stat(path).st_mode & 0o777 & ~self._directory_mode != 0

    def make_dirs(self, path: str) -> None:
        """See FileSystem."""
        missing = []
        while not self.is_dir(path):
            parent = os.path.dirname(path)
            missing.append((parent, path))
            if parent == path:
                break
            path = parent
        # Directories are made from the top down, each name synced before the next: only the last one is in doubt.
        with contextlib.suppress(PermissionError):  # above what is ours, and made by somebody else
            self.sync_dir(os.path.dirname(path) or ".")
        for parent, child in reversed(missing):
            # Another thread may have made it meanwhile; its name is synced here all the same.
            with contextlib.suppress(FileExistsError):
                os.mkdir(child, self._directory_mode)
            self.sync_dir(parent or ".")

    def unlink(self, path: str) -> None:
        """See FileSystem."""
        os.unlink(path)

    def rename(self, source: str, target: str) -> None:
        """See FileSystem."""
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        """See FileSystem."""
        os.link(source, target)

    def sync_dir(self, path: str) -> None:
        """See FileSystem."""
        fd = _open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        except OSError as error:
            raise _naming(error, path or ".") from None
        finally:
            os.close(fd)

    def usage(self, path: str) -> DiskUsage:
        """See FileSystem."""
        stat = os.statvfs(path)
        return DiskUsage(
            total=stat.f_blocks * stat.f_frsize,
            free=stat.f_bavail * stat.f_frsize,
            reserved=max(0, stat.f_bfree - stat.f_bavail) * stat.f_frsize,
        )

    def lock(self, path: str) -> RealLock:
        """See FileSystem."""
        fd = _open(path, os.O_RDWR | os.O_CREAT, self._file_mode)
        return self._locked(fd, path, fcntl.LOCK_EX, _WHOLE_FILE)

    def lock_shared(self, path: str) -> RealLock | None:
        """See FileSystem."""
        try:
            fd = _open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        return self._locked(fd, path, fcntl.LOCK_SH, _WHOLE_FILE_SHARED)

    def _locked(self, fd: int, path: str, kind: int, record: bytes) -> RealLock:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            # Java's programs take a record lock, which does not see an flock. One of the open file stays when another
            # descriptor of the same file is closed, as that of a process does not.
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, record)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise DirectoryInUse(
                    f"{path} is locked by another process: stop the bookie that uses this directory, "
                    "or configure another one"
                ) from error
            raise _naming(error, path) from None
        return RealLock(fd)

    def sync_many(self, files: Sequence[File]) -> None:
        """See FileSystem. Above SYNC_EACH_MAX files one syncfs per file system, on Linux >= 5.8."""
        real = [file for file in files if isinstance(file, RealFile)]
        if len(files) <= SYNC_EACH_MAX or len(real) < len(files) or _syncfs is None:
            for file in files:
                file.sync()
            return
        # syncfs reports write errors since its descriptor was opened: only the one opened first vouches for all others.
        first: dict[int, RealFile] = {}
        for one in real:
            device = os.fstat(one.fileno()).st_dev
            if device not in first or one.serial < first[device].serial:
                first[device] = one
        for one in first.values():
            if _syncfs(one.fileno()) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), one.path)

    def sync_dirs(self, paths: Sequence[str]) -> None:
        """See FileSystem. Above SYNC_EACH_MAX directories one syncfs per file system, on Linux >= 5.8."""
        if len(paths) <= SYNC_EACH_MAX or _syncfs is None:
            for path in paths:
                self.sync_dir(path)
            return
        # Names are metadata: a file system that cannot store them fails every later syncfs, not only the first.
        one_of_each = {os.stat(path).st_dev: path for path in paths}
        for path in one_of_each.values():
            fd = _open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                if _syncfs(fd) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), path)
            finally:
                os.close(fd)

    def make_dirs_many(self, paths: Sequence[str]) -> None:
        """See FileSystem."""
        parents: dict[str, None] = {}
        for path in paths:
            missing = []
            while not self.is_dir(path):
                parent = os.path.dirname(path)
                missing.append((parent, path))
                if parent == path:
                    break
                path = parent
            for parent, child in reversed(missing):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(child, self._directory_mode)
                parents[parent or "."] = None
        self.sync_dirs(list(parents))


_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
_nowait_works = sys.platform == "linux" and hasattr(os, "preadv")


def _find_syncfs() -> Callable[[int], int] | None:
    """The C library's syncfs where the kernel reports write errors through it (Linux 5.8), else None."""
    if sys.platform != "linux":
        return None
    numbers = platform.release().split("-")[0].split(".")
    try:
        version = (int(numbers[0]), int(numbers[1]))
    except (IndexError, ValueError):
        return None
    if version < (5, 8):
        return None
    try:
        found: Callable[[int], int] = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None
    return found


_SYNC_FILE_RANGE_WRITE = 2


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """The C library's sync_file_range, where there is one."""
    if sys.platform != "linux":
        return None
    try:
        found = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return found


_syncfs = _find_syncfs()
_sync_file_range = _find_sync_file_range()
