"""One hub, put together: metadata, ledgers, topics, listener. The composition root.

    reserve ports -> one session with ZooKeeper: registration, owner records, ledger client -> listen -> register

SIGTERM ends it in order: positions are stored, ledgers are ended, topics and registration are given back, and the other
hubs continue at once. Topics that cannot be given back in `stop_timeout_s`, or because the metadata store is away, are
taken over as after a crash. Everything is handed its reactor; modules that only some hubs need (TLS, HTTP) are imported
by those hubs only.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.admin.access.tokens import check_token_file
from bookkeeper.client.connecting import connect_to, metadata_settings
from bookkeeper.client.read.entries import payload_size_max
from bookkeeper.clock import wall_ms
from bookkeeper.config import ClientSettings
from bookkeeper.errors import BookKeeperError, ConfigurationError
from bookkeeper.metadata.outcome import pause, within
from bookkeeper.metadata.zookeeper import ZooKeeperStore
from bookkeeper.runtime import TcpOptions, TwistedNetwork, watch_turns
from bookkeeper.serving.admission import Admission, ConnectionBounds
from bookkeeper.serving.peers import PeerLog
from bookkeeper.system.addresses import PortReservation, cannot_listen, cannot_serve_http, reserve_http_port
from hedwig.errors import ServiceDown
from hedwig.filters import DEFAULT_FILTERS, MakeFilter
from hedwig.hub.endpoint import BUFFER_SIZE, HUB_BOUNDS, HubConnection
from hedwig.hub.metadata import HubMetadata
from hedwig.hub.meters import HubMeters
from hedwig.hub.ownership import Ownership
from hedwig.hub.subscriptions.dead_letters import DeadLetters
from hedwig.hub.topics.recent import RecentBudget
from hedwig.hub.topics.service import TopicService, TopicSettings
from hedwig.hub.topics.trimming import StoreTime, Trimmer
from hedwig.hub.turns import DeliveryTurns
from hedwig.model import HubAddress, Topic
from hedwig.names import Paths, shown
from hedwig.protocol.retention import Retention
from hedwig.wire.framing import FRAME_SIZE_MAX_HUB
from hedwig.wire.messages import Stamp

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.ports import Listener, Network, StreamProtocol
    from hedwig.client.client import PubSubClient
    from hedwig.hub.regions.sources import Regions
    from hedwig.hub.tls import HubCredentials, TlsConnection

log = Logger()

LOOKED_AT_ONCE = 200
"""Topics that are looked at in one turn of the reactor."""

STORE_AWAY_S = 3.0
"""Time without an answer of the metadata store after which a stopping hub gives up: it cannot give topics back, others
take over. So a hub ends within 10 s of SIGTERM: 3 s, a look, CLOSE_TIMEOUT_S, and 2 s for the store's session."""

STORE_LOOK_S = 0.5

CLOSE_TIMEOUT_S = 3.0
"""How long what was written to clients may take to leave when the hub stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubTls:
    """certificate: a PKCS12 file, or a PEM file. private_key: a PEM file, where that has none. port: 0 takes any."""

    port: int
    certificate: str
    private_key: str = ""
    password: bytes = field(default=b"", repr=False)
    versions: tuple[str, ...] = ("TLSv1.2",)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Address and access rules of the HTTP server. port: 0 for any free port."""

    host: str
    port: int
    token_file: str = ""
    allowed_hosts: tuple[str, ...] = ()
    ledger_content: bool = False


