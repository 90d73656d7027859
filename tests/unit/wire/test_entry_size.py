"""The largest entry, checked against encoded frames with every varint at its longest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias

import pytest

from bookkeeper.errors import LocalProtocolError
from bookkeeper.model import FRAME_SIZE_MAX_DEFAULT, LAST_ENTRY, DigestType, Status
from bookkeeper.wire import v3
from bookkeeper.wire.codec import RequestEncoder, ServerCodec, request_encoder, response_decoder, v2_encoder, v3_encoder
from bookkeeper.wire.digest import Digest, digest_of, lac_of, master_key
from bookkeeper.wire.entry_size import V2_ADD_AROUND, entry_body_size_max, v2_copy_size_max, v3_copy_size_max
from bookkeeper.wire.framing import FRAME_ALLOWANCE, LENGTH_SIZE, request_size_max
from bookkeeper.wire.messages import (
    AddBatch,
    BatchRead,
    BatchReadReply,
    FenceRead,
    LongPollRead,
    LongPollReply,
    ReadBatch,
    ReadBodies,
    ReadLac,
    ReadLacReply,
    Request,
)
from bookkeeper.wire.proto import BookkeeperProtocol_pb2 as pb
from bookkeeper.wire.v3_server import ReplyHeader

KEY = master_key(b"password")
LEDGER_ID = ENTRY_ID = 2**63 - 1
REQUEST_ID = 2**64 - 1
LONGEST_NUMBER = -1
EXPLICIT_LAC = digest_of(DigestType.MAC, b"").package_lac(LEDGER_ID, ENTRY_ID)
LIMITS = [1024, 2**14, 2**14 + 300, 2**21 + 300, FRAME_SIZE_MAX_DEFAULT]
SMALL_LIMIT = 2048

Version: TypeAlias = Literal[2, 3]


def header(operation: pb.OperationType) -> ReplyHeader:
    return ReplyHeader(pb.VERSION_THREE, operation, REQUEST_ID, priority=0)


def long_frames(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield every frame that carries an entry, at its longest."""
    codec, key = ServerCodec(), KEY
    v2_add = v2_encoder(2 * FRAME_SIZE_MAX_DEFAULT).encode_adds(
        LEDGER_ID, key, [ENTRY_ID], [body], recovery=True, high_priority=True
    )
    yield "v2 add", v2_add[1][0]
    yield "v2 read", b"".join(codec.read_replies(ReadBatch(LEDGER_ID, [ENTRY_ID], b"\2\2\0\0"), [body], ENTRY_ID))
    fence_v2 = FenceRead(LEDGER_ID, LAST_ENTRY, key, high_priority=True, token=b"\2\2\0\0")
    yield "v2 fencing read", codec.reply(fence_v2, Status.OK, body=body)
    batch = BatchRead(LEDGER_ID, ENTRY_ID, 1, 1, 1, fence=False, master_key=None, token=b"\2\7\0\0" + bytes(8))
    yield "v2 batch read", codec.reply(batch, Status.OK, bodies=[body])
    yield (
        "v3 add",
        v3.add_frame(REQUEST_ID, LEDGER_ID, ENTRY_ID, key, body, recovery=True, high_priority=True, deferred_sync=True),
    )
    read_v3 = ReadBatch(LEDGER_ID, [LAST_ENTRY], [REQUEST_ID])
    yield "v3 read", b"".join(codec.read_replies(read_v3, [body], LONGEST_NUMBER))
    requests: list[tuple[str, Request]] = [
        ("v3 fencing read", FenceRead(LEDGER_ID, LAST_ENTRY, key, high_priority=True, token=header(pb.READ_ENTRY))),
        (
            "v3 long poll",
            LongPollRead(LEDGER_ID, LAST_ENTRY, ENTRY_ID, 1, piggyback=False, token=header(pb.READ_ENTRY)),
        ),
        ("v3 read LAC", ReadLac(LEDGER_ID, header(pb.READ_LAC))),
    ]
    for name, request in requests:
        yield (
            name,
            codec.reply(
                request,
                Status.OK,
                body=body,
                max_lac=LONGEST_NUMBER,
                lac_update_ms=LONGEST_NUMBER,
                explicit_lac=EXPLICIT_LAC,
                last_entry=body,
            ),
        )


