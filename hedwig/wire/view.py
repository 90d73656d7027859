"""A stored message, of which only what is asked for is decoded: what filters look at.

A filter that looks at headers must not pay for the body: of 1 MiB, `decode_message` copies all. Here the body is
skipped, and the rest is read in one pass the first time that something is asked for. What is not of the usual shape
(fields out of order, unknown ones) goes through protobuf, so that both always say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from bookkeeper.errors import RemoteProtocolError
from hedwig.model import NO_OPTIONS, LocalId, MessageId
from hedwig.proto import PubSubProtocol_pb2 as pb
from hedwig.wire.framing import read_varint, varint
from hedwig.wire.messages import decode_id, decode_message, properties_part

_BODY, _REGION, _ID, _HEADER = 0x0A, 0x12, 0x1A, 0x22
_PROPERTIES, _TYPE = 0x0A, 0x12
_ENTRY = _KEY = 0x0A
_VALUE = 0x12


class _Parts(NamedTuple):
    """body: where it is, or itself where protobuf had to be asked. id: as encoded, or decoded by protobuf."""

    body: tuple[int, int] | bytes
    region: bytes | None
    id: bytes | MessageId | None
    properties: Mapping[str, bytes]
    message_type: str | None


class MessageView:
    """See the module; it has what a Message has. Everything may raise RemoteProtocolError: it is no message."""

    __slots__ = ("_data", "_known")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._known: _Parts | None = None

    def _parts(self) -> _Parts:
        found = self._known = _scanned(self._data) or _parsed(self._data)
        return found

    @property
    def properties(self) -> Mapping[str, bytes]:
        """Of the header; the first value of each key."""
        return (self._known or self._parts()).properties

    @property
    def message_type(self) -> str | None:
        """Of the header."""
        return (self._known or self._parts()).message_type

    @property
    def region(self) -> bytes | None:
        """Where it was published."""
        return (self._known or self._parts()).region

    @property
    def id(self) -> MessageId | None:
        """Its number."""
        found = (self._known or self._parts()).id
        if not isinstance(found, bytes):
            return found
        try:
            if found[:1] == b"\x08":
                local, end = read_varint(found, 1)
                if end == len(found):
                    return MessageId(LocalId(local))
            return decode_id(pb.MessageSeqId.FromString(found))
        except (DecodeError, IndexError, ValueError) as error:
            raise RemoteProtocolError(f"the id of a message, {found.hex()}, does not parse: {error}") from error

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


def _parsed(data: bytes) -> _Parts:
    try:
        found = decode_message(data)
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a message of {len(data)} bytes has text that is not UTF-8: {error}") from error
    return _Parts(found.body, found.region, found.id, found.properties, found.message_type)


def _scanned(data: bytes) -> _Parts | None:
    """The parts of a message whose fields are in order; None where that is for protobuf to say."""
    try:
        return _in_order(data)
    except (IndexError, ValueError):  # UnicodeDecodeError is one
        return None


def _in_order(data: bytes) -> _Parts | None:
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
    properties: Mapping[str, bytes] = NO_OPTIONS
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
            known = dict(properties) if properties else {}
            found = _header(data, position, stop, known)
            if found is None:
                return None
            properties = known or NO_OPTIONS
            message_type = found[0] if found else message_type
        elif tag == _REGION:
            region = data[position:stop]
        elif tag == _ID:
            encoded_id = data[position:stop]
        else:
            return None
        last, position = tag, stop
    return _Parts((start, body_end), region, encoded_id, properties, message_type)


def _header(data: bytes, position: int, end: int, known: dict[str, bytes]) -> Sequence[str] | None:
    """Add the properties to those that are known; the message type, if there is one. None: for protobuf to say."""
    message_type: Sequence[str] = ()
    while position < end:
        tag, size = data[position], data[position + 1]
        if size < 0x80:
            position += 2
        else:
            size, position = read_varint(data, position + 1)
        stop = position + size
        if stop > end:
            return None
        if tag == _TYPE:
            message_type = (str(data[position:stop], "utf-8"),)
        elif tag != _PROPERTIES or not _properties(data, position, stop, known):
            return None
        position = stop
    return message_type


def _properties(data: bytes, position: int, end: int, known: dict[str, bytes]) -> bool:
    """Entries of a map, each a key and then its value; False: for protobuf to say."""
    while position < end:
        if data[position] != _ENTRY:
            return False
        size = data[position + 1]
        if size < 0x80:
            position += 2
        else:
            size, position = read_varint(data, position + 1)
        stop = position + size
        if stop > end or data[position] != _KEY:
            return False
        size = data[position + 1]
        if size < 0x80:
            position += 2
        else:
            size, position = read_varint(data, position + 1)
        key_end = position + size
        if key_end >= stop or data[key_end] != _VALUE:
            return False
        size = data[key_end + 1]
        if size < 0x80:
            start = key_end + 2
        else:
            size, start = read_varint(data, key_end + 1)
        if start + size != stop:
            return False
        known.setdefault(str(data[position:key_end], "utf-8"), data[start:stop])
        position = stop
    return True


def header_part(properties: Mapping[str, bytes]) -> bytes:
    """What, appended to any message in its encoded form, adds properties to its header.

    Protobuf merges fields that come twice, and of a key that comes twice the first value counts: what the publisher
    said stays. So nothing has to be decoded for it.
    """
    content = properties_part(properties)
    return b"%c%b%b" % (_HEADER, varint(len(content)), content) if content else b""
