"""Admission of connections: what all connections of a server may take together, and which one is closed beyond it.

    admit --> awaited --served--> served --awaits--> awaited ...
                 |                   |
        first_request_s          idle_s (while it is not busy)

An *awaited* connection owes a request: its first one, or with HTTP the rest of one that has begun. All others are
*served*. A connection is busy while the server owes it something: an answer, a delivery to its subscription.

    bound                     reached                        closed
    connections_max           a new connection               the served one that was silent longest; else (HTTP) one
                                                             that takes no answers; else the oldest awaited one; else
                                                             the new connection
    strangers_max, awaited    a new connection               the oldest awaited one
    first_request_s           awaited for so long            that connection
    idle_s                    silent for so long, not busy   that connection
    received_bytes_max        incomplete requests            the one whose peer sent nothing for longest
      / STRANGERS_SHARE       of peers without credentials   about the largest
    untaken_bytes_max         answers that wait for peers    about the largest

So a peer that opens connections and sends nothing, or that sends slowly, takes places from peers like itself. A peer
that sends one valid request for each connection takes places only from connections that have been silent for
`evictable_s`; clients open such a connection again when they need it.

Every method costs O(1), amortised: queues are in the order of their deadlines, all of which are equally far away, and
sizes are sorted by their number of bits. A connection is removed from all queues before its `give_up` runs, so that
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
"""Connections that have to show credentials first may take one part in STRANGERS_SHARE of `received_bytes_max`. A
handshake takes a few hundred bytes of each."""

LOOKED_AT_MAX = 16
"""Served connections that are looked at for one that may go, for each new connection beyond `connections_max`."""


@dataclass(frozen=True, slots=True)
class BoundNames:
    """Settings to name in messages. "": there is none."""

    connections: str = "maxConnections"
    memory: str = "maxConnectionMemoryMb"
    first_request: str = "firstRequestTimeoutSecs"
    idle: str = "idleConnectionTimeoutSecs"


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Bounds of the connections of one server.

    connections_max: open at once; half as many may be awaited at once (at least one).
    first_request_s: until the first request is whole. With HTTP: until each request is whole. 0: no limit.
    idle_s: silence after which a served connection is closed that is not busy. Looked at once in this time, so it may
    be silent for almost twice as long. 0: no limit.
    evictable_s: silence after which a served connection that is not busy may be closed for a new one.
    evicts_untaken: a connection that does not take its answer may be closed for a new one, though it is busy.
    received_bytes_max: bytes of incomplete requests of all connections.
    untaken_bytes_max: bytes of answers, of all connections, that their peers do not take.
    unsent_bytes_max, unsent_bytes_low: bytes of untaken answers of one connection at which it is not read from, and
    below which it is read again.
    stall_timeout_s: a connection that takes no answers for so long, while some wait, is closed (where it is a fault:
    not a subscriber).
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
    """Reason for closing a connection. The value is the subject of log lines about it."""

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
        """True while the server owes this connection something, so that its silence is no reason to close it."""

    @property
    def untaken_bytes(self) -> int:
        """Bytes of answers that wait for its peer now: at most as many as were counted last."""

    def give_up(self, closing: Closing) -> None:
        """Close the connection. Nothing more is asked of it, and `Admission.forget` follows."""


class Place:
    """A connection's place, which does not refer to the connection: no cycle keeps the memory of a closed one.

    heard: the connection sets it for every received chunk. is_closing: it was given up, and counts until it is gone.
    """

    __slots__ = ("heard", "is_closing", "partial_bytes", "stranger_bytes", "untaken_bytes")

    def __init__(self) -> None:
        self.heard = self.is_closing = False
        self.partial_bytes = 0
        self.stranger_bytes = 0
        self.untaken_bytes = 0


class Admission:
    """The connections of one server.

    untaken_bytes, partial_bytes, stranger_bytes: sums over all connections. closed_count: connections closed or refused
    by a bound.
    """

    def __init__(self, bounds: ConnectionBounds, clock: Clock) -> None:
        self.bounds = bounds
        self._clock = clock
        self._places: dict[Place, Bounded] = {}
        self._awaited = _Queue(clock, bounds.first_request_s, self._on_overdue)
        self._served = _Queue(clock, bounds.idle_s, self._on_idle)
        self._partials: OrderedDict[Place, None] = OrderedDict()  # the one that was heard longest ago comes first
        self._strangers = _BySize()
        self._untaken = _BySize()
        self.partial_bytes = 0
        self.closed_count = 0

    # --- connections

    def __len__(self) -> int:
        return len(self._places)

    @property
    def now_s(self) -> float:
        """The clock's time."""
        return self._clock.seconds()

    @property
    def awaited_count(self) -> int:
        """Connections that owe a request."""
        return len(self._awaited)

    @property
    def refusal(self) -> str:
        """The reason of a refused connection."""
        name = self.bounds.names.connections
        setting = f"{name} and `ulimit -n`" if name else "fixed, or what `ulimit -n` leaves"
        return f"{len(self._places)} are open, which is the limit ({setting})"

    def admit(self, connection: Bounded) -> Place | None:
        """Give a new connection a place; None when it must be closed."""
        bounds = self.bounds
        if len(self._awaited) >= bounds.strangers_max:
            self._evict(self._awaited.first()[0], Why.STRANGERS, "it is the oldest one that has sent no whole request")
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
            self._evict(self._untaken.largest(), Why.ROOM, "it does not take its answer")
            return True
        if len(self._awaited):
            self._evict(self._awaited.first()[0], Why.ROOM, "it has sent no whole request")
            return True
        return False

    def _evict(self, place: Place, why: Why, text: str) -> None:
        setting = f" ({self.bounds.names.connections})" if self.bounds.names.connections else ""
        count = len(self._awaited) if why is Why.STRANGERS else len(self._places)
        kind = "such connections" if why is Why.STRANGERS else "connections"
        text = f"{text}, and {count} {kind} are open, which is the limit{setting}"
        connection = self._places.pop(place)  # the new connection takes its place
        self._give_up(place, why, text, connection)

    def served(self, place: Place) -> None:
        """The connection sent a whole valid request."""
        if place in self._awaited:
            self._awaited.discard(place)
            place.heard = False
            self._served.add(place)

    def awaits(self, place: Place) -> None:
        """The connection has begun a request. Its rest must come in `first_request_s`."""
        if place in self._served:
            self._served.discard(place)
            self._awaited.add(place)

    def forget(self, place: Place) -> None:
        """The connection is gone. Harmless when repeated."""
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
        if self._places[place].busy:  # its credentials are being checked
            self._awaited.discard(place)
            self._awaited.add(place)
            return
        name = self.bounds.names.first_request
        setting = f" ({name})" if name else ""
        self._give_up(place, Why.NO_REQUEST, f"no whole request came in {self.bounds.first_request_s:g} s{setting}")

    def _on_idle(self, place: Place, since_s: float) -> None:
        if not self._stays(place):
            name = self.bounds.names.idle
            setting = f" ({name})" if name else ""
            self._give_up(place, Why.IDLE, f"it was silent for {self._clock.seconds() - since_s:.0f} s{setting}")

    def _stays(self, place: Place) -> bool:
        """Return whether a served connection is busy or was heard since the last look; requeue it then."""
        if not (place.heard or self._places[place].busy):
            return False
        place.heard = False
        self._served.discard(place)
        self._served.add(place)
        return True

    # --- bytes

    def partial(self, place: Place, size: int) -> None:
        """The incomplete request of a connection has `size` bytes after a received chunk."""
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
                f"its incomplete request has waited longest, and incomplete requests take {total} bytes, which is too "
                f"many{self._memory_setting}",
            )

    @property
    def stranger_bytes(self) -> int:
        """Bytes that connections without credentials buffer."""
        return self._strangers.total

    def hold_as_stranger(self, place: Place, size: int) -> None:
        """A connection that has to show credentials first buffers `size` bytes; 0 once it has shown them."""
        if size == place.stranger_bytes or (size and place.is_closing):
            return
        self._strangers.put(place, place.stranger_bytes, size)
        place.stranger_bytes = size
        while self._strangers.total > self.bounds.stranger_bytes_max:
            total, largest = self._strangers.total, self._strangers.largest()
            self._give_up(
                largest,
                Why.STRANGER_BYTES,
                f"it sent {largest.stranger_bytes} bytes before TLS or credentials, and such connections take {total} "
                f"bytes, which is too many{self._memory_setting}",
            )

    @property
    def untaken_bytes(self) -> int:
        """Bytes of answers that peers do not take."""
        return self._untaken.total

    def untaken(self, place: Place, size: int) -> None:
        """`size` bytes of answers wait for the peer of a connection, which takes few or none at the moment.

        Called when they become more, and when none is left. A connection is asked for them before it is closed.
        """
        if size == place.untaken_bytes or (size and place.is_closing):
            return
        self._untaken.put(place, place.untaken_bytes, size)
        place.untaken_bytes = size
        while self._untaken.total > self.bounds.untaken_bytes_max:
            total, largest = self._untaken.total, self._untaken.largest()
            size = self._places[largest].untaken_bytes
            if size < largest.untaken_bytes:  # its peer took some since it was counted
                self._untaken.put(largest, largest.untaken_bytes, size)
                largest.untaken_bytes = size
                continue
            self._give_up(
                largest,
                Why.UNTAKEN_BYTES,
                f"{largest.untaken_bytes} bytes of answers wait until it takes them, and such answers take {total} "
                f"bytes, which is too many{self._memory_setting}",
            )

    @property
    def _memory_setting(self) -> str:
        return f" ({self.bounds.names.memory})" if self.bounds.names.memory else ""


