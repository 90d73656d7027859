"""Whose entries lie in damaged bytes of an entry log, or were in one that is gone: all that indexes name (I-67).

The indexes tell, not the log: where its bytes are damaged, so may be the heads of its records. One pass over the index
files serves all logs that are due, page by page. Of each ledger what memory has that no file has yet comes first: what
a checkpoint writes meanwhile is in the file then. A place that an index names is looked up once more before it counts:
an entry that was written anew, or copied by compaction, meanwhile lies elsewhere.

    the log      a place                         what is done
    is there     in damaged bytes, or the last   read as a client reads it, which notes what is damaged
                 before a run of them
                 elsewhere                       nothing
    is gone      anywhere in it                  noted as it is
    either       on an index page that fails     nothing: the page is noted with all of its entries (what it says need
                 its checksum                    not be true); but what memory has got since, as above

    verdict of a log    when                                                      what follows
    told                every entry that is there was read, or is in the record   one line; not looked at again
    told, writing       the same, but the log is being written                    one line; may be met again
    could not tell      an index or an entry could not be read, or the record     one line that says so; may be
                        had no room, or the look was broken off                   met again

"May be met again": by a later read, after a pause (suspect_bytes.py). Nothing is recorded of what was not reported.

Thread: the scrub's worker, one step at a time. Memory: one index page, one place per run of damaged bytes, and a copy
of what memory has of one ledger that no file has yet.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from twisted.logger import Logger

from bookkeeper.bookie.integrity.checksums.entry_log import page_end, page_start
from bookkeeper.bookie.integrity.checksums.index import UNKNOWN, page_checksum
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.integrity.damage.record import NO_LEDGER, Damage, DamageKind, DamageRecord
from bookkeeper.bookie.integrity.damage.wanted_bytes import Place, WantedBytes, batches
from bookkeeper.bookie.offline.inspection import list_ledger_ids
from bookkeeper.bookie.storage.disks import LedgerDirectories, current
from bookkeeper.bookie.storage.entry_log import format as log_fmt
from bookkeeper.bookie.storage.entry_log.logs import EntryLogs
from bookkeeper.bookie.storage.entry_log.reads import CountedReader, Results, is_on_damaged_page
from bookkeeper.bookie.storage.index import format as fmt
from bookkeeper.bookie.storage.index.cache import LedgerCache
from bookkeeper.bookie.storage.index.files import DamagedPage, index_path
from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX
from bookkeeper.errors import StorageError
from bookkeeper.filesystem import FileSystem, OpenMode

log = Logger()

STEP_BYTES = 512 * 1024
"""Read between two pauses; what one entry takes more is told in pieces of as many."""

LEDGERS_STEP = 100
"""Ledgers looked at between two pauses."""

READ_AT_ONCE = 100
"""Entries that are read in one step."""

DAMAGES_STEP = 16
"""Damages that are looked up once more between two pauses, each at most of one index page."""

LOGS_TOLD_MAX = 5
"""Logs that have lines of their own, of each verdict and in each look."""


@dataclass(slots=True)
class _Wanted:
    """One log of a look. pages: as they were met. damaged: None for all of it, which is gone.

    ledger_ids: who may have entries in it, None for anybody. writing: it may get more where it was looked at.
    """

    log_id: int
    pages: list[int]
    damaged: WantedBytes | None = None
    ledger_ids: frozenset[int] | None = None
    writing: bool = False
    problems: list[str] = field(default_factory=list)  # the first one
    problem_count: int = 0
    is_full: bool = False  # the record had no room

    def could_not_tell(self, why: str) -> None:
        """Of some entries."""
        self.problem_count += 1
        if not self.problems:
            self.problems.append(why)

    def no_room(self) -> None:
        """The record took none of them."""
        self.is_full = True
        self.could_not_tell("the record of damages had no room for all; it gets some as entries are written anew")


class DamagedEntries:
    """buffered: those of the entries that are in a write buffer, hence not read from a log."""

    def __init__(
        self,
        fs: FileSystem,
        directories: LedgerDirectories,
        logs: EntryLogs,
        cache: LedgerCache,
        checksums: IndexChecksums,
        damage: DamageRecord,
        reader: CountedReader,
        buffered: Callable[[int, Iterable[int]], set[int]],
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._logs = logs
        self._cache = cache
        self._checksums = checksums
        self._damage = damage
        self._reader = reader
        self._buffered = buffered
        self._looking = False
        self._read = 0  # bytes that no step has yielded yet

    @property
    def due(self) -> bool:
        """True when some read met bytes that nobody has looked at, and no look is under way. Thread: any."""
        return not self._looking and self._damage.bad_bytes.due

    def begin_round(self) -> None:
        """A round of the scrub begins: what is gone is looked at anew."""
        self._damage.bad_bytes.begin_round(set(self._logs.log_ids))

    def steps(self) -> Iterator[int]:
        """Look at all that is due; yields the bytes that were read, none more than STEP_BYTES at once."""
        if self._looking:
            return
        bad_bytes, self._looking = self._damage.bad_bytes, True
        looked: dict[int, _Wanted] = {}
        try:
            while True:
                taken = bad_bytes.take()
                if taken:
                    wanted = [_Wanted(log_id, pages) for log_id, pages in taken.items()]
                    yield from self._guarded(wanted, self._look(wanted))
                    bad_bytes.ended()
                    for each in wanted:  # a log may come twice: what is read for one page may be damaged in another
                        if each.problems or each.log_id not in looked:
                            looked[each.log_id] = each
                late = bad_bytes.take_late()
                for log_id in late:
                    yield from self._forget_moved(log_id)
                if not taken and not late:
                    break
            self._tell(list(looked.values()))
        finally:
            self._looking = False

    def note_pages(
        self, log_id: int, runs: Sequence[tuple[int, int]], ledger_ids: list[int] | None
    ) -> Generator[int, None, bool]:
        """Note what is damaged in these pages, first to last, of a log that is there; False for want of room for all.

        ledger_ids: who may have some in the log, None for anybody. Raises StorageError, at the end, where it cannot
        tell of all for another reason.
        """
        pages = [page for first, last in runs for page in range(first, last + 1)]
        self._damage.bad_bytes.looked_at(log_id, pages)
        damaged = WantedBytes((page_start(first), page_end(last)) for first, last in runs)
        wanted = _Wanted(log_id, pages, damaged, None if ledger_ids is None else frozenset(ledger_ids))
        yield from self._guarded([wanted], self._pass({log_id: wanted}))
        if wanted.problems and not wanted.is_full:
            raise StorageError(f"cannot tell whose entries are in its damaged bytes: {wanted.problems[0]}")
        return not wanted.problems

    # --- one look -----------------------------------------------------------------------------------------------------

    def _look(self, wanted: list[_Wanted]) -> Iterator[int]:
        self._reader.forget()  # what it has read may have been cut off since
        for each in wanted:
            try:
                self._prepare(each)
            except (StorageError, OSError) as error:
                each.could_not_tell(str(error))
            yield from self._pay()
        yield from self._pass({each.log_id: each for each in wanted if not each.problems})

    def _guarded(self, wanted: list[_Wanted], steps: Iterator[int]) -> Iterator[int]:
        """Those steps; whatever ends them, what they did not tell of may be met again."""
        bad_bytes, whole = self._damage.bad_bytes, False
        try:
            yield from steps
            whole = True
        finally:
            for each in wanted:
                if not whole or each.problems or each.writing:
                    bad_bytes.failed(each.log_id, each.pages)
                else:
                    bad_bytes.told(each.log_id)

    def _prepare(self, wanted: _Wanted) -> None:
        """What is looked for in a log, and at whose entries."""
        wanted.writing = self._logs.checksums.writing(wanted.log_id) is not None
        path = self._logs.path_of(wanted.log_id)
        if path is None:
            return
        try:
            file = self._fs.open(path, OpenMode.READ)
        except FileNotFoundError:
            return
        try:
            pieces = [(page_start(page), page_end(page)) for page in wanted.pages if page >= 0]
            if len(pieces) < len(wanted.pages):
                pieces.append((file.size(), log_fmt.LOG_BYTES_MAX))
            wanted.damaged = WantedBytes(pieces)
            header = log_fmt.decode_header(file.pread(log_fmt.HEADER_SIZE, 0), path)
            self._read += log_fmt.HEADER_SIZE
            if header.seal is None:
                return
            data = file.pread(header.seal.map_size, header.map_offset)
            self._read += len(data)
            if header.seal.fits(data):
                count, offset = header.ledger_count, header.map_offset
                wanted.ledger_ids = frozenset(
                    log_fmt.decode_ledgers_map(data, ledger_count=count, offset=offset, path=path)
                )
        except StorageError:
            return  # the header, or the map, is damaged itself: anybody may have entries there
        finally:
            file.close()

    def _pass(self, wanted: Mapping[int, _Wanted]) -> Iterator[int]:
        """Once over the index files of all ledgers that may have entries in these logs."""
        if not wanted:
            return
        try:
            for count, ledger_id in enumerate(self._ledgers_of(wanted), 1):
                try:
                    yield from self._ledger(ledger_id, wanted)
                except (StorageError, OSError) as error:
                    if isinstance(error, StorageError) and self._is_wholly_damaged(ledger_id):
                        continue
                    for each in wanted.values():
                        if each.ledger_ids is None or ledger_id in each.ledger_ids:
                            each.could_not_tell(f"ledger {ledger_id}: {error}")
                if self._read >= STEP_BYTES or count % LEDGERS_STEP == 0:
                    yield from self._pay()
        except OSError as error:
            for each in wanted.values():
                each.could_not_tell(str(error))
        for log_id in wanted:
            self._damage.bad_bytes.checked(log_id)
            yield from self._forget_moved(log_id)
        yield from self._pay()

    def _ledgers_of(self, wanted: Mapping[int, _Wanted]) -> Iterator[int]:
        named: set[int] = set()
        for each in wanted.values():
            if each.ledger_ids is None:
                break
            named |= each.ledger_ids
        else:
            yield from sorted(named)
            return
        dirty = set(self._cache.dirty_ledger_ids())
        yield from dirty
        for ledger_id in list_ledger_ids(self._fs, self._directories.index_dirs):
            if ledger_id not in dirty:
                yield ledger_id

    def _pay(self) -> Iterator[int]:
        """The bytes that were read since the last time."""
        self._read += self._reader.take_count()
        while self._read > STEP_BYTES:
            self._read -= STEP_BYTES
            yield STEP_BYTES
        size, self._read = self._read, 0
        yield size

    # --- one ledger ---------------------------------------------------------------------------------------------------

    def _ledger(self, ledger_id: int, wanted: Mapping[int, _Wanted]) -> Iterator[int]:
        before: dict[int, dict[int, Place]] = {log_id: {} for log_id in wanted}
        dirty = self._cache.dirty_slots(ledger_id)
        is_there = bool(dirty)
        for first_entry_id, slots in dirty:
            yield from self._places(ledger_id, first_entry_id, slots, wanted, before)
        dirty.clear()
        for directory in self._directories.index_dirs:
            path = index_path(directory, ledger_id)
            try:
                file = self._fs.open(path, OpenMode.READ)
            except FileNotFoundError:
                continue
            is_there = True
            try:
                slot_count = max(0, file.size() - fmt.HEADER_SIZE) // fmt.SLOT_SIZE
                for first_entry_id in range(0, slot_count, fmt.PAGE_SLOTS):
                    count = min(fmt.PAGE_SLOTS, slot_count - first_entry_id)
                    data = file.pread(count * fmt.SLOT_SIZE, fmt.slot_offset(first_entry_id))
                    self._read += len(data)
                    found = self._believed(directory, ledger_id, first_entry_id, data)
                    if found is not None:
                        yield from self._places(ledger_id, first_entry_id, found, wanted, before)
                    elif self._damage.omitted_count and not self._damage.among(
                        ledger_id, range(first_entry_id, first_entry_id + fmt.PAGE_SLOTS)
                    ):
                        raise StorageError(f"{path} is damaged, and the record of damages had no room for that")
                    if self._read >= STEP_BYTES:
                        yield from self._pay()
                if self._checksums.value(directory, ledger_id, -(-slot_count // fmt.PAGE_SLOTS)) != UNKNOWN:
                    self._cache.load(ledger_id)  # raises, too, where it has to ask the file
                    raise StorageError(f"{path} was cut short")
            finally:
                file.close()
        if not is_there:
            self._cache.load(ledger_id)  # raises where the file should be there
        for log_id, last in before.items():
            by_page: dict[int, set[Place]] = {}
            for place in last.values():
                by_page.setdefault(place[1] // fmt.PAGE_SLOTS, set()).add(place)
            for places in by_page.values():
                yield from self._note(wanted[log_id], ledger_id, sorted(places))

    def _believed(self, directory: str, ledger_id: int, first_entry_id: int, data: bytes) -> array[int] | None:
        """The locations of an index page; None of one that fails its checksum, which is noted then."""
        value = self._checksums.value(directory, ledger_id, first_entry_id // fmt.PAGE_SLOTS)
        if value in (UNKNOWN, page_checksum(data)):
            return fmt.decode_slots(data[: len(data) // fmt.SLOT_SIZE * fmt.SLOT_SIZE])
        if self._is_on_damaged_page(ledger_id, first_entry_id):
            return None
        try:  # it is being written, or memory had it before it was damaged; else this notes it
            entry_ids = range(first_entry_id, first_entry_id + fmt.PAGE_SLOTS)
            return array("q", self._cache.located(ledger_id, entry_ids))
        except DamagedPage:
            return None

    def _places(
        self,
        ledger_id: int,
        first_entry_id: int,
        slots: array[int],
        wanted: Mapping[int, _Wanted],
        before: Mapping[int, dict[int, Place]],
    ) -> Iterator[int]:
        """Note those of the entries of one index page that are in some of the logs."""
        by_log: dict[int, list[Place]] = {}
        for entry_id, location in enumerate(slots, first_entry_id):
            if location and location >> 32 in wanted:
                by_log.setdefault(location >> 32, []).append((location, entry_id))
        for log_id, places in by_log.items():
            each = wanted[log_id]
            inside = places if each.damaged is None else each.damaged.inside(places, before[log_id])
            if inside:
                yield from self._note(each, ledger_id, inside)

    def _note(self, wanted: _Wanted, ledger_id: int, places: list[Place]) -> Iterator[int]:
        """places: of one index page."""
        entry_ids = [entry_id for _, entry_id in places]
        if self._is_on_damaged_page(ledger_id, entry_ids[0]):
            noted = self._damage.among(ledger_id, entry_ids)
            places = [place for place in places if place[1] not in noted]
            if not places:
                return
        try:
            there = self._still_there(ledger_id, places)
        except StorageError as error:
            if not self._damage.among(ledger_id, entry_ids).issuperset(entry_ids):
                wanted.could_not_tell(f"ledger {ledger_id}: {error}")
            return
        if wanted.damaged is None:
            self._note_gone(wanted, ledger_id, there)
            yield from self._pay()
            return
        for batch in batches(there, bytes_max=STEP_BYTES, count_max=READ_AT_ONCE):
            results: Results = [None] * len(batch)
            omitted = self._damage.omitted_count
            self._reader.read(ledger_id, [(*place, at) for at, place in enumerate(batch)], results)
            unread = [entry_id for (_, entry_id), one in zip(batch, results, strict=True) if not isinstance(one, bytes)]
            if unread and not self._damage.among(ledger_id, unread).issuperset(unread):
                if self._damage.omitted_count > omitted:
                    wanted.no_room()
                else:
                    wanted.could_not_tell(f"ledger {ledger_id}: some of its entries there could not be read")
            yield from self._pay()

    def _note_gone(self, wanted: _Wanted, ledger_id: int, places: list[Place]) -> None:
        if not places:
            return
        path = self._logs.path_of(wanted.log_id)
        if path is not None and self._fs.exists(path):
            wanted.could_not_tell("it is there again")
            return
        where, reason = self._logs.expected_path(wanted.log_id), "the entry log is missing"
        entry_ids = [entry_id for _, entry_id in places]
        for damage in Damage.of_entries(ledger_id, entry_ids, where, 0, reason, DamageKind.GONE):
            self._damage.add(damage)
        if self._damage.omitted_count and not self._damage.among(ledger_id, entry_ids).issuperset(entry_ids):
            wanted.no_room()

    def _is_on_damaged_page(self, ledger_id: int, entry_id: int) -> bool:
        return is_on_damaged_page(self._damage, self._directories.index_dirs, ledger_id, entry_id)

    def _is_wholly_damaged(self, ledger_id: int) -> bool:
        return any(damage.last_entry_id == ENTRY_ID_MAX for damage in self._damage.of_ledger(ledger_id))

    def _still_there(self, ledger_id: int, places: list[Place]) -> list[Place]:
        entry_ids = [entry_id for _, entry_id in places]
        elsewhere = self._buffered(ledger_id, entry_ids)  # first: a flush gives the place before it leaves the buffer
        now = self._cache.located(ledger_id, entry_ids)
        return [each for each, at in zip(places, now, strict=True) if at == each[0] and each[1] not in elsewhere]

    # --- the record ---------------------------------------------------------------------------------------------------

    def _paths_of(self, log_id: int) -> list[str]:
        """Every path that a damage of the log may have."""
        name = log_fmt.log_name(log_id)
        there = [f"{current(directory)}/{name}" for directory in self._directories.ledger_dirs]
        return list(dict.fromkeys((self._logs.expected_path(log_id), *there)))

    def _forget_moved(self, log_id: int) -> Iterator[int]:
        """What was noted while it was written anew is needed no more."""
        count = 0
        for path in self._paths_of(log_id):
            for damage in self._damage.in_file(path):
                if damage.ledger_id == NO_LEDGER or not damage.is_narrow:
                    continue
                entry_ids = damage.entry_ids()
                elsewhere = self._buffered(damage.ledger_id, entry_ids)
                try:
                    now = self._cache.located(damage.ledger_id, entry_ids)
                except StorageError:
                    continue  # it stays noted
                moved = [
                    entry_id
                    for entry_id, at in zip(entry_ids, now, strict=True)
                    if at >> 32 != log_id or entry_id in elsewhere
                ]
                if moved:
                    self._damage.replaced(damage.ledger_id, moved, path=path)
                count += 1
                if count % DAMAGES_STEP == 0:
                    yield 0

    def _tell(self, wanted: list[_Wanted]) -> None:
        told = [each for each in wanted if not each.problems]
        for each in told[:LOGS_TOLD_MAX]:
            self._tell_entries(self._logs.expected_path(each.log_id), each.log_id)
        if len(told) > LOGS_TOLD_MAX:
            log.warn(
                "{count} more entry logs with damaged bytes, or missing, were looked at; {damaged} damaged ranges are "
                "known in all",
                count=len(told) - LOGS_TOLD_MAX, damaged=len(self._damage),
            )  # fmt: skip
        untold = [each for each in wanted if each.problems]
        for each in untold[:LOGS_TOLD_MAX]:
            others = each.problem_count - 1
            log.error(
                "Cannot tell now of all entries in the damaged bytes of {path}: {why}{more}. It is tried again when "
                "one of them is read, after a pause, and in the next round of the scrub",
                path=self._logs.expected_path(each.log_id), why=each.problems[0],
                more=f" (and {others} more problems)" if others else "",
            )  # fmt: skip
        if len(untold) > LOGS_TOLD_MAX:
            log.error("The same of {count} more entry logs", count=len(untold) - LOGS_TOLD_MAX)

    def _tell_entries(self, path: str, log_id: int) -> None:
        damages = [damage for each in self._paths_of(log_id) for damage in self._damage.in_file(each)]
        damages = [damage for damage in damages if damage.ledger_id != NO_LEDGER]
        ledger_ids = sorted({damage.ledger_id for damage in damages})
        if not damages:
            log.info("No entry that is still needed lies in the damaged bytes of {path} that were read", path=path)
            return
        log.warn(
            "Of {path}, {entries} entries of {ledgers} are known to be damaged or missing. They are reported for "
            "repair from other copies; `bookkeeper why ledger {ledger_id}` says how far that is",
            path=path,
            entries=sum(damage.entry_count for damage in damages),
            ledgers=f"ledger {ledger_ids[0]}" if len(ledger_ids) == 1 else f"{len(ledger_ids)} ledgers",
            ledger_id=ledger_ids[0],
        )
