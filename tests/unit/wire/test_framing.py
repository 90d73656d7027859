"""Frames out of chunks: limits before buffering, and never more than one frame held."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from bookkeeper.errors import RemoteProtocolError
from bookkeeper.wire.framing import ChunkBuffer
from bookkeeper.wire.pieces import PART_SIZE

LIMIT = 100


def test_whole_chunks_pass_through_uncopied() -> None:
    buffer = ChunkBuffer(LIMIT)
    chunk = b"\0\0\0\1a"
    assert buffer.feed(chunk) is chunk
    buffer.keep(chunk, len(chunk))
    assert buffer.buffered == 0


def test_a_partial_length_waits_for_four_bytes() -> None:
    buffer = ChunkBuffer(LIMIT)
    buffer.keep(b"xx\0\0", 2)
    assert buffer.feed(b"\0") == b""
    assert buffer.feed(b"\5") == b"\0\0\0\5"


def test_a_large_frame_comes_out_when_its_last_byte_is_there() -> None:
    buffer = ChunkBuffer(LIMIT)
    buffer.keep(b"\0\0\0\x0a", 0)
    assert buffer.feed(b"12345") == b""
    assert buffer.feed(b"6789") == b""
    assert buffer.buffered == 13
    assert buffer.feed(b"0next") == b"\0\0\0\x0a1234567890next"
    assert buffer.buffered == 0


@pytest.mark.parametrize("length", [0, -1, LIMIT + 1, 0x7FFFFFFF, -0x80000000])
def test_a_length_out_of_bounds_is_refused_and_nothing_is_kept(length: int) -> None:
    buffer = ChunkBuffer(LIMIT)
    with pytest.raises(RemoteProtocolError, match=str(length)):
        buffer.keep(length.to_bytes(4, "big", signed=True) + b"x" * 50, 0)
    assert buffer.buffered == 0


@pytest.mark.parametrize(
    ("first_bytes", "protocol"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request", "HTTP", id="a web server"),
        pytest.param(b"GET / HTTP/1.1", "HTTP", id="a web browser"),
        pytest.param(b"PRI * HTTP/2.0", "HTTP", id="HTTP/2"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01", "TLS", id="a TLS client"),
        pytest.param(b"\x15\x03\x03\x00\x02\x02\x46", "TLS", id="a TLS server's alert"),
    ],
)
def test_a_well_known_protocol_is_called_by_its_name(first_bytes: bytes, protocol: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"not a BookKeeper peer, it speaks {protocol}.*check address"):
        ChunkBuffer(LIMIT).keep(first_bytes, 0)


def test_the_limit_itself_is_allowed() -> None:
    buffer = ChunkBuffer(LIMIT)
    buffer.keep(LIMIT.to_bytes(4, "big"), 0)
    assert buffer.feed(b"x" * LIMIT) == LIMIT.to_bytes(4, "big") + b"x" * LIMIT


@pytest.mark.parametrize("seed", range(20))
def test_a_frame_comes_out_as_it_went_in_however_it_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    frame = (200_000).to_bytes(4, "big") + rng.randbytes(200_000)
    buffer = ChunkBuffer(1 << 20)
    at = rng.choice([1, 3, 4, 50, 30_000])
    buffer.keep(b"before" + frame[:at], 6)
    found = b""
    while not found:
        assert buffer.buffered == at
        size = rng.choice([1, 100, PART_SIZE - 1, PART_SIZE, 60_000])
        found = buffer.feed((frame + b"behind")[at : at + size])
        if found == frame[:4] or 4 <= len(found) < len(frame):  # the length was not complete before
            buffer.keep(found, 0)
            at, found = len(found), b""
        else:
            at += size
    assert found == (frame + b"behind")[: len(found)]
    assert len(found) >= len(frame)
    assert buffer.buffered == 0


def test_a_frame_in_single_bytes_takes_little_more_memory_than_its_bytes() -> None:
    buffer = ChunkBuffer(1 << 20)
    tracemalloc.start()
    try:
        buffer.keep((500_000).to_bytes(4, "big"), 0)
        for number in range(100_000):
            buffer.feed(bytes([number & 255]))
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()
