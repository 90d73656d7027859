"""Requests: a hub reads them, a client writes them.

    Publishes       publishes of one connection to one topic, plain or not
    Subscribe, Consume, Unsubscribe, CloseSubscription
    Malformed       to be answered with a text; the connection stays

What cannot be parsed ends the connection (RemoteProtocolError).

A frame of 1.2 MiB may contain 200,000 options or regions, which take a second to read. A subscribe with more than
OPTIONS_MAX options, and a consume with more than REGIONS_MAX regions, is Malformed; they are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import cast

from google.protobuf.message import DecodeError

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.texts import proto_text
from hedwig.model import MessageId, Preferences, SubscribeMode, SubscriberId, Topic
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.wire.framing import framed, read_varint, varint
from hedwig.wire.messages import decode_id, decode_map, encode_id, encode_map, header_at, is_plain

OPTIONS_MAX = 2_000
"""Options of one subscribe: about 3 ms at 1.5 us each. A subscription stores at most 64 KiB of them
(PREFERENCES_SIZE_MAX)."""

REGIONS_MAX = 1_000
"""Regions in the id of one consume: about 1 ms at 1 us each. An id that a hub assigns has at most 100."""

_PLAIN_PUBLISH = b"\x08\x01\x10\x00\x20"
"""Version 1, type PUBLISH, no tried servers; the request id follows."""

_PUBLISH_TAG = b"\xa2\x03"
_MESSAGE_TAG = 0x12
_CLAIM_TAG = 0x28
_TOPIC_TAG = 0x32


@dataclass(slots=True)
class Publishes:
    """messages: as they came, each a Message. plain: none of them has anything but a body. should_claim: of any.

    size: bytes of the messages. usual: it is known that each has a body and at most a header, in this order
    (`header_at`).
    """

    topic: Topic
    should_claim: bool
    plain: bool
    txn_ids: list[int]
    messages: list[bytes]
    size: int = field(default=0, compare=False)
    usual: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not self.size:
            self.size = sum(map(len, self.messages))


@dataclass(frozen=True, slots=True)
class Subscribe:
    """preferences: None if the request has none, which differs from empty ones. reads_gone: the client reads hw.gone in
    the answer. window_if_none: the window for a subscription without one; the preferences then name no window. Both
    fields: hedwig/protocol/options.py.
    """

    txn_id: int
    topic: Topic
    should_claim: bool
    subscriber: SubscriberId
    mode: SubscribeMode
    synchronous: bool
    preferences: Preferences | None
    message_bound: int | None
    force: bool
    reads_gone: bool = False
    window_if_none: int | None = None


@dataclass(frozen=True, slots=True)
class Consume:
    """Everything up to this id is consumed. Answered only where it fails."""

    txn_id: int
    topic: Topic
    subscriber: SubscriberId
    up_to: MessageId


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The subscription ends for good."""

    txn_id: int
    topic: Topic
    should_claim: bool
    subscriber: SubscriberId


@dataclass(frozen=True, slots=True)
class CloseSubscription:
    """This connection lets go of the subscription, which stays."""

    txn_id: int
    topic: Topic
    should_claim: bool
    subscriber: SubscriberId


@dataclass(frozen=True, slots=True)
class Malformed:
    """text: what the hub answers; Java's words. of_topic: False for an operation that hubs do not serve, which is
    answered without looking at the topic: such a question is how clients find out that a hub lives.
    """

    txn_id: int
    topic: Topic
    should_claim: bool
    text: str
    of_topic: bool = field(default=True, compare=False)


Request = Publishes | Subscribe | Consume | Unsubscribe | CloseSubscription | Malformed


def decode_requests(frames: Sequence[bytes]) -> list[Request]:
    """In their order, but that publishes to a topic join those before them that no other request stands between.

    A connection that publishes to many topics in turn so costs each topic one piece of work, and not one a message; the
    order of topics among each other means nothing. Raises RemoteProtocolError.
    """
    requests: list[Request] = []
    runs: dict[Topic, Publishes] = {}
    for frame in frames:
        found = _usual_publish(frame)
        if found is not None:
            txn_id, claim, topic, message, plain = found
            run = runs.get(topic)
            if run is not None:
                run.txn_ids.append(txn_id)
                run.messages.append(message)
                run.size += len(message)
                run.plain = run.plain and plain
                run.should_claim = run.should_claim or claim
                continue
            run = runs[topic] = Publishes(topic, claim, plain, [txn_id], [message], len(message), usual=True)
            requests.append(run)
            continue
        request = decode_request(frame)
        if not isinstance(request, Publishes):
            runs.clear()
            requests.append(request)
            continue
        run = runs.get(request.topic)
        if run is not None:
            run.txn_ids += request.txn_ids
            run.messages += request.messages
            run.size += request.size
            run.plain, run.usual = run.plain and request.plain, False
            run.should_claim = run.should_claim or request.should_claim
            continue
        runs[request.topic] = request
        requests.append(request)
    return requests


