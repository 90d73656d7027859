"""One hub, put together: metadata, ledgers, topics, listener. The composition root.

    one session with ZooKeeper carries the hub's registration, its topics' owner records, and the ledger client

SIGTERM ends it in order: positions are stored, ledgers are ended, topics and registration are given back, and the other
hubs go on at once. Everything is handed its reactor.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.client.connecting import connect_to, metadata_settings
from bookkeeper.config import ClientSettings
from bookkeeper.errors import BookKeeperError, ConfigurationError
from bookkeeper.metadata.zookeeper import ZooKeeperStore
from bookkeeper.runtime import TwistedNetwork
from hedwig.filters import DEFAULT_FILTERS, MakeFilter
from hedwig.hub.endpoint import HubConnection
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.ownership import Ownership
from hedwig.hub.recent import RecentBudget
from hedwig.hub.topic_service import TopicService, TopicSettings
from hedwig.model import HubAddress, Topic
from hedwig.names import Paths
from hedwig.wire.framing import FRAME_SIZE_MAX_HUB
from hedwig.wire.messages import Stamp

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.ports import Listener

log = Logger()

TRIM_PERIOD_S = 60.0
CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """metadata_uri: of the cluster's ledgers. host: the address that clients and other hubs are told; port: 0 takes a
    free one. region, prefix: where the records are. cache_size: bytes of recent messages of all topics.
    """

    metadata_uri: str
    host: str
    port: int = 4080
    listen_on: str = ""
    region: str = "standalone"
    prefix: str = "/hedwig"
    frame_size_max: int = FRAME_SIZE_MAX_HUB
    cache_size: int = 256 * 1024 * 1024
    topic: TopicSettings = field(default_factory=TopicSettings)
    client: ClientSettings = field(default_factory=ClientSettings)
    filters: Mapping[str, MakeFilter] = field(default_factory=lambda: DEFAULT_FILTERS)


class Hub:
    """Start it, stop it."""

    def __init__(self, reactor: Any, settings: HubSettings) -> None:
        self._reactor, self.settings = reactor, settings
        self._client: LedgerClient | None = None
        self._listener: Listener | None = None
        self._metadata: HubMetadata | None = None
        self._connections: set[HubConnection] = set()
        self._trimming: Any = None
        self._stamp = Stamp(settings.region.encode())
        self.budget = RecentBudget(settings.cache_size)
        self.ownership: Ownership[TopicService] | None = None
        self.address: HubAddress | None = None

    def start(self) -> Deferred[None]:
        """Connect, listen, register; fires once clients are served. Fails with BookKeeperError, OSError; nothing is
        left open then.
        """
        return Deferred.fromCoroutine(self._start())

    async def _start(self) -> None:
        try:
            await self._build()
        except BaseException:
            await self._close()
            raise

    async def _build(self) -> None:
        settings = self.settings
        found: list[ZooKeeperStore] = []

        async def keep(store: ZooKeeperStore) -> None:
            found.append(store)

        client = self._client = await connect_to(settings.metadata_uri, self._reactor, settings.client, prepare=keep)
        [store] = found
        paths = Paths(settings.prefix, settings.region)
        metadata = self._metadata = HubMetadata(store.tree, self._reactor, metadata_settings(settings.client), paths)
        await metadata.open()
        ownership: Ownership[TopicService] | None = None

        def accept() -> HubConnection:
            assert ownership is not None
            connection = HubConnection(
                ownership, frame_size_max=settings.frame_size_max, on_closed=self._connections.discard
            )
            self._connections.add(connection)
            return connection

        try:
            listener = self._listener = await TwistedNetwork(self._reactor).listen(
                settings.listen_on, settings.port, accept
            )
        except OSError as error:
            raise ConfigurationError(
                f"server_port {settings.port}: {error.strerror or error}; choose another port, or stop what uses it"
            ) from error
        self.address = HubAddress(settings.host, listener.port)
        ownership = self.ownership = Ownership(
            metadata,
            self._reactor,
            random.Random(),
            self.address,
            acquire=lambda topic: self._acquire(client, metadata, topic),
            release=lambda service: service.release(),
            abandon=lambda service: service.abandon(),
        )
        await ownership.start()
        self._trimming = self._reactor.callLater(TRIM_PERIOD_S, self._trim)

    async def _acquire(self, client: LedgerClient, metadata: HubMetadata, topic: Topic) -> TopicService:
        settings = self.settings
        service = TopicService(
            metadata,
            client,
            self._reactor,
            topic,
            settings.region.encode(),
            self._stamp,
            settings.topic,
            self.budget,
            settings.filters,
            lambda lost: self._lost(topic, lost),
        )
        await service.acquire()
        return service

    def _lost(self, topic: Topic, service: TopicService) -> None:
        if self.ownership is not None:
            self.ownership.lost(topic, service)

    # --- trimming

    def _trim(self) -> None:
        async def trim_all() -> None:
            for topic, service in list(self.ownership.owned.items() if self.ownership is not None else ()):
                try:
                    await service.trim()
                except BookKeeperError as error:
                    log.warn("Topic {topic!r} is trimmed later: {error}", topic=topic, error=error)

        def again(_: object) -> None:
            if self._client is not None:
                self._trimming = self._reactor.callLater(TRIM_PERIOD_S, self._trim)

        trimming = Deferred.fromCoroutine(trim_all())
        trimming.addErrback(lambda failure: log.failure("Trimming topics broke", failure=failure))
        trimming.addCallback(again)

    # --- the end

    def stop(self) -> Deferred[None]:
        """Give everything back in order, and close. Harmless when repeated."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self._trimming is not None and self._trimming.active():
            self._trimming.cancel()
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()
        ownership, self.ownership = self.ownership, None
        if ownership is not None:
            await ownership.stop()
        for connection in list(self._connections):
            connection.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
