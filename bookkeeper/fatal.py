"""The log line of an error that ends a server: its file, the setting that names it, and what to look at.

Bookie, auto-recovery, hub and name node log it with `log_fatal`. An error of a server often wraps the error of the
system, so the file is looked for along the chain of causes. Calls on descriptors have a file name because the file
system adds it (`bookkeeper.filesystem`). No disk is touched: it may be the disk that does not answer.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bookkeeper.errors import BookKeeperError
from bookkeeper.filesystem import mount_of

if TYPE_CHECKING:
    from twisted.logger import Logger
    from twisted.python.failure import Failure

Named = Iterable[tuple[str, Iterable[str | os.PathLike[str]]]]
"""Pairs of a setting and the directories that it names."""

_OF_DEVICE = frozenset([errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENXIO, errno.ENODEV])
_OF_RIGHTS = frozenset([errno.EACCES, errno.EPERM])


def log_fatal(log: Logger, what: str, failure: Failure, named: Named = ()) -> None:
    """Log at level critical what ended by the failure. A fault of ours gets its traceback."""
    error = failure.value
    if isinstance(error, BookKeeperError | OSError):
        log.critical("{what}: {error}", what=what, error=fatal_text(error, named))
    else:
        log.failure("{what}", failure=failure, what=what)


def fatal_text(error: BaseException, named: Named = ()) -> str:
    """Return an error that ends a server, with its file, the settings that name a directory around it, and a remedy.

    The remedy is the mount point for an error of a device, and the user id where rights are missing.
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
        for key, directories in named:
            found = [f"{key}={each}" for each in directories if (path + "/").startswith(f"{os.fspath(each)}/")]
            notes += dict.fromkeys(found)
        if cause.errno in _OF_DEVICE and (mount := mount_of(path)) is not None:
            notes.append(f"file system: {mount}")
        if cause.errno in _OF_RIGHTS:
            notes.append(f"user id {os.geteuid()} needs access to it")
    return "; ".join([str(error), *notes])
