"""Name nodes as processes on one journal: failing over under load, starting and ending as they should."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor, threads

from bookkeeper.embedded.cluster import LocalCluster
from journalmgr.cli.drill import check_journal, run_drill
from journalmgr.cli.servers import LocalServer, LocalServers
from journalmgr.edit_log import EditLog
from journalmgr.edits.codec import decode
from journalmgr.edits.ops import Add, CreateSnapshot, Mkdir
from journalmgr.ledger.connecting import connect
from journalmgr.ledger.settings import LedgerJournalSettings, default_client_settings
from journalmgr.model import FIRST_TXID, HADOOP_2_7, NamespaceInfo, TxId
from journalmgr.namenode.fs_client import FileSystemClient
from journalmgr.replaying import replay
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts

NAMESPACE = NamespaceInfo(7, "CID-7", "BP-7")
CLIENT = replace(with_long_timeouts(default_client_settings()), zk_session_timeout_s=30.0)
COMMAND_TIMEOUT_S = 60

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/names-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("names")
    with local_cluster(zookeeper.address, root, 4, directory=directory, settings=STEADY) as running:
        yield running


class Names:
    """A formatted journal, and the options that commands need to find it.

    session_s: session timeout of the servers, and their time to connect. Short only if another server must take over.
    """

    def __init__(self, zookeeper: str, cluster: LocalCluster, *, session_s: int = 30) -> None:
        self.zookeeper, self.ledgers_root = zookeeper, cluster.root
        self.root = f"/journal-{os.urandom(4).hex()}"
        self.uri = f"bookkeeper://{zookeeper}{self.root}"
        self.options = [
            *("-D", f"dfs.namenode.bookkeeperjournal.zk.availablebookies={cluster.root}/available"),
            *("-D", f"ha.zookeeper.session-timeout.ms={1000 * session_s}"),
            *("-D", "dfs.namenode.bookkeeperjournal.addEntryTimeoutSec=60"),
        ]

    async def open(self) -> Any:
        """The journal in this process."""
        settings = LedgerJournalSettings(available_path=f"{self.ledgers_root}/available")
        return await connect(
            [self.zookeeper], self.root, reactor, NAMESPACE, settings, CLIENT, ledgers_root=self.ledgers_root
        )

    async def format(self) -> None:
        """Make it."""
        journal = await self.open()
        await journal.format(NAMESPACE)
        await journal.close()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One server that ends by itself."""
        command = [sys.executable, "-m", "journalmgr.cli.main", "namenode", self.uri, *self.options, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)


def status_of(server: LocalServer) -> dict[str, Any]:
    """Return the status of a server, once the server answers."""
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while (found := server.status()) is None:
        assert time.monotonic() < deadline, f"server {server.number} does not answer"
    return found


@pytest_twisted.ensureDeferred
async def test_every_acknowledged_edit_survives_the_death_and_the_sleep_of_the_active(
    cluster: LocalCluster, zookeeper: Any, tmp_path: Path
) -> None:
    """I-80 to I-85, with real processes: SIGKILL, and SIGSTOP past the end of the session."""
    names = Names(zookeeper.address, cluster, session_s=4)
    await names.format()

    def drill() -> dict[str, bytes]:
        with LocalServers(2, tmp_path, names.uri, names.options) as servers:
            found = run_drill(servers, kills=4, stop_share=0.5, callers=3, seed=3)
            assert found.kills
            assert found.stops
            return found.acknowledged

    acknowledged = await threads.deferToThread(drill)
    assert len(acknowledged) > 80
    journal = await names.open()
    await journal.recover_unfinalized()
    created: Counter[str] = Counter()
    async for batch in replay(journal, FIRST_TXID):
        for record in batch.records:
            op = decode(record, batch.segment.layout_version)
            if isinstance(op, Add):
                created[op.path] += 1
    await journal.close()
    check_journal(created, acknowledged)


@pytest_twisted.ensureDeferred
async def test_a_bookie_that_dies_costs_the_servers_nothing(
    cluster: LocalCluster, zookeeper: Any, tmp_path: Path
) -> None:
    names = Names(zookeeper.address, cluster)
    await names.format()

    def work() -> None:
        with LocalServers(2, tmp_path, names.uri, names.options) as servers:
            with FileSystemClient(servers.addresses) as client:
                for number in range(20):
                    if number == 10:
                        cluster.bookies[0].kill()
                    client.create(f"/files/{number}", b"%d" % number)
                turns = [status_of(server)["turns"] for server in servers.servers]
                assert sum(turns) == 1, "a dead bookie made the active give up"
                assert len(list(client.list_status("/files"))) == 20

    try:
        await threads.deferToThread(work)
    finally:
        if not cluster.bookies[0].running:
            cluster.bookies[0].start()


