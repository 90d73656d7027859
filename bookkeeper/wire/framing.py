"""Length-prefixed frames out of chunks of any size.

    frame: length i32 big-endian (excludes its own 4 bytes, 1 .. size_max) | length bytes

The same in both directions and for both protocol versions. A length out of bounds is a violation before a single byte
of the frame is kept, so an unfinished frame never holds more than the limit, and costs memory only as bytes arrive.

Received frames may be longer than sent ones: a request by FRAME_ALLOWANCE, an answer by ANSWER_ALLOWANCE. An entry has
more around it in some answers than in the add that wrote it. New entries do not need that (`entry_size`).

Differs from Apache: it closes the connection at the limit, also for an answer of its own bookie.
"""

from __future__ import annotations

import re
import struct

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.wire.pieces import keep_piece

LENGTH = struct.Struct(">i")
LENGTH_SIZE = 4

FRAME_ALLOWANCE = 4 * 1024
"""Bytes by which a received request may exceed nettyMaxFrameSizeBytes."""

ANSWER_ALLOWANCE = FRAME_ALLOWANCE + 128
"""Bytes by which a received answer may exceed it: enough for the largest entry that a v2 add of that length writes."""


SMALL_FRAME_MAX = 68 * 1024
"""Bytes, at most, of a request other than an add, and of an add without its body: the largest authentication payload
(64 KiB) and 4 KiB for all other fields. Most requests have about 100 bytes."""


def request_size_max(frame_size_max: int) -> int:
    """Return the largest length field of a request that a bookie accepts."""
    return frame_size_max + FRAME_ALLOWANCE


def answer_size_max(frame_size_max: int) -> int:
    """Return the largest length field of an answer that a client accepts."""
    return frame_size_max + ANSWER_ALLOWANCE


_FOREIGN = (
    (re.compile(rb"[\x14-\x17]\x03"), "TLS from its first byte on, where BookKeeper asks for it by START_TLS"),
    (re.compile(rb"HTTP|GET |HEAD|POST|PUT |DELE|OPTI|PRI "), "HTTP"),
)
"""How the first bytes look where somebody else's protocol is taken for a length, and its name."""


def bad_length(length: int, size_max: int) -> RemoteProtocolError:
    """The error for a frame length outside 1 .. `size_max`."""
    for pattern, name in _FOREIGN:
        if pattern.match(LENGTH.pack(length)):
            return RemoteProtocolError(
                f"frame length {length} is no length: not a BookKeeper peer, it speaks {name}; check address and port"
            )
    if length > size_max:
        return RemoteProtocolError(
            f"frame of {length} bytes is above the limit of {size_max} (nettyMaxFrameSizeBytes + an allowance): not a "
            "BookKeeper peer, or raise nettyMaxFrameSizeBytes on both sides"
        )
    return RemoteProtocolError(f"frame length {length} is not positive: not a BookKeeper peer")


class ChunkBuffer:
    """The unfinished frame at the end of a connection's bytes.

    `feed` gives back bytes that start at a frame boundary; the decoder consumes whole frames and hands the rest to
    `keep`. Bounds: fewer bytes than one whole frame are held between calls, so at most size_max + 4, and little
    more memory however small the pieces are. Linear in the bytes received however they are cut: a large frame is
    joined once.
    """

    __slots__ = ("_needed", "_parts", "_size", "_size_max")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._parts: list[bytes | bytearray] = []
        self._size = 0  # of all parts
        self._needed = 0  # bytes at which decoding can go on: a whole frame, or a length

    @property
    def buffered(self) -> int:
        """Bytes held back."""
        return self._size

    def feed(self, data: bytes) -> bytes:
        """Everything not yet decoded, or b"" while that is less than one frame."""
        parts = self._parts
        if not parts:
            return data
        self._size += len(data)
        if self._size >= self._needed:
            parts.append(data)
            self._parts, self._size = [], 0
            return b"".join(parts)
        keep_piece(parts, data)
        return b""

    def keep(self, chunk: bytes, position: int) -> None:
        """Hold back chunk[position:], which is less than one frame.

        Raises RemoteProtocolError when its length field is out of bounds; nothing is kept then.
        """
        size = len(chunk) - position
        if not size:
            return
        needed = LENGTH_SIZE
        if size >= LENGTH_SIZE:
            length: int = LENGTH.unpack_from(chunk, position)[0]
            if not 0 < length <= self._size_max:
                raise bad_length(length, self._size_max)
            needed += length
        self._needed = needed
        self._parts, self._size = [], size
        keep_piece(self._parts, chunk[position:])
