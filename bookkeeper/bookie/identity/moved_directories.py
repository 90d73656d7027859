"""A bookie whose directories were moved or renamed: the cookie follows, once it is proven that they are its own.

    every directory has the old cookie, the old places have it no more, each kind of file is where the settings say
    --> new cookie into the directories, durably --> then into the store, by compare-and-set

Each step may be repeated, so that a move that was cut short is finished by doing it again; between the steps the bookie
does not start. A cookie does not say which of several directories it lies in. For entry logs and index files that does
not matter, since each is looked for in all directories; a journal has its place, so only one may move at a time: the
one that is left over.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.bookie.identity.cookie_rules import (
    VERSION_FILE,
    DirectoryKind,
    DirectoryState,
    directories_of,
    owner,
    stored_cookie,
)
from bookkeeper.bookie.identity.identity import inspect_directories, inspect_directory, stamp
from bookkeeper.errors import CookieMismatch
from bookkeeper.filesystem import FileSystem
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.metadata.store import Cookies


@dataclass(frozen=True, slots=True)
class FilesThere:
    """Which files a directory has that lie in directories of one kind only."""

    journals: bool
    logs: bool


async def move(fs: FileSystem, cookies: Cookies, expected: Cookie) -> bool:
    """Give the bookie the directories of `expected`; False when its cookies name them already.

    The directories must be locked by the caller, and the bookie must not be registered. Raises CookieMismatch, saying
    what is not proven, and then nothing was changed; MetadataError, OSError.
    """
    stored = await cookies.read(expected.bookie_id)
    if stored is None:
        raise CookieMismatch(
            f"{owner(expected)} has no cookie in the metadata store, which would say what its directories were; "
            f"cookie_create -cookie-file DIRECTORY/current/{VERSION_FILE} {expected.bookie_id} restores it"
        )
    known = stored_cookie(stored.value, expected)
    found = inspect_directories(fs, directories_of(expected))
    old = _cookie_before(expected, known, found)
    if old is None:
        return False
    kinds = {state.path: _files_there(fs, state.path) for state in found}
    left = [state.path for state in _at_old_places(fs, old, expected) if _is_ours(state.cookie, old)]
    check_move(expected, old, found, kinds, left)
    stamp(fs, expected, found)
    if known != expected:
        await cookies.write(expected.bookie_id, expected.format(), stored.version)
    return True


def _cookie_before(expected: Cookie, known: Cookie, found: Sequence[DirectoryState]) -> Cookie | None:
    """The cookie from before the move; None when all have the new one. Where the store has the new one already, the
    directories tell.
    """
    if known != expected:
        return known
    return next((state.cookie for state in found if state.cookie not in (None, expected)), None)


def check_move(
    expected: Cookie,
    old: Cookie,
    found: Sequence[DirectoryState],
    files: Mapping[str, FilesThere],
    left: Sequence[str],
) -> None:
    """Raise CookieMismatch unless these are the old cookie's directories under other names. Pure.

    found, files: of each directory that is expected. left: old places that still have a cookie of this bookie.
    """
    if (old.bookie_id, old.instance_id) != (expected.bookie_id, expected.instance_id):
        raise _refused(f"the cookie is that of {owner(old)}, and this is {owner(expected)}")
    _check_counts(expected, old)
    for state in found:
        if state.cookie is None:
            what = "is empty or was never used" if state.empty else "has data but no cookie"
            raise _refused(f"{state.kind.value} {state.path} {what}: it is not the directory that was moved")
        if state.cookie not in (old, expected):
            whose = owner(state.cookie)
            why = "names other directories" if whose == owner(expected) else "belongs to somebody else"
            raise _refused(f"the cookie in {state.path}, of {whose}, {why}")
    moved = [pair for pair in zip(old.journal_dirs, expected.journal_dirs, strict=True) if pair[0] != pair[1]]
    if len(moved) > 1:
        raise _refused(
            "more than one journal directory has another name, and a cookie does not tell which is which: change one, "
            "do this, then the next"
        )
    if left:
        raise _refused(
            f"{', '.join(left)} still has the cookie of {owner(old)}: what was copied and not moved exists twice, and "
            "one of the two falls behind. Take the old one away, or rename it"
        )
    journals, ledgers = set(expected.journal_dirs), set(expected.ledger_dirs)
    for path, there in files.items():
        if there.journals and path not in journals:
            raise _refused(f"{path} has journal files, but journalDirectories does not name it")
        if there.logs and path not in ledgers:
            raise _refused(f"{path} has entry logs, but ledgerDirectories does not name it")


def _check_counts(expected: Cookie, old: Cookie) -> None:
    """As many directories of each kind as before, and as many that serve for two kinds."""
    for kind, wanted, there in (
        (DirectoryKind.JOURNAL.value, expected.journal_dirs, old.journal_dirs),
        (DirectoryKind.LEDGER.value, expected.ledger_dirs, old.ledger_dirs),
        (DirectoryKind.INDEX.value, _index_dirs(expected), _index_dirs(old)),
    ):
        if len(wanted) != len(there) or len(set(wanted)) != len(wanted):
            raise _refused(f"{kind} names {','.join(wanted)}, and the cookie {','.join(there)}: not as many")
    if len(directories_of(expected)) != len(directories_of(old)):
        raise _refused("a directory that served for two purposes does not any more, or the reverse")


def _index_dirs(cookie: Cookie) -> tuple[str, ...]:
    return cookie.ledger_dirs if cookie.index_dirs is None else cookie.index_dirs


def _at_old_places(fs: FileSystem, old: Cookie, expected: Cookie) -> list[DirectoryState]:
    """What is there now. Another bookie may have moved in."""
    now = directories_of(expected)
    return [inspect_directory(fs, path, kind) for path, kind in directories_of(old).items() if path not in now]


def _is_ours(cookie: Cookie | None, old: Cookie) -> bool:
    return cookie is not None and (cookie.bookie_id, cookie.instance_id) == (old.bookie_id, old.instance_id)


def _files_there(fs: FileSystem, directory: str) -> FilesThere:
    current = os.path.join(directory, "current")
    names = fs.listdir(current) if fs.is_dir(current) else []
    return FilesThere(
        journals=any(name.endswith(".txn") for name in names), logs=any(name.endswith(".log") for name in names)
    )


def _refused(why: str) -> CookieMismatch:
    return CookieMismatch(f"{why}; nothing was changed")
