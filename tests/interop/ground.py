"""Four bookies of one kind, and clients of both kinds on them, for scenarios that run in each direction.

A scenario takes a `Ground` and lets our client and the genuine one meet on its ledgers: on our bookies, and on genuine
ones. Both sets run through the whole session and are started at first need. A test that kills a bookie starts it again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from tests.support.apache import Apache, ApacheClient, running_bookies
from tests.support.cluster import when_writable

BOOKIES = 4
PASSWORD = "pass-word"
SESSION_TIMEOUT = {"zkTimeout": "20000"}
"""Longer than a process pauses on a busy machine. `zookeeper_sessions` ends the sessions of killed processes."""
REQUEST_TIMEOUT_S = 60.0
"""Request timeout of our clients: they do not replace a bookie that pauses for seconds."""
OURS, THEIRS = "our bookies", "Apache's bookies"
KINDS = (OURS, THEIRS)


class Bookie(Protocol):
    """A bookie process of either kind."""

    @property
    def bookie_id(self) -> str:
        """The id it registers under."""

    def kill(self) -> None:
        """SIGKILL."""

    def start(self) -> None:
        """Run it again; returns once it serves."""


class Ground:
    """Bookies of one kind, and our client of them in both protocol versions."""

    def __init__(self, uri: str, bookies: Sequence[Bookie], running: ExitStack) -> None:
        self.uri, self.bookies = uri, bookies
        self._clients: dict[int, BlockingBookKeeper] = {}
        self._running = running

    @property
    def apart(self) -> str:
        """The same cluster under another name: settings that a genuine client gets for it change no other's."""
        return self.uri.replace("zk+hierarchical:", "zk:")

    @staticmethod
    def settings(version: int) -> ClientSettings:
        """What our client is set to. No explicit LAC: a reader shall hear of entries by what it is tested for."""
        return ClientSettings(
            use_v2=version == 2,
            password=PASSWORD.encode(),
            explicit_lac_interval_s=0,
            read_timeout_base_s=REQUEST_TIMEOUT_S,
            info_timeout_s=REQUEST_TIMEOUT_S,
        )

    def client(self, version: int) -> BlockingBookKeeper:
        """Our client."""
        if version not in self._clients:
            self._clients[version] = self._running.enter_context(connect(self.uri, self.settings(version)))
        return self._clients[version]

    def where(
        self, version: int, ledger_id: int | str | None = None, digest: str = "CRC32C", client: str = ""
    ) -> tuple[object, ...]:
        """The words by which a command for the genuine client names a ledger, or how to make one.

        client: letters; a client besides the usual one, as of another process.
        """
        words = (self.uri, f"{version}{client}", digest, PASSWORD)
        return words if ledger_id is None else (*words, ledger_id)

    def when_whole(self, theirs: ApacheClient) -> None:
        """Return once our clients and Apache's have seen all bookies after a restart of some."""
        for version in (2, 3):
            for bookie in self.bookies:
                when_writable(self.client(version), bookie.bookie_id)
            theirs.when_writable(self.uri, version, len(self.bookies))

    def bookie(self, bookie_id: str) -> Bookie:
        """The bookie of that id."""
        (found,) = (bookie for bookie in self.bookies if bookie.bookie_id == bookie_id)
        return found


def ground_of(
    kind: str,
    apache: Apache,
    zookeeper: str,
    directory: Path,
    running: ExitStack,
    *,
    count: int = BOOKIES,
    settings: Mapping[str, str] | None = None,
) -> Ground:
    """Start bookies of a kind. apache: the release of genuine ones. settings: more keys of theirs."""
    directory.mkdir(exist_ok=True)
    cluster = LocalCluster(
        count if kind == OURS else 0,
        directory=directory,
        zookeeper=zookeeper,
        root=f"/{directory.name}-{os.getpid()}",
        settings={**SESSION_TIMEOUT, **(settings or {})},
    )
    running.enter_context(cluster)
    bookies: Sequence[Bookie] = cluster.bookies
    if kind == THEIRS:
        bookies = running.enter_context(running_bookies(apache, directory, cluster.uri, count, settings))
    return Ground(cluster.uri, bookies, running)
