"""Reading through what is stored, in small steps: entry logs, their maps, index files (I-67).

    catch-up    side files for logs without one (a crash, another bookie's), checksums of index pages nobody knows
    round       all closed logs and all index files compared with their checksums, and the catch-up on the way
    mending     the catch-up and all index files: what is needed to make damaged pages anew between two rounds

    entry log   every page; header and map against the header's seal. Which entries a bad page takes along the index
                tells: those are noted as damaged, a page that no entry needs is noted without any
    index       both copies of the header (one that is torn is written again), every page; files that are gone although
                nobody deleted their ledgers; pages that name a log which is not there. Damaged pages are made anew out
                of the logs, where that is certain (page_repair.py)

A log that is being written is left out: what it lacks is in the journal. What the scrub makes checksums of is believed
as it is; checksums that are known are never replaced by what a damaged page has now. One damaged or unreadable file
never stops the others.

Thread: the scrub's worker, one step at a time. Who drives it, and how fast: `bookie.scrubber`.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import crc32c
from twisted.logger import Logger

from bookkeeper.bookie.integrity.checksums.entry_log import (
    BLOCK_PAGES,
    Block,
    PageChecksums,
    page_end,
    page_of,
    page_start,
)
from bookkeeper.bookie.integrity.checksums.index import HEADER_ROW, UNKNOWN, Rows, page_checksum
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.integrity.damage.entries import DamagedEntries
from bookkeeper.bookie.integrity.damage.index_texts import copy_damaged, file_damaged, file_gone, page_fails, remedy
from bookkeeper.bookie.integrity.damage.record import NO_LEDGER, Damage, DamageRecord
from bookkeeper.bookie.integrity.damage.suspect_bytes import GONE
from bookkeeper.bookie.integrity.scrub.page_repair import PAGES_MAX, BadPage, FoundPages, PageSearch
from bookkeeper.bookie.integrity.scrub.repair_turns import MendingTurn
from bookkeeper.bookie.offline.inspection import is_unwritten, list_index_files
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.entry_log import format as log_fmt
from bookkeeper.bookie.storage.entry_log.logs import EntryLogs
from bookkeeper.bookie.storage.index import format as fmt
from bookkeeper.bookie.storage.index.cache import LedgerCache
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode

log = Logger()

STEP_BYTES = 512 * 1024
"""Read between two pauses. A multiple of both kinds of pages."""

LEDGERS_STEP = 500
"""Index files looked at by name, or through the index, between two pauses."""

UNNEEDED = "no entry that is still needed is known to be there"
"""Of damaged pages of an entry log."""

ADOPTED_PAGES_MAX = 131_072
"""Pages of one index file that are looked for without a checksum: a gigabyte, 134 million entries. What a bookie of
ours writes has checksums from the start; beyond this an index of another's is read unchecked."""

_TRIES_MAX = 5

_TRIMS = 4
"""Of 256 ledgers each: those of a step, twice; the first time takes only the mark off that they were used."""

_OF_NO_BYTES = crc32c.crc32c(b"")


@dataclass(slots=True)
class ScrubCounters:
    """Sums since the start. pages_left: damaged ones that could not be made anew, in every round once more."""

    bytes: int = 0
    logs: int = 0
    index_files: int = 0
    logs_adopted: int = 0
    pages_adopted: int = 0
    headers_mended: int = 0
    pages_left: int = 0
    unreadable: int = 0


