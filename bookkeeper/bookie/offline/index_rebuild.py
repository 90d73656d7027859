"""Making index files anew out of entry logs, journals and what is left of the old files; of a bookie that does not run.

Locations: of every record of the ledger in the entry logs the last one counts, as for a bookie that was given an entry
again; but where the old file names one of them, that one: compaction may have copied an entry behind a newer one. An
old location that no scan found is kept when a record with the right ids is there.

Key: of the old header, else of the journals, else the one that the caller was given. The first one recorded stays
(I-73): another password than the recorded one is refused, and so is a ledger without any key, which would take the
key of whoever comes first.

Fence: a fence, once set, is never forgotten (I-24). Of an intact old header, or the journals. Where the header is gone
the ledger is made fenced: a fence that was set before the oldest journal file that is left shows nowhere else, and no
answer of the metadata store excludes it, since a reader fences first and closes the ledger later. Whoever still writes
to the ledger must then close it and go on in a new one, which loses nothing; a forgotten fence loses acknowledged
entries. (Apache fences every ledger it rebuilds, also those whose header is intact.)

Refused as a whole, because an index without an entry that is there answers "never held" (I-59): a ledger whose entries
may lie in a damaged log, in which a scan ends early.

A file is written under another name, synced, and takes its place at once; the checksums of its pages follow the
checkpoint's protocol, so that a power cut leaves them right or unknown. Blocking; any thread. Memory: 8 bytes for
each entry of the ledgers, and some 100 bytes for each one of the journals.
"""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.bookie.integrity.checksums.index import DAMAGED, HEADER_ROW, Rows, page_checksum
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.offline.checksum_check import highest_log_id
from bookkeeper.bookie.storage.index import format as fmt
from bookkeeper.bookie.storage.index.files import TEMPORARY_SUFFIX, index_path
from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX
from bookkeeper.errors import CorruptRecord, StorageError, UnknownFormatVersion
from bookkeeper.filesystem import FileSystem, OpenMode


@dataclass(frozen=True, slots=True)
class Journaled:
    """What the journals say. later: entries of each ledger that the next start adds to its index by itself."""

    keys: Mapping[int, bytes]
    fenced: Collection[int]
    lacs: Mapping[int, bytes]
    earlier: Mapping[int, Collection[int]]
    later: Mapping[int, Collection[int]]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What became of one ledger's index. refused: why there is none; everything else then says what was found.

    fence: where it is known from, in words. only_journaled: entries in journal files before the mark and in no log.
    """

    ledger_id: int
    path: str
    entry_count: int
    first_entry_id: int | None
    last_entry_id: int | None
    fenced: bool
    fence: str
    only_journaled: int = 0
    refused: str | None = None


class _Locations:
    """Locations of one ledger, a page of an index file at a time. old: the page numbers' locations in the old file."""

    def __init__(self, old: Mapping[int, array[int]]) -> None:
        self._old = old
        self.pages: dict[int, array[int]] = {}

    def found(self, entry_id: int, location: int) -> None:
        """A record of the entry; called in the order of the logs."""
        page, slot = divmod(entry_id, fmt.PAGE_SLOTS)
        slots = self.pages.get(page)
        if slots is None:
            slots = self.pages[page] = array("q", bytes(fmt.PAGE_SIZE))
        known = self._old_location(entry_id)
        if not slots[slot] or slots[slot] != known:
            slots[slot] = location

    def _old_location(self, entry_id: int) -> int:
        page, slot = divmod(entry_id, fmt.PAGE_SLOTS)
        slots = self._old.get(page)
        return slots[slot] if slots is not None and slot < len(slots) else 0

    def missing(self) -> Iterator[tuple[int, int]]:
        """(entry id, location) of the old file of entries that were not found."""
        for page, slots in self._old.items():
            new = self.pages.get(page)
            for slot, location in enumerate(slots):
                if location and (new is None or not new[slot]):
                    yield page * fmt.PAGE_SLOTS + slot, location

    def entry_ids(self) -> Iterator[int]:
        """Those that have a location, ascending."""
        for page in sorted(self.pages):
            for slot, location in enumerate(self.pages[page]):
                if location:
                    yield page * fmt.PAGE_SLOTS + slot


@dataclass(slots=True)
class _Old:
    """What is left of a ledger's index file. header: None when it cannot be believed or there is no file."""

    path: str | None
    header: fmt.IndexHeader | None
    why: str


