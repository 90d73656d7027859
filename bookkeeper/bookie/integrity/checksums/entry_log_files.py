"""The side files with the checksums of entry logs: written with the log, looked up by reads, made anew by the scrub.

    being written   checksums of the whole pages in memory; after each sync of the log its side file follows, and
                    covers what was synced to the last byte
    closed          the last block says where the log ends; looked up block by block, some kept in memory
    cut short       (a kill, a power cut): the log ends where its last block says, once `adopt` has said so
    without         (another bookie's): read unchecked until `adopt` gives it one

A side file that cannot be written is given up for its log, which is read unchecked then: nothing that was promised to
anybody depends on it, and the disk's next failed write of a log stops the bookie anyway (I-48). But it must be gone for
good: one that comes back would end the log before entries that the index names.
One that is there and cannot be read makes its log unreadable: what cannot be checked is unknown.

Threads: a writer belongs to who writes its log, `PageCheck` to one reader; the rest may be called from any.
"""

from __future__ import annotations

import contextlib
import os
import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import crc32c
from twisted.logger import Logger

from bookkeeper.bookie.integrity.checksums import entry_log as fmt
from bookkeeper.bookie.integrity.checksums.entry_log import Block, PageChecksums
from bookkeeper.bookie.storage.entry_log.format import HEADER_SIZE, LOG_BYTES_MAX
from bookkeeper.bookie.storage.open_files import OpenFiles
from bookkeeper.errors import CorruptRecord
from bookkeeper.filesystem import File, FileSystem, OpenMode, replace_durable

log = Logger()

BLOCKS_KEPT_MAX = 512
"""Blocks that one reader keeps in memory: 2 MiB, the checksums of 2 GiB of logs."""