class StorageScrub:
    """The scrub of one storage. in_use: ledgers with entries in a write buffer."""

    def __init__(
        self,
        fs: FileSystem,
        directories: LedgerDirectories,
        logs: EntryLogs,
        cache: LedgerCache,
        checksums: IndexChecksums,
        damage: DamageRecord,
        damaged_entries: DamagedEntries,
        found_pages: FoundPages,
        in_use: Callable[[int], bool],
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._logs = logs
        self._cache = cache
        self._checksums = checksums
        self._damage = damage
        self._damaged_entries = damaged_entries
        self._found_pages = found_pages
        self._in_use = in_use
        self.counters = ScrubCounters()
        self._bad_pages = MendingTurn(PAGES_MAX, None)  # of this round
        self._tried: BadPage | None = None  # the last of those that were tried last
        self._untried = False
        self._missing_log = False  # some index page names a log that is gone
        self._gone_logs: set[int] = set()  # those of them that were here once
        self._checksums_say_damaged = checksums.any_damaged
        self._unsure: set[int] = set()  # ledgers that changed too often, or could not be read, in this round

    @property
    def catch_up_due(self) -> bool:
        """True when some directory's index pages were not all read yet. Logs are looked at by the catch-up itself."""
        return bool(self._checksums.unsettled) or not all(
            self._checksums.is_complete(directory) for directory in self._directories.index_dirs
        )

    @property
    def pages_damaged(self) -> bool:
        """True when an index page is known to be damaged. Thread: any."""
        return self._checksums_say_damaged or self._damage.has_pages

    @property
    def unmended(self) -> tuple[tuple[BadPage, str], ...]:
        """Damaged index pages that could not be made anew when that was tried last, and why. Thread: any.

        At most as many as the damage record keeps.
        """
        is_damaged = self._damage.is_damaged_page
        return tuple(
            (page, why) for page, why in self._found_pages.left if is_damaged(page.ledger_id, page.path, page.offset)
        )

    @property
    def pages_untried(self) -> bool:
        """True when damaged index pages are behind those that were tried last: it goes on with them. Thread: any."""
        return self._untried

    @property
    def mending_basis(self) -> object:
        """Equal as long as nothing has changed that damaged pages could not be made anew for. Thread: any."""
        return (
            self._logs.rolled_count,
            self._damage.found_count,
            self._damage.repaired_count,
            self._damage.forgotten_count,
            self._found_pages.refused_count,
            self.counters.logs_adopted,
            len(self._logs.unfinished),
        )

    @property
    def waits_for_checkpoint(self) -> bool:
        """True when pages were found, and the next checkpoint puts them into the index. Thread: any."""
        return len(self._found_pages) > 0

    @property
    def looks_due(self) -> bool:
        """True when reads met damaged bytes of logs, and other entries may be in them. Thread: any."""
        return self._damaged_entries.due

    def looking_steps(self) -> Iterator[int]:
        """Find all entries in the damaged bytes that reads met; may come between two steps of anything else."""
        return self._damaged_entries.steps()

    def trim(self) -> None:
        """Evict what a step has loaded beyond the bound of the ledger cache. Thread: reactor."""
        for _ in range(_TRIMS):
            self._cache.trim(self._in_use)

    def mending_steps(self) -> Iterator[int]:
        """Look for damaged index pages, and for what they should say; yields the bytes that each step has read."""
        self._checksums_say_damaged = False  # those are found now
        return self._steps(logs=False, index=True)

    def steps(self, *, everything: bool) -> Iterator[int]:
        """A round, or the catch-up alone; yields the bytes that each step has read."""
        return self._steps(logs=everything, index=everything)

    def _steps(self, *, logs: bool, index: bool) -> Iterator[int]:
        """logs, index: all of them, not only what needs a checksum."""
        if logs:
            self._damaged_entries.begin_round()
        self._bad_pages = MendingTurn(PAGES_MAX, self._tried)
        self._missing_log, self._gone_logs = False, set()
        for log_id in self._logs.log_ids:
            for size in self._guarded(self._log(log_id, everything=logs), self._logs.path_of(log_id)):
                self.counters.bytes += size
                yield size
        unsettled = set(self._checksums.unsettled)
        self._unsure = set()
        for directory in self._directories.index_dirs:
            for size in self._guarded(self._index_directory(directory, unsettled, everything=index), directory):
                self.counters.bytes += size
                yield size
        self._checksums.unsettled -= unsettled - self._unsure
        self._untried = self._bad_pages.more
        if chosen := self._bad_pages.chosen:
            self._tried = chosen[-1]
            yield from self._guarded(self._mend_pages(chosen), "the entry logs")
        for log_id in self._gone_logs:  # not earlier: one look serves them all
            self._damage.bad_bytes.met(log_id, GONE)
        yield from self.looking_steps()

    def _mend_pages(self, pages: list[BadPage]) -> Iterator[int]:
        """Look for what these damaged pages should say; a checkpoint writes it."""
        search = PageSearch(self._fs, self._logs, self._found_pages)
        if self._missing_log:
            search.left = dict.fromkeys(pages, "the index names an entry log that is gone")
        else:
            for size in search.steps(pages):
                self.counters.bytes += size
                yield size
        self.counters.pages_left += len(search.left)
        for page, _ in self._found_pages.left:
            if not self._damage.is_damaged_page(page.ledger_id, page.path, page.offset):
                self._found_pages.forget_left(page.path, [page.page])
        for page, why in search.left.items():
            self._found_pages.leave(page, why)
            log.warn(
                "{page} stays damaged for now, what it does not name is unknown: {why}. It is tried again. Where that "
                "does not help, {remedy}",
                page=str(page), why=why, remedy=remedy(page.ledger_id),
            )  # fmt: skip

    def _guarded(self, steps: Iterator[int], what: str | None) -> Iterator[int]:
        """Those steps; an error ends them and is told, and whatever comes next goes on."""
        try:
            yield from steps
        except (StorageError, OSError) as error:
            self.counters.unreadable += 1
            log.error("The scrub cannot look through {what}: {error}", what=what, error=error)

    # --- entry logs ---------------------------------------------------------------------------------------------------

    def _log(self, log_id: int, *, everything: bool) -> Iterator[int]:
        path = self._logs.path_of(log_id)
        if path is None or self._logs.checksums.writing(log_id) is not None:
            return
        blocks = self._logs.checksums.blocks(log_id)
        last = blocks[-1] if blocks else None
        whole = last is not None and last.log_ends and None not in blocks
        if whole and not everything:
            return
        try:
            file = self._fs.open(path, OpenMode.READ)
        except FileNotFoundError:
            if self._logs.path_of(log_id) == path:
                self._damage.bad_bytes.met(log_id, GONE)
            return  # else it was collected meanwhile
        try:
            yield from self._pages_of_log(log_id, path, file, blocks, whole=whole)
        finally:
            file.close()
        self.counters.logs += 1

    def _pages_of_log(
        self, log_id: int, path: str, file: File, blocks: list[Block | None], *, whole: bool
    ) -> Iterator[int]:
        last = blocks[-1] if blocks else None
        header_problem, ledger_ids = self._check_header(path, file, sealed=last is not None and last.log_sealed)
        sealed = header_problem is None and ledger_ids is not None
        # What no side file speaks of was not synced for anybody, unless the seal says so; the journal has it.
        end = last.end if last is not None and last.log_ends else None if sealed else _synced_end(blocks)
        size = file.size() if end is None else min(file.size(), end)
        pages, offset = PageChecksums(), log_fmt.HEADER_SIZE
        while offset < size:
            stop = min(offset - offset % STEP_BYTES + STEP_BYTES, size)
            data = file.pread(stop - offset, offset)
            pages.append(data)
            yield len(data)
            if len(data) < stop - offset:
                break
            offset = stop
        crcs = pages.crcs
        if pages.tail is not None:
            crcs.append(pages.tail)
        bad = _failing(crcs, blocks, file, size)
        while end is not None and len(crcs) <= page_of(end - 1) and end > log_fmt.HEADER_SIZE:
            crcs.append(_OF_NO_BYTES ^ 1)
            bad.append(len(crcs) - 1)
        if header_problem is not None:
            self._found(header_problem)
        if bad:
            yield from self._report_pages(log_id, path, bad, ledger_ids if header_problem is None else None)
        else:
            self._damage.note_unneeded(path, None)
        if not whole and self._logs.path_of(log_id) == path:
            as_found = end is None or None in blocks or last is None or last.as_found
            if end is None:
                file.sync()  # what a killed process left may be in the cache alone, and no side file speaks of that
            self._logs.checksums.adopt(
                log_id, path, crcs, size=size if end is None else end, sealed=sealed, as_found=as_found
            )
            self.counters.logs_adopted += 1

    def _check_header(self, path: str, file: File, *, sealed: bool) -> tuple[Damage | None, list[int] | None]:
        """What is wrong with header or map; the ledgers of the log, where its map can be believed."""
        if not sealed and is_unwritten(file):
            return None, None
        try:
            header = log_fmt.decode_header(file.pread(log_fmt.HEADER_SIZE, 0), path)
        except StorageError as error:
            return Damage(NO_LEDGER, 0, 0, path, 0, str(error)), None
        seal = header.seal
        if seal is None:
            if sealed:
                return Damage(NO_LEDGER, 0, 0, path, 0, "the header fails its checksum, or is not the sealed one"), None
            return None, None
        data = file.pread(seal.map_size, header.map_offset)
        if not seal.fits(data):
            return Damage(NO_LEDGER, 0, 0, path, header.map_offset, "the ledgers map fails its checksum"), None
        found = log_fmt.decode_ledgers_map(data, ledger_count=header.ledger_count, offset=header.map_offset, path=path)
        return None, list(found)

    def _report_pages(self, log_id: int, path: str, bad: list[int], ledger_ids: list[int] | None) -> Iterator[int]:
        """Note the entries of bad pages. ledger_ids: who may have some in the log, None for anybody.

        Pages that no entry is known to need are one damage, of the log: there may be many, and nobody repairs them.
        """
        runs = _runs(bad)
        if not (yield from self._damaged_entries.note_pages(log_id, runs, ledger_ids)):
            return  # there are some that the record had no room for
        before = self._damage.unneeded(path)
        places = sorted(damage.offset for damage in self._damage.in_file(path) if damage != before)
        unneeded = [run for run in runs if not _any_within(places, page_start(run[0]), page_end(run[1]))]
        damage = None
        if unneeded and self._logs.path_of(log_id) == path:  # else it was collected meanwhile
            count = sum(last - first + 1 for first, last in unneeded)
            pages = f"pages {unneeded[0][0]} to {unneeded[-1][1]} fail their checksum"
            if count <= unneeded[-1][1] - unneeded[0][0]:
                pages = f"{count} of the {pages}"
            reason = f"{pages}; {UNNEEDED}"
            damage = Damage(NO_LEDGER, 0, 0, path, page_start(unneeded[0][0]), reason)
        is_new = self._damage.note_unneeded(path, damage)
        if damage is not None:
            self._tell(damage, is_new=is_new)

    # --- index files --------------------------------------------------------------------------------------------------

    def _index_directory(self, directory: str, unsettled: set[int], *, everything: bool) -> Iterator[int]:
        complete = self._checksums.is_complete(directory)
        wanted = None if everything or not complete else unsettled
        if wanted is not None and not wanted:
            return
        for ledger_id, path in list_index_files(self._fs, [directory]):
            if wanted is not None and ledger_id not in wanted:
                continue
            try:
                for size, sure in self._index_file(directory, ledger_id, path):
                    if not sure:
                        self._unsure.add(ledger_id)
                    yield size
            except (StorageError, OSError) as error:
                self._unsure.add(ledger_id)
                self.counters.unreadable += 1
                log.error("The scrub cannot look through {path}: {error}", path=path, error=error)
        if everything:
            yield from self._missing_files(directory)
        if not self._unsure and not complete:
            self._checksums.completed(directory)

    def _index_file(self, directory: str, ledger_id: int, path: str) -> Iterator[tuple[int, bool]]:
        """Bytes read, and whether everything could be told, for each window of a file.

        The file is opened for each: between two pauses the ledger may be deleted, and come back in another file, to
        which the checksums belong that are known by then.
        """
        with contextlib.suppress(FileNotFoundError):
            yield fmt.HEADER_SIZE, self._header(ledger_id, path)
            first, step = 0, STEP_BYTES // fmt.PAGE_SIZE
            known = [page for page in self._checksums.pages_of(directory, ledger_id) if page != HEADER_ROW]
            last_known = max(known, default=-1)  # a file that was cut has fewer pages than are known
            size = STEP_BYTES
            while size == STEP_BYTES or first <= last_known:
                size, sure = self._window(directory, ledger_id, path, first, first + step)
                yield size, sure
                first += step
            self.counters.index_files += 1

    def _read_index(self, path: str, size: int, offset: int) -> bytes:
        """Raises FileNotFoundError, OSError."""
        file = self._fs.open(path, OpenMode.READ)
        try:
            return file.pread(size, offset)
        finally:
            file.close()

    def _header(self, ledger_id: int, path: str) -> bool:
        """Check both copies of the header; have one that is torn written again."""
        for _ in range(_TRIES_MAX):
            changes = self._checksums.changes
            block = self._read_index(path, fmt.HEADER_SIZE, 0)
            try:
                header = fmt.decode_header(block, path)
            except CorruptRecord as error:
                if changes != self._checksums.changes:
                    continue
                self._found(Damage.of_ledger(ledger_id, path, error.offset, file_damaged(ledger_id, error.why)))
                return True
            if header.whole:
                return True
            if changes == self._checksums.changes:
                was_loaded = self._cache.get(ledger_id) is not None
                state = self._cache.load(ledger_id)  # tells of the damage, too, and has it mended
                if state is not None:
                    self.counters.headers_mended += 1
                    if was_loaded:
                        self._cache.change_header(state, lambda _: None)
                        if (bad := fmt.damaged_copy(block)) is not None:
                            log.warn(
                                "{path} at {offset}, ledger {ledger_id}: {why}. The next checkpoint writes it anew",
                                path=path, offset=bad[0], ledger_id=ledger_id, why=copy_damaged(*bad),
                            )  # fmt: skip
                return True
        return False

    def _window(self, directory: str, ledger_id: int, path: str, first: int, stop: int) -> tuple[int, bool]:
        """Compare the pages from `first` to `stop` - 1, and note the checksums of those without one.

        Raises FileNotFoundError, OSError, and as `IndexChecksums.adopt`.
        """
        size = 0
        for _ in range(_TRIES_MAX):
            changes = self._checksums.changes
            known = self._checksums.pages_of(directory, ledger_id)
            file = self._fs.open(path, OpenMode.READ)  # behind `changes`: the file that `known` is about, or it changes
            try:
                data = file.pread((stop - first) * fmt.PAGE_SIZE, fmt.slot_offset(first * fmt.PAGE_SLOTS))
                size = len(data)
                rows, gone, bad = self._compared(ledger_id, data, known, first, stop)
                if changes != self._checksums.changes or not self._fs.exists(path):
                    continue
                if rows:
                    # What a killed process left may be in the cache alone: a power cut changes the page then.
                    file.sync()
                    if not self._checksums.adopt(directory, rows, changes):
                        continue
                    self.counters.pages_adopted += len(rows)
            finally:
                file.close()
            self._missing_log |= bool(gone)
            for log_id in gone:
                if 0 <= log_id <= self._logs.highest_log_id:  # else it never was here: the page is damaged
                    self._gone_logs.add(log_id)
            for page in bad:
                damage = _damaged_page(ledger_id, path, page, known[page])
                self._tell(damage, is_new=self._damage.add_page(damage))
                self._bad_pages.found(BadPage(directory, ledger_id, path, page))
            self._found_pages.forget_left(path, set(range(first, stop)).difference(bad))
            return size, True
        return size, False

    def _compared(
        self, ledger_id: int, data: bytes, known: dict[int, int], first: int, stop: int
    ) -> tuple[Rows, set[int], list[int]]:
        """Of pages of an index file: the checksums of those without one, logs that are gone, and who fails its own."""
        rows, gone, bad = Rows(), set[int](), list[int]()
        for page in range(first, stop):
            at = (page - first) * fmt.PAGE_SIZE
            some = data[at : at + fmt.PAGE_SIZE]
            value = known.get(page, UNKNOWN)
            if value == UNKNOWN and any(some) and page < ADOPTED_PAGES_MAX:
                rows.add(ledger_id, page, page_checksum(some))
            elif value not in (UNKNOWN, page_checksum(some)):
                bad.append(page)
            if page not in bad[-1:]:  # a damaged page's places need not be what was written
                gone |= self._missing_logs(some)
        if first == 0 and not known and not rows:
            rows.add(ledger_id, HEADER_ROW, 0)
        return rows, gone, bad

    def _missing_logs(self, data: bytes) -> set[int]:
        """The entry logs that an index page names and that are not there."""
        slots = fmt.decode_slots(data[: len(data) // fmt.SLOT_SIZE * fmt.SLOT_SIZE])
        log_ids = {location >> 32 for location in slots if location}
        return {log_id for log_id in log_ids if self._logs.path_of(log_id) is None}

    def _missing_files(self, directory: str) -> Iterator[int]:
        for count, ledger_id in enumerate(self._checksums.known_ledgers(directory)):
            if count % LEDGERS_STEP == LEDGERS_STEP - 1:
                yield 0
            changes = self._checksums.changes
            path = index_path(directory, ledger_id)
            if self._fs.exists(path) or not self._checksums.pages_of(directory, ledger_id):
                continue
            if changes == self._checksums.changes:
                self._found(Damage.of_ledger(ledger_id, path, 0, file_gone(ledger_id)))

    def _found(self, damage: Damage) -> None:
        self._tell(damage, is_new=self._damage.add(damage))

    def _tell(self, damage: Damage, *, is_new: bool) -> None:
        if is_new:
            log.error(
                "{path} at {offset}, ledger {ledger_id}, entries {first} to {last}: {reason}",
                path=damage.path, offset=damage.offset, ledger_id=damage.ledger_id,
                first=damage.first_entry_id, last=damage.last_entry_id, reason=damage.reason,
            )  # fmt: skip


def _damaged_page(ledger_id: int, path: str, page: int, value: int) -> Damage:
    first = page * fmt.PAGE_SLOTS
    last = first + fmt.PAGE_SLOTS - 1
    return Damage(ledger_id, first, last, path, fmt.slot_offset(first), page_fails(ledger_id, page, value))


def _synced_end(blocks: list[Block | None]) -> int | None:
    """Up to where the writer of an unfinished log had synced it at last; None where its side file does not tell.

    A last block that is full may have been followed by one that is lost.
    """
    last = blocks[-1] if blocks else None
    return last.end if last is not None and len(last.crcs) < BLOCK_PAGES else None


def _failing(crcs: array[int], blocks: list[Block | None], file: File, size: int) -> list[int]:
    """The pages whose checksum is not the known one; they get the known one in `crcs`, or one that is wrong.

    crcs: of the pages up to `size`; those that are known and missing are added.
    """
    bad: list[int] = []
    for block in blocks:
        if block is None:
            continue
        for page, known in enumerate(block.crcs, block.first_page):
            while len(crcs) <= page:
                crcs.append(_OF_NO_BYTES ^ 1)
                bad.append(len(crcs) - 1)
            if block.end < min(page_end(page), size):  # the log grew before it was sealed
                start = page_start(page)
                if crc32c.crc32c(file.pread(block.end - start, start)) != known:
                    bad.append(page)
                    crcs[page] ^= 1
            elif crcs[page] != known:
                if page not in bad[-1:]:
                    bad.append(page)
                crcs[page] = known
    return bad


def _any_within(places: list[int], start: int, stop: int) -> bool:
    """True when one of the places, ascending, is from `start` to before `stop`."""
    at = bisect_left(places, start)
    return at < len(places) and places[at] < stop


def _runs(pages: list[int]) -> list[tuple[int, int]]:
    """Neighbouring pages together: (first, last), ascending."""
    runs: list[tuple[int, int]] = []
    for page in sorted(pages):
        if runs and runs[-1][1] == page - 1:
            runs[-1] = (runs[-1][0], page)
        else:
            runs.append((page, page))
    return runs
