"""Descriptors of a server process: the limit, and the connections and open files that fit it."""

from __future__ import annotations

import resource

FILES_MAX = 1_000_000
FILES_RESERVED = 256
"""Descriptors kept for files, locks, the metadata session and outgoing connections."""

HTTP_CONNECTIONS_MAX = 256
"""Connections of a process's HTTP server for operators."""

CONNECTIONS_MIN = 16
"""Connections that are admitted even if descriptors are scarce."""

OPEN_FILES_MIN = 16
"""Least number of files in a cache of open files, even if descriptors are scarce; also the minimum of openFileLimit."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit on open files to the hard one, and return it, at most FILES_MAX.

    The default limit of an interactive shell is too low for a daemon.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)


def fitting_connections(wanted: int, reserved: int) -> int:
    """Return the number of `wanted` connections that fit the limit on open files, at least CONNECTIONS_MIN.

    reserved: descriptors for all other uses, in addition to FILES_RESERVED. Raises the soft limit to the hard one.
    """
    return min(wanted, max(raise_descriptor_limit() - reserved - FILES_RESERVED, CONNECTIONS_MIN))


def descriptors_for(files: int) -> int:
    """Return the lowest limit on open files at which a cache may keep `files` files open."""
    return 2 * files + FILES_RESERVED


def fitting_files(wanted: int) -> int:
    """Return the number of `wanted` files that a cache may hold open, at least OPEN_FILES_MIN.

    The cache and the connections share the limit equally, after FILES_RESERVED descriptors (at most half of the limit).
    Raises the soft limit to the hard one.
    """
    limit = raise_descriptor_limit()
    return min(wanted, max((limit - min(FILES_RESERVED, limit // 2)) // 2, OPEN_FILES_MIN))
