"""What the index still needs of a closed entry log that cannot be read through.

Where a record's head is damaged nobody can tell where the next record begins, so a scan ends there. The index names the
records that count by their places; what no index names is dead, whatever it was. So a log with damaged pages can be
rewritten, or is needed no more, as soon as nothing that the index names lies in them: a repair stores such entries
elsewhere.

Certain only as far as the index is: each of its pages is compared with its checksum, and a ledger that lost its index
file, or a page of it, or has an entry in a damaged page, ends the reading with an error. So does an index page that has
no checksum yet, as after a crash; the scrub gives it one. To be asked after a checkpoint: then no index in memory can
point into a closed log where no file does.

Thread: the collector's worker, one step at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

from bookkeeper.bookie.integrity.checksums.entry_log_files import CheckedLog, LogChecksums
from bookkeeper.bookie.integrity.checksums.index import HEADER_ROW, UNKNOWN, page_checksum
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.integrity.damage.index_texts import file_gone, page_fails
from bookkeeper.bookie.offline.inspection import LogRecord, list_index_files
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.entry_log import format as log_fmt
from bookkeeper.bookie.storage.index import format as fmt
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode

STEP_BYTES = 256 * 1024
STEP_RECORDS = 1000
STEP_FILES = 200
"""Bodies and records in one step, and index files that had none."""

_READ_PAGES = 64
_READ_SIZE = 64 * 1024
_TRIES_MAX = 5


class IndexedRecords:
    """The records of closed logs that index files name."""

    def __init__(
        self, fs: FileSystem, directories: LedgerDirectories, index: IndexChecksums, logs: LogChecksums
    ) -> None:
        self._fs = fs
        self._index_dirs = directories.index_dirs
        self._index = index
        self._logs = logs

    def steps(self, log_id: int, path: str, ledger_ids: Sequence[int] | None) -> Iterator[list[LogRecord]]:
        """Those of one log, by ledger and place, with their bodies; some steps have none.

        ledger_ids: whose records may be there, None for anybody's.
        Raises CorruptRecord (of `path`: an entry that the index names is damaged), StorageError, OSError.
        """
        log = CheckedLog(self._logs, log_id, self._fs.open(path, OpenMode.READ))
        try:
            reader = _Reader(log)
            batch: list[LogRecord] = []
            size = 0
            for files, (ledger_id, index_file, directory) in enumerate(self._files(ledger_ids), 1):
                for location, entry_id in self._placed(log_id, ledger_id, index_file, directory):
                    batch.append(reader.record(ledger_id, entry_id, location))
                    size += batch[-1].size
                    if size >= STEP_BYTES or len(batch) >= STEP_RECORDS:
                        yield batch
                        batch, size = [], 0
                if files % STEP_FILES == 0:
                    yield batch
                    batch, size = [], 0
            if batch:
                yield batch
        finally:
            log.close()

    def _files(self, ledger_ids: Sequence[int] | None) -> Iterator[tuple[int, str, str]]:
        """Ledger, path and directory of every index file that may name the log."""
        if ledger_ids is None:
            for directory in self._index_dirs:
                for ledger_id in self._index.known_ledgers(directory):
                    self._check_there(ledger_id, directory)
                for ledger_id, path in list_index_files(self._fs, [directory]):
                    yield ledger_id, path, directory
            return
        for ledger_id in ledger_ids:
            for directory in self._index_dirs:
                self._check_there(ledger_id, directory)
                path = index_path(directory, ledger_id)
                if self._fs.exists(path):
                    yield ledger_id, path, directory

    def _check_there(self, ledger_id: int, directory: str) -> None:
        path = index_path(directory, ledger_id)
        if self._index.pages_of(directory, ledger_id) and not self._fs.exists(path):
            raise CorruptRecord(path, 0, file_gone(ledger_id))

    def _placed(self, log_id: int, ledger_id: int, path: str, directory: str) -> Iterable[tuple[int, int]]:
        """(location, entry id) of the ledger's entries in the log, ascending."""
        try:
            file = self._fs.open(path, OpenMode.READ)
        except FileNotFoundError:
            return ()  # deleted meanwhile
        if not self._index.is_complete(directory) or ledger_id in self._index.unsettled:
            file.close()
            raise StorageError(
                f"pages of {path} were not checked since a crash, or ever; the scrub has yet to read them"
            )
        try:
            header = fmt.decode_header(file.pread(fmt.HEADER_SIZE, 0), path)
            size = file.size()
            slot_count = max(0, size - fmt.HEADER_SIZE) // fmt.SLOT_SIZE
            if slot_count < header.slot_count:
                raise CorruptRecord(path, size, f"the file ends here, but it had {header.slot_count} locations once")
            pages = -(-slot_count // fmt.PAGE_SLOTS)
            low, high = log_fmt.location(log_id, 0), log_fmt.location(log_id + 1, 0)
            placed: list[tuple[int, int]] = []
            known = [page for page in self._index.pages_of(directory, ledger_id) if page != HEADER_ROW]
            pages = max(pages, max(known, default=-1) + 1)  # what was cut off is known all the same
            for first in range(0, pages, _READ_PAGES):
                slots = self._slots(ledger_id, path, directory, file, first, min(pages, first + _READ_PAGES))
                placed += [
                    (location, first * fmt.PAGE_SLOTS + slot)
                    for slot, location in enumerate(slots)
                    if low <= location < high
                ]
            return sorted(placed)
        finally:
            file.close()

    def _slots(self, ledger_id: int, path: str, directory: str, file: File, first: int, stop: int) -> array[int]:
        """The locations of these pages, each of which is what was written last."""
        for _ in range(_TRIES_MAX):
            changes = self._index.changes
            known = self._index.pages_of(directory, ledger_id)
            data = file.pread((stop - first) * fmt.PAGE_SIZE, fmt.slot_offset(first * fmt.PAGE_SLOTS))
            bad = next(
                (
                    page
                    for page, value in known.items()
                    if first <= page < stop
                    and page != HEADER_ROW
                    and value != UNKNOWN
                    and value != page_checksum(data[(page - first) * fmt.PAGE_SIZE :][: fmt.PAGE_SIZE])
                ),
                None,
            )
            if changes != self._index.changes:
                continue
            if bad is not None:
                raise CorruptRecord(path, fmt.slot_offset(bad * fmt.PAGE_SLOTS), page_fails(ledger_id, bad, known[bad]))
            return fmt.decode_slots(data[: len(data) // fmt.SLOT_SIZE * fmt.SLOT_SIZE])
        raise StorageError(f"{path} was written {_TRIES_MAX} times while it was read")


class _Reader:
    """Records by their places, ascending; neighbours out of one read where no page between them is damaged."""

    def __init__(self, log: CheckedLog) -> None:
        self._log = log
        self._start = 0
        self._data = b""

    def record(self, ledger_id: int, entry_id: int, location: int) -> LogRecord:
        offset = location & log_fmt.OFFSET_MASK
        head = self._get(offset - log_fmt.SIZE.size, log_fmt.RECORD_HEAD.size)
        if len(head) == log_fmt.RECORD_HEAD.size:
            size, *ids = log_fmt.RECORD_HEAD.unpack(head)
            if ids == [ledger_id, entry_id] and log_fmt.RECORD_SIZE_MIN <= size < log_fmt.LOG_BYTES_MAX:
                body = self._get(offset, size)
                if len(body) == size:
                    return LogRecord(location, ledger_id, entry_id, size, body)
        why = f"entry {entry_id} of ledger {ledger_id}, which the index has here, is not"
        raise CorruptRecord(self._log.path, offset, why)

    def _get(self, offset: int, size: int) -> bytes:
        at = offset - self._start
        if at < 0 or at + size > len(self._data):
            try:
                self._data = self._log.pread(max(size, _READ_SIZE), offset)
            except CorruptRecord:
                self._data = self._log.pread(size, offset)
            self._start, at = offset, 0
        return self._data[at : at + size]
