"""A subscription while a connection holds it: in order, as fast as the connection takes it.

    RecentMessages ---> Attachment ---> Channel        messages that are in memory, as they are stored
    TopicReader ------>                                older ones, which are kept for nobody else

Nothing is prepared for a connection that takes nothing (I-95). Thread: reactor. Source: hedwig-protocol.md 2.5, 2.10,
3.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from hedwig.filters import Filter
from hedwig.model import LocalId, SubscriberId
from hedwig.protocol.subscription import Position
from hedwig.wire.responses import DeliveryEncoder
from hedwig.wire.view import MessageView

if TYPE_CHECKING:
    from hedwig.hub.topic_service import TopicService

log = Logger()

DELIVERED_AT_ONCE = 128
"""Messages that one look takes; a connection is asked in between whether it takes more."""


class Channel(Protocol):
    """A subscriber's connection."""

    @property
    def writable(self) -> bool:
        """It takes more now. When it does again, it calls `resume` of all its attachments."""

    def write(self, parts: Sequence[bytes]) -> None:
        """Whole frames, in pieces."""


DELIVERED_IN_A_TURN = 1024
"""Messages that one look delivers, or passes over; then others have their turn."""


class Held(Protocol):
    """What a connection has of a subscription. ended: it has it no more."""

    ended: bool

    def start(self) -> None:
        """The subscribe was answered: deliver from now on."""

    def resume(self) -> None:
        """The connection takes something (again)."""


class Attachment:
    """A subscription on a connection: delivers in order, as fast as the connection takes it."""

    __slots__ = (
        "_encoder",
        "_filter",
        "_position",
        "_reading",
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
    ) -> None:
        self.subscriber, self.channel = subscriber, channel
        self._service, self._position, self._filter = service, position, wanted
        self._encoder = DeliveryEncoder(service.topic, subscriber)
        self._reading = False
        self.started = self.ended = False

    def start(self) -> None:
        """The subscribe was answered: deliver from now on."""
        self.started = True
        self.resume()

    def resume(self) -> None:
        """Deliver what can be delivered now."""
        service, position = self._service, self._position
        looked = 0
        while self.started and not self.ended and not self._reading and self.channel.writable:
            room = position.room()
            first, durable = position.next_id, service.log.durable_id
            if room == 0 or first > durable:
                return
            kept = max(service.first_kept, service.log.first_id)
            if first < kept:
                position.on_passed_over(first, LocalId(min(kept - 1, durable)))
                continue
            count = DELIVERED_AT_ONCE if room is None else min(room, DELIVERED_AT_ONCE)
            messages = service.recent.get(first, count)
            if not messages:  # older than what is kept, or durable and not kept yet
                self._read(first, count if room is not None else service.settings.read_ahead)
                return
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
        for local, message in enumerate(messages, first):
            if self._filter(MessageView(message)):
                wanted.append(message)
                position.on_sent(LocalId(local))
            else:
                position.on_passed_over(LocalId(local), LocalId(local))
        if wanted:
            self._send(wanted)

    def _send(self, messages: list[bytes]) -> None:
        self._service.delivered.add(len(messages))
        self.channel.write(self._encoder.parts(messages))

    def _read(self, first: LocalId, count: int) -> None:
        self._reading = True
        reading = Deferred.fromCoroutine(self._service.reader.read(first, count))
        reading.addCallbacks(self._was_read, self._not_read, callbackArgs=(first,))
        reading.addErrback(lambda failure: log.failure("Delivering broke", failure=failure))

    def _was_read(self, messages: list[bytes], first: LocalId) -> None:
        self._reading = False
        if not self.ended and messages and self._position.next_id == first:
            self._deliver(first, messages)
        self.resume()

    def _not_read(self, failure: object) -> None:
        if self.ended:
            return
        log.warn(
            "Topic {topic!r} cannot be read for {subscriber!r}, and is tried again: {failure}",
            topic=self._service.topic,
            subscriber=self.subscriber,
            failure=failure,
        )
        self._service.clock.callLater(self._service.settings.retry_delay_s, self._try_again)

    def _try_again(self) -> None:
        self._reading = False
        self.resume()