@dataclass(frozen=True, slots=True)
class OtherRegions:
    """addresses: a hub of each. retry_max_s: between attempts to reach one. trust_path: a PEM file."""

    addresses: tuple[HubAddress, ...]
    retry_max_s: float = 120.0
    tls: bool = False
    trust_path: str = ""
    verify_hostname: bool = True
    trust_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """metadata_uri: of the cluster's ledgers. host: the address that clients and other hubs are told; port: 0 takes a
    free one. region, prefix: where the records are. cache_size: bytes of recent messages of all topics. trim_period_s:
    how often consumed ledgers are looked for. stop_timeout_s: to give the topics back. publish_time: messages get one.
    retention_by_topic: by the beginnings of names.
    """

    metadata_uri: str
    host: str
    port: int = 4080
    listen_on: str = ""
    tls: HubTls | None = None
    http: HttpSettings | None = None
    region: str = "standalone"
    prefix: str = "/hedwig"
    connections: ConnectionBounds = HUB_BOUNDS
    frame_size_max: int = FRAME_SIZE_MAX_HUB
    publish_time: bool = True
    cache_size: int = 256 * 1024 * 1024
    trim_period_s: float = 60.0
    stop_timeout_s: float = 30.0
    regions: OtherRegions | None = None
    retention: Retention = field(default_factory=Retention)
    retention_by_topic: tuple[tuple[bytes, Retention], ...] = ()
    topic: TopicSettings = field(default_factory=TopicSettings)
    client: ClientSettings = field(default_factory=ClientSettings)
    filters: Mapping[str, MakeFilter] = field(default_factory=lambda: DEFAULT_FILTERS)

    def retention_of(self, topic: Topic) -> Retention:
        """What counts for a topic: of the longest beginning of its name, else of all."""
        fitting = [each for each in self.retention_by_topic if topic.startswith(each[0])]
        return max(fitting, key=lambda each: len(each[0]))[1] if fitting else self.retention