@pytest.mark.parametrize("limit", LIMITS)
def test_the_longest_frame_with_the_largest_entry_fills_the_limit(limit: int) -> None:
    sizes = {name: len(frame) for name, frame in long_frames(bytes(entry_body_size_max(limit)))}
    assert max(sizes.values()) == sizes["v3 read LAC"]
    # With the frame's length field, as Apache counts. Just above a power of 128 the body's varint is shorter.
    assert limit - 2 <= sizes["v3 read LAC"] <= limit
    if limit in (1024, FRAME_SIZE_MAX_DEFAULT):
        assert sizes["v3 read LAC"] == limit


@pytest.mark.parametrize("limit", LIMITS)
def test_the_largest_copy_fills_the_add_of_its_version(limit: int) -> None:
    frames = dict(long_frames(bytes(v3_copy_size_max(limit))))
    assert limit - 2 <= len(frames["v3 add"]) <= limit
    assert v2_copy_size_max(limit) == limit + LENGTH_SIZE + FRAME_ALLOWANCE - V2_ADD_AROUND
    assert len(dict(long_frames(b""))["v2 add"]) == V2_ADD_AROUND
    frames = dict(long_frames(bytes(limit - V2_ADD_AROUND)))  # the largest that Apache's v2 client writes
    assert len(frames["v2 add"]) == limit
    assert max(map(len, frames.values())) <= limit + FRAME_ALLOWANCE


@pytest.mark.parametrize("limit", LIMITS)
def test_every_answer_with_the_largest_entry_that_a_bookie_accepts_can_be_received(limit: int) -> None:
    body = bytes(request_size_max(limit) + LENGTH_SIZE - V2_ADD_AROUND)
    for name, frame in long_frames(body):
        if name not in ("v2 add", "v3 add"):
            decoder = response_decoder(2 if name.startswith("v2") else 3, limit)
            decoder.receive(frame)
            assert decoder.error is None, name


@pytest.mark.parametrize("limit", LIMITS)
def test_every_version_allows_the_same_largest_entry(limit: int) -> None:
    size_max = entry_body_size_max(limit)
    for encoder in (request_encoder(2, limit), request_encoder(3, limit)):
        assert encoder.body_size_max == size_max
        encoder.encode_add(1, KEY, 1, bytes(size_max))
        encoder.encode_adds(1, KEY, [1], [bytes(size_max)])
        with pytest.raises(LocalProtocolError, match=f"{size_max + 1} bytes .* above {size_max}: .* raise netty"):
            encoder.encode_add(1, KEY, 1, bytes(size_max + 1))
        with pytest.raises(LocalProtocolError, match=f"{size_max + 1} bytes .* above {size_max}: .* raise netty"):
            encoder.encode_adds(1, KEY, [1], [bytes(size_max + 1)])
        encoder.encode_adds(1, KEY, [1], [bytes(encoder.copy_size_max)], recovery=True)
        with pytest.raises(LocalProtocolError, match=f"above {encoder.copy_size_max}"):
            encoder.encode_adds(1, KEY, [1], [bytes(encoder.copy_size_max + 1)], recovery=True)


# --- every size near the limit, every operation, version and digest --------------------------------------------------


class Bookie:
    """The codec of a bookie with one entry."""

    def __init__(self) -> None:
        self.body = b""

    def add(self, data: bytes) -> None:
        (batch,) = self._received(data)
        assert isinstance(batch, AddBatch)
        (self.body,) = batch.bodies

    def answer(self, request: bytes, explicit_lac: bytes) -> bytes:
        codec = ServerCodec(SMALL_LIMIT)
        (asked,) = self._received(request)
        if isinstance(asked, ReadBatch):
            return b"".join(codec.read_replies(asked, [self.body], lac_of(self.body)))
        return codec.reply(
            asked,
            Status.OK,
            body=self.body,
            bodies=[self.body],
            max_lac=lac_of(self.body),
            lac_update_ms=2**62,
            explicit_lac=explicit_lac,
            last_entry=self.body,
        )

    @staticmethod
    def _received(data: bytes) -> Sequence[Request]:
        codec = ServerCodec(SMALL_LIMIT)
        requests = codec.receive(data)
        assert codec.error is None, codec.error
        return requests


