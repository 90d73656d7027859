"""The tombstones of a bookie on its disks: read at start, appended to before anything is deleted.

An append is one write and one sync, into the first ledger directory that has room for it. What a crash leaves: records
that were never reported done, intact, cut or of zeros; a start writes the file anew without those that are not intact
and those that are too old.

Thread: storage worker, or whoever starts the bookie; `get` belongs to the reactor, and is guarded by a lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from twisted.logger import Logger

from bookkeeper.bookie.gc import tombstones as fmt
from bookkeeper.bookie.gc.tombstones import Tombstone, TombstoneBook, TombstoneKind
from bookkeeper.bookie.storage.disks import LedgerDirectories, current
from bookkeeper.errors import NoWritableDisk
from bookkeeper.filesystem import FileSystem, OpenMode, create_durable, is_no_space, read_whole, replace_durable

log = Logger()

FILE_SIZE_MAX = 4 * fmt.TOMBSTONES_MAX * fmt.RECORD_SIZE


class TombstoneFile:
    """Tombstones in memory and in their files.

    now_ms: the date of new ones, in ms since 1970. expiry_ms: the date for judging old ones, which does not follow a
    step of the wall clock forward (`clock.SteadyDate`). A tombstone that expires too early lets a fenced writer be
    acknowledged; one that stays too long costs 32 bytes.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: LedgerDirectories,
        now_ms: Callable[[], int],
        expiry_ms: Callable[[], int],
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._now_ms, self._expiry_ms = now_ms, expiry_ms
        self._book = TombstoneBook()
        self._lock = Lock()
        self._sizes: dict[str, int] = {}  # bytes of intact records, by file

    def __len__(self) -> int:
        return len(self._book)

    def get(self, ledger_id: int) -> TombstoneKind | None:
        """Why the ledger is gone; None when nothing is remembered of it."""
        if not self._book:
            return None
        with self._lock:
            return self._book.get(ledger_id)

    def open(self) -> None:
        """Read the files, and write anew those with records that are damaged or too old. Raises OSError, CorruptRecord.

        A full disk keeps the old file: it is read again at the next start.
        """
        for path in self._paths():
            if not self._fs.exists(path):
                continue
            self._fs.sync_dir(os.path.dirname(path))  # a process killed while it made the file left its name unsynced
            found, damaged = fmt.decode_all(read_whole(self._fs, path, size_max=FILE_SIZE_MAX))
            self._put(found)
            self._sizes[path] = (len(found) + len(damaged)) * fmt.RECORD_SIZE
            if damaged:
                log.error(
                    "{path}: {count} records are damaged, the first at {offset}: an old writer of a ledger that was "
                    "deleted here may not be refused. A crash while ledgers were deleted leaves this, and then nothing "
                    "is lost",
                    path=path,
                    count=len(damaged),
                    offset=damaged[0],
                )
            oldest_ms = self._expiry_ms() - fmt.KEPT_S * 1000
            kept = [tombstone for tombstone in found if tombstone.deleted_ms >= oldest_ms]
            if damaged or len(kept) < len(found):
                self._rewrite(path, kept)
        self._expire()

    def add(self, gone: Sequence[tuple[int, TombstoneKind]]) -> None:
        """Remember these ledgers, durably on return. Raises NoWritableDisk (nothing is), OSError (fatal: I-48)."""
        if not gone:
            return
        now_ms = self._now_ms()
        tombstones = [Tombstone(ledger_id, kind, now_ms) for ledger_id, kind in gone]
        data = b"".join(map(fmt.encode, tombstones))
        for path in self._paths():
            try:
                self._append(path, data)
            except OSError as error:
                if not is_no_space(error):
                    raise
                log.warn("No room for tombstones in {path}: {error}", path=path, error=error)
            else:
                break
        else:
            raise NoWritableDisk(
                f"no ledger directory has room for {len(data)} bytes of tombstones, without which nothing is deleted: "
                "free some space outside of the bookie's directories"
            )
        self._put(tombstones)

    def tidy(self) -> None:
        """Forget those that are too old; write files anew that have twice as many or more. Raises OSError (fatal).

        A file has more than is remembered also where ledgers were deleted again, or more were than can be remembered.
        """
        self._expire()
        size = sum(self._sizes.values())
        if not size or size < 2 * len(self._book) * fmt.RECORD_SIZE:
            return
        first, *others = [path for path in self._paths() if path in self._sizes]
        if self._rewrite(first, self._book):  # only this thread changes the book
            for path in others:
                self._rewrite(path, [])

    def _expire(self) -> None:
        """Forget those that are too old. The lock, for which the reactor may wait, is held for a moment only."""
        left = self._book.unexpired(self._expiry_ms())
        if left is not None:
            with self._lock:
                self._book.replace(left)

    def _append(self, path: str, data: bytes) -> None:
        size = self._sizes.get(path)
        if size is None:
            if self._fs.exists(path):  # of an append that found no space
                self._fs.unlink(path)
            create_durable(self._fs, path, data)
            self._sizes[path] = len(data)
            return
        file = self._fs.open(path, OpenMode.UPDATE)
        try:
            file.pwrite(data, size)
            file.sync()
        finally:
            file.close()
        self._sizes[path] = size + len(data)

    def _rewrite(self, path: str, tombstones: Iterable[Tombstone]) -> bool:
        """False when there is no room: the old file stays."""
        data = bytearray()
        for tombstone in tombstones:
            data += fmt.encode(tombstone)
        try:
            replace_durable(self._fs, path, bytes(data))
        except OSError as error:
            if not is_no_space(error):
                raise
            log.warn("No room to write {path} anew: {error}; the old one stays", path=path, error=error)
            return False
        self._sizes[path] = len(data)
        return True

    def _put(self, tombstones: Sequence[Tombstone]) -> None:
        with self._lock:
            self._book.put(tombstones)
        if not self._book.should_merge:
            return
        columns = self._book.merged()
        with self._lock:
            self._book.replace(columns)
        if columns.surplus:
            log.warn(
                "{count} tombstones of deleted ledgers went before their time: more than {limit} ledgers were deleted "
                "within {days:g} days",
                count=columns.surplus,
                limit=fmt.TOMBSTONES_MAX,
                days=fmt.KEPT_S / 86400,
            )

    def _paths(self) -> list[str]:
        return [os.path.join(current(directory), fmt.FILE_NAME) for directory in self._directories.ledger_dirs]
