"""The checksums of index pages, one file in each index directory: written by the checkpoint, asked by every page read.

    start         what the last process left is written and synced once more (I-48)
    checkpoint, for some hundred ledgers at a time
        begin     WRITING, synced: a power cut from here on leaves these pages in either state, and that is known
        (index_flush writes and syncs the files)
        written   in memory: reads compare with the new values
      at its end
        settle    SETTLED, synced: what the checkpoint covers is checked after a power cut, too

Failures: what is to be synced here is part of writing the index, and a failed write or sync of it stops the bookie as
any other (I-48): were a page written whose old checksum stays behind, it would look damaged later. A file that cannot
be read, is damaged or belongs to older contents is dropped: checksums are derived from the pages, and the scrub reads
them again. No room is NoWritableDisk: the checkpoint is tried again.

Threads: any. One lock for those who write, held while the disk works; one for the tables, held for microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock

from twisted.logger import Logger

from bookkeeper.bookie.integrity.checksums import index as fmt
from bookkeeper.bookie.integrity.checksums.index import (
    DAMAGED,
    HEADER_ROW,
    ChecksumTable,
    Kind,
    Rows,
    damaged_value,
    is_damaged,
)
from bookkeeper.bookie.storage.disks import current
from bookkeeper.errors import NoWritableDisk
from bookkeeper.filesystem import File, FileSystem, OpenMode, is_no_space

log = Logger()

_COPY_SIZE = 1024 * 1024

REWRITE_SIZE_MIN = 1024 * 1024
"""A file is written anew when it is larger than this and four times what its rows need."""


class IndexChecksums:
    """Checksums of the index pages of a bookie.

    changes: counts what was written to index files; the scrub compares before and after it read one.
    unsettled: ledgers with pages that the last process was writing when it ended.
    """

    def __init__(self, fs: FileSystem, index_dirs: Sequence[str]) -> None:
        self._lock = Lock()
        self._write_lock = Lock()
        self._files = {
            directory: _ChecksumFile(fs, os.path.join(current(directory), fmt.FILE_NAME), self._lock)
            for directory in index_dirs
        }
        self._going: set[int] = set()  # ledgers whose index files are being deleted
        self.changes = 0
        self.unsettled: set[int] = set()

    def open(self, highest_log_id: int) -> None:
        """Read the files; blocking. highest_log_id: of all entry logs that ever were here, -1 for none.

        A file that says nothing that can be trusted is removed, and made anew when there is something to say.
        Raises OSError where that fails.
        """
        for file in self._files.values():
            file.open(highest_log_id)
            self.unsettled |= file.unsettled

    def inspect(self, highest_log_id: int) -> dict[str, str]:
        """Read the files as `open` does, for whoever only looks: nothing is changed, nothing may be written.

        What is wrong with a directory's file, by directory; one that is older than what another bookie wrote there
        since says nothing, and is not wrong. Raises OSError.
        """
        problems = {directory: file.inspect(highest_log_id) for directory, file in self._files.items()}
        return {directory: problem for directory, problem in problems.items() if problem is not None}

    def path_of(self, directory: str) -> str:
        """Where the checksums of a directory are."""
        return self._files[directory].path

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    # --- asking -------------------------------------------------------------------------------------------------------

    def value(self, directory: str, ledger_id: int, page: int) -> int:
        """The checksum of a page; UNKNOWN, or DAMAGED with what `expected_checksum` finds in it."""
        with self._lock:
            return self._files[directory].table.get(ledger_id, page)

    def pages_of(self, directory: str, ledger_id: int) -> dict[int, int]:
        """The pages of a ledger that are known, with their values."""
        with self._lock:
            return self._files[directory].table.pages_of(ledger_id)

    def directory_of(self, ledger_id: int) -> str | None:
        """Where the ledger's index file must be, None when nothing is known of one."""
        with self._lock:
            for directory, file in self._files.items():
                if file.table.pages_of(ledger_id):
                    return directory
        return None

    def known_ledgers(self, directory: str) -> list[int]:
        """The ledgers whose index file must be in this directory, ascending."""
        with self._write_lock:
            return list(dict.fromkeys(self._files[directory].table.merged().ledgers))

    @property
    def any_damaged(self) -> bool:
        """True when a page is known to have been damaged when it was written last."""
        with self._write_lock:
            return any(file.table.any_damaged for file in self._files.values())

    def is_complete(self, directory: str) -> bool:
        """True when all pages of the directory have been read once; those that are not known are zeros then."""
        return self._files[directory].complete

    # --- writing ------------------------------------------------------------------------------------------------------

    def begin(self, rows: Mapping[str, Rows]) -> None:
        """These pages (by directory) are about to be written; durable on return. Raises NoWritableDisk, OSError."""
        with self._write_lock:
            self.changes += 1
            for directory, some in rows.items():
                file = self._files[directory]
                file.append(Kind.WRITING, some, sync=True)
                file.unfinished = True
                file.begun.update(some.ledgers)
                with self._lock:
                    file.table.put(some.unknown())

    def written(self, rows: Mapping[str, Rows]) -> None:
        """These pages are in their files and synced."""
        with self._write_lock, self._lock:
            self.changes += 1
            for directory, some in rows.items():
                self._files[directory].table.put(some)
                self._files[directory].begun.difference_update(some.ledgers)

    def settle(self) -> None:
        """All pages of all `begin` are written, and the names of new files are durable; noted durably on return.

        Raises as `begin`.
        """
        with self._write_lock:
            for file in self._files.values():
                if file.unfinished:
                    elsewhere = Rows()
                    elsewhere.ledgers.extend(sorted(file.begun))
                    if elsewhere:
                        file.append(Kind.GONE, elsewhere, sync=False)
                    file.begun.clear()
                    file.append(Kind.SETTLED, Rows(), sync=True)
                    file.unfinished = False
                    file.rewrite_if_large()

    def note_damaged(self, directory: str, ledger_id: int, page: int) -> None:
        """This page is damaged until a checkpoint has written all of it anew; durable with the next `begin`.

        Raises as `begin`.
        """
        with self._write_lock:
            self.changes += 1
            row = Rows()
            file = self._files[directory]
            row.add(ledger_id, page, damaged_value(file.table.get(ledger_id, page)))
            file.append(Kind.HOLD, row, sync=False)
            with self._lock:
                file.table.put(row)

    def adopt(self, directory: str, rows: Rows, changes: int) -> bool:
        """Note the checksums of pages as they were read. False: something was written since `changes`, read again.

        Raises as `begin`.
        """
        with self._write_lock:
            file = self._files[directory]
            if changes != self.changes or file.unfinished or not self._going.isdisjoint(rows.ledgers):
                return False
            file.append(Kind.HOLD, rows, sync=False)
            with self._lock:
                file.table.put(rows)
            file.rewrite_if_large()
            return True

    def completed(self, directory: str) -> None:
        """All pages there were read once. Raises as `begin`."""
        with self._write_lock:
            self._files[directory].note_complete()

    def forget(self, ledger_ids: Iterable[int]) -> None:
        """These ledgers are being deleted: to be called before their index files are; durable on return.

        Until `forgotten` nothing is adopted of them: who read such a file before it went must not say that it is there.
        Raises as `begin`.
        """
        gone = list(ledger_ids)
        with self._write_lock:
            self.changes += 1
            self._going.update(gone)
            for file in self._files.values():
                known = Rows()
                known.ledgers.extend(
                    [ledger_id for ledger_id in gone if ledger_id in file.begun or file.table.pages_of(ledger_id)]
                )
                if known:
                    file.append(Kind.GONE, known, sync=True)
                    with self._lock:
                        file.table.drop(known.ledgers)

    def forget_elsewhere(self, ledger_id: int, directory: str) -> None:
        """The ledger's file is in this directory, or will be: not in any other. Raises as `begin`."""
        with self._write_lock:
            for other, file in self._files.items():
                if other != directory and file.table.pages_of(ledger_id):
                    gone = Rows()
                    gone.ledgers.append(ledger_id)
                    file.append(Kind.GONE, gone, sync=True)
                    with self._lock:
                        file.table.drop(gone.ledgers)

    def forgotten(self, ledger_ids: Iterable[int]) -> None:
        """Their index files are gone, or their deletion was given up."""
        with self._write_lock:
            self.changes += 1
            self._going.difference_update(ledger_ids)

    def note_log(self, log_id: int) -> None:
        """An entry log of this id is about to be made; durable on return. Raises as `begin`."""
        with self._write_lock:
            for file in self._files.values():
                file.note_log(log_id)