def _usual_publish(frame: bytes) -> tuple[int, bool, Topic, bytes, bool] | None:
    """Request id, claim, topic, message, whether it is plain; None for what is not in the form that clients write."""
    if not frame.startswith(_PLAIN_PUBLISH):
        return None
    try:
        txn_id, position = read_varint(frame, 5)
        claim = False
        if frame[position] == _CLAIM_TAG:
            claim = frame[position + 1] == 1
            if frame[position + 1] > 1:
                return None
            position += 2
        if frame[position] != _TOPIC_TAG:
            return None
        size, position = read_varint(frame, position + 1)
        topic = frame[position : position + size]
        position += size
        if not frame.startswith(_PUBLISH_TAG, position):
            return None
        size, position = read_varint(frame, position + 2)
        if position + size != len(frame) or frame[position] != _MESSAGE_TAG:
            return None
        size, position = read_varint(frame, position + 1)
    except (IndexError, ValueError):
        return None
    message = frame[position:]
    at = header_at(message)
    if len(message) != size or at is None:
        return None
    if at < size and not _is_header(message, at):
        return None
    return txn_id, claim, Topic(topic), message, at == size


def _is_header(message: bytes, at: int) -> bool:
    _, start = read_varint(message, at + 1)
    try:
        pb.MessageHeader.FromString(message[start:])
    except DecodeError:
        return False
    return True


def decode_request(frame: bytes) -> Request:
    """One request. Raises RemoteProtocolError for what is none."""
    try:
        found = pb.PubSubRequest.FromString(frame)
    except DecodeError as error:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes is no request: {error}") from error
    if not found.IsInitialized():
        raise RemoteProtocolError(f"a request of {len(frame)} bytes lacks a required field, or has an unknown number")
    topic, claim, txn_id = Topic(found.topic), found.shouldClaim, found.txnId

    def malformed(text: str) -> Malformed:
        return Malformed(txn_id, topic, claim, text)

    match found.type:
        case pb.PUBLISH:
            if not found.HasField("publishRequest"):
                return malformed("Missing publish request data")
            message = found.publishRequest.msg.SerializeToString()
            return Publishes(topic, claim, is_plain(message), [txn_id], [message])
        case pb.SUBSCRIBE:
            if not found.HasField("subscribeRequest"):
                return malformed("Missing subscribe request data")
            count = len(found.subscribeRequest.preferences.options.entries)
            if count > OPTIONS_MAX:
                return malformed(
                    f"the subscribe has {count:,} options; at most {OPTIONS_MAX:,} are allowed: leave out those "
                    "that no filter reads"
                )
            return _subscribe(found) or malformed("The preferences have text that is not UTF-8")
        case pb.CONSUME:
            if not found.HasField("consumeRequest"):
                return malformed("Missing consume request data")
            consume = found.consumeRequest
            count = len(consume.msgId.remoteComponents)
            if count > REGIONS_MAX:
                return malformed(
                    f"the id of a consume has {count:,} regions; at most {REGIONS_MAX:,} are allowed: send the id "
                    "of the message as it came"
                )
            return Consume(txn_id, topic, SubscriberId(consume.subscriberId), decode_id(consume.msgId))
        case pb.UNSUBSCRIBE:
            if not found.HasField("unsubscribeRequest"):
                return malformed("Missing unsubscribe request data")
            return Unsubscribe(txn_id, topic, claim, SubscriberId(found.unsubscribeRequest.subscriberId))
        case pb.CLOSESUBSCRIPTION:
            if not found.HasField("closeSubscriptionRequest"):
                return malformed("Missing closesubscription request data")
            return CloseSubscription(txn_id, topic, claim, SubscriberId(found.closeSubscriptionRequest.subscriberId))
        case number:
            return Malformed(txn_id, topic, claim, f"Request type {number} unknown", of_topic=False)


def _subscribe(found: pb.PubSubRequest) -> Subscribe | None:
    """None where a text in it is none."""
    subscribe = found.subscribeRequest
    try:
        preferences = decode_preferences(subscribe.preferences) if subscribe.HasField("preferences") else None
    except UnicodeDecodeError:
        return None
    window_if_none = subscribe.windowIfNone if subscribe.HasField("windowIfNone") else None
    if preferences is not None and window_if_none is not None:
        preferences = replace(preferences, window_size=None)
    return Subscribe(
        found.txnId,
        Topic(found.topic),
        found.shouldClaim,
        SubscriberId(subscribe.subscriberId),
        SubscribeMode(subscribe.createOrAttach),
        subscribe.synchronous,
        preferences,
        subscribe.messageBound if subscribe.HasField("messageBound") else None,
        subscribe.forceAttach,
        subscribe.readsGone,
        window_if_none,
    )


def decode_preferences(found: pb.SubscriptionPreferences) -> Preferences:
    """Return preferences. Raises UnicodeDecodeError if a text is not UTF-8, since it could not be compared."""
    for entry in found.options.entries:
        proto_text(entry.key)
    return Preferences(
        found.messageBound if found.HasField("messageBound") else None,
        proto_text(found.messageFilter) if found.HasField("messageFilter") else None,
        found.messageWindowSize if found.HasField("messageWindowSize") else None,
        MappingProxyType(decode_map(found.options)) if found.options.entries else Preferences().options,
    )


