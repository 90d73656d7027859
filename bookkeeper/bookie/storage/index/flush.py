"""Write what changed in memory to the index files and make it durable: the second half of a checkpoint.

For some hundred ledgers at a time:
    0. the checksums of the pages, as being written, synced (checksums/index_files.py)
    1. changed parts of pages (all of a page of which no checksum is known), and for changed headers the second copy;
       new files whole, under a temporary name
    2. sync all of them in one call
    3. the first copy of changed headers, sync; rename new files
and at the end sync every directory that got a new name, once, and note that the pages are settled. A power cut
anywhere leaves each header intact in one copy and no `.idx` file that was not synced; what it loses is above the mark
and comes back from the journal (I-53, I-54).

Thread: storage worker. The entry logs must have been synced before (I-58).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from bookkeeper.bookie.integrity.checksums.index import (
    DAMAGED,
    HEADER_ROW,
    UNKNOWN,
    Rows,
    damaged_value,
    page_checksum,
)
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.index import format as fmt
from bookkeeper.bookie.storage.index.cache import LedgerCache
from bookkeeper.bookie.storage.index.files import TEMPORARY_SUFFIX, DamagedPage, index_path
from bookkeeper.bookie.storage.index.ledger_state import LedgerState
from bookkeeper.bookie.storage.open_files import OpenFiles
from bookkeeper.errors import NoWritableDisk
from bookkeeper.filesystem import File, FileSystem, OpenMode, is_no_space

BATCH_MAX = 512
"""Files that are open, written and synced together."""


@dataclass(slots=True)
class _Change:
    """What one index file lacks. slot_count: locations it will have, whole pages.  header: None when it stays."""

    state: LedgerState
    directory: str
    path: str
    is_new: bool
    header: fmt.IndexHeader | None
    header_version: int
    pieces: list[tuple[int, bytes]]
    slot_count: int
    checksums: list[tuple[int, int]]
    """Page and its checksum, of all pages that change."""
    file: File | None = None


class IndexFlusher:
    """Writes dirty ledgers.

    open_files_max: of the bookie; at most half of them are used here.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: LedgerDirectories,
        files: OpenFiles,
        cache: LedgerCache,
        checksums: IndexChecksums,
        *,
        open_files_max: int,
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._files = files
        self._cache = cache
        self._checksums = checksums
        self._batch = max(1, min(BATCH_MAX, open_files_max // 2))
        self._unsynced_dirs: set[str] = set()  # they got new names, and nothing made those durable yet

    def flush(self, between: Callable[[], None], *, names_in_doubt: bool = False) -> int:
        """Make everything dirty durable; return the number of files written.

        names_in_doubt: a killed process may have left names that are there and not durable: sync those of all files
        written, up to the directory's top.
        between: called between two batches; what it adds to the index must point to synced bytes of the logs (I-58).
        Raises NoWritableDisk (full; what was not written stays dirty, try again later); anything else is fatal (I-48).
        """
        states = sorted(self._cache.take_dirty(), key=_by_directory)
        for start in range(0, len(states), self._batch):
            batch = states[start : start + self._batch]
            self._flush_batch(batch)
            if names_in_doubt:
                self._unsynced_dirs.update(above for state in batch for above in _directories_above(self._path(state)))
            between()
        # Also names that a flush ended by a full disk left behind: their ledgers are clean and will not come again.
        self._fs.sync_dirs(sorted(self._unsynced_dirs))
        self._unsynced_dirs.clear()
        self._checksums.settle()
        return len(states)

    def _flush_batch(self, states: list[LedgerState]) -> None:
        changes = [self._collect(state, self._complete_pages(state)) for state in states]
        with self._full_disk_told(changes[0]):
            self._fs.make_dirs_many(sorted({os.path.dirname(change.path) for change in changes if change.is_new}))
        rows = _checksum_rows(changes)
        self._checksums.begin(rows)
        try:
            for change in changes:
                self._write(change)
            self._fs.sync_many([_opened(change) for change in changes])
            rewritten = [change for change in changes if change.header is not None and not change.is_new]
            for change in rewritten:
                self._write_first_copy(change)
            if rewritten:
                self._fs.sync_many([_opened(change) for change in rewritten])
        finally:
            self._close(changes)
        for change in changes:
            if change.is_new:
                self._fs.rename(change.path + TEMPORARY_SUFFIX, change.path)
                self._unsynced_dirs.add(os.path.dirname(change.path))
        self._checksums.written(rows)  # first: from `written` on a page may be evicted, and read again
        for change in changes:
            self._cache.written(
                change.state,
                directory=change.directory,
                header_version=change.header_version,
                slot_count=change.slot_count,
            )

    def _complete_pages(self, state: LedgerState) -> dict[int, bytes]:
        """Bring in what the file has of pages that memory has only in part, so that gaps are not written as zeros.

        What the file has of damaged pages, by their number.
        """
        damaged: dict[int, bytes] = {}
        with self._cache.lock:
            partial = [number for number, page in state.pages.items() if page.dirty and not page.complete]
        for number in partial:
            # Of a damaged page what it says is in memory now; it stays incomplete, and noted as damaged.
            try:
                self._cache.load_page(state, number, wait=True)
            except DamagedPage as error:
                damaged[number] = fmt.encode_slots(error.slots).ljust(fmt.PAGE_SIZE, b"\0")
        return damaged

    def _collect(self, state: LedgerState, damaged: Mapping[int, bytes]) -> _Change:
        with self._cache.lock:
            pieces: list[tuple[int, bytes]] = []
            checksums: list[tuple[int, int]] = []
            highest = 0
            for number, page in sorted(state.pages.items()):
                if page.dirty:
                    first = number * fmt.PAGE_SLOTS
                    data = fmt.encode_slots(page.slots)
                    low, high = page.dirty_low, page.dirty_high
                    if page.complete and self._is_in_doubt(state, number):
                        low, high = 0, fmt.PAGE_SLOTS
                    piece = data[low * fmt.SLOT_SIZE : high * fmt.SLOT_SIZE]
                    pieces.append((fmt.slot_offset(first + low), piece))
                    if page.complete:
                        value = page_checksum(data)
                    elif (before := damaged.get(number)) is not None and state.directory is not None:
                        after = before[: low * fmt.SLOT_SIZE] + piece + before[high * fmt.SLOT_SIZE :]
                        known = self._checksums.value(state.directory, state.ledger_id, number)
                        value = damaged_value(known, before, after)
                    else:
                        value = DAMAGED
                    checksums.append((number, value))
                    highest = first + page.dirty_high
            directory = state.directory or self._choose_directory(state.ledger_id)
            pages = -(-highest // fmt.PAGE_SLOTS)
            slot_count = max(state.slot_count, pages * fmt.PAGE_SLOTS)
            header: fmt.IndexHeader | None = None
            is_new = state.directory is None
            if is_new or state.header_version != state.header_written or slot_count > state.slot_count:
                header = fmt.IndexHeader(state.master_key or b"", state.fenced, state.explicit_lac, slot_count)
            if is_new and not checksums:
                checksums.append((HEADER_ROW, 0))
            path = index_path(directory, state.ledger_id)
            return _Change(state, directory, path, is_new, header, state.header_version, pieces, slot_count, checksums)

    def _is_in_doubt(self, state: LedgerState, page: int) -> bool:
        """Whether the disk may hold less of a page than the cache shows: nobody noted what was written there last.

        After a sync that failed the kernel may take a page for stored that is not, and only what is written anew is
        stored by the next one (I-48).
        """
        if state.directory is None:
            return False
        return self._checksums.value(state.directory, state.ledger_id, page) == UNKNOWN

    def _path(self, state: LedgerState) -> str:
        assert state.directory is not None
        return index_path(state.directory, state.ledger_id)

    def _choose_directory(self, ledger_id: int) -> str:
        writable = self._directories.writable_index_dirs()
        return writable[ledger_id % len(writable)]

    def _write(self, change: _Change) -> None:
        with self._full_disk_told(change):
            if change.is_new:
                self._write_new(change)
            else:
                self._write_existing(change)

    def _write_first_copy(self, change: _Change) -> None:
        with self._full_disk_told(change):
            _opened(change).pwrite(fmt.encode_copy(_header(change)), 0)

    @contextmanager
    def _full_disk_told(self, change: _Change) -> Iterator[None]:
        """NoWritableDisk for a disk without room. The ledger stays dirty and all of it is written again."""
        try:
            yield
        except OSError as error:
            if not is_no_space(error):
                raise
            self._directories.mark_full(change.directory)
            raise NoWritableDisk(f"no room for the index file {change.path}: {error}; free space there") from error

    def _write_existing(self, change: _Change) -> None:
        file = change.file = self._files.acquire(change.path, OpenMode.UPDATE)
        size = fmt.padded_size(change.slot_count)
        if file.size() < size:
            file.truncate(size)
        for offset, data in change.pieces:
            file.pwrite(data, offset)
        if change.header is not None:
            file.pwrite(fmt.encode_copy(change.header), fmt.COPY_SIZE)

    def _write_new(self, change: _Change) -> None:
        file = change.file = self._create(change.path + TEMPORARY_SUFFIX)
        file.pwrite(fmt.encode_header(_header(change)), 0)
        for offset, data in change.pieces:
            file.pwrite(data, offset)
        file.truncate(fmt.padded_size(change.slot_count))

    def _create(self, path: str) -> File:
        while True:
            try:
                return self._fs.open(path, OpenMode.CREATE_EXCLUSIVE)
            except FileExistsError:  # of a checkpoint that a crash or a full disk ended
                self._fs.unlink(path)

    def _close(self, changes: Iterable[_Change]) -> None:
        for change in changes:
            if change.file is None:
                continue
            if change.is_new:
                change.file.close()
            else:
                self._files.release(change.file)


def _directories_above(path: str) -> Iterator[str]:
    """The two directories that index files are spread over, and `current`."""
    for _ in range(3):
        path = os.path.dirname(path)
        yield path


def _checksum_rows(changes: Iterable[_Change]) -> dict[str, Rows]:
    """The checksums of all changed pages, by directory."""
    rows: dict[str, Rows] = {}
    for change in changes:
        if change.checksums:
            some = rows.setdefault(change.directory, Rows())
            for page, value in change.checksums:
                some.add(change.state.ledger_id, page, value)
    return rows


def _opened(change: _Change) -> File:
    assert change.file is not None
    return change.file


def _header(change: _Change) -> fmt.IndexHeader:
    assert change.header is not None
    return change.header


def _by_directory(state: LedgerState) -> tuple[int, int, int]:
    """Neighbours on the disk next to each other."""
    return state.ledger_id >> 8 & 0xFF, state.ledger_id & 0xFF, state.ledger_id
