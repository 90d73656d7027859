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
from bookkeeper.bookie.process.exit_codes import ExitCode
from bookkeeper.client.faces.blocking import connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.server import LocalServer
from bookkeeper.errors import BookKeeperError
from hedwig.embedded import LocalHub
from journalmgr.cli.namenode import EXIT_JOURNAL
from journalmgr.cli.servers import LocalServers
from journalmgr.namenode.fs_client import FileSystemClient
from tests.support.auto_recovery import LocalAutoRecovery

pytestmark = pytest.mark.timeout(600)

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


def fails(attempt: Callable[[], object], reason: str) -> None:
    """Check that every attempt fails, and one within PATIENCE_S for this reason."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with pytest.raises(BookKeeperError) as failed:
            attempt()
        assert time.monotonic() < deadline, failed.value
        if reason in str(failed.value):
            return


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
    settings = ClientSettings(metadata_service_uri=cluster.uri, zk_session_timeout_s=4.0)
    with (
        name_nodes(cluster, tmp_path) as names,
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
        assert succeeds(lambda: client.open(ledger_id).read(0, 0))[0].payload == b"after"
        until(lambda: len(client.available_bookies().writable) == 3, "three bookies to register again")
        succeeds(lambda: publisher.publish("after", b"x"))
        succeeds(lambda: files.create("/after", b"x"))
        log_says(hub, REFUSED)  # other processes may not have seen a later transaction than the copy has
        assert all(server.running for server in (*cluster.bookies, hub, recovery))


def name_nodes(cluster: LocalCluster, directory: Path) -> LocalServers:
    """Return one name node on a new journal, not started yet."""
    assert cluster.zookeeper is not None
    journal = f"bookkeeper://{cluster.zookeeper.address}/journal"
    run("journalmgr.cli.main", "format", journal, "--force")
    return LocalServers(1, directory, journal, ["-D", "ha.zookeeper.session-timeout.ms=4000"])


def initialise(cluster: LocalCluster) -> None:
    """Make the metadata of a new cluster."""
    run("bookkeeper.cli.main", "shell", "--uri", cluster.uri, "initnewcluster")


def run(*words: str) -> None:
    """Run a command, which must succeed."""
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_processes_end_with_the_reason_or_continue_in_an_emptied_store(cluster: LocalCluster, tmp_path: Path) -> None:
    """No bookie registers in an empty cluster: it would get new ledgers, while its old ledgers are unknown.

    A name node ends without its journal. A client continues as soon as there is a cluster again.
    """
    store = Store(cluster, tmp_path / "copy")
    hub = LocalHub.beside(cluster, 1, {"zk_timeout": "4000"})
    recovery = LocalAutoRecovery(tmp_path / "auto-recovery", cluster.uri, TIMEOUT)
    cluster.start_others([hub, recovery])
    settings = ClientSettings(metadata_service_uri=cluster.uri, zk_session_timeout_s=4.0)
    with (
        name_nodes(cluster, tmp_path) as names,
        FileSystemClient(names.addresses) as files,
        connect(cluster.uri, settings) as client,
    ):
        files.create("/before", b"x")
        ledger = client.create()
        ledger.append(b"before")
        store.empty()
        check_servers(cluster, hub, recovery)
        [name] = names.servers
        until(lambda: not name.running, "the name node to end")
        assert name.end() == EXIT_JOURNAL
        assert "has no list of segments" in name.log_path.read_text()
        fails(lambda: ledger.append(b"after"), f"ledger {ledger.id}: no replacement for")
        fails(client.create, "needs 3 bookies and 0 are writable")
        fails(lambda: client.open(ledger.id), f"there is no ledger {ledger.id}")
        initialise(cluster)
        for _ in range(3):
            cluster.add_bookie(start=False).start()

        def written() -> int:
            with client.create() as again:
                again.append(b"after")
            return again.id

        ledger_id = succeeds(written)
        assert succeeds(lambda: client.open(ledger_id).read(0, 0))[0].payload == b"after"


def check_servers(cluster: LocalCluster, hub: LocalHub, recovery: LocalAutoRecovery) -> None:
    """Check that bookies end, and that hub and auto-recovery do not."""
    for bookie in cluster.bookies:
        assert bookie.wait() == ExitCode.REGISTRATION_FAILED
        logged = bookie.log_path.read_text()
        assert f"bookie {bookie.bookie_id} does not register again: " in logged
        assert "has no cluster. The metadata was emptied, or restored" in logged
    log_says(hub, "could not be registered anew, and serves nothing")
    # Sessions in the new store raise its transaction id: who connects late may not be refused.
    servers = (*cluster.bookies, hub, recovery)
    until(lambda: any(REFUSED in each.log_path.read_text() for each in servers), "a handshake to be refused")
    assert hub.running
    assert recovery.running
