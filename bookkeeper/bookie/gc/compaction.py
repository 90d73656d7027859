"""Rewriting one entry log: its live entries into a new log, the index switched, the old log deleted (I-62).

    step                                             a crash after it leaves
    1  <new>.log.compacting: header; lastId          a file that no one knows; the start removes it
    2  live entries, map, sync; header, sync         the same
    3  link <new>.log.<old>.switching,               a whole new log; the start gives it the name of step 4, and the
       unlink .compacting, sync the directory        first round goes on with 5
    4  link <new>.log, sync the directory            both logs, the index names the old one; goes on with 5
    5  index: locations in the old log -> new;       the index names either log, both are there; goes on with 5
       checkpoint
    6  unlink the old log, then .switching, sync     the new log

Live is an entry whose location in the index is exactly this record: what was deleted, and older copies of an entry, are
left behind. Where an index page is damaged nobody knows, and the log is left alone until the page was made anew.
Step 5 moves whatever still lies in the old log, so it may be repeated, and writes what was moved before once more: a
process that was killed, or whose sync failed, may have left that in the page cache alone.

Steps are Apache's (TransactionalEntryLogCompactor), and what a genuine bookie left at step 3 or later is finished. The
name of step 3 is our own, because of what a genuine bookie does with Apache's (entry_log_format.switching_name): to it
both logs are logs like any other, and the index is right about either.

A log is only believed to be read completely when the bytes read of each ledger are those of its sealed map; of a log
without a seal the index itself is asked before the old log goes. A log that fails that, or holds a damaged record, is
left alone, and said so. So is one with a page that fails its checksum: a copy of it would look whole (I-67). But when
nothing that the index names lies in what is damaged, because repairs have stored it elsewhere, the log is rewritten
from the index (`copy_indexed`).

This file has the steps; who drives them, and how fast, is `bookie.compactor`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from bookkeeper.bookie.gc.candidates import LedgerBytes
from bookkeeper.bookie.offline.inspection import LogBytes, LogRecord, iter_index, iter_records, list_index_files
from bookkeeper.bookie.storage.disks import LedgerDirectories, current
from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.bookie.storage.entry_log.logs import EntryLogs
from bookkeeper.bookie.storage.entry_log.writer import LogWriter
from bookkeeper.bookie.storage.index.cache import LedgerCache
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import File, FileSystem

BLOCK_BYTES = 256 * 1024
"""Copied between two pauses."""

RECORDS_MAX = 1000
"""Looked at between two pauses, and locations switched in one turn of the storage worker."""

SWITCHED_BYTES_MAX = 1024 * 1024
"""Of the new log, read in one turn of the storage worker: one read, or one record."""

INDEX_FILES_STEP = 200
"""Index files read between two pauses where the index is asked."""


@dataclass(slots=True)
class Copied:
    """What a step took: live entries and their bytes, and records looked at."""

    entries: int = 0
    bytes: int = 0
    records: int = 0


@dataclass(slots=True)
class _Block:
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    ledger_bytes: dict[int, int] = field(default_factory=dict)

    def add(self, record: LogRecord) -> None:
        assert record.body is not None
        framed = record.size + fmt.SIZE.size
        self.parts += (fmt.SIZE.pack(record.size), record.body)
        self.size += framed
        self.ledger_bytes[record.ledger_id] = self.ledger_bytes.get(record.ledger_id, 0) + framed


class LogCompaction:
    """One log. old_id, old_path: the log to rewrite. expected: what its sealed map says, None without a seal."""

    def __init__(
        self,
        fs: FileSystem,
        logs: EntryLogs,
        cache: LedgerCache,
        *,
        old_id: int,
        old_path: str,
        expected: LedgerBytes | None,
    ) -> None:
        self._fs = fs
        self._logs = logs
        self._cache = cache
        self.old_id = old_id
        self.old_path = old_path
        self._expected = expected
        self._writer: LogWriter | None = None
        self.entries = 0
        self.bytes = 0

    @property
    def new_id(self) -> int:
        """The log that takes the entries."""
        assert self._writer is not None
        return self._writer.log_id

    def begin(self, directory: str) -> None:
        """Step 1. Thread: storage worker. Raises OSError; nothing is left then."""
        self._writer = self._logs.create_compacting(directory)

    def copy(self) -> Iterator[Copied]:
        """Step 2 but for the seal, in small steps. Thread: the collector's worker.

        Raises StorageError when the old log or an index cannot be read, or the log is not what its map says, OSError
        when the new one cannot be written (I-48, unless the disk is full); `give_up` then.
        """
        seen: dict[int, int] = {}
        waiting: list[LogRecord] = []
        size = 0
        for record in self._records():
            seen[record.ledger_id] = seen.get(record.ledger_id, 0) + record.size + fmt.SIZE.size
            waiting.append(record)
            size += record.size
            if size >= BLOCK_BYTES or len(waiting) >= RECORDS_MAX:
                yield self._copy_live(waiting)
                waiting, size = [], 0
        if waiting:
            yield self._copy_live(waiting)
        self._check_complete(seen)

    def _records(self) -> Iterator[LogRecord]:
        try:
            check = self._logs.checksums.checked(self.old_id)
            yield from iter_records(self._fs, self.old_path, log_id=self.old_id, check=check)
        except OSError as error:
            raise StorageError(f"cannot read entry log {self.old_path}: {error}") from error

    def copy_indexed(self, steps: Iterator[list[LogRecord]]) -> Iterator[Copied]:
        """As `copy`, of the records that index files name: where the log cannot be read through. See IndexedRecords."""
        for records in steps:
            yield self._copy_live(records)

    def _copy_live(self, records: list[LogRecord]) -> Copied:
        assert self._writer is not None
        block, copied = _Block(), Copied(records=len(records))
        for ledger_id, run in _by_ledger(records):
            locations = self._cache.surely_located(ledger_id, [record.entry_id for record in run])
            for record, location in zip(run, locations, strict=True):
                if location == record.location:
                    block.add(record)
                    copied.entries += 1
        if block.parts:
            self._writer.append(b"".join(block.parts), block.ledger_bytes.items())
        copied.bytes = block.size
        self.entries += copied.entries
        self.bytes += copied.bytes
        return copied

    def _check_complete(self, seen: Mapping[int, int]) -> None:
        if self._expected is None:
            return
        found = LedgerBytes(seen)
        if not found.same_as(self._expected):
            raise CorruptRecord(
                self.old_path,
                fmt.HEADER_SIZE,
                f"its records have {found.total} bytes of {len(found)} ledgers, its sealed map says "
                f"{self._expected.total} bytes of {len(self._expected)}: some record is damaged",
            )

    def settle(self) -> None:
        """Seal the new log, and steps 3 and 4: readers may find it. Thread: the collector's worker. Raises OSError."""
        writer = self._writer
        assert writer is not None
        writer.seal()
        writer.file.close()
        base = os.path.dirname(writer.path)
        whole = os.path.join(base, fmt.switching_name(writer.log_id, self.old_id))
        self._fs.link(writer.path, whole)
        self._fs.sync_dir(base)
        self._fs.unlink(writer.path)
        path = os.path.join(base, fmt.log_name(writer.log_id))
        self._fs.link(whole, path)
        self._fs.sync_dir(base)
        self._logs.publish(writer.log_id, path)

    def give_up(self) -> None:
        """Remove the new log, which no index names. Thread: the collector's worker. Raises OSError (fatal: I-48)."""
        writer = self._writer
        if writer is None:
            return
        writer.file.close()
        writer.checksums.abandon()
        base = os.path.dirname(writer.path)
        log_name, whole = fmt.log_name(writer.log_id), fmt.switching_name(writer.log_id, self.old_id)
        # The name that a start would finish goes before the one that it takes for a log.
        for path in (writer.path, os.path.join(base, whole), os.path.join(base, log_name)):
            if self._fs.exists(path):
                self._fs.unlink(path)
                self._fs.sync_dir(base)


