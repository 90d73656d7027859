"""What is to be read of a bookie, in units that independent processes can take; and what cannot be.

    journals behind the marks --> ids of entries whose copy is there
    index files, page by page --> which parts of which entry logs have copies
                              --> entries whose place does not exist; pages, files and directories that cannot be read

Every index file is read once, and every page compared with its checksum where there is one: a page that fails it may
have lost locations, so its zeros are not "no entry" (I-31, I-59). Memory: 16 bytes for a run of pages (1024 entries) in
an entry log, 20 bytes for the checksum of a page, and the journaled entries (`journaled.ENTRIES_MAX`).

Blocking; any thread. Reads only.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from bookkeeper.bookie.gc import tombstones
from bookkeeper.bookie.gc.tombstone_file import FILE_SIZE_MAX
from bookkeeper.bookie.gc.tombstones import TombstoneKind
from bookkeeper.bookie.integrity.checksums.index import HEADER_ROW, UNKNOWN, page_checksum
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.integrity.damage.index_texts import file_gone, page_fails
from bookkeeper.bookie.journal.files import list_journals
from bookkeeper.bookie.journal.format import file_name
from bookkeeper.bookie.journal.mark import mark_name, read_marks
from bookkeeper.bookie.journal.replay import examine
from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.offline.checksum_check import highest_log_id
from bookkeeper.bookie.storage.disks import current
from bookkeeper.bookie.storage.entry_log import format as log_fmt
from bookkeeper.bookie.storage.index import format as index_fmt
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.errors import StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode, read_whole
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.model import LogMark
from bookkeeper.spark.stored_copies.directories import BookieDirectories, check_unchanged, state_of
from bookkeeper.spark.stored_copies.journaled import (
    UNIT_ENTRIES_MAX,
    JournaledEntries,
    between,
    later_again,
)
from bookkeeper.spark.stored_copies.model import (
    BadCopies,
    CopyFault,
    JournalUnit,
    LogUnit,
    PageRuns,
    Plan,
    Unit,
    UnknownCopies,
    runs,
)

UNIT_BYTES_MAX = 256 * 1024 * 1024
"""Of an entry log, in one unit."""

_PAGES_AT_ONCE = 128
_EMPTY_PAGE_CHECKSUM = page_checksum(b"")


@dataclass(slots=True)
class _Part:
    """Of one entry log."""

    pages: PageRuns = field(default_factory=PageRuns)
    doubtful: set[tuple[int, int]] = field(default_factory=set)


@dataclass(slots=True)
class _Journal:
    index: int
    mark: LogMark
    size: int
    entries: JournaledEntries


class Planning:
    """One plan. only: ledgers to be planned, None for all that are held."""

    def __init__(
        self,
        fs: FileSystem,
        directories: BookieDirectories,
        cookie: Cookie,
        *,
        only: Collection[int] | None,
        unit_bytes_max: int = UNIT_BYTES_MAX,
        journal_unit_entries_max: int = UNIT_ENTRIES_MAX,
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._cookie = cookie
        self._only = only
        self._unit_bytes_max = unit_bytes_max
        self._journal_unit_entries_max = journal_unit_entries_max
        self._bad: list[BadCopies] = []
        self._unknown: list[UnknownCopies] = []
        self._ledgers: set[int] = set()
        self._journals: list[_Journal] = []
        self._logs: dict[int, str] = {}
        self._parts: dict[tuple[int, int], _Part] = {}
        self._checksums = IndexChecksums(fs, directories.indexes)

    def run(self) -> Plan:
        """Plan. Raises DirectoryInUse where a bookie uses the directories meanwhile, StorageError, OSError."""
        state = state_of(self._fs, self._directories)
        self._read_journals()
        self._find_logs()
        self._checksums.inspect(highest_log_id(self._fs, self._directories.ledger_dirs))
        self._read_indexes()
        kinds = self._read_tombstones()
        units = [*self._journal_units(state), *self._log_units(state)]
        check_unchanged(self._fs, self._directories, state)
        return Plan(
            self._cookie.bookie_id,
            self._cookie.instance_id,
            tuple(units),
            array("q", sorted(self._ledgers)),
            kinds,
            tuple(self._bad),
            tuple(self._unknown),
        )

    def _is_wanted(self, ledger_id: int) -> bool:
        return self._only is None or ledger_id in self._only

    def _cannot_tell(self, ledger_id: int | None, first: int, last: int | None, path: str, why: str) -> None:
        self._unknown.append(UnknownCopies(ledger_id, first, last, path, why))

    # --- journals -----------------------------------------------------------------------------------------------------

    def _read_journals(self) -> None:
        marks = [current(directory) for directory in self._directories.ledger_dirs]
        journal_dirs = self._directories.journal_dirs
        for index, directory in enumerate(map(current, journal_dirs)):
            entries = JournaledEntries(self._only)
            try:
                mark = read_marks(self._fs, marks, mark_name(index, len(journal_dirs)))
                size = self._journal_size(directory, mark)
                self._journals.append(_Journal(index, mark, size, entries))
                examine(self._fs, directory, mark, entries)
            except (StorageError, OSError) as error:
                why = f"the journal cannot be read to its end, and may have entries that are nowhere else: {error}"
                self._cannot_tell(None, 0, None, directory, why)
            entries.settle()
            self._ledgers |= entries.ledgers

    def _journal_size(self, directory: str, mark: LogMark) -> int:
        size = 0
        for journal_id in list_journals(self._fs, directory):
            if journal_id >= mark.journal_id:
                size += _size(self._fs, os.path.join(directory, file_name(journal_id)))
                size -= mark.offset if journal_id == mark.journal_id else 0
        return max(0, size)

    def _journal_units(self, state: int) -> Iterator[Unit]:
        all_entries = [journal.entries for journal in self._journals]
        for place, journal in enumerate(self._journals):
            entries = journal.entries
            if not entries.by_ledger:
                continue
            parts = -(-entries.count // self._journal_unit_entries_max)
            superseded = later_again(all_entries, place)
            ledgers = array("q", sorted(entries.by_ledger))
            for part in range(parts):
                yield JournalUnit(
                    journal.index, journal.mark, part, parts, journal.size, ledgers, entries.repeated, superseded, state
                )

    def _is_journaled(self, ledger_id: int, entry_id: int) -> bool:
        return any(journal.entries.contains(ledger_id, entry_id) for journal in self._journals)

    # --- entry logs ---------------------------------------------------------------------------------------------------

    def _find_logs(self) -> None:
        for log_id, path in inspection.list_entry_logs(self._fs, self._directories.ledger_dirs):
            if log_id in self._logs:
                raise StorageError(
                    f"entry log {log_fmt.log_name(log_id)} is in {self._logs[log_id]} and in {path}: one of them is "
                    "not this bookie's. Keep the one that is"
                )
            self._logs[log_id] = path

    def _log_units(self, state: int) -> Iterator[Unit]:
        for (log_id, number), part in sorted(self._parts.items(), key=lambda item: item[0]):
            path = self._logs[log_id]
            start = number * self._unit_bytes_max
            end = start + self._unit_bytes_max
            try:
                size = max(0, min(end, _size(self._fs, path)) - start)
            except OSError:  # whoever verifies its copies says so
                size = 0
            superseded = self._superseded_in(part.pages)
            yield LogUnit(log_id, path, start, end, size, part.pages, superseded, frozenset(part.doubtful), state)

    def _superseded_in(self, pages: PageRuns) -> Mapping[int, array[int]]:
        found: dict[int, array[int]] = {}
        slots = index_fmt.PAGE_SLOTS
        for journal in self._journals:
            by_ledger = journal.entries.by_ledger
            if not by_ledger:
                continue
            for ledger_id, _, pages_there in pages.by_ledger():
                journaled = by_ledger.get(ledger_id)
                if journaled is None:
                    continue
                for first, count in pages_there:
                    some = between(journaled, first * slots, (first + count) * slots)
                    if some:
                        found.setdefault(ledger_id, array("q")).extend(some)
        return {ledger_id: array("q", sorted(entry_ids)) for ledger_id, entry_ids in found.items()}

    # --- index files --------------------------------------------------------------------------------------------------

    def _read_indexes(self) -> None:
        for ledger_id, place, twice in self._index_files():
            self._ledgers.add(ledger_id)
            path = index_path(self._directories.indexes[place], ledger_id)
            if not self._is_wanted(ledger_id):
                continue
            if twice is not None:
                self._cannot_tell(ledger_id, 0, None, path, f"there is another index file of the ledger, {twice}")
                continue
            try:
                self._read_index(ledger_id, place, path)
            except (StorageError, OSError) as error:
                self._cannot_tell(ledger_id, 0, None, path, f"the index file cannot be read: {error}")
        for directory in self._directories.indexes:
            for ledger_id in self._checksums.known_ledgers(directory):
                path = index_path(directory, ledger_id)
                if self._checksums.pages_of(directory, ledger_id) and not self._fs.exists(path):
                    self._ledgers.add(ledger_id)
                    self._cannot_tell(ledger_id, 0, None, path, file_gone(ledger_id))

    def _index_files(self) -> Iterator[tuple[int, int, str | None]]:
        """Ledger id, index directory, and a second index file, in order of ledger id."""
        found: dict[int, int] = {}
        twice: dict[int, str] = {}
        for place, directory in enumerate(self._directories.indexes):
            for ledger_id in self._ledgers_in(directory):
                if ledger_id in found:
                    twice[ledger_id] = index_path(directory, ledger_id)
                found.setdefault(ledger_id, place)
        for ledger_id in sorted(found):
            yield ledger_id, found[ledger_id], twice.get(ledger_id)

    def _ledgers_in(self, directory: str) -> Iterator[int]:
        """Those with an index file where a bookie looks for it."""
        try:
            subdirectories = list(inspection.index_subdirectories(self._fs, (directory,)))
        except OSError as error:
            self._cannot_list(directory, error)
            return
        for subdirectory in subdirectories:
            try:
                names = self._fs.listdir(subdirectory)
            except OSError as error:
                self._cannot_list(subdirectory, error)
                continue
            for name in names:
                ledger_id = index_fmt.parse_index_name(name)
                if ledger_id is not None and index_path(directory, ledger_id) == os.path.join(subdirectory, name):
                    yield ledger_id

    def _cannot_list(self, directory: str, error: OSError) -> None:
        self._cannot_tell(None, 0, None, directory, f"the index files in the directory cannot be listed: {error}")

    def _read_index(self, ledger_id: int, place: int, path: str) -> None:
        file = self._fs.open(path, OpenMode.READ)
        try:
            header = index_fmt.decode_header(file.pread(index_fmt.HEADER_SIZE, 0), path)
            in_file, rest = divmod(max(0, file.size() - index_fmt.HEADER_SIZE), index_fmt.SLOT_SIZE)
            # What a power cut takes of the end is in the journal; what is not in the journal either may be lost.
            if header.slot_count > in_file:
                why = f"the file ends here, but it had {header.slot_count} locations once"
                self._cannot_tell(ledger_id, in_file, header.slot_count - 1, path, why)
            elif rest:
                self._cannot_tell(ledger_id, in_file, in_file, path, "the file ends inside a location")
            self._read_pages(file, ledger_id, place, path, in_file)
        finally:
            file.close()

    def _read_pages(self, file: File, ledger_id: int, place: int, path: str, in_file: int) -> None:
        page_count = -(-in_file // index_fmt.PAGE_SLOTS)
        known = self._checksums.pages_of(self._directories.indexes[place], ledger_id)
        for first in range(0, page_count, _PAGES_AT_ONCE):
            count = min(_PAGES_AT_ONCE, page_count - first)
            start = first * index_fmt.PAGE_SLOTS
            size = min(count * index_fmt.PAGE_SIZE, (in_file - start) * index_fmt.SLOT_SIZE)
            try:
                data = file.pread(size, index_fmt.slot_offset(start))
            except OSError as error:
                last = start + size // index_fmt.SLOT_SIZE - 1
                self._cannot_tell(ledger_id, start, last, path, f"the index pages cannot be read: {error}")
                continue
            for page in range(first, first + count):
                at = (page - first) * index_fmt.PAGE_SIZE
                self._take_page(ledger_id, place, path, page, data[at : at + index_fmt.PAGE_SIZE], known)
        for page, value in known.items():
            if page >= page_count and page != HEADER_ROW and value != _EMPTY_PAGE_CHECKSUM:
                self._page_unknown(ledger_id, path, page, "the file ends before this page, which it had once")

    def _page_unknown(self, ledger_id: int, path: str, page: int, why: str) -> None:
        first = page * index_fmt.PAGE_SLOTS
        self._cannot_tell(ledger_id, first, first + index_fmt.PAGE_SLOTS - 1, path, why)

    def _take_page(
        self, ledger_id: int, place: int, path: str, page: int, data: bytes, known: Mapping[int, int]
    ) -> None:
        value = known.get(page, UNKNOWN)
        sound = value == UNKNOWN or value == page_checksum(data)
        if not sound:
            self._page_unknown(ledger_id, path, page, page_fails(ledger_id, page, value))
        slots = index_fmt.decode_slots(data)
        if not slots:
            return
        low, high = min(slots), max(slots)
        if low > 0 and low >> 32 == high >> 32:  # nearly every page: one log, no gaps
            extents = {low >> 32: (low & log_fmt.OFFSET_MASK, high & log_fmt.OFFSET_MASK)}
        else:
            extents = _extents(slots)
        for log_id, (lowest, highest) in extents.items():
            if log_id not in self._logs:
                if sound:
                    self._no_such_log(ledger_id, page, slots, log_id)
                continue
            for number in range(lowest // self._unit_bytes_max, highest // self._unit_bytes_max + 1):
                part = self._parts.setdefault((log_id, number), _Part())
                part.pages.add(ledger_id, place, page)
                if not sound:
                    part.doubtful.add((ledger_id, page))

    def _no_such_log(self, ledger_id: int, page: int, slots: array[int], log_id: int) -> None:
        first = page * index_fmt.PAGE_SLOTS
        lost = [
            entry_id
            for entry_id, location in enumerate(slots, first)
            if location and location >> 32 == log_id and not self._is_journaled(ledger_id, entry_id)
        ]
        name = log_fmt.log_name(log_id) if log_id >= 0 else f"{log_id}"
        for low, high in runs(lost):
            offset = slots[low - first] & log_fmt.OFFSET_MASK
            detail = f"offset {offset} of entry log {name}, which is in no ledger directory"
            self._bad.append(BadCopies(ledger_id, low, high, CopyFault.NO_PLACE, name, offset, detail))

    # --- tombstones ---------------------------------------------------------------------------------------------------

    def _read_tombstones(self) -> dict[int, TombstoneKind]:
        newest: dict[int, tombstones.Tombstone] = {}
        for directory in self._directories.ledger_dirs:
            path = os.path.join(current(directory), tombstones.FILE_NAME)
            try:
                data = read_whole(self._fs, path, size_max=FILE_SIZE_MAX)
            except FileNotFoundError:
                continue
            for tombstone in tombstones.decode_all(data)[0]:
                known = newest.get(tombstone.ledger_id)
                if tombstone.ledger_id in self._ledgers and (known is None or known.deleted_ms <= tombstone.deleted_ms):
                    newest[tombstone.ledger_id] = tombstone
        return {ledger_id: tombstone.kind for ledger_id, tombstone in newest.items()}


def _extents(slots: array[int]) -> dict[int, tuple[int, int]]:
    """Of each log the lowest and highest offset."""
    found: dict[int, tuple[int, int]] = {}
    for location in slots:
        if location:
            log_id, offset = location >> 32, location & log_fmt.OFFSET_MASK
            lowest, highest = found.get(log_id, (offset, offset))
            found[log_id] = (min(lowest, offset), max(highest, offset))
    return found


def _size(fs: FileSystem, path: str) -> int:
    file = fs.open(path, OpenMode.READ)
    try:
        return file.size()
    finally:
        file.close()
