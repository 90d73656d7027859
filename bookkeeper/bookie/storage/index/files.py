"""Reading one ledger's index file: header, pages, the last entry. Blocking unless said otherwise.

What a crash leaves behind: a file is born whole under a temporary name, so a `.idx` file with a damaged header is
damage, never a crash's trace. A file may be shorter than its header says, or have zeros where locations were, in what
was written after the last mark; the journal brings those entries back, and the first checkpoint after the replay writes
them again. `strict` is False until then.

Every page that is read is compared with its checksum (checksums/index.py). A page that fails is damage: what it names
of entries can be checked by their ids in the entry log, but its zeros are not "no entry" (I-31, I-59). So is a file
that is gone although nobody deleted its ledger.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from twisted.logger import Logger

from bookkeeper.bookie.integrity.checksums.index import UNKNOWN, page_checksum
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.integrity.damage.index_texts import copy_damaged, file_damaged, file_gone, page_fails
from bookkeeper.bookie.integrity.damage.record import Damage, DamageRecord
from bookkeeper.bookie.storage.disks import LedgerDirectories, current
from bookkeeper.bookie.storage.index import format as fmt
from bookkeeper.bookie.storage.open_files import OpenFiles
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode

log = Logger()

TEMPORARY_SUFFIX = ".new"
_LOADS_MAX = 10
_WALK_PAGES = 128
_WALK_WINDOWS_MAX = 1024


@dataclass(frozen=True, slots=True)
class LoadedIndex:
    """What an index file says of its ledger, without the locations.

    directory: the configured one it is in. slot_count: locations the file has, or durably had if that is more.
    last_page, last_slots: the page with the highest entry, which had to be read (None without entries).
    certain: False when that page is damaged: last_entry_id is the highest that it could hold, its zeros mean nothing.
    """

    directory: str
    header: fmt.IndexHeader
    slot_count: int
    last_entry_id: int
    last_page: int | None
    last_slots: array[int] | None
    certain: bool = True


class DamagedPage(CorruptRecord):
    """A page fails its checksum. page: its number. slots: what it says all the same, its zeros meaning nothing."""

    def __init__(self, path: str, page: int, why: str, slots: array[int]) -> None:
        super().__init__(path, fmt.slot_offset(page * fmt.PAGE_SLOTS), why)
        self.page = page
        self.slots = slots


def index_path(directory: str, ledger_id: int) -> str:
    """Path of a ledger's index file in a configured directory."""
    return os.path.join(current(directory), fmt.index_name(ledger_id))


