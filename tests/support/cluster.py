"""Clusters of real processes for integration tests: `bookkeeper.embedded.cluster` with settings that suit tests.

with local_cluster(zookeeper.address, ledgers_root, bookie_count=3) as cluster:
    cluster.uri                       what a client connects to
    cluster.bookies[0].kill()         SIGKILL; .start() runs it again on the same port and directories
    cluster.bookies[0].stop()         SIGTERM; returns the exit code
    cluster.bookies[0].log_path       what it said

with RawClient(bookie.port) as client:      the wire without our client: frames out, answers in
    client.send(frames); client.receive(count)
"""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.admin.questions import get_json
from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster, LocalProcessFailed
from bookkeeper.model import AvailableBookies
from bookkeeper.wire.codec import response_decoder

SESSION_TIMEOUT_MS = 2000
"""Sessions of killed clients and bookies should end soon."""

STEADY: dict[str, str] = {"zkTimeout": "30000"}
"""Settings of bookies for tests that do not wait for the end of a session: a bookie that pauses stays registered."""

STEADY_HUB: dict[str, str] = {"zk_timeout": "30000"}
"""Settings of hubs for tests that do not wait for the end of a session: a hub that pauses keeps its topics."""

ANSWER_TIMEOUT_S = 60.0

FAST: dict[str, str] = {
    "zkTimeout": str(SESSION_TIMEOUT_MS),
    "journalPreAllocSizeMB": "1",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
}


def with_long_timeouts(settings: ClientSettings | None = None) -> ClientSettings:
    """Return settings with long timeouts: the client does not replace slow bookies, since there may be no spare."""
    return replace(settings or ClientSettings(), add_timeout_s=60.0, read_timeout_s=60.0)


def local_cluster(
    zookeeper: str,
    root: str,
    bookie_count: int = 3,
    *,
    directory: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> LocalCluster:
    """A cluster on a ZooKeeper that runs already, not started yet (it is a context manager)."""
    return LocalCluster(
        bookie_count, directory=directory, zookeeper=zookeeper, root=root, settings={**FAST, **(settings or {})}
    )


def wait_for_exit(bookie: LocalBookie) -> int:
    """Start a bookie that is expected to end by itself before it serves; its exit code."""
    bookie.start(wait=False)
    with contextlib.suppress(LocalProcessFailed):
        bookie.wait_ready()
        raise AssertionError(f"bookie {bookie.number} serves; it was expected to refuse")
    return bookie.stop()


def when_gone(client: BlockingBookKeeper, bookie_id: str) -> None:
    """Return once this client knows that the bookie is no longer registered."""
    _when(client, lambda available: bookie_id not in available.writable)


def when_writable(client: BlockingBookKeeper, bookie_id: str) -> None:
    """Return once this client knows that the bookie is registered, which may be a moment after `start` has returned.

    After a kill, call `when_gone` before the restart: the client may still know the earlier registration.
    """
    _when(client, lambda available: bookie_id in available.writable)


def _when(client: BlockingBookKeeper, holds: Callable[[AvailableBookies], bool]) -> None:
    def start(ledgers: LedgerClient) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        watch = ledgers.store.bookies.watch(
            lambda available: done.callback(None) if not done.called and holds(available) else None
        )
        done.addBoth(lambda _: watch.cancel())
        return done

    client.run(start)


def collected(bookie: LocalBookie) -> None:
    """A round of collection, to its end. The bookie serves HTTP on the port that its settings name."""
    port, path = int(bookie.settings["httpServerPort"]), "/api/v1/bookie/gc"
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_TIMEOUT_S)) as connection:
        connection.request("PUT", path)
        assert connection.getresponse().read()
    while get_json(("127.0.0.1", port), path, timeout_s=ANSWER_TIMEOUT_S) != {"is_in_force_gc": "false"}:
        pass


class RawClient:
    """One blocking connection to a bookie that speaks the wire and nothing else."""

    def __init__(self, port: int, *, version: int = 2) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)
        self._decoder = response_decoder(3 if version == 3 else 2)
        self._answers: list[Any] = []

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive(self) -> list[Any]:
        """The answers of the next piece of bytes, at least one. Raises ConnectionError when the bookie closed."""
        found: list[Any] = []
        while not found:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the bookie closed the connection")
            found = list(self._decoder.receive(data))
            assert self._decoder.error is None
        return found

    def acknowledged(self, count: int) -> list[int]:
        """The entry ids of the next `count` acknowledged adds; anything else that is answered fails."""
        entry_ids: list[int] = []
        while len(entry_ids) < count:
            for answer in self.receive():
                entry_ids += answer.entry_ids
        return entry_ids

    def is_closed(self) -> bool:
        """Wait until the bookie closes; True when it does so without another byte."""
        return self._socket.recv(1) == b""

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
