"""One unit: its bytes read in windows, its copies verified, what is not good looked at one by one.

    entry log    places of the unit (`places`) -> windows of the log -> `kernel` -> the rest, each by itself
    journal      the replay's reading (`journaled`)

Memory: WINDOW_SIZE and its copies, 4 * WINDOW_SIZE in all; 16 bytes for a place and 24 for a good copy, of which an
entry log's unit has at most UNIT_BYTES_MAX / record size (2.5 million of 100 bytes: 100 MB), a journal's about
UNIT_ENTRIES_MAX. A bad copy takes an object, neighbours one together.

Blocking; any thread.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bookkeeper.bookie.journal.format import RECORD_SIZE_MAX
from bookkeeper.bookie.journal.replay import examine
from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.storage.disks import current
from bookkeeper.bookie.storage.entry_log import format as log_fmt
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.bookie.storage.index.format import PAGE_SLOTS
from bookkeeper.errors import StorageError, UnknownFormatVersion
from bookkeeper.filesystem import File, FileSystem, OpenMode
from bookkeeper.rate_limit import Pace
from bookkeeper.spark.stored_copies.directories import BookieDirectories
from bookkeeper.spark.stored_copies.journaled import JournalCheck, is_other_password, other_password
from bookkeeper.spark.stored_copies.kernel import LedgerCheck, measure
from bookkeeper.spark.stored_copies.model import (
    BadCopies,
    CopyFault,
    JournalUnit,
    LedgerToVerify,
    LogUnit,
    OtherLedger,
    UnitResult,
    UnknownCopies,
    joined,
    runs,
)
from bookkeeper.spark.stored_copies.places import Places, read_places
from bookkeeper.wire.digest import digest_of

WINDOW_SIZE = 8 * 1024 * 1024
"""Bytes of an entry log read at once."""

TAIL_SIZE = 64 * 1024
"""Read beyond the last place of a window; what is longer there is read by itself."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """How fast bytes may be read. seconds, wait: the clock."""

    pace: Pace
    seconds: Callable[[], float]
    wait: Callable[[float], None]


@dataclass(slots=True)
class Reading:
    """Of one unit. on_progress: told bytes read since the last call."""

    pacing: Pacing
    on_progress: Callable[[int], None]
    bytes_read: int = 0

    def before(self, size: int) -> None:
        """So many bytes are to be read now."""
        delay_s = self.pacing.pace.delay_s(size, self.pacing.seconds())
        if delay_s > 0:
            self.pacing.wait(delay_s)

    def after(self, size: int) -> None:
        """So many were."""
        self.bytes_read += size
        self.on_progress(size)


@dataclass(slots=True)
class _Ledger:
    """Of the unit. check: None for one that nobody asked for. at: the first place that is not done."""

    places: Places
    check: LedgerCheck | None
    at: int = 0
    other: OtherLedger = field(default_factory=OtherLedger)


class LogVerification:
    """Of one `LogUnit`."""

    def __init__(
        self,
        fs: FileSystem,
        directories: BookieDirectories,
        unit: LogUnit,
        asked: Mapping[int, LedgerToVerify],
        reading: Reading,
        *,
        window_size: int = WINDOW_SIZE,
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._unit = unit
        self._asked = asked
        self._reading = reading
        self._window_size = window_size
        self._result = UnitResult()
        self._bad: list[BadCopies] = []

    def run(self) -> UnitResult:
        """Verify. Nothing that one file does is raised: it is in the result."""
        ledgers = self._find_places()
        if ledgers:
            self._read_log(ledgers)
        for ledger in ledgers:
            if ledger.check is None:
                self._result.others[ledger.places.ledger_id] = ledger.other
            elif ledger.check.good:
                self._result.good[ledger.places.ledger_id] = ledger.check.good
        self._result.bad = joined(self._bad)
        self._result.bytes_read = self._reading.bytes_read
        return self._result

    def _find_places(self) -> list[_Ledger]:
        unit = self._unit
        found = []
        for ledger_id, place, pages in unit.pages.by_ledger():
            path = index_path(self._directories.indexes[place], ledger_id)
            asked = self._asked.get(ledger_id)
            try:
                places = read_places(
                    self._fs,
                    path,
                    ledger_id,
                    pages,
                    log_id=unit.log_id,
                    start=unit.start,
                    end=unit.end,
                    superseded=unit.superseded.get(ledger_id, ()),
                )
            except (StorageError, OSError) as error:
                why = f"the index file cannot be read: {error}"
                self._result.unknown.append(UnknownCopies(ledger_id, 0, None, path, why))
                continue
            if asked is not None and is_other_password(asked, places.master_key):
                self._result.unknown.append(other_password(asked, path))
            elif places:
                check = None
                if asked is not None:
                    check = LedgerCheck(ledger_id, digest_of(asked.digest_type, asked.password))
                found.append(_Ledger(places, check))
        return found

    # --- the log ------------------------------------------------------------------------------------------------------

    def _read_log(self, ledgers: Sequence[_Ledger]) -> None:
        unit = self._unit
        try:
            file = self._fs.open(unit.path, OpenMode.READ)
        except OSError as error:
            self._log_unknown(ledgers, f"the entry log cannot be opened: {error}")
            return
        try:
            try:
                self._check_version(file)
                size = file.size()
            except (StorageError, OSError) as error:
                self._log_unknown(ledgers, f"the entry log cannot be read: {error}")
                return
            for start in range(unit.start, unit.end, self._window_size):
                self._read_window(file, size, ledgers, start, min(start + self._window_size, unit.end))
        finally:
            file.close()

    def _check_version(self, file: File) -> None:
        """A header that is damaged hides no copy; one of a later version means that all may look otherwise."""
        data = file.pread(log_fmt.HEADER_SIZE, 0)
        try:
            log_fmt.decode_header(data, self._unit.path)
        except UnknownFormatVersion:
            raise
        except StorageError:
            return

    def _log_unknown(self, ledgers: Sequence[_Ledger], why: str) -> None:
        for ledger in ledgers:
            if ledger.check is None:
                ledger.other.entry_count += len(ledger.places)
                continue
            for first, last in runs(sorted(ledger.places.entry_ids)):
                self._result.unknown.append(UnknownCopies(ledger.places.ledger_id, first, last, self._unit.path, why))

    def _read_window(self, file: File, size: int, ledgers: Sequence[_Ledger], start: int, end: int) -> None:
        """All places from `start` on and before `end`."""
        parts: list[tuple[_Ledger, array[int], array[int]]] = []
        low, high = end, start
        for ledger in ledgers:
            offsets = ledger.places.offsets
            at = ledger.at
            stop = bisect_left(offsets, end, at)
            if stop > at:
                parts.append((ledger, ledger.places.entry_ids[at:stop], offsets[at:stop]))
                low, high = min(low, offsets[at]), max(high, offsets[stop - 1])
                ledger.at = stop
        if not parts:
            return
        base = max(0, low - log_fmt.SIZE.size)
        window = self._pread(file, min(high + TAIL_SIZE, size) - base, base)
        for ledger, entry_ids, offsets in parts:
            if ledger.check is None:
                measure(window, base, offsets, ledger.other)
                continue
            skipped = bisect_left(offsets, base + log_fmt.SIZE.size)  # at an offset where no body can be
            left = [*range(skipped)]
            left += [
                skipped + at for at in ledger.check.take_window(window, base, entry_ids[skipped:], offsets[skipped:])
            ]
            for at in left:
                self._look_at(file, size, ledger.check, entry_ids[at], offsets[at])

    def _pread(self, file: File, size: int, offset: int) -> bytes:
        """Nothing where the disk gives nothing: each copy is then tried by itself."""
        if size <= 0:
            return b""
        self._reading.before(size)
        try:
            data = file.pread(size, offset)
        except OSError:
            data = b""
        self._reading.after(len(data))
        return data

    # --- one copy -----------------------------------------------------------------------------------------------------

    def _look_at(self, file: File, size: int, check: LedgerCheck, entry_id: int, offset: int) -> None:
        """Take the copy, or say what is wrong with it."""
        try:
            fault, detail = self._why_bad(file, size, check, entry_id, offset) or (None, "")
        except OSError as error:
            fault, detail = CopyFault.UNREADABLE, str(error)
        ledger_id = check.good.ledger_id
        if fault is None or (ledger_id, entry_id // PAGE_SLOTS) in self._unit.doubtful:
            return  # of a damaged page the plan says that nothing is known but what proves to be good
        self._bad.append(BadCopies(ledger_id, entry_id, entry_id, fault, self._unit.path, offset, detail))

    def _why_bad(
        self, file: File, end: int, check: LedgerCheck, entry_id: int, offset: int
    ) -> tuple[CopyFault, str] | None:
        head_offset = offset - log_fmt.SIZE.size
        head = file.pread(log_fmt.RECORD_HEAD.size, head_offset) if head_offset >= 0 else b""
        if len(head) < log_fmt.RECORD_HEAD.size:
            return CopyFault.NO_PLACE, f"the entry log ends at {end}, and has no record there"
        size, found_ledger_id, found_entry_id = log_fmt.RECORD_HEAD.unpack(head)
        if (found_ledger_id, found_entry_id) != (check.good.ledger_id, entry_id):
            return CopyFault.OTHER_ENTRY, f"entry {found_entry_id} of ledger {found_ledger_id} is there"
        if not log_fmt.RECORD_SIZE_MIN <= size <= RECORD_SIZE_MAX:
            return CopyFault.LENGTH, f"a record of {size} bytes"
        if offset + size > end:
            return CopyFault.LENGTH, f"a record of {size} bytes, and the entry log ends at {end}"
        self._reading.before(size)
        body = file.pread(size, offset)
        self._reading.after(len(body))
        if len(body) < size:
            return CopyFault.LENGTH, f"a record of {size} bytes, of which {len(body)} are there"
        return check.why_bad(entry_id, body) if check.take_bodies((entry_id,), (body,)) else None


# --- journals -------------------------------------------------------------------------------------------------------


def verify_journal(
    fs: FileSystem,
    directories: BookieDirectories,
    unit: JournalUnit,
    asked: Mapping[int, LedgerToVerify],
    reading: Reading,
) -> UnitResult:
    """Verify the copies of a `JournalUnit`. What cannot be read of the journal is in the result."""
    path = current(directories.journal_dirs[unit.index])

    def take(size: int) -> None:
        reading.before(size)
        reading.after(size)

    def key_of(ledger_id: int) -> bytes:
        for directory in directories.indexes:
            try:
                return inspection.read_index_header(fs, index_path(directory, ledger_id)).master_key
            except (StorageError, OSError):
                continue  # not there, or said by the plan
        return b""

    check = JournalCheck(
        path,
        asked,
        ledgers=unit.ledgers,
        part=unit.part,
        parts=unit.parts,
        repeated=unit.repeated,
        superseded=unit.superseded,
        on_bytes=take,
    )
    unknown = []
    try:
        examine(fs, path, unit.mark, check)
    except (StorageError, OSError) as error:
        why = f"the journal cannot be read to its end, and may have entries that are nowhere else: {error}"
        unknown.append(UnknownCopies(None, 0, None, path, why))
    result = check.finish(key_of)
    result.unknown += unknown
    result.bytes_read = reading.bytes_read
    return result
