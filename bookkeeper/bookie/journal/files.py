"""The journal file being written, the zeros ahead of it, the next file, and the old ones.

    <id>.txn        header | first group (empty) | group | group | ... | zeros ahead
    journal.spare   the next file: nothing but zeros so far, or an old file that is being zeroed

What each crash leaves behind:
- in a group: a torn tail in the last file; nobody was answered. Replay cleans it.
- while zeros are written ahead: more or fewer zeros.
- in a roll: `journal.spare`, or both names of one file; the next start removes the spare's name. The new file gets its
  name only after everything in the old one is durable, so a file's existence proves the one before complete.
- in a collect: some files below the mark still there, or again there; nobody reads them.

Why zeros are written at all: a sync of bytes that overwrite written blocks stores no metadata (1.5 to 2.7 times as many
syncs per second), and Apache's replay ends a file at zeros only. They are written in slices while nothing waits; when
the journal is never idle, a group that runs past the zeros takes one slice with it under the same sync. Not so while
groups are large: writing everything twice would cost more than the metadata of one sync in half a MiB.

Thread: journal (one at a time; the worker sees to that).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bookkeeper.bookie.journal.format import HEADER_SIZE, encode_group, encode_header, file_name, journal_id_of
from bookkeeper.bookie.journal.settings import JournalSettings
from bookkeeper.errors import StorageError
from bookkeeper.filesystem import File, FileSystem, OpenMode
from bookkeeper.model import LogMark

SPARE_NAME = "journal.spare"

LARGE_GROUP_SIZE = 512 * 1024
"""From this size on no zeros are written ahead."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a piece of work left behind.

    mark: everything below it is durable. preparation_due: `prepare` has something to do.
    size, write_s, sync_s: bytes and seconds of the group; 0 for other work. created_s: seconds a new file took, or 0.
    """

    mark: LogMark
    preparation_due: bool
    size: int = 0
    write_s: float = 0.0
    sync_s: float = 0.0
    created_s: float = 0.0


@dataclass(slots=True)
class _Spare:
    """The next file. `zeroed`: bytes from its start that are zero."""

    file: File
    zeroed: int = 0


@dataclass(frozen=True, slots=True)
class _BegunGroup:
    """A group that is written and not synced. end: its end in the file; otherwise as in `Progress`."""

    end: int
    size: int
    write_s: float
    created_s: float


def list_journals(fs: FileSystem, directory: str) -> list[int]:
    """Ids of the journal files in a directory, ascending."""
    return sorted(found for name in fs.listdir(directory) if (found := journal_id_of(name)) is not None)


class JournalFiles:
    """Writes groups into files that only grow in id. After an error every call fails, and touches nothing (I-48)."""

    def __init__(self, fs: FileSystem, directory: str, settings: JournalSettings, seconds: Callable[[], float]) -> None:
        self._fs = fs
        self._directory = directory
        self._settings = settings
        self._seconds = seconds
        self._file: File | None = None
        self._mark = LogMark(0, 0)  # file being written and the end of its last durable group
        self._zeroed_end = 0  # the file is zero from the mark's offset to here; >= the mark's offset
        self._group_count = 0  # groups in this file besides the first, empty one
        self._spare: _Spare | None = None
        self._begun: _BegunGroup | None = None
        self._preparing = False
        self._large_groups = False  # the last one was
        self._short_of_space = False
        self._broken: BaseException | None = None

    @contextlib.contextmanager
    def _fatal_if_it_fails(self) -> Iterator[None]:
        """Work queued behind a failed piece must not run: a later sync could succeed without the lost bytes."""
        if self._broken is not None:
            raise StorageError(f"the journal in {self._directory} failed before: {self._broken!r}") from self._broken
        try:
            yield
        except BaseException as error:
            self._broken = error
            raise

    # --- groups

    def start(self, after: LogMark, *, first_id: int) -> Progress:
        """Begin a new file behind everything replayed (`after`). `first_id` names it only when none was there ever."""
        with self._fatal_if_it_fails():
            spare_path = self._path(SPARE_NAME)
            if self._fs.exists(spare_path):
                # It may be a second name of a live file: the name goes, the content is not touched.
                self._fs.unlink(spare_path)
            known = max([*list_journals(self._fs, self._directory), after.journal_id])
            self._mark = after
            return self._roll(known + 1 if known > 0 else max(1, first_id))

    def write_group(self, parts: list[bytes]) -> Progress:
        """Write records as one group and sync it; durable on return."""
        with self._fatal_if_it_fails():
            return self._write_group(parts)

    def begin_group(self, parts: list[bytes]) -> None:
        """Write records as one group without a sync. `finish_group` must come next, before any other work."""
        with self._fatal_if_it_fails():
            self._begin_group(parts)

    def finish_group(self) -> Progress:
        """Sync the group that was begun; durable on return."""
        with self._fatal_if_it_fails():
            return self._finish_group()

    def _write_group(self, parts: list[bytes]) -> Progress:
        self._begin_group(parts)
        return self._finish_group()

    def _begin_group(self, parts: list[bytes]) -> None:
        assert self._begun is None, "one group at a time: a crash must tear only the last one"
        created_s = 0.0
        if self._mark.offset >= self._settings.file_size_max:
            created_s = self._roll(self._mark.journal_id + 1).created_s
        started = self._seconds()
        file, mark = self._open_file(), self._mark
        data = encode_group(
            parts,
            file_id=mark.journal_id,
            start=mark.offset,
            synced=(mark.journal_id, mark.offset),
            alignment=self._settings.alignment,
        )
        file.pwrite(data, mark.offset)
        end = mark.offset + len(data)
        self._large_groups = len(data) >= LARGE_GROUP_SIZE
        if end > self._zeroed_end:
            self._zeroed_end = end
            if self._preallocates and not self._large_groups and end < self._settings.file_size_max:
                self._zeroed_end += self._write_zeros(file, end)
        self._begun = _BegunGroup(end, len(data), self._seconds() - started, created_s)

    def _finish_group(self) -> Progress:
        begun, self._begun = self._begun, None
        assert begun is not None
        started = self._seconds()
        self._open_file().sync()
        self._mark = LogMark(self._mark.journal_id, begun.end)
        self._group_count += 1
        return self._progress(
            size=begun.size, write_s=begun.write_s, sync_s=self._seconds() - started, created_s=begun.created_s
        )

    def close(self) -> LogMark:
        """Prove the last group durable by an empty one behind it, and close. Returns the end.

        Without the proof, damage to the last group would look like a torn tail at the next start.
        """
        with self._fatal_if_it_fails():
            if self._group_count:
                self._write_group([])
            for file in (self._file, self._spare.file if self._spare else None):
                if file is not None:
                    file.close()
            self._file = self._spare = None
            return self._mark

    # --- ahead of use

    def prepare(self) -> Progress:
        """Write one slice of zeros ahead, or roll a full file, while nothing waits."""
        with self._fatal_if_it_fails():
            return self._prepare()

    def _prepare(self) -> Progress:
        settings = self._settings
        if self._mark.offset >= settings.file_size_max:
            return self._roll(self._mark.journal_id + 1)
        if self._due():
            self._preparing = True
            if self._zeroed_end < settings.file_size_max:
                file = self._open_file()
                self._zeroed_end += self._write_zeros(file, self._zeroed_end)
                file.sync()
            else:
                spare = self._spare_begun()
                spare.zeroed += self._write_zeros(spare.file, spare.zeroed)
                spare.file.sync()
        return self._progress()

    @property
    def _preallocates(self) -> bool:
        return self._settings.preallocation_size > 0 and not self._short_of_space

    def _due(self) -> bool:
        settings, offset = self._settings, self._mark.offset
        if offset >= settings.file_size_max:
            return True
        if not self._preallocates or self._large_groups:
            return False
        # From half a step on, up to a whole one: not a slice after every other group.
        wanted = settings.preallocation_size if self._preparing else settings.preallocation_size // 2
        if self._zeroed_end < settings.file_size_max:
            return self._zeroed_end - offset < wanted
        zeroed = self._spare.zeroed if self._spare is not None else 0
        return zeroed < min(settings.preallocation_size, settings.file_size_max)

    def _write_zeros(self, file: File, offset: int) -> int:
        """Write one slice of zeros at `offset`; returns its size, or 0 on a full disk: groups may still fit (I-68)."""
        size = min(self._settings.preparation_slice_size, self._settings.preallocation_size)
        try:
            file.preallocate(offset, size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._short_of_space = True
            return 0
        return size

    def _spare_begun(self) -> _Spare:
        if self._spare is None:
            self._spare = _Spare(self._fs.open(self._path(SPARE_NAME), OpenMode.CREATE_EXCLUSIVE))
        return self._spare

    # --- from file to file

    def _roll(self, journal_id: int) -> Progress:
        """Begin file `journal_id`: durable header and first group, then the name, then the directory (I-49, I-52)."""
        started = self._seconds()
        spare, self._spare = self._spare_begun(), None
        if spare.file.size() > spare.zeroed:
            spare.file.truncate(spare.zeroed)  # the rest of a recycled file still holds old records
        head = encode_header(self._settings.format_version) + encode_group(
            (),
            file_id=journal_id,
            start=HEADER_SIZE,
            synced=(self._mark.journal_id, self._mark.offset),
            alignment=self._settings.alignment,
        )
        spare.file.pwrite(head, 0)
        if spare.zeroed == 0 and self._preallocates:
            spare.zeroed = len(head) + self._write_zeros(spare.file, len(head))
        spare.file.sync()
        spare_path, path = self._path(SPARE_NAME), self._path(file_name(journal_id))
        self._fs.link(spare_path, path)  # fails where the id is taken; a rename would replace the file
        self._fs.unlink(spare_path)
        self._fs.sync_dir(self._directory)
        file = self._fs.open(path, OpenMode.UPDATE)  # once more, so that its errors name it
        spare.file.close()
        if self._file is not None:
            self._file.close()
        self._file = file
        self._mark = LogMark(journal_id, len(head))
        self._zeroed_end = max(spare.zeroed, len(head))
        self._group_count = 0
        self._preparing = False
        return self._progress(created_s=self._seconds() - started)

    def collect(self, mark: LogMark) -> Progress:
        """Delete or recycle files wholly below `mark`, which is durable in every ledger directory (I-56).

        The newest `backups_max` of them stay.
        """
        with self._fatal_if_it_fails():
            return self._collect(mark)

    def _collect(self, mark: LogMark) -> Progress:
        below = [
            found
            for found in list_journals(self._fs, self._directory)
            if found < mark.journal_id and found < self._mark.journal_id
        ]
        surplus = below[: max(0, len(below) - self._settings.backups_max)]
        for journal_id in surplus:
            path = self._path(file_name(journal_id))
            if self._settings.recycle and self._spare is None and self._preallocates:
                self._recycle(path)
            else:
                self._fs.unlink(path)
        if surplus:
            self._fs.sync_dir(self._directory)
            self._short_of_space = False
        return self._progress()

    def _recycle(self, path: str) -> None:
        """Turn an old file into the spare: cut to one preallocation step, and zeroed by `prepare` before its first use.

        Zeroing is not optional: Apache's replay stops at zeros only, and would go on into the old records.
        """
        spare_path = self._path(SPARE_NAME)
        self._fs.rename(path, spare_path)
        file = self._fs.open(spare_path, OpenMode.UPDATE)
        if file.size() > self._settings.preallocation_size:
            file.truncate(self._settings.preallocation_size)
        self._spare = _Spare(file)

    # --- inside

    def _progress(
        self, *, size: int = 0, write_s: float = 0.0, sync_s: float = 0.0, created_s: float = 0.0
    ) -> Progress:
        due = self._due()
        if not due:
            self._preparing = False
        return Progress(self._mark, due, size, write_s, sync_s, created_s)

    def _open_file(self) -> File:
        if self._file is None:
            raise StorageError(f"the journal in {self._directory} is not open")
        return self._file

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)
