"""A ZooKeeper that is restored from an older copy, or emptied, while a client and servers run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import hedwig.blocking
from bookkeeper.bookie.exits import ExitCode
from bookkeeper.client.blocking import connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.server import LocalServer
from bookkeeper.errors import BookKeeperError
from hedwig.embedded import LocalHub
from journalmgr.cli.servers import LocalServers
from journalmgr.namenode.fs_client import FileSystemClient
from tests.support.auto_recovery import LocalAutoRecovery

pytestmark = pytest.mark.timeout(300)

TIMEOUT = {"zkTimeout": "4000"}
PATIENCE_S = 90.0
REFUSED = "ended each handshake"

T = TypeVar("T")


class Store:
    """The data of a cluster's ZooKeeper, copied, restored or removed while the server is stopped."""

    def __init__(self, cluster: LocalCluster, copy: Path) -> None:
        assert cluster.zookeeper is not None
        self._zookeeper, self._copy = cluster.zookeeper, copy
        self._data = cluster.zookeeper.data_dir / "version-2"

    def copy(self) -> None:
        self._zookeeper.stop()
        shutil.copytree(self._data, self._copy)
        self._zookeeper.start()

    def restore(self) -> None:
        self._zookeeper.stop()
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)
        self._zookeeper.start()

    def empty(self) -> None:
        self._zookeeper.stop()
        shutil.rmtree(self._data)
        self._zookeeper.start()


def succeeds(attempt: Callable[[], T]) -> T:
    """Return the result of the attempt; retry for at most PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return attempt()
        except (BookKeeperError, OSError):
            if time.monotonic() > deadline:
                raise


def until(satisfied: Callable[[], bool], what: str) -> None:
    """Wait until the condition is true, for at most PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not satisfied():
        assert time.monotonic() < deadline, what


def log_says(server: LocalServer, text: str) -> None:
    """Wait until a server's log contains the text."""
    until(lambda: text in server.log_path.read_text(), f"{server.name} to log: {text}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, directory=tmp_path / "cluster", settings=TIMEOUT) as cluster:
        yield cluster


def test_all_processes_continue_after_a_restore_of_an_older_copy(cluster: LocalCluster, tmp_path: Path) -> None:
    """F4: client, bookies, hub, auto-recovery and name nodes continue without a restart."""
    store = Store(cluster, tmp_path / "copy")
    hub = LocalHub.beside(cluster, 1, {"zk_timeout": "4000"})
    recovery = LocalAutoRecovery(tmp_path / "auto-recovery", cluster.uri, TIMEOUT)
    cluster.start_others([hub, recovery])
    assert cluster.zookeeper is not None
    journal = f"bookkeeper://{cluster.zookeeper.address}/journal"
    options = ["-D", "ha.zookeeper.session-timeout.ms=4000"]
    settings = ClientSettings(metadata_service_uri=cluster.uri, zk_session_timeout_s=4.0)
    format_journal(cluster)
    with (
        LocalServers(1, tmp_path, journal, options) as names,
        FileSystemClient(names.addresses) as files,
        connect(cluster.uri, settings) as client,
        hedwig.blocking.connect(hub.shown_address) as publisher,
    ):
        files.create("/before", b"x")
        publisher.publish("before", b"x")
        client.create().close()
        store.copy()
        for _ in range(60):  # about 300 transactions that the copy lacks
            with succeeds(client.create) as ledger:
                ledger.append(b"newer")
        succeeds(lambda: publisher.publish("newer", b"x"))
        store.restore()

        def written() -> int:
            with client.create() as ledger:
                ledger.append(b"after")
            return int(ledger.ledger_id)

        ledger_id = succeeds(written)
        assert client.open(ledger_id).read(0, 0)[0].payload == b"after"
        until(lambda: len(client.available_bookies().writable) == 3, "three bookies to register again")
        succeeds(lambda: publisher.publish("after", b"x"))
        succeeds(lambda: files.create("/after", b"x"))
        log_says(hub, REFUSED)  # other processes may not have seen a later transaction than the copy has
        assert all(server.running for server in (*cluster.bookies, hub, recovery))


def format_journal(cluster: LocalCluster) -> None:
    """Format a journal for name nodes."""
    assert cluster.zookeeper is not None
    uri = f"bookkeeper://{cluster.zookeeper.address}/journal"
    command = [sys.executable, "-m", "journalmgr.cli.main", "format", uri, "--force"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_bookies_stop_and_a_hub_serves_nothing_when_the_store_was_emptied(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """No bookie registers in an empty cluster: it would get new ledgers, while its old ledgers are unknown."""
    store = Store(cluster, tmp_path / "copy")
    hub = LocalHub.beside(cluster, 1, {"zk_timeout": "4000"})
    recovery = LocalAutoRecovery(tmp_path / "auto-recovery", cluster.uri, TIMEOUT)
    cluster.start_others([hub, recovery])
    store.empty()
    for bookie in cluster.bookies:
        assert bookie.wait() == ExitCode.REGISTRATION_FAILED
        logged = bookie.log_path.read_text()
        assert REFUSED in logged
        assert f"bookie {bookie.bookie_id} does not register again: " in logged
        assert "has no cluster. The metadata was emptied, or restored" in logged
    log_says(hub, "could not be registered anew, and serves nothing")
    log_says(recovery, REFUSED)
    assert hub.running
    assert recovery.running
