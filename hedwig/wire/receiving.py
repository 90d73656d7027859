"""What a client reads, in batches: runs of publish answers and of deliveries, without a protobuf object each.

    frames of one read -> Published (answers in a row) | Deliveries (of one subscription, in a row) | Answer | Told
                          | TooLarge (a delivery of which only the ends were read)

Only the forms that hubs write are taken apart here; everything else goes through protobuf (`decode_response`), with the
same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.texts import proto_text
from hedwig.model import NO_OPTIONS, LocalId, MessageId, Status, SubscriberId, Topic
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.wire.framing import LENGTH_SIZE, Shortened, read_varint, varint
from hedwig.wire.messages import decode_id, decode_map, encode_id
from hedwig.wire.responses import Answer, Delivery, Told, decode_response

ROUTES_MAX = 100_000
"""Subscriptions of one connection whose form is remembered."""

_ANSWER_HEAD = b"\x08\x01\x10\x00\x18"
DELIVERY_HEAD = b"\x08\x01\x10\x00\x18\x00\x2a"
"""How hubs begin a delivery; the length of the message follows."""

_BODY_TAG = 0x0A
_ID_TAG = 0x1A
_HEADER_TAG = 0x22
_LOCAL_TAG = 0x08


class Received:
    """A message that was delivered. body; local_id: its place in the topic. The rest is decoded when asked for."""

    __slots__ = ("_header", "body", "local_id", "region", "remote")

    def __init__(
        self,
        body: bytes,
        local_id: LocalId,
        region: bytes = b"",
        header: bytes = b"",
        remote: tuple[tuple[bytes, int], ...] = (),
    ) -> None:
        self.body, self.local_id, self.region, self._header, self.remote = body, local_id, region, header, remote

    @property
    def id(self) -> MessageId:
        """With what is known of other regions."""
        return MessageId(self.local_id, self.remote)

    @property
    def properties(self) -> Mapping[str, bytes]:
        """Of its header. Raises RemoteProtocolError for a header that is not UTF-8."""
        if not self._header:
            return NO_OPTIONS
        try:
            return decode_map(pb.MessageHeader.FromString(self._header).properties)
        except (DecodeError, UnicodeDecodeError) as error:
            raise RemoteProtocolError(f"message {self.local_id} has a header that cannot be read: {error}") from error

    @property
    def message_type(self) -> str | None:
        """Of its header; None where it has none. Raises RemoteProtocolError for a header that is not UTF-8."""
        try:
            header = pb.MessageHeader.FromString(self._header)
            return proto_text(header.messageType, "replace") if header.HasField("messageType") else None
        except (DecodeError, UnicodeDecodeError) as error:
            raise RemoteProtocolError(f"message {self.local_id} has a header that cannot be read: {error}") from error

    def stored_form(self) -> bytes:
        """As the hub has it that delivered it (see `hedwig.wire.messages`)."""
        message_id = encode_id(self.id)
        return b"\x0a%b%b\x12%b%b\x1a%b%b%b" % (
            *(varint(len(self.body)), self.body),
            *(varint(len(self.region)), self.region),
            *(varint(len(message_id)), message_id),
            b"\x22" + varint(len(self._header)) + self._header if self._header else b"",
        )

    def __repr__(self) -> str:
        return f"<message {self.local_id}, {len(self.body)} bytes>"


@dataclass(frozen=True, slots=True)
class Published:
    """Publishes that succeeded: request ids, and the ids that their messages got."""

    txn_ids: list[int]
    ids: list[MessageId]


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Messages of one subscription, in their order. topic, subscriber: empty from hubs before 4.2."""

    topic: Topic
    subscriber: SubscriberId
    messages: list[Received]


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A message of a subscription that was not taken. size: of its frame, with the length. local_id: None where its
    properties are so long that it was not read.
    """

    topic: Topic
    subscriber: SubscriberId
    size: int
    local_id: LocalId | None


Batch = Published | Deliveries | Answer | Told | TooLarge


class ResponseDecoder:
    """Of one connection: it remembers what the ends of its deliveries look like."""

    def __init__(self) -> None:
        self._routes: dict[bytes, tuple[Topic, SubscriberId]] = {}
        self._region = b"\x12\x00"
        self._region_name = b""

    def decode(self, frames: Sequence[bytes]) -> list[Batch]:
        """Frames without their lengths. Raises RemoteProtocolError."""
        batches: list[Batch] = []
        published: Published | None = None
        delivered: Deliveries | None = None
        for frame in frames:
            if type(frame) is Shortened:
                published = delivered = None
                batches.append(_too_large(frame))
                continue
            fast = self._delivery(frame)
            if fast is not None:
                route, message = fast
                if delivered is None or delivered.subscriber != route[1] or delivered.topic != route[0]:
                    delivered = Deliveries(*route, [message])
                    batches.append(delivered)
                    published = None
                else:
                    delivered.messages.append(message)
                continue
            answer = _published(frame)
            if answer is not None:
                if published is None:
                    published = Published([], [])
                    batches.append(published)
                    delivered = None
                published.txn_ids.append(answer[0])
                published.ids.append(answer[1])
                continue
            published = delivered = None
            batches.append(_slow(frame))
        return batches

    def _delivery(self, frame: bytes) -> tuple[tuple[Topic, SubscriberId], Received] | None:
        if not frame.startswith(DELIVERY_HEAD):
            return None
        try:
            size, start = read_varint(frame, 7)
            end = start + size
            if frame[start] != _BODY_TAG:
                return None
            size, body = read_varint(frame, start + 1)
            position = body + size
            if not frame.startswith(self._region, position):
                return self._other_region(frame, start, position)
            inner = position + len(self._region)
            if frame[inner] != _ID_TAG or frame[inner + 2] != _LOCAL_TAG:
                return None
            local, after = read_varint(frame, inner + 3)
            id_end = inner + 2 + frame[inner + 1]
            remote: tuple[tuple[bytes, int], ...] = ()
            if after != id_end:
                if frame[inner + 1] >= 0x80 or after > id_end:
                    return None
                local, remote = decode_id(pb.MessageSeqId.FromString(frame[inner + 2 : id_end]))
                after = id_end
            header = b""
            if after != end:
                if frame[after] != _HEADER_TAG:
                    return None
                size, after = read_varint(frame, after + 1)
                if after + size != end:
                    return None
                header = frame[after:end]
            ending = frame[end:]
            route = self._routes.get(ending)
            if route is None:
                self._new_route(frame, ending)
                return None
            return route, Received(frame[body:position], LocalId(local), self._region_name, header, remote)
        except (IndexError, ValueError, DecodeError):
            return None

    def _other_region(
        self, frame: bytes, start: int, position: int
    ) -> tuple[tuple[Topic, SubscriberId], Received] | None:
        """The region that messages are expected from changes; one of them goes the long way."""
        if frame[position] == 0x12:
            size, begin = read_varint(frame, position + 1)
            part = frame[position : begin + size]
            if len(part) == begin - position + size:
                self._region, self._region_name = part, frame[begin : begin + size]
        return None

    def _new_route(self, frame: bytes, ending: bytes) -> None:
        found = decode_response(frame)
        if not isinstance(found, Delivery):
            return
        written = b"\x32%b%b\x3a%b%b" % (
            *(varint(len(found.topic)), found.topic),
            *(varint(len(found.subscriber)), found.subscriber),
        )
        if written == ending:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[ending] = (found.topic, found.subscriber)


def _published(frame: bytes) -> tuple[int, MessageId] | None:
    """Request id and message id of the answer to a publish, in the form that hubs write."""
    if not frame.startswith(_ANSWER_HEAD):
        return None
    try:
        txn_id, position = read_varint(frame, 5)
        # 42 size 0a size 0a size 08 local: the body of the response, of the publish, the id
        if not (
            frame[position] == 0x42
            and frame[position + 2] == frame[position + 4] == 0x0A
            and frame[position + 6] == _LOCAL_TAG
            and position + 2 + frame[position + 1] == len(frame)
            and frame[position + 1] == frame[position + 3] + 2 == frame[position + 5] + 4
        ):
            return None
        local, after = read_varint(frame, position + 7)
    except (IndexError, ValueError):
        return None
    return (txn_id, MessageId(LocalId(local))) if after == len(frame) else None


def _too_large(frame: Shortened) -> TooLarge:
    """Whose it is stands behind the message, and where that ends, at the beginning. Raises RemoteProtocolError."""
    try:
        size, begin = read_varint(frame, len(DELIVERY_HEAD))
        behind = frame.size - begin - size
        if not 0 <= behind <= len(frame.ending):
            raise ValueError(f"{behind} bytes behind the message")
        found = pb.PubSubResponse.FromString(frame.ending[len(frame.ending) - behind :])
        local_id = None
        if frame[begin] == _BODY_TAG:
            size, body = read_varint(frame, begin + 1)
            rest = frame.size - body - size
            if behind <= rest <= len(frame.ending):
                rest_of_message = frame.ending[len(frame.ending) - rest : len(frame.ending) - behind]
                message = pb.Message.FromString(rest_of_message)
                local_id = LocalId(message.msgId.localComponent) if message.HasField("msgId") else None
    except (IndexError, ValueError, DecodeError) as error:
        text = f"a delivery of {frame.size} bytes, which is too long, cannot be told whose it is: {error}"
        raise RemoteProtocolError(text) from error
    return TooLarge(Topic(found.topic), SubscriberId(found.subscriberId), frame.size + LENGTH_SIZE, local_id)


def _slow(frame: bytes) -> Batch:
    try:
        found = pb.PubSubResponse.FromString(frame)
    except DecodeError as error:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes is no response: {error}") from error
    if found.IsInitialized() and found.HasField("message"):
        message = found.message
        message_id = decode_id(message.msgId)
        header = message.header.SerializeToString()  # stays as it is until somebody asks
        received = Received(message.body, message_id.local, message.srcRegion, header, message_id.remote)
        return Deliveries(Topic(found.topic), SubscriberId(found.subscriberId), [received])
    other = decode_response(frame)
    assert not isinstance(other, Delivery)
    if isinstance(other, Answer) and other.status == Status.SUCCESS and other.published is not None:
        return Published([other.txn_id], [other.published])
    return other
