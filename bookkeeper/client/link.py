"""One TCP connection to a bookie, from connecting to its end: bytes in, messages out, credentials first.

Thread: reactor. The Twisted protocol of `connection.BookieChannel`, which decides what is sent and who gets the
answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from bookkeeper.errors import BookieUnavailable, ConnectFailed, ConnectionLost
from bookkeeper.model import BookieId
from bookkeeper.protocol.connection import Handshake
from bookkeeper.wire import messages
from bookkeeper.wire.codec import RequestEncoder, response_decoder

if TYPE_CHECKING:
    from bookkeeper.config import ClientSettings
    from bookkeeper.ports import Clock, Transport


class LinkOwner(Protocol):
    """Whose connection it is."""

    def on_ready(self, link: BookieLink) -> None:
        """Requests may leave."""

    def on_messages(self, link: BookieLink, received: list[Any]) -> None:
        """Answers of one chunk, in order."""

    def on_link_lost(self, link: BookieLink, error: BookieUnavailable) -> None:
        """The connection ended or could not be authenticated; told at most twice, the first time counts."""


class BookieLink:
    """The Twisted protocol of one connection. heard_s: when bytes last arrived, or the connection was made."""

    def __init__(
        self, owner: LinkOwner, bookie_id: BookieId, encoder: RequestEncoder, clock: Clock, settings: ClientSettings
    ) -> None:
        self.handshake = Handshake(settings.auth_plugin)
        self.transport: Transport
        self.paused = False
        self.closing = False
        self.heard_s = clock.seconds()
        self._owner, self._bookie_id, self._encoder = owner, bookie_id, encoder
        self._now: Callable[[], float] = clock.seconds
        self._credentials = (settings.auth_plugin, settings.auth_payload)
        version: Literal[2, 3] = 2 if encoder.version == 2 else 3
        self._decoder = response_decoder(version, settings.frame_size_max)
        self._connected = False

    def makeConnection(self, transport: Transport) -> None:
        """The connection is up: credentials first, if there are any."""
        self.transport = transport
        self._connected = True
        self.heard_s = self._now()
        transport.registerProducer(self, True)
        if self.closing:
            transport.abortConnection()
        elif self.handshake.on_connected():
            _, frame = self._encoder.encode_auth(*self._credentials)
            transport.write(frame)
        else:
            self._owner.on_ready(self)

    def dataReceived(self, data: bytes) -> None:
        """Some bytes arrived."""
        if self.closing:
            return
        self.heard_s = self._now()
        received = self._decoder.receive(data)
        if received and not self.handshake.ready:
            received = self._authenticate(received)
        if received:
            self._owner.on_messages(self, received)
        if self._decoder.error is not None and not self.closing:
            self.abort(self._lost(f"bookie {self._bookie_id} broke the protocol: {self._decoder.error}"))

    def connectionLost(self, reason: Any) -> None:
        """The connection is gone."""
        self.handshake.on_ended()
        self.closing = True
        self._owner.on_link_lost(self, self._lost(f"the connection to bookie {self._bookie_id} ended: {reason.value}"))

    def _lost(self, message: str) -> ConnectionLost:
        return ConnectionLost(message, bookie_id=self._bookie_id)

    def _authenticate(self, received: list[Any]) -> list[Any]:
        """Take the answers to our credentials; return what follows them."""
        for position, message in enumerate(received):
            refusal: str | None = None
            if isinstance(message, messages.AuthReply):
                refusal = self.handshake.on_auth_reply(message.status, message.plugin)
            elif isinstance(message, messages.GenericFailure):
                refusal = message.status.value
            if refusal is not None:
                self.abort(ConnectFailed(f"bookie {self._bookie_id}: {refusal}", bookie_id=self._bookie_id))
                return []
            if self.handshake.ready:
                self._owner.on_ready(self)
                return received[position + 1 :]
        return []

    def abort(self, why: BookieUnavailable) -> None:
        """End the connection now and tell the owner; nothing that still arrives counts."""
        self.closing = True
        self._owner.on_link_lost(self, why)
        if self._connected:
            self.transport.abortConnection()

    def close(self) -> None:
        """End the connection once everything written has left; the owner has let go of it already."""
        self.closing = True
        if self._connected:
            self.transport.loseConnection()

    def pauseProducing(self) -> None:
        """The send buffer is full: keep what follows here, where it is counted."""
        self.paused = True

    def resumeProducing(self) -> None:
        """The send buffer has drained."""
        self.paused = False
        if self.handshake.ready:
            self._owner.on_ready(self)

    def stopProducing(self) -> None:
        """The transport is closing; connectionLost follows."""
