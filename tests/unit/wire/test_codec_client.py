"""The client's side of a connection: limits, request ids, and answers that are not what they should be."""

from __future__ import annotations

import struct
from typing import Literal

import pytest

from bookkeeper.errors import LocalProtocolError
from bookkeeper.model import Status
from bookkeeper.wire.codec import ServerCodec, request_encoder, response_decoder, v3_encoder
from bookkeeper.wire.framing import ANSWER_ALLOWANCE
from bookkeeper.wire.messages import (
    AddAcks,
    AddBatch,
    AddFailed,
    AuthReply,
    GenericFailure,
    MixedAddAcks,
    Operation,
    ReadBatch,
    ReadBodies,
    ReadFailed,
)
from bookkeeper.wire.proto import BookkeeperProtocol_pb2 as pb

KEY = bytes(range(20))


def frame(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def body_of(ledger_id: int, entry_id: int, size: int = 40) -> bytes:
    return struct.pack(">qqqq", ledger_id, entry_id, -1, 0).ljust(size, b".")


@pytest.mark.parametrize("version", [2, 3])
def test_the_largest_body_fits_a_frame_both_ways(version: Literal[2, 3]) -> None:
    """Apache's limit counts the four bytes of the length field, so no frame may exceed the limit with them."""
    limit = 1000
    encoder, codec = request_encoder(version, limit), ServerCodec(limit)
    entry_id = 2**62
    body = body_of(2**62, entry_id, encoder.body_size_max)
    _, (add,) = encoder.encode_adds(2**62, KEY, [entry_id], [body], recovery=True, high_priority=True)
    assert len(add) <= limit
    (batch,) = codec.receive(add)
    assert isinstance(batch, AddBatch)
    (read,) = codec.receive(encoder.encode_reads(2**62, [entry_id])[1])
    assert isinstance(read, ReadBatch)
    answer = b"".join(codec.read_replies(read, [body], 2**62))
    assert len(answer) <= limit
    (found,) = response_decoder(version, limit).receive(answer)
    assert isinstance(found, ReadBodies)
    assert found.bodies == [body]
    with pytest.raises(LocalProtocolError, match="nettyMaxFrameSizeBytes"):
        encoder.encode_adds(2**62, KEY, [entry_id], [body + b"x"])


@pytest.mark.parametrize("version", [2, 3])
def test_a_key_of_another_size_is_our_own_bug(version: Literal[2, 3]) -> None:
    encoder = request_encoder(version)
    with pytest.raises(LocalProtocolError, match="master key"):
        encoder.encode_adds(1, b"short", [1], [body_of(1, 1)])
    with pytest.raises(LocalProtocolError, match="master key"):
        encoder.encode_fence_reads(1, [1], b"")


def test_v3_request_ids_count_from_one_through_all_operations() -> None:
    encoder = v3_encoder()
    assert encoder.encode_adds(1, KEY, [1, 2], [body_of(1, 1), body_of(1, 2)])[0] == 1
    assert encoder.encode_reads(1, [1, 2, 3])[0] == 3
    assert encoder.encode_read_lac(1)[0] == 6
    assert encoder.encode_fence_reads(1, [-1], KEY)[0] == 7
    assert encoder.encode_auth("p", b"")[0] == 8


def test_a_fencing_read_is_never_completed_by_the_answer_of_a_plain_one() -> None:
    """On v3 the request ids tell them apart although ledger and entry are the same."""
    encoder, codec, decoder = request_encoder(3), ServerCodec(), response_decoder(3)
    plain_id, plain = encoder.encode_reads(1, [5])
    fence_id, fence = encoder.encode_fence_reads(1, [5], KEY)
    read, fencing = codec.receive(plain + fence)
    assert isinstance(read, ReadBatch)
    answers = decoder.receive(codec.reply(fencing, Status.NO_ENTRY) + b"".join(codec.read_replies(read, [b"x"])))
    assert answers == [ReadFailed(1, 5, Status.NO_ENTRY, fence_id), ReadBodies(1, [5], [b"x"], None, [plain_id])]


def test_a_failed_read_of_4_2_3_repeats_its_ids_which_are_ignored() -> None:
    ids = struct.pack(">qq", 1, 2)
    answer = frame(b"\2\2\0\0" + struct.pack(">i", 2) + ids + ids)
    assert response_decoder(2).receive(answer + answer) == [ReadFailed(1, 2, Status.NO_ENTRY, None)] * 2


def test_an_acknowledgement_with_trailing_bytes_does_not_break_the_run() -> None:
    plain = frame(b"\2\1\0\0" + struct.pack(">iqq", 0, 1, 2))
    longer = frame(b"\2\1\0\0" + struct.pack(">iqq", 0, 1, 3) + b"tail")
    assert response_decoder(2).receive(plain + longer + longer + plain) == [AddAcks(1, [2, 3, 3, 2], None)]


def test_v2_authentication_answer() -> None:
    answer = bytes.fromhex("0000001a020300000a124175746844697361626c6564506c7567696e1200")
    assert response_decoder(2).receive(answer) == [AuthReply(Status.OK, "AuthDisabledPlugin", b"", None)]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(b"\2\1\0"), id="no header"),
        pytest.param(frame(b"\2\4\0\0" + bytes(20)), id="unknown opcode"),
        pytest.param(frame(b"\2\1\0\0" + bytes(19)), id="short add answer"),
        pytest.param(frame(b"\2\7\0\0" + bytes(27)), id="short batch read answer"),
        pytest.param(frame(b"\2\7\0\0" + bytes(28) + b"\0\0\0\7body"), id="batch read entry beyond the frame"),
        pytest.param(frame(b"\2\7\0\0" + bytes(28) + b"\xff\xff\xff\xff"), id="batch read entry of negative size"),
        pytest.param(frame(b"\2\7\0\0" + bytes(28) + b"\0\0"), id="batch read entry without its size"),
        pytest.param(struct.pack(">i", 0), id="empty frame"),
        pytest.param(struct.pack(">i", 1001 + ANSWER_ALLOWANCE), id="oversized frame"),
    ],
)
def test_v2_violations_end_the_connection_after_what_came_before(data: bytes) -> None:
    good = frame(b"\2\1\0\0" + struct.pack(">iqq", 0, 1, 2))
    decoder = response_decoder(2, 1000)
    assert decoder.receive(good + data + good) == [AddAcks(1, [2], None)]
    assert decoder.error is not None
    assert decoder.receive(good) == []


