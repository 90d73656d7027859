"""Building the real client: TCP or TLS, a Twisted reactor, settings. The one place that wires the parts.

    hubs      "host:port", "host:port:sslport"; several with commas. One that answers is enough: it names the others

Imports no global reactor; the reactor is passed in. Host names are resolved by whatever the face offers, since a
private reactor has no thread pool for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, succeed

from bookkeeper.client.connecting import Resolve, ResolvingNetwork
from bookkeeper.clock import clock_of
from bookkeeper.errors import ConfigurationError
from bookkeeper.ports import Network
from bookkeeper.runtime import TwistedNetwork
from hedwig.client.client import PubSubClient
from hedwig.client.settings import PubSubSettings
from hedwig.client_config import HedwigClientSettings, parse_server
from hedwig.model import HubAddress

HubNames = str | Sequence[str] | None


def parse_hubs(hubs: HubNames, settings: HedwigClientSettings) -> tuple[HubAddress, ...]:
    """Addresses of hubs; those of the settings where none are given. Raises ConfigurationError."""
    if hubs is None:
        found = settings.servers
    else:
        # "-1" for no TLS port is how hubs print addresses.
        named = [each.strip().removesuffix(":-1") for each in (hubs.split(",") if isinstance(hubs, str) else hubs)]
        try:
            found = tuple(parse_server(each) for each in named)
        except ValueError as error:
            raise ConfigurationError(f"hubs: {error}; with several, put commas between them") from error
    if not found:
        raise ConfigurationError("no hub to ask: give the address of at least one, as host:port")
    if settings.tls:
        for each in found:
            if each.ssl_port is None:
                raise ConfigurationError(
                    f"ssl_enabled=true, and hub {each.host} is given without its TLS port: write "
                    f"{each.host}:{each.port}:SSLPORT"
                )
    return found


def shown(hubs: HubNames) -> str:
    """Return the hubs as text, for messages."""
    if hubs is None:
        return "the hubs of its settings"
    return hubs if isinstance(hubs, str) else ",".join(hubs)


def core_settings(settings: HedwigClientSettings) -> PubSubSettings:
    """The part of the settings that the client itself is about."""
    return PubSubSettings(
        connect_timeout_s=settings.connect_timeout_s,
        answer_timeout_s=settings.answer_timeout_s,
        heartbeat_s=settings.heartbeat_s,
        retry_timeout_s=settings.retry_timeout_s,
        retry_min_s=settings.retry_min_s,
        retry_max_s=settings.retry_max_s,
        linger_s=settings.linger_s,
        outstanding_max=settings.outstanding_max,
        outstanding_bytes_max=settings.outstanding_bytes_max,
        window=settings.window,
        consume_every=settings.consume_every,
        consume_delay_s=settings.consume_delay_s,
        shared_connections=settings.shared_connections,
        frame_size_max=settings.frame_size_max,
        hub_frame_size_max=settings.hub_frame_size_max,
        tls=settings.tls,
    )


async def connect_to(
    hubs: HubNames,
    reactor: Any,
    settings: HedwigClientSettings | None = None,
    *,
    resolve: Resolve | None = None,
    on_waiting: Callable[[str], object] | None = None,
) -> PubSubClient:
    """A client of these hubs, one of which could be reached. on_waiting: see PubSubClient.

    Fails with ConfigurationError, ConnectFailed where none could.
    """
    settings = settings or HedwigClientSettings()
    addresses = parse_hubs(hubs, settings)
    clock = clock_of(reactor)
    network: Network = TwistedNetwork(reactor)
    if resolve is not None:
        network = ResolvingNetwork(network, _local_first(resolve))
    if settings.tls:
        from hedwig.client.tls import SecureNetwork, TrustedHubs  # OpenSSL only for those who use it

        network = SecureNetwork(network, clock, TrustedHubs(settings))
    client = PubSubClient(clock, network, addresses, core_settings(settings), random.Random())
    if settings.message_bound:
        client.preferences = replace(client.preferences, message_bound=settings.message_bound)
    client.auto_consume = settings.auto_consume
    client.on_waiting = on_waiting
    try:
        await client.reach()
    except BaseException:
        client.abandon()
        raise
    return client


def _local_first(resolve: Resolve) -> Resolve:
    def look_up(host: str) -> Deferred[str]:
        # Hubs listen on IPv4, as Apache's do, and "localhost" is often ::1 before it is 127.0.0.1.
        return succeed("127.0.0.1") if host == "localhost" else resolve(host)

    return look_up
