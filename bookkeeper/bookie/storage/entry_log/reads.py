"""Bodies out of entry logs, many at a time through one window.

Entries of one ledger lie together (a flush sorts them), so a batch of reads costs one read of the disk, or none when
the last window still covers it. A window begins and ends where pages do, and each of its pages is compared with the
log's side file once (checksums/entry_log.py); every body is checked against the ids asked for before it is handed out,
and nothing that goes wrong here ever means "no such entry" (I-31). What is certainly damaged is noted in the damage
record, and where it lies, so that the scrub finds the other entries there (damage/entries.py). A log that is not to be
found is not certainly gone: a collection may have moved the entry between its look-up and the read. The scrub looks
once more.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence

from bookkeeper.bookie.integrity.checksums.entry_log import PAGE_SIZE, page_of, page_start
from bookkeeper.bookie.integrity.checksums.entry_log_files import LogChecksums, PageCheck
from bookkeeper.bookie.integrity.damage.log_lines import DamageLines
from bookkeeper.bookie.integrity.damage.record import Damage, DamageKind, DamageRecord
from bookkeeper.bookie.integrity.damage.suspect_bytes import GONE, gone_from
from bookkeeper.bookie.storage.entry_log.format import (
    HEADER_SIZE,
    LOG_BYTES_MAX,
    OFFSET_MASK,
    RECORD_HEAD,
    RECORD_SIZE_MIN,
    SIZE,
)
from bookkeeper.bookie.storage.entry_log.logs import EntryLogs
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.bookie.storage.index.format import PAGE_SLOTS, slot_offset
from bookkeeper.bookie.storage.open_files import OpenFiles
from bookkeeper.filesystem import File, OpenMode
from bookkeeper.model import Status
from bookkeeper.wire.digest import name_run
from bookkeeper.wire.packed_bodies import PackedBodies, packed

WINDOW_SIZE_MAX = 1024 * 1024
READ_AHEAD_SIZE = 64 * 1024
GAP_SIZE_MAX = 32 * 1024
"""Locations further apart than this are read separately."""
RUN_BODY_SIZE_MAX = 64 * 1024
"""Larger entries gain nothing by being cut together."""
IDS = struct.Struct(">qq")
HEAD_SIZE = RECORD_HEAD.size
_LOCATION_MAX = 2**63 - 1
TAIL_SIZE = 4096
"""Guess for the last entry of a window, whose size is not known before it is read."""


Located = tuple[int, int, int]
"""Location, entry id, place in the caller's results."""

Results = list[bytes | Status | None]


