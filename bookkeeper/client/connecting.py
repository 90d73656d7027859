"""Building the real client: ZooKeeper, TCP, a Twisted reactor. The one place that wires the parts.

Imports no global reactor; the reactor is passed in. Host names are resolved by whatever the face offers, since a
private reactor has no thread pool for it.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from bookkeeper.client.bookies.nearness import Nearness
from bookkeeper.client.bookies.own_machine import is_this_machine
from bookkeeper.client.bookies.placement import mapped_racks, one_rack, parse_topology
from bookkeeper.client.bookies.tls import security_of
from bookkeeper.client.client import LedgerClient
from bookkeeper.clock import clock_of, wall_ms
from bookkeeper.config import ClientSettings
from bookkeeper.config.client import Placement
from bookkeeper.errors import ConfigurationError, ConnectFailed
from bookkeeper.metadata import zookeeper
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.runtime import TcpOptions, TwistedNetwork

if TYPE_CHECKING:
    from bookkeeper.ports import Listener, Network, StreamProtocol

Resolve = Callable[[str], Deferred[str]]
"""Host name -> IP address; fails with OSError."""


async def connect_to(
    uri: str,
    reactor: Any,
    settings: ClientSettings | None = None,
    *,
    resolve: Resolve | None = None,
    prepare: Callable[[zookeeper.ZooKeeperStore], Awaitable[None]] | None = None,
) -> LedgerClient:
    """Connect to the cluster at `uri` and make sure that there is one.

    prepare: awaited with the store before that, by programs that keep something of their own in the same session.
    Fails with ConfigurationError, MetadataUnavailable, NotInitialised, LayoutMismatch.
    """
    settings = settings or ClientSettings()
    clock = clock_of(reactor)
    security_of(settings, clock.seconds)  # fail on unusable files before connecting to anything
    racks = known_racks(settings)
    rng = random.Random()
    network: Network = TwistedNetwork(
        reactor, TcpOptions(no_delay=settings.tcp_no_delay, keepalive=settings.tcp_keepalive)
    )
    if resolve is not None:
        network = ResolvingNetwork(network, resolve)
    store = await zookeeper.connect(
        uri,
        clock=clock,
        call_from_thread=clock.callFromThread,
        random=rng,
        settings=metadata_settings(settings),
    )
    client = LedgerClient(
        store,
        network,
        clock,
        rng,
        settings,
        rack_of=mapped_racks(racks) if racks and settings.placement is Placement.RACK_AWARE else one_rack,
        nearness=Nearness(racks, is_this_machine) if settings.reorder_read_sequence else None,
        now_ms=wall_ms,
        owns_store=True,
    )
    try:
        if prepare is not None:
            await prepare(store)
        await store.ledgers.prepare()
    except BaseException:
        await client.close()
        raise
    return client


def metadata_settings(settings: ClientSettings) -> MetadataSettings:
    """The part of the settings that concerns the session with ZooKeeper."""
    return MetadataSettings(
        session_timeout_s=settings.zk_session_timeout_s,
        request_size_max=settings.zk_request_size_max,
        secure=settings.zk_enable_security,
        digest_auth=settings.zk_digest_auth,
    )


def known_racks(settings: ClientSettings) -> Mapping[str, str]:
    """The racks that the settings tell, where anything goes by them."""
    if settings.placement is Placement.RANDOM and not settings.reorder_read_sequence:
        return {}
    if settings.network_topology:
        return parse_topology(settings.network_topology.replace(",", "\n"), "networkTopology")
    if not settings.network_topology_file:
        return {}
    return read_topology(settings.network_topology_file)


def read_topology(file: str) -> dict[str, str]:
    """The racks of a networkTopologyFile. Raises ConfigurationError."""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"network topology file {path}: {error}") from error
    return parse_topology(text, str(path))


class ResolvingNetwork:
    """A network that turns host names into addresses before it connects."""

    def __init__(self, network: Network, resolve: Resolve) -> None:
        self._network, self._resolve = network, resolve

    def connect(self, host: str, port: int, protocol: StreamProtocol, *, timeout_s: float) -> Deferred[None]:
        """As `Network.connect`; a name that cannot be resolved is a failure to connect."""
        return Deferred.fromCoroutine(self._connect(host, port, protocol, timeout_s))

    async def _connect(self, host: str, port: int, protocol: StreamProtocol, timeout_s: float) -> None:
        if not _is_address(host):
            try:
                host = await self._resolve(host)
            except OSError as error:
                raise ConnectFailed(f"cannot resolve host {host}: {error}") from error
        await self._network.connect(host, port, protocol, timeout_s=timeout_s)

    def listen(self, host: str, port: int, accept: Callable[[], StreamProtocol]) -> Deferred[Listener]:
        """As `Network.listen`."""
        return self._network.listen(host, port, accept)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
