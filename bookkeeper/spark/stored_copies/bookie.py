"""A bookie that does not run, its copies read in place: opened, planned, verified unit by unit.

    with open_bookie(fs, directories) as bookie:          one process plans
        plan = bookie.plan()
    with open_bookie(fs, directories) as bookie:          any process, on the same machine, takes a unit
        result = bookie.verify(plan.units[0], ledgers)

While it is open a bookie of ours cannot start on the directories. Blocking; one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType

from bookkeeper.bookie.storage.disks import refuse_rocksdb
from bookkeeper.filesystem import FileSystem, Lock
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.rate_limit import Pace
from bookkeeper.spark.stored_copies.directories import (
    BookieDirectories,
    check_cookies,
    check_unchanged,
    keep_bookies_away,
    release,
)
from bookkeeper.spark.stored_copies.model import JournalUnit, LedgerToVerify, Plan, Unit, UnitResult
from bookkeeper.spark.stored_copies.planning import Planning
from bookkeeper.spark.stored_copies.verification import LogVerification, Pacing, Reading, verify_journal


class StoredBookie:
    """See the module. Made by `open_bookie`; a context manager."""

    def __init__(
        self,
        fs: FileSystem,
        directories: BookieDirectories,
        cookie: Cookie,
        locks: Sequence[Lock],
        pacing: Pacing,
    ) -> None:
        self._fs = fs
        self._pacing = pacing
        self.directories = directories
        self.cookie = cookie
        self._locks = locks

    @property
    def bookie_id(self) -> str:
        """Whose copies these are."""
        return self.cookie.bookie_id

    def plan(self, only: Collection[int] | None = None) -> Plan:
        """All work on this bookie. Reads every index file, and the journals from their marks on.

        only: ledgers to be planned, None for all that are held (`ledger_ids` of the plan names all the same).
        Raises DirectoryInUse where a bookie uses the directories meanwhile, StorageError for an entry log that is there
        twice, OSError for a directory that cannot be listed. Damage is in the plan.
        """
        return Planning(self._fs, self.directories, self.cookie, only=only).run()

    def verify(
        self,
        unit: Unit,
        ledgers: Mapping[int, LedgerToVerify],
        *,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> UnitResult:
        """Verify every copy of a unit.

        ledgers: by id; those of `unit.ledger_ids` that are not among them are only counted. on_progress: told bytes as
        they are read.
        Raises DirectoryInUse where a bookie used the directories since the plan, OSError for a directory that cannot be
        listed. Damage is in the result.
        """
        check_unchanged(self._fs, self.directories, unit.state)
        reading = Reading(self._pacing, on_progress)
        if isinstance(unit, JournalUnit):
            result = verify_journal(self._fs, self.directories, unit, ledgers, reading)
        else:
            result = LogVerification(self._fs, self.directories, unit, ledgers, reading).run()
        check_unchanged(self._fs, self.directories, unit.state)
        return result

    def close(self) -> None:
        """Let a bookie start again. A second call does nothing."""
        release(self._locks)

    def __enter__(self) -> StoredBookie:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_bookie(
    fs: FileSystem,
    directories: BookieDirectories,
    *,
    bookie_id: str | None = None,
    instance_id: str | None = None,
    bytes_per_s: float = 0,
    seconds: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> StoredBookie:
    """Open the directories of a bookie that does not run.

    bookie_id, instance_id: what its cookie must say. bytes_per_s: of copies read at most, by all `verify` together, 0
    for no bound; several processes on one bookie share it out among them. seconds, wait: the clock for that.
    Raises DirectoryInUse (a bookie runs there), CookieMismatch (not one bookie's directories, or not all of them),
    MetadataCorrupt or MetadataTooNew (a cookie that cannot be read), UnknownFormatVersion (DbLedgerStorage), OSError.
    """
    cookie = check_cookies(fs, directories, bookie_id=bookie_id, instance_id=instance_id)
    refuse_rocksdb(fs, (*directories.ledger_dirs, *directories.indexes))
    pacing = Pacing(Pace(bytes_per_s), seconds, wait)
    return StoredBookie(fs, directories, cookie, keep_bookies_away(fs, directories), pacing)
