"""Modes of files that contain secrets, or that decide which peers are trusted."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from bookkeeper.config.table import Source

if TYPE_CHECKING:
    from bookkeeper.config import Loaded

log = Logger()

WARNINGS_MAX = 256
"""Warnings that a process remembers, to log each of them once. A process reads about ten files of secrets."""


def exposure(path: str, mode: int, *, is_secret: bool = True) -> str:
    """Return a text about what other users may do with a file, with the remedy; "" if the mode is strict enough.

    The group may read a secret: an administrator may have given the file to the group of a service. is_secret: False
    for a file that all users may read, such as the certificates of authorities.
    """
    found = [("read", "o-r")] if is_secret and mode & stat.S_IROTH else []
    found += [("change", "go-w")] if mode & (stat.S_IWGRP | stat.S_IWOTH) else []
    if not found:
        return ""
    may, remedy = " and ".join(may for may, _ in found), ",".join(remedy for _, remedy in found)
    return f"has mode {stat.S_IMODE(mode):04o}, so other users of this machine may {may} it: chmod {remedy} {path}"


def exposed(name: str, path: str, *, is_secret: bool = True) -> str:
    """Return a warning about the mode of a file, or "". name: the file with its key, for the warning."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return ""  # reading the file reports the reason
    found = exposure(path, mode, is_secret=is_secret) if stat.S_ISREG(mode) else ""
    return f"{name} {found}" if found else ""


def exposed_conf(loaded: Loaded[Any]) -> Iterator[str]:
    """Yield a warning about the mode of a conf file that contains secrets."""
    holders: dict[str, list[str]] = {}
    for row in loaded.rows:
        if row.key.secret and row.origin.source is Source.FILE:
            holders.setdefault(row.origin.place.removesuffix(f":{row.origin.line}"), []).append(row.key.name)
    for path, names in holders.items():
        if text := exposed(f"{path} (which contains {', '.join(names)})", path):
            yield text


def warn_exposed(*texts: str) -> None:
    """Log each warning that is not empty, once per process."""
    for text in filter(None, texts):
        _warn_once(text)


@functools.lru_cache(WARNINGS_MAX)
def _warn_once(text: str) -> None:
    log.warn("{text}", text=text)
