"""Index pages that fail their checksum, made anew out of entry logs while the bookie runs (I-59, I-67).

    scrub's worker   after a round that found such pages, or soon after they were met: all closed logs that have entries
                     of their ledgers are read, every page of them checked; what is found for an index page is offered
    storage worker   at the next checkpoint: the logs that were written since, the active one included, are read too;
                     then it is compared with what memory, or the damaged page itself, has by then, and put into the
                     cache; the checkpoint writes it

A page made anew says "no entry" again where no record was found, so it is made only where that is certain; else it
stays as it is, its zeros unknown, and why is told:

    every closed log has a sealed map, so that it is known which ledgers it has; or, where a kill left it without one,
    all its checksums are its writer's: then its records up to their end are all that an index may name;
    every log that has the ledger has checksums for all its pages, none of which fails, and the records of its map;
    what was written since the search is little enough to be read at once (else the active log is closed, and the next
    search reads it), and no log went;
    no compaction was cut short, no index page names a log that is gone;
    wherever the damaged page names a place, there is a record of that very entry, or some log has one, or the place is
    certainly not what was written there (page_rules.py).

Of several records of an entry the one that the page names counts, else the last one, as for an index that is rebuilt
offline (index_rebuild.py). An entry log that vanished and that only the damaged pages named is not missed: that would
be the second loss of one ledger.

Bounds: PAGES_MAX pages a round, 8 KiB each; every log is read once a round at most, NEWER_BYTES_MAX by a checkpoint.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias

from twisted.logger import Logger

from bookkeeper.bookie.gc.candidates import LedgerBytes
from bookkeeper.bookie.integrity.checksums.index import expected_checksum
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.integrity.damage.index_texts import remedy
from bookkeeper.bookie.integrity.damage.record import DamageRecord
from bookkeeper.bookie.integrity.scrub.page_rules import settled_page
from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.storage.entry_log import format as log_fmt
from bookkeeper.bookie.storage.entry_log.ledgers_map import LogLedgers
from bookkeeper.bookie.storage.entry_log.logs import EntryLogs
from bookkeeper.bookie.storage.index import format as fmt
from bookkeeper.bookie.storage.index.cache import LedgerCache
from bookkeeper.errors import CorruptRecord, NoWritableDisk, StorageError
from bookkeeper.filesystem import FileSystem, OpenMode

log = Logger()

PAGES_MAX = 256
"""Of one round. What is more waits for the next one, which begins behind these."""

NEWER_BYTES_MAX = 16 * 1024 * 1024
"""Read by a checkpoint, which holds up the next one: a quarter of a second, of small entries."""

STEP_BYTES = 512 * 1024
_PASSES_MAX = 3


@dataclass(frozen=True, slots=True)
class BadPage:
    """A page of a ledger's index file that fails its checksum. directory: the configured one."""

    directory: str
    ledger_id: int
    path: str
    page: int

    @property
    def offset(self) -> int:
        """Where the page begins in the file."""
        return fmt.slot_offset(self.page * fmt.PAGE_SLOTS)

    def __str__(self) -> str:
        return f"page {self.page} of {self.path}"


@dataclass(frozen=True, slots=True)
class FoundPage:
    """The locations of a whole page as the logs have them. log_ids: of all closed logs that were looked at."""

    bad: BadPage
    slots: array[int]
    log_ids: frozenset[int]


