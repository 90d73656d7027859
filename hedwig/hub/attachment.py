"""A subscription while a connection holds it: in order, as fast as the connection takes it.

    RecentMessages ---> Attachment ---> Channel        messages that are in memory, as they are stored
    TopicReader ------>                                older ones, which are kept for nobody else

Nothing is prepared for a connection that takes nothing (I-95): who has something for it is resumed, in turns, when it
takes something again. Bounds: what one look delivers, in messages and bytes; what one read brings, and how many read
for one connection at a time. Thread: reactor. Source: hedwig-protocol.md 2.5, 2.10, 3.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from hedwig.filters import Filter
from hedwig.hub.read_retry import try_later
from hedwig.model import LocalId, SubscriberId, Topic
from hedwig.protocol.subscription import Position
from hedwig.wire.responses import DeliveryEncoder
from hedwig.wire.view import MessageView

if TYPE_CHECKING:
    from hedwig.hub.topic_service import TopicService

log = Logger()

T = TypeVar("T")

DELIVERED_AT_ONCE = 128
"""Messages that one look takes; a connection is asked in between whether it takes more."""

DELIVERED_BYTES_AT_ONCE = 1 << 20
"""And bytes of them, unless one alone has more."""

DELIVERED_IN_A_TURN = 1024
"""Messages that one look delivers, or passes over; then others have their turn."""


class Channel(Protocol):
    """A subscriber's connection."""

    @property
    def writable(self) -> bool:
        """It takes more now."""

    def write(self, parts: Sequence[bytes]) -> None:
        """Whole frames, in pieces."""

    def when_writable(self, held: Held) -> None:
        """It takes nothing now, and there is something for it: `resume` is called, once, when it takes more."""

    def begin_reading(self, held: Held) -> bool:
        """Whether old messages may be read for it now; if not, `resume` is called, once, when they may."""

    def end_reading(self) -> None:
        """What was begun is done, or failed."""

    def on_detached(self, topic: Topic, subscriber: SubscriberId, held: Held) -> None:
        """It has this no more."""


class Held(Protocol):
    """What a connection has of a subscription. ended: it has it no more."""

    ended: bool

    def start(self) -> None:
        """The subscribe was answered: deliver from now on."""

    def resume(self) -> None:
        """The connection takes something (again)."""


def fitting(messages: list[bytes]) -> list[bytes]:
    """As many of the first ones, at least one, as are delivered at once."""
    if len(messages) < 2 or sum(map(len, messages)) <= DELIVERED_BYTES_AT_ONCE:
        return messages
    size = 0
    for count, message in enumerate(messages):
        size += len(message)
        if size > DELIVERED_BYTES_AT_ONCE:
            return messages[: max(1, count)]
    return messages


def read_next(count: int, messages: Sequence[bytes], *, count_max: int, size_max: int) -> int:
    """How many messages to read after a read of `count` brought these, to have about `size_max` bytes at once."""
    size = sum(map(len, messages))
    if size > size_max:
        return max(1, len(messages) * size_max // size)
    return min(count_max, 2 * count) if 2 * size <= size_max else min(count_max, count)


class Attachment:
    """A subscription on a connection: delivers in order, as fast as the connection takes it."""

    __slots__ = (
        "_ahead",
        "_encoder",
        "_failures",
        "_filter",
        "_position",
        "_reading",
        "_reads_gone",
        "_service",
        "channel",
        "ended",
        "started",
        "subscriber",
    )

    def __init__(
        self,
        service: TopicService,
        subscriber: SubscriberId,
        position: Position,
        channel: Channel,
        wanted: Filter | None,
        *,
        reads_gone: bool = False,
    ) -> None:
        self.subscriber, self.channel, self._reads_gone = subscriber, channel, reads_gone
        self._service, self._position, self._filter = service, position, wanted
        self._encoder = DeliveryEncoder(service.topic, subscriber)
        self._ahead = service.settings.read_ahead
        self._reading, self._failures = False, 0
        self.started = self.ended = False

    def start(self) -> None:
        """The subscribe was answered: deliver from now on."""
        self.started = True
        self.resume()

    def resume(self) -> None:
        """Deliver what can be delivered now."""
        service, position, channel = self._service, self._position, self.channel
        looked = 0
        while self.started and not self.ended and not self._reading:
            if position.next_id < service.log.first_id:
                service.note_deleted(self.subscriber)
            if position.is_unnamed and self._reads_gone:
                service.end_attachment(self)
                return
            room = position.room()
            first, durable = position.next_id, service.log.durable_id
            if room == 0 or first > durable:
                return
            if not channel.writable:
                channel.when_writable(self)
                return
            if first < service.first_kept:
                position.on_passed_over(first, LocalId(min(service.first_kept - 1, durable)))
                continue
            messages = service.recent.get(first, DELIVERED_AT_ONCE if room is None else min(room, DELIVERED_AT_ONCE))
            if not messages:  # older than what is kept, or durable and not kept yet
                self._read(first, self._ahead if room is None else min(room, self._ahead))
                return
            messages = fitting(messages)
            self._deliver(first, messages)
            looked += len(messages)
            if looked >= DELIVERED_IN_A_TURN:
                self._reading = True
                service.clock.callLater(0, self._try_again)

    def _deliver(self, first: LocalId, messages: list[bytes]) -> None:
        position, last = self._position, LocalId(first + len(messages) - 1)
        if self._filter is None:
            position.on_sent(last)
            self._send(messages)
            return
        wanted: list[bytes] = []
        passed = first  # from here on all before the next wanted one are not
        for local, message in enumerate(messages, first):
            if self._filter(MessageView(message)):
                if passed < local:
                    position.on_passed_over(passed, LocalId(local - 1))
                position.on_sent(LocalId(local))
                wanted.append(message)
                passed = LocalId(local + 1)
        if passed <= last:
            position.on_passed_over(passed, last)
        if wanted:
            self._send(wanted)

    def _send(self, messages: list[bytes]) -> None:
        self._service.delivered.add(len(messages))
        self.channel.write(self._encoder.parts(messages))

    def _read(self, first: LocalId, count: int) -> None:
        if not self.channel.begin_reading(self):
            return
        self._reading = True
        reading = Deferred.fromCoroutine(self._service.reader.read(first, count))
        reading.addBoth(self._read_ended)
        reading.addCallbacks(self._was_read, self._not_read, callbackArgs=(first,), errbackArgs=(first,))
        reading.addErrback(lambda failure: log.failure("Delivering broke", failure=failure))

    def _read_ended(self, result: T) -> T:
        self.channel.end_reading()
        return result

    def _was_read(self, messages: list[bytes], first: LocalId) -> None:
        if self.ended:
            return
        if not messages:
            self._not_read("no message was found", first)
            return
        self._reading, self._failures = False, 0
        settings = self._service.settings
        self._ahead = read_next(self._ahead, messages, count_max=settings.read_ahead, size_max=settings.read_size)
        if self._position.next_id == first:
            self._deliver(first, messages)
        self.resume()

    def _not_read(self, failure: object, first: LocalId) -> None:
        if self.ended:
            return
        self._failures += 1
        try_later(self._service, self.subscriber, first, self._failures, failure, self._try_again)

    def _try_again(self) -> None:
        self._reading = False
        self.resume()
