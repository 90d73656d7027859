"""A stored message, of which only what is asked for is decoded: what filters look at.

A filter that looks at headers must not pay for the body: of 1 MiB, `decode_message` copies all. Here the body is
skipped, and the rest is read in one pass the first time that something is asked for. What is not of the usual shape
(fields out of order, unknown ones) goes through protobuf, so that both always say the same.

A message of 1.2 MiB may contain 200,000 properties, which take 0.4 s to read. Filters set `properties_max`. If a
message has more, its properties and type are not read, and reading them raises HeaderTooLarge; the other parts are
available.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from bookkeeper.errors import RemoteProtocolError
from hedwig.model import NO_OPTIONS, LocalId, MessageId
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.wire.framing import read_varint, varint
from hedwig.wire.messages import HeaderTooLarge, decode_id, message_of, parsed_message, properties_part

_BODY, _REGION, _ID, _HEADER = 0x0A, 0x12, 0x1A, 0x22
_PROPERTIES, _TYPE = 0x0A, 0x12
_ENTRY = _KEY = 0x0A
_VALUE = 0x12

_FIELDS_MAX = 8
"""Headers, and fields of a header, of the usual shape: a publisher writes one of each, and a hub adds a few."""


class _Parts(NamedTuple):
    """Parts of a message. body: its position, or the body itself if protobuf parsed them. id: encoded until used.

    properties: None if there are more than `properties_max`; the type is then unknown too.
    """

    body: tuple[int, int] | bytes
    region: bytes | None
    id: bytes | MessageId | None
    properties: Mapping[str, bytes] | None
    message_type: str | None


class MessageView:
    """See the module; it has what a Message has. Everything may raise RemoteProtocolError: it is no message."""

    __slots__ = ("_data", "_known", "_properties_max")

    def __init__(self, data: bytes, properties_max: int = sys.maxsize) -> None:
        self._data, self._properties_max = data, properties_max
        self._known: _Parts | None = None

    def _parts(self) -> _Parts:
        data, properties_max = self._data, self._properties_max
        found = self._known = _scanned(data, properties_max) or _parsed(data, properties_max)
        return found

    def _too_many(self) -> HeaderTooLarge:
        return HeaderTooLarge(f"the message has more than {self._properties_max:,} properties")

    @property
    def properties(self) -> Mapping[str, bytes]:
        """Properties of the header; the first value of each key. Raises HeaderTooLarge."""
        found = (self._known or self._parts()).properties
        if found is None:
            raise self._too_many()
        return found

    @property
    def message_type(self) -> str | None:
        """Type in the header. Raises HeaderTooLarge."""
        known = self._known or self._parts()
        if known.properties is None:
            raise self._too_many()
        return known.message_type

    @property
    def region(self) -> bytes | None:
        """Where it was published."""
        return (self._known or self._parts()).region

    @property
    def id(self) -> MessageId | None:
        """Its number."""
        known = self._known or self._parts()
        if isinstance(known.id, bytes):
            known = self._known = known._replace(id=_decoded_id(known.id))
        assert not isinstance(known.id, bytes)
        return known.id

    @property
    def body_size(self) -> int:
        """Bytes of the body."""
        body = (self._known or self._parts()).body
        return len(body) if isinstance(body, bytes) else body[1] - body[0]

    @property
    def body(self) -> bytes:
        """A copy, each time."""
        body = (self._known or self._parts()).body
        return body if isinstance(body, bytes) else self._data[body[0] : body[1]]


def _decoded_id(encoded: bytes) -> MessageId:
    try:
        if encoded[:1] == b"\x08":
            local, end = read_varint(encoded, 1)
            if end == len(encoded):
                return MessageId(LocalId(local))
        return decode_id(pb.MessageSeqId.FromString(encoded))
    except (DecodeError, IndexError, ValueError) as error:
        raise RemoteProtocolError(f"the id of a message, {encoded.hex()}, does not parse: {error}") from error


def _parsed(data: bytes, properties_max: int) -> _Parts:
    found = parsed_message(data)
    if len(found.header.properties.entries) > properties_max:
        found.header.Clear()
        rest = message_of(found)
        return _Parts(rest.body, rest.region, rest.id, None, None)
    try:
        whole = message_of(found)
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a message of {len(data)} bytes has text that is not UTF-8: {error}") from error
    return _Parts(whole.body, whole.region, whole.id, whole.properties, whole.message_type)


def _scanned(data: bytes, properties_max: int) -> _Parts | None:
    """Return the parts of a message with fields in the usual order; None for any other, which protobuf parses."""
    try:
        return _in_order(data, properties_max)
    except (IndexError, ValueError):  # UnicodeDecodeError is a ValueError
        return None


def _in_order(data: bytes, properties_max: int) -> _Parts | None:
    if data[0] != _BODY:
        return None
    size, start = read_varint(data, 1)
    position = body_end = start + size
    end = len(data)
    if body_end > end:
        return None
    region: bytes | None = None
    encoded_id: bytes | None = None
    message_type: str | None = None
    known: dict[str, bytes] = {}
    count = headers = 0
    last = _BODY
    while position < end:
        tag, size = data[position], data[position + 1]
        if size < 0x80:
            position += 2
        else:
            size, position = read_varint(data, position + 1)
        stop = position + size
        # A header may come twice: what a hub adds is appended, and protobuf merges the two.
        if stop > end or tag < last or (tag == last and tag != _HEADER):
            return None
        if tag == _HEADER:
            headers += 1
            if headers > _FIELDS_MAX:
                return None
            found = _header(data, position, stop, known, properties_max - count)
            if found is None:
                return None
            read, told = found
            count += read
            if count > properties_max:  # only further headers follow a header
                return _Parts((start, body_end), region, encoded_id, None, None)
            message_type = told[0] if told else message_type
        elif tag == _REGION:
            region = data[position:stop]
        elif tag == _ID:
            encoded_id = data[position:stop]
        else:
            return None
        last, position = tag, stop
    return _Parts((start, body_end), region, encoded_id, known or NO_OPTIONS, message_type)


def _header(
    data: bytes, position: int, end: int, known: dict[str, bytes], count_max: int
) -> tuple[int, Sequence[str]] | None:
    """Add the properties to those that are known. None: protobuf must parse the message.

    Return their number, which is more than `count_max` if not all were read, and the message type, if there is one.
    """
    count = fields = 0
    message_type: Sequence[str] = ()
    while position < end:
        tag, size = data[position], data[position + 1]
        if size < 0x80:
            position += 2
        else:
            size, position = read_varint(data, position + 1)
        stop = position + size
        fields += 1
        if stop > end or fields > _FIELDS_MAX:
            return None
        if tag == _TYPE:
            message_type = (str(data[position:stop], "utf-8"),)
        elif tag != _PROPERTIES:
            return None
        else:
            read = _properties(data, position, stop, known, count_max - count)
            if read < 0:
                return None
            count += read
            if count > count_max:
                break
        position = stop
    return count, message_type


def _properties(data: bytes, position: int, end: int, known: dict[str, bytes], count_max: int) -> int:
    """Read the entries of a map, each a key followed by its value.

    Return their number, more than `count_max` if not all were read; -1: protobuf must parse the message.
    """
    count = 0
    while position < end:
        count += 1
        if count > count_max:
            break
        if data[position] != _ENTRY:
            return -1
        size = data[position + 1]
        if size < 0x80:
            position += 2
        else:
            size, position = read_varint(data, position + 1)
        stop = position + size
        if stop > end or data[position] != _KEY:
            return -1
        size = data[position + 1]
        if size < 0x80:
            position += 2
        else:
            size, position = read_varint(data, position + 1)
        key_end = position + size
        if key_end >= stop or data[key_end] != _VALUE:
            return -1
        size = data[key_end + 1]
        if size < 0x80:
            start = key_end + 2
        else:
            size, start = read_varint(data, key_end + 1)
        if start + size != stop:
            return -1
        known.setdefault(str(data[position:key_end], "utf-8"), data[start:stop])
        position = stop
    return count


def header_part(properties: Mapping[str, bytes]) -> bytes:
    """What, appended to any message in its encoded form, adds properties to its header.

    Protobuf merges fields that come twice, and of a key that comes twice the first value counts: what the publisher
    said stays. So nothing has to be decoded for it.
    """
    content = properties_part(properties)
    return b"%c%b%b" % (_HEADER, varint(len(content)), content) if content else b""