class _ChecksumFile:
    """One directory's file and table. Changed under both locks of `IndexChecksums`, read under either.

    unfinished: pages are being written. complete: all pages were read once. begun: ledgers whose pages are; those that
    are left when all is written found no room here, and have their file in another directory.
    """

    def __init__(self, fs: FileSystem, path: str, lock: Lock) -> None:
        self._fs = fs
        self._path = path
        self._lock = lock
        self._file: File | None = None
        self._size = 0
        self._synced = 0  # of these bytes
        self._log_id = -1  # the highest noted
        self.table = ChecksumTable()
        self.unfinished = False
        self.complete = False
        self.unsettled: set[int] = set()
        self.begun: set[int] = set()

    def open(self, highest_log_id: int) -> None:
        """See IndexChecksums."""
        try:
            file = self._fs.open(self._path, OpenMode.UPDATE)
        except FileNotFoundError:
            self._log_id = highest_log_id
            return
        try:
            problem = self._read(file)
        except OSError as error:
            problem = str(error)
        if problem is None and highest_log_id > self._log_id:
            problem = (
                f"another bookie has used this directory since: entry log {highest_log_id:x} is newer than any of ours"
            )
        if problem is not None:
            log.warn("{path} is dropped, all index pages are read anew: {problem}", path=self._path, problem=problem)
            file.close()
            self._fs.unlink(self._path)  # should it come back after a power cut, the same is wrong with it again
            self._reset(highest_log_id)
            return
        self._file = file
        if file.size() > self._size:
            file.truncate(self._size)
        if self.unsettled:
            self.append(Kind.VOID, Rows(), sync=False)
        self._write_again()

    def _write_again(self) -> None:
        """Make durable what was read, in place, with the bytes that are there.

        After a sync that failed the kernel may take for stored what it never stored (I-48); a page that was noted as
        damaged would deny its entries once that note is gone (I-31).
        """
        assert self._file is not None
        for offset in range(0, self._size, _COPY_SIZE):
            self._file.pwrite(self._file.pread(min(_COPY_SIZE, self._size - offset), offset), offset)
        self._file.sync()
        self._synced = self._size

    @property
    def path(self) -> str:
        """Where it is."""
        return self._path

    def inspect(self, highest_log_id: int) -> str | None:
        """See IndexChecksums."""
        try:
            file = self._fs.open(self._path, OpenMode.READ)
        except FileNotFoundError:
            return None
        try:
            problem = self._read(file)
        finally:
            file.close()
        if problem is not None or highest_log_id > self._log_id:
            self._reset(highest_log_id)
        return problem

    def _read(self, file: File) -> str | None:
        """Build the table; return what is wrong with the file, None for nothing (a torn end is nothing)."""
        table, offset, end = self.table, 0, file.size()
        writing: list[Rows] = []
        while offset < end:
            head = file.pread(fmt.ALIGNMENT, offset)
            size = fmt.record_size(head, offset)
            data = head if size is None or size == len(head) else file.pread(size, offset)
            record = fmt.decode_record(data, offset) if size is not None else None
            if record is None:
                later = _witness_after(file, offset, end)
                if later is not None:
                    return f"the record at {offset} is damaged, and was durable when the one at {later} was written"
                break
            match record.kind:
                case Kind.HOLD:
                    table.put(record.rows)
                case Kind.WRITING:
                    writing.append(record.rows)
                case Kind.SETTLED:
                    for rows in writing:
                        table.put(rows)
                    writing = []
                case Kind.VOID:
                    self._void(writing)
                    writing = []
                case Kind.GONE:
                    table.drop(record.rows.ledgers)
                    writing = [rows.without(set(record.rows.ledgers)) for rows in writing]
                case Kind.LOGS:
                    self._log_id = max(self._log_id, *record.rows.ledgers)
                case Kind.COMPLETE:
                    self.complete = True
            offset += record.size
            if table.should_merge:
                table.replace(table.merged())
        if offset == 0:
            return "its first record is damaged"
        self._void(writing)
        self._size = offset
        return None

    def _void(self, writing: Sequence[Rows]) -> None:
        """Nothing is known of these pages, but that one was damaged before, and that a ledger has a file if it had one.

        The journal brings back what such a ledger got last, and nothing of what a checkpoint covered before (I-31).
        """
        for rows in writing:
            left = rows.unknown()
            for at, (ledger_id, page, _) in enumerate(rows):
                if is_damaged(self.table.get(ledger_id, page)):
                    left.values[at] = DAMAGED
            for ledger_id in sorted(set(rows.ledgers)):
                if self.table.pages_of(ledger_id):
                    left.add(ledger_id, HEADER_ROW, 0)
            self.unsettled.update(rows.ledgers)
            self.table.put(left)

    def _reset(self, highest_log_id: int) -> None:
        self.table = ChecksumTable()
        self.unsettled = set()
        self.complete = False
        self._log_id = highest_log_id
        self._size = self._synced = 0

    def append(self, kind: Kind, rows: Rows, *, sync: bool) -> None:
        """Append records for all rows. Raises NoWritableDisk, OSError; what was written of them is written over."""
        if self._file is None:
            self._rewrite(self.table.merged())
        assert self._file is not None
        size, parts = self._size, []
        for start in range(0, max(1, len(rows)), fmt.RECORD_ROWS_MAX):
            parts.append(fmt.encode_record(kind, rows.part(start, start + fmt.RECORD_ROWS_MAX), size, self._synced))
            size += len(parts[-1])
        try:
            self._file.pwrite(b"".join(parts), self._size)
            if sync:
                self._file.sync()
        except OSError as error:
            raise self._no_room_or(error) from error
        self._size = size
        if sync:
            self._synced = size

    def note_log(self, log_id: int) -> None:
        """See IndexChecksums."""
        if log_id > self._log_id:
            row = Rows()
            row.ledgers.append(log_id)
            self.append(Kind.LOGS, row, sync=True)
            self._log_id = log_id

    def note_complete(self) -> None:
        """See IndexChecksums."""
        if not self.complete:
            self.append(Kind.COMPLETE, Rows(), sync=True)
            self.complete = True

    def rewrite_if_large(self) -> None:
        """Drop what no longer counts, and put the table in order. Nothing may be unfinished."""
        large = self._size > max(REWRITE_SIZE_MIN, 4 * fmt.ROW_SIZE * len(self.table))
        if not large and not self.table.should_merge:
            return
        rows = self.table.merged()
        with self._lock:
            self.table.replace(rows)
        if large and not self.unfinished:
            self._rewrite(rows)

    def _rewrite(self, rows: Rows) -> None:
        temporary, size = self._path + ".new", 0
        try:
            if self._fs.exists(temporary):
                self._fs.unlink(temporary)
            file = self._fs.open(temporary, OpenMode.CREATE_EXCLUSIVE)
            for kind, some in self._snapshot(rows):
                data = fmt.encode_record(kind, some, size, synced=size)  # by the time the file has its name
                file.pwrite(data, size)
                size += len(data)
            file.sync()
            self._fs.rename(temporary, self._path)
            # Whatever becomes of the name: the old file has it no more. The next append writes the file once again.
            self.close()
            self._fs.sync_dir(os.path.dirname(self._path))
        except OSError as error:
            raise self._no_room_or(error) from error
        self._file, self._size, self._synced = file, size, size

    def _snapshot(self, rows: Rows) -> Iterable[tuple[Kind, Rows]]:
        logs = Rows()
        logs.ledgers.append(self._log_id)
        yield Kind.LOGS, logs
        for start in range(0, len(rows), fmt.RECORD_ROWS_MAX):
            yield Kind.HOLD, rows.part(start, start + fmt.RECORD_ROWS_MAX)
        if self.complete:
            yield Kind.COMPLETE, Rows()

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _no_room_or(self, error: OSError) -> Exception:
        return NoWritableDisk(f"no room for {self._path}: {error}; free space there") if is_no_space(error) else error


def _witness_after(file: File, offset: int, end: int) -> int | None:
    """Where the first intact record is that knows a bad one to have been durable."""
    for at in range(offset + fmt.ALIGNMENT, end, fmt.ALIGNMENT):
        size = fmt.record_size(file.pread(fmt.HEAD_SIZE, at), at)
        record = None if size is None else fmt.decode_record(file.pread(size, at), at)
        if record is not None and record.synced > offset:
            return at
    return None
