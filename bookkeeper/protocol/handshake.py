"""From a new connection to the first request, the client's side. Pure.

    CONNECTING -> REQUESTING_TLS -> SECURING -> AUTHENTICATING -> READY -> ENDED

A connection without TLS leaves out REQUESTING_TLS (START_TLS is sent, in clear text) and SECURING (the TLS handshake),
one without credentials leaves out AUTHENTICATING. There is no way back, and none around a state that belongs to it:
what the bookie answers cannot lead to a connection that is less protected than the settings say. TLS comes before the
credentials, so that these are never sent in clear text where TLS is on.
"""

from __future__ import annotations

import enum

from bookkeeper.errors import LocalProtocolError
from bookkeeper.model import Status

AUTH_DISABLED_PLUGIN = "AuthDisabledPlugin"
"""The plug-in that a bookie without authentication names in its answer. Source: bookkeeper/wire/FORMATS.md 2.7."""


class HandshakeState(enum.Enum):
    """Life of a connection."""

    CONNECTING = "connecting"
    REQUESTING_TLS = "requesting TLS"
    SECURING = "securing"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    ENDED = "ended"


class Event(enum.Enum):
    """What brings a connection on."""

    CONNECTED = "connected"
    TLS_GRANTED = "the bookie agrees to TLS"
    SECURED = "the TLS handshake is done"
    AUTHENTICATED = "the bookie accepted the credentials"


LEAVES: dict[Event, HandshakeState] = {
    Event.CONNECTED: HandshakeState.CONNECTING,
    Event.TLS_GRANTED: HandshakeState.REQUESTING_TLS,
    Event.SECURED: HandshakeState.SECURING,
    Event.AUTHENTICATED: HandshakeState.AUTHENTICATING,
}
"""The one state in which an event may happen; it is left for the next one of the connection's path."""


class Handshake:
    """Where one connection is. tls, credentials: whether the settings ask for them.

    `ready` is READY as an attribute: it is asked for every write.
    """

    __slots__ = ("_path", "ready", "state")

    def __init__(self, *, tls: bool, credentials: bool) -> None:
        self._path = [HandshakeState.READY]
        if credentials:
            self._path.append(HandshakeState.AUTHENTICATING)
        if tls:
            self._path += [HandshakeState.SECURING, HandshakeState.REQUESTING_TLS]
        self.state = HandshakeState.CONNECTING
        self.ready = False

    def on(self, event: Event) -> HandshakeState:
        """Go on; returns the new state, whose work is now to be done. Raises LocalProtocolError out of order."""
        if self.state is not LEAVES[event]:
            raise LocalProtocolError(f"{event.value} while {self.state.value}")
        self.state = self._path.pop()
        self.ready = self.state is HandshakeState.READY
        return self.state

    def on_ended(self) -> None:
        """The connection is gone, or given up."""
        self.state = HandshakeState.ENDED
        self.ready = False


def tls_refusal(status: Status) -> str | None:
    """Why START_TLS was refused; None when it was not."""
    if status is Status.OK:
        return None
    if status is Status.BAD_REQUEST:
        return "it has no TLS: turn TLS on there, or off here"
    return f"it refused START_TLS: {status.value}"


def auth_refusal(status: Status, plugin: str, offered: str) -> str | None:
    """Why the bookie's answer to a step of plug-in `offered` is a refusal; None when it is not."""
    if status is not Status.OK:
        return f"it refused the credentials of plug-in {offered}: {status.value}"
    if plugin not in (offered, AUTH_DISABLED_PLUGIN):
        return f"it wants authentication plug-in {plugin!r}, not {offered!r}"
    return None
