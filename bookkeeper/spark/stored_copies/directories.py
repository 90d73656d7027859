"""A bookie's directories, opened for reading alone: whose they are, that all of them are there, that nobody uses them.

    every directory has a cookie --> of one bookie and cluster --> that names as many directories as were given
    --> kept from a bookie by a shared lock --> not of a storage without index files

What is not given would be taken for missing, so fewer directories than the cookie names are refused. They may be other
paths than those in the cookie: a copy, or a disk mounted elsewhere. Nothing is written; the right to read is enough.

A bookie of ours locks its directories, a genuine one does not: beside one that runs, `state` changes sooner or later,
but not at once. Whoever can ask the metadata store should ask whether the bookie is registered.

Blocking; any thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import crc32c

from bookkeeper.bookie.identity.cookie_rules import VERSION_FILE, DirectoryKind, differences, owner
from bookkeeper.bookie.identity.identity import LOCK_FILE, inspect_directory
from bookkeeper.bookie.journal.files import list_journals
from bookkeeper.bookie.journal.format import file_name, journal_id_of
from bookkeeper.bookie.journal.mark import MARK_FILE_SIZE, mark_name
from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.storage.disks import current
from bookkeeper.bookie.storage.entry_log.format import HEADER_SIZE, parse_log_name
from bookkeeper.errors import CookieMismatch, DirectoryInUse, StorageError
from bookkeeper.filesystem import FileSystem, Lock, OpenMode, read_whole
from bookkeeper.metadata.bookies.cookie import Cookie

_INDEX_DIRS_SINCE = 5
"""Layout version of a cookie that names index directories where they are not the ledger directories."""
_INDEX_SUBDIRECTORY = re.compile(r"[0-9a-f]{1,2}")


@dataclass(frozen=True, slots=True)
class BookieDirectories:
    """As configured, without `current`. Several journals: in the order of the configuration. index_dirs: none means the
    ledger directories."""

    journal_dirs: tuple[str, ...]
    ledger_dirs: tuple[str, ...]
    index_dirs: tuple[str, ...] = ()

    @property
    def indexes(self) -> tuple[str, ...]:
        """Where index files are."""
        return self.index_dirs or self.ledger_dirs

    @property
    def kinds(self) -> dict[str, DirectoryKind]:
        """Every directory, each once, under its first use."""
        found: dict[str, DirectoryKind] = {}
        for kind, paths in (
            (DirectoryKind.JOURNAL, self.journal_dirs),
            (DirectoryKind.LEDGER, self.ledger_dirs),
            (DirectoryKind.INDEX, self.index_dirs),
        ):
            for path in paths:
                found.setdefault(path, kind)
        return found


def named_directories(fs: FileSystem, path: str) -> BookieDirectories:
    """All directories of the bookie that one directory belongs to, as its cookie names them.

    Raises CookieMismatch where there is no cookie, MetadataCorrupt or MetadataTooNew for one that cannot be read,
    OSError.
    """
    cookie = _cookie_in(fs, path, DirectoryKind.LEDGER)
    return BookieDirectories(cookie.journal_dirs, cookie.ledger_dirs, cookie.index_dirs or ())


def check_cookies(
    fs: FileSystem, directories: BookieDirectories, *, bookie_id: str | None = None, instance_id: str | None = None
) -> Cookie:
    """The cookie that all of the directories have. bookie_id, instance_id: what it must say; None: anything.

    Raises CookieMismatch, MetadataCorrupt, MetadataTooNew, OSError.
    """
    kinds = directories.kinds
    first: tuple[str, Cookie] | None = None
    for path, kind in kinds.items():
        cookie = _cookie_in(fs, path, kind)
        if bookie_id not in (None, cookie.bookie_id) or instance_id not in (None, cookie.instance_id):
            wanted = f"bookie {bookie_id or 'of any id'} of cluster {instance_id or 'of any id'}"
            raise CookieMismatch(
                f"{path} is a directory of {owner(cookie)}; expected was {wanted}. Give the directories of that bookie"
            )
        if first is None:
            first = (path, cookie)
            continue
        for field, there, found in differences(first[1], cookie):
            raise CookieMismatch(
                f"{path} and {first[0]} are not directories of one bookie: the cookie there says {field} {found!r}, "
                f"here {there!r}. Give the directories of one bookie, all of them and no other"
            )
    if first is None:
        raise CookieMismatch("no directory of a bookie was given")
    _check_complete(directories, *first)
    for path in kinds:
        _check_use(fs, directories, path)
    if first[1].layout_version < _INDEX_DIRS_SINCE and not directories.index_dirs:
        _check_index_there(fs, directories, *first)
    return first[1]


def _cookie_in(fs: FileSystem, path: str, kind: DirectoryKind) -> Cookie:
    if not fs.is_dir(current(path)):
        why = "is not there" if not fs.exists(path) else "has no `current`, so no bookie ever used it"
        raise CookieMismatch(f"{kind.value} {path} {why}: mount its disk, or give the right directory")
    state = inspect_directory(fs, path, kind)
    if state.cookie is None:
        content = "is empty" if state.empty else "holds files"
        raise CookieMismatch(
            f"{current(path)} {content} and has no cookie ({VERSION_FILE}): whose it is cannot be told. Give the right "
            "directory, or bring its cookie back"
        )
    return state.cookie


def _check_complete(directories: BookieDirectories, where: str, cookie: Cookie) -> None:
    for kind, given, named in (
        (DirectoryKind.JOURNAL, directories.journal_dirs, cookie.journal_dirs),
        (DirectoryKind.LEDGER, directories.ledger_dirs, cookie.ledger_dirs),
        (DirectoryKind.INDEX, directories.indexes, _index_dirs_of(cookie) or directories.indexes),
    ):
        if len(set(given)) != len(set(named)):
            raise CookieMismatch(
                f"the cookie in {where} names {len(set(named))} {kind.value} ({', '.join(named)}), and "
                f"{len(set(given))} were given ({', '.join(given)}): what the others hold would be taken for missing. "
                "Give each of them"
            )
    indexes = set(_index_dirs_of(cookie) or directories.indexes)
    if set(directories.indexes) == set(directories.ledger_dirs) and indexes != set(cookie.ledger_dirs):
        raise CookieMismatch(
            f"the cookie in {where} names {', '.join(sorted(indexes))} as indexDirectories, apart from the "
            "ledgerDirectories, and none were given. Give them"
        )
    journals = directories.journal_dirs
    if journals != cookie.journal_dirs and set(journals) == set(cookie.journal_dirs):
        raise CookieMismatch(
            f"the journalDirectories were given as {', '.join(journals)}, the cookie in {where} names them as "
            f"{', '.join(cookie.journal_dirs)}: each has a mark of its own by its place. Give them in that order"
        )


def _index_dirs_of(cookie: Cookie) -> tuple[str, ...]:
    """None where the cookie does not tell."""
    if cookie.index_dirs is None and cookie.layout_version >= _INDEX_DIRS_SINCE:
        return cookie.ledger_dirs
    return cookie.index_dirs or ()


def _check_use(fs: FileSystem, directories: BookieDirectories, path: str) -> None:
    """A directory that was given for another use than it has would be searched for the wrong files, in vain."""
    for name in fs.listdir(current(path)):
        kind, given = None, directories.journal_dirs
        if journal_id_of(name) is not None:
            kind = DirectoryKind.JOURNAL
        elif parse_log_name(name) is not None:
            kind, given = DirectoryKind.LEDGER, directories.ledger_dirs
        elif _INDEX_SUBDIRECTORY.fullmatch(name):
            kind, given = DirectoryKind.INDEX, directories.indexes
        if kind is not None and path not in given:
            raise CookieMismatch(
                f"{path} has files of {kind.value} ({name}), and was not given as one of them ({', '.join(given)}). "
                f"Give it as one of the {kind.value}"
            )


def _check_index_there(fs: FileSystem, directories: BookieDirectories, where: str, cookie: Cookie) -> None:
    """An older cookie does not tell; that nothing is indexed at all is more likely a directory that was not given."""
    names = [name for directory in directories.ledger_dirs for name in fs.listdir(current(directory))]
    if any(map(_INDEX_SUBDIRECTORY.fullmatch, names)):
        return
    logs = inspection.list_entry_logs(fs, directories.ledger_dirs)
    if any(_size(fs, path) > HEADER_SIZE for _, path in logs):
        raise CookieMismatch(
            f"{', '.join(directories.ledger_dirs)} have entry logs and no index files, and the cookie in {where} "
            f"(layout version {cookie.layout_version}) does not name the index directories. Give them, as "
            "indexDirectories of the bookie's configuration has them, or the ledger directories where it has none"
        )


def keep_bookies_away(fs: FileSystem, directories: BookieDirectories) -> list[Lock]:
    """Shared locks on all directories that were ever locked. Raises DirectoryInUse where a bookie runs, OSError."""
    locks: list[Lock] = []
    try:
        for path, kind in directories.kinds.items():
            try:
                lock = fs.lock_shared(os.path.join(current(path), LOCK_FILE))
            except DirectoryInUse as error:
                raise DirectoryInUse(
                    f"{kind.value} {path} is in use by a bookie that runs: what stands in its files is not all that it "
                    "has. Stop it, or read its copies through it"
                ) from error
            if lock is not None:
                locks.append(lock)
    except BaseException:
        release(locks)
        raise
    return locks


def release(locks: Sequence[Lock]) -> None:
    """Give them up."""
    for lock in locks:
        lock.release()


def state_of(fs: FileSystem, directories: BookieDirectories) -> int:
    """A number that changes when a bookie has used the directories: it makes files and moves marks. Raises OSError."""
    return crc32c.crc32c("\n".join(_facts(fs, directories)).encode())


def check_unchanged(fs: FileSystem, directories: BookieDirectories, state: int) -> None:
    """Raises DirectoryInUse when the state is another one now, OSError."""
    if state_of(fs, directories) != state:
        raise DirectoryInUse(
            f"the files of the bookie in {', '.join(directories.kinds)} are not those that the work was planned for: "
            "a bookie runs, or ran, on them. Stop it and plan anew"
        )


def _facts(fs: FileSystem, directories: BookieDirectories) -> Iterator[str]:
    for directory in directories.journal_dirs:
        for journal_id in list_journals(fs, current(directory)):
            path = os.path.join(current(directory), file_name(journal_id))
            yield f"{path} {_size(fs, path)}"
    for directory in directories.ledger_dirs:
        logs = [path for _, path in inspection.list_entry_logs(fs, (directory,))]
        yield from logs
        if logs:  # only the newest grows
            yield f"{logs[-1]} {_size(fs, logs[-1])}"
    count = len(directories.journal_dirs)
    for directory in directories.ledger_dirs:
        for index in range(count):
            path = os.path.join(current(directory), mark_name(index, count))
            try:
                yield f"{path} {read_whole(fs, path, size_max=MARK_FILE_SIZE).hex()}"
            except FileNotFoundError:
                yield path
            except StorageError as error:
                yield f"{path} {error}"


def _size(fs: FileSystem, path: str) -> int:
    try:
        file = fs.open(path, OpenMode.READ)
    except OSError:
        return -1  # said where it matters
    try:
        return file.size()
    finally:
        file.close()