class Hub:
    """Start it, stop it.

    config: key -> effective value, secrets hidden, for those who ask over HTTP; None: it does not tell.
    address: that of its registration, once it serves. overdue: it stopped, and did not give everything back.
    """

    def __init__(
        self, reactor: Any, settings: HubSettings, config: Callable[[], Mapping[str, str]] | None = None
    ) -> None:
        self._reactor, self.settings, self._config = reactor, settings, config
        self._client: LedgerClient | None = None
        self._listeners: list[Listener] = []
        self._reserved: list[PortReservation] = []
        self._http: Any = None
        self._metadata: HubMetadata | None = None
        self._connections: set[HubConnection | TlsConnection] = set()
        self._admission = Admission(settings.connections, reactor)
        self._peers = PeerLog(log, reactor)
        self._emptied: Deferred[None] | None = None
        self._trimming: Any = None
        self._stamp = Stamp(settings.region.encode(), wall_ms if settings.publish_time else None)
        self.budget = RecentBudget(settings.cache_size)
        self.ownership: Ownership[TopicService] | None = None
        self.address: HubAddress | None = None
        self.meters = HubMeters()
        self.meters.watch_turns(watch_turns(reactor))
        self._turns = DeliveryTurns(reactor)
        self._dead_letters = DeadLetters(lambda: self.ownership, self._client_of_hubs)
        self._topic_settings = replace(settings.topic, dead_letters=self._dead_letters.publish)
        kinds = {settings.retention, *(each for _, each in settings.retention_by_topic)}
        store_time = StoreTime(reactor, self._store_ms)
        self._trimmers = {each: Trimmer(each, lost=self.meters.lost, store_time=store_time) for each in kinds}
        self._regions: Regions | None = None
        self.overdue = False

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
        if settings.http is not None:
            check_token_file(settings.http.token_file)
        port = self._reserve(settings.port, "server_port")
        credentials, ssl_port = None, None
        if settings.tls is not None:
            from hedwig.hub.tls import HubCredentials

            credentials = HubCredentials(settings.tls, self._reactor.seconds)
            ssl_port = self._reserve(settings.tls.port, "ssl_server_port")
        if settings.http is not None:
            http = reserve_http_port(settings.http.host, settings.http.port)
            self._reserved += [] if http is None else [http]
        found: list[ZooKeeperStore] = []

        async def keep(store: ZooKeeperStore) -> None:
            found.append(store)

        client = self._client = await connect_to(settings.metadata_uri, self._reactor, settings.client, prepare=keep)
        [store] = found
        paths = Paths(settings.prefix, settings.region)
        metadata = self._metadata = HubMetadata(store.tree, self._reactor, metadata_settings(settings.client), paths)
        await metadata.open()
        self.address = HubAddress(settings.host, port, ssl_port)
        if settings.regions is not None:
            self._regions = self._other_regions(settings.regions, self.address)
            self._topic_settings = replace(self._topic_settings, regions=self._regions)
        ownership = self.ownership = Ownership(
            metadata,
            self._reactor,
            random.Random(),
            self.address,
            acquire=lambda topic: self._acquire(client, metadata, topic),
            release=lambda service: service.release(),
            abandon=lambda service: service.abandon(),
        )
        await self._listen(port, "server_port", self._accept)
        if credentials is not None and ssl_port is not None:
            secure = credentials
            await self._listen(ssl_port, "ssl_server_port", lambda: self._accept_tls(secure))
        self._listen_http()
        self._release_reserved()
        await ownership.start()
        self._trimming = self._reactor.callLater(settings.trim_period_s, self._trim)

    # --- listening

    def _reserve(self, port: int, key: str) -> int:
        """The port, which is ours from now on. Raises ConfigurationError."""
        reserved = PortReservation(self.settings.listen_on, port, key)
        self._reserved.append(reserved)
        return reserved.port

    def _release_reserved(self) -> None:
        """They are listened on, or not wanted any more."""
        while self._reserved:
            self._reserved.pop().release()

    async def _listen(self, port: int, key: str, accept: Callable[[], StreamProtocol]) -> None:
        host = self.settings.listen_on
        try:
            network = TwistedNetwork(self._reactor, TcpOptions(buffer_size=BUFFER_SIZE))
            self._listeners.append(await network.listen(host, port, accept))
        except OSError as error:
            raise ConfigurationError(cannot_listen(host, port, error, key)) from error

    def _accept(self) -> HubConnection:
        connection = self._connection(self._gone)
        self._connections.add(connection)
        return connection

    def _accept_tls(self, credentials: HubCredentials) -> TlsConnection:
        from hedwig.hub.tls import TlsConnection

        inner = self._connection(lambda _: None)
        connection = TlsConnection(credentials, inner, self._reactor, self.meters, self._gone)
        self._connections.add(connection)
        return connection

    def _connection(self, on_closed: Callable[[HubConnection], object]) -> HubConnection:
        assert self.ownership is not None
        return HubConnection(
            self.ownership,
            frame_size_max=self.settings.frame_size_max,
            on_closed=on_closed,
            meters=self.meters,
            admission=self._admission,
            peers=self._peers,
            turns=self._turns,
        )

    def _gone(self, connection: HubConnection | TlsConnection) -> None:
        self._connections.discard(connection)
        if self._emptied is not None and not self._connections:
            emptied, self._emptied = self._emptied, None
            emptied.callback(None)

    def _listen_http(self) -> None:
        http = self.settings.http
        if http is None:
            return
        from twisted.internet.error import CannotListenError

        from bookkeeper.admin.access.gate import make_gate
        from bookkeeper.admin.http.server import listen_http  # twisted.web costs memory that most hubs need not spend
        from bookkeeper.admin.http.whole import Parts, router_of
        from hedwig.hub.release import GivingUp

        client = self._client
        assert client is not None
        self._show_values(client)
        parts = Parts(
            self.meters.text,
            config=self._config,
            store=client.store,
            client=lambda: succeed(client),
            ledger_content=http.ledger_content,
            extra=[GivingUp(lambda: self.ownership).route()],
        )
        gate = make_gate(
            http.host,
            token_file=http.token_file,
            allowed_hosts=http.allowed_hosts,
            advertised=self.settings.host,
        )
        try:
            self._http = listen_http(self._reactor, http.host, http.port, router_of(parts), gate)
        except CannotListenError as error:
            raise ConfigurationError(cannot_serve_http(http.host, http.port, error.socketError)) from error

    def _show_values(self, client: LedgerClient) -> None:
        def attached() -> int:
            return sum(
                each.attachment_count if isinstance(each, HubConnection) else each.inner.attachment_count
                for each in self._connections
            )

        self.meters.watch(
            owned=lambda: 0 if self.ownership is None else len(self.ownership.owned),
            connections=lambda: len(self._admission),
            closed=lambda: self._admission.closed_count,
            attached=attached,
            unreadable=lambda: (
                0 if self.ownership is None else sum(each.unreadable_count for each in self.ownership.owned.values())
            ),
            cache_size=lambda: self.budget.size,
            cache_size_max=self.budget.size_max,
            ids_passed_over=lambda: client.context.ids_passed_over,
        )

    # --- topics

    async def _acquire(self, client: LedgerClient, metadata: HubMetadata, topic: Topic) -> TopicService:
        settings = self.settings
        service = TopicService(
            metadata,
            client,
            self._reactor,
            topic,
            settings.region.encode(),
            self._stamp,
            self._topic_settings,
            self.budget,
            settings.filters,
            lambda lost: self._lost(topic, lost),
            self.meters.delivered,
            self._turns,
        )
        await service.acquire()
        return service

    def _client_of_hubs(self, address: HubAddress) -> PubSubClient:
        from hedwig.client.client import PubSubClient  # most hubs need none
        from hedwig.client.settings import PubSubSettings

        settings = PubSubSettings(hub_frame_size_max=self.settings.frame_size_max)
        return PubSubClient(self._reactor, TwistedNetwork(self._reactor), [address], settings)

    def _other_regions(self, wanted: OtherRegions, here: HubAddress) -> Regions:
        from hedwig.hub.regions.feed import RegionSettings
        from hedwig.hub.regions.sources import Regions, client_of  # most hubs need none of it

        if any((each.host, each.port) == (here.host, here.port) for each in wanted.addresses):
            raise ConfigurationError(f"regions: {here} is this hub itself; list the hubs of other regions")
        network: Network = TwistedNetwork(self._reactor)
        if wanted.tls:
            from hedwig.client.tls import SecureNetwork, TrustedHubs
            from hedwig.client_config import HedwigClientSettings

            trusted = HedwigClientSettings(
                tls=True,
                ssl_trust_path=wanted.trust_path,
                ssl_verify_hostname=wanted.verify_hostname,
                ssl_trust_all=wanted.trust_all,
            )
            network = SecureNetwork(network, self._reactor, TrustedHubs(trusted))
        regions = Regions(
            self._reactor,
            self.settings.region.encode(),
            RegionSettings(addresses=wanted.addresses, retry_max_s=wanted.retry_max_s),
            lambda address: client_of(
                self._reactor,
                network,
                address,
                tls=wanted.tls,
                frame_size_max=self.settings.frame_size_max,
                stored_size_max=payload_size_max(self.settings.client.frame_size_max),
            ),
            self.meters,
        )
        self.meters.watch_regions(attached=lambda: regions.attached_count, missing=lambda: regions.missing_count)
        return regions

    def _lost(self, topic: Topic, service: TopicService) -> None:
        if self.ownership is not None:
            self.ownership.lost(topic, service)

    # --- trimming

    async def _store_ms(self) -> int:
        if self.ownership is None:
            raise ServiceDown("the hub is stopping")
        return await self.ownership.store_ms()

    def _trim(self) -> None:
        async def trim_all() -> None:
            ownership = self.ownership
            if ownership is None:
                return
            for number, (topic, service) in enumerate(list(ownership.owned.items()), 1):
                if number % LOOKED_AT_ONCE == 0:
                    await pause(self._reactor, 0)  # others have their turn: there may be very many topics
                if ownership.owned.get(topic) is not service:
                    continue
                try:
                    service.store_due()  # and the next time it may be that more goes
                    await self._trimmers[self.settings.retention_of(topic)].trim(service)
                    service.log.end_if_idle()
                except BookKeeperError as error:
                    log.warn("Topic {topic!r} is trimmed later: {error}", topic=shown(topic), error=error)
                except Exception:  # noqa: BLE001 - a fault that one topic meets does not stop the others
                    log.failure("Trimming topic {topic!r} failed", topic=shown(topic))

        def again(_: object) -> None:
            if self.ownership is not None:
                self._trimming = self._reactor.callLater(self.settings.trim_period_s, self._trim)

        trimming = Deferred.fromCoroutine(trim_all())
        trimming.addErrback(lambda failure: log.failure("Trimming topics failed", failure=failure))
        trimming.addCallback(again)

    # --- the end

    def stop(self) -> Deferred[None]:
        """Give everything back in order, and close. Harmless when repeated."""
        return Deferred.fromCoroutine(self._close())

    async def _ended(self, what: str, end: Callable[[], object]) -> None:
        """Run one step of the close, and wait for it.

        A failure is logged, sets `overdue`, and does not prevent the next steps.
        """
        try:
            await maybeDeferred(end)
        except Exception:  # noqa: BLE001 - whatever fails, other hubs wait for the rest
            self.overdue = True
            log.failure("Closing the hub: {what} did not end in order; the rest is closed", what=what)

    async def _close(self) -> None:
        if self._trimming is not None and self._trimming.active():
            self._trimming.cancel()
        self._release_reserved()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await self._ended("a listener", listener.stop)
        ownership, self.ownership = self.ownership, None
        if ownership is not None:
            await self._ended("the release of topics", lambda: self._give_back(ownership))
        await self._ended("dead letters", self._dead_letters.close)
        regions, self._regions = self._regions, None
        if regions is not None:
            await self._ended("the feeds of other regions", regions.close)
        await self._ended("connections", self._close_connections)
        if self._http is not None:
            http, self._http = self._http, None
            await self._ended("the HTTP server", http.stopListening)
        client, self._client = self._client, None
        if client is not None:
            await self._ended("the ledger client", client.close)

    async def _give_back(self, ownership: Ownership[TopicService]) -> None:
        """Release all topics, and this hub's registration."""
        seconds, began_s, metadata = self.settings.stop_timeout_s, self._reactor.seconds(), self._metadata
        assert metadata is not None
        releasing, released = Deferred.fromCoroutine(ownership.stop()), Deferred[None]()
        releasing.addBoth(lambda result: None if released.called else released.callback(result))
        answered_s, asking = began_s, False

        def look() -> None:
            nonlocal asking
            if self._reactor.seconds() - answered_s >= STORE_AWAY_S:
                released.cancel()
            elif not asking:  # the session's state changes only after two thirds of zk_timeout
                asking = True
                metadata.tree.sync().addCallbacks(answered, not_answered)

        def answered(_: None) -> None:
            nonlocal answered_s, asking
            answered_s, asking = self._reactor.seconds(), False

        def not_answered(_: Failure) -> None:
            nonlocal asking
            asking = False

        looking = LoopingCall(look)
        looking.clock = self._reactor
        looking.start(STORE_LOOK_S)
        try:
            await within(self._reactor, seconds, released)
        except CancelledError:
            self.overdue = True
            log.error(
                "Not all topics were released in {seconds:.0f} s; the metadata store is {state}. Other hubs take them "
                "over as after a crash, and some messages are delivered again",
                seconds=self._reactor.seconds() - began_s,
                state=metadata.tree.state.value,
            )
        finally:
            looking.stop()
            releasing.cancel()

    async def _close_connections(self) -> None:
        for connection in list(self._connections):
            connection.close()
        if not self._connections:
            return
        emptied = self._emptied = Deferred()
        with contextlib.suppress(CancelledError):
            await within(self._reactor, CLOSE_TIMEOUT_S, emptied)
        for connection in list(self._connections):  # they take nothing
            connection.abort()
