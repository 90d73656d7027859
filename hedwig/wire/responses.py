"""Responses: a hub writes them, a client reads them. Answers, deliveries and events are one kind of frame.

message there              a delivery
event in the body there    an event
otherwise                  the answer to the request of that id
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from google.protobuf.message import DecodeError

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.texts import proto_text
from hedwig.model import Event, LocalId, MessageId, Preferences, Status, SubscriberId, Topic
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.wire.framing import framed, varint
from hedwig.wire.messages import Message, decode_id, encode_id, message_of
from hedwig.wire.requests import decode_preferences, encode_preferences

_ANSWER_HEAD = b"\x08\x01\x10\x00\x18"
_PUBLISHED = b"\x00\x00\x00%c\x08\x01\x10\x00\x18%b\x42%c\x0a%c\x0a%c\x08%b"
"""The answer to a publish, with its length: request id, then body of the response, of the publish, and the id."""

_DELIVERY_HEAD = b"\x08\x01\x10\x00\x18\x00\x2a"


# --- what a hub writes -----------------------------------------------------------------------------------------------


def published_frames(txn_ids: Sequence[int], first: LocalId, remote: tuple[tuple[bytes, int], ...] = ()) -> bytes:
    """The answers to publishes that got consecutive ids, joined."""
    if remote:
        return _published_elsewhere(txn_ids, first, remote)
    out = []
    for local, txn_id in enumerate(txn_ids, first):
        number, txn = varint(local), varint(txn_id)
        size = len(number)
        # Every length here is of one byte: a number has at most ten.
        out.append(_PUBLISHED % (12 + len(txn) + size, txn, size + 5, size + 3, size + 1, number))
    return b"".join(out)


def _published_elsewhere(txn_ids: Sequence[int], first: LocalId, remote: tuple[tuple[bytes, int], ...]) -> bytes:
    """The same with what is known of other regions."""
    out = []
    for local, txn_id in enumerate(txn_ids, first):
        message_id = encode_id(MessageId(LocalId(local), remote))
        inner = b"\x0a%b%b" % (varint(len(message_id)), message_id)
        inner = b"\x0a%b%b" % (varint(len(inner)), inner)
        out.append(framed(b"%b%b\x42%b%b" % (_ANSWER_HEAD, varint(txn_id), varint(len(inner)), inner)))
    return b"".join(out)


def success_frame(txn_id: int) -> bytes:
    """The answer without a body."""
    return framed(_ANSWER_HEAD + varint(txn_id))


def subscribed_frame(txn_id: int, preferences: Preferences) -> bytes:
    """The answer to a subscribe, with the preferences that hold."""
    found = pb.PubSubResponse(protocolVersion=pb.VERSION_ONE, statusCode=pb.SUCCESS, txnId=txn_id)
    found.responseBody.subscribeResponse.preferences.CopyFrom(encode_preferences(preferences))
    return framed(found.SerializeToString())


def error_frame(txn_id: int, status: Status, text: str) -> bytes:
    """An answer that is no success; always with a text, which may be empty."""
    code = cast("pb.StatusCode", int(status))
    found = pb.PubSubResponse(protocolVersion=pb.VERSION_ONE, statusCode=code, txnId=txn_id, statusMsg=text)
    return framed(found.SerializeToString())


def event_frame(topic: Topic, subscriber: SubscriberId, event: Event) -> bytes:
    """What a subscriber is told unasked."""
    found = pb.PubSubResponse(
        protocolVersion=pb.VERSION_ONE, statusCode=pb.SUCCESS, txnId=0, topic=topic, subscriberId=subscriber
    )
    found.responseBody.subscriptionEvent.event = cast("pb.SubscriptionEvent", int(event))
    return framed(found.SerializeToString())


class DeliveryEncoder:
    """Frames that deliver stored messages to one subscriber; the messages' own bytes are not copied."""

    def __init__(self, topic: Topic, subscriber: SubscriberId) -> None:
        self._end = b"\x32%b%b\x3a%b%b" % (varint(len(topic)), topic, varint(len(subscriber)), subscriber)

    def parts(self, messages: Sequence[bytes]) -> list[bytes]:
        """Of all of them, to be sent one after the other; three pieces for each."""
        end, out = self._end, []
        for message in messages:
            size = len(message)
            head = _DELIVERY_HEAD + varint(size)
            out.append((len(head) + size + len(end)).to_bytes(4) + head)
            out.append(message)
            out.append(end)
        return out

    @property
    def overhead(self) -> int:
        """Bytes of a frame beyond its message, at most."""
        return len(self._end) + 16


# --- what a client reads ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """published: of a publish. preferences: of a subscribe. text: of what is no success."""

    txn_id: int
    status: Status | int
    text: str
    published: MessageId | None = None
    preferences: Preferences | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """topic, subscriber: empty from hubs before 4.2."""

    topic: Topic
    subscriber: SubscriberId
    message: Message


@dataclass(frozen=True, slots=True)
class Told:
    """An event of a subscription."""

    topic: Topic
    subscriber: SubscriberId
    event: Event


Response = Answer | Delivery | Told


def decode_response(frame: bytes) -> Response:
    """From its bytes. Raises RemoteProtocolError."""
    try:
        found = pb.PubSubResponse.FromString(frame)
    except DecodeError as error:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes is no response: {error}") from error
    if not found.IsInitialized():
        raise RemoteProtocolError(f"a response of {len(frame)} bytes lacks a required field, or has an unknown number")
    if found.HasField("message"):
        return Delivery(Topic(found.topic), SubscriberId(found.subscriberId), message_of(found.message))
    body = found.responseBody
    if body.HasField("subscriptionEvent"):
        event = Event(body.subscriptionEvent.event)
        return Told(Topic(found.topic), SubscriberId(found.subscriberId), event)
    published = decode_id(body.publishResponse.publishedMsgId) if body.HasField("publishResponse") else None
    try:
        preferences = (
            decode_preferences(body.subscribeResponse.preferences)
            if body.HasField("subscribeResponse") and body.subscribeResponse.HasField("preferences")
            else None
        )
        return Answer(found.txnId, Status(found.statusCode), proto_text(found.statusMsg), published, preferences)
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a response has a text that is not UTF-8: {error}") from error