class FoundPages:
    """What the scrub found, until a checkpoint takes it; and why pages stay as they are. Thread: any."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: list[FoundPage] = []
        self._left: dict[str, dict[int, tuple[BadPage, str]]] = {}  # by path and page
        self.mended_count = 0
        """Pages made anew since the start."""
        self.refused_count = 0
        """Pages that were offered, and that a checkpoint left as they are."""

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

    @property
    def left(self) -> list[tuple[BadPage, str]]:
        """The pages that could not be made anew when that was tried last, and why."""
        with self._lock:
            return [each for pages in self._left.values() for each in pages.values()]

    def leave(self, page: BadPage, why: str) -> None:
        """This page stays as it is, for now."""
        with self._lock:
            self._left.setdefault(page.path, {})[page.page] = (page, why)

    def mended(self, page: BadPage) -> None:
        """This page was made anew."""
        self.mended_count += 1
        self.forget_left(page.path, [page.page])

    def forget_left(self, path: str, pages: Iterable[int]) -> None:
        """These pages of a file are whole, or there no more."""
        with self._lock:
            left = self._left.get(path)
            if left is None:
                return
            for page in pages:
                left.pop(page, None)
            if not left:
                del self._left[path]


Wanted: TypeAlias = "dict[int, dict[int, array[int]]]"
"""Ledger -> page -> its locations, as far as they were found."""


def _wanted(bad: Iterable[BadPage]) -> Wanted:
    wanted: Wanted = {}
    for each in bad:
        wanted.setdefault(each.ledger_id, {})[each.page] = array("q", bytes(fmt.PAGE_SIZE))
    return wanted


class LogScan:
    """Locations of wanted pages out of entry logs, one log at a time. failed: why those of a ledger are not certain.

    Thread: the caller's. Every method yields the bytes that each step has read.
    """

    def __init__(self, fs: FileSystem, logs: EntryLogs, wanted: Wanted) -> None:
        self._fs = fs
        self._logs = logs
        self._maps = LogLedgers(fs)
        self.wanted = wanted
        self.failed: dict[int, str] = {}

    def closed(self, log_id: int) -> Iterator[int]:
        """A log that is not written any more."""
        path = self._logs.path_of(log_id)
        if path is None:
            return  # collected meanwhile: it had nothing of a ledger that is here
        mine = [ledger_id for ledger_id in self.wanted if ledger_id not in self.failed]
        if not mine:
            return
        try:
            there = self._maps.read_map(log_id, path)
            self._maps.forget(log_id)  # read once
            checksums = self._logs.checksums
            end = checksums.certain_end(log_id)
            if end is not None and self._logs.size_of(log_id) < end:
                raise StorageError(f"{path} was cut, it had {end} bytes")
            if there is None and end is None:
                raise StorageError(f"{path} has no sealed map of its ledgers, nor all checksums of its writer")
            if there is not None:
                mine = [ledger_id for ledger_id in mine if ledger_id in there.ledger_ids]
            yield 0
            if not mine:
                return
            if not checksums.all_checked(log_id):
                raise StorageError(f"some pages of {path} have no checksum")
            yield from self._records(log_id, path, there=there, end=end if there is None else None)
        except (StorageError, OSError) as error:
            for ledger_id in mine:
                self.failed.setdefault(ledger_id, str(error))

    def active(self, log_id: int, path: str, end: int) -> Iterator[int]:
        """The log that is being written, up to `end`. Thread: storage worker."""
        try:
            yield from self._records(log_id, path, there=None, end=end)
        except (StorageError, OSError) as error:
            for ledger_id in self.wanted:
                self.failed.setdefault(ledger_id, str(error))

    def _records(self, log_id: int, path: str, *, there: LedgerBytes | None, end: int | None) -> Iterator[int]:
        sizes: dict[int, int] = {}
        step = 0
        stop = log_fmt.HEADER_SIZE
        check = self._logs.checksums.checked(log_id)
        for record in inspection.iter_records(self._fs, path, log_id=log_id, bodies=False, check=check):
            size = record.size + log_fmt.SIZE.size
            stop = record.offset + record.size
            if end is not None and stop > end:
                break
            sizes[record.ledger_id] = sizes.get(record.ledger_id, 0) + size
            pages = self.wanted.get(record.ledger_id)
            if pages is not None:
                page, slot = divmod(record.entry_id, fmt.PAGE_SLOTS)
                if page in pages:
                    pages[page][slot] = record.location
            step += size
            if step >= STEP_BYTES:
                yield step
                step = 0
        yield step
        if there is not None and not LedgerBytes(sizes).same_as(there):
            raise CorruptRecord(path, log_fmt.HEADER_SIZE, "its records are not what its sealed map says")
        if end is not None and stop != end:
            raise CorruptRecord(path, min(stop, end), f"its records do not end at {end}, where it was written to")


class PageSearch:
    """One round's search. left: why pages stay as they are, by page. Thread: the scrub's worker."""

    def __init__(self, fs: FileSystem, logs: EntryLogs, found: FoundPages) -> None:
        self._fs = fs
        self._logs = logs
        self._found = found
        self.left: dict[BadPage, str] = {}

    def steps(self, bad: Sequence[BadPage]) -> Iterator[int]:
        """Look for the pages' entries, and offer what is certain; yields the bytes that each step has read."""
        scan = LogScan(self._fs, self._logs, _wanted(bad))
        seen: set[int] = set()
        for _ in range(_PASSES_MAX):
            news = [each for each in self._logs.log_ids if each not in seen and not _is_written(self._logs, each)]
            for log_id in news:
                seen.add(log_id)
                yield from scan.closed(log_id)
            if not news:
                break
        why = obstacle(self._logs)
        pages: list[FoundPage] = []
        for each in bad:
            reason = why or scan.failed.get(each.ledger_id)
            if reason is None:
                pages.append(FoundPage(each, scan.wanted[each.ledger_id][each.page], frozenset(seen)))
            else:
                self.left[each] = reason
        self._found.offer(pages)