class LogReader:
    """Reads for one thread; keeps its last window (at most WINDOW_SIZE_MAX bytes and one entry).

    wait: False reads only what the page cache holds (the reactor), True blocks (the read worker).
    """

    def __init__(
        self,
        logs: EntryLogs,
        files: OpenFiles,
        damage: DamageRecord,
        lines: DamageLines,
        index_dirs: Sequence[str],
        *,
        wait: bool,
    ) -> None:
        self._logs = logs
        self._files = files
        self._damage = damage
        self._lines = lines
        self._index_dirs = index_dirs
        self._wait = wait
        self._check = PageCheck(logs.checksums, wait=wait)
        self._log_id = -1
        self._start = 0
        self._data = b""
        self._bad: Sequence[int] = ()  # pages of the window that fail their checksum

    def read(self, ledger_id: int, wanted: Sequence[Located], results: Results) -> None:
        """Fill `results` at the places of `wanted`: a body, IO_ERROR, or None where only a blocking read can tell."""
        ordered = sorted(wanted)
        position, count = 0, len(ordered)
        while position < count:
            log_id = ordered[position][0] >> 32
            end = position + 1
            while end < count and ordered[end][0] >> 32 == log_id:
                end += 1
            self._read_log(log_id, ledger_id, ordered[position:end], results)
            position = end

    def read_run(self, ledger_id: int, first_entry_id: int, locations: array[int]) -> list[bytes] | None:
        """Consecutive entries of one size that lie one behind the other: cut and checked together.

        None, and nothing is said of any of them, where that is not so, or they cannot be had in one read: see `read`.
        """
        count, first, step = len(locations), locations[0], locations[1] - locations[0]
        if not RECORD_SIZE_MIN < step <= WINDOW_SIZE_MAX or locations != stepping(first, step, count):
            return None
        bodies = self.read_packed(ledger_id, first_entry_id, first, step, count)
        return None if bodies is None else list(bodies.cut())

    def read_packed(
        self, ledger_id: int, first_entry_id: int, location: int, step: int, count: int
    ) -> PackedBodies | None:
        """The same of entries whose locations are `step` apart, left as they lie in the window."""
        size = step - SIZE.size
        if not RECORD_SIZE_MIN <= size <= RUN_BODY_SIZE_MAX or step * count > WINDOW_SIZE_MAX:
            return None
        if location >> 32 != location + step * (count - 1) >> 32:
            return None
        at = self._find_block(location >> 32, (location & OFFSET_MASK) - SIZE.size, step * count)
        if at is None:
            return None
        bodies = packed(self._data, at, at + step * count)
        if bodies is None or bodies.body_size != size:
            return None
        (heads,) = bodies.columns(f"{IDS.size}s{size - IDS.size}x")
        return bodies if name_run(heads, ledger_id, first_entry_id) else None

    def _find_block(self, log_id: int, offset: int, size: int) -> int | None:
        """Where in the window bytes of a log are, read from the file if need be; None unless all can be had."""
        if log_id != self._log_id or not self._start <= offset <= self._start + len(self._data) - size:
            path = self._logs.path_of(log_id)
            if path is None:
                return None
            try:
                file = self._files.acquire(path, OpenMode.READ)
            except OSError:
                return None
            try:
                self._turn_to(log_id)
                if not self._fill(file, offset, size) or self._start + len(self._data) < offset + size:
                    return None
            except OSError:
                return None
            finally:
                self._files.release(file)
        if self._bad:
            return None
        return offset - self._start

    def _read_log(self, log_id: int, ledger_id: int, ordered: list[Located], results: Results) -> None:
        path = self._logs.path_of(log_id)
        if path is None:
            self._miss(log_id, ledger_id, ordered, results)
            return
        try:
            file = self._files.acquire(path, OpenMode.READ)
        except FileNotFoundError:
            self._miss(log_id, ledger_id, ordered, results)
            return
        except OSError as error:
            self._lines.unreadable(path, error)
            self._fail(ordered, results)
            return
        try:
            self._turn_to(log_id)
            self._read_bodies(file, path, ledger_id, ordered, results)
        except OSError as error:
            self._lines.unreadable(path, error)
            for _, _, index in ordered:
                if results[index] is None:
                    results[index] = Status.IO_ERROR
        finally:
            self._files.release(file)

    def _miss(self, log_id: int, ledger_id: int, ordered: list[Located], results: Results) -> None:
        """A log that never was here is named by a damaged index page only: it is neither told nor looked at."""
        self._fail(ordered, results)
        if not 0 <= log_id <= self._logs.highest_log_id:
            return
        for location, entry_id, _ in ordered:
            on_page = is_on_damaged_page(self._damage, self._index_dirs, ledger_id, entry_id)
            if not on_page and location & OFFSET_MASK >= HEADER_SIZE:
                self._lines.missing(self._logs.expected_path(log_id), ledger_id, entry_id)
                self._damage.bad_bytes.met(log_id, GONE)
                return

    def _turn_to(self, log_id: int) -> None:
        """Empty the window when it is of another log."""
        if log_id != self._log_id:
            self._log_id, self._start, self._data, self._bad = log_id, 0, b"", ()

    def _fail(self, ordered: list[Located], results: Results) -> None:
        for _, _, index in ordered:
            results[index] = Status.IO_ERROR

    def _read_bodies(self, file: File, path: str, ledger_id: int, ordered: list[Located], results: Results) -> None:
        """All entries of one log, ascending by location. What stays None needs a blocking read."""
        unpack = RECORD_HEAD.unpack_from
        data, start = self._data, self._start
        for position, (location, entry_id, index) in enumerate(ordered):
            at = (location & OFFSET_MASK) - SIZE.size - start
            if 0 <= at <= len(data) - HEAD_SIZE:
                size, found_ledger_id, found_entry_id = unpack(data, at)
                end = at + SIZE.size + size
                if (
                    found_entry_id == entry_id
                    and found_ledger_id == ledger_id
                    and size >= RECORD_SIZE_MIN
                    and end <= len(data)
                    and (not self._bad or self._bad_page(start + at, end - at) is None)
                ):
                    results[index] = data[at + SIZE.size : end]
                    continue
            if not self._read_body(file, path, ledger_id, ordered, position, results):
                return
            data, start = self._data, self._start

    def _read_body(
        self, file: File, path: str, ledger_id: int, ordered: list[Located], position: int, results: Results
    ) -> bool:
        """One entry that is not wholly in the window, or not what it should be. False: it needs a blocking read."""
        location, entry_id, index = ordered[position]
        offset = (location & OFFSET_MASK) - SIZE.size
        span = _span(ordered, position)
        known = self._bad and self._start <= offset <= self._start + len(self._data) - HEAD_SIZE
        if not known and not self._fill(file, offset, span):
            return False
        at = offset - self._start
        problem, bad_at, kind = self._check_head(offset, ledger_id, entry_id), offset, DamageKind.CHANGED
        end = at + HEAD_SIZE
        if problem is None:
            end = at + SIZE.size + int(SIZE.unpack_from(self._data, at)[0])
            if self._start + end > file.size():
                kind = DamageKind.GONE
            elif end > len(self._data):
                size = end - at
                if not self._fill(file, offset, max(size, span)):
                    return False
                at = offset - self._start
                end = at + size
        elif offset + HEAD_SIZE > file.size():
            kind = DamageKind.GONE
        if self._bad and (page := self._bad_page(offset, HEAD_SIZE if problem else end - at)) is not None:
            bad_at, kind = page_start(page), DamageKind.CHANGED
            problem = f"the page of {PAGE_SIZE} bytes fails its checksum"
        elif kind is DamageKind.GONE:
            bad_at = file.size()
            problem = "the entry log was cut short: it ends here, and the index names entries that reach beyond"
        if problem is None:
            results[index] = self._data[at + SIZE.size : end]
            return True
        damage = Damage(ledger_id, entry_id, entry_id, path, bad_at, problem, kind)
        is_new = not self._damage.among(ledger_id, (entry_id,))
        if self._damage.add_at_place(damage):
            self._lines.damaged(damage)
        if kind is DamageKind.CHANGED:
            self._damage.bad_bytes.met(self._log_id, page_of(bad_at), noted=is_new)
        else:
            self._damage.bad_bytes.met(self._log_id, gone_from(bad_at), noted=is_new)
            if offset + HEAD_SIZE <= bad_at:  # no checksum tells: it may be the size that is damaged
                self._damage.bad_bytes.met(self._log_id, page_of(offset), noted=is_new)
        results[index] = Status.IO_ERROR
        return True

    def _bad_page(self, offset: int, size: int) -> int | None:
        """The first page that fails its checksum among those that have these bytes."""
        at = bisect_left(self._bad, page_of(offset))
        return self._bad[at] if at < len(self._bad) and page_start(self._bad[at]) < offset + size else None

    def _check_head(self, offset: int, ledger_id: int, entry_id: int) -> str | None:
        """What is wrong with the record at `offset`, which the window has; None when it is the one wanted."""
        if offset < HEADER_SIZE:
            return "the index points into the header"
        at = offset - self._start
        if len(self._data) - at < HEAD_SIZE:
            return "the index points beyond the end"
        size, found_ledger_id, found_entry_id = RECORD_HEAD.unpack_from(self._data, at)
        if found_ledger_id != ledger_id or found_entry_id != entry_id:
            return f"found ledger {found_ledger_id} entry {found_entry_id}"
        if not RECORD_SIZE_MIN <= size < LOG_BYTES_MAX:
            return f"a body of {size} bytes"
        return None

    def _fill(self, file: File, offset: int, size: int) -> bool:
        """Move the window to the pages from `offset` on; it is short only at the end of the file.

        False when that needs a blocking read.
        """
        follows = self._start < offset <= self._start + len(self._data)
        start = max(HEADER_SIZE, offset - offset % PAGE_SIZE)
        self._start, self._data, self._bad = start, b"", ()
        limit = self._check.limit(self._log_id)
        end = file.size()
        if end <= start or offset < HEADER_SIZE:
            return True
        stops = [offset + size]
        if follows and size < READ_AHEAD_SIZE:
            stops.insert(0, offset + READ_AHEAD_SIZE)
        for stop in stops:
            wanted = min(stop + -stop % PAGE_SIZE, end) - start
            data = file.pread(wanted, start) if self._wait else file.pread_nowait(wanted, start)
            if data is not None:
                bad = self._check.bad_pages(self._log_id, start, data, limit)
                if bad is None:
                    return False
                self._data, self._bad = data, bad
                return True
        return False