class IndexRebuild:
    """The rebuilding of some ledgers' index files. `scan` once, then `write` each.

    password_key: the master key of the password that the caller was given, or None; by ledger.
    """

    def __init__(
        self,
        fs: FileSystem,
        ledger_dirs: Sequence[str],
        index_dirs: Sequence[str],
        ledger_ids: Collection[int],
        journaled: Journaled,
        password_key: Callable[[int], bytes | None],
    ) -> None:
        """Read what is left of the old files. Raises StorageError for a ledger with files in two directories."""
        self._fs = fs
        self._index_dirs = index_dirs
        self._journaled = journaled
        self._password_key = password_key
        self._damage: list[CorruptRecord | UnknownFormatVersion] = []
        self._old = {ledger_id: self._read_old(ledger_id) for ledger_id in ledger_ids}
        self._locations = {ledger_id: _Locations(self._old_slots(old)) for ledger_id, old in self._old.items()}
        self._ledger_dirs = ledger_dirs
        self._checksums: IndexChecksums | None = None
        self._logs = inspection.list_entry_logs(fs, ledger_dirs)
        self.log_count = len(self._logs)

    def _read_old(self, ledger_id: int) -> _Old:
        paths = [index_path(directory, ledger_id) for directory in self._index_dirs]
        found = [path for path in paths if self._fs.exists(path)]
        if len(found) > 1:
            raise StorageError(f"ledger {ledger_id} has index files {' and '.join(found)}: keep this bookie's one")
        if not found:
            return _Old(None, None, "there is no index file")
        try:
            return _Old(found[0], inspection.read_index_header(self._fs, found[0]), "")
        except StorageError as error:
            return _Old(found[0], None, str(error))

    def _old_slots(self, old: _Old) -> dict[int, array[int]]:
        if old.path is None:
            return {}
        pages: dict[int, array[int]] = {}
        for entry_id, location in inspection.iter_index(self._fs, old.path):
            page, slot = divmod(entry_id, fmt.PAGE_SLOTS)
            pages.setdefault(page, array("q", bytes(fmt.PAGE_SIZE)))[slot] = location
        return pages

    def scan(self, on_progress: Callable[[int], None]) -> None:
        """Read every entry log. on_progress: is told the number of logs read. Raises OSError."""
        paths = dict(self._logs)
        for done, (log_id, path) in enumerate(self._logs):
            on_progress(done)
            self._scan_log(log_id, path)
        for ledger_id, locations in self._locations.items():
            for entry_id, location in list(locations.missing()):
                path = paths.get(location >> 32, "")
                if path and self._is_at(ledger_id, entry_id, location, path):
                    locations.found(entry_id, location)
        on_progress(self.log_count)

    def _scan_log(self, log_id: int, path: str) -> None:
        try:
            for record in inspection.iter_records(self._fs, path, log_id=log_id, bodies=False):
                locations = self._locations.get(record.ledger_id)
                if locations is None:
                    continue
                if not 0 <= record.entry_id <= ENTRY_ID_MAX:
                    raise CorruptRecord(path, record.offset, f"entry id {record.entry_id} of ledger {record.ledger_id}")
                locations.found(record.entry_id, record.location)
        except (CorruptRecord, UnknownFormatVersion) as error:
            if not self._is_unwritten(path):
                self._damage.append(error)

    def _is_unwritten(self, path: str) -> bool:
        """See `offline.is_unwritten`."""
        file = self._fs.open(path, OpenMode.READ)
        try:
            return inspection.is_unwritten(file)
        finally:
            file.close()

    def _is_at(self, ledger_id: int, entry_id: int, location: int, path: str) -> bool:
        try:
            record = inspection.read_entry(self._fs, path, location)
        except CorruptRecord:
            return False
        return (record.ledger_id, record.entry_id) == (ledger_id, entry_id)

    # --- results ------------------------------------------------------------------------------------------------------

    def result(self, ledger_id: int) -> Rebuilt:
        """What `write` would do."""
        old, locations = self._old[ledger_id], self._locations[ledger_id]
        entry_ids = list(locations.entry_ids())
        known = set(entry_ids)
        fenced, fence = self._fence(ledger_id, old)
        earlier = set(self._journaled.earlier.get(ledger_id, ()))
        only_journaled = earlier - known - set(self._journaled.later.get(ledger_id, ()))
        return Rebuilt(
            ledger_id,
            old.path or self._new_path(ledger_id),
            len(entry_ids),
            entry_ids[0] if entry_ids else None,
            entry_ids[-1] if entry_ids else None,
            fenced,
            fence,
            len(only_journaled),
            self._refusal(ledger_id, old, known),
        )

    def _new_path(self, ledger_id: int) -> str:
        return index_path(self._index_dirs[ledger_id % len(self._index_dirs)], ledger_id)

    def _fence(self, ledger_id: int, old: _Old) -> tuple[bool, str]:
        if ledger_id in self._journaled.fenced:
            return True, "the journal says so"
        if old.header is not None:
            return old.header.fenced, "the old index file says so"
        return True, f"whether it was fenced cannot be known: {old.why}"

    def _key(self, ledger_id: int, old: _Old) -> bytes | None:
        recorded = old.header.master_key if old.header is not None else b""
        return recorded or self._journaled.keys.get(ledger_id) or self._password_key(ledger_id)

    def _refusal(self, ledger_id: int, old: _Old, known: Collection[int]) -> str | None:
        if self._damage:
            return (
                f"{'; '.join(map(str, self._damage))}: what lies behind cannot be told, and an index without it would "
                "deny entries that are there. Repair the log from a copy, or let the ledger be replicated from the "
                "other bookies (`recover -l`)"
            )
        if not known and old.header is None and ledger_id not in self._journaled.keys:
            return "no entry log has an entry of it, and no journal its key"
        key, given = self._key(ledger_id, old), self._password_key(ledger_id)
        if not key:
            return "neither an index file nor a journal has its key: give its password (-password, -b64password)"
        if given is not None and given != key:
            return "its recorded key is not that of the password given; the recorded one stays, so leave -password out"
        return None

    def write(self, ledger_id: int) -> Rebuilt:
        """Replace the ledger's index file, durably, unless it is refused; what was done. Raises OSError."""
        rebuilt = self.result(ledger_id)
        if rebuilt.refused is None:
            self._write(rebuilt)
        return rebuilt

    def _write(self, rebuilt: Rebuilt) -> None:
        """What the checksums say at each moment is in `IndexRebuild._doubtful`."""
        ledger_id, path = rebuilt.ledger_id, rebuilt.path
        old, pages = self._old[ledger_id], self._locations[ledger_id].pages
        slot_count = (max(pages) + 1) * fmt.PAGE_SLOTS if pages else 0
        header = fmt.IndexHeader(
            self._key(ledger_id, old) or b"", rebuilt.fenced, self._explicit_lac(ledger_id, old), slot_count
        )
        checksums = self._open_checksums()
        directory = next(each for each in self._index_dirs if index_path(each, ledger_id) == path)
        known = checksums.pages_of(directory, ledger_id)
        rows = Rows()
        for number in sorted({*pages, *known} - {HEADER_ROW}):
            rows.add(ledger_id, number, page_checksum(fmt.encode_slots(pages[number]) if number in pages else b""))
        if not rows:
            rows.add(ledger_id, HEADER_ROW, 0)
        checksums.begin({directory: self._doubtful(ledger_id, old, rows, known)})
        checksums.forget_elsewhere(ledger_id, directory)
        self._replace(path, header, pages)
        checksums.begin({directory: rows})
        checksums.written({directory: rows})
        checksums.settle()

    def _doubtful(self, ledger_id: int, old: _Old, rows: Rows, known: Mapping[int, int]) -> Rows:
        """What is noted before the file is replaced. A power cut leaves the old file or the new one, and then

            the old page is whole, or nobody knows its checksum    nothing is known of the page: both serve
            it is not, or the file is gone                         the page is damaged, whichever file it is in

        so a ledger that lost entries is never taken for one that does not have them (I-31), and one that has them
        serves on. After the replacement the new checksums are noted.
        """
        doubtful = Rows()
        for _, page, value in rows:
            whole = old.path is not None and (page == HEADER_ROW or self._is_whole(old.path, page, known.get(page)))
            doubtful.add(ledger_id, page, value if whole else DAMAGED)
        return doubtful

    def _is_whole(self, path: str, page: int, value: int | None) -> bool:
        """False when the page certainly is damaged."""
        if value is None:
            return True
        file = self._fs.open(path, OpenMode.READ)
        try:
            return value == page_checksum(file.pread(fmt.PAGE_SIZE, fmt.slot_offset(page * fmt.PAGE_SLOTS)))
        finally:
            file.close()

    def _open_checksums(self) -> IndexChecksums:
        if self._checksums is None:
            self._checksums = IndexChecksums(self._fs, self._index_dirs)
            self._checksums.open(highest_log_id(self._fs, self._ledger_dirs))
        return self._checksums

    def close(self) -> None:
        """Close the files."""
        if self._checksums is not None:
            self._checksums.close()

    def _replace(self, path: str, header: fmt.IndexHeader, pages: Mapping[int, array[int]]) -> None:
        self._fs.make_dirs(os.path.dirname(path))
        with contextlib.suppress(FileNotFoundError):
            self._fs.unlink(path + TEMPORARY_SUFFIX)
        file = self._fs.open(path + TEMPORARY_SUFFIX, OpenMode.CREATE_EXCLUSIVE)
        try:
            file.pwrite(fmt.encode_header(header), 0)
            for number in sorted(pages):
                file.pwrite(fmt.encode_slots(pages[number]), fmt.slot_offset(number * fmt.PAGE_SLOTS))
            file.sync()
        finally:
            file.close()
        self._fs.rename(path + TEMPORARY_SUFFIX, path)
        self._fs.sync_dir(os.path.dirname(path))

    def _explicit_lac(self, ledger_id: int, old: _Old) -> bytes | None:
        recorded = old.header.explicit_lac if old.header is not None else None
        journaled = self._journaled.lacs.get(ledger_id)
        packets = [packet for packet in (recorded, journaled) if packet is not None]
        return max(packets, key=lambda packet: int.from_bytes(packet[8:16], "big", signed=True), default=None)
