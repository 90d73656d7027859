"""TLS to a hub's second port: from the first byte on, as hubs have it.

    transport -- records --> Secured -- plain bytes --> the connection, which takes the layer for its transport

Whom to trust is said by the settings; a certificate of the client's own is nothing that hubs ask for.
Source: hedwig/PROTOCOL.md 3.9.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from bookkeeper.errors import TlsFailed
from bookkeeper.tls import NamedFile, TlsLayer, TlsOptions, load
from hedwig.client_config import HedwigClientSettings

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Listener, Network, StreamProtocol, Transport

VERSIONS = ("TLSv1.2", "TLSv1.3")


class TrustedHubs:
    """Which certificates of hubs are taken. Raises ConfigurationError for a file that cannot work."""

    def __init__(self, settings: HedwigClientSettings) -> None:
        trusts_all = settings.ssl_trust_all
        self._options = TlsOptions(
            server_side=False,
            private_key=None,
            password=None,
            certificate=None,
            trust=None if trusts_all else NamedFile("ssl_trust_path", settings.ssl_trust_path),
            check_host=settings.ssl_verify_hostname and not trusts_all,
            versions=VERSIONS,
            ciphers=(),
            refresh_s=0.0,
        )
        self._context = load(self._options)
        if trusts_all:
            self._context.verify_mode = ssl.CERT_NONE

    def layer(self, transport: Transport, host: str) -> TlsLayer:
        """That of one connection. Raises ValueError for a host that no certificate can be for."""
        return TlsLayer(transport, self._context, self._options, host=host)


class SecureNetwork:
    """A network whose connections are secured before they are handed out."""

    def __init__(self, network: Network, clock: Clock, trusted: TrustedHubs) -> None:
        self._network, self._clock, self._trusted = network, clock, trusted

    def connect(self, host: str, port: int, protocol: StreamProtocol, *, timeout_s: float) -> Deferred[None]:
        """As `Network.connect`; fails with TlsFailed where the handshake does, or takes longer than the timeout."""
        return Deferred.fromCoroutine(self._connect(host, port, protocol, timeout_s))

    async def _connect(self, host: str, port: int, protocol: StreamProtocol, timeout_s: float) -> None:
        secured = Secured(protocol, self._trusted, host)
        await self._network.connect(host, port, secured, timeout_s=timeout_s)
        timer = self._clock.callLater(timeout_s, secured.fail, f"the TLS handshake has no end within {timeout_s:g} s")
        try:
            await secured.ready
        except BaseException:
            secured.fail("the connection was given up")
            raise
        finally:
            if timer.active():
                timer.cancel()

    def listen(self, host: str, port: int, accept: Callable[[], StreamProtocol]) -> Deferred[Listener]:
        """As `Network.listen`, without TLS: clients do not listen."""
        return self._network.listen(host, port, accept)


class Secured:
    """The Twisted protocol below the layer. ready: fires once the connection above has its transport."""

    def __init__(self, above: StreamProtocol, trusted: TrustedHubs, host: str) -> None:
        self.ready: Deferred[None] = Deferred()
        self._above, self._trusted, self._host = above, trusted, host
        self._transport: Transport | None = None
        self._layer: TlsLayer | None = None
        self._handed_out = False
        self._ended = False

    def makeConnection(self, transport: Transport) -> None:
        """The connection is up: the handshake comes first."""
        self._transport = transport
        try:
            self._layer = self._trusted.layer(transport, self._host)
        except ValueError as error:
            self.fail(f"no certificate can be for host {self._host!r}: {error}")
            return
        self._layer.start()

    def dataReceived(self, data: bytes) -> None:
        """Some bytes arrived."""
        layer = self._layer
        if layer is None or self._ended:
            return
        plain = layer.receive(data)
        if layer.secured and not self._handed_out:
            self._handed_out = True
            self._above.makeConnection(layer)
            self.ready.callback(None)
        if plain:
            self._above.dataReceived(plain)
        if layer.error is not None:
            self.fail(layer.error)
        elif layer.ended:
            layer.loseConnection()

    def fail(self, why: str) -> None:
        """End the connection, which cannot be secured, or is not any more."""
        if self._ended:
            return
        self._ended = True
        if not self.ready.called:
            self.ready.errback(TlsFailed(why))
        if self._transport is not None:
            # Not at once: the alert that tells the hub what is wrong must leave.
            self._transport.loseConnection()

    def connectionLost(self, reason: Any) -> None:
        """The connection is gone."""
        self._ended = True
        if self._handed_out:
            self._above.connectionLost(reason)
        elif not self.ready.called:
            self.ready.errback(TlsFailed("the hub ended the connection during the TLS handshake; its log may say why"))
