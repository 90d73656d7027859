"""The entry logs of a bookie: append to the active one, roll it, find any of them.

One log is active at a time; the next one goes to the next ledger directory that is not full. A log is only appended to
by the process that created it. What a crash leaves behind: a log without a ledgers map, perhaps with a cut record at
its end; both are legal in Apache's format (such a log is scanned), and nothing in the index points to unsynced bytes
(I-58), or the journal still has the entries.

Thread: `append`, `sync` and `roll` belong to the storage worker; `path_of` may be called from any.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence

from twisted.logger import Logger

from bookkeeper.bookie.gc.candidates import LedgerBytes
from bookkeeper.bookie.integrity.checksums.entry_log_files import LogChecksums
from bookkeeper.bookie.storage.disks import LedgerDirectories, current
from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.bookie.storage.entry_log.writer import LogWriter
from bookkeeper.bookie.storage.open_files import OpenFiles
from bookkeeper.errors import NoWritableDisk, StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode, is_no_space, replace_durable

log = Logger()

LAST_ID_NAME = "lastId"


class EntryLogs:
    """All entry logs in the ledger directories.

    entry_log_bytes_max: the active log is rolled when the next block would exceed it.
    """

    def __init__(
        self, fs: FileSystem, directories: LedgerDirectories, files: OpenFiles, *, entry_log_bytes_max: int
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._files = files
        self._size_max = min(entry_log_bytes_max, fmt.LOG_BYTES_MAX)
        self._paths: dict[int, str] = {}
        self.checksums = LogChecksums(fs, files)
        self._next_log_id = 0
        self._next_directory = 0
        self._active: LogWriter | None = None
        self.on_removed: Callable[[str], None] | None = None
        """Called with the path of each log that was deleted."""
        self.before_new_log: Callable[[int], None] | None = None
        """Called with the id of each log before it is made; what it raises is raised."""
        self.unfinished: list[tuple[int, int]] = []
        """Compactions that a crash cut short: new and old log id. The new log is whole; the index may name either."""
        self.rolled_count = 0
        """Logs closed since the start; a checkpoint is due after each (as Apache)."""

    def open(self) -> None:
        """Find the logs there are. Raises StorageError when one id is in two directories, OSError."""
        highest = -1
        names: dict[str, list[str]] = {}
        for directory in self._directories.ledger_dirs:
            base = current(directory)
            names[base] = self._settle_compactions(base)
            for name in names[base]:
                log_id = fmt.parse_log_name(name)
                if log_id is None:
                    continue
                path = os.path.join(base, name)
                if log_id in self._paths:
                    raise StorageError(
                        f"{path} and {self._paths[log_id]} are two entry logs with one id; "
                        "move the one that does not belong to this bookie away"
                    )
                self._paths[log_id] = path
                highest = max(highest, log_id)
            highest = max(highest, self._read_last_id(os.path.join(base, LAST_ID_NAME)))
        self.checksums.open(self._paths, names)
        # Log 0 is never written: with an id of at least 1 no single damaged byte turns a location into 0, "no entry".
        self._next_log_id = max(highest + 1, 1)

    def _settle_compactions(self, base: str) -> list[str]:
        """Bring what a crash left of compactions into a state that readers know; the names there are then."""
        names = self._fs.listdir(base)
        changed = False
        for name in list(names):
            if fmt.is_compacting_name(name):
                self._fs.unlink(os.path.join(base, name))
                changed = True
            elif (ids := fmt.parse_compacted_name(name)) is not None:
                if ids not in self.unfinished:
                    self.unfinished.append(ids)
                log_name = fmt.log_name(ids[0])
                if log_name not in names:
                    self._fs.link(os.path.join(base, name), os.path.join(base, log_name))
                    names.append(log_name)
                changed = True  # also where a killed process made both names and did not sync them (I-49)
        if changed:
            self._fs.sync_dir(base)
        return names

    def _read_last_id(self, path: str) -> int:
        if not self._fs.exists(path):
            return -1
        file = self._fs.open(path, OpenMode.READ)
        try:
            text = file.pread(64, 0)
        finally:
            file.close()
        try:
            return int(text.decode("ascii").strip(), 16)
        except ValueError:
            # The names of the logs say the same; the file only adds logs that were deleted since.
            log.error("{path} holds no entry log id but {text}; ignored", path=path, text=text)
            return -1

    def path_of(self, log_id: int) -> str | None:
        """Where a log is, None when there is no such log."""
        return self._paths.get(log_id)

    def expected_path(self, log_id: int) -> str:
        """Where a log is, or was: for one that is gone the only place it can have been, else all, for people."""
        path = self._paths.get(log_id)
        if path is not None:
            return path
        directories = self._directories.ledger_dirs
        if len(directories) == 1:
            return os.path.join(current(directories[0]), fmt.log_name(log_id))
        return f"{fmt.log_name(log_id)} of {', '.join(current(directory) for directory in directories)}"

    @property
    def highest_log_id(self) -> int:
        """Of all logs that ever were here; 0 for none, as log 0 is never written."""
        return self._next_log_id - 1

    @property
    def log_ids(self) -> list[int]:
        """Ids of all logs, ascending."""
        return sorted(self._paths)

    @property
    def active_log_id(self) -> int | None:
        """The log that is written to, None before the first write."""
        return self._active.log_id if self._active is not None else None

    @property
    def active_end(self) -> tuple[int, str, int] | None:
        """Id, path and size of the log that is written to. Thread: storage worker."""
        active = self._active
        return None if active is None else (active.log_id, active.path, active.size)

    def is_writing(self, ledger_id: int) -> bool:
        """True when the active log has entries of the ledger. Thread: any."""
        active = self._active
        return active is not None and ledger_id in active.ledger_bytes

    def active_bytes(self) -> tuple[int, LedgerBytes] | None:
        """The log that is written to, and what is in it by now; None before the first write. Thread: storage worker."""
        active = self._active
        return None if active is None else (active.log_id, LedgerBytes(active.ledger_bytes))

    def closed(self) -> list[tuple[int, str]]:
        """Ids and paths of the logs that will not change any more, ascending. Thread: storage worker."""
        active_id = self.active_log_id
        return [(log_id, path) for log_id, path in sorted(self._paths.items()) if log_id != active_id]

    def create_compacting(self, directory: str) -> LogWriter:
        """A log that no reader knows yet, with an id of its own. Thread: storage worker. Raises OSError."""
        log_id = self.reserve()
        path = os.path.join(current(directory), fmt.compacting_name(log_id))
        file = self._create_file(path, log_id)
        return LogWriter(log_id, directory, path, file, self.checksums.writer(log_id, path))

    def size_of(self, log_id: int) -> int:
        """Bytes of a log's file; 0 when it is gone. Raises OSError."""
        path = self._paths.get(log_id)
        if path is None:
            return 0
        file = self._files.acquire(path, OpenMode.READ)
        try:
            return file.size()
        finally:
            self._files.release(file)

    def total_size(self) -> int:
        """Bytes of the files of all logs there are, the one being written as it is by now. Thread: any."""
        total = 0
        for log_id in self.log_ids:
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                total += self.size_of(log_id)
        return total

    def publish(self, log_id: int, path: str) -> None:
        """A log that compaction wrote: readers find it from now on. Thread: any."""
        self._paths[log_id] = path

    def remove(self, log_ids: Iterable[int]) -> None:
        """Delete closed logs that no index points into; durable on return. Raises OSError (fatal: I-48)."""
        changed: set[str] = set()
        for log_id in log_ids:
            path = self._paths.pop(log_id, None)
            if path is None:
                continue
            self._files.drop(path)
            self._fs.unlink(path)
            self.checksums.remove(log_id)
            if self.on_removed is not None:
                self.on_removed(path)
            changed.add(os.path.dirname(path))
            log.info("Removed entry log {path}", path=path)
        self._fs.sync_dirs(sorted(changed))

    def end_compaction(self, log_id: int, old_log_id: int) -> None:
        """No index points into the old log any more, durably: delete it, then the new one's second name."""
        self.remove([old_log_id])
        path = self._paths[log_id]
        base = os.path.dirname(path)
        seconds = [os.path.join(base, name) for name in fmt.second_names(log_id, old_log_id)]
        if there := [second for second in seconds if self._fs.exists(second)]:
            for second in there:
                self._fs.unlink(second)
            self._fs.sync_dir(base)
        if (log_id, old_log_id) in self.unfinished:
            self.unfinished.remove((log_id, old_log_id))

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, parts: Sequence[bytes], size: int, ledger_sizes: Iterable[tuple[int, int]]) -> int:
        """Write a block of records (`size` bytes, framed) and return its location: log id << 32 | offset.

        Not durable before `sync`. ledger_sizes: (ledger id, bytes with the 4-byte sizes) for the map.
        Tries every directory that is not full. Raises NoWritableDisk (nothing stored, try again), OSError (fatal).
        """
        block = b"".join(parts)
        while True:
            active = self._active
            if active is not None and active.size + size > self._size_max and active.size > fmt.HEADER_SIZE:
                self.roll()
                active = None
            if active is None:
                active = self._create()
            try:
                return active.append(block, ledger_sizes)
            except OSError as error:
                if not is_no_space(error):
                    raise
                self._directories.mark_full(active.directory)
                self.roll()

    def sync(self) -> None:
        """Make everything appended durable. Logs that were rolled are already. Raises OSError (fatal: I-48)."""
        if self._active is not None:
            self._active.sync()

    def roll(self) -> None:
        """Close the active log, sealed and durable (I-61). The next append creates another one."""
        active = self._active
        if active is None:
            return
        active.seal()
        self._active = None
        self.rolled_count += 1
        self._files.release(active.file)
        log.info("Closed entry log {path} with {size} bytes", path=active.path, size=active.size)

    def _create(self) -> LogWriter:
        while True:
            # Another id at each try: what one without room leaves behind may outlive its removal in a power cut.
            log_id = self.reserve()
            directory = self._choose_directory()
            path = os.path.join(current(directory), fmt.log_name(log_id))
            try:
                file = self._create_file(path, log_id)
            except OSError as error:
                if not is_no_space(error):
                    raise
                self._directories.mark_full(directory)
                continue
            self._files.adopt(path, file)
            self._active = LogWriter(log_id, directory, path, file, self.checksums.writer(log_id, path))
            self._paths[log_id] = path
            log.info("Created entry log {path}", path=path)
            return self._active

    def reserve(self) -> int:
        """An id that no log has had (I-52); it is used up, whatever becomes of it."""
        log_id = self._next_log_id
        if log_id > fmt.LOG_ID_MAX:
            raise StorageError(f"entry log ids end at {fmt.LOG_ID_MAX:#x}")
        if self.before_new_log is not None:
            self.before_new_log(log_id)
        self._next_log_id = log_id + 1
        return log_id

    def _choose_directory(self) -> str:
        """The next one, in turn, that is not full. Raises NoWritableDisk."""
        writable = self._directories.writable_ledger_dirs()
        if not writable:
            raise NoWritableDisk(
                f"no room for an entry log: {', '.join(self._directories.ledger_dirs)} are full; free space or add one"
            )
        self._next_directory += 1
        return writable[self._next_directory % len(writable)]

    def _create_file(self, path: str, log_id: int) -> File:
        """A new log with its header, durable by name. On an error no file is left."""
        replace_durable(self._fs, os.path.join(os.path.dirname(path), LAST_ID_NAME), b"%x\n" % log_id)
        file = self._fs.open(path, OpenMode.CREATE_EXCLUSIVE)
        try:
            file.pwrite(fmt.encode_header(fmt.LogHeader()), 0)
            file.sync()
            self._fs.sync_dir(os.path.dirname(path))
        except OSError:
            file.close()
            self._fs.unlink(path)
            raise
        return file
