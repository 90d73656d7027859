"""What a bookie asks of a connection before it serves it: TLS, credentials, neither or both.

A `Gate` stands before each connection that something is asked of, and decides about one request at a time; it does no
I/O. It goes for good when the first request may pass, so a connection that is being served knows nothing of it.

    request            no TLS yet, but tlsRequired       not authenticated yet, though it must be
    START_TLS          UPGRADE (REFUSE without TLS, or when it is there already)
    AUTH               PASS_DISABLED without a provider; AUTHENTICATE; UNAUTHORIZED or CLOSE for another plug-in
    v2 add, read       UNAUTHORIZED                      UNAUTHORIZED
    v2 anything else   CLOSE                             CLOSE
    v3 anything else   UNAUTHORIZED                      UNAUTHORIZED

This is how Apache's bookie treats who has not authenticated yet (bookkeeper/wire/FORMATS.md 2.7, 2.8); who comes in
clear text to a bookie that requires TLS is treated alike.

Our client starts TLS and then authenticates, as does a genuine one whose plug-in waits for TLS. Who authenticates in
clear text and then starts TLS is taken too, and what was proved still counts, as with Apache; the provider is told
whether the connection is secure. But credentials right behind START_TLS in clear text, which is where a genuine client
puts those of a plug-in that does not wait, end the connection like everything else there.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bookkeeper.auth.provider import BookieConversation, BookieProvider, Peer
from bookkeeper.wire.messages import AddBatch, Auth, FenceRead, ReadBatch, Request, StartTls

if TYPE_CHECKING:
    from bookkeeper.tls import TlsCredentials

AUTH_ROUNDS_MAX = 32
"""Payloads of one connection, wrong plug-ins included."""

AUTH_PAYLOAD_MAX = 64 * 1024
"""Bytes of one payload."""


class Verdict(enum.Enum):
    """What becomes of a request at the gate."""

    PASS = "pass"
    UPGRADE = "start TLS"
    AUTHENTICATE = "ask the provider"
    PASS_DISABLED = "no credentials are needed"
    UNAUTHORIZED = "unauthorized"
    REFUSE = "bad request"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class BookieSecurity:
    """What is asked of every connection.

    tls_required: requests in clear text are refused; only with `tls`. timeout_s: for the TLS handshake, and for
    authentication after it.
    """

    tls: TlsCredentials | None = None
    tls_required: bool = True
    provider: BookieProvider | None = None
    timeout_s: float = 10.0

    def gate(self, address: str) -> Gate | None:
        """That of a new connection; None where nothing is asked."""
        return None if self.tls is None and self.provider is None else Gate(self, address)


class Gate:
    """One connection's.

    secure: it has TLS. busy: the provider thinks; nothing may be judged meanwhile. reason: of the last verdict that was
    a refusal, for the log.
    """

    def __init__(self, security: BookieSecurity, address: str) -> None:
        self._security, self._address = security, address
        self.secure = False
        self.authenticated = security.provider is None
        self.busy = False
        self.reason = ""
        self._conversation: BookieConversation | None = None
        self._rounds = 0

    @property
    def waits(self) -> bool:
        """Something must come before the first request."""
        return not self.authenticated or (self._security.tls_required and not self.secure and self._has_tls)

    @property
    def done(self) -> bool:
        """Nothing is left that could be asked for."""
        return self.authenticated and (self.secure or not self._has_tls)

    @property
    def _has_tls(self) -> bool:
        return self._security.tls is not None

    def judge(self, request: Request) -> Verdict:
        """What to do with the next request."""
        if isinstance(request, StartTls):
            return self._judge_tls()
        if isinstance(request, Auth):
            return self._judge_auth(request)
        if not self.waits:
            return Verdict.PASS
        if self.authenticated or (self._has_tls and not self.secure and self._security.tls_required):
            self.reason = (
                "it came in clear text and tlsRequired=true: turn TLS on at that client "
                "(tlsProviderFactoryClass), or set tlsRequired=false here"
            )
        else:
            self.reason = (
                "it is not authenticated: set clientAuthProviderFactoryClass at that client to what belongs to plug-in "
                f"{self._plugin_name}"
            )
        if type(request.token) is bytes and not isinstance(request, AddBatch | ReadBatch | FenceRead):
            return Verdict.CLOSE
        return Verdict.UNAUTHORIZED

    def _judge_tls(self) -> Verdict:
        if self._has_tls and not self.secure:
            return Verdict.UPGRADE
        self.reason = "the connection has TLS already" if self.secure else "there is no TLS here"
        return Verdict.REFUSE

    def _judge_auth(self, request: Auth) -> Verdict:
        if self.authenticated:
            return Verdict.PASS_DISABLED  # what Apache answers to who is authenticated, too
        self._rounds += 1
        if self._rounds > AUTH_ROUNDS_MAX or len(request.payload) > AUTH_PAYLOAD_MAX:
            self.reason = f"more than {AUTH_ROUNDS_MAX} rounds, or a payload above {AUTH_PAYLOAD_MAX} bytes"
            return Verdict.CLOSE
        if request.plugin != self._plugin_name:
            self.reason = f"it offers plug-in {request.plugin!r:.100}, and {self._plugin_name!r} is wanted"
            return Verdict.CLOSE if type(request.token) is bytes else Verdict.UNAUTHORIZED
        return Verdict.AUTHENTICATE

    @property
    def _plugin_name(self) -> str:
        provider = self._security.provider
        return "" if provider is None else provider.plugin_name

    def conversation(self) -> BookieConversation:
        """The provider's side of this connection, begun at the first payload."""
        assert self._security.provider is not None
        if self._conversation is None:
            self._conversation = self._security.provider.converse(Peer(self._address, self.secure))
        return self._conversation
