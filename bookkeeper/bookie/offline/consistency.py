"""Do index files and entry logs of a bookie that does not run agree, and is every byte of them well-formed?

Both directions, because each finds what the other cannot:

    index -> log    every location is a record with the ledger's and the entry's id; no file is shorter than it was
    log -> index    every record of a ledger that has an index file is known there, or is still in the journal: an
                    index page that was lost reads as zeros, which are "never held" (I-59); unless its checksum
                    says that zeros were written, as for a ledger that was dropped here once and came back

and of each log: header, records, and a map that names the ledgers which are in it (I-60). Entries are compared by
their ids, as a bookie compares them when it reads; the digest is the client's, which has the key. Where there are
checksums of pages, `checksum_check` compares those too.

Reads only, on our directories and on Apache's (not on those of its DbLedgerStorage). Blocking; any thread. Memory: the
heads of LOG_RECORDS_MAX records, and the ids of the ledgers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bookkeeper.bookie.integrity.damage.index_texts import copy_damaged, file_damaged, remedy
from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.offline.checksum_check import IndexPages, check_log_pages
from bookkeeper.bookie.offline.fault import Fault, fault_of
from bookkeeper.bookie.storage.entry_log import format as log_fmt
from bookkeeper.bookie.storage.index import format as index_fmt
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode

LOG_RECORDS_MAX = 1_000_000
"""Heads kept before they are compared with the index."""

_OPEN_LOGS_MAX = 64
_HEADS_WINDOW = 16 * 1024


@dataclass(slots=True)
class CheckCounters:
    """What was looked at. unindexed: ledgers in the logs without an index file: deleted, or their index is lost."""

    logs: int = 0
    records: int = 0
    ledgers: int = 0
    locations: int = 0
    unindexed: int = 0


class StorageCheck:
    """The check of one bookie's ledger and index directories. `run` once.

    journaled: entries by ledger that the next start will replay, so that the index need not have them.
    on_progress: is told bytes of entry logs and index files looked at so far; `total_bytes` of them are to come.
    """

    def __init__(
        self,
        fs: FileSystem,
        ledger_dirs: Sequence[str],
        index_dirs: Sequence[str],
        *,
        journaled: Mapping[int, Collection[int]],
        on_progress: Callable[[int], None],
    ) -> None:
        """Find the files. Raises OSError for a directory that cannot be listed."""
        self.counters = CheckCounters()
        self._fs = fs
        self._journaled = journaled
        self._on_progress = on_progress
        self._log_files = inspection.list_entry_logs(fs, ledger_dirs)
        self._index_files = list(inspection.list_index_files(fs, index_dirs))
        self._logs = dict(self._log_files)
        self._indexes = dict(self._index_files)
        self._pages = IndexPages(fs, ledger_dirs, index_dirs)
        self._open: dict[int, _Heads] = {}
        self._done = 0
        self._sizes = {path: _size(fs, path) for _, path in (*self._log_files, *self._index_files)}
        self.total_bytes = sum(self._sizes.values())

    def run(self) -> Iterator[Fault]:
        """Every fault, as it is found. Raises OSError for a disk that cannot be read."""
        yield from self._twice(self._log_files, "entry log", "log_id")
        yield from self._twice(self._index_files, "index file of ledger", "ledger")
        yield from self._pages.check_files()
        try:
            for ledger_id, path in self._index_files:
                yield from self._check_index(ledger_id, path)
                yield from self._pages.check(ledger_id, path)
                self._progress(path)
        finally:
            for heads in self._open.values():
                heads.close()
        unindexed: set[int] = set()
        for log_id, path in self._log_files:
            yield from self._check_log(log_id, path, unindexed)
            yield from check_log_pages(self._fs, log_id, path, self._indexes)
            self._progress(path)
        self.counters.unindexed = len(unindexed)

    def _progress(self, path: str) -> None:
        self._done += self._sizes[path]
        self._on_progress(self._done)

    def _twice(self, files: Iterable[tuple[int, str]], what: str, kind: str) -> Iterator[Fault]:
        seen: dict[int, str] = {}
        for number, path in files:
            if number in seen:
                yield Fault(
                    path,
                    None,
                    f"{what} {number} is here and in {seen[number]}: one of them is not this bookie's",
                    number if kind == "ledger" else None,
                )
            seen[number] = path

    # --- index -> log -------------------------------------------------------------------------------------------------

    def _check_index(self, ledger_id: int, path: str) -> Iterator[Fault]:
        self.counters.ledgers += 1
        try:
            header = inspection.read_index_header(self._fs, path)
        except StorageError as error:
            found = fault_of(error, path, ledger_id)
            yield replace(found, why=file_damaged(ledger_id, found.why))
            return
        bad = inspection.damaged_header_copy(self._fs, path)
        if bad is not None:
            offset, field = bad
            why = (
                f"{copy_damaged(offset, field)} (a power cut while it is written leaves the same). The bookie writes "
                "it anew once it runs: after the first request for the ledger, or when the scrub comes by"
            )
            yield Fault(path, offset, why, ledger_id)
        size = self._sizes[path]
        wanted = index_fmt.slot_offset(header.slot_count)
        if header.slot_count and size < wanted:
            why = f"the file ends here, but it had {header.slot_count} locations once: their entries are not found"
            why = file_damaged(ledger_id, why)
            yield Fault(path, size, why, ledger_id)
        elif (size - index_fmt.HEADER_SIZE) % index_fmt.SLOT_SIZE:
            yield Fault(path, size, "the file ends inside a location", ledger_id)
        for entry_id, location in inspection.iter_index(self._fs, path):
            self.counters.locations += 1
            why_not = self._why_not_at(ledger_id, entry_id, location)
            if why_not is not None:
                yield Fault(path, index_fmt.slot_offset(entry_id), why_not, ledger_id, entry_id)

    def _why_not_at(self, ledger_id: int, entry_id: int, location: int) -> str | None:
        """What is wrong with a location; None for nothing."""
        log_id, offset = log_fmt.split_location(location)
        path = self._logs.get(log_id)
        at = f"entry {entry_id} is to be at offset {offset} of entry log {log_fmt.log_name(log_id)}"
        if location < 0 or path is None:
            return f"{at}, which is in no ledger directory"
        found = self._heads_of(log_id, path).at(offset)
        if found is None:
            return f"{path} ends before: {at}"
        size, found_ledger_id, found_entry_id = found
        if (found_ledger_id, found_entry_id) != (ledger_id, entry_id):
            return f"{at}, but there is entry {found_entry_id} of ledger {found_ledger_id} in {path}"
        if size < log_fmt.RECORD_SIZE_MIN or offset + size > self._sizes[path]:
            return f"{at}, but a record of {size} bytes does not fit there in {path}"
        return None

    def _heads_of(self, log_id: int, path: str) -> _Heads:
        heads = self._open.pop(log_id, None)
        if heads is None:
            heads = _Heads(self._fs.open(path, OpenMode.READ))
            if len(self._open) >= _OPEN_LOGS_MAX:
                self._open.pop(next(iter(self._open))).close()
        self._open[log_id] = heads
        return heads

    # --- log -> index -------------------------------------------------------------------------------------------------

    def _check_log(self, log_id: int, path: str, unindexed: set[int]) -> Iterator[Fault]:
        self.counters.logs += 1
        if self._is_unwritten(path):
            return
        sizes: dict[int, int] = {}
        known: dict[int, array[int]] = {}
        kept, whole = 0, True
        try:
            for record in inspection.iter_records(self._fs, path, log_id=log_id, bodies=False):
                self.counters.records += 1
                sizes[record.ledger_id] = sizes.get(record.ledger_id, 0) + record.size + log_fmt.SIZE.size
                if record.ledger_id not in self._indexes:
                    unindexed.add(record.ledger_id)
                    continue
                known.setdefault(record.ledger_id, array("q")).extend((record.entry_id, record.offset))
                kept += 1
                if kept >= LOG_RECORDS_MAX:
                    yield from self._compare_all(path, known)
                    kept = 0
        except StorageError as error:
            yield fault_of(error, path, None)
            whole = False
        yield from self._compare_all(path, known)
        if whole:
            yield from self._check_map(path, sizes)

    def _is_unwritten(self, path: str) -> bool:
        """See `offline.is_unwritten`."""
        file = self._fs.open(path, OpenMode.READ)
        try:
            return inspection.is_unwritten(file)
        finally:
            file.close()

    def _check_map(self, path: str, sizes: Mapping[int, int]) -> Iterator[Fault]:
        """The map names the ledgers that a scan finds, and of a sealed log their bytes.

        Without a seal bytes may differ: Apache's storage may append entries while it writes the map.
        """
        file = self._fs.open(path, OpenMode.READ)
        try:
            block = file.pread(log_fmt.HEADER_SIZE, 0)
            header = log_fmt.decode_header(block, path)
            data = file.pread(max(0, file.size() - header.map_offset), header.map_offset) if header.map_offset else b""
        finally:
            file.close()
        if header.seal is None and block[log_fmt.HEADER.size :].strip(b"\0"):
            why = "behind the header's fields are neither zeros nor an intact seal; the log must be scanned"
            yield Fault(path, log_fmt.HEADER.size, why)
        if not header.map_offset:
            return
        if header.seal is not None and not header.seal.fits(data):
            yield Fault(path, header.map_offset, "the ledgers map is not the one that was sealed")
            return
        try:
            ledgers_map = log_fmt.decode_ledgers_map(
                data, ledger_count=header.ledger_count, offset=header.map_offset, path=path
            )
        except CorruptRecord as error:
            yield Fault(path, error.offset, f"{error.why}; the log must be scanned")
            return
        if header.seal is not None and ledgers_map != sizes:
            yield Fault(path, header.map_offset, "the sealed ledgers map does not name what a scan finds")
            return
        hidden = sorted(set(sizes) - set(ledgers_map))
        for ledger_id in hidden:
            why = f"ledger {ledger_id} has {sizes[ledger_id]} bytes in this log, but is not in its ledgers map"
            yield Fault(path, None, why, ledger_id)
        for ledger_id in sorted(set(ledgers_map) - set(sizes)):
            yield Fault(path, None, f"the ledgers map names ledger {ledger_id}, which has no entry here", ledger_id)

    def _compare_all(self, path: str, known: dict[int, array[int]]) -> Iterator[Fault]:
        for ledger_id in sorted(known):
            yield from self._compare(path, ledger_id, known[ledger_id])
        known.clear()

    def _compare(self, path: str, ledger_id: int, records: array[int]) -> Iterator[Fault]:
        """Entries of a log that the ledger's index does not have; neighbours make one fault."""
        index_path = self._indexes[ledger_id]
        lost: list[tuple[int, int]] = []
        journaled = self._journaled.get(ledger_id, ())
        with _Slots(self._fs.open(index_path, OpenMode.READ)) as slots:
            for place in range(0, len(records), 2):
                entry_id, offset = records[place], records[place + 1]
                if entry_id >= 0 and not slots.has(entry_id) and entry_id not in journaled:
                    lost.append((entry_id, offset))
        pages = {entry_id // index_fmt.PAGE_SLOTS for entry_id, _ in lost}
        sound = {page for page in pages if self._pages.is_as_written(ledger_id, index_path, page)}
        lost = sorted(place for place in lost if place[0] // index_fmt.PAGE_SLOTS not in sound)
        start = 0
        for place in range(1, len(lost) + 1):
            if place < len(lost) and lost[place][0] <= lost[place - 1][0] + 1:
                continue
            first, last = lost[start], lost[place - 1]
            what = f"entry {first[0]}" if first[0] == last[0] else f"entries {first[0]} to {last[0]}"
            yield Fault(
                index_path,
                index_fmt.slot_offset(first[0]),
                f"{what} of ledger {ledger_id} in {path} (the first at offset {first[1]}), but no location here: the "
                "page was lost, or the ledger was dropped here once and came back. If it was lost, "
                f"{remedy(ledger_id)}",
                ledger_id,
                first[0],
            )
            start = place


class _Heads:
    """Record heads of one log at any offset, through a small window: an index names neighbours one after the other."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._start, self._data = 0, b""
        self.close = file.close

    def at(self, offset: int) -> tuple[int, int, int] | None:
        """Size, ledger id and entry id of the record whose body is at `offset`; None beyond the end."""
        start = offset - log_fmt.SIZE.size
        if start < 0:
            return None
        at = start - self._start
        if at < 0 or at + log_fmt.RECORD_HEAD.size > len(self._data):
            self._data = self._file.pread(_HEADS_WINDOW, start)
            self._start, at = start, 0
            if len(self._data) < log_fmt.RECORD_HEAD.size:
                return None
        size, ledger_id, entry_id = log_fmt.RECORD_HEAD.unpack_from(self._data, at)
        return size, ledger_id, entry_id


class _Slots:
    """Which entries an index file has locations of, a page at a time."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._page, self._locations = -1, array("q")

    def has(self, entry_id: int) -> bool:
        """Whether the entry has a location."""
        page, slot = divmod(entry_id, index_fmt.PAGE_SLOTS)
        if page != self._page:
            data = self._file.pread(index_fmt.PAGE_SIZE, index_fmt.slot_offset(page * index_fmt.PAGE_SLOTS))
            self._page = page
            self._locations = index_fmt.decode_slots(data[: len(data) - len(data) % index_fmt.SLOT_SIZE])
        return slot < len(self._locations) and self._locations[slot] != 0

    def __enter__(self) -> _Slots:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _size(fs: FileSystem, path: str) -> int:
    file = fs.open(path, OpenMode.READ)
    try:
        return file.size()
    finally:
        file.close()
