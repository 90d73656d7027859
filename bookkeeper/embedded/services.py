"""Servers of other packages that a cluster on this machine can have besides, found by entry point.

    [project.entry-points."bookkeeper.services"]
    hub = "hedwig.embedded:SERVICE"

The name of an entry is an option of `bookkeeper standalone` and `localbookie` (`--hub`), its value an OtherService.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from bookkeeper.embedded.server import LocalServer
from bookkeeper.errors import ConfigurationError

GROUP = "bookkeeper.services"


class MakeServer(Protocol):
    """Makes the one with this number, from 1; nothing is started. uri: of the cluster, which has so many bookies.

    port: 0 takes a free one. settings: of its conf file, from the command line.
    """

    def __call__(
        self, number: int, directory: Path, uri: str, port: int, bookie_count: int, settings: Mapping[str, str], /
    ) -> LocalServer:
        """Make it."""


@dataclass(frozen=True, slots=True)
class OtherService:
    """What an entry point names.

    port: of the first one. check: raises ConfigurationError for settings that none would start with.
    """

    port: int
    check: Callable[[Mapping[str, str]], object]
    make: MakeServer


def names() -> list[str]:
    """All that are installed, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def load(name: str) -> OtherService:
    """One that is installed. Raises ConfigurationError where what is installed is none."""
    [entry, *_] = entry_points(group=GROUP, name=name)
    found = entry.load()
    if not isinstance(found, OtherService):
        raise ConfigurationError(f"entry point {name} of {GROUP}, {entry.value}, is no OtherService")
    return found
