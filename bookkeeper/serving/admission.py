"""Admission of connections: the bounds that all connections of a server share, and which one is closed at a bound.

    admit --> awaited --served--> served --awaits--> awaited ...
                 |                   |
        first_request_s          idle_s (while it is not busy)

An *awaited* connection has a request to send: its first one, or with HTTP the rest of a request that has begun. All
other connections are *served*. A connection is *busy* while the server has something to send to it: an answer, or a
delivery to its subscription. Bytes of answers are *untaken* while they wait because the peer does not read.

    bound                     reached                        closed
    connections_max           a new connection               the served one that was silent for longest; else (HTTP) one
                                                             with untaken answers; else the oldest awaited one; else the
                                                             new connection
    strangers_max, awaited    a new connection               the oldest awaited one
    first_request_s           awaited for that time, or      that connection
                              twice that time if busy
    idle_s                    silent for that time, not busy that connection
    received_bytes_max        incomplete requests            the one that received nothing for longest
      / STRANGERS_SHARE       of peers without credentials   about the largest
    untaken_bytes_max         untaken answers                about the largest

Awaited connections hold at most half of the places; beyond that they displace each other. A new connection displaces a
served one only if that was silent for `evictable_s`. Clients open such a connection again when they need it.

Every method takes O(1) time, amortised. All deadlines of a queue are equally far away, so the queue is in their order.
Sizes are grouped by their number of bits. A connection is removed from all queues before its `give_up` runs, so that
`give_up` may call back.

Thread: reactor. No I/O, no log: `give_up` closes and reports.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Timer

STRANGERS_SHARE = 8
"""Connections that must show credentials first may buffer one part in STRANGERS_SHARE of `received_bytes_max`. The
handshake of one of them takes a few hundred bytes."""

LOOKED_AT_MAX = 16
"""Served connections that each new connection beyond `connections_max` examines for one to close."""


@dataclass(frozen=True, slots=True)
class BoundNames:
    """Settings that messages name; "" if there is none."""

    connections: str = "maxConnections"
    memory: str = "maxConnectionMemoryMb"
    first_request: str = "firstRequestTimeoutSecs"
    idle: str = "idleConnectionTimeoutSecs"


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Bounds of the connections of one server.

    connections_max: open connections; half as many (at least one) may be awaited.
    first_request_s: time until the first request is complete. With HTTP: until each request is complete. 0: no limit.
    idle_s: silence after which a served connection is closed if it is not busy. It is checked once per idle_s, so the
    silence may last almost twice as long. 0: no limit.
    evictable_s: silence after which a served connection that is not busy may be closed for a new one.
    evicts_untaken: whether a connection with untaken answers may be closed for a new one, although it is busy.
    received_bytes_max: bytes of incomplete requests of all connections; in a hub, also of waiting requests.
    untaken_bytes_max: bytes of untaken answers of all connections.
    unsent_bytes_max, unsent_bytes_low: bytes of untaken answers of one connection at which reading from it pauses, and
    below which reading resumes.
    stall_timeout_s: time after which a connection is closed if its peer reads none of its untaken answers. Not for
    subscribers: their silence is no fault.
    """

    connections_max: int = 10_000
    first_request_s: float = 60.0
    idle_s: float = 1800.0
    evictable_s: float = 10.0
    evicts_untaken: bool = False
    received_bytes_max: int = 256 * 1024 * 1024
    untaken_bytes_max: int = 256 * 1024 * 1024
    unsent_bytes_max: int = 512 * 1024
    unsent_bytes_low: int = 384 * 1024
    stall_timeout_s: float = 60.0
    names: BoundNames = BoundNames()

    @property
    def strangers_max(self) -> int:
        """Connections that may be awaited at once."""
        return max(self.connections_max // 2, 1)

    @property
    def stranger_bytes_max(self) -> int:
        """Bytes that all connections without credentials may buffer together."""
        return self.received_bytes_max // STRANGERS_SHARE


DEFAULT_BOUNDS = ConnectionBounds()


class Why(enum.Enum):
    """Reason for closing a connection. The value is the subject of its log lines."""

    STRANGERS = "connections without a request"
    ROOM = "connections closed for new ones"
    NO_REQUEST = "no request"
    IDLE = "idle"
    PARTIAL_BYTES = "partial frames"
    STRANGER_BYTES = "strangers"
    UNTAKEN_BYTES = "answers not taken"


@dataclass(frozen=True, slots=True)
class Closing:
    """A decision to close a connection. text: the reason, for "Closing the connection from {peer}: {text}"."""

    why: Why
    text: str


class Bounded(Protocol):
    """A connection, as its admission sees it."""

    @property
    def busy(self) -> bool:
        """True while the server has something to send to this connection, so that its silence does not close it."""

    @property
    def untaken_bytes(self) -> int:
        """Bytes of untaken answers now; at most the size that was counted last."""

    def give_up(self, closing: Closing) -> None:
        """Close the connection. The admission does not call it again; `Admission.forget` follows."""


class Place:
    """A connection's place. It does not refer to the connection, so no cycle keeps the memory of a closed one.

    heard: set by the connection for every received chunk. is_overdue: its deadline passed once while it was busy.
    is_closing: set by `give_up`; the connection counts until it is lost.
    """

    __slots__ = ("heard", "is_closing", "is_overdue", "partial_bytes", "stranger_bytes", "untaken_bytes")

    def __init__(self) -> None:
        self.heard = self.is_closing = self.is_overdue = False
        self.partial_bytes = 0
        self.stranger_bytes = 0
        self.untaken_bytes = 0


class Admission:
    """The connections of one server.

    untaken_bytes, partial_bytes, stranger_bytes: sums over all connections. closed_count: connections that a bound
    closed or refused.
    """

    def __init__(self, bounds: ConnectionBounds, clock: Clock) -> None:
        self.bounds = bounds
        self._clock = clock
        self._places: dict[Place, Bounded] = {}
        self._awaited = _Queue(clock, bounds.first_request_s, self._on_overdue)
        self._served = _Queue(clock, bounds.idle_s, self._on_idle)
        self._partials: OrderedDict[Place, None] = OrderedDict()  # in the order of their last chunk
        self._strangers = _BySize()
        self._untaken = _BySize()
        self.partial_bytes = 0
        self.closed_count = 0

    # --- connections

    def __len__(self) -> int:
        return len(self._places)

    @property
    def now_s(self) -> float:
        """The current time of the clock."""
        return self._clock.seconds()

    @property
    def awaited_count(self) -> int:
        """Number of awaited connections."""
        return len(self._awaited)

    @property
    def refusal(self) -> str:
        """The reason of a refused connection."""
        name = self.bounds.names.connections
        setting = f"{name} and `ulimit -n`" if name else "fixed, or what `ulimit -n` leaves"
        return f"{len(self._places)} connections are open, the maximum ({setting})"

    def admit(self, connection: Bounded) -> Place | None:
        """Return a place for a new connection, or None if the connection must be closed."""
        bounds = self.bounds
        if len(self._awaited) >= bounds.strangers_max:
            self._evict(self._awaited.first()[0], Why.STRANGERS, "it is the oldest one without a complete request")
        elif len(self._places) >= bounds.connections_max and not self._make_room():
            self.closed_count += 1
            return None
        place = Place()
        self._places[place] = connection
        self._awaited.add(place)
        return place

    def _make_room(self) -> bool:
        now_s = self._clock.seconds()
        for _ in range(min(LOOKED_AT_MAX, len(self._served))):
            place, since_s = self._served.first()
            if self._stays(place):
                continue
            if now_s - since_s < self.bounds.evictable_s:
                break
            self._evict(place, Why.ROOM, f"it was silent for {now_s - since_s:.0f} s")
            return True
        if self.bounds.evicts_untaken and self._untaken.total:
            self._evict(self._untaken.largest(), Why.ROOM, "it does not read its answer")
            return True
        if len(self._awaited):
            self._evict(self._awaited.first()[0], Why.ROOM, "it has sent no complete request")
            return True
        return False

    def _evict(self, place: Place, why: Why, text: str) -> None:
        setting = f" ({self.bounds.names.connections})" if self.bounds.names.connections else ""
        count = len(self._awaited) if why is Why.STRANGERS else len(self._places)
        kind = "such connections" if why is Why.STRANGERS else "connections"
        text = f"{text}, and {count} {kind} are open, the maximum{setting}"
        connection = self._places.pop(place)  # the new connection takes its place
        self._give_up(place, why, text, connection)

    def served(self, place: Place) -> None:
        """Note that the connection sent a whole valid request."""
        if place in self._awaited:
            self._awaited.discard(place)
            place.heard = False
            self._served.add(place)

    def awaits(self, place: Place) -> None:
        """Note that the connection has begun a request. The rest must come within `first_request_s`."""
        if place in self._served:
            place.is_overdue = False
            self._served.discard(place)
            self._awaited.add(place)

    def forget(self, place: Place) -> None:
        """Remove a lost connection. A second call does nothing."""
        self._places.pop(place, None)
        place.is_closing = True
        self._retire(place)

    def _retire(self, place: Place) -> None:
        self._awaited.discard(place)
        self._served.discard(place)
        self.partial(place, 0)
        self.hold_as_stranger(place, 0)
        self.untaken(place, 0)

    def _give_up(self, place: Place, why: Why, text: str, connection: Bounded | None = None) -> None:
        place.is_closing = True
        self._retire(place)
        self.closed_count += 1
        if connection is None:
            connection = self._places[place]
        connection.give_up(Closing(why, text))

    # --- time

    def _on_overdue(self, place: Place, since_s: float) -> None:
        if self._places[place].busy and not place.is_overdue:
            # The peer waits for the check of its credentials. A password behind 1,000 others waits for 50 s, which is
            # no fault of the peer. A check that exceeds the second deadline too is stuck.
            place.is_overdue = True
            self._awaited.discard(place)
            self._awaited.add(place)
            return
        name = self.bounds.names.first_request
        setting = f" ({name})" if name else ""
        self._give_up(
            place, Why.NO_REQUEST, f"it sent no complete request within {self.bounds.first_request_s:g} s{setting}"
        )

    def _on_idle(self, place: Place, since_s: float) -> None:
        if not self._stays(place):
            name = self.bounds.names.idle
            setting = f" ({name})" if name else ""
            self._give_up(place, Why.IDLE, f"it was silent for {self._clock.seconds() - since_s:.0f} s{setting}")

    def _stays(self, place: Place) -> bool:
        """Return whether a served connection is busy or has received data since the last check. Requeue it if so."""
        if not (place.heard or self._places[place].busy):
            return False
        place.heard = False
        self._served.discard(place)
        self._served.add(place)
        return True

    # --- bytes

    def partial(self, place: Place, size: int) -> None:
        """Note that the incomplete request of a connection has `size` bytes after a received chunk.

        A hub includes requests that wait for their turn.
        """
        grown = size - place.partial_bytes
        if not (size or grown) or (size and place.is_closing):
            return
        self.partial_bytes += grown
        place.partial_bytes = size
        if not size:
            del self._partials[place]
            return
        self._partials[place] = None
        self._partials.move_to_end(place)
        while self.partial_bytes > self.bounds.received_bytes_max:
            total = self.partial_bytes
            self._give_up(
                next(iter(self._partials)),
                Why.PARTIAL_BYTES,
                f"its incomplete or waiting requests are the oldest, and all such requests have {total} bytes, more "
                f"than the maximum{self._memory_setting}",
            )

    @property
    def stranger_bytes(self) -> int:
        """Bytes that connections without credentials buffer."""
        return self._strangers.total

    def hold_as_stranger(self, place: Place, size: int) -> None:
        """Note that a connection that must show credentials first buffers `size` bytes; 0 after it has shown them."""
        if size == place.stranger_bytes or (size and place.is_closing):
            return
        self._strangers.put(place, place.stranger_bytes, size)
        place.stranger_bytes = size
        while self._strangers.total > self.bounds.stranger_bytes_max:
            total, largest = self._strangers.total, self._strangers.largest()
            self._give_up(
                largest,
                Why.STRANGER_BYTES,
                f"it sent {largest.stranger_bytes} bytes before TLS or credentials, and all such connections sent "
                f"{total} bytes, more than the maximum{self._memory_setting}",
            )

    @property
    def untaken_bytes(self) -> int:
        """Bytes of untaken answers."""
        return self._untaken.total

    def untaken(self, place: Place, size: int) -> None:
        """Note that a connection has `size` bytes of untaken answers.

        Called when the number grows and when it becomes 0. The current number is read before the connection is closed.
        """
        if size == place.untaken_bytes or (size and place.is_closing):
            return
        self._untaken.put(place, place.untaken_bytes, size)
        place.untaken_bytes = size
        while self._untaken.total > self.bounds.untaken_bytes_max:
            total, largest = self._untaken.total, self._untaken.largest()
            size = self._places[largest].untaken_bytes
            if size < largest.untaken_bytes:  # its peer has read some since the last count
                self._untaken.put(largest, largest.untaken_bytes, size)
                largest.untaken_bytes = size
                continue
            self._give_up(
                largest,
                Why.UNTAKEN_BYTES,
                f"it has not read {largest.untaken_bytes} bytes of answers, and all unread answers have {total} bytes, "
                f"more than the maximum{self._memory_setting}",
            )

    @property
    def _memory_setting(self) -> str:
        return f" ({self.bounds.names.memory})" if self.bounds.names.memory else ""


class _Queue:
    """Places, each with a deadline `delay_s` after it was added; 0: no deadline. One timer serves all of them."""

    def __init__(self, clock: Clock, delay_s: float, on_due: Callable[[Place, float], None]) -> None:
        self._clock, self._delay_s, self._on_due = clock, delay_s, on_due
        self._added_s: OrderedDict[Place, float] = OrderedDict()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._added_s)

    def __contains__(self, place: Place) -> bool:
        return place in self._added_s

    def first(self) -> tuple[Place, float]:
        """Return the place that was added first, and the time."""
        return next(iter(self._added_s.items()))

    def add(self, place: Place) -> None:
        """Add a place that is not in the queue."""
        if not self._added_s and self._delay_s:
            self._timer = self._clock.callLater(self._delay_s, self._look)
        self._added_s[place] = self._clock.seconds()

    def discard(self, place: Place) -> None:
        """Remove a place if it is in the queue."""
        self._added_s.pop(place, None)
        if not self._added_s and self._timer is not None:
            timer, self._timer = self._timer, None
            timer.cancel()

    def _look(self) -> None:
        self._timer = None
        while self._added_s:
            place, since_s = self.first()
            left_s = since_s + self._delay_s - self._clock.seconds()
            if left_s > 0:
                if self._timer is None:  # set if the queue was empty in between
                    self._timer = self._clock.callLater(left_s, self._look)
                return
            self._on_due(place, since_s)  # removes it, or adds it again


class _BySize:
    """Places by size. Finds the largest one, within a factor of two, in constant time."""

    def __init__(self) -> None:
        self._by_bits: list[OrderedDict[Place, None]] = []
        self.total = 0

    def put(self, place: Place, before: int, size: int) -> None:
        """Change the size of a place from `before` to `size`; 0: the place is absent."""
        self.total += size - before
        old, new = before.bit_length(), size.bit_length()
        if old == new:
            return
        if before:
            del self._by_bits[old][place]
            while self._by_bits and not self._by_bits[-1]:
                self._by_bits.pop()
        if size:
            while len(self._by_bits) <= new:
                self._by_bits.append(OrderedDict())
            self._by_bits[new][place] = None

    def largest(self) -> Place:
        """Return the oldest place among those with the most bits in their size."""
        return next(iter(self._by_bits[-1]))