def _is_written(logs: EntryLogs, log_id: int) -> bool:
    return logs.checksums.writing(log_id) is not None


def obstacle(logs: EntryLogs) -> str | None:
    """Why no page at all can be made anew now; None for nothing."""
    if logs.unfinished:
        return "a compaction was cut short, and is not finished yet"
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
        pages = self._found.take()
        if not pages:
            return
        newer, too_much = self._newer(pages)
        for page in pages:
            bad = page.bad
            why = obstacle(self._logs) or too_much or newer.failed.get(bad.ledger_id)
            if why is None:
                slots = newer.wanted[bad.ledger_id][bad.page]
                why = self._mend(bad, array("q", [new or old for new, old in zip(slots, page.slots, strict=True)]))
            if why is not None:
                self._found.refused_count += 1
                self._found.leave(bad, why)
                log.warn(
                    "{page} stays damaged for now: {why}. It is tried again. Where that does not help, {remedy}",
                    page=str(bad), why=why, remedy=remedy(bad.ledger_id),
                )  # fmt: skip
                continue
            self._damage.mended(bad.path, bad.offset, fmt.PAGE_SIZE)
            self._found.mended(bad)
            log.info("{page} was made anew out of the entry logs", page=str(bad))

    def _newer(self, pages: Sequence[FoundPage]) -> tuple[LogScan, str | None]:
        """What logs that the search did not see have of the pages; or why that is not read now.

        The active log is closed then, so that the next search sees it. Raises as `apply`.
        """
        logs = self._logs
        scan = LogScan(self._fs, logs, _wanted(page.bad for page in pages))
        seen = frozenset[int]().union(*(page.log_ids for page in pages))
        closed = [each for each in logs.log_ids if each not in seen and not _is_written(logs, each)]
        active = logs.active_end if any(map(logs.is_writing, scan.wanted)) else None
        size = sum(map(logs.size_of, closed)) + (active[2] if active is not None else 0)
        if size > NEWER_BYTES_MAX:
            if active is not None:
                logs.roll()
            return scan, f"{size} bytes of entry logs were written since they were searched"
        for log_id in closed:
            for _ in scan.closed(log_id):
                pass
        if active is not None:
            for _ in scan.active(*active):
                pass
        return scan, None

    def _mend(self, bad: BadPage, slots: array[int]) -> str | None:
        if any(location and self._logs.path_of(location >> 32) is None for location in slots):
            return "an entry log that it names was removed meanwhile"
        first = bad.page * fmt.PAGE_SLOTS
        try:
            if self._cache.load(bad.ledger_id) is None:
                return "the ledger is not here any more"
            noted = self._checksums.value(bad.directory, bad.ledger_id, bad.page)
            # Durable with the checkpoint's own note that the page is being written: a power cut leaves it damaged.
            self._checksums.note_damaged(bad.directory, bad.ledger_id, bad.page)
            return self._cache.mend_page(
                bad.ledger_id,
                bad.page,
                lambda named, now: settled_page(
                    found=slots,
                    named=named,
                    now=now,
                    expected=expected_checksum(noted),
                    is_at=lambda slot, location: self._is_at(bad.ledger_id, first + slot, location),
                    doubt=lambda slot, location: self._doubt(first + slot, location),
                ),
            )
        except NoWritableDisk:
            raise
        except StorageError as error:
            return str(error)

    def _doubt(self, entry_id: int, location: int) -> str | None:
        """Why this place, where no record of the entry is, may be what was written; None: it certainly is not."""
        log_id, offset = log_fmt.split_location(location)
        never = location < 0 or offset < log_fmt.HEADER_SIZE + log_fmt.SIZE.size or log_id > self._logs.highest_log_id
        if never or self._logs.path_of(log_id) is not None:
            return None
        return f"it names a place for entry {entry_id} in entry log {log_id:x}, which is gone, and no log has a record"

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
