"""Look into entry logs and index files without a bookie: for the command line, on Apache's directories as well as ours.

Read only, blocking, any thread. As tolerant as Apache's own tools: a log without a map is scanned, a cut tail ends the
scan, padding is skipped. Damage that hides entries raises; nothing is silently left out in the middle.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bookkeeper.bookie.storage.disks import current
from bookkeeper.bookie.storage.entry_log import format as log_fmt
from bookkeeper.bookie.storage.index import format as index_fmt
from bookkeeper.bookie.storage.index.files import TEMPORARY_SUFFIX
from bookkeeper.errors import CorruptRecord
from bookkeeper.filesystem import File, FileSystem, OpenMode

READ_SIZE = 1024 * 1024
_HEX = frozenset("0123456789abcdef")


class LogBytes(Protocol):
    """As much of a File as reading a log needs."""

    def pread(self, size: int, offset: int) -> bytes:
        """See File."""

    def size(self) -> int:
        """See File."""

    def close(self) -> None:
        """See File."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One entry in a log. location: as the index has it. body: None when only heads were asked for."""

    location: int
    ledger_id: int
    entry_id: int
    size: int
    body: bytes | None

    @property
    def offset(self) -> int:
        """Offset of the body in the file."""
        return self.location & log_fmt.OFFSET_MASK


def is_unwritten(file: LogBytes) -> bool:
    """True for a log that was created and in which nothing stands yet but the header, or a part of it: it has no entry.

    A genuine bookie creates the next log ahead of its need and leaves it empty when it stops; a killed bookie of ours
    may not have come to write the header.
    """
    if file.size() > log_fmt.HEADER_SIZE:
        return False
    data = file.pread(log_fmt.HEADER_SIZE, 0)
    return not data.strip(b"\0") or log_fmt.encode_header(log_fmt.LogHeader()).startswith(data)


def read_log_header(fs: FileSystem, path: str) -> log_fmt.LogHeader:
    """Raises CorruptRecord, UnknownFormatVersion, OSError."""
    file = fs.open(path, OpenMode.READ)
    try:
        return log_fmt.decode_header(file.pread(log_fmt.HEADER_SIZE, 0), path)
    finally:
        file.close()


def read_ledgers_map(fs: FileSystem, path: str) -> dict[int, int] | None:
    """Ledger id -> bytes; None when the log has no map and must be scanned (I-60).

    Raises CorruptRecord when what the header points to is not a whole map (the log is to be scanned then too), OSError.
    """
    file = fs.open(path, OpenMode.READ)
    try:
        header = log_fmt.decode_header(file.pread(log_fmt.HEADER_SIZE, 0), path)
        if not header.map_offset:
            return None
        size = file.size() - header.map_offset
        if size < 0:
            raise CorruptRecord(path, 8, f"the ledgers map is said to be at {header.map_offset}, beyond the end")
        data = file.pread(size, header.map_offset)
        return log_fmt.decode_ledgers_map(data, ledger_count=header.ledger_count, offset=header.map_offset, path=path)
    finally:
        file.close()


def scan_ledgers(fs: FileSystem, path: str) -> dict[int, int]:
    """The map as a scan of the records gives it."""
    found: dict[int, int] = {}
    for record in iter_records(fs, path, log_id=0, bodies=False):
        found[record.ledger_id] = found.get(record.ledger_id, 0) + record.size + log_fmt.SIZE.size
    return found


def iter_records(
    fs: FileSystem,
    path: str,
    *,
    log_id: int,
    start: int = log_fmt.HEADER_SIZE,
    bodies: bool = True,
    check: Callable[[File], LogBytes] | None = None,
) -> Iterator[LogRecord]:
    """The entries of a log in order of position; a cut record at the end is left out.

    To the end of the file: Apache's storage may add entries to a log while it appends the ledgers map, so that some
    lie where its header says the map begins.

    start: an offset where a record begins. bodies False: heads only, bodies are skipped over. check: what reads the
    open file instead, and may raise CorruptRecord for what it finds.
    Raises CorruptRecord for a size below an entry's head, UnknownFormatVersion, OSError.
    """
    opened = fs.open(path, OpenMode.READ)
    file: LogBytes = opened if check is None else check(opened)
    try:
        log_fmt.decode_header(file.pread(log_fmt.HEADER_SIZE, 0), path)
        end = file.size()
        window = _Window(file)
        offset = start
        while offset + log_fmt.RECORD_HEAD.size <= end:
            head = window.get(offset, log_fmt.RECORD_HEAD.size)
            size, ledger_id, entry_id = log_fmt.RECORD_HEAD.unpack(head)
            if size <= 0:
                offset = window.skip_padding(offset, end)
                continue
            if size < log_fmt.RECORD_SIZE_MIN:
                raise CorruptRecord(path, offset, f"a record of {size} bytes; an entry has at least 16")
            body_offset = offset + log_fmt.SIZE.size
            if body_offset + size > end:
                return
            if ledger_id != log_fmt.MAP_LEDGER_ID:
                body = window.get(body_offset, size) if bodies else None
                yield LogRecord(log_fmt.location(log_id, body_offset), ledger_id, entry_id, size, body)
            offset = body_offset + size
    finally:
        file.close()


