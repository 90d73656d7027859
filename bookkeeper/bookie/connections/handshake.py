"""The way into a bookie for a connection that something is asked of first: drives its `security.Gate`.

It answers what may not pass, starts TLS, and lets the provider talk with the client. Requests that wait behind an
authentication stay in the connection's inbox, which holds the client up. Bounds: `timeout_s` for each of TLS and
authentication (without the time in which the bookie checks a password), rounds and sizes as in `security`. Received
bytes count as memory of a stranger, a connection without credentials, until the check is done. A check may take twice
the deadline of the first request (`serving.admission`).

Thread: reactor.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.auth.provider import Answer, AuthenticationFailed
from bookkeeper.bookie.connections.dispatch import NO_AUTH_PLUGIN
from bookkeeper.bookie.connections.handshake_rules import BookieSecurity, Gate, Verdict
from bookkeeper.model import Status
from bookkeeper.wire.messages import Auth, Request

if TYPE_CHECKING:
    from bookkeeper.bookie.process.metrics import ConnectionMeters
    from bookkeeper.ports import Clock, Timer
    from bookkeeper.tls import TlsCredentials
    from bookkeeper.wire.codec import ServerCodec

log = Logger()


class Entering(Protocol):
    """The connection, as its entrance sees it."""

    @property
    def codec(self) -> ServerCodec:
        """What answers are made with."""

    @property
    def has_room(self) -> bool:
        """Answers leave, so that more may be given."""

    def say(self, answer: bytes) -> None:
        """Send an answer."""

    def start_tls(self, credentials: TlsCredentials, answer: bytes) -> None:
        """Send a last answer in clear text; everything after it is TLS."""

    def finish(self) -> None:
        """Read nothing more, and close once everything said has left."""

    def abort(self) -> None:
        """Close at once."""

    def pump(self) -> None:
        """Look at the inbox again."""

    def warn(self, subject: str, template: str, **fields: object) -> None:
        """Log what this peer did, not too often."""


class Entrance:
    """One connection's, from its beginning until its first request passes."""

    def __init__(
        self, connection: Entering, security: BookieSecurity, gate: Gate, clock: Clock, meters: ConnectionMeters
    ) -> None:
        self._connection, self._security, self._gate = connection, security, gate
        self._clock, self._meters = clock, meters
        self._timer: Timer | None = None
        self._asked: Deferred[None] | None = None  # the provider, about a payload
        self._closed = False
        if gate.waits:
            self._watch()

    def opens(self, inbox: deque[Request]) -> bool:
        """Take from the inbox what may not pass, and answer it; True once the rest may pass, all of it for good."""
        gate = self._gate
        while inbox and not (gate.busy or self._closed or gate.done) and self._connection.has_room:
            verdict = gate.judge(inbox[0])
            if verdict is Verdict.PASS:
                self.close()
                return True
            self._act(verdict, inbox.popleft(), bool(inbox))
        if gate.done and not self._closed:
            self.close()
            return True
        return False

    def _act(self, verdict: Verdict, request: Request, pipelined: bool) -> None:
        connection = self._connection
        codec = connection.codec
        if verdict is Verdict.UPGRADE:
            self._upgrade(request, pipelined)
        elif verdict is Verdict.AUTHENTICATE:
            assert isinstance(request, Auth)
            self._authenticate(request)
        elif verdict is Verdict.PASS_DISABLED:
            connection.say(codec.reply(request, Status.OK, plugin=NO_AUTH_PLUGIN, payload=b""))
        elif verdict is Verdict.REFUSE:
            self._refused("START_TLS", "Refused START_TLS of {peer}: {reason}")
            connection.say(codec.reply(request, Status.BAD_REQUEST))
        else:
            (self._meters.auth_failures if isinstance(request, Auth) else self._meters.unauthorized).add()
            # A plug-in's name comes from the peer, who must not get a line for each that it makes up.
            subject = "plug-in" if isinstance(request, Auth) else self._gate.reason
            self._refused(subject, "Refused a request of {peer}: {reason}")
            if verdict is Verdict.UNAUTHORIZED:
                connection.say(codec.unauthorized(request))
            else:
                self._end()

    def _refused(self, subject: str, template: str) -> None:
        self._connection.warn(subject, template, reason=self._gate.reason)

    @property
    def waits(self) -> bool:
        """Nothing of this connection is served yet."""
        return self._gate.waits

    @property
    def busy(self) -> bool:
        """Whether the provider is checking credentials."""
        return self._gate.busy

    # --- TLS

    def _upgrade(self, request: Request, pipelined: bool) -> None:
        codec = self._connection.codec
        if pipelined or codec.pending or codec.buffered or codec.error is not None:
            # Whoever is between client and bookie could have put it there, to be run as the client's.
            self._connection.warn(
                "pipelined",
                "Closing the connection from {peer}: it sent more in clear text behind START_TLS; none of it is done "
                "(an Apache client does so whose authentication plug-in does not wait for TLS)",
            )
            self._end()
            return
        assert self._security.tls is not None
        self._watch()
        self._connection.start_tls(self._security.tls, codec.reply(request, Status.OK))

    @property
    def secured(self) -> bool:
        """The connection has TLS."""
        return self._gate.secure

    def on_secured(self) -> None:
        """The TLS handshake is done."""
        self._gate.secure = True
        self._meters.tls_connections.add()
        if self._gate.waits:
            self._watch()
        else:
            self._stop_timer()

    # --- authentication

    def _authenticate(self, request: Auth) -> None:
        gate = self._gate
        gate.busy = True
        asked = Deferred.fromCoroutine(self._ask(request))
        self._asked = asked.addCallback(self._on_answer, request)
        self._asked.addErrback(self._on_failure, request)

    async def _ask(self, request: Auth) -> Answer:
        answer = self._gate.conversation().respond(request.payload)
        return await answer if isinstance(answer, Deferred) else answer

    def _on_answer(self, answer: Answer, request: Auth) -> None:
        gate, provider = self._gate, self._security.provider
        gate.busy = False
        if self._closed:
            return
        assert provider is not None
        connection = self._connection
        connection.say(connection.codec.reply(request, Status.OK, plugin=provider.plugin_name, payload=answer.payload))
        if answer.done:
            gate.authenticated = True
            log.debug("Authenticated {user}", user=answer.user)
            if not gate.waits:
                self._stop_timer()
        connection.pump()

    def _on_failure(self, failure: Failure, request: Auth) -> None:
        self._gate.busy = False
        if self._closed and isinstance(failure.value, CancelledError):
            return
        self._meters.auth_failures.add()
        if self._closed:
            return
        if not isinstance(failure.value, AuthenticationFailed):
            log.failure("The authentication provider failed", failure=failure)
        connection = self._connection
        connection.warn(
            "authentication", "Refused the credentials of {peer}: {reason}", reason=failure.getErrorMessage()
        )
        connection.say(connection.codec.reply(request, Status.UNAUTHORIZED))  # nothing in v2, which cannot say no
        self._end()

    # --- the end

    def _end(self) -> None:
        self.close()
        self._connection.finish()

    def close(self) -> None:
        """The connection passed, or is gone."""
        self._closed = True
        self._stop_timer()
        asked, self._asked = self._asked, None
        if asked is not None and self._gate.busy:
            asked.cancel()

    def _watch(self) -> None:
        self._stop_timer()
        self._timer = self._clock.callLater(self._security.timeout_s, self._overdue)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _overdue(self) -> None:
        self._timer = None
        if self._gate.busy:
            self._watch()
            return
        self._connection.warn(
            "handshake overdue",
            "Closing the connection from {peer}: TLS or authentication made no progress for {seconds:g} s "
            "(startTLSTimeoutSecs)",
            seconds=self._security.timeout_s,
        )
        self.close()
        self._connection.abort()