def v3_response(operation: int, status: int) -> pb.Response:
    response = pb.Response(status=status)  # type: ignore[arg-type]
    header = response.header
    header.version, header.operation, header.txnId = pb.VERSION_THREE, operation, 4  # type: ignore[assignment]
    return response


def test_the_outer_status_wins_unless_it_is_ok() -> None:
    outer, inner = v3_response(pb.ADD_ENTRY, pb.EUA), v3_response(pb.ADD_ENTRY, pb.EOK)
    for response, status in ((outer, pb.EOK), (inner, pb.EFENCED)):
        response.addResponse.status, response.addResponse.ledgerId, response.addResponse.entryId = status, 1, 2
    data = frame(outer.SerializeToString()) + frame(inner.SerializeToString())
    assert response_decoder(3).receive(data) == [
        AddFailed(1, 2, Status.UNAUTHORIZED, 4),
        AddFailed(1, 2, Status.FENCED, 4),
    ]


def test_a_refusal_without_inner_message_names_its_request() -> None:
    data = frame(v3_response(pb.READ_ENTRY, pb.EUA).SerializeToString())
    assert response_decoder(3).receive(data) == [GenericFailure(Operation.READ, Status.UNAUTHORIZED, 4)]


def test_an_unknown_v3_status_is_no_verdict() -> None:
    raw = v3_response(pb.READ_ENTRY, pb.EOK).SerializeToString().replace(b"\x10\x00", b"\x10\xe7\x07")
    assert response_decoder(3).receive(frame(raw)) == [GenericFailure(Operation.READ, Status.IO_ERROR, 4)]


def test_an_unknown_inner_status_is_no_verdict() -> None:
    response = v3_response(pb.ADD_ENTRY, pb.EOK)
    response.addResponse.status, response.addResponse.ledgerId, response.addResponse.entryId = pb.EUA, 1, 2
    raw = response.SerializeToString().replace(b"\x08\xf6\x03", b"\x08\xe7\x07")
    assert response_decoder(3).receive(frame(raw)) == [AddFailed(1, 2, Status.IO_ERROR, 4)]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xff\xff", id="garbage"),
        pytest.param(b"\x02\x01\x00\x00" + bytes(20), id="a v2 answer"),
        pytest.param(b"\x10\x00", id="no header"),
        pytest.param(v3_response(pb.ADD_ENTRY, pb.EOK).SerializeToString(), id="OK without an answer"),
        pytest.param(v3_response(pb.RANGE_READ_ENTRY, pb.EOK).SerializeToString(), id="OK to what we never asked"),
    ],
)
def test_v3_violations_end_the_connection(data: bytes) -> None:
    decoder = response_decoder(3)
    assert decoder.receive(frame(data)) == []
    assert decoder.error is not None


@pytest.mark.parametrize("version", [2, 3])
def test_one_add_is_encoded_as_in_a_batch(version: Literal[2, 3]) -> None:
    alone, batches = request_encoder(version, 1000), request_encoder(version, 1000)
    for ledger_id, entry_id, size, key in (
        (1, 0, 40, KEY),
        (2, 300, 40, KEY),
        (2, 301, 50, KEY),
        (3, 0, 50, KEY[::-1]),
    ):
        body = body_of(ledger_id, entry_id, size)
        assert [alone.encode_add(ledger_id, key, entry_id, body)] == batches.encode_adds(
            ledger_id, key, [entry_id], [body]
        )[1]
    with pytest.raises(LocalProtocolError, match="nettyMaxFrameSizeBytes"):
        alone.encode_add(1, KEY, 0, bytes(alone.body_size_max + 1))
    with pytest.raises(LocalProtocolError, match="20"):
        alone.encode_add(1, KEY[1:], 0, body_of(1, 0))


def test_acknowledgements_of_many_ledgers_are_pairs_up_to_the_first_other_answer() -> None:
    def ack(ledger_id: int, entry_id: int, code: int = 0) -> bytes:
        return frame(b"\2\1\0\0" + struct.pack(">iqq", code, ledger_id, entry_id))

    stream = ack(1, 5) + ack(2, 7) + ack(2, 8) + ack(1, 6) + ack(3, 0, 104) + ack(1, 7) + ack(1, 8) + ack(2, 9)
    assert response_decoder(2).receive(stream) == [
        MixedAddAcks([(1, 5), (2, 7), (2, 8), (1, 6)]),
        AddFailed(3, 0, Status.FENCED, None),
        AddAcks(1, [7, 8], None),
        AddAcks(2, [9], None),
    ]
    for cut in range(len(stream)):
        decoder = response_decoder(2)
        answers = decoder.receive(stream[:cut]) + decoder.receive(stream[cut:])
        entry_ids = [
            i for a in answers for i in (a.entry_ids if isinstance(a, AddAcks | MixedAddAcks) else [a.entry_id])
        ]  # type: ignore[union-attr]
        assert entry_ids == [5, 7, 8, 6, 0, 7, 8, 9]