def switch(
    fs: FileSystem,
    cache: LedgerCache,
    *,
    new_id: int,
    new_path: str,
    old_id: int,
    check: Callable[[File], LogBytes] | None = None,
) -> Iterator[int]:
    """Step 5 without its checkpoint: what lies in the old log lies in the new one from now on, in small steps.

    Yields how many locations a step changed. check: as of `iter_records`; what was damaged since it was copied stays
    where it was. Thread: storage worker. Raises CorruptRecord, StorageError, OSError.
    """
    records: list[LogRecord] = []
    size = 0
    for record in iter_records(fs, new_path, log_id=new_id, bodies=False, check=check):
        records.append(record)
        size += record.size
        if len(records) >= RECORDS_MAX or size >= SWITCHED_BYTES_MAX:
            yield _switch(cache, records, old_id)
            records, size = [], 0
    if records:
        yield _switch(cache, records, old_id)


def _switch(cache: LedgerCache, records: list[LogRecord], old_id: int) -> int:
    return sum(
        cache.relocate(
            ledger_id, [record.entry_id for record in run], [record.location for record in run], old_log_id=old_id
        )
        for ledger_id, run in _by_ledger(records)
    )


def find_reference(fs: FileSystem, directories: LedgerDirectories, old_id: int) -> Iterator[tuple[int, int] | None]:
    """Whether any index file points into a log: its ledger and entry, at last; None after each step without one.

    To be asked after a checkpoint, of a closed log: then nothing in memory can point there that no file does.
    Thread: the collector's worker. Raises OSError, and FileNotFoundError never: ledgers may be deleted meanwhile.
    """
    files = 0
    for ledger_id, path in list_index_files(fs, directories.index_dirs):
        try:
            for entry_id, location in iter_index(fs, path):
                if location >> 32 == old_id:
                    yield ledger_id, entry_id
                    return
        except FileNotFoundError:
            continue
        files += 1
        if files % INDEX_FILES_STEP == 0:
            yield None


def _by_ledger(records: list[LogRecord]) -> Iterator[tuple[int, list[LogRecord]]]:
    """Runs of one ledger with ascending entry ids; in our logs a flush has sorted them so."""
    run: list[LogRecord] = []
    for record in records:
        if run and (record.ledger_id != run[-1].ledger_id or record.entry_id <= run[-1].entry_id):
            yield run[0].ledger_id, run
            run = []
        run.append(record)
    if run:
        yield run[0].ledger_id, run


def room_for(fs: FileSystem, directories: LedgerDirectories, old_path: str, *, needed: int) -> str | None:
    """The configured directory with room for so many bytes, the old log's first; None where none has."""
    own = [directory for directory in directories.ledger_dirs if current(directory) == os.path.dirname(old_path)]
    for directory in dict.fromkeys((*own, *directories.ledger_dirs)):
        if fs.usage(current(directory)).free >= needed:
            return directory
    return None
