"""The metadata contract against a real ZooKeeper."""

import random
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_twisted
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from twisted.internet import reactor, threads

from bookkeeper.metadata.cluster.layout import LayoutKind
from bookkeeper.metadata.store import MetadataSettings, MetadataStore, StoreState
from bookkeeper.metadata.uri import MetadataUri
from bookkeeper.metadata.zookeeper import ZooKeeperStore, connect
from tests.support.metadata_contract import Fact, Heard, facts
from tests.support.zookeeper_sessions import end_session

STEADY = MetadataSettings(session_timeout_s=30.0, operation_timeout_s=45.0)
"""Settings of stores with sessions that end only when a test ends them, even if this process pauses for seconds."""


class ZooKeeperWorld:
    """See World."""

    def __init__(self, address: str, root: str, rng: random.Random, kazoo: KazooClient) -> None:
        self.clock = reactor
        self.root = root
        self._address = address
        self._rng = rng
        self._kazoo = kazoo
        self.stores: list[ZooKeeperStore] = []

    async def connect(self, kind: LayoutKind | None = None, settings: MetadataSettings | None = None) -> ZooKeeperStore:
        store = await connect(
            MetadataUri((self._address,), self.root, kind),
            clock=reactor,
            call_from_thread=reactor.callFromThread,
            random=self._rng,
            settings=settings or STEADY,
        )
        self.stores.append(store)
        return store

    async def expire(self, store: MetadataStore) -> None:
        """Continue the session elsewhere and close it there, as ZooKeeper's own tests do."""
        assert isinstance(store, ZooKeeperStore)
        lost = Heard(reactor)
        watch = store.watch_state(lost)
        await threads.deferToThread(end_session, self._address, store.session.session_key)
        await lost.until(lambda calls: StoreState.LOST in calls, "the loss of the session")
        watch.cancel()

    async def put(self, path: str, data: bytes) -> None:
        def put_now() -> None:
            self._kazoo.ensure_path((self.root + path).rpartition("/")[0])
            if self._kazoo.exists(self.root + path):
                self._kazoo.set(self.root + path, data)
            else:
                self._kazoo.create(self.root + path, data)

        await threads.deferToThread(put_now)

    async def get(self, path: str) -> bytes | None:
        try:
            data, _ = await threads.deferToThread(self._kazoo.get, self.root + path)
        except NoNodeError:
            return None
        return data


@pytest.fixture(scope="module")
def kazoo(zookeeper) -> Iterator[KazooClient]:
    client = KazooClient(hosts=zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest_twisted.async_yield_fixture
async def world(zookeeper, ledgers_root: str, rng: random.Random, kazoo: KazooClient) -> AsyncIterator[ZooKeeperWorld]:
    world = ZooKeeperWorld(zookeeper.address, ledgers_root, rng, kazoo)
    yield world
    for store in world.stores:
        await store.close()


@pytest.mark.parametrize("fact", facts().values(), ids=facts().keys())
@pytest_twisted.ensureDeferred
async def test_zookeeper_store(fact: Fact, world: ZooKeeperWorld) -> None:
    await fact(world)
