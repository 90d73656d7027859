"""Exit codes of a bookie process, BookKeeper's own, and which error leads to which.

Differs from Apache: its 3, ZooKeeper session expired, is not used. A bookie whose session expires goes on serving and
registers again; ending it would take copies away from readers without making anything safer.
"""

from __future__ import annotations

import enum

from bookkeeper.errors import AlreadyRegistered, ConfigurationError, StorageError


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