def plain_read(version: Version) -> bytes:
    return request_encoder(version, SMALL_LIMIT).encode_reads(LEDGER_ID, [ENTRY_ID])[1]


def fencing_read(version: Version) -> bytes:
    return request_encoder(version, SMALL_LIMIT).encode_fence_reads(LEDGER_ID, [LAST_ENTRY], KEY)[1]


def batch_read(version: Version) -> bytes:
    return v2_encoder(SMALL_LIMIT).encode_batch_read(LEDGER_ID, ENTRY_ID, 1, SMALL_LIMIT)[1]


def long_poll(version: Version) -> bytes:
    return v3_encoder(SMALL_LIMIT).encode_long_poll(LEDGER_ID, ENTRY_ID - 1, 1000)[1]


def lac_read(version: Version) -> bytes:
    return v3_encoder(SMALL_LIMIT).encode_read_lac(LEDGER_ID)[1]


READS: list[tuple[Callable[[Version], bytes], Version]] = [
    (plain_read, 2),
    (plain_read, 3),
    (fencing_read, 2),
    (fencing_read, 3),
    (batch_read, 2),
    (long_poll, 3),
    (lac_read, 3),
]


def body_in(answer: bytes, version: Version) -> bytes | None:
    decoder = response_decoder(version, SMALL_LIMIT)
    responses = decoder.receive(answer)
    assert decoder.error is None, decoder.error
    match responses:
        case [ReadBodies() as found]:
            return found.bodies[0]
        case [BatchReadReply() as batch]:
            return bytes(batch.bodies[0])
        case [ReadLacReply() as lac]:
            return lac.last_entry
        case [LongPollReply() as poll]:
            return poll.body
    return None


def add_by(encoder: RequestEncoder, body: bytes, *, recovery: bool = False) -> bytes:
    return encoder.encode_adds(LEDGER_ID, KEY, [ENTRY_ID], [body], recovery=recovery)[1][0]


@pytest.mark.parametrize("digest", [digest_of(kind, b"password") for kind in DigestType], ids=lambda one: one.type.name)
@pytest.mark.parametrize("writer", [2, 3])
def test_every_accepted_size_is_read_and_copied_by_every_version(writer: Version, digest: Digest) -> None:
    """Sizes from 200 bytes below the limit up to what earlier releases let a v2 writer send."""
    new, explicit_lac, first = request_encoder(writer, SMALL_LIMIT), digest.package_lac(LEDGER_ID, 1), Bookie()
    accepted_max = 0
    for size in range(SMALL_LIMIT - 200, SMALL_LIMIT - V2_ADD_AROUND + 1):
        payload = b"x" * (size - digest.overhead)
        body = digest.package_entry(LEDGER_ID, ENTRY_ID, 2**62, 2**62, payload)
        if size <= entry_body_size_max(SMALL_LIMIT):
            first.add(add_by(new, body))
            accepted_max = size
        else:
            with pytest.raises(LocalProtocolError):
                add_by(new, body)
            first.body = body  # an earlier release wrote it
        for ask, version in READS:
            answer = first.answer(ask(version), explicit_lac)
            if size <= accepted_max:
                assert len(answer) <= SMALL_LIMIT  # an Apache client can read it too
            found = body_in(answer, version)
            assert found is not None
            assert digest.verify(LEDGER_ID, [ENTRY_ID], [found]) == [payload]
        for encoder in (request_encoder(2, SMALL_LIMIT), request_encoder(3, SMALL_LIMIT)):
            chosen = encoder if len(body) <= encoder.copy_size_max else v2_encoder(SMALL_LIMIT)
            copy, frame = Bookie(), add_by(chosen, body, recovery=True)
            assert len(frame) <= SMALL_LIMIT  # an Apache bookie accepts it too
            copy.add(frame)
            assert copy.body == body
    assert accepted_max == entry_body_size_max(SMALL_LIMIT)
