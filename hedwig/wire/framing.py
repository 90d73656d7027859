"""Frames: an unsigned big-endian length of four bytes, then so many bytes."""

from __future__ import annotations

import struct

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.wire.pieces import keep_piece

LENGTH = struct.Struct(">I")
LENGTH_SIZE = LENGTH.size

FRAME_SIZE_MAX_HUB = 1_258_291
"""Bytes of a frame that a hub takes, with its length; max_message_size."""

FRAME_SIZE_MAX_CLIENT = 2_097_152
"""The same of a client."""

FRAME_ALLOWANCE = 64 * 1024
"""Bytes by which a received frame may exceed max_message_size, so that every accepted publish can be received.

Hubs add to a message the subscriber's name (at most 1024 bytes), the region, the ids of all regions (at most 16 KiB)
and the time of the publish; to a dead letter also the names of topic and subscriber.
"""


PASSED_SIZE_MAX = 2**31 - 1
"""Bytes of a frame that is passed over: Java writes none that is longer."""

BEGINNING_SIZE = 64
ENDING_SIZE = 8 * 1024
"""What is kept of such a frame: of a delivery this has all but the body, unless its properties are long."""


class Shortened(bytes):
    """A frame that is too long: its beginning; `ending` is its end, and `size` what it had in all, without length."""

    size: int
    ending: bytes


class _PassedOver:
    """A frame that is too long, and is read and thrown away but for its ends. At most `BEGINNING_SIZE` and twice
    `ENDING_SIZE` bytes are held, and one chunk.
    """

    def __init__(self, size: int) -> None:
        self._size = self._left = size
        self._beginning = self._ending = b""

    def take(self, data: bytes) -> int:
        """How many of these bytes are the frame's."""
        taken = min(self._left, len(data))
        self._left -= taken
        part = data[:taken]
        self._beginning += part[: BEGINNING_SIZE - len(self._beginning)]
        self._ending = (self._ending + part[-ENDING_SIZE:])[-ENDING_SIZE:]
        return taken

    def whole(self) -> Shortened | None:
        """Once its end has come."""
        if self._left:
            return None
        found = Shortened(self._beginning)
        found.size, found.ending = self._size, self._ending
        return found


class FrameDecoder:
    """Chunks of a connection to whole frames. frame_size_max: of a frame with its length.

    longer: frames that contain these bytes may be FRAME_ALLOWANCE longer; b"": none may.
    passed_over: frames that are too long and begin so come as `Shortened`; b"": none, the connection cannot go on.
    """

    def __init__(self, frame_size_max: int, passed_over: bytes = b"", longer: bytes = b"") -> None:
        self._frame_size_max, self._head, self._longer = frame_size_max, passed_over, longer
        self._longer_size_max = frame_size_max + (FRAME_ALLOWANCE if longer else 0)
        self._passing: _PassedOver | None = None
        self._rest: list[bytes | bytearray] = []  # pieces of a frame that is not whole
        self._rest_size = 0
        self._wanted = 0  # bytes that make the next look worthwhile
        self.error: RemoteProtocolError | None = None

    @property
    def buffered(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return self._rest_size

    def receive(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, without their lengths. After one that is too long only `error` is set."""
        if self.error is not None:
            return []
        frames: list[bytes] = []
        while True:
            if self._passing is not None:
                taken = self._passing.take(data)
                whole = self._passing.whole()
                if whole is None:
                    return frames
                self._passing = None
                frames.append(whole)
                data = data[taken:]
            data = self._split(data, frames)
            if self._passing is None:
                return frames

    def _split(self, data: bytes, frames: list[bytes]) -> bytes:
        """Append what is whole. What follows the length of a frame that is to be passed over is returned."""
        if self._rest:
            self._rest_size += len(data)
            if self._rest_size < self._wanted:
                keep_piece(self._rest, data)
                return b""
            self._rest.append(data)
            data = b"".join(self._rest)
            self._rest = []
        position, end = 0, len(data)
        unpack = LENGTH.unpack_from
        self._wanted = LENGTH_SIZE
        while end - position >= LENGTH_SIZE:
            (size,) = unpack(data, position)
            is_large = size + LENGTH_SIZE > self._frame_size_max
            if is_large and size + LENGTH_SIZE > self._longer_size_max:
                begin = position + LENGTH_SIZE
                head = self._head if size <= PASSED_SIZE_MAX else b""
                if head and head.startswith(data[begin : begin + len(head)]):
                    if end - begin < len(head):
                        self._wanted = LENGTH_SIZE + len(head)
                        break
                    self._rest_size = 0
                    self._passing = _PassedOver(size)
                    return data[begin:]
                self.error = self._too_large(size)
                break
            stop = position + LENGTH_SIZE + size
            if stop > end:
                self._wanted = LENGTH_SIZE + size
                break
            if is_large and self._longer not in data[position:stop]:
                self.error = self._too_large(size)
                break
            frames.append(data[position + LENGTH_SIZE : stop])
            position = stop
        self._rest_size = 0
        if position < end and self.error is None:
            keep_piece(self._rest, data[position:])
            self._rest_size = end - position
        return b""

    def _too_large(self, size: int) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"a frame of {size} bytes; at most {self._frame_size_max - LENGTH_SIZE} are accepted "
            "(max_message_size less its length)"
        )


def framed(message: bytes) -> bytes:
    """A frame."""
    return LENGTH.pack(len(message)) + message


def varint(value: int) -> bytes:
    """A protobuf varint of a number from 0 on."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value < 0x10000000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and its end. Raises IndexError at the end, ValueError beyond 64 bits."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    position += 1
    while (byte := data[position]) >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if shift > 63:
            raise ValueError("a number of more than ten bytes")
    if shift == 63 and byte > 1:
        raise ValueError("a number of more than 64 bits")
    return value | byte << shift, position + 1