_SIDE_FILE_SIZE_MAX = (LOG_BYTES_MAX // fmt.PAGE_SIZE // fmt.BLOCK_PAGES + 2) * fmt.BLOCK_SIZE


def checksums_path(log_path: str, log_id: int) -> str:
    """Where the side file of a log is."""
    return os.path.join(os.path.dirname(log_path), fmt.checksums_name(log_id))


class LogChecksums:
    """Which logs have a side file, and where."""

    def __init__(self, fs: FileSystem, files: OpenFiles) -> None:
        self.fs = fs
        self.files = files
        self._paths: dict[int, str] = {}
        self._writing: dict[int, PageChecksums] = {}
        self.version = 0
        """Changes whenever what was looked up may hold no more."""

    def open(self, log_paths: Mapping[int, str], names: Mapping[str, Sequence[str]]) -> None:
        """Find the side files among the names in the logs' directories; those whose log is gone are removed.

        Raises OSError.
        """
        for directory, those in names.items():
            for name in those:
                log_id = fmt.parse_checksums_name(name)
                if log_id is None:
                    continue
                path = os.path.join(directory, name)
                if log_id in log_paths and checksums_path(log_paths[log_id], log_id) == path:
                    self._paths[log_id] = path
                else:
                    self.fs.unlink(path)

    def path_of(self, log_id: int) -> str | None:
        """The side file of a log, None when it has none."""
        return self._paths.get(log_id)

    def writing(self, log_id: int) -> PageChecksums | None:
        """The checksums of a log that is being written."""
        return self._writing.get(log_id)

    def blocks(self, log_id: int) -> list[Block | None]:
        """All blocks of a log's side file, None for each that is damaged. Raises OSError."""
        path = self._paths.get(log_id)
        if path is None or log_id in self._writing:
            return []
        try:
            file = self.fs.open(path, OpenMode.READ)
        except FileNotFoundError:
            return []
        try:
            data = file.pread(_SIDE_FILE_SIZE_MAX, 0)
        finally:
            file.close()
        return fmt.whole_blocks(
            [
                fmt.decode_block(data[at : at + fmt.BLOCK_SIZE], log_id=log_id, number=at // fmt.BLOCK_SIZE)
                for at in range(0, len(data), fmt.BLOCK_SIZE)
            ]
        )

    def end_of(self, log_id: int) -> int | None:
        """Where a closed log ends by its side file; None where that does not say. Raises OSError."""
        blocks = self.blocks(log_id)
        last = blocks[-1] if blocks else None
        return last.end if last is not None and last.log_ends else None

    def all_checked(self, log_id: int) -> bool:
        """True for a closed log all of whose pages have a checksum. Raises OSError."""
        blocks = self.blocks(log_id)
        return bool(blocks) and None not in blocks and self.end_of(log_id) is not None

    def certain_end(self, log_id: int) -> int | None:
        """Where a closed log ends; None unless its writer made all of its checksums. Raises OSError."""
        blocks = self.blocks(log_id)
        last = blocks[-1] if blocks else None
        certain = last is not None and last.log_ends and not last.as_found and None not in blocks
        return last.end if certain and last is not None else None

    def writer(self, log_id: int, log_path: str) -> LogChecksumWriter:
        """For a log that was just created, and has its header. Raises OSError, as `LogChecksumWriter.synced`."""
        writer = LogChecksumWriter(self, log_id, checksums_path(log_path, log_id), PageChecksums())
        writer.synced()
        self._writing[log_id] = writer.pages
        return writer

    def written(self, log_id: int, path: str | None) -> None:
        """The log is not written any more, and has this side file. From a writer."""
        if path is not None:
            self._paths[log_id] = path
        else:
            self._paths.pop(log_id, None)
        self._writing.pop(log_id, None)
        self.version += 1

    def checked(self, log_id: int) -> Callable[[File], CheckedLog]:
        """What reads the open log and compares its pages."""
        return partial(CheckedLog, self, log_id)

    def adopt(self, log_id: int, log_path: str, crcs: array[int], *, size: int, sealed: bool, as_found: bool) -> None:
        """Give a closed log a new side file. crcs: of all its pages, the last one up to `size`. Raises OSError.

        sealed: its header has a seal. as_found: some are not its writer's.
        """
        path = checksums_path(log_path, log_id)
        self.files.drop(path)
        blocks = fmt.blocks_of(log_id, crcs, size=size, first_page=0, closed=True, sealed=sealed, as_found=as_found)
        replace_durable(self.fs, path, b"".join([block for _, block in blocks]))
        self.files.drop(path)
        self._paths[log_id] = path
        self.version += 1

    def remove(self, log_id: int) -> None:
        """The log is being deleted: its side file goes too; not durably, as it is removed at the next start else."""
        self._writing.pop(log_id, None)
        path = self._paths.pop(log_id, None)
        self.version += 1
        if path is not None:
            self.files.drop(path)
            with contextlib.suppress(OSError):
                self.fs.unlink(path)


class LogChecksumWriter:
    """The side file of one log while that is written.

    OSError is raised only where one that was given up cannot be removed for good (fatal: I-48).
    """

    def __init__(self, owner: LogChecksums, log_id: int, path: str, pages: PageChecksums) -> None:
        self._owner = owner
        self._log_id = log_id
        self._path = path
        self.pages = pages
        self._file: File | None = None
        self._pages_written = 0
        self._given_up = False
        self.append = pages.append

    def synced(self) -> None:
        """All that was appended is durable in the log: write the checksums of its pages."""
        if not self._given_up:
            self._write(self._crcs(), size=self.pages.size, closed=False)
            self._pages_written = len(self.pages.crcs)

    def _crcs(self) -> array[int]:
        crcs = self.pages.crcs[:]
        if self.pages.tail is not None:
            crcs.append(self.pages.tail)
        return crcs

    def close(self, *, sealed: bool) -> None:
        """The log is complete and durable: so is the side file on return. sealed: its header has a seal."""
        if not self._given_up:
            self._write(self._crcs(), size=self.pages.size, closed=True, sealed=sealed)
        self._end(None if self._given_up else self._path)

    def abandon(self) -> None:
        """The log was given up and is removed: so is its side file."""
        self._end(self._path if self._file is not None else None)
        self._owner.remove(self._log_id)

    def _end(self, path: str | None) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
        self._owner.written(self._log_id, path)

    def _write(self, crcs: array[int], *, size: int, closed: bool, sealed: bool = False) -> None:
        fs = self._owner.fs
        try:
            if self._file is None:
                with contextlib.suppress(FileNotFoundError):
                    fs.unlink(self._path)
                self._file = fs.open(self._path, OpenMode.CREATE_EXCLUSIVE)
                fs.sync_dir(os.path.dirname(self._path))
            for offset, block in fmt.blocks_of(
                self._log_id, crcs, size=size, first_page=self._pages_written, closed=closed, sealed=sealed
            ):
                self._file.pwrite(block, offset)
            self._file.sync()
        except OSError as error:
            log.warn(
                "Cannot write {path}: {error}. The entry log beside it is read unchecked until the next scrub",
                path=self._path,
                error=error,
            )
            self._given_up = True
            file, self._file = self._file, None
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(self._path)
            fs.sync_dir(os.path.dirname(self._path))


NOT_IN_MEMORY = object()


class PageCheck:
    """Checks what one reader has read, page by page.

    wait: False looks only at what the page cache holds of the side files.
    """

    def __init__(self, checksums: LogChecksums, *, wait: bool) -> None:
        self._checksums = checksums
        self._wait = wait
        self._version = -1
        self._blocks: OrderedDict[tuple[int, int], Block | None] = OrderedDict()

    def limit(self, log_id: int) -> int:
        """Up to where the log can be checked; ask before reading, so that a page cut by the reading counts as none."""
        pages = self._checksums.writing(log_id)
        return sys.maxsize if pages is None else fmt.page_end(len(pages.crcs) - 1)

    def bad_pages(self, log_id: int, offset: int, data: bytes, limit: int) -> list[int] | None:
        """The pages of `data` that are not what was written; None when that needs a blocking read. Raises OSError.

        offset: of `data` in the log, the start of a page. Where `data` ends inside a page, so does the file.
        """
        if self._version != self._checksums.version:
            self._version = self._checksums.version
            self._blocks.clear()
        bad: list[int] = []
        if not data:
            return bad
        page, last = fmt.page_of(offset), fmt.page_of(offset + len(data) - 1)
        view = memoryview(data)
        while page <= last:
            block = self._block(log_id, page // fmt.BLOCK_PAGES)
            if block is NOT_IN_MEMORY:
                return None
            stop = min(last + 1, (page // fmt.BLOCK_PAGES + 1) * fmt.BLOCK_PAGES)
            if isinstance(block, Block):
                bad += _mismatches(block, page, stop, offset, view, limit)
            page = stop
        return bad

    def _block(self, log_id: int, number: int) -> Block | object | None:
        """The block; None where nothing is known of its pages, NOT_IN_MEMORY where a blocking read must tell."""
        pages = self._checksums.writing(log_id)
        if pages is not None:
            low = number * fmt.BLOCK_PAGES
            return Block(pages.crcs[low : low + fmt.BLOCK_PAGES], low, sys.maxsize, log_ends=False)
        path = self._checksums.path_of(log_id)
        if path is None:
            return None
        key = (log_id, number)
        if key in self._blocks:
            self._blocks.move_to_end(key)
            return self._blocks[key]
        try:
            file = self._checksums.files.acquire(path, OpenMode.READ)
        except FileNotFoundError:
            return None
        try:
            at = number * fmt.BLOCK_SIZE
            if (number + 1) * fmt.BLOCK_SIZE > file.size():
                data: bytes | None = b""
            else:
                data = file.pread(fmt.BLOCK_SIZE, at) if self._wait else file.pread_nowait(fmt.BLOCK_SIZE, at)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror}; the entry log beside it is not read unchecked. Where that stays so, stop the "
                "bookie and move the file away: the scrub makes it anew",
                path,
            ) from error
        finally:
            self._checksums.files.release(file)
        if data is None:
            return NOT_IN_MEMORY
        block = self._blocks[key] = fmt.decode_block(data, log_id=log_id, number=number)
        if len(self._blocks) > BLOCKS_KEPT_MAX:
            self._blocks.popitem(last=False)
        return block


class CheckedLog:
    """An open log whose pages are compared with their checksums at every read: what is copied is whole (I-67).

    As much of a File as reading needs; `pread` raises CorruptRecord besides. Thread: one.
    """

    def __init__(self, checksums: LogChecksums, log_id: int, file: File) -> None:
        self._check = PageCheck(checksums, wait=True)
        self._log_id = log_id
        self._file = file
        self.path = file.path
        self._checksums = checksums

    def pread(self, size: int, offset: int) -> bytes:
        """See File. The header has a seal of its own."""
        if offset < HEADER_SIZE:
            return self._file.pread(size, offset)
        start = max(HEADER_SIZE, offset - offset % fmt.PAGE_SIZE)
        limit = self._check.limit(self._log_id)
        stop = offset + size
        data = self._file.pread(stop + -stop % fmt.PAGE_SIZE - start, start)
        bad = self._check.bad_pages(self._log_id, start, data, limit)
        if bad:
            at = fmt.page_start(bad[0])
            raise CorruptRecord(self.path, at, f"the page of {fmt.PAGE_SIZE} bytes fails its checksum")
        return data[offset - start : stop - start]

    def size(self) -> int:
        """See File; but a log that was cut short ends where its writer had synced it."""
        end = self._checksums.end_of(self._log_id)
        return self._file.size() if end is None else min(end, self._file.size())

    def close(self) -> None:
        """See File."""
        self._file.close()


def _mismatches(block: Block, page: int, stop: int, offset: int, view: memoryview, limit: int) -> list[int]:
    """Those of the pages from `page` to `stop` - 1 whose bytes fail their checksum, or are missing.

    Left out are pages that got whole, or were the last of a log that was closed, after `limit` was asked for: `view`
    may have been read before.
    """
    bad: list[int] = []
    crc = crc32c.crc32c
    crcs, first = block.crcs, block.first_page
    whole = min(stop, first + len(crcs), min(limit, block.end, offset + len(view)) // fmt.PAGE_SIZE)
    if 0 < page < whole:  # nearly always all are good
        starts = range(page * fmt.PAGE_SIZE - offset, whole * fmt.PAGE_SIZE - offset, fmt.PAGE_SIZE)
        found = [crc(view[start : start + fmt.PAGE_SIZE]) for start in starts]
        if array("I", found) == crcs[page - first : whole - first]:
            page = whole
    for number in range(page, min(stop, first + len(crcs))):
        high = fmt.page_end(number)
        if high > limit:
            break
        if high > block.end:
            high = block.end
        if crc(view[fmt.page_start(number) - offset : high - offset]) != crcs[number - first]:
            bad.append(number)
    return bad
