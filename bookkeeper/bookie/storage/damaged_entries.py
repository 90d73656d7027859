"""Whose entries lie in damaged bytes of an entry log, or were in one that is gone: all that indexes name (I-67).

The indexes tell, not the log: where its bytes are damaged, so may be the heads of its records. Index files first, then
what memory has that no file has yet. What an index names is looked up once more before it counts: an entry that was
written anew, or copied by compaction, meanwhile lies elsewhere. Entries in damaged bytes are read as a client reads
them, which notes those that are damaged; those of a log that is gone are noted as they are.

Thread: the scrub's worker, one step at a time. Memory: the places that one ledger has in the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from twisted.logger import Logger

from bookkeeper.bookie.storage import entry_log_format as log_fmt
from bookkeeper.bookie.storage import index_format as fmt
from bookkeeper.bookie.storage.bad_bytes import GONE
from bookkeeper.bookie.storage.damage import NO_LEDGER, Damage, DamageKind, DamageRecord
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.entry_log import EntryLogs
from bookkeeper.bookie.storage.index_files import index_path
from bookkeeper.bookie.storage.ledger_cache import LedgerCache
from bookkeeper.bookie.storage.log_checksums import page_end, page_start
from bookkeeper.bookie.storage.log_reads import LogReader, Results
from bookkeeper.bookie.storage.offline import iter_index, list_ledger_ids
from bookkeeper.errors import StorageError
from bookkeeper.filesystem import FileSystem, OpenMode

log = Logger()

LEDGERS_STEP = 500
"""Ledgers looked at between two pauses."""

ENTRIES_STEP = 65_536
"""Entries of an index file that are gone through between two pauses: 512 KiB."""

READ_AT_ONCE = 500
"""Entries that are read in one step."""

Placed = list[tuple[int, int]]
"""(location, entry id), ascending."""

Runs = Sequence[tuple[int, int]]
"""Bytes of a log: from the first to before the second."""


class DamagedEntries:
    """buffered: those of the entries that are in a write buffer, hence not read from a log."""

    def __init__(
        self,
        fs: FileSystem,
        directories: LedgerDirectories,
        logs: EntryLogs,
        cache: LedgerCache,
        damage: DamageRecord,
        reader: LogReader,
        buffered: Callable[[int, Iterable[int]], set[int]],
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._logs = logs
        self._cache = cache
        self._damage = damage
        self._reader = reader
        self._buffered = buffered

    @property
    def due(self) -> bool:
        """True when some read met bytes that nobody has looked at. Thread: any."""
        return self._damage.bad_bytes.waiting

    def steps(self) -> Iterator[int]:
        """Look at all that reads met; yields the bytes that each step has read."""
        bad_bytes, looked = self._damage.bad_bytes, set[int]()
        while (taken := bad_bytes.take()) is not None:
            log_id, pages = taken
            try:
                yield from self._look(log_id, pages)
                looked.add(log_id)
            except (StorageError, OSError) as error:
                bad_bytes.failed(log_id, pages)
                log.error(
                    "Cannot tell now whose entries are in the damaged bytes of {path}: {error}. It is tried again when "
                    "one of them is read, and in the next round of the scrub",
                    path=self._logs.expected_path(log_id), error=error,
                )  # fmt: skip
        for log_id in looked:
            self._tell(self._logs.expected_path(log_id))

    def note_pages(self, log_id: int, runs: Sequence[tuple[int, int]], ledger_ids: list[int] | None) -> Iterator[int]:
        """Note what is damaged in these pages, first to last, of a log that is there.

        ledger_ids: who may have some in the log, None for anybody.
        """
        for first, last in runs:
            self._damage.bad_bytes.looked_at(log_id, list(range(first, last + 1)))
        yield from self._note(log_id, [(page_start(first), page_end(last)) for first, last in runs], ledger_ids)

    def _look(self, log_id: int, pages: list[int]) -> Iterator[int]:
        path = self._logs.path_of(log_id)
        if path is None or self._is_gone(log_id):
            yield from self._note(log_id, None, None)
        else:
            yield from self._note(log_id, self._bytes_of(path, pages), self._ledgers_of(path))

    def _bytes_of(self, path: str, pages: list[int]) -> Runs:
        runs: list[tuple[int, int]] = []
        for page in pages:
            if page == GONE:
                file = self._fs.open(path, OpenMode.READ)
                try:
                    runs.append((file.size(), log_fmt.LOG_BYTES_MAX))
                finally:
                    file.close()
            else:
                runs.append((page_start(page), page_end(page)))
        return runs

    def _ledgers_of(self, path: str) -> list[int] | None:
        """Who may have entries in the log, by its map where that is the sealed one; None for anybody."""
        file = self._fs.open(path, OpenMode.READ)
        try:
            header = log_fmt.decode_header(file.pread(log_fmt.HEADER_SIZE, 0), path)
            if header.seal is None:
                return None
            data = file.pread(header.seal.map_size, header.map_offset)
            if not header.seal.fits(data):
                return None
            named = log_fmt.decode_ledgers_map(
                data, ledger_count=header.ledger_count, offset=header.map_offset, path=path
            )
            return list(named)
        except StorageError:
            return None
        finally:
            file.close()

    def _note(self, log_id: int, runs: Runs | None, ledger_ids: list[int] | None) -> Iterator[int]:
        """runs: None for all of a log that is gone."""
        if ledger_ids is None:
            ledgers: Iterable[int] = self._all_ledgers()
        else:
            ledgers = ledger_ids
        for count, ledger_id in enumerate(ledgers, 1):
            if count % LEDGERS_STEP == 0:
                yield 0
            try:
                placed: Placed = []
                yield from self._collect(ledger_id, log_id, placed)
                placed = sorted(set(placed)) if runs is None else _near(log_id, placed, runs)
                for page in _by_index_page(placed):
                    for start in range(0, len(page), READ_AT_ONCE):
                        self._note_some(ledger_id, log_id, page[start : start + READ_AT_ONCE], gone=runs is None)
                    yield 0
            except (StorageError, OSError) as error:
                log.warn("Cannot tell which entries of ledger {id} are damaged: {error}", id=ledger_id, error=error)
        yield from self._forget_moved(log_id, self._logs.expected_path(log_id))

    def _all_ledgers(self) -> Iterator[int]:
        dirty = set(self._cache.dirty_ledger_ids())
        yield from dirty
        for ledger_id in list_ledger_ids(self._fs, self._directories.index_dirs):
            if ledger_id not in dirty:
                yield ledger_id

    def _collect(self, ledger_id: int, log_id: int, placed: Placed) -> Iterator[int]:
        """Add the entries that the ledger has in the log, by its index file and by what no file has yet."""
        for directory in self._directories.index_dirs:
            path = index_path(directory, ledger_id)
            if not self._fs.exists(path):
                continue
            for count, (entry_id, location) in enumerate(iter_index(self._fs, path), 1):
                if location >> 32 == log_id:
                    placed.append((location, entry_id))
                if count % ENTRIES_STEP == 0:
                    yield ENTRIES_STEP * fmt.SLOT_SIZE
        for first_entry_id, slots in self._cache.dirty_slots(ledger_id):
            placed += [
                (location, first_entry_id + slot) for slot, location in enumerate(slots) if location >> 32 == log_id
            ]

    def _note_some(self, ledger_id: int, log_id: int, placed: Placed, *, gone: bool) -> None:
        """Entries of one index page. One that is damaged itself is told with all of its entries: nothing to add."""
        try:
            there = self._still_there(ledger_id, placed)
        except StorageError as error:
            log.warn(
                "Cannot tell which of the entries {first} to {last} of ledger {id} are damaged: {error}",
                first=min(entry_id for _, entry_id in placed), last=max(entry_id for _, entry_id in placed),
                id=ledger_id, error=error,
            )  # fmt: skip
            return
        if not gone:
            results: Results = [None] * len(there)
            self._reader.read(ledger_id, [(*each, at) for at, each in enumerate(there)], results)
        elif self._is_gone(log_id) and not self._is_damaged_page(ledger_id, placed[0][1]):
            entry_ids = [entry_id for _, entry_id in there]
            where = self._logs.expected_path(log_id)
            for damage in Damage.of_entries(
                ledger_id, entry_ids, where, 0, "the entry log is missing", DamageKind.GONE
            ):
                self._damage.add(damage)

    def _is_gone(self, log_id: int) -> bool:
        path = self._logs.path_of(log_id)
        return path is None or not self._fs.exists(path)

    def _is_damaged_page(self, ledger_id: int, entry_id: int) -> bool:
        offset = fmt.slot_offset(entry_id - entry_id % fmt.PAGE_SLOTS)
        paths = [index_path(directory, ledger_id) for directory in self._directories.index_dirs]
        return any(self._damage.is_damaged_page(ledger_id, path, offset) for path in paths)

    def _still_there(self, ledger_id: int, placed: Placed) -> Placed:
        entry_ids = [entry_id for _, entry_id in placed]
        elsewhere = self._buffered(ledger_id, entry_ids)  # first: a flush gives the place before it leaves the buffer
        now = self._cache.located(ledger_id, entry_ids)
        return [each for each, at in zip(placed, now, strict=True) if at == each[0] and each[1] not in elsewhere]

    def _forget_moved(self, log_id: int, path: str) -> Iterator[int]:
        """What was noted while it was written anew is needed no more."""
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
            yield 0

    def _tell(self, path: str) -> None:
        damages = [damage for damage in self._damage.in_file(path) if damage.ledger_id != NO_LEDGER]
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


def _near(log_id: int, placed: Placed, runs: Runs) -> Placed:
    """Those that lie in the bytes, or just before."""
    placed = sorted(placed)
    near: set[tuple[int, int]] = set()
    for start, stop in runs:
        low = bisect_left(placed, (log_fmt.location(log_id, start), -1))
        high = bisect_left(placed, ((log_id << 32) + stop + log_fmt.SIZE.size, -1))
        near.update(placed[max(0, low - 1) : high])
    return sorted(near)


def _by_index_page(placed: Placed) -> list[Placed]:
    pages: dict[int, Placed] = {}
    for each in placed:
        pages.setdefault(each[1] // fmt.PAGE_SLOTS, []).append(each)
    return list(pages.values())