class _Queue:
    """Places with a deadline each, `delay_s` after they were added, 0: never. One timer for all of them."""

    def __init__(self, clock: Clock, delay_s: float, on_due: Callable[[Place, float], None]) -> None:
        self._clock, self._delay_s, self._on_due = clock, delay_s, on_due
        self._added_s: OrderedDict[Place, float] = OrderedDict()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._added_s)

    def __contains__(self, place: Place) -> bool:
        return place in self._added_s

    def first(self) -> tuple[Place, float]:
        """The one that was added first, and when."""
        return next(iter(self._added_s.items()))

    def add(self, place: Place) -> None:
        """Add a place that is not there."""
        if not self._added_s and self._delay_s:
            self._timer = self._clock.callLater(self._delay_s, self._look)
        self._added_s[place] = self._clock.seconds()

    def discard(self, place: Place) -> None:
        """Remove a place, if it is there."""
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
                if self._timer is None:  # else the queue was empty in between
                    self._timer = self._clock.callLater(left_s, self._look)
                return
            self._on_due(place, since_s)  # which removes it, or adds it again


class _BySize:
    """Places by their sizes: the largest one, to a factor of two, in constant time."""

    def __init__(self) -> None:
        self._by_bits: list[OrderedDict[Place, None]] = []
        self.total = 0

    def put(self, place: Place, before: int, size: int) -> None:
        """Note the new size of a place, which was `before`; 0: it is not here."""
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
