"""Entry logs and index files of a bookie that does not run, compared with the checksums in their side files.

What has no checksum (Apache's bookie wrote it, or a crash came before the checksum) is not judged here: `consistency`
compares it by ids. Reads only. Blocking; any thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import crc32c

from bookkeeper.bookie.integrity.checksums.entry_log import (
    BLOCK_SIZE,
    PAGE_SIZE,
    PageChecksums,
    decode_block,
    page_start,
)
from bookkeeper.bookie.integrity.checksums.entry_log_files import checksums_path
from bookkeeper.bookie.integrity.checksums.index import HEADER_ROW, UNKNOWN, is_damaged, page_checksum
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.integrity.damage.index_texts import file_gone, remedy
from bookkeeper.bookie.offline.fault import Fault
from bookkeeper.bookie.offline.needed_entries import needed_entries, told
from bookkeeper.bookie.storage.disks import current
from bookkeeper.bookie.storage.entry_log.format import HEADER_SIZE, parse_log_name
from bookkeeper.bookie.storage.index import format as index_fmt
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.filesystem import FileSystem, OpenMode

LAST_ID_NAME = "lastId"
_READ_SIZE = 1024 * 1024
_LAST_ID_SIZE_MAX = 64


def highest_log_id(fs: FileSystem, ledger_dirs: Sequence[str]) -> int:
    """Of all entry logs that ever were here, as a bookie finds it when it starts; 0 for none. Raises OSError."""
    highest = 0
    for directory in map(current, ledger_dirs):
        highest = max(
            [highest, *(log_id for log_id in map(parse_log_name, fs.listdir(directory)) if log_id is not None)]
        )
        path = os.path.join(directory, LAST_ID_NAME)
        if fs.exists(path):
            file = fs.open(path, OpenMode.READ)
            try:
                text = file.pread(_LAST_ID_SIZE_MAX, 0).strip()
            finally:
                file.close()
            highest = max(highest, int(text, 16) if text and not text.strip(b"0123456789abcdef") else 0)
    return highest


def check_log_pages(fs: FileSystem, log_id: int, path: str, indexes: Mapping[int, str]) -> Iterator[Fault]:
    """Pages of a log that are not as they were written; neighbours make one fault. Raises OSError.

    indexes: the index file of each ledger; they tell which entries are there.
    """
    side_path = checksums_path(path, log_id)
    if not fs.exists(side_path):
        return
    crcs, size = _page_crcs(fs, path)
    bad: list[int] = []
    for number, data in enumerate(_blocks(fs, side_path)):
        block = decode_block(data, log_id=log_id, number=number)
        if block is None:
            yield Fault(side_path, number * BLOCK_SIZE, "these checksums are damaged: the log is read unchecked there")
            continue
        # What a killed bookie appended behind its last checkpoint has no checksum, also where it begins inside a page.
        cut = block.first_page + len(block.crcs) - 1 if block.end % PAGE_SIZE and size > block.end else -1
        for page, crc in enumerate(block.crcs, block.first_page):
            found = _crc_up_to(fs, path, page, block.end) if page == cut else crcs[page] if page < len(crcs) else None
            if found != crc:
                bad.append(page)
        if block.log_ends and size < block.end:
            yield Fault(path, size, f"the log ends here, but it had {block.end} bytes when it was closed")
    runs: list[tuple[int, int]] = []
    for page in bad:
        first, stop = page_start(page), page_start(page + 1)
        if runs and runs[-1][1] == first:
            runs[-1] = (runs[-1][0], stop)
        else:
            runs.append((first, stop))
    if not runs:
        return
    for (first, stop), there in zip(runs, needed_entries(fs, indexes, log_id, path, runs), strict=True):
        why = f"bytes {first} to {stop - 1} are not as they were written (checksum); {told(there)}"
        yield Fault(path, first, why, next(iter(there)) if len(there) == 1 else None)


def _crc_up_to(fs: FileSystem, path: str, page: int, end: int) -> int:
    file = fs.open(path, OpenMode.READ)
    try:
        return int(crc32c.crc32c(file.pread(end - page_start(page), page_start(page))))
    finally:
        file.close()


def _page_crcs(fs: FileSystem, path: str) -> tuple[Sequence[int], int]:
    file = fs.open(path, OpenMode.READ)
    try:
        pages, offset, size = PageChecksums(), HEADER_SIZE, file.size()
        while offset < size:
            data = file.pread(min(_READ_SIZE - offset % _READ_SIZE, size - offset), offset)
            if not data:
                break
            pages.append(data)
            offset += len(data)
    finally:
        file.close()
    return [*pages.crcs, *([] if pages.tail is None else [pages.tail])], size


def _blocks(fs: FileSystem, path: str) -> Iterator[bytes]:
    file = fs.open(path, OpenMode.READ)
    try:
        for offset in range(0, file.size(), BLOCK_SIZE):
            yield file.pread(BLOCK_SIZE, offset)
    finally:
        file.close()


class IndexPages:
    """The known checksums of index pages. Raises OSError."""

    def __init__(self, fs: FileSystem, ledger_dirs: Sequence[str], index_dirs: Sequence[str]) -> None:
        self._fs = fs
        self._index_dirs = index_dirs
        self._checksums = IndexChecksums(fs, index_dirs)
        self._problems = self._checksums.inspect(highest_log_id(fs, ledger_dirs))

    def check_files(self) -> Iterator[Fault]:
        """The side files themselves, and index files that they know and that are gone."""
        for directory, problem in self._problems.items():
            yield Fault(self._checksums.path_of(directory), None, f"{problem}: the index is read unchecked")
        for directory in self._index_dirs:
            for ledger_id in self._checksums.known_ledgers(directory):
                if self._checksums.pages_of(directory, ledger_id):
                    path = index_path(directory, ledger_id)
                    if not self._fs.exists(path):
                        yield Fault(path, None, file_gone(ledger_id), ledger_id)

    def check(self, ledger_id: int, path: str) -> Iterator[Fault]:
        """Pages of a ledger's index file that are not as they were written."""
        directory = self._directory_of(ledger_id, path)
        if directory is None:
            return
        known = self._checksums.pages_of(directory, ledger_id)
        file = self._fs.open(path, OpenMode.READ)
        try:
            for page in sorted(known):
                value = known[page]
                if value == UNKNOWN or page == HEADER_ROW:
                    continue
                offset = index_fmt.slot_offset(page * index_fmt.PAGE_SLOTS)
                if is_damaged(value):
                    why = "the page was damaged when it was written last: its zeros mean nothing"
                elif page_checksum(file.pread(index_fmt.PAGE_SIZE, offset)) != value:
                    first = page * index_fmt.PAGE_SLOTS
                    why = f"entries {first} to {first + index_fmt.PAGE_SLOTS - 1}: not as it was written (checksum)"
                else:
                    continue
                why = f"{why}; the bookie makes the page anew where that is certain. Else, {remedy(ledger_id)}"
                yield Fault(path, offset, why, ledger_id)
        finally:
            file.close()

    def is_as_written(self, ledger_id: int, path: str, page: int) -> bool:
        """True when a page certainly has what was written to it last, so that its zeros mean "not held"."""
        directory = self._directory_of(ledger_id, path)
        if directory is None:
            return False
        file = self._fs.open(path, OpenMode.READ)
        try:
            data = file.pread(index_fmt.PAGE_SIZE, index_fmt.slot_offset(page * index_fmt.PAGE_SLOTS))
        finally:
            file.close()
        value = self._checksums.value(directory, ledger_id, page)
        if value == UNKNOWN:
            return self._checksums.is_complete(directory) and not any(data)
        return value == page_checksum(data)

    def _directory_of(self, ledger_id: int, path: str) -> str | None:
        return next((each for each in self._index_dirs if index_path(each, ledger_id) == path), None)
