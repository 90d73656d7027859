"""Runs of v3 frames: frames that differ from the one before in three places only.

    head | low byte of the request id | middle | low byte of the entry id | tail | body | end

A protobuf varint puts a number's low seven bits into its first byte. So while the request id and the entry id keep
their higher bits and the body keeps its size, all frames of one kind, ledger and key are the same bytes but for those
two bytes and the body. One frame in 128 or so goes through protobuf, and its bytes are the pattern for those that
follow it: no varint is written or read here, and nothing is known of the message but where its ids stand. Measured with
128-byte entries: adds are written in 0.7 and read in 0.15 of the time that protobuf takes, answers in 0.5 and 0.15.

A pattern is cut from a frame that protobuf wrote, or (when reading) that is byte for byte what protobuf would have
written from the fields we know. A frame that repeats the pattern is then canonical as well, so both ways through a
chunk give the same messages; tests hold them to it.
"""

from __future__ import annotations

import functools
import struct

# Length i32 | 0A size | 08 03 version | 10 xx operation | 18 request id ...: our header is below 128 bytes.
_HEAD_SIZE = 11

_BYTES = [bytes([value]) for value in range(256)]
_MORE = 0x80
"""Bit of a varint's byte that says another byte follows."""


def varint_size(value: int) -> int:
    """Bytes of a protobuf int64 or uint64; negative numbers take ten."""
    return 10 if value < 0 else max(1, (value.bit_length() + 6) // 7)


@functools.lru_cache(maxsize=256)
def _cutter(head: int, middle: int, tail: int, body: int, end: int) -> struct.Struct:
    return struct.Struct(f"{head}sB{middle}sB{tail}s{body}s{end}s")


def same_head(data: bytes, start: int, stop: int) -> bool:
    """True when a whole frame of the same size, version and operation follows the frame data[start:stop]."""
    return 2 * stop - start <= len(data) and data.startswith(data[start : start + _HEAD_SIZE], stop)


class FramePattern:
    """What the frames of a run share.

    frame: a canonical frame with its length field. tail_size: bytes between the entry id and the body; body_size and
    end_size: bytes of the body and of what follows it.
    """

    __slots__ = (
        "_entry_base",
        "_entry_more",
        "_request_base",
        "_request_more",
        "body_size",
        "end",
        "head",
        "middle",
        "tail",
    )

    def __init__(
        self, frame: bytes, request_id: int, entry_id: int, *, tail_size: int = 0, body_size: int = 0, end_size: int = 0
    ) -> None:
        end_start = len(frame) - end_size
        body_start = end_start - body_size
        entry_start = body_start - tail_size - varint_size(entry_id)
        self.head = frame[:_HEAD_SIZE]
        self.middle = frame[_HEAD_SIZE + 1 : entry_start]
        self.tail = frame[entry_start + 1 : body_start]
        self.body_size = body_size
        self.end = frame[end_start:]
        self._request_base = request_id & ~0x7F
        self._request_more = _MORE if self._request_base else 0
        self._entry_base = entry_id & ~0x7F
        self._entry_more = _MORE if self._entry_base else 0

    def fits(self, request_id: int, entry_id: int, body_size: int) -> bool:
        """True when `before_body` is right for these."""
        return (
            request_id & ~0x7F == self._request_base
            and entry_id & ~0x7F == self._entry_base
            and body_size == self.body_size
        )

    def before_body(self, request_id: int, entry_id: int) -> bytes:
        """The frame up to its body, for ids that fit."""
        return b"".join(
            (
                self.head,
                _BYTES[request_id & 0x7F | self._request_more],
                self.middle,
                _BYTES[entry_id & 0x7F | self._entry_more],
                self.tail,
            )
        )

    def read(self, data: bytes, position: int) -> tuple[list[int], list[int], list[bytes]]:
        """Request ids, entry ids and bodies of the whole frames from `position` on that repeat the pattern."""
        head, middle, tail, end = self.head, self.middle, self.tail, self.end
        cutter = _cutter(len(head), len(middle), len(tail), self.body_size, len(end))
        count = (len(data) - position) // cutter.size
        request_more, entry_more = self._request_more, self._entry_more
        request_base, entry_base = self._request_base - request_more, self._entry_base - entry_more
        request_ids: list[int] = []
        entry_ids: list[int] = []
        bodies: list[bytes] = []
        window = memoryview(data)[position : position + count * cutter.size]
        for its_head, request_low, its_middle, entry_low, its_tail, body, its_end in cutter.iter_unpack(window):
            if (
                its_head != head
                or its_middle != middle
                or its_tail != tail
                or its_end != end
                or request_low ^ request_more >= _MORE
                or entry_low ^ entry_more >= _MORE
            ):
                break
            request_ids.append(request_base + request_low)
            entry_ids.append(entry_base + entry_low)
            bodies.append(body)
        return request_ids, entry_ids, bodies

    @property
    def size(self) -> int:
        """Bytes of each frame of the run, with its length field."""
        return len(self.head) + len(self.middle) + len(self.tail) + self.body_size + len(self.end) + 2

    def continues(self, data: bytes, position: int) -> bool:
        """True when the frame at `position` looks like one of the run: worth proving that the pattern is canonical."""
        return data.startswith(self.middle, position + _HEAD_SIZE + 1)
