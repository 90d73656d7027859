"""One journal file: its records, and where and how they end. Reads only.

Two kinds of files, told apart by the empty group every file of ours begins with:

- ours: groups with checksums. The first position without a valid group is the end. Whether that end is a torn tail or
  damage is judged by what follows (`valid_group_after`) and by the files after it (`replay`).
- Apache's: records without checksums. Apache's rule ends the file at a length of zero, at the end of the file and at a
  record cut off there. Differs from Apache: an impossible length with anything but zeros behind it, and a record that
  runs past the end although a whole flush lies behind its beginning, are damage and not an end (I-51).

Source: Apache 4.18 bookie/Journal.java (scanJournal), for the second kind.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from bookkeeper.bookie.journal.format import (
    ALIGNMENT,
    GROUP_RECORD_SIZE,
    GROUP_SIZE_MAX,
    HEADER,
    HEADER_SIZE,
    IDS_SIZE,
    LENGTH,
    PADDING_HEAD,
    PADDING_LENGTH,
    PADDING_SINCE,
    RECORD_HEAD,
    RECORD_SIZE_MAX,
    VERSION,
    VERSION_MIN,
    Group,
    decode_group,
    decode_header,
    encode_header,
    file_name,
    group_is_intact,
    group_needle,
)
from bookkeeper.bookie.journal.records import RecordSink, ReplayVisitor
from bookkeeper.errors import CorruptRecord, UnknownFormatVersion
from bookkeeper.filesystem import File, FileSystem, OpenMode

WINDOW_SIZE = 4 * 1024 * 1024
"""Bytes read at once."""


@dataclass(frozen=True, slots=True)
class FileScan:
    """What one file held.

    end: offset behind the last record (group, in our files) that was read.
    torn: what stands at `end` instead of zeros or the end of the file; None where it is clean.
    synced: in our files, the file and offset that were durable when this one was begun.
    last_start: in our files, where the last group read begins; `end` where none was.
    """

    journal_id: int
    version: int
    ours: bool
    end: int
    torn: str | None
    synced: tuple[int, int] | None = None
    last_start: int = 0
    record_count: int = 0
    ignored_count: int = 0


def scan_file(fs: FileSystem, directory: str, journal_id: int, offset: int, visitor: ReplayVisitor) -> FileScan:
    """Read one file from `offset` (0: from its first record) and pass its records on.

    Raises CorruptRecord where it is damaged, UnknownFormatVersion, or OSError.
    """
    file = fs.open(os.path.join(directory, file_name(journal_id)), OpenMode.READ)
    try:
        return JournalScan(file, journal_id).run(offset, visitor)
    finally:
        file.close()


class Window:
    """A part of a file in memory, moved on as needed. At most WINDOW_SIZE or one group, whichever is more."""

    __slots__ = ("_file", "data", "size", "start")

    def __init__(self, file: File) -> None:
        self._file = file
        self.size = file.size()
        self.start = 0
        self.data = b""

    def reach(self, offset: int, size: int) -> int:
        """Make bytes from `offset` on available, `size` of them where the file has as many; returns their index."""
        at = offset - self.start
        if at < 0 or (at + size > len(self.data) and self.start + len(self.data) < self.size):
            self.data = self._file.pread(max(size, WINDOW_SIZE), offset)
            self.start, at = offset, 0
        return at


class JournalScan:
    """One open journal file."""

    def __init__(self, file: File, journal_id: int) -> None:
        self._file = file
        self._id = journal_id
        self._window = Window(file)
        self._size = self._window.size
        self._first_group = self._group_at(HEADER_SIZE)

    @property
    def synced(self) -> tuple[int, int] | None:
        """File and offset that were durable when this file was begun; None in a file that is not (visibly) ours."""
        group = self._first_group
        return None if group is None else (group.synced_file_id, group.synced_offset)

    def run(self, offset: int, visitor: ReplayVisitor) -> FileScan:
        """See `scan_file`."""
        if offset > self._size:
            raise self._corrupt(self._size, f"it ends here, but the mark says that offset {offset} was written")
        sink = RecordSink(visitor)
        # Apache's marks after a replay lie 4 bytes behind the end; starting a little earlier does no harm.
        aligned = offset - offset % ALIGNMENT
        if self._first_group is not None or (aligned >= HEADER_SIZE and self._group_at(aligned) is not None):
            scan = self._run_groups(max(aligned, HEADER_SIZE), sink, marked=aligned > HEADER_SIZE)
        else:
            scan = self._run_records(offset, sink)
        sink.flush()
        return scan

    def _corrupt(self, offset: int, why: str) -> CorruptRecord:
        return CorruptRecord(self._file.path, offset, why)

    # --- our files

    def _run_groups(self, start: int, sink: RecordSink, *, marked: bool) -> FileScan:
        head = self._file.pread(HEADER_SIZE, 0)
        version, _ = decode_header(head)
        if head != encode_header(version) or not PADDING_SINCE <= version <= VERSION:
            raise self._corrupt(0, "the file header is not the one that was written")
        window, path, position = self._window, self._file.path, start
        last_start = start
        while (group := self._group_at(position)) is not None:
            at = window.reach(position, group.total_size)
            records_at = at + GROUP_RECORD_SIZE
            sink.take_all(
                window.data,
                records_at,
                records_at + group.records_size,
                path=path,
                base=window.start,
                version=VERSION,
            )
            last_start, position = position, group.end
        if marked and position == start and self._group_before(start) is None:
            raise self._corrupt(start, "neither does a group begin at the mark nor does one end there")
        torn = None if self.is_zero_from(position) else "bytes that are no valid group"
        if torn is not None:
            self._refuse_if_a_group_follows(position)
        return FileScan(
            self._id, version, True, position, torn, self.synced, last_start, sink.record_count, sink.ignored_count
        )

    def _group_at(self, offset: int) -> Group | None:
        """The intact group at an offset; afterwards the window holds as much of it as the file does."""
        at = self._window.reach(offset, GROUP_RECORD_SIZE)
        group = decode_group(self._window.data, at, file_id=self._id, start=offset)
        if group is None or group.records_end > self._size:
            return None
        at = self._window.reach(offset, group.total_size)
        return group if group_is_intact(group, self._window.data, at) else None

    def _refuse_if_a_group_follows(self, position: int) -> None:
        found = self.valid_group_after(position)
        if found is not None:
            raise self._corrupt(
                position,
                f"no valid group is here, but one follows at offset {found}: acknowledged records are damaged; "
                "restore the file from a copy. If there is none, 'bookkeeper shell bookieformat' empties this bookie, "
                "and only other bookies hold its entries",
            )

    def valid_group_after(self, offset: int) -> int | None:
        """Offset of the first intact group of this file behind `offset`."""
        needle = group_needle(self._id)
        while offset < self._size:
            data = self._file.pread(WINDOW_SIZE, offset)
            at = data.find(needle)
            while at >= 0:
                found = offset + at
                if found % ALIGNMENT == 0 and self._group_at(found) is not None:
                    return found
                at = data.find(needle, at + 1)
            offset += WINDOW_SIZE - len(needle)
        return None

    def _group_before(self, offset: int) -> Group | None:
        """The intact group that ends at `offset`."""
        needle = group_needle(self._id)
        low = offset
        while low > max(HEADER_SIZE, offset - GROUP_SIZE_MAX):
            high = low + len(needle) if low < offset else offset
            low = max(HEADER_SIZE, high - WINDOW_SIZE)
            data = self._file.pread(high - low, low)
            at = data.rfind(needle)
            while at >= 0:
                group = self._group_at(low + at) if (low + at) % ALIGNMENT == 0 else None
                if group is not None:
                    return group if group.end == offset else None
                at = data.rfind(needle, 0, at + len(needle) - 1)
        return None

    def is_zero_from(self, offset: int) -> bool:
        """True when only zeros, or nothing, follow."""
        return self.nonzero_end(offset) == offset

    def nonzero_end(self, offset: int) -> int:
        """Offset behind the last byte at or behind `offset` that is not zero; `offset` when there is none."""
        end = offset
        while offset < self._size:
            data = self._file.pread(WINDOW_SIZE, offset)
            kept = len(data.rstrip(b"\0"))
            if kept:
                end = offset + kept
            offset += WINDOW_SIZE
        return end

    # --- Apache's files

    def _run_records(self, offset: int, sink: RecordSink) -> FileScan:
        version, first = decode_header(self._file.pread(HEADER.size, 0))
        if not VERSION_MIN <= version <= VERSION:
            raise UnknownFormatVersion(
                f"{self._file.path} has journal format version {version}; this release reads {VERSION_MIN} to {VERSION}"
            )
        window, path, position = self._window, self._file.path, max(offset, first)
        torn: str | None = None
        while True:
            at = window.reach(position, RECORD_HEAD.size)
            taken = sink.take_some(window.data, at, len(window.data), path=path, base=window.start, version=version)
            position = window.start + taken
            at = window.reach(position, PADDING_HEAD.size)
            if position + LENGTH.size > self._size:
                break
            (size,) = LENGTH.unpack_from(window.data, at)
            if size == 0:
                break
            if size == PADDING_LENGTH and version >= PADDING_SINCE:
                ahead = self._behind_padding(position, at)
                if ahead is None:
                    torn = "a padding record that runs past the end of the file"
                    break
                position = ahead
                continue
            if size < IDS_SIZE or size > RECORD_SIZE_MAX:
                torn = self._impossible_length(position, size)
                break
            if position + LENGTH.size + size > self._size:
                torn = self._cut_off(position, size, version)
                break
            window.reach(position, LENGTH.size + size)  # whole now: the next round takes it
        self._refuse_if_a_group_follows(position)
        return FileScan(self._id, version, False, position, torn, None, position, sink.record_count, sink.ignored_count)

    def _behind_padding(self, position: int, at: int) -> int | None:
        if position + PADDING_HEAD.size > self._size:
            return None
        _, size = PADDING_HEAD.unpack_from(self._window.data, at)
        if size < 0 or size > RECORD_SIZE_MAX:
            raise self._corrupt(position, f"a padding record of {size} bytes")
        end = position + PADDING_HEAD.size + int(size)
        return end if end <= self._size else None

    def _impossible_length(self, position: int, size: int) -> str:
        if not self.is_zero_from(position + LENGTH.size):
            raise self._corrupt(position, f"{size} cannot be the length of a record, and more data follows")
        return f"a record length of {size}, with nothing behind it"

    def _cut_off(self, position: int, size: int, version: int) -> str:
        if version >= PADDING_SINCE:
            found = self._flush_after(position)
            if found is not None:
                raise self._corrupt(
                    position, f"a record of {size} bytes would pass the end of the file, yet records follow at {found}"
                )
        return f"a record of {size} bytes that runs past the end of the file"

    def _flush_after(self, position: int) -> int | None:
        """Offset behind `position` where whole records up to a padding record begin, as after each flush."""
        offset = position - position % ALIGNMENT + ALIGNMENT
        while offset + RECORD_HEAD.size <= self._size:
            if self._is_flush(offset):
                return offset
            offset += ALIGNMENT
        return None

    def _is_flush(self, offset: int) -> bool:
        record_count = 0
        while offset + RECORD_HEAD.size <= self._size:
            at = self._window.reach(offset, RECORD_HEAD.size)
            size, ledger_id, _ = RECORD_HEAD.unpack_from(self._window.data, at)
            if size == PADDING_LENGTH:
                end = self._behind_padding_or_none(offset, at)
                return record_count > 0 and end is not None and end % ALIGNMENT == 0
            if not IDS_SIZE <= size <= RECORD_SIZE_MAX or ledger_id < 0:
                return False
            offset += LENGTH.size + size
            record_count += 1
        return False

    def _behind_padding_or_none(self, position: int, at: int) -> int | None:
        try:
            return self._behind_padding(position, at)
        except CorruptRecord:
            return None
