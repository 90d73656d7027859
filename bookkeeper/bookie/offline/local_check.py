"""Everything of a bookie that does not run, checked from its own files: identity, marks, journals, storage.

    cookies      every directory has one, and they say the same; they name the directories that are configured (I-70)
    last marks   readable; the journal file they name is there and that long (I-56)
    journals     read as the next start would, without the write with which a replay ends (I-51)
    storage      entry logs and index files: see `storage.consistency`
    tombstones   intact, but for what a crash leaves at the end (I-04)
    history      the bookie's memory of the metadata store is intact: history_format
    fences, keys what the journals before the mark say of a ledger, its index file says too (I-24, I-73)

Reads only; the metadata store is not asked, so a cluster that forgot this bookie is not found here. The directories
must be locked: a running bookie changes its files. Blocking; any thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from bookkeeper.bookie.gc import tombstones
from bookkeeper.bookie.gc.history import format
from bookkeeper.bookie.gc.tombstone_file import FILE_SIZE_MAX
from bookkeeper.bookie.identity.cookie_rules import VERSION_FILE, DirectoryState, differences, directories_of
from bookkeeper.bookie.identity.identity import inspect_directory
from bookkeeper.bookie.journal.content import JournalContent, Journals
from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.offline.consistency import CheckCounters, StorageCheck
from bookkeeper.bookie.offline.fault import Fault
from bookkeeper.bookie.storage.disks import current
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.errors import CorruptRecord, MetadataError, StorageError, UnknownFormatVersion
from bookkeeper.filesystem import FileSystem, read_whole
from bookkeeper.metadata.bookies.cookie import Cookie


class LocalCheck:
    """The check of one bookie's directories. expected: what its settings call for; the cookies may name the cluster."""

    def __init__(self, fs: FileSystem, expected: Cookie) -> None:
        self.storage_counters = CheckCounters()
        self._fs = fs
        self._expected = expected
        self._index_dirs = expected.index_dirs or expected.ledger_dirs
        self._journals = Journals(settled=JournalContent(wanted=()), replayed=JournalContent())

    def run(self, on_progress: Callable[[int, int], None]) -> Iterator[Fault]:
        """Every fault, as it is found. on_progress: bytes looked at, and of how many. Raises OSError."""
        yield from self._check_cookies()
        ledger_dirs = self._present(self._expected.ledger_dirs)
        yield from self._journals.read(self._fs, self._expected.journal_dirs, ledger_dirs)
        check = StorageCheck(
            self._fs,
            ledger_dirs,
            self._present(self._index_dirs),
            journaled=self._journals.replayed.entry_ids,
            on_progress=lambda done: on_progress(done, check.total_bytes),
        )
        self.storage_counters = check.counters
        yield from self._check_headers()
        for directory in ledger_dirs:
            yield from self._check_tombstones(os.path.join(current(directory), tombstones.FILE_NAME))
            yield from self._check_history(os.path.join(current(directory), format.FILE_NAME))
        yield from check.run()

    def _present(self, directories: Sequence[str]) -> list[str]:
        """Those that are there; the others are faults already."""
        return [directory for directory in directories if self._fs.is_dir(current(directory))]

    def _check_tombstones(self, path: str) -> Iterator[Fault]:
        """Records that are not intact, but for those at the end, which a crash leaves of what was never done."""
        try:
            data = read_whole(self._fs, path, size_max=FILE_SIZE_MAX)
        except FileNotFoundError:
            return
        except CorruptRecord as error:
            yield Fault(error.path, error.offset, error.why)
            return
        _, damaged = tombstones.decode_all(data)
        end = len(data)
        while damaged and damaged[-1] + tombstones.RECORD_SIZE >= end:
            end = damaged.pop()
        for offset in damaged:
            yield Fault(path, offset, "a damaged tombstone: an old writer of a deleted ledger may not be refused")

    def _check_history(self, path: str) -> Iterator[Fault]:
        try:
            format.decode(read_whole(self._fs, path, size_max=format.FILE_SIZE_MAX), path)
        except FileNotFoundError:
            return
        except CorruptRecord as error:
            yield Fault(error.path, error.offset, f"{error.why}: nothing is collected until an operator decides")
        except UnknownFormatVersion as error:
            yield Fault(path, None, str(error))

    # --- cookies ------------------------------------------------------------------------------------------------------

    def _check_cookies(self) -> Iterator[Fault]:
        first: DirectoryState | None = None
        for directory, kind in directories_of(self._expected).items():
            path = os.path.join(current(directory), VERSION_FILE)
            if not self._fs.is_dir(current(directory)):
                yield Fault(directory, None, f"this {kind.value} directory was never used, or its disk is not mounted")
                continue
            try:
                state = inspect_directory(self._fs, directory, kind)
            except MetadataError as error:
                yield Fault(path, None, str(error))
                continue
            if state.cookie is None:
                what = "is empty" if state.empty else "holds files"
                yield Fault(path, None, f"no cookie, and the directory {what}: whose it is cannot be told")
                continue
            yield from (Fault(path, None, text) for text in self._cookie_faults(state, first))
            first = first or state

    def _cookie_faults(self, state: DirectoryState, first: DirectoryState | None) -> Iterator[str]:
        assert state.cookie is not None
        if first is None:
            for name, wanted, there in differences(self._expected, state.cookie):
                if not name.startswith("cluster"):  # its settings do not name the cluster
                    yield f"the cookie says {name} {there!r}, the settings say {wanted!r}"
            return
        assert first.cookie is not None
        for name, wanted, there in differences(first.cookie, state.cookie):
            yield f"the cookie says {name} {there!r}, that of {first.path} says {wanted!r}"

    def _check_headers(self) -> Iterator[Fault]:
        """Fences and keys that were journaled before the mark are in the index files by now."""
        settled = self._journals.settled
        for ledger_id in sorted({*settled.fenced, *settled.keys}):
            path = next(filter(self._fs.exists, (index_path(name, ledger_id) for name in self._index_dirs)), None)
            if path is None:
                continue  # deleted since
            try:
                header = inspection.read_index_header(self._fs, path)
            except StorageError:
                continue  # reported with the file itself
            if ledger_id in settled.fenced and not header.fenced:
                yield Fault(path, 0, f"ledger {ledger_id} was fenced, says the journal, but not its index", ledger_id)
            key = settled.keys.get(ledger_id)
            if key is not None and header.master_key != key:
                yield Fault(path, 0, f"ledger {ledger_id} has another master key in the journal", ledger_id)
