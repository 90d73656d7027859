"""A subscription while a connection holds it: in order, as fast as the connection takes it.

    RecentMessages ---> Attachment ---> Channel        messages that are in memory, as they are stored
    TopicReader ------>                                older ones, which are kept for nobody else

Nothing is prepared for a connection that takes nothing (I-95): who has something for it is resumed, in turns, when it
takes something again. Bounds: messages and bytes of one look; messages of one read, and concurrent reads
of a connection; the time of a reactor turn (turns.py).

Suspended. If a filter takes too long for a message (FilterTooCostly), it is unknown whether the message is wanted. The
attachment ends at this message with the event TOPIC_MOVED. As long as the message would be the next one, a subscribe
with the same filter is refused with INVALID_MESSAGE_FILTER (`TopicService.suspend`). No message is lost: the position
is before the message. A subscribe without a filter, with another filter, or with another position continues. The event
is TOPIC_MOVED because clients then subscribe again and receive the reason. Apache's client does so at once, and then
every 10 s; ours ends with InvalidFilter. SUBSCRIPTION_FORCED_CLOSED would mean that another client took the
subscription.

Thread: reactor. Source: hedwig/PROTOCOL.md 2.10, 2.16, 3.6, 6.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from hedwig.errors import FilterTooCostly
from hedwig.filters import Filter
from hedwig.hub.topics.read_retry import try_later
from hedwig.model import LocalId, SubscriberId, Topic
from hedwig.protocol.subscription import Position
from hedwig.wire.messages import PROPERTIES_MAX
from hedwig.wire.responses import DeliveryEncoder
from hedwig.wire.view import MessageView

if TYPE_CHECKING:
    from hedwig.hub.topics.service import TopicService

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
        service, position, channel, turns = self._service, self._position, self.channel, self._service.turns
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
            if looked >= DELIVERED_IN_A_TURN or ((looked or self._filter is not None) and not turns.has_time()):
                self._reading = True
                turns.later(self._try_again)
                return
            messages = service.recent.get(first, DELIVERED_AT_ONCE if room is None else min(room, DELIVERED_AT_ONCE))
            if not messages:  # older than what is kept, or durable and not kept yet
                self._read(first, self._ahead if room is None else min(room, self._ahead))
                return
            looked += self._deliver(first, fitting(messages))

    def _deliver(self, first: LocalId, messages: list[bytes]) -> int:
        """Deliver or pass over messages; return their number. A filter may stop early, after at least one message."""
        position = self._position
        if self._filter is None:
            position.on_sent(LocalId(first + len(messages) - 1))
            self._send(messages)
            return len(messages)
        has_time = self._service.turns.has_time
        wanted: list[bytes] = []
        passed = local = first  # messages from `passed` to `local` - 1 are not wanted
        too_costly: FilterTooCostly | None = None
        for message in messages:
            try:
                is_wanted = self._filter(MessageView(message, PROPERTIES_MAX))
            except FilterTooCostly as error:
                too_costly = error
                break
            if is_wanted:
                if passed < local:
                    position.on_passed_over(passed, LocalId(local - 1))
                position.on_sent(local)
                wanted.append(message)
                passed = LocalId(local + 1)
            local = LocalId(local + 1)
            if not has_time():
                break
        if passed < local:
            position.on_passed_over(passed, LocalId(local - 1))
        if wanted:
            self._send(wanted)
        if too_costly is not None:
            self._service.suspend(self.subscriber, local, too_costly)
        return local - first

    def _send(self, messages: list[bytes]) -> None:
        self._service.delivered.add(len(messages))
        self.channel.write(self._encoder.parts(messages))

    def _read(self, first: LocalId, count: int) -> None:
        if not self.channel.begin_reading(self):
            return
        if self._filter is not None and not self._service.turns.begin_reading(self._try_again):
            self._reading = True
            self.channel.end_reading()
            return
        self._reading = True
        reading = Deferred.fromCoroutine(self._service.reader.read(first, count))
        reading.addBoth(self._read_ended)
        reading.addCallbacks(self._was_read, self._not_read, callbackArgs=(first,), errbackArgs=(first,))
        reading.addErrback(lambda failure: log.failure("Delivery failed", failure=failure))

    def _read_ended(self, result: T) -> T:
        self.channel.end_reading()
        return result

    def _was_read(self, messages: list[bytes], first: LocalId) -> None:
        if not messages and not self.ended:
            self._not_read("no message was found", first)
            return
        self._failures = 0
        settings = self._service.settings
        self._ahead = read_next(self._ahead, messages, count_max=settings.read_ahead, size_max=settings.read_size)
        if self._filter is None:
            self._deliver_read(messages, first)
        else:
            self._service.turns.later(lambda: self._deliver_read(messages, first))

    def _deliver_read(self, messages: list[bytes], first: LocalId) -> None:
        turns = self._service.turns
        if not self.ended and self._position.next_id == first:
            done = self._deliver(first, messages)
            if done < len(messages) and not self.ended:
                turns.later(lambda: self._deliver_read(messages[done:], LocalId(first + done)))
                return
        if self._filter is not None:
            turns.end_reading()
        self._reading = False
        self.resume()

    def _not_read(self, failure: object, first: LocalId) -> None:
        if self._filter is not None:
            self._service.turns.end_reading()
        if self.ended:
            return
        self._failures += 1
        try_later(self._service, self.subscriber, first, self._failures, failure, self._try_again)

    def _try_again(self) -> None:
        self._reading = False
        self.resume()
