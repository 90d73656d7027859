"""The log line of an error that ends a server: the file, the setting that names it, and a remedy.

Bookie, auto-recovery, hub and name node log it with `log_fatal`. An error of a server often wraps an error of the
system, so the chain of causes is searched for the file. `bookkeeper.filesystem` adds the file name to errors of calls
on descriptors. No disk is accessed, since a disk that does not respond may be the cause.
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
    """Log at level critical what the failure ended. Only errors beyond BookKeeperError and OSError get a traceback."""
    error = failure.value
    if isinstance(error, BookKeeperError | OSError):
        log.critical("{what}: {error}", what=what, error=fatal_text(error, named))
    else:
        log.failure("{what}", failure=failure, what=what)


def fatal_text(error: BaseException, named: Named = ()) -> str:
    """Return the text of an error that ends a server, with file, remedy and the settings that name its directory.

    The remedy is the mount point for an error of a device, or the user id for missing access rights.
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
