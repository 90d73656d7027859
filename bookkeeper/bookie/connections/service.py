"""All connections of a bookie: what they share, when they are read from, when their answers leave.

`serving.admission` bounds the number, the silence and the memory of all connections. Reading from all of them also
pauses while decoded requests wait and received bytes exceed `received_bytes_max`. The answers of one turn leave in one
write per connection. `endpoint` has one connection.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.connections.endpoint import Connection
from bookkeeper.bookie.connections.handshake_rules import BookieSecurity
from bookkeeper.bookie.process.metrics import ConnectionMeters
from bookkeeper.filesystem import DiskUsage
from bookkeeper.metrics import Metrics
from bookkeeper.model import FRAME_SIZE_MAX_DEFAULT
from bookkeeper.ports import Clock, Timer
from bookkeeper.serving.admission import DEFAULT_BOUNDS, Admission, ConnectionBounds
from bookkeeper.serving.peers import PeerLog

log = Logger()

CONGESTION_POLL_S = 0.005
"""How often a bookie that is behind is asked whether it has caught up."""


class BookieService:
    """All connections of a bookie. Thread: reactor.

    accept: what a listener calls for each new connection.
    """

    def __init__(
        self,
        bookie: Bookie,
        clock: Clock,
        usage: Callable[[], DiskUsage],
        bounds: ConnectionBounds = DEFAULT_BOUNDS,
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
        self.peers = PeerLog(log, clock)
        self.admission = Admission(bounds, clock)
        self.inbox_bytes = 0
        """Bytes of decoded requests that wait, over all connections."""
        self.stopping = False
        self._connections: dict[Connection, None] = {}
        self._crowd: dict[Connection, None] = {}
        self._unflushed: list[Connection] = []
        self._flush_due = False
        self._held: dict[Connection, None] = {}
        self._poll: Timer | None = None

    def accept(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self)

    def opened(self, connection: Connection) -> None:
        """Add a connection that was admitted."""
        self._connections[connection] = None

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self._connections.pop(connection, None)
        self._held.pop(connection, None)
        self._crowd.pop(connection, None)

    # --- received bytes

    @property
    def crowded(self) -> bool:
        """True while no more should be read: what was received before waits, and is leaving."""
        waiting = self.inbox_bytes
        return waiting > 0 and waiting + self.admission.partial_bytes > self.bounds.received_bytes_max

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

    # --- life

    def stop(self) -> None:
        """Read nothing more from any connection. Answers still go out."""
        self.stopping = True
        for connection in list(self._connections):
            connection.stop_reading()

    def abort(self) -> None:
        """Close all connections at once; nothing more is sent (I-48)."""
        self.stopping = True
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
