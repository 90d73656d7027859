"""Exit codes of a bookie process, BookKeeper's own, and which error leads to which.

Differs from Apache: its 3, ZooKeeper session expired, is not used. A bookie whose session expires goes on serving and
registers again; ending it would take copies away from readers without making anything safer.
"""

from __future__ import annotations

import enum
import errno
import os
from typing import TYPE_CHECKING

from bookkeeper.errors import AlreadyRegistered, ConfigurationError, StorageError
from bookkeeper.filesystem import mount_of

if TYPE_CHECKING:
    from bookkeeper.config import ServerSettings

_OF_DEVICE = frozenset([errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENXIO, errno.ENODEV])
_OF_RIGHTS = frozenset([errno.EACCES, errno.EPERM])


class ExitCode(enum.IntEnum):
    """BookKeeper's exit codes of a server."""

    OK = 0
    BAD_CONFIGURATION = 1
    SERVER_ERROR = 2
    REGISTRATION_FAILED = 4
    BOOKIE_ERROR = 5


def exit_code_of(error: BaseException) -> ExitCode:
    """Which exit code tells of `error` at start."""
    if isinstance(error, ConfigurationError):
        return ExitCode.BAD_CONFIGURATION
    if isinstance(error, AlreadyRegistered):
        return ExitCode.REGISTRATION_FAILED
    if isinstance(error, StorageError | OSError):
        return ExitCode.BOOKIE_ERROR
    return ExitCode.SERVER_ERROR


def fatal_text(error: BaseException, settings: ServerSettings) -> str:
    """Return an error that ends the bookie, with its file, the setting that names it, and what to look at.

    That is the mount point for an error of a device, and the user where rights are missing. No disk is touched.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    if cause is None:
        return str(error)
    notes = []
    path = cause.filename
    if isinstance(path, str):
        if path not in str(error):
            notes.append(path)
        notes += _naming_settings(path, settings)
        if cause.errno in _OF_DEVICE and (mount := mount_of(path)) is not None:
            notes.append(f"file system: {mount}")
        if cause.errno in _OF_RIGHTS:
            notes.append(f"user id {os.geteuid()} needs access to it")
    return "; ".join([str(error), *notes])


def _naming_settings(path: str, settings: ServerSettings) -> list[str]:
    """Return KEY=DIRECTORY of each setting that names a directory around the path."""
    found = []
    for key, directories in (
        ("journalDirectories", settings.journal_directories),
        ("ledgerDirectories", settings.ledger_directories),
        ("indexDirectories", settings.index_directories),
    ):
        found += [f"{key}={each}" for each in directories if (path + "/").startswith(f"{each}/")]
    return list(dict.fromkeys(found))
