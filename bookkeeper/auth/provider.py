"""What an authentication provider is. Pure.

A provider belongs to a process, a conversation to one connection. The client speaks first; then each payload of one
side is given to the other's conversation until that says that it is done. Payloads are opaque to everybody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bookkeeper.errors import BookKeeperError

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred


class AuthenticationFailed(BookKeeperError):
    """A conversation's verdict: no. The message is for the log of this side; the other side learns only the verdict."""

    code = -102


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end. address: host and port, for messages. secure: the connection has TLS."""

    address: str
    secure: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """A bookie's answer to one payload.

    done: the client is who it says. user: who that is, for messages.
    """

    payload: bytes
    done: bool
    user: str = ""


class BookieConversation(Protocol):
    """The bookie's side of one connection."""

    def respond(self, payload: bytes) -> Answer | Deferred[Answer]:
        """Take one payload of the client. Raises, or fails with, AuthenticationFailed.

        A Deferred is cancelled when the connection ends before it has fired.
        """


class BookieProvider(Protocol):
    """The bookie's side of a plug-in."""

    plugin_name: str

    def converse(self, peer: Peer) -> BookieConversation:
        """A client has sent its first payload."""


class ClientConversation(Protocol):
    """The client's side of one connection."""

    def first(self) -> bytes:
        """The payload that is sent first. Raises AuthenticationFailed when there is none to send."""

    def respond(self, payload: bytes) -> bytes | None:
        """Take an answer of the bookie; returns the next payload, or None when all is said.

        Raises AuthenticationFailed when this bookie is not one to talk to.
        """


class ClientProvider(Protocol):
    """The client's side of a plug-in. identity: as whom it speaks, for messages."""

    plugin_name: str
    identity: str

    def converse(self, peer: Peer) -> ClientConversation:
        """A connection is up, and secured if it is to be."""
