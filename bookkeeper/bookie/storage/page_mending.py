"""Index pages that fail their checksum, made anew out of entry logs while the bookie runs (I-59, I-67).

    scrub's worker   after a round that found such pages: all closed logs that have entries of their ledgers are read,
                     every page of them checked; what is found for an index page is offered
    storage worker   at the next checkpoint: what is offered is compared with what memory, or the damaged page itself,
                     has by then, and put into the cache; the checkpoint writes it

A page made anew says "no entry" again where no record was found, so it is made only where that is certain; else it
stays as it is, its zeros unknown, and why is told:

    every closed log has a sealed map, so that it is known which ledgers it has;
    every log that has the ledger has checksums for all its pages, none of which fails, and the records of its map;
    the log that is being written has nothing of the ledger, and no log came or went since;
    no compaction was cut short, no index page names a log that is gone;
    wherever the damaged page names a place, there is a record of that very entry, or some log has one.

Of several records of an entry the one that the page names counts, else the last one, as for an index that is rebuilt
offline (index_rebuild.py). An entry log that vanished and that only the damaged pages named is not missed: that would
be the second loss of one ledger.

Bounds: PAGES_MAX pages a round, 8 KiB each; every log is read once a round at most.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

from twisted.logger import Logger

from bookkeeper.bookie.storage import entry_log_format as log_fmt
from bookkeeper.bookie.storage import index_format as fmt
from bookkeeper.bookie.storage import offline
from bookkeeper.bookie.storage.damage import DamageRecord
from bookkeeper.bookie.storage.entry_log import EntryLogs
from bookkeeper.bookie.storage.garbage import LedgerBytes
from bookkeeper.bookie.storage.index_checksum_files import IndexChecksums
from bookkeeper.bookie.storage.ledger_cache import LedgerCache
from bookkeeper.bookie.storage.log_ledgers import LogLedgers
from bookkeeper.errors import CorruptRecord, NoWritableDisk, StorageError
from bookkeeper.filesystem import FileSystem, OpenMode

log = Logger()

PAGES_MAX = 256
"""Of one round. What is more waits for the next one."""

STEP_BYTES = 512 * 1024
_PASSES_MAX = 3


@dataclass(frozen=True, slots=True)
class BadPage:
    """A page of a ledger's index file that fails its checksum. directory: the configured one."""

    directory: str
    ledger_id: int
    path: str
    page: int

    def __str__(self) -> str:
        return f"page {self.page} of {self.path}"


@dataclass(frozen=True, slots=True)
class FoundPage:
    """The locations of a whole page as the logs have them. log_ids: of all closed logs that were looked at."""

    bad: BadPage
    slots: array[int]
    log_ids: frozenset[int]


class FoundPages:
    """What the scrub found, until a checkpoint takes it. Thread: any."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[FoundPage] = []
        self.mended_count = 0
        """Pages made anew since the start."""

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, pages: Sequence[FoundPage]) -> None:
        """Have these put into the index; they replace what still waits."""
        with self._lock:
            self._waiting = list(pages)

    def take(self) -> list[FoundPage]:
        """All that wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting


class PageSearch:
    """One round's search. left: why pages stay as they are, by page. Thread: the scrub's worker."""

    def __init__(self, fs: FileSystem, logs: EntryLogs, found: FoundPages) -> None:
        self._fs = fs
        self._logs = logs
        self._maps = LogLedgers(fs)
        self._found = found
        self.left: dict[BadPage, str] = {}

    def steps(self, bad: Sequence[BadPage]) -> Iterator[int]:
        """Look for the pages' entries, and offer what is certain; yields the bytes that each step has read."""
        wanted: dict[int, dict[int, array[int]]] = {}
        for each in bad:
            wanted.setdefault(each.ledger_id, {})[each.page] = array("q", bytes(fmt.PAGE_SIZE))
        failed: dict[int, str] = {}
        seen: set[int] = set()
        for _ in range(_PASSES_MAX):
            news = [each for each in self._logs.log_ids if each not in seen and not self._is_written(each)]
            for log_id in news:
                seen.add(log_id)
                yield from self._log(log_id, wanted, failed)
            if not news:
                break
        why = obstacle(self._logs)
        pages: list[FoundPage] = []
        for each in bad:
            reason = why or failed.get(each.ledger_id) or written_to(self._logs, each.ledger_id)
            if reason is None:
                pages.append(FoundPage(each, wanted[each.ledger_id][each.page], frozenset(seen)))
            else:
                self.left[each] = reason
        self._found.offer(pages)

    def _is_written(self, log_id: int) -> bool:
        return self._logs.checksums.writing(log_id) is not None

    def _log(self, log_id: int, wanted: dict[int, dict[int, array[int]]], failed: dict[int, str]) -> Iterator[int]:
        path = self._logs.path_of(log_id)
        if path is None:
            return  # collected meanwhile: it had nothing of a ledger that is here
        try:
            there = self._maps.read_map(log_id, path)
            self._maps.forget(log_id)  # read once
            if there is None:
                raise StorageError(f"{path} has no sealed map of its ledgers")
        except (StorageError, OSError) as error:
            failed.update((ledger_id, str(error)) for ledger_id in wanted if ledger_id not in failed)
            return
        mine = [ledger_id for ledger_id in there.ledger_ids if ledger_id in wanted and ledger_id not in failed]
        yield 0
        if not mine:
            return
        try:
            if not self._has_checksums(log_id):
                raise StorageError(f"some pages of {path} have no checksum")
            yield from self._records(log_id, path, there, {ledger_id: wanted[ledger_id] for ledger_id in mine})
        except (StorageError, OSError) as error:
            failed.update((ledger_id, str(error)) for ledger_id in mine)

    def _has_checksums(self, log_id: int) -> bool:
        blocks = self._logs.checksums.blocks(log_id)
        last = blocks[-1] if blocks else None
        return last is not None and last.log_ends and None not in blocks

    def _records(
        self, log_id: int, path: str, there: LedgerBytes, wanted: dict[int, dict[int, array[int]]]
    ) -> Iterator[int]:
        sizes: dict[int, int] = {}
        step = 0
        check = self._logs.checksums.checked(log_id)
        for record in offline.iter_records(self._fs, path, log_id=log_id, bodies=False, check=check):
            size = record.size + log_fmt.SIZE.size
            sizes[record.ledger_id] = sizes.get(record.ledger_id, 0) + size
            pages = wanted.get(record.ledger_id)
            if pages is not None:
                page, slot = divmod(record.entry_id, fmt.PAGE_SLOTS)
                if page in pages:
                    pages[page][slot] = record.location
            step += size
            if step >= STEP_BYTES:
                yield step
                step = 0
        yield step
        if not LedgerBytes(sizes).same_as(there):
            raise CorruptRecord(path, log_fmt.HEADER_SIZE, "its records are not what its sealed map says")


