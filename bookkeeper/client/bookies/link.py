"""One TCP connection to a bookie, from connecting to its end: bytes in, messages out; TLS and credentials first.

`protocol.handshake` says what comes next; this is its driver. START_TLS is asked for in protocol v3 also where the
connection is to speak v2: a bookie decides anew which version is spoken once the connection is secured.

Thread: reactor. The Twisted protocol of `connection.BookieChannel`, which decides what is sent and who gets the
answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from bookkeeper.auth.provider import AuthenticationFailed, ClientConversation, Peer
from bookkeeper.config.security import PASSWORD_FILE
from bookkeeper.errors import (
    AuthenticationRefused,
    BookieUnavailable,
    ConnectionLost,
    OtherProtocol,
    RemoteProtocolError,
    RequestTimedOut,
    TlsFailed,
    UnsupportedVersion,
)
from bookkeeper.model import BookieId
from bookkeeper.protocol.handshake import AUTH_DISABLED_PLUGIN, Event, HandshakeState, auth_refusal, tls_refusal
from bookkeeper.wire import messages
from bookkeeper.wire.codec import RequestEncoder, response_decoder, v3_encoder

if TYPE_CHECKING:
    from bookkeeper.client.bookies.tls import ClientSecurity
    from bookkeeper.config import ClientSettings
    from bookkeeper.ports import Clock, Timer, Transport
    from bookkeeper.tls import TlsLayer

AUTH_ROUNDS_MAX = 32
"""Payloads of one authentication; a bookie that asks for more is given up."""


class LinkOwner(Protocol):
    """Whose connection it is."""

    def on_ready(self, link: BookieLink) -> None:
        """Requests may leave."""

    def on_messages(self, link: BookieLink, received: list[Any]) -> None:
        """Answers of one chunk, in order."""

    def on_link_lost(self, link: BookieLink, error: BookieUnavailable) -> None:
        """The connection ended or could not be made ready; told at most twice, the first time counts."""


class BookieLink:
    """The Twisted protocol of one connection. heard_s: when bytes last arrived, or the connection was made.

    transport: what requests are written to: TLS, once the connection has it. host: whom the bookie's certificate must
    be for.
    """

    def __init__(
        self,
        owner: LinkOwner,
        bookie_id: BookieId,
        encoder: RequestEncoder,
        clock: Clock,
        settings: ClientSettings,
        security: ClientSecurity,
        *,
        host: str,
    ) -> None:
        self.handshake = security.handshake()
        self.transport: Transport
        self.paused = False
        self.closing = False
        self.ended_by_peer = False
        self.heard_s = clock.seconds()
        self._owner, self._bookie_id, self._encoder = owner, bookie_id, encoder
        self._clock, self._security, self._host = clock, security, host
        self._settings = settings
        self._now: Callable[[], float] = clock.seconds
        self._version: Literal[2, 3] = 2 if encoder.version == 2 else 3
        self._frame_size_max = settings.frame_size_max
        # START_TLS is spoken in v3, whatever comes after it.
        self._decoder = response_decoder(3 if security.tls is not None else self._version, self._frame_size_max)
        self._tls: TlsLayer | None = None
        self._conversation: ClientConversation | None = None
        self._auth_rounds = 0
        self._timer: Timer | None = None
        self._connected = False
        self._understood = False  # whether a message of our protocol version came

    # --- what the transport calls

    def makeConnection(self, transport: Transport) -> None:
        """The connection is up: TLS and credentials first, if there are any."""
        self.transport = transport
        self._connected = True
        self.heard_s = self._now()
        transport.registerProducer(self, True)
        if self.closing:
            transport.abortConnection()
        else:
            self._advance(Event.CONNECTED)

    def dataReceived(self, data: bytes) -> None:
        """Some bytes arrived."""
        if self.closing:
            return
        self.heard_s = self._now()
        if self._tls is not None:
            data = self._decrypt(self._tls, data)
            if not data:
                return
        self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        received = self._decoder.receive(data)
        self._understood = self._understood or bool(received)
        if received and not self.handshake.ready:
            received = self._shake_hands(received)
        if received:
            self._owner.on_messages(self, received)
        if self._decoder.error is not None and not self.closing:
            self.abort(self._not_understood(self._decoder.error))

    def _not_understood(self, error: RemoteProtocolError) -> BookieUnavailable:
        if isinstance(error, OtherProtocol) and not self._understood:
            if self.handshake.state is HandshakeState.REQUESTING_TLS:
                return self._tls_failed("its answer to START_TLS is of another protocol; it may have no TLS")
            return UnsupportedVersion(f"bookie {self._bookie_id}: {error}", bookie_id=self._bookie_id)
        return self._lost(f"bookie {self._bookie_id} broke the protocol: {error}")

    def connectionLost(self, reason: Any) -> None:
        """The connection is gone."""
        self.ended_by_peer = not self.closing
        error = self._end_of(f"the connection to bookie {self._bookie_id} ended: {reason.value}")
        self.handshake.on_ended()
        self.closing = True
        self._stop_timer()
        self._owner.on_link_lost(self, error)

    def _end_of(self, message: str) -> BookieUnavailable:
        """What the end of the connection means in this state."""
        state = self.handshake.state
        if state is HandshakeState.SECURING:
            return self._tls_failed("the connection ended during the handshake; its log may say why")
        if state is HandshakeState.AUTHENTICATING and self._version == 2:
            # v2 has no way to say no but to hang up (bookkeeper/wire/FORMATS.md 2.7).
            return self._refused("it ended the connection, which is how a refusal looks in protocol v2")
        return self._lost(message)

    # --- before the first request

    def _advance(self, event: Event) -> None:
        """Go on to the next state and do what it is for."""
        state = self.handshake.on(event)
        if state is HandshakeState.READY:
            self._stop_timer()
            self._owner.on_ready(self)
            return
        if self._timer is None:
            self._timer = self._clock.callLater(self._security.timeout_s, self._overdue)
        if state is HandshakeState.REQUESTING_TLS:
            _, frame = v3_encoder(self._frame_size_max).encode_start_tls()
            self.transport.write(frame)
        elif state is HandshakeState.SECURING:
            self._start_tls()
        else:
            self._send_credentials(None)

    def _shake_hands(self, received: list[Any]) -> list[Any]:
        """Take the answers to our side of the handshake; return what follows them."""
        for position, message in enumerate(received):
            if isinstance(message, messages.StartTlsReply) and self.handshake.state is HandshakeState.REQUESTING_TLS:
                self._on_tls_reply(message, received[position + 1 :])
                return []
            if isinstance(message, messages.GenericFailure | messages.AuthReply):
                self._on_auth_reply(message)
            if self.closing:
                return []
            if self.handshake.ready:
                return received[position + 1 :]
        return []

    def _on_tls_reply(self, message: messages.StartTlsReply, behind: list[Any]) -> None:
        refusal = tls_refusal(message.status)
        if refusal is None and (behind or self._decoder.buffered or self._decoder.error is not None):
            refusal = "it sent more in clear text after it agreed to TLS; somebody may be in between"
        if refusal is not None:
            self.abort(self._tls_failed(refusal))
        else:
            self._advance(Event.TLS_GRANTED)

    def _start_tls(self) -> None:
        assert self._security.tls is not None
        self._decoder = response_decoder(self._version, self._frame_size_max)
        try:
            self._tls = self._security.tls.layer(self.transport, self._host)
        except ValueError as error:
            self.abort(self._tls_failed(f"it is registered under a host that no certificate can be for: {error}"))
            return
        self.transport = self._tls
        self._tls.start()

    def _decrypt(self, tls: TlsLayer, data: bytes) -> bytes:
        plain = tls.receive(data)
        if tls.secured and self.handshake.state is HandshakeState.SECURING:
            self._advance(Event.SECURED)
        if self.closing:  # our own credentials may have ended it; what the bookie said meanwhile counts for nothing
            return b""
        if tls.error is None and not tls.ended:
            return plain
        if plain:
            self._deliver(plain)  # what came before the end counts
        if not self.closing:
            if tls.error is None:
                self.ended_by_peer = True
                error = self._end_of(f"bookie {self._bookie_id} ended the connection")
            else:
                error = self._tls_failed(tls.error)
            self.closing = True
            self._stop_timer()
            self._owner.on_link_lost(self, error)
            tls.loseConnection()  # not at once: the alert that tells the bookie what is wrong must leave
        return b""

    def _on_auth_reply(self, message: messages.AuthReply | messages.GenericFailure) -> None:
        provider = self._security.provider
        if self.handshake.state is not HandshakeState.AUTHENTICATING or provider is None:
            # Nothing but START_TLS is under way, so this can only be about it.
            self.abort(self._tls_failed("it answered START_TLS with something else"))
            return
        if isinstance(message, messages.GenericFailure):
            self.abort(self._refused(auth_refusal(message.status, "", provider.plugin_name) or ""))
            return
        refusal = auth_refusal(message.status, message.plugin, provider.plugin_name)
        if refusal is not None:
            self.abort(self._refused(refusal))
        elif message.plugin == AUTH_DISABLED_PLUGIN:
            self._advance(Event.AUTHENTICATED)
        else:
            self._send_credentials(message.payload)

    def _send_credentials(self, answer: bytes | None) -> None:
        """The next step of the plug-in; answer: the bookie's to the one before."""
        provider = self._security.provider
        assert provider is not None
        self._auth_rounds += 1
        try:
            if self._conversation is None:
                self._conversation = provider.converse(Peer(self._bookie_id, self._tls is not None))
                payload: bytes | None = self._conversation.first()
            else:
                payload = self._conversation.respond(answer or b"")
        except AuthenticationFailed as error:
            self.abort(self._auth_failed(str(error)))
            return
        if payload is None:
            self._advance(Event.AUTHENTICATED)
        elif self._auth_rounds > AUTH_ROUNDS_MAX:
            self.abort(self._auth_failed(f"it did not come to an end in {AUTH_ROUNDS_MAX} rounds"))
        else:
            _, frame = self._encoder.encode_auth(provider.plugin_name, payload)
            self.transport.write(frame)

    def _overdue(self) -> None:
        self._timer = None
        seconds = f"no end within {self._security.timeout_s:g} s (startTLSTimeoutSecs)"
        if self.handshake.state is HandshakeState.AUTHENTICATING:
            message = f"authentication at bookie {self._bookie_id}: {seconds}"
            self.abort(RequestTimedOut(message, bookie_id=self._bookie_id))
        else:
            self.abort(self._tls_failed(seconds))

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _tls_failed(self, why: str) -> TlsFailed:
        return TlsFailed(f"TLS with bookie {self._bookie_id} at {self._host}: {why}", bookie_id=self._bookie_id)

    def _auth_failed(self, why: str) -> AuthenticationRefused:
        provider = self._security.provider
        assert provider is not None
        return AuthenticationRefused(
            f"authentication at bookie {self._bookie_id} as {provider.identity!r} with plug-in "
            f"{provider.plugin_name}: {why}",
            bookie_id=self._bookie_id,
        )

    def _refused(self, how: str) -> AuthenticationRefused:
        """The bookie said no: look at what was shown to it."""
        settings = self._settings
        if settings.auth_provider == PASSWORD_FILE:
            shown = f"user and password in clientPasswordFile={settings.auth_password_file}"
        else:
            shown = "what it shows"
        return self._auth_failed(
            f"{how}: check clientAuthProviderFactoryClass={settings.auth_provider} and {shown}; the bookie's log says "
            "what it did not like"
        )

    def _lost(self, message: str) -> ConnectionLost:
        return ConnectionLost(message, bookie_id=self._bookie_id)

    # --- the end

    def abort(self, why: BookieUnavailable) -> None:
        """End the connection now and tell the owner; nothing that still arrives counts."""
        self.closing = True
        self._stop_timer()
        self._owner.on_link_lost(self, why)
        if self._connected:
            self.transport.abortConnection()

    def close(self) -> None:
        """End the connection once everything written has left; the owner has let go of it already."""
        self.closing = True
        self._stop_timer()
        if self._connected:
            self.transport.loseConnection()

    # --- the send buffer

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
