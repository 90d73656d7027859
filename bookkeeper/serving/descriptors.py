"""Descriptors of a server process: its limit, and the number of connections for which it leaves room."""

from __future__ import annotations

import resource

FILES_MAX = 1_000_000
FILES_RESERVED = 256
"""Descriptors kept for files, locks, the metadata session and outgoing connections."""

HTTP_CONNECTIONS_MAX = 256
"""Connections of a process's HTTP server for operators."""

CONNECTIONS_MIN = 16
"""Connections that are admitted, however few descriptors there are."""

OPEN_FILES_MIN = 16
"""Files of a cache of open files, however few descriptors there are: the least that openFileLimit can be."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit on open files to the hard one, and return it, at most FILES_MAX.

    A daemon should not live with an interactive shell's default.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)


def fitting_connections(wanted: int, reserved: int) -> int:
    """Return how many of `wanted` connections the limit on open files leaves room for, at least CONNECTIONS_MIN.

    reserved: descriptors for everything else, beside FILES_RESERVED. Raises the soft limit to the hard one first.
    """
    return min(wanted, max(raise_descriptor_limit() - reserved - FILES_RESERVED, CONNECTIONS_MIN))


def fitting_files(wanted: int) -> int:
    """Return how many of `wanted` files a cache may hold open, at least OPEN_FILES_MIN; connections get as many.

    Both share what FILES_RESERVED, or half of a limit below twice that, leaves. Raises the soft limit to the hard one
    first.
    """
    limit = raise_descriptor_limit()
    return min(wanted, max((limit - min(FILES_RESERVED, limit // 2)) // 2, OPEN_FILES_MIN))