class CountedReader(LogReader):
    """As LogReader, blocking; knows how much of the logs it reads."""

    def __init__(
        self, logs: EntryLogs, files: OpenFiles, damage: DamageRecord, lines: DamageLines, index_dirs: Sequence[str]
    ) -> None:
        super().__init__(logs, files, damage, lines, index_dirs, wait=True)
        self._check = self._counted = _CountedCheck(logs.checksums, wait=True)

    def forget(self) -> None:
        """Read everything anew."""
        self._turn_to(-1)

    def take_count(self) -> int:
        """The bytes that were read since the last time."""
        count, self._counted.count = self._counted.count, 0
        return count


class _CountedCheck(PageCheck):
    """All that is read is checked, once."""

    def __init__(self, checksums: LogChecksums, *, wait: bool) -> None:
        super().__init__(checksums, wait=wait)
        self.count = 0

    def bad_pages(self, log_id: int, offset: int, data: bytes, limit: int) -> list[int] | None:
        """See PageCheck."""
        self.count += len(data)
        return super().bad_pages(log_id, offset, data, limit)


def stepping(first: int, step: int, count: int) -> array[int]:
    """Locations of `count` records that lie one behind the other; none where such places cannot be."""
    return array("q", range(first, first + step * count, step) if first <= _LOCATION_MAX - step * count else ())


def is_on_damaged_page(damage: DamageRecord, index_dirs: Sequence[str], ledger_id: int, entry_id: int) -> bool:
    """True where the index page with the entry is known to be damaged: the place it gives need not be true."""
    if not damage.has_pages:
        return False
    offset = slot_offset(entry_id - entry_id % PAGE_SLOTS)
    return any(damage.is_damaged_page(ledger_id, index_path(each, ledger_id), offset) for each in index_dirs)


def _span(ordered: list[Located], position: int) -> int:
    """Bytes from an entry to the end of those that follow it closely, with a guess for the last one's size."""
    first = previous = ordered[position][0]
    for following in range(position + 1, len(ordered)):
        location = ordered[following][0]
        if location - previous > GAP_SIZE_MAX or location - first > WINDOW_SIZE_MAX:
            break
        previous = location
    return previous - first + TAIL_SIZE
