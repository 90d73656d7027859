"""What one bookie, and no other, holds of a ledger: plain reads over a connection of our own.

The client asks another replica when one does not have an entry; who repairs a cluster wants to know just that. The
connection is secured as the client's are, by the same `BookieLink`, which is fed from a blocking socket here.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any

from twisted.internet.task import Clock
from twisted.python.failure import Failure

from bookkeeper.client.bookies.link import BookieLink
from bookkeeper.client.bookies.tls import security_of
from bookkeeper.config import ClientSettings
from bookkeeper.console.output import CommandFailed
from bookkeeper.errors import BookieUnavailable
from bookkeeper.model import BookieId, Status
from bookkeeper.wire.codec import request_encoder
from bookkeeper.wire.messages import ReadBodies, ReadFailed

TIMEOUT_S = 10.0
"""For each step: to connect, to be sent anything."""

BATCH = 100
"""Entries asked for at once."""

RECEIVE_SIZE = 1024 * 1024
LAST_ENTRY = -1


class OneBookie:
    """A v2 connection to one bookie. Blocking; a context manager. Any digest: the bodies come as they are stored."""

    def __init__(self, bookie_id: str, address: tuple[str, int], settings: ClientSettings) -> None:
        """Connect, with TLS and credentials as set. Raises CommandFailed naming the bookie, ConfigurationError."""
        security = security_of(settings, time.monotonic)
        self._bookie_id = bookie_id
        self._encoder = request_encoder(2, settings.frame_size_max)
        self._received: list[Any] = []
        self._lost: BookieUnavailable | None = None
        # A clock that stands still: the socket's own timeout bounds every step.
        self._link = BookieLink(self, BookieId(bookie_id), self._encoder, Clock(), settings, security, host=address[0])
        try:
            self._socket = socket.create_connection(address, TIMEOUT_S)
        except OSError as error:
            where = "" if bookie_id == f"{address[0]}:{address[1]}" else f" at {address[0]}:{address[1]}"
            raise CommandFailed(f"bookie {bookie_id}{where}: {error.strerror or error}") from error
        try:
            self._link.makeConnection(_SocketTransport(self._socket))
            while not self._link.handshake.ready:
                self._receive()
        except OSError as error:
            self._socket.close()
            raise CommandFailed(f"bookie {bookie_id}: {error}") from error
        except CommandFailed:
            self._socket.close()
            raise

    def last(self, ledger_id: int) -> bytes | Status:
        """The stored body of the entry with the highest id it holds, or why there is none."""
        return self._read(ledger_id, [LAST_ENTRY], 1)[0][1]

    def read(self, ledger_id: int, first: int, last: int) -> Iterator[tuple[int, bytes | Status]]:
        """(entry id, stored body or why not) of first..last, in order. Raises CommandFailed when the bookie is lost."""
        for start in range(first, last + 1, BATCH):
            ids = list(range(start, min(last + 1, start + BATCH)))
            found = dict(self._read(ledger_id, ids, len(ids)))
            yield from ((entry_id, found[entry_id]) for entry_id in ids)

    def _read(self, ledger_id: int, entry_ids: list[int], count: int) -> list[tuple[int, bytes | Status]]:
        found: list[tuple[int, bytes | Status]] = []
        try:
            self._link.transport.write(self._encoder.encode_reads(ledger_id, entry_ids)[1])
            while len(found) < count:
                for response in self._receive():
                    if isinstance(response, ReadBodies):
                        found += zip(response.entry_ids, response.bodies, strict=True)
                    elif isinstance(response, ReadFailed):
                        found.append((response.entry_id, response.status))
        except OSError as error:
            raise CommandFailed(f"bookie {self._bookie_id}: {error}") from error
        return found

    def _receive(self) -> list[Any]:
        """Wait for bytes; return the answers in them. Raises CommandFailed when the link is lost, OSError."""
        if self._lost is None:
            data = self._socket.recv(RECEIVE_SIZE)
            if data:
                self._link.dataReceived(data)
            else:
                closed: Any = Failure(ConnectionError("it closed the connection"))  # type: ignore[no-untyped-call]
                self._link.connectionLost(closed)
        if self._lost is not None:
            raise CommandFailed(str(self._lost)) from self._lost
        received, self._received = self._received, []
        return received

    def on_ready(self, link: BookieLink) -> None:
        """See LinkOwner: the loop that waits for it looks by itself."""

    def on_messages(self, link: BookieLink, received: list[Any]) -> None:
        """See LinkOwner."""
        self._received += received

    def on_link_lost(self, link: BookieLink, error: BookieUnavailable) -> None:
        """See LinkOwner."""
        self._lost = self._lost or error

    def __enter__(self) -> OneBookie:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class _SocketTransport:
    """A blocking socket as a link's transport: what is written has left on return, so nobody is ever paused."""

    unsent_bytes = 0

    def __init__(self, connected: socket.socket) -> None:
        self.write = connected.sendall
        self.loseConnection = self.abortConnection = connected.close
        self.getPeer = connected.getpeername

    def writeSequence(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        pass

    def unregisterProducer(self) -> None:
        pass

    def pauseProducing(self) -> None:
        pass

    def resumeProducing(self) -> None:
        pass
