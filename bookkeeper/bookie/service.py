"""All connections of a bookie: how many there are, what they may hold together, when their answers leave.

Reading stops for everybody while received bytes that wait pass `received_bytes_max`; connections that have TLS or
credentials still to show may take a small part of that, so that they cannot hold up those that are served. Answers of
one turn leave in one write per connection. What one connection does is `endpoint`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.logger import Logger

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.endpoint import Connection
from bookkeeper.bookie.meters import ConnectionMeters
from bookkeeper.bookie.security import BookieSecurity
from bookkeeper.filesystem import DiskUsage
from bookkeeper.logs import LogLimit
from bookkeeper.metrics import Metrics
from bookkeeper.model import FRAME_SIZE_MAX_DEFAULT
from bookkeeper.ports import Clock, Timer

log = Logger()

STRANGERS_SHARE = 8
"""Connections of which nothing is served yet may take one part in so many of `received_bytes_max`. A handshake takes a
few hundred bytes of each; beyond the bound the connection that has sent most of them goes."""

CONGESTION_POLL_S = 0.005
"""How often a bookie that is behind is asked whether it has caught up."""


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """What connections may take.

    connections_max: more are closed at once.
    unsent_bytes_max: bytes of unsent answers at which requests of a connection are held back; they are taken again
    below `unsent_bytes_low`.
    stall_timeout_s: a connection that takes no answers for so long, while some wait, is closed.
    received_bytes_max: bytes received and not dispatched, over all connections. Beyond it nobody is read from while
    decoded requests wait; of incomplete frames alone, which may never be completed, the one that has waited longest
    goes, with its connection.
    """

    connections_max: int = 10_000
    unsent_bytes_max: int = 512 * 1024
    unsent_bytes_low: int = 384 * 1024
    stall_timeout_s: float = 60.0
    received_bytes_max: int = 256 * 1024 * 1024


class BookieService:
    """All connections of a bookie. Thread: reactor.

    accept: what a listener calls for each new connection.
    """

    def __init__(
        self,
        bookie: Bookie,
        clock: Clock,
        usage: Callable[[], DiskUsage],
        bounds: ConnectionBounds = ConnectionBounds(),
        *,
        frame_size_max: int = FRAME_SIZE_MAX_DEFAULT,
        metrics: Metrics | None = None,
        security: BookieSecurity | None = None,
    ) -> None:
        self.security = security
        self.bookie = bookie
        self.clock = clock
        self.usage = usage
        self.bounds = bounds
        self.frame_size_max = frame_size_max
        self.meters = ConnectionMeters(metrics or Metrics())
        self.log_limit = LogLimit(clock, on_left_out=_tell_left_out)
        self.partial_bytes = 0
        """Of incomplete frames, over all connections."""
        self.inbox_bytes = 0
        """Of decoded requests that wait, over all connections."""
        self.stranger_bytes = 0
        """Of both, what belongs to connections of which nothing is served yet."""
        self.chunks_received = 0
        self._crowd: dict[Connection, None] = {}
        self._connections: dict[Connection, None] = {}
        self._unflushed: list[Connection] = []
        self._flush_due = False
        self._held: dict[Connection, None] = {}
        self._poll: Timer | None = None
        self._stopping = False

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    def accept(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self)

    def admit(self, connection: Connection) -> bool:
        """Count a connection that is up; False when there are too many already."""
        if self._stopping or len(self._connections) >= self.bounds.connections_max:
            return False
        self._connections[connection] = None
        return True

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self._connections.pop(connection, None)
        self._held.pop(connection, None)
        self._crowd.pop(connection, None)

    # --- received bytes

    @property
    def crowded(self) -> bool:
        """True while no more should be read: what was received before waits, and is leaving."""
        return self.inbox_bytes > 0 and self.inbox_bytes + self.partial_bytes > self.bounds.received_bytes_max

    def wait_for_room(self, connection: Connection) -> None:
        """Resume the connection when it is no longer crowded."""
        self._crowd[connection] = None

    def inbox_emptied(self, size: int) -> None:
        """An inbox of so many bytes is empty; whoever waited for room goes on."""
        self.inbox_bytes -= size
        if self._crowd and not self.crowded:
            crowd, self._crowd = self._crowd, {}
            for connection in crowd:
                connection.pump()

    def close_oldest_partial(self) -> None:
        """Incomplete frames alone pass the bound: close whoever has not gone on with his for longest."""
        victim = min((one for one in self._connections if one.partial_bytes), key=lambda one: one.heard_at)
        victim.close_for_partial_frames(self.partial_bytes)

    @property
    def stranger_bytes_max(self) -> int:
        """What connections of which nothing is served yet may take together."""
        return self.bounds.received_bytes_max // STRANGERS_SHARE

    def close_greediest_stranger(self) -> None:
        """Connections of which nothing is served yet pass their bound: close the one that has sent most."""
        victim = max(self._connections, key=lambda one: one.stranger_bytes)
        victim.close_as_stranger(self.stranger_bytes)

    # --- life

    def stop(self) -> None:
        """Read nothing more from any connection. Answers still go out."""
        self._stopping = True
        for connection in list(self._connections):
            connection.stop_reading()

    def abort(self) -> None:
        """Close all connections at once; nothing more is sent (I-48)."""
        self._stopping = True
        for connection in list(self._connections):
            connection.abort()

    def close(self) -> None:
        """Send what is left and close all connections."""
        self.flush()
        for connection in list(self._connections):
            connection.close()

    # --- answers

    def flush_later(self, connection: Connection) -> None:
        """Write the connection's outbox at the end of this turn, with everything else that is answered in it."""
        self._unflushed.append(connection)
        if not self._flush_due:
            self._flush_due = True
            self.clock.callLater(0, self.flush)

    def flush(self) -> None:
        """Write the outboxes: one write per connection."""
        self._flush_due = False
        connections, self._unflushed = self._unflushed, []
        for connection in connections:
            connection.flush()
        if self._held and not self.bookie.congested:
            self._release()

    # --- congestion

    def hold(self, connection: Connection) -> None:
        """Wake the connection when the bookie has caught up."""
        self._held[connection] = None
        if self._poll is None:
            self._poll = self.clock.callLater(CONGESTION_POLL_S, self._look)

    def _look(self) -> None:
        self._poll = None
        if self.bookie.failure is not None or not self._held:
            return
        if self.bookie.congested:
            self._poll = self.clock.callLater(CONGESTION_POLL_S, self._look)
        else:
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, {}
        for connection in held:
            connection.pump()


def _tell_left_out(subjects: str) -> None:
    log.warn("Not logged in the last seconds, being like lines before: {subjects}", subjects=subjects)