@pytest_twisted.ensureDeferred
async def test_a_standby_saves_checkpoints_and_the_active_purges_what_they_cover(
    cluster: LocalCluster, zookeeper: Any, tmp_path: Path
) -> None:
    """I-86; a server that starts afterwards begins with the checkpoint."""
    names = Names(zookeeper.address, cluster)
    await names.format()
    often = [
        *("-D", "dfs.namenode.checkpoint.txns=10", "-D", "dfs.namenode.checkpoint.check.period=1"),
        *("-D", "dfs.namenode.num.extra.edits.retained=0", "-D", "dfs.namenode.num.checkpoints.retained=1"),
    ]

    def work() -> int:
        with LocalServers(2, tmp_path, names.uri, [*names.options, *often]) as servers:
            with FileSystemClient(servers.addresses) as client:
                standby = next(server for server in servers.servers if server is not servers.active())
                for number in range(15):
                    client.mkdirs(f"/before/{number}")
                client.roll()
                deadline = time.monotonic() + COMMAND_TIMEOUT_S
                ticks = 0
                while status_of(standby)["checkpoint_txid"] < 15:
                    assert time.monotonic() < deadline, "the standby saved no checkpoint"
                    ticks += 1  # a slow standby may have saved one in the middle: then ten more are needed
                    client.mkdirs(f"/tick/{ticks}")
                # The active purges at its next look; it needs the segment to end below the checkpoint.
                client.mkdirs("/after")
                standby.kill()
                standby.start()
                assert standby.wait_for("standby") == "standby"
                return int(status_of(standby)["checkpoint_txid"])

    assert await threads.deferToThread(work) >= 15


@pytest_twisted.ensureDeferred
async def test_a_journal_that_was_never_formatted_is_refused_with_the_remedy(
    cluster: LocalCluster, zookeeper: Any
) -> None:
    names = Names(zookeeper.address, cluster)
    done = await threads.deferToThread(names.run, "--http", "127.0.0.1:0")
    assert done.returncode == 1
    assert "Have you forgotten to format?" in done.stderr


@pytest_twisted.ensureDeferred
async def test_a_zookeeper_that_does_not_answer_is_a_server_error(cluster: LocalCluster, zookeeper: Any) -> None:
    names = Names("127.0.0.1:1", cluster, session_s=1)
    done = await threads.deferToThread(names.run, "--http", "127.0.0.1:0")
    assert done.returncode == 2
    assert names.zookeeper in done.stderr


@pytest_twisted.ensureDeferred
async def test_a_journal_without_its_beginning_is_refused_with_the_first_txid_that_is_missing(
    cluster: LocalCluster, zookeeper: Any
) -> None:
    names = Names(zookeeper.address, cluster)
    journal = await names.open()
    await journal.format(NAMESPACE)
    for first in (1, 5):
        edits = EditLog(journal, HADOOP_2_7)
        await edits.recover()
        await edits.open(first)
        await edits.append_op(Mkdir(path=f"/{first}", inode_id=16385 + first))
        await edits.append_op(Mkdir(path=f"/more-{first}", inode_id=16386 + first))
        await edits.close()
    assert await journal.purge_older_than(TxId(5))
    await journal.close()
    done = await threads.deferToThread(names.run, "--http", "127.0.0.1:0")
    assert done.returncode == 5
    assert "expected txid 1" in done.stderr


@pytest_twisted.ensureDeferred
async def test_an_operation_that_is_not_supported_ends_the_server_and_names_it(
    cluster: LocalCluster, zookeeper: Any
) -> None:
    names = Names(zookeeper.address, cluster)
    journal = await names.open()
    await journal.format(NAMESPACE)
    edits = EditLog(journal, HADOOP_2_7)
    await edits.recover()
    await edits.open(1)
    await edits.append_op(CreateSnapshot(root="/", name="s0"))
    await edits.close()
    await journal.close()
    done = await threads.deferToThread(names.run, "--http", "127.0.0.1:0")
    assert done.returncode == 5
    assert "txid 2" in done.stderr
    assert "CREATE_SNAPSHOT" in done.stderr


@pytest_twisted.ensureDeferred
async def test_a_port_that_is_taken_is_bad_configuration(cluster: LocalCluster, zookeeper: Any, tmp_path: Path) -> None:
    names = Names(zookeeper.address, cluster)
    await names.format()

    def work() -> subprocess.CompletedProcess[str]:
        with LocalServers(1, tmp_path, names.uri, names.options) as servers:
            return names.run("--http", servers.addresses[0])

    done = await threads.deferToThread(work)
    assert done.returncode == 1
    assert "choose another port" in done.stderr
