"""Ledgers out of the storage: tombstones, then index files, then their directories (I-63, I-64).

    reactor          LedgerCache.doom: absent from now on; keyed requests wait
    storage worker   tombstones, durable -> checksums of their pages, durable -> index files unlinked -> directories
                     synced
    reactor          LedgerCache.revive: requests are decided afresh

A crash before the unlink is durable leaves the ledger whole, to be collected again; after it, its entries are dead
bytes in entry logs. The journal may still bring some of them back at the next start: they are collected again as well.
Entry logs are looked at only afterwards, so no index ever points to a log that was removed.

Thread: storage worker, between flushes and checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from twisted.logger import Logger

from bookkeeper.bookie.gc.tombstone_file import TombstoneFile
from bookkeeper.bookie.gc.tombstones import TombstoneKind
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.index import format as fmt
from bookkeeper.bookie.storage.index.files import TEMPORARY_SUFFIX, index_path
from bookkeeper.bookie.storage.open_files import OpenFiles
from bookkeeper.errors import StorageError
from bookkeeper.filesystem import FileSystem, OpenMode

log = Logger()


@dataclass(frozen=True, slots=True)
class Deletion:
    """What is to be deleted. moved: the metadata store still has these ledgers, but not on this bookie."""

    ledger_ids: tuple[int, ...]
    moved: bool = False


class LedgerDeletion:
    """Removes index files."""

    def __init__(
        self,
        fs: FileSystem,
        directories: LedgerDirectories,
        files: OpenFiles,
        tombstones: TombstoneFile,
        checksums: IndexChecksums,
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._files = files
        self._tombstones = tombstones
        self._checksums = checksums

    def delete(self, deletion: Deletion) -> None:
        """Delete these ledgers, doomed before; durable on return.

        Raises NoWritableDisk (no room to note what goes: no ledger is deleted), OSError (fatal: I-48).
        """
        ledger_ids = deletion.ledger_ids
        self._tombstones.add(list(self._remembered(ledger_ids, moved=deletion.moved)))
        try:
            self._checksums.forget(ledger_ids)
            self._remove_files(ledger_ids)
        finally:
            self._checksums.forgotten(ledger_ids)

    def _remove_files(self, ledger_ids: Sequence[int]) -> None:
        changed: set[str] = set()
        for ledger_id in ledger_ids:
            for directory in self._directories.index_dirs:
                path = index_path(directory, ledger_id)
                with suppress(FileNotFoundError):
                    self._fs.unlink(path + TEMPORARY_SUFFIX)
                    changed.add(os.path.dirname(path))
                self._files.drop(path)
                with suppress(FileNotFoundError):
                    self._fs.unlink(path)
                    changed.add(os.path.dirname(path))
        self._fs.sync_dirs(sorted(changed))

    def _remembered(self, ledger_ids: Sequence[int], *, moved: bool) -> Iterable[tuple[int, TombstoneKind]]:
        for ledger_id in ledger_ids:
            if moved:
                yield ledger_id, TombstoneKind.MOVED
            elif self._may_be_fenced(ledger_id):
                yield ledger_id, TombstoneKind.DELETED

    def _may_be_fenced(self, ledger_id: int) -> bool:
        """From the index file, which has everything: the ledger is not dirty. With a damaged or lost one it may be."""
        for directory in self._directories.index_dirs:
            path = index_path(directory, ledger_id)
            try:
                file = self._fs.open(path, OpenMode.READ)
            except FileNotFoundError:
                continue
            try:
                fenced = fmt.decode_header(file.pread(fmt.HEADER_SIZE, 0), path).fenced
            except (StorageError, OSError) as error:
                log.warn("Deleting ledger {id}, whose index file is damaged: {error}", id=ledger_id, error=error)
                return True
            finally:
                file.close()
            if fenced:
                return True
        return self._checksums.directory_of(ledger_id) is not None and not self._has_file(ledger_id)

    def _has_file(self, ledger_id: int) -> bool:
        return any(self._fs.exists(index_path(directory, ledger_id)) for directory in self._directories.index_dirs)
