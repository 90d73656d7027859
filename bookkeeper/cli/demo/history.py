"""This machine's own history as data: one stream of entries per package.

First choice: the Debian changelogs in /usr/share/doc, one entry per release. Where documentation is stripped: dpkg's
log, one entry per event. Where there is no dpkg: the sources of Python's standard library, one entry per line.
"""

from __future__ import annotations

import gzip
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCUMENTATION = Path("/usr/share/doc")
DPKG_LOG = Path("/var/log/dpkg.log")
PACKAGES_MIN = 5
"""Fewer changelogs than this count as stripped documentation."""

ENTRY_SIZE_MAX = 1024 * 1024

_RELEASE = re.compile(rb"(?m)^(?=\S+ \([^)]*\) )")
"""Where a release begins in a changelog: `name (version) distribution; urgency=...`."""

_PACKAGE_AT = {
    b"status": 4,
    **dict.fromkeys((b"install", b"upgrade", b"configure", b"trigproc", b"remove", b"purge"), 3),
}
"""Which word of a line of dpkg's log names the package, by the line's third word. Other lines are about no package."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Entries of one package, oldest first."""

    package: str
    entries: list[bytes]


def machine_history(limit: int) -> tuple[str, Iterator[Stream]]:
    """(what it is, up to `limit` streams). Lazy: files are read as the streams are taken."""
    changelogs = sorted(DOCUMENTATION.glob("*/changelog*.gz"))
    if len(changelogs) >= PACKAGES_MIN:
        return "Debian changelogs", _changelogs(changelogs, limit)
    if DPKG_LOG.exists() and DPKG_LOG.stat().st_size:
        return "dpkg's log", _dpkg_events(limit)
    return "Python's standard library sources", _library_sources(limit)


def _changelogs(paths: list[Path], limit: int) -> Iterator[Stream]:
    by_package: dict[str, list[Path]] = {}
    for path in paths:
        by_package.setdefault(path.parent.name, []).append(path)
    for package, files in list(by_package.items())[:limit]:
        releases: list[bytes] = []
        for path in files:
            with gzip.open(path) as file:
                releases += [part.strip()[:ENTRY_SIZE_MAX] for part in _RELEASE.split(file.read())]
        entries = [release for release in reversed(releases) if release]
        if entries:
            yield Stream(package, entries)


def _dpkg_events(limit: int) -> Iterator[Stream]:
    by_package: dict[str, list[bytes]] = {}
    for line in DPKG_LOG.read_bytes().splitlines():
        words = line.split()
        if len(words) > 4 and words[2] in _PACKAGE_AT:
            package = words[_PACKAGE_AT[words[2]]].decode(errors="replace")
            by_package.setdefault(package.partition(":")[0], []).append(line)
    for package, events in list(by_package.items())[:limit]:
        yield Stream(package, events)


def _library_sources(limit: int) -> Iterator[Stream]:
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    for path in sources[:limit]:
        lines = [line for line in path.read_bytes().splitlines() if line]
        if lines:
            yield Stream(path.stem, lines)
