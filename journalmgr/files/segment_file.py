"""One edits file: appending to it, finding out where its whole records end. Blocking.

    mark file    | offset u64 | crc u32 of the offset |    bytes of the segment's file that are durable, big-endian

Thread: worker. Errors: OSError of the disk, and what the functions say.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

from bookkeeper.filesystem import File, FileSystem, OpenMode
from journalmgr.edits.codec import measure
from journalmgr.edits.file import HEADER_SIZE_MAX, decode_header, encode_header, padding
from journalmgr.edits.frame import FRAME_SIZE, RecordDecoder, has_length, next_record_offset
from journalmgr.errors import EditsCorrupt, EditsError, StreamFailed
from journalmgr.model import TxId

UNSYNCED_SIZE_MAX = 4 * 1024 * 1024
"""Bytes that one sync covers at most, unless a single record is larger."""

MARK_SYNC_SIZE = 1024 * 1024
"""Bytes after which the mark itself is synced, so that it outlives a power cut but for these."""

READ_SIZE = 1024 * 1024
"""Bytes of a file that are read at once."""

_OFFSET = struct.Struct(">Q")
_MARK = struct.Struct(">QI")
_PADDING = b"\xff\x00"


class AppendingFile:
    """The file of a segment that is being written. One error ends it: nothing is known of what was under way (I-48)."""

    def __init__(self, file: File, mark: File, *, end: int, preallocation_size: int) -> None:
        self.end = end
        """Behind the last durable record: header_size <= end <= allocated."""
        self.header_size = end
        self._allocated = end
        self._file, self._mark = file, mark
        self._preallocation_size = preallocation_size
        self._failed = False
        self._mark_synced = 0

    @classmethod
    def create(
        cls, fs: FileSystem, path: str, mark_path: str, layout_version: int, *, preallocation_size: int
    ) -> AppendingFile:
        """Make the file with its header. The names are durable once the caller has synced the directory.

        The mark comes first: whoever finds the segment without one knows that it is not of our making.
        """
        header = encode_header(layout_version)
        mark = fs.open(mark_path, OpenMode.CREATE_EXCLUSIVE)
        try:
            mark.pwrite(_encode_mark(0), 0)  # not even the header is durable yet
            mark.sync()
            file = fs.open(path, OpenMode.CREATE_EXCLUSIVE)
            try:
                file.pwrite(header, 0)
                file.sync()
            except BaseException:
                file.close()
                raise
        except BaseException:
            mark.close()
            raise
        return cls(file, mark, end=len(header), preallocation_size=preallocation_size)

    def append(self, records: Sequence[bytes]) -> None:
        """Write whole records; durable on return."""
        if self._failed:
            raise StreamFailed(f"{self._file.path}: an earlier write failed")
        self._failed = True  # until it has succeeded
        for piece in _pieces(records):
            end = self.end + len(piece)
            if end > self._allocated:
                # Written with the data: a sync that changes no file size is cheaper, and most of them will.
                self._allocated = end + self._preallocation_size
                piece += padding(self._preallocation_size)
            self._file.pwrite(piece, self.end)
            self._file.sync()
            self.end = end
            self._mark.pwrite(_encode_mark(end), 0)
            if end - self._mark_synced >= MARK_SYNC_SIZE:
                self._mark.sync()
                self._mark_synced = end
        self._failed = False

    def close(self) -> None:
        """Let go of it. Harmless when repeated."""
        self._file.close()
        self._mark.close()


def _pieces(records: Sequence[bytes]) -> Iterator[bytes]:
    """The records joined, no piece longer than UNSYNCED_SIZE_MAX unless it is a single record."""
    whole = b"".join(records)
    if len(whole) <= UNSYNCED_SIZE_MAX:
        yield whole
        return
    gathered: list[bytes] = []
    size = 0
    for record in records:
        if gathered and size + len(record) > UNSYNCED_SIZE_MAX:
            yield b"".join(gathered)
            gathered, size = [], 0
        gathered.append(record)
        size += len(record)
    yield b"".join(gathered)


def _encode_mark(offset: int) -> bytes:
    packed = _OFFSET.pack(offset)
    return packed + struct.pack(">I", crc32(packed))


def read_mark(fs: FileSystem, path: str) -> int | None:
    """How far the segment is durable at least; None without a mark, or with one that a power cut left in pieces."""
    try:
        file = fs.open(path, OpenMode.READ)
    except FileNotFoundError:
        return None
    try:
        data = file.pread(_MARK.size, 0)
    finally:
        file.close()
    if len(data) < _MARK.size:
        return None
    offset, crc = _MARK.unpack(data)
    return int(offset) if crc == crc32(data[: _OFFSET.size]) else None


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    """What is in a file. layout_version: None where the header is not whole. last_txid: None without a record.

    end: behind the last whole record, or behind the header. fault: why it is not followed by the end or by padding.
    """

    layout_version: int | None
    last_txid: TxId | None
    header_size: int
    end: int
    fault: EditsError | None


def open_header(fs: FileSystem, path: str) -> tuple[int, int] | None:
    """(layout version, size of the header) of a file; None where a crash within its making left no header.

    Raises EditsCorrupt, UnsupportedLayout.
    """
    file = fs.open(path, OpenMode.READ)
    with contextlib.closing(file):
        head = file.pread(HEADER_SIZE_MAX, 0)
    return decode_header(head, path) if head.strip(_PADDING) else None


def decoder_of(layout_version: int, source: str, *, offset: int, expected_txid: int) -> RecordDecoder:
    """What makes records of a file's bytes from an offset on."""
    return RecordDecoder(
        layout_version,
        source=source,
        offset=offset,
        expected_txid=expected_txid,
        measure=None if has_length(layout_version) else measure(layout_version),
    )


