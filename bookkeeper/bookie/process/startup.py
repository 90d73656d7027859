"""From the files of the last run to a storage that may serve: replay, flush, mark.

    read the last marks -> replay each journal from its mark -> checkpoint -> move the marks to the true ends (I-57)

Idempotent: a crash anywhere in it leads to the same state next time (I-53). Whatever shows that acknowledged data may
be missing raises, and the bookie does not start (I-51, I-56, I-72).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from twisted.logger import Logger

from bookkeeper.bookie.journal.mark import mark_name, read_marks, write_marks
from bookkeeper.bookie.journal.replay import replay
from bookkeeper.bookie.storage.disks import current
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX
from bookkeeper.errors import NoWritableDisk, StorageError
from bookkeeper.filesystem import FileSystem, is_no_space
from bookkeeper.model import LogMark

log = Logger()


@dataclass(slots=True)
class ReplayCounters:
    """What a replay brought back."""

    entries: int = 0
    keys: int = 0
    fences: int = 0
    explicit_lacs: int = 0


class StorageReplay:
    """Puts journal records into a storage; flushes and checkpoints as its buffers fill. Thread: of the replay."""

    entry_id_max = ENTRY_ID_MAX

    def __init__(self, storage: LedgerStorage) -> None:
        self._storage = storage
        self.counters = ReplayCounters()

    def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
        """Entries, whether the storage has them already or not."""
        storage = self._storage
        if storage.should_flush:
            storage.rotate()
            storage.flush_snapshot()
        if storage.needs_checkpoint:
            storage.rotate()
            storage.checkpoint()
        storage.add(ledger_id, entry_ids, bodies)
        if storage.tombstone(ledger_id) is not None:
            # A copy that a repair brought back: its fence was in memory, and in the tombstone, which grows old (I-66).
            storage.set_fenced(ledger_id)
        self.counters.entries += len(entry_ids)

    def master_key(self, ledger_id: int, key: bytes) -> None:
        """A key. The first one stays (I-73); another one can only be in the journal of an Apache bookie."""
        known = self._storage.master_key(ledger_id)
        if known is None:
            self._storage.set_master_key(ledger_id, key)
            self.counters.keys += 1
        elif known != key:
            log.error(
                "The journal holds a second key for ledger {ledger_id}; the one in the index file stays valid",
                ledger_id=ledger_id,
            )

    def fence(self, ledger_id: int) -> None:
        """A fence; never taken back (I-24)."""
        self._storage.set_fenced(ledger_id)
        self.counters.fences += 1

    def explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        """An explicit LAC; the storage keeps the highest (I-07)."""
        self._storage.set_explicit_lac(ledger_id, packet)
        self.counters.explicit_lacs += 1


def recover(
    fs: FileSystem, storage: LedgerStorage, journal_dirs: Sequence[str], ledger_dirs: Sequence[str]
) -> list[LogMark]:
    """Bring `storage` to the state of the last acknowledged request; return each journal's end. Blocking.

    journal_dirs, ledger_dirs: as configured, without `current`. On return everything replayed is durable outside the
    journals and the marks say so. Raises StorageError (CorruptRecord, UnknownFormatVersion, ...) and OSError: do not
    start.
    """
    storage.open()
    mark_dirs = [current(directory) for directory in ledger_dirs]
    visitor = StorageReplay(storage)
    ends = []
    for index, directory in enumerate(map(current, journal_dirs)):
        mark = read_marks(fs, mark_dirs, mark_name(index, len(journal_dirs)))
        ends.append(replay(fs, directory, mark, visitor))
    storage.rotate()
    storage.checkpoint()
    persist_marks(fs, mark_dirs, ends)
    storage.replay_finished()
    counters = visitor.counters
    if counters.entries or counters.fences or counters.keys or counters.explicit_lacs:
        log.info(
            "Replayed {entries} entries, {keys} keys, {fences} fences, {lacs} explicit LACs from the journals",
            entries=counters.entries,
            keys=counters.keys,
            fences=counters.fences,
            lacs=counters.explicit_lacs,
        )
    return ends


def persist_marks(fs: FileSystem, mark_dirs: Sequence[str], marks: Sequence[LogMark]) -> list[LogMark]:
    """Write each journal's mark durably into all ledger directories; return what is durable everywhere. Blocking.

    Raises NoWritableDisk on a full disk: the old marks stay, some directories may have the new one, try again.
    """
    try:
        return [write_marks(fs, mark_dirs, mark_name(index, len(marks)), mark) for index, mark in enumerate(marks)]
    except OSError as error:
        if not is_no_space(error):
            raise
        raise NoWritableDisk(
            f"no room for the mark of the journal: {error}; free space in {', '.join(mark_dirs)}"
        ) from error


def check_unsynced_leftovers(fs: FileSystem, ledger_dirs: Sequence[str], *, journal_was_off: bool) -> None:
    """Refuse directories of an Apache bookie that was killed while its journal did not promise anything (I-72).

    Apache keeps a file DIRTY in every ledger directory while it runs. With journalWriteData or journalSyncData off,
    what it acknowledged after the last checkpoint may be gone, and only the configuration tells.
    """
    if not journal_was_off:
        return
    for directory in ledger_dirs:
        path = os.path.join(current(directory), "DIRTY")
        if fs.exists(path):
            raise StorageError(
                f"{path} shows that a bookie was killed here, and the configuration says that its journal was not "
                "written or not synced (journalWriteData, journalSyncData): acknowledged entries and fences may be "
                "missing, so this bookie does not start. Re-replicate its ledgers and start it empty under another id"
            )
