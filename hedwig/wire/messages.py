"""A message as it is stored and delivered: body, region and id, header; one Message of protobuf.

    as published     0A size body                        | 22 size header
    as stored        0A size body | 12 size region | 1A size id | 22 size header, with the time of the publish in it

A hub stamps each message once; what it stores is what it delivers, to every subscriber the same bytes. A header is one
field, and stays the last one: what reads many messages takes this form apart without protobuf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.texts import proto_text
from hedwig.model import NO_OPTIONS, LocalId, MessageId
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.wire.framing import read_varint, varint

PROPERTIES_MAX = 2_000
"""Properties of a message that a hub reads, for a filter or for its own names: about 1.2 ms at 0.6 us each."""

_BODY_TAG = 0x0A
_REGION_TAG = b"\x12"
_ID_TAG = b"\x1a"
_LOCAL_TAG = b"\x08"
_HEADER_TAG = 0x22
_TIME = "hw.time"  # hedwig.protocol.options.TIME
_TIME_BYTES = _TIME.encode()


class HeaderTooLarge(RemoteProtocolError):
    """A message has more properties than may be read."""


@dataclass(frozen=True, slots=True)
class Message:
    """body: what was published. properties, message_type: of its header. id, region: None before it is stored."""

    body: bytes
    properties: Mapping[str, bytes] = field(default_factory=lambda: NO_OPTIONS)
    message_type: str | None = None
    id: MessageId | None = None
    region: bytes | None = None

    @property
    def body_size(self) -> int:
        """Bytes of the body."""
        return len(self.body)


def encode_map(properties: Mapping[str, bytes]) -> pb.Map:
    """As protobuf has it."""
    return pb.Map(entries=[pb.Map.Entry(key=key, value=value) for key, value in properties.items()])


def decode_map(entries: pb.Map) -> dict[str, bytes]:
    """Return the first value of each key. Bytes of a key that are not UTF-8 are replaced. Java does both."""
    found: dict[str, bytes] = {}
    for entry in entries.entries:
        key = entry.key
        found.setdefault(key if key.__class__ is str else proto_text(key, "replace"), entry.value)
    return found


def encode_id(message_id: MessageId) -> bytes:
    """A MessageSeqId."""
    local = _LOCAL_TAG + varint(message_id.local)
    return local + _remote_part(message_id.remote) if message_id.remote else local


def _remote_part(remote: tuple[tuple[bytes, int], ...]) -> bytes:
    """What is known of other regions, as a part of a MessageSeqId."""
    parts = []
    for region, number in remote:
        part = _field(b"\x0a", region) + b"\x10" + varint(number)
        parts.append(_field(b"\x12", part))
    return b"".join(parts)


def id_message(message_id: MessageId) -> pb.MessageSeqId:
    """The same as an object."""
    remote = [pb.RegionSpecificSeqId(region=region, seqId=number) for region, number in message_id.remote]
    return pb.MessageSeqId(localComponent=message_id.local, remoteComponents=remote)


def decode_id(found: pb.MessageSeqId) -> MessageId:
    """From protobuf; an absent number reads as 0."""
    remote = tuple((each.region, each.seqId) for each in found.remoteComponents)
    return MessageId(LocalId(found.localComponent), remote)


def encode_message(message: Message) -> bytes:
    """A Message, as a client publishes it or a hub stores it."""
    found = pb.Message(body=message.body)
    if message.region is not None:
        found.srcRegion = message.region
    if message.id is not None:
        found.msgId.CopyFrom(id_message(message.id))
    if message.properties:
        found.header.properties.CopyFrom(encode_map(message.properties))
    if message.message_type is not None:
        found.header.messageType = message.message_type
    return found.SerializeToString()


def decode_message(data: bytes) -> Message:
    """From its bytes. Raises RemoteProtocolError."""
    return message_of(parsed_message(data))


def message_of(found: pb.Message) -> Message:
    """The same from protobuf."""
    header = found.header
    return Message(
        found.body,
        decode_map(header.properties) if header.properties.entries else NO_OPTIONS,
        proto_text(header.messageType, "replace") if header.HasField("messageType") else None,
        decode_id(found.msgId) if found.HasField("msgId") else None,
        found.srcRegion if found.HasField("srcRegion") else None,
    )


def parsed_message(data: bytes) -> pb.Message:
    """Return a message as protobuf parses it. Raises RemoteProtocolError."""
    try:
        return pb.Message.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"a message of {len(data)} bytes does not parse: {error}") from error


def is_plain(message: bytes) -> bool:
    """Whether it is nothing but a body, so that what follows may be appended to it."""
    try:
        if message[0] != _BODY_TAG:
            return False
        size, position = read_varint(message, 1)
    except (IndexError, ValueError):
        return False
    return position + size == len(message)


def header_at(message: bytes) -> int | None:
    """Where the header of a message begins that has a body and a header; where it ends if it is plain. None for a
    message that says more, or is not written in this order.
    """
    try:
        if message[0] != _BODY_TAG:
            return None
        size, position = read_varint(message, 1)
        position += size
        if position == len(message):
            return position
        if message[position] != _HEADER_TAG:
            return None
        size, start = read_varint(message, position + 1)
    except (IndexError, ValueError):
        return None
    return position if start + size == len(message) else None


def header_properties(message: bytes, at: int | None) -> Mapping[str, bytes]:
    """Return the properties of a message. at: its `header_at`.

    Raises RemoteProtocolError, and HeaderTooLarge for more than PROPERTIES_MAX properties.
    """
    try:
        if at is None:
            properties = parsed_message(message).header.properties
        else:
            _, start = read_varint(message, at + 1)
            properties = pb.MessageHeader.FromString(message[start:]).properties
        if len(properties.entries) > PROPERTIES_MAX:
            raise HeaderTooLarge(
                f"the message has {len(properties.entries):,} properties; with one of a producer or of the retention, "
                f"at most {PROPERTIES_MAX:,} are allowed: leave some out, or put them into the body"
            )
        return decode_map(properties)
    except (DecodeError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the header of a message does not parse: {error}") from error


def properties_part(properties: Mapping[str, bytes]) -> bytes:
    """What, appended to the content of a header, adds properties to it; protobuf merges them with those before."""
    entries = b"".join(
        _field(b"\x0a", _field(b"\x0a", key.encode()) + _field(b"\x12", value)) for key, value in properties.items()
    )
    return _field(b"\x0a", entries) if entries else b""


def _field(tag: bytes, content: bytes) -> bytes:
    return b"%b%b%b" % (tag, varint(len(content)), content)


def with_properties(message: bytes, at: int, part: bytes) -> bytes:
    """A message whose header begins `at` (`header_at`), with a `properties_part` added to it."""
    return message[:at] + _extended(message[at:], part)


def _extended(header: bytes, part: bytes) -> bytes:
    if not header:
        return _field(b"\x22", part)
    _, start = read_varint(header, 1)
    return b"\x22%b%b%b" % (varint(len(header) - start + len(part)), header[start:], part)


class Stamp:
    """Gives messages of one hub their region, ids, and times.

    now_ms: milliseconds since 1970, UTC; None where messages get no times. time_ms, in the methods: what the property
    hw.time says; None for messages without. One that a publisher wrote itself is replaced, as its region is.
    """

    def __init__(self, region: bytes, now_ms: Callable[[], int] | None = None) -> None:
        self.now_ms = now_ms
        self._time_ms, self._time_part, self._time_end = -1, b"", b""
        self.region = region
        self._region_part = _REGION_TAG + varint(len(region)) + region + _ID_TAG

    def plain(
        self,
        messages: Sequence[bytes],
        first: LocalId,
        time_ms: int | None = None,
        remote: tuple[tuple[bytes, int], ...] = (),
    ) -> list[bytes]:
        """Stored forms of plain messages (`is_plain`), which get consecutive ids from `first` on."""
        part, end = self._region_part, b""
        if time_ms is not None:
            self._timed(time_ms)
            end = self._time_end
        stored = []
        if remote:
            known = _remote_part(remote)
            for local, message in enumerate(messages, first):
                encoded = _LOCAL_TAG + varint(local) + known
                stored.append(b"%b%b%b%b%b" % (message, part, varint(len(encoded)), encoded, end))
            return stored
        for local, message in enumerate(messages, first):
            number = varint(local)
            stored.append(b"%b%b%c%b%b%b" % (message, part, len(number) + 1, _LOCAL_TAG, number, end))
        return stored

    def headed(self, message: bytes, at: int, message_id: MessageId, time_ms: int | None = None) -> bytes:
        """The stored form of a message whose header begins `at` (see `header_at`)."""
        end = message[at:]
        if time_ms is not None:
            if _TIME_BYTES in end:
                return self.any(message, message_id, time_ms)
            end = _extended(end, self._timed(time_ms))
        encoded = encode_id(message_id)
        return b"%b%b%b%b%b" % (message[:at], self._region_part, varint(len(encoded)), encoded, end)

    def _timed(self, time_ms: int) -> bytes:
        """The content of a header that says it; messages of one batch have one time."""
        if time_ms != self._time_ms:
            self._time_ms, self._time_part = time_ms, properties_part({_TIME: b"%d" % time_ms})
            self._time_end = _field(b"\x22", self._time_part)
        return self._time_part

    def any(self, message: bytes, message_id: MessageId, time_ms: int | None = None) -> bytes:
        """The stored form of one message, whatever is in it; what it says of region, id and time is replaced."""
        found = parsed_message(message)
        found.srcRegion = self.region
        return _stored(found, message_id, time_ms)

    def foreign(self, message: bytes, last: MessageId, time_ms: int | None = None) -> tuple[bytes, MessageId]:
        """The stored form of a message that another region stored first, and its id behind `last`.

        It keeps its region, whose number it had there is noted. Its time is when it was stored here: the times of a
        topic never go back, and clocks differ.
        """
        found = parsed_message(message)
        there = ((found.srcRegion, found.msgId.localComponent),)
        message_id = MessageId(LocalId(last.local + 1), last.remote).merged(there)
        return _stored(found, message_id, time_ms), message_id


def _stored(found: pb.Message, message_id: MessageId, time_ms: int | None) -> bytes:
    """With this id and time."""
    found.msgId.CopyFrom(id_message(message_id))
    if time_ms is not None:
        properties = found.header.properties
        kept = [entry for entry in properties.entries if entry.key != _TIME]
        if len(kept) < len(properties.entries):
            del properties.entries[:]
            properties.entries.extend(kept)
        properties.entries.add(key=_TIME, value=b"%d" % time_ms)
    return found.SerializeToString()


def remote_of(message: bytes, count_max: int) -> tuple[tuple[bytes, int], ...]:
    """Return the ids of other regions that a publisher names (hedwig/PROTOCOL.md 2.2, 2.12).

    Raises RemoteProtocolError, also for more than `count_max` regions.
    """
    found = parsed_message(message)
    count = len(found.msgId.remoteComponents)
    if count > count_max:
        raise RemoteProtocolError(
            f"the id of a published message has {count:,} other regions; at most {count_max:,} are allowed: "
            "publish without the message id of another region"
        )
    return decode_id(found.msgId).remote if found.HasField("msgId") else ()


def stored_id(message: bytes) -> MessageId:
    """The id of a stored message. Raises RemoteProtocolError."""
    return decode_id(parsed_message(message).msgId)
