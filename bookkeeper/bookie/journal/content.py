"""What the journals of a bookie that does not run say of its ledgers: before the mark, and from it on.

Before it, in files kept for inspection: the index files and entry logs have all of that too. From it on: the next start
replays it. Reads only, with the judgement of a replay (I-51), and changes nothing. Blocking; any thread.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from bookkeeper.bookie.journal.format import file_name
from bookkeeper.bookie.journal.mark import NO_MARK, decode_mark, mark_name
from bookkeeper.bookie.journal.replay import examine, list_journals, scan_file
from bookkeeper.bookie.offline.fault import Fault, fault_of
from bookkeeper.bookie.storage.disks import current
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import FileSystem, read_whole
from bookkeeper.model import LogMark

_MARK_SIZE_MAX = 1024


@dataclass(slots=True)
class JournalContent:
    """A replay visitor that remembers.

    wanted: ledgers whose entry ids are kept, None for all. keys: the first of each ledger (I-73). lacs: the highest.
    """

    wanted: Collection[int] | None = None
    entry_id_max: int = (1 << 63) - 1
    entry_ids: dict[int, set[int]] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    lacs: dict[int, bytes] = field(default_factory=dict)

    def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
        """See ReplayVisitor."""
        del bodies
        if self.wanted is None or ledger_id in self.wanted:
            self.entry_ids.setdefault(ledger_id, set()).update(entry_ids)

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

    def add_what_is_not_in(self, other: JournalContent, later: JournalContent) -> None:
        """Take over what `other` says and `later` does not: records of one file, before the mark that parts it."""
        for ledger_id, entry_ids in other.entry_ids.items():
            rest = entry_ids - later.entry_ids.get(ledger_id, set())
            if rest:
                self.entry_ids.setdefault(ledger_id, set()).update(rest)
        for ledger_id, key in other.keys.items():
            if ledger_id not in later.keys:
                self.keys.setdefault(ledger_id, key)
        self.fenced |= other.fenced - later.fenced
        for ledger_id, packet in other.lacs.items():
            if ledger_id not in later.lacs:
                self.explicit_lac(ledger_id, packet)


@dataclass(slots=True)
class Journals:
    """settled: before the mark, and not from it on too; replayed: from the mark on."""

    settled: JournalContent
    replayed: JournalContent

    def read(self, fs: FileSystem, journal_dirs: Sequence[str], ledger_dirs: Sequence[str]) -> Iterator[Fault]:
        """Read all there is; the faults of marks and journals, as they are found. Directories as configured.

        Raises OSError.
        """
        for index, directory in enumerate(journal_dirs):
            mark, faults = _read_marks(fs, ledger_dirs, mark_name(index, len(journal_dirs)))
            yield from faults
            if mark is not None and fs.is_dir(current(directory)):
                yield from self._read_journal(fs, current(directory), mark)

    def _read_journal(self, fs: FileSystem, directory: str, mark: LogMark) -> Iterator[Fault]:
        told: Fault | None = None
        try:
            examine(fs, directory, mark, self.replayed)
        except StorageError as error:
            told = fault_of(error, directory, None)
            yield told
        marked = JournalContent(wanted=self.settled.wanted)
        for journal_id in list_journals(fs, directory):
            if journal_id > mark.journal_id:
                break
            content = marked if journal_id == mark.journal_id else self.settled
            try:
                scan_file(fs, directory, journal_id, 0, content)
            except StorageError as error:
                fault = fault_of(error, os.path.join(directory, file_name(journal_id)), None)
                if fault != told:
                    yield fault
        self.settled.add_what_is_not_in(marked, self.replayed)


def _read_marks(fs: FileSystem, ledger_dirs: Sequence[str], name: str) -> tuple[LogMark | None, list[Fault]]:
    """The greatest mark; None when there are some and none can be read."""
    marks, faults = [NO_MARK], []
    for directory in ledger_dirs:
        path = os.path.join(current(directory), name)
        try:
            marks.append(decode_mark(read_whole(fs, path, size_max=_MARK_SIZE_MAX), path))
        except FileNotFoundError:
            continue
        except CorruptRecord as error:
            faults.append(fault_of(error, path, None))
    return (None if faults and len(marks) == 1 else max(marks)), faults