def encode_preferences(preferences: Preferences) -> pb.SubscriptionPreferences:
    """To protobuf; only what is said."""
    found = pb.SubscriptionPreferences()
    if preferences.options:
        found.options.CopyFrom(encode_map(preferences.options))
    if preferences.message_bound is not None:
        found.messageBound = preferences.message_bound
    if preferences.message_filter is not None:
        found.messageFilter = preferences.message_filter
    if preferences.window_size is not None:
        found.messageWindowSize = preferences.window_size
    return found


# --- what a client writes --------------------------------------------------------------------------------------------


class PublishEncoder:
    """Frames of publishes to one topic."""

    def __init__(self, topic: Topic) -> None:
        self._topic_part = b"\x32" + varint(len(topic)) + topic + _PUBLISH_TAG
        self._head = {claim: b"\x28" + bytes([claim]) + self._topic_part for claim in (False, True)}

    def frames(self, first_txn_id: int, messages: Sequence[bytes], *, should_claim: bool = False) -> list[bytes]:
        """One for each message, with consecutive request ids."""
        head = self._head[should_claim]
        out = []
        for txn_id, message in enumerate(messages, first_txn_id):
            inner = b"\x12" + varint(len(message))
            body = b"%b%b%b%b%b" % (_PLAIN_PUBLISH, varint(txn_id), head, varint(len(inner) + len(message)), inner)
            out.append(b"%b%b%b" % ((len(body) + len(message)).to_bytes(4), body, message))
        return out


def _request(
    kind: pb.OperationType, txn_id: int, topic: Topic, tried: Sequence[bytes], should_claim: bool | None
) -> pb.PubSubRequest:
    found = pb.PubSubRequest(protocolVersion=pb.VERSION_ONE, type=kind, txnId=txn_id, topic=topic)
    if tried:
        found.triedServers.extend(tried)
    if should_claim is not None:
        found.shouldClaim = should_claim
    return found


def publish_frame(
    txn_id: int, topic: Topic, message: bytes, *, tried: Sequence[bytes] = (), should_claim: bool = False
) -> bytes:
    """A publish that was sent on from another hub."""
    found = _request(pb.PUBLISH, txn_id, topic, tried, should_claim)
    found.publishRequest.msg.ParseFromString(message)
    return framed(found.SerializeToString())


def subscribe_frame(
    txn_id: int,
    topic: Topic,
    subscriber: SubscriberId,
    mode: SubscribeMode,
    preferences: Preferences,
    *,
    force: bool = False,
    reads_gone: bool = False,
    window_if_none: int | None = None,
    synchronous: bool = True,
    tried: Sequence[bytes] = (),
    should_claim: bool = False,
) -> bytes:
    """Return a subscribe in the form of the Java client: always with preferences, and with the bound in both places.

    window_if_none: only if the preferences name no window. See hedwig/protocol/options.py.
    """
    found = _request(pb.SUBSCRIBE, txn_id, topic, tried, should_claim)
    subscribe = found.subscribeRequest
    subscribe.subscriberId = subscriber
    subscribe.createOrAttach = cast("pb.SubscribeRequest.CreateOrAttach", int(mode))
    subscribe.synchronous, subscribe.forceAttach = synchronous, force
    subscribe.preferences.CopyFrom(encode_preferences(preferences))
    if preferences.message_bound:
        subscribe.messageBound = preferences.message_bound
    if reads_gone:
        subscribe.readsGone = True
    if window_if_none is not None:
        subscribe.windowIfNone = window_if_none
        if mode is not SubscribeMode.ATTACH:
            subscribe.preferences.messageWindowSize = window_if_none
    return framed(found.SerializeToString())


def consume_frame(txn_id: int, topic: Topic, subscriber: SubscriberId, up_to: MessageId) -> bytes:
    """Never with a claim."""
    found = _request(pb.CONSUME, txn_id, topic, (), None)
    found.consumeRequest.subscriberId = subscriber
    found.consumeRequest.msgId.ParseFromString(encode_id(up_to))
    return framed(found.SerializeToString())


def unsubscribe_frame(
    txn_id: int, topic: Topic, subscriber: SubscriberId, *, tried: Sequence[bytes] = (), should_claim: bool = False
) -> bytes:
    """The end of a subscription."""
    found = _request(pb.UNSUBSCRIBE, txn_id, topic, tried, should_claim)
    found.unsubscribeRequest.subscriberId = subscriber
    return framed(found.SerializeToString())


def close_subscription_frame(
    txn_id: int, topic: Topic, subscriber: SubscriberId, *, tried: Sequence[bytes] = (), should_claim: bool = False
) -> bytes:
    """This connection lets go."""
    found = _request(pb.CLOSESUBSCRIPTION, txn_id, topic, tried, should_claim)
    found.closeSubscriptionRequest.subscriberId = subscriber
    return framed(found.SerializeToString())


def heartbeat_frame(txn_id: int) -> bytes:
    """A question that every hub answers at once: an operation (START_DELIVERY) that only proxies serve."""
    return framed(_request(pb.START_DELIVERY, txn_id, Topic(b"heartbeat"), (), None).SerializeToString())