def scan(file: File, first_txid: int, *, limit: int | None = None) -> Scan:
    """Read a file up to `limit`, or to its end. Raises GapInTransactions, UnsupportedLayout, UnknownOp."""
    head = file.pread(HEADER_SIZE_MAX, 0)
    if not head.strip(_PADDING):
        return Scan(None, None, 0, 0, None)  # a crash within its making
    try:
        layout_version, header_size = decode_header(head, file.path)
    except EditsCorrupt as error:
        return Scan(None, None, 0, 0, error)
    decoder = decoder_of(layout_version, file.path, offset=header_size, expected_txid=first_txid)
    size = file.size() if limit is None else min(limit, file.size())
    position = end = header_size
    last: TxId | None = None
    fault: EditsError | None = None
    try:
        while position < size:
            data = file.pread(min(READ_SIZE, size - position), position)
            if not data:
                break
            position += len(data)
            if records := decoder.feed(data):
                last, end = records[-1].txid, records[-1].offset + records[-1].size
        decoder.finish()
    except EditsCorrupt as error:
        fault = error
    return Scan(layout_version, last, header_size, end, fault)


# --- behind the last whole record -------------------------------------------------------------------------------------


def torn_end(file: File, found: Scan) -> int:
    """Where the bytes behind the last whole record end that are more than padding; found.end without any.

    They are what a crash left of a write. Raises EditsCorrupt where they are not: see the package.
    """
    size = file.size()
    while size > found.end:
        start = max(found.end, size - READ_SIZE)
        rest = file.pread(size - start, start).rstrip(_PADDING)
        if rest:
            size = start + len(rest)
            break
        size = start
    return max(size, found.end)


def check_torn(file: File, found: Scan, end: int, mark: int | None) -> None:
    """Raise EditsCorrupt if what is behind the last whole record cannot have been left by a crash."""
    if mark is not None and found.end < mark:
        why = "" if found.fault is None else f": {found.fault.why}"
        raise EditsCorrupt(
            f"damaged, although everything up to offset {mark} was durable{why}; restore the file from another copy "
            "of the journal",
            source=file.path,
            offset=found.end,
        )
    if found.layout_version is None:
        start = 0  # the header was durable before any record was written
    elif has_length(found.layout_version):
        start = found.end + UNSYNCED_SIZE_MAX
    else:
        return  # nothing tells where a record begins
    later = _record_behind(file, start, end)
    if later is not None:
        raise EditsCorrupt(
            f"damaged, and at offset {later} there is a whole transaction again: this is no unfinished write; restore "
            "the file from another copy of the journal" + (f" ({found.fault.why})" if found.fault else ""),
            source=file.path,
            offset=found.end,
        )


def _record_behind(file: File, start: int, end: int) -> int | None:
    """Where the first whole record begins at or behind `start`; one larger than READ_SIZE may not be found."""
    while start + FRAME_SIZE <= end:
        window = file.pread(min(2 * READ_SIZE, end - start), start)
        found = next_record_offset(window)
        if found is not None:
            return start + found
        start += READ_SIZE
    return None


def rewrite(file: File, start: int, end: int) -> None:
    """Write these bytes again, as they are read: after a failed sync the system holds them for written (I-48)."""
    while start < end:
        data = file.pread(min(READ_SIZE, end - start), start)
        if not data:
            raise OSError(f"{file.path} ends at {start}, and was longer a moment ago")
        file.pwrite(data, start)
        start += len(data)


def copy_durable(fs: FileSystem, file: File, start: int, end: int, target: str) -> None:
    """A new file with these bytes, durable but for its name. Raises FileExistsError."""
    copy = fs.open(target, OpenMode.CREATE_EXCLUSIVE)
    with contextlib.closing(copy):
        position = start
        while position < end:
            data = file.pread(min(READ_SIZE, end - position), position)
            copy.pwrite(data, position - start)
            position += len(data)
        copy.sync()
