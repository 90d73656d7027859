"""Everything of a bookie that does not run, checked from its own files: identity, marks, journals, storage.

    cookies      every directory has one, and they say the same; they name the directories that are configured (I-70)
    last marks   readable; the journal file they name is there and that long (I-56)
    journals     read as the next start would, without the write with which a replay ends (I-51)
    storage      entry logs and index files: see `storage.consistency`
    fences, keys what the journals before the mark say of a ledger, its index file says too (I-24, I-73)

Reads only; the metadata store is not asked, so a cluster that forgot this bookie is not found here. The directories
must be locked: a running bookie changes its files. Blocking; any thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bookkeeper.bookie.cookie_rules import VERSION_FILE, DirectoryState, differences, directories_of
from bookkeeper.bookie.identity import inspect_directory
from bookkeeper.bookie.journal.format import file_name
from bookkeeper.bookie.journal.mark import NO_MARK, decode_mark, mark_name
from bookkeeper.bookie.journal.replay import examine, list_journals, scan_file
from bookkeeper.bookie.storage import offline
from bookkeeper.bookie.storage.consistency import CheckCounters, Fault, StorageCheck, fault_of
from bookkeeper.bookie.storage.disks import current
from bookkeeper.bookie.storage.index_files import index_path
from bookkeeper.errors import CorruptRecord, MetadataError, StorageError
from bookkeeper.filesystem import FileSystem, read_whole
from bookkeeper.metadata.cookie import Cookie
from bookkeeper.model import LogMark

_MARK_SIZE_MAX = 1024


@dataclass(slots=True)
class JournalContent:
    """A replay visitor that remembers. entries: ids by ledger, where wanted; keys: the first of each ledger (I-73)."""

    entry_id_max: int = (1 << 63) - 1
    keep_entries: bool = False
    entries_by_ledger: dict[int, set[int]] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    lacs: dict[int, bytes] = field(default_factory=dict)

    def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
        """See ReplayVisitor."""
        del bodies
        if self.keep_entries:
            self.entries_by_ledger.setdefault(ledger_id, set()).update(entry_ids)

    def master_key(self, ledger_id: int, key: bytes) -> None:
        """See ReplayVisitor."""
        self.keys.setdefault(ledger_id, key)

    def fence(self, ledger_id: int) -> None:
        """See ReplayVisitor."""
        self.fenced.add(ledger_id)

    def explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        """See ReplayVisitor."""
        known = self.lacs.get(ledger_id)
        if known is None or known[8:16] <= packet[8:16]:
            self.lacs[ledger_id] = packet


class LocalCheck:
    """The check of one bookie's directories. expected: what its settings call for; the cookies may name the cluster."""

    def __init__(self, fs: FileSystem, expected: Cookie) -> None:
        self.storage_counters = CheckCounters()
        self._fs = fs
        self._expected = expected
        self._index_dirs = expected.index_dirs or expected.ledger_dirs
        self._replayed = JournalContent(keep_entries=True)
        self._settled = JournalContent()

    def run(self, on_progress: Callable[[int, int], None]) -> Iterator[Fault]:
        """Every fault, as it is found. on_progress: bytes looked at, and of how many. Raises OSError."""
        yield from self._check_cookies()
        journals = self._expected.journal_dirs
        for index, directory in enumerate(journals):
            mark, faults = self._read_marks(mark_name(index, len(journals)))
            yield from faults
            if mark is not None:
                yield from self._check_journal(current(directory), mark)
        try:
            check = StorageCheck(
                self._fs,
                self._present(self._expected.ledger_dirs),
                self._present(self._index_dirs),
                journaled=self._replayed.entries_by_ledger,
                on_progress=lambda done: on_progress(done, check.total_bytes),
            )
        except StorageError as error:
            yield Fault(self._expected.ledger_dirs[0], None, str(error))
            return
        self.storage_counters = check.counters
        yield from self._check_headers()
        yield from check.run()

    def _present(self, directories: Sequence[str]) -> list[str]:
        """Those that are there; the others are faults already."""
        return [directory for directory in directories if self._fs.is_dir(current(directory))]

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

    # --- marks and journals -------------------------------------------------------------------------------------------

    def _read_marks(self, name: str) -> tuple[LogMark | None, list[Fault]]:
        """The greatest mark; None when there is none that can be read but should be."""
        marks, faults = [NO_MARK], []
        for directory in self._present(self._expected.ledger_dirs):
            path = os.path.join(current(directory), name)
            try:
                marks.append(decode_mark(read_whole(self._fs, path, size_max=_MARK_SIZE_MAX), path))
            except FileNotFoundError:
                continue
            except CorruptRecord as error:
                faults.append(fault_of(error, path, None))
        return (None if faults and len(marks) == 1 else max(marks)), faults

    def _check_journal(self, directory: str, mark: LogMark) -> Iterator[Fault]:
        if not self._fs.is_dir(directory):
            return
        try:
            examine(self._fs, directory, mark, self._replayed)
        except StorageError as error:
            yield fault_of(error, directory, None)
        for journal_id in list_journals(self._fs, directory):
            if journal_id >= mark.journal_id:
                break
            try:
                scan_file(self._fs, directory, journal_id, 0, self._settled)
            except StorageError as error:  # kept for inspection only; what it held is in the entry logs
                yield fault_of(error, os.path.join(directory, file_name(journal_id)), None)

    def _check_headers(self) -> Iterator[Fault]:
        """Fences and keys that were journaled before the mark are in the index files by now."""
        for ledger_id in sorted({*self._settled.fenced, *self._settled.keys}):
            path = next(filter(self._fs.exists, (index_path(name, ledger_id) for name in self._index_dirs)), None)
            if path is None:
                continue  # deleted since
            try:
                header = offline.read_index_header(self._fs, path)
            except StorageError:
                continue  # reported with the file itself
            if ledger_id in self._settled.fenced and not header.fenced:
                yield Fault(path, 0, f"ledger {ledger_id} was fenced, says the journal, but not its index", ledger_id)
            key = self._settled.keys.get(ledger_id)
            if key is not None and header.master_key != key:
                yield Fault(path, 0, f"ledger {ledger_id} has another master key in the journal", ledger_id)


def keys_and_fences(fs: FileSystem, journal_dirs: Sequence[str]) -> tuple[JournalContent, Mapping[str, StorageError]]:
    """What all journal files that are there say of ledgers, and which files cannot be read to their end, and why.

    A journal that is gone because it was not needed any more said more: absence here proves nothing.
    """
    content, unread = JournalContent(), {}
    for directory in map(current, journal_dirs):
        for journal_id in list_journals(fs, directory):
            try:
                scan_file(fs, directory, journal_id, 0, content)
            except StorageError as error:
                unread[os.path.join(directory, file_name(journal_id))] = error
    return content, unread
