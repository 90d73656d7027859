"""The journal on ledgers on real processes: its URI's parts to a journal, the contract, what ZooKeeper then holds."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_twisted
from kazoo.client import KazooClient
from twisted.internet import reactor, threads

from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import InvalidArgument
from journalmgr.contract import JournalManager
from journalmgr.errors import JournalUnavailable
from journalmgr.ledger import LedgerJournal, LedgerJournalSettings, connect
from journalmgr.model import HADOOP_2_7, NamespaceInfo, TxId
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.journal_contract import NAMESPACE, Fact, facts, finalised_segment, formatted, raises, read_all

pytestmark = pytest.mark.timeout(300)

HERE = {
    name: fact
    for name, fact in facts().items()
    if name != "a_flush_that_was_under_way_is_kept_whole_from_its_beginning"
}
"""One needs a writer that is killed and hears nothing: simulation has that."""

SETTINGS = with_long_timeouts(ClientSettings(explicit_lac_interval_s=0.1))


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/journals-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("journals")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


class ClusterWorld:
    """See JournalWorld; every journal has a session and connections of its own."""

    fences = True

    def __init__(self, zookeeper: str, ledgers_root: str) -> None:
        self.clock = reactor
        self.root = f"/hdfsjournal-{os.urandom(4).hex()}"
        self._zookeeper, self._ledgers_root = zookeeper, ledgers_root
        self._opened: list[LedgerJournal] = []

    async def open(self, namespace: NamespaceInfo = NAMESPACE) -> JournalManager:
        journal = await connect(
            [self._zookeeper],
            self.root,
            reactor,
            namespace,
            LedgerJournalSettings(available_path=f"{self._ledgers_root}/available"),
            SETTINGS,
            ledgers_root=self._ledgers_root,
            hostname="here/127.0.0.1",
        )
        self._opened.append(journal)
        return journal

    def crash(self, journal: JournalManager) -> None:
        """As near as one process comes to it: client and session go at once, and no ledger is closed."""
        journal.close()

    async def close(self) -> None:
        for journal in self._opened:
            await journal.close()


@pytest_twisted.async_yield_fixture
async def world(cluster: LocalCluster, zookeeper: Any) -> AsyncIterator[ClusterWorld]:
    made = ClusterWorld(zookeeper.address, "/" + cluster.uri.rpartition("/")[2])
    yield made
    await made.close()


@pytest.mark.parametrize("fact", HERE.values(), ids=HERE.keys())
@pytest_twisted.ensureDeferred
async def test_ledger_journal(world: ClusterWorld, fact: Fact) -> None:
    await fact(world)


@pytest_twisted.ensureDeferred
async def test_zookeeper_holds_what_hadoop_would_read(world: ClusterWorld, zookeeper: Any) -> None:
    journal = await formatted(world)
    await finalised_segment(journal, 1, 9)
    writer = await journal.start_segment(TxId(10), HADOOP_2_7)
    other = KazooClient(zookeeper.address)
    await threads.deferToThread(other.start)

    async def found(path: str) -> Any:
        return await threads.deferToThread(other.get, world.root + path)

    try:
        segment, stat = await found("/ledgers/edits_000000000000000001_000000000000000009")
        assert segment.startswith(b"dataLayoutVersion: 1\nledgerId: ")
        assert segment.endswith(b"\nfirstTxId: 1\nlastTxId: 9\n")
        assert (stat.version, stat.ephemeralOwner) == (0, 0)
        pointer, stat = await found("/CurrentInprogress")
        assert pointer == f'path: "{world.root}/ledgers/inprogress_a"\nhostname: "here/127.0.0.1"\n'.encode()
        assert stat.version == 3
        await writer.close()
        await journal.recover_unfinalized()
        assert (await found("/CurrentInprogress"))[0] is None
        assert (await found("/maxtxid"))[0] == b"txId: 9\n"
        assert (await found(""))[0] == b"0"
    finally:
        await threads.deferToThread(other.stop)
        await threads.deferToThread(other.close)


@pytest_twisted.ensureDeferred
async def test_a_segment_of_many_entries_is_written_and_read(world: ClusterWorld) -> None:
    journal = await formatted(world)
    for first in (1, 20_001):
        await finalised_segment(journal, first, first + 19_999)
    assert await read_all(journal, 15_000) == list(range(15_000, 40_001))


@pytest_twisted.ensureDeferred
async def test_a_root_that_cannot_be_and_servers_that_are_not_there_are_told(world: ClusterWorld) -> None:
    for root in ("journal", "/", "/a//b", "/a/", "/zookeeper"):
        await raises(InvalidArgument, connect(["127.0.0.1:1"], root, reactor))
    settings = ClientSettings(zk_session_timeout_s=0.5)
    error = await raises(JournalUnavailable, connect(["127.0.0.1:1"], "/j", reactor, client_settings=settings))
    assert "127.0.0.1:1" in str(error)