class _Window:
    """Sequential reads of a file through one buffer of READ_SIZE, or of one record if that is larger."""

    def __init__(self, file: LogBytes) -> None:
        self._file = file
        self._start = 0
        self._data = b""

    def get(self, offset: int, size: int) -> bytes:
        at = offset - self._start
        if at < 0 or at + size > len(self._data):
            self._data = self._file.pread(max(READ_SIZE, size), offset)
            self._start, at = offset, 0
        return self._data[at : at + size]

    def skip_padding(self, offset: int, end: int) -> int:
        """Offset of the next size field that is positive, byte by byte as Apache does; zeros are skipped in bulk."""
        data = self.get(offset, min(READ_SIZE, end - offset))
        zeros = len(data) - len(data.lstrip(b"\0"))
        # A size of 1..2**24 has a zero byte in front: leave up to three of them for it.
        return offset + max(1, zeros - 3)


def read_entry(fs: FileSystem, path: str, location: int) -> LogRecord:
    """The record at a location, whatever its ids are. Raises CorruptRecord, OSError."""
    log_id, offset = log_fmt.split_location(location)
    file = fs.open(path, OpenMode.READ)
    try:
        head = file.pread(log_fmt.RECORD_HEAD.size, offset - log_fmt.SIZE.size)
        if len(head) < log_fmt.RECORD_HEAD.size:
            raise CorruptRecord(path, offset, "the file ends before the record")
        size, ledger_id, entry_id = log_fmt.RECORD_HEAD.unpack(head)
        if size < log_fmt.RECORD_SIZE_MIN or offset + size > file.size():
            raise CorruptRecord(path, offset, f"a record of {size} bytes does not fit")
        return LogRecord(log_fmt.location(log_id, offset), ledger_id, entry_id, size, file.pread(size, offset))
    finally:
        file.close()


def read_index_header(fs: FileSystem, path: str) -> index_fmt.IndexHeader:
    """Raises CorruptRecord, UnknownFormatVersion, OSError."""
    file = fs.open(path, OpenMode.READ)
    try:
        return index_fmt.decode_header(file.pread(index_fmt.HEADER_SIZE, 0), path)
    finally:
        file.close()


def damaged_header_copy(fs: FileSystem, path: str) -> tuple[int, str] | None:
    """See `index.format.damaged_copy`. Raises OSError."""
    file = fs.open(path, OpenMode.READ)
    try:
        return index_fmt.damaged_copy(file.pread(index_fmt.HEADER_SIZE, 0))
    finally:
        file.close()


def iter_index(fs: FileSystem, path: str) -> Iterator[tuple[int, int]]:
    """(entry id, location) of every entry, ascending. A file cut inside a location ends before it. Raises OSError."""
    file = fs.open(path, OpenMode.READ)
    try:
        slot_count = max(0, file.size() - index_fmt.HEADER_SIZE) // index_fmt.SLOT_SIZE
        for first in range(0, slot_count, index_fmt.PAGE_SLOTS):
            count = min(index_fmt.PAGE_SLOTS, slot_count - first)
            data = file.pread(count * index_fmt.SLOT_SIZE, index_fmt.slot_offset(first))
            whole = len(data) // index_fmt.SLOT_SIZE * index_fmt.SLOT_SIZE
            for slot, location in enumerate(index_fmt.decode_slots(data[:whole])):
                if location:
                    yield first + slot, location
    finally:
        file.close()


def list_entry_logs(fs: FileSystem, ledger_dirs: Sequence[str]) -> list[tuple[int, str]]:
    """(log id, path) in the configured directories, ascending. Raises OSError."""
    found: list[tuple[int, str]] = []
    for directory in ledger_dirs:
        base = current(directory)
        for name in fs.listdir(base):
            log_id = log_fmt.parse_log_name(name)
            if log_id is not None:
                found.append((log_id, os.path.join(base, name)))
    return sorted(found)


def list_unfinished_index_files(fs: FileSystem, index_dirs: Sequence[str]) -> list[str]:
    """Paths of index files that a crash, or a full disk, kept from getting their names. Raises OSError."""
    return [
        os.path.join(directory, name)
        for directory in index_subdirectories(fs, index_dirs)
        for name in fs.listdir(directory)
        if name.endswith(TEMPORARY_SUFFIX)
    ]


def list_index_files(fs: FileSystem, index_dirs: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(ledger id, path) in the configured directories, each once per file. Raises OSError."""
    for directory in index_subdirectories(fs, index_dirs):
        for name in fs.listdir(directory):
            ledger_id = index_fmt.parse_index_name(name)
            if ledger_id is not None:
                yield ledger_id, os.path.join(directory, name)


def index_subdirectories(fs: FileSystem, index_dirs: Sequence[str]) -> Iterator[str]:
    """The directories that index files are in, at most 65536 in each index directory. Raises OSError."""
    for directory in index_dirs:
        base = current(directory)
        for outer in filter(_is_hex_byte, fs.listdir(base)):
            outer_path = os.path.join(base, outer)
            for inner in filter(_is_hex_byte, fs.listdir(outer_path)):
                yield os.path.join(outer_path, inner)


def list_ledger_ids(fs: FileSystem, index_dirs: Sequence[str]) -> Iterator[int]:
    """Ledger ids with an index file, one directory after another."""
    for ledger_id, _ in list_index_files(fs, index_dirs):
        yield ledger_id


def _is_hex_byte(name: str) -> bool:
    return len(name) <= 2 and bool(name) and set(name) <= _HEX
