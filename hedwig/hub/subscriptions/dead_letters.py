"""Dead letters: messages that were delivered too often and never acknowledged, published to another topic.

    letter_of(stored message) ---> DeadLetters.publish ---this hub has the topic, or takes it--> its log
                                                       ---another hub has it--> a client of ours, made when first needed

A letter is stored before its message counts as done, so none is lost; after a hub's death in between it may be there
twice. Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.errors import RemoteProtocolError, again
from hedwig.errors import NotResponsible, PubSubError, ServiceDown
from hedwig.model import HubAddress, MessageId, SubscriberId, Topic
from hedwig.protocol.acknowledgements import Dead, dead_letter_properties
from hedwig.protocol.options import ATTEMPT, KEEP, PREVIOUS, PRODUCER, SEQUENCE, TIME
from hedwig.wire.framing import read_varint
from hedwig.wire.messages import Message, decode_message, encode_message

if TYPE_CHECKING:
    from hedwig.client.client import PubSubClient
    from hedwig.hub.ownership import Ownership
    from hedwig.hub.topics.service import TopicService

_NOT_OF_A_LETTER = frozenset({TIME, KEEP, PRODUCER, SEQUENCE, PREVIOUS, ATTEMPT})
"""Properties that a dead letter does not inherit: its topic sets time and retention, and its producer is another."""


def letter_of(stored: bytes, topic: Topic, subscriber: SubscriberId, dead: Dead) -> bytes:
    """A stored message as it is published to the topic for dead letters.

    Without its header where that cannot be read, which may be why nobody could do it.
    """
    found = _readable(stored) or Message(_body_of(stored))
    kept = {key: value for key, value in found.properties.items() if key not in _NOT_OF_A_LETTER}
    said = dead_letter_properties(topic, subscriber, dead, kept)
    return encode_message(Message(found.body, {**kept, **said}, found.message_type))


def _readable(stored: bytes) -> Message | None:
    try:
        return decode_message(stored)
    except (RemoteProtocolError, UnicodeDecodeError):
        return None


def _body_of(stored: bytes) -> bytes:
    """It is the first field of all that hubs store."""
    size, start = read_varint(stored, 1)
    return stored[start : start + size]


class DeadLetters:
    """Publishes to any topic, for a hub. ownership: None once it stops. connect: a client that asks this hub first."""

    def __init__(
        self,
        ownership: Callable[[], Ownership[TopicService] | None],
        connect: Callable[[HubAddress], PubSubClient],
    ) -> None:
        self._ownership, self._connect = ownership, connect
        self._client: PubSubClient | None = None
        self._closed = False

    async def publish(self, topic: Topic, letter: bytes) -> None:
        """Fires once it is durable. Raises PubSubError."""
        ownership = self._ownership()
        if ownership is None or self._closed:
            raise ServiceDown("this hub is stopping")
        try:
            service = ownership.service(topic, should_claim=True)
            await _stored(await service if isinstance(service, Deferred) else service, letter)
        except NotResponsible:
            if self._client is None:
                self._client = self._connect(ownership.address)
            sent: Deferred[MessageId] = Deferred()
            self._client.submit(topic, letter, sent.callback, sent.errback)
            await sent

    def close(self) -> None:
        """Let go of the client."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            client.abandon()


def _stored(service: TopicService, letter: bytes) -> Deferred[None]:
    done: Deferred[None] = Deferred()

    def on_done(first: MessageId | None, error: PubSubError | None) -> None:
        if error is None:
            done.callback(None)
        else:
            done.errback(again(error))

    service.publish([letter], on_done, plain=False)
    return done