def obstacle(logs: EntryLogs) -> str | None:
    """Why no page at all can be made anew now; None for nothing."""
    if logs.unfinished:
        return "a compaction was cut short, and is not finished yet"
    return None


def written_to(logs: EntryLogs, ledger_id: int) -> str | None:
    """Why no page of this ledger can be; None for nothing."""
    if logs.is_writing(ledger_id):
        return "the entry log that is being written has entries of the ledger"
    return None


class PageMending:
    """Puts what was found into the index. Thread: storage worker."""

    def __init__(
        self,
        fs: FileSystem,
        logs: EntryLogs,
        cache: LedgerCache,
        checksums: IndexChecksums,
        damage: DamageRecord,
        found: FoundPages,
    ) -> None:
        self._fs = fs
        self._logs = logs
        self._cache = cache
        self._checksums = checksums
        self._damage = damage
        self._found = found

    def apply(self) -> None:
        """To be called before a checkpoint writes the index. Raises NoWritableDisk, OSError (fatal: I-48)."""
        for page in self._found.take():
            bad = page.bad
            why = obstacle(self._logs) or written_to(self._logs, bad.ledger_id) or self._changed(page)
            if why is None:
                why = self._mend(page)
            if why is not None:
                log.warn("{page} stays damaged: {why}", page=str(bad), why=why)
                continue
            self._damage.mended(bad.path, fmt.slot_offset(bad.page * fmt.PAGE_SLOTS), fmt.PAGE_SIZE)
            self._found.mended_count += 1
            log.info("{page} was made anew out of the entry logs", page=str(bad))

    def _changed(self, page: FoundPage) -> str | None:
        for log_id in self._logs.log_ids:
            if log_id not in page.log_ids and self._logs.checksums.writing(log_id) is None:
                return f"entry log {log_id:x} came up meanwhile"
        if any(location and self._logs.path_of(location >> 32) is None for location in page.slots):
            return "an entry log that it names was removed meanwhile"
        return None

    def _mend(self, page: FoundPage) -> str | None:
        bad = page.bad
        first = bad.page * fmt.PAGE_SLOTS
        try:
            if self._cache.load(bad.ledger_id) is None:
                return "the ledger is not here any more"
            # Durable with the checkpoint's own note that the page is being written: a power cut leaves it damaged.
            self._checksums.note_damaged(bad.directory, bad.ledger_id, bad.page)
            return self._cache.mend_page(
                bad.ledger_id,
                bad.page,
                page.slots,
                lambda slot, location: self._is_at(bad.ledger_id, first + slot, location),
            )
        except NoWritableDisk:
            raise
        except StorageError as error:
            return str(error)

    def _is_at(self, ledger_id: int, entry_id: int, location: int) -> bool:
        """True when there is a record of the entry. Raises StorageError where its log is damaged or cannot be read."""
        path = self._logs.path_of(location >> 32)
        offset = (location & log_fmt.OFFSET_MASK) - log_fmt.SIZE.size
        if location < 0 or path is None or offset < log_fmt.HEADER_SIZE:
            return False
        try:
            file = self._logs.checksums.checked(location >> 32)(self._fs.open(path, OpenMode.READ))
            try:
                head = file.pread(log_fmt.RECORD_HEAD.size, offset)
            finally:
                file.close()
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error}") from error
        return len(head) == log_fmt.RECORD_HEAD.size and log_fmt.RECORD_HEAD.unpack(head)[1:] == (ledger_id, entry_id)