class IndexFiles:
    """Index files by ledger id. Thread: any."""

    def __init__(
        self,
        fs: FileSystem,
        directories: LedgerDirectories,
        files: OpenFiles,
        checksums: IndexChecksums,
        damage: DamageRecord,
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._files = files
        self._checksums = checksums
        self._damage = damage
        self.strict = False

    def load(self, ledger_id: int) -> LoadedIndex | None:
        """Header and last entry; None when no index directory has a file, which is certain.

        Raises CorruptRecord, UnknownFormatVersion, StorageError (files in two directories), OSError.
        """
        for _ in range(_LOADS_MAX):
            found = self._load(ledger_id)
            if found is not None or self._is_absent(ledger_id):
                return found
        raise StorageError(f"the index file of ledger {ledger_id} came and went {_LOADS_MAX} times")

    def _load(self, ledger_id: int) -> LoadedIndex | None:
        found: LoadedIndex | None = None
        for directory in self._directories.index_dirs:
            path = index_path(directory, ledger_id)
            try:
                file = self._files.acquire(path, OpenMode.UPDATE)
            except FileNotFoundError:
                continue
            try:
                loaded = self._load_file(file, path, directory, ledger_id)
            except CorruptRecord as error:
                why = file_damaged(ledger_id, error.why)
                self._note(Damage.of_ledger(ledger_id, path, error.offset, why))
                raise CorruptRecord(path, error.offset, why) from error
            finally:
                self._files.release(file)
            if found is not None:
                raise StorageError(
                    f"ledger {ledger_id} has an index file in {found.directory} and one in {directory}; "
                    "keep the one that belongs to this bookie"
                )
            found = loaded
        return found

    def _is_absent(self, ledger_id: int) -> bool:
        """True for a ledger that certainly has no file, False when it may have got one meanwhile.

        Raises StorageError where one is missing: a ledger whose pages have checksums has a file.
        """
        self._check_directories()
        directory = self._checksums.directory_of(ledger_id)
        if directory is None:
            return True
        path = index_path(directory, ledger_id)
        if self._fs.exists(path):
            return False
        why = file_gone(ledger_id)
        self._note(Damage.of_ledger(ledger_id, path, 0, why))
        raise CorruptRecord(path, 0, why)

    def _note(self, damage: Damage) -> None:
        self._tell(damage, is_new=self._damage.add(damage))

    def _tell(self, damage: Damage, *, is_new: bool) -> None:
        if is_new:
            log.error(
                "{path} at {offset}, ledger {ledger_id}: {reason}",
                path=damage.path, offset=damage.offset, ledger_id=damage.ledger_id, reason=damage.reason,
            )  # fmt: skip

    def _check_page(self, directory: str, path: str, ledger_id: int, page: int, data: bytes) -> None:
        """Raises DamagedPage. data: the bytes of the page, as many as the file has."""
        value = self._checksums.value(directory, ledger_id, page)
        if value == UNKNOWN or value == page_checksum(data):
            return
        why = page_fails(ledger_id, page, value)
        first = page * fmt.PAGE_SLOTS
        offset = fmt.slot_offset(first)
        damage = Damage(ledger_id, first, first + fmt.PAGE_SLOTS - 1, path, offset, why)
        self._tell(damage, is_new=self._damage.add_page(damage))
        raise DamagedPage(path, page, why, fmt.decode_slots(data[: len(data) // fmt.SLOT_SIZE * fmt.SLOT_SIZE]))

    def _check_directories(self) -> None:
        """A disk that is no longer mounted has no index file either; only a directory that is there can deny (I-31)."""
        for directory in self._directories.index_dirs:
            if not self._fs.is_dir(current(directory)):
                raise StorageError(
                    f"index directory {current(directory)} is gone: mount its disk and restart the bookie"
                )

    def _load_file(self, file: File, path: str, directory: str, ledger_id: int) -> LoadedIndex:
        block = file.pread(fmt.HEADER_SIZE, 0)
        header = fmt.decode_header(block, path)
        if (bad := fmt.damaged_copy(block)) is not None:
            log.warn(
                "{path} at {offset}, ledger {ledger_id}: {why}. The next checkpoint writes it anew",
                path=path, offset=bad[0], ledger_id=ledger_id, why=copy_damaged(*bad),
            )  # fmt: skip
        size = file.size()
        in_file = max(0, size - fmt.HEADER_SIZE) // fmt.SLOT_SIZE
        if in_file < header.slot_count and self.strict:
            raise CorruptRecord(path, size, f"the file ends here, but it had {header.slot_count} locations once")
        slot_count = max(in_file, header.slot_count)
        check = partial(self._check_page, directory, path, ledger_id)
        try:
            last_entry_id, last_page, last_slots = _find_last(file, path, in_file, check)
        except DamagedPage as error:
            highest = (error.page + 1) * fmt.PAGE_SLOTS - 1
            return LoadedIndex(directory, header, slot_count, highest, error.page, error.slots, certain=False)
        return LoadedIndex(directory, header, slot_count, last_entry_id, last_page, last_slots)

    def read_page(self, directory: str, ledger_id: int, page: int, slot_count: int, *, wait: bool) -> array[int] | None:
        """Locations of a page of a file with `slot_count` locations, without zeros at the end.

        wait False: None when it is not in the page cache.
        Raises DamagedPage, CorruptRecord when the file is too short, OSError.
        """
        path = index_path(directory, ledger_id)
        slots = min(fmt.PAGE_SLOTS, slot_count - page * fmt.PAGE_SLOTS)
        offset, size = fmt.slot_offset(page * fmt.PAGE_SLOTS), slots * fmt.SLOT_SIZE
        file = self._files.acquire(path, OpenMode.UPDATE)
        try:
            data = file.pread(size, offset) if wait else file.pread_nowait(size, offset)
        finally:
            self._files.release(file)
        if data is None:
            return None
        if len(data) < size:
            if self.strict:
                why = file_damaged(ledger_id, f"the file ends here, but it had {slot_count} locations once")
                raise CorruptRecord(path, offset + len(data), why)
            data = data.ljust(size, b"\0")
        self._check_page(directory, path, ledger_id, page, data)
        return fmt.decode_slots(data)


def _find_last(
    file: File, path: str, slot_count: int, check: Callable[[int, bytes], None]
) -> tuple[int, int | None, array[int] | None]:
    """Highest entry id with a location, with its page and that page's locations; -1 for none.

    Looks from the end backwards; normally the last page has it. Gives up (StorageError) after 1 GiB of zeros.
    check: called with the number and bytes of each page that was looked into.
    """
    end = slot_count
    pages = 1
    for _ in range(_WALK_WINDOWS_MAX):
        if end <= 0:
            return -1, None, None
        first_page = max(0, (end - 1) // fmt.PAGE_SLOTS - pages + 1)
        start = first_page * fmt.PAGE_SLOTS
        data = file.pread((end - start) * fmt.SLOT_SIZE, fmt.slot_offset(start))
        if len(data) < (end - start) * fmt.SLOT_SIZE:
            raise CorruptRecord(path, fmt.slot_offset(start) + len(data), "short read of an index page")
        used = -(-len(data.rstrip(b"\0")) // fmt.SLOT_SIZE)
        last_used = max(0, used - 1) * fmt.SLOT_SIZE // fmt.PAGE_SIZE * fmt.PAGE_SIZE
        for at in range(last_used, len(data), fmt.PAGE_SIZE):
            check(first_page + at // fmt.PAGE_SIZE, data[at : at + fmt.PAGE_SIZE])
        if used:
            last_entry_id = start + used - 1
            page = last_entry_id // fmt.PAGE_SLOTS
            page_data = data[(page * fmt.PAGE_SLOTS - start) * fmt.SLOT_SIZE : used * fmt.SLOT_SIZE]
            return last_entry_id, page, fmt.decode_slots(page_data)
        end = start
        pages = _WALK_PAGES
    raise StorageError(f"{path} has more than {_WALK_WINDOWS_MAX * _WALK_PAGES} empty pages at its end; check the file")
