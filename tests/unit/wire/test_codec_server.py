"""The bookie's side of a connection: detection of the version, refusals, and what ends a connection."""

from __future__ import annotations

import ast
import importlib.util
import struct
from pathlib import Path
from typing import Literal

import pytest
from google.protobuf.message import Message

from bookkeeper.model import Status
from bookkeeper.wire.codec import ServerCodec, request_encoder, response_decoder, v3_encoder
from bookkeeper.wire.framing import SMALL_FRAME_MAX, request_size_max
from bookkeeper.wire.messages import (
    REQUESTS_AT_ONCE,
    AddAcks,
    AddBatch,
    AddFailed,
    Auth,
    AuthReply,
    BatchRead,
    BatchReadReply,
    BookieInfo,
    BookieInfoReply,
    FenceRead,
    ForceLedger,
    GenericFailure,
    ListEntries,
    LongPollRead,
    Malformed,
    Operation,
    ReadBatch,
    ReadBodies,
    ReadFailed,
    ReadLac,
    ReadLacReply,
    Request,
    StartTlsReply,
    WriteLac,
    WriteLacReply,
)
from bookkeeper.wire.proto import BookkeeperProtocol_pb2 as pb

KEY = bytes(range(20))
LIMIT = 1000
RECEIVED_MAX = request_size_max(LIMIT)


def body_of(ledger_id: int, entry_id: int, lac: int = -1, rest: bytes = b"rest") -> bytes:
    return struct.pack(">qqqq", ledger_id, entry_id, lac, 0) + rest


def frame(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


def v2_add(ledger_id: int, entry_id: int, *, version: int = 2, flags: int = 0) -> bytes:
    return frame(bytes((version, 1, 0, flags)) + KEY + body_of(ledger_id, entry_id))


def v2_read(ledger_id: int, entry_id: int, *, version: int = 2, flags: int = 0, rest: bytes = b"") -> bytes:
    return frame(bytes((version, 2, 0, flags)) + struct.pack(">qq", ledger_id, entry_id) + rest)


def v3_request(operation: int = 1, *, version: int = 3, txn_id: int = 9) -> pb.Request:
    request = pb.Request()
    request.header.version, request.header.operation = version, operation  # type: ignore[assignment]
    request.header.txnId = txn_id
    return request


def v3_add(ledger_id: int, entry_id: int, body: bytes | None = None, key: bytes = KEY) -> pb.Request:
    request = v3_request(pb.ADD_ENTRY)
    add = request.addRequest
    add.ledgerId, add.entryId, add.masterKey = ledger_id, entry_id, key
    add.body = body_of(ledger_id, entry_id) if body is None else body
    return request


def one(codec: ServerCodec, data: bytes | pb.Request) -> Request:
    (request,) = codec.receive(frame(data.SerializeToString()) if isinstance(data, pb.Request) else data)
    assert codec.error is None
    return request


def v3_answer(data: bytes) -> pb.Response:
    assert struct.unpack_from(">i", data)[0] == len(data) - 4
    return pb.Response.FromString(data[4:])


# --- which version --------------------------------------------------------------------------------------------------


def test_a_v2_packet_makes_the_connection_v2_for_good() -> None:
    codec = ServerCodec()
    assert isinstance(one(codec, v2_add(1, 2)), AddBatch)
    assert codec.version == 2
    assert codec.receive(frame(v3_add(1, 3).SerializeToString())) == []
    assert codec.error is not None


def test_a_connection_may_turn_from_v3_to_v2_and_answers_each_request_in_its_version() -> None:
    codec = ServerCodec()
    v3_frame = frame(v3_add(1, 2).SerializeToString())
    first, second = codec.receive(v3_frame + v2_add(1, 3))
    assert isinstance(first, AddBatch)
    assert isinstance(second, AddBatch)
    assert codec.version == 2
    assert response_decoder(3).receive(codec.add_replies([first], Status.OK)) == [AddAcks(1, [2], [9])]
    assert response_decoder(2).receive(codec.add_replies([second], Status.OK)) == [AddAcks(1, [3], None)]


def test_a_v3_request_split_after_its_length_is_still_v3() -> None:
    codec = ServerCodec()
    data = frame(v3_add(1, 2).SerializeToString())
    assert codec.receive(data[:4]) == []
    assert len(codec.receive(data[4:])) == 1
    assert codec.version == 3


def test_fields_in_another_order_are_still_v3() -> None:
    whole = v3_add(1, 2)
    header, rest = pb.Request(), pb.Request()
    header.header.CopyFrom(whole.header)
    rest.addRequest.CopyFrom(whole.addRequest)
    codec = ServerCodec()
    swapped = rest.SerializePartialToString() + header.SerializePartialToString()
    assert isinstance(one(codec, frame(swapped)), AddBatch)


def test_a_v2_process_never_loads_protobuf() -> None:
    """Follow the imports that run when `codec` is imported; function-level ones do not count."""
    todo, seen = ["bookkeeper.wire.codec"], set()
    while todo:
        name = todo.pop()
        spec = importlib.util.find_spec(name)
        if name in seen or spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            continue
        seen.add(name)
        for node in ast.parse(Path(spec.origin).read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bookkeeper"):
                todo.append(node.module)
                if node.module == "bookkeeper.wire":
                    todo += [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom | ast.Import):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                assert not any(str(imported).startswith("google") for imported in names), name
    assert "bookkeeper.wire.v2_server" in seen
    assert not seen & {"bookkeeper.wire.v3", "bookkeeper.wire.v3_server"}


# --- v2: refused but answered ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "operation", "status"),
    [
        (v2_add(-5, 1), Operation.ADD, Status.BAD_REQUEST),
        (v2_add(1, -1), Operation.ADD, Status.BAD_REQUEST),
        (v2_add(1, -0x1000), Operation.ADD, Status.BAD_REQUEST),
        (v2_add(1, 1, version=3), Operation.ADD, Status.BAD_VERSION),
        (v2_add(1, 1, version=0xFF), Operation.ADD, Status.BAD_VERSION),
        (frame(b"\2\1\0\0" + KEY + body_of(1, 2)[:31]), Operation.ADD, Status.BAD_REQUEST),
        (v2_read(1, -2), Operation.READ, Status.BAD_REQUEST),
        (v2_read(-5, 1), Operation.READ, Status.BAD_REQUEST),
        (v2_read(-5, 1, flags=1, rest=KEY), Operation.READ, Status.BAD_REQUEST),
        (v2_read(1, 1, version=9), Operation.READ, Status.BAD_VERSION),
    ],
)
def test_v2_refusals_echo_ids_and_version_and_the_connection_goes_on(
    data: bytes, operation: Operation, status: Status
) -> None:
    codec = ServerCodec()
    refused = one(codec, v2_add(7, 8)), one(codec, data)
    malformed = refused[1]
    assert isinstance(malformed, Malformed)
    assert (malformed.operation, malformed.status) == (operation, status)
    assert malformed.reason
    answer = codec.reply(malformed, malformed.status)
    assert answer[4:6] == data[4:6]  # version and opcode
    failed = AddFailed if operation is Operation.ADD else ReadFailed
    assert response_decoder(2).receive(answer) == [failed(malformed.ledger_id, malformed.entry_id, status, None)]
    assert isinstance(one(codec, v2_add(7, 9)), AddBatch)


def test_v2_batch_read_refusal_repeats_the_request_id() -> None:
    codec = ServerCodec()
    request = one(codec, frame(b"\2\7\0\0" + struct.pack(">qqqiq", -1, 0, 77, 1, 1)))
    assert isinstance(request, Malformed)
    answer = codec.reply(request, request.status)
    assert response_decoder(2).receive(answer) == [BatchReadReply(-1, 0, Status.BAD_REQUEST, (), 77)]


@pytest.mark.parametrize("version", [0, 1])
def test_old_packet_versions_are_served_and_echoed(version: int) -> None:
    add_header, read_header = (bytes((0, 0, 0, op)) if version == 0 else bytes((1, op, 0, 0)) for op in (1, 2))
    codec = ServerCodec()
    add = one(codec, frame(add_header + KEY + body_of(1, 2)))
    read = one(codec, frame(read_header + struct.pack(">qq", 1, 2)))
    assert isinstance(add, AddBatch)
    assert isinstance(read, ReadBatch)
    acks, bodies = codec.add_replies([add], Status.OK), b"".join(codec.read_replies(read, [b"body"]))
    assert acks[4:8] == add_header
    assert bodies[4:8] == read_header
    assert response_decoder(2).receive(acks + bodies) == [
        AddAcks(1, [2], None),
        ReadBodies(1, [2], [b"body"], None, None),
    ]


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (v2_read(1, -1, flags=1, rest=KEY), KEY),
        (v2_read(1, -1, flags=1), None),
        (v2_read(1, -1, flags=1, rest=KEY[:19]), None),
        (v2_read(1, -1, flags=1, version=1, rest=KEY), None),
    ],
)
def test_a_fence_without_a_usable_key_is_passed_on_without_one(data: bytes, key: bytes | None) -> None:
    codec = ServerCodec()
    request = one(codec, data)
    assert isinstance(request, FenceRead)
    assert request.master_key == key
    refused = codec.reply(request, Status.UNAUTHORIZED, body=b"never sent")
    assert response_decoder(2).receive(refused) == [ReadFailed(1, -1, Status.UNAUTHORIZED, None)]
    found = codec.reply(request, Status.OK, body=b"body")
    assert response_decoder(2).receive(found) == [ReadBodies(1, [-1], [b"body"], None, None)]


def test_a_key_without_the_fencing_flag_is_ignored() -> None:
    request = one(ServerCodec(), v2_read(1, 4, rest=KEY))
    assert isinstance(request, ReadBatch)


def test_v2_batch_read_with_fence() -> None:
    tail = struct.pack(">qqqiq", 1, 2, 3, 4, 5)
    fenced, bare = ServerCodec().receive(frame(b"\2\7\0\1" + tail + KEY) + frame(b"\2\7\0\1" + tail))
    assert isinstance(fenced, BatchRead)
    assert isinstance(bare, BatchRead)
    assert (fenced.fence, fenced.master_key) == (True, KEY)
    assert (bare.fence, bare.master_key) == (True, None)


def test_a_refused_v2_handshake_has_no_answer() -> None:
    codec = ServerCodec()
    request = one(codec, request_encoder(2).encode_auth("plugin", b"\1")[1])
    assert codec.reply(request, Status.UNAUTHORIZED) == b""


# --- v2: the end of the connection ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(b"\2\4\0\0" + bytes(40)), id="READ_LAC exists in v3 only"),
        pytest.param(frame(b"\2\x63\0\0" + bytes(40)), id="unknown opcode"),
        pytest.param(frame(b"\2\1\0"), id="no header"),
        pytest.param(frame(b"\2\1\0\0" + KEY + bytes(15)), id="add without ids"),
        pytest.param(frame(b"\2\2\0\0" + bytes(15)), id="read without ids"),
        pytest.param(frame(b"\2\7\0\0" + bytes(35)), id="short batch read"),
        pytest.param(frame(b"\2\3\0\0\xff"), id="authentication that does not parse"),
        pytest.param(frame(b"\2\3\0\0\x0a\0"), id="authentication without payload"),
        pytest.param(struct.pack(">i", 0), id="empty frame"),
        pytest.param(struct.pack(">i", -7), id="negative length"),
        pytest.param(struct.pack(">i", RECEIVED_MAX + 1), id="oversized frame"),
    ],
)
@pytest.mark.parametrize("after", [b"", v2_add(1, 2)])
def test_violations_end_the_connection_after_what_came_before(data: bytes, after: bytes) -> None:
    codec = ServerCodec(LIMIT)
    (before,) = codec.receive(v2_add(1, 1) + data + after)
    assert isinstance(before, AddBatch)
    assert before.entry_ids == [1]
    assert codec.error is not None
    assert codec.buffered == 0
    assert codec.receive(v2_add(1, 3)) == []


@pytest.mark.parametrize("length", [0, -1, RECEIVED_MAX + 1, 0x474554 << 8])
def test_a_bad_length_in_the_first_bytes_ends_the_connection(length: int) -> None:
    codec = ServerCodec(LIMIT)
    assert codec.receive(struct.pack(">i", length)) == []
    assert codec.error is not None


# --- v3: refused but answered ---------------------------------------------------------------------------------------


def _wrong_ledger() -> pb.Request:
    return v3_add(1, 2, body_of(3, 2))


def _read(ledger_id: int, entry_id: int) -> pb.Request:
    request = v3_request()
    request.readRequest.ledgerId, request.readRequest.entryId = ledger_id, entry_id
    return request


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (v3_add(-1, 2), Status.BAD_REQUEST),
        (v3_add(1, -2), Status.BAD_REQUEST),
        (_wrong_ledger(), Status.BAD_REQUEST),
        (v3_add(1, 2, body_of(1, 3)), Status.BAD_REQUEST),
        (v3_add(1, 2, body_of(1, 2)[:31]), Status.BAD_REQUEST),
        (v3_add(1, 2, key=b"short"), Status.BAD_REQUEST),
        (_read(1, -2), Status.BAD_REQUEST),
        (_read(-1, 2), Status.BAD_REQUEST),
    ],
)
def test_v3_refusals_echo_the_ids(request_: pb.Request, status: Status) -> None:
    codec = ServerCodec()
    refused = one(codec, request_)
    assert isinstance(refused, Malformed)
    assert refused.status is status
    answers = response_decoder(3).receive(codec.reply(refused, refused.status))
    failed = AddFailed if refused.operation is Operation.ADD else ReadFailed
    assert answers == [failed(refused.ledger_id, refused.entry_id, status, 9)]
    assert isinstance(one(codec, v3_add(1, 2)), AddBatch)


@pytest.mark.parametrize(
    ("operation", "named"),
    [
        (pb.ADD_ENTRY, Operation.ADD),
        (pb.READ_ENTRY, Operation.READ),
        (pb.AUTH, Operation.AUTH),
        (pb.READ_LAC, Operation.READ_LAC),
        (pb.WRITE_LAC, Operation.WRITE_LAC),
        (pb.GET_BOOKIE_INFO, Operation.BOOKIE_INFO),
        (pb.START_TLS, Operation.START_TLS),
        (pb.FORCE_LEDGER, Operation.FORCE),
        (pb.GET_LIST_OF_ENTRIES_OF_LEDGER, Operation.LIST_ENTRIES),
        (pb.BATCH_READ_ENTRY, Operation.BATCH_READ),
        (pb.RANGE_READ_ENTRY, Operation.UNKNOWN),
    ],
)
def test_an_operation_without_its_message_is_refused_with_its_header(operation: int, named: Operation) -> None:
    codec = ServerCodec()
    request = v3_request(operation)
    request.header.priority = 100
    refused = one(codec, request)
    assert isinstance(refused, Malformed)
    assert (refused.operation, refused.status) == (named, Status.BAD_REQUEST)
    reply = codec.reply(refused, refused.status)
    assert v3_answer(reply) == pb.Response(header=request.header, status=pb.EBADREQ)
    start_tls = named is Operation.START_TLS
    failure = StartTlsReply(Status.BAD_REQUEST, 9) if start_tls else GenericFailure(named, Status.BAD_REQUEST, 9)
    assert response_decoder(3).receive(reply) == [failure]


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"\x08\x03\x10\x63\x18\x09", Status.BAD_REQUEST),  # operation 99
        (b"\x08\x09\x10\x02\x18\x09", Status.BAD_VERSION),  # version 9
        (b"\x08\x01\x10\x02\x18\x09", Status.BAD_VERSION),
    ],
)
def test_unknown_numbers_in_the_header_are_refused_and_copied_back(header: bytes, status: Status) -> None:
    codec = ServerCodec()
    refused = one(codec, frame(b"\x0a\x06" + header))
    assert isinstance(refused, Malformed)
    assert refused.status is status
    answer = codec.reply(refused, refused.status)
    copied = v3_answer(answer)
    assert copied.header.txnId == 9
    assert sorted(copied.header.SerializePartialToString()) == sorted(header)
    assert codec.version == 3
    assert isinstance(one(codec, v3_add(1, 2)), AddBatch)


def test_an_answer_copies_no_unknown_field_of_a_header() -> None:
    codec = ServerCodec()
    known = v3_request(pb.READ_LAC)
    later = b"\xf8\x01\x07" * 30  # field 31
    for header in (known.header.SerializeToString(), b"\x08\x03\x10\x63\x18\x09"):
        padded = header + later
        request = one(codec, frame(bytes((0x0A, len(padded))) + padded))
        for answer in (codec.reply(request, Status.BAD_REQUEST), codec.unauthorized(request)):
            assert len(answer) == 4 + 2 + len(header) + 3  # length, header, status


def holds_a_message(request: Request) -> bool:
    """Return whether a request refers to a protobuf message, which keeps the whole frame in memory."""
    left: list[object] = [request]
    while left:
        value = left.pop()
        if isinstance(value, Message):
            return True
        if isinstance(value, Request):
            left += [getattr(value, name) for name in value.__slots__]
        elif isinstance(value, list | tuple):
            left += value
    return False


def v3_frames() -> list[bytes]:
    """Return frames of every kind of request except adds, and of malformed requests."""
    encoder = v3_encoder()
    return [
        encoder.encode_reads(1, [2])[1],
        encoder.encode_fence_reads(1, [2], KEY)[1],
        encoder.encode_auth("plugin", b"payload")[1],
        encoder.encode_read_lac(1)[1],
        encoder.encode_long_poll(1, 2, 1000)[1],
        encoder.encode_force(1)[1],
        encoder.encode_list_entries(1)[1],
        encoder.encode_start_tls()[1],
        encoder.encode_write_lac(1, 2, KEY, struct.pack(">qq", 1, 2))[1],
        encoder.encode_bookie_info()[1],
        encoder.encode_read_lac(-1)[1],
        frame(v3_request().SerializeToString()),
        frame(b"\x0a\x06\x08\x03\x10\x63\x18\x09"),
    ]


def padding(size: int) -> bytes:
    """Return an unknown field of a request, with `size` bytes of content."""
    return b"\xba\x3e" + v3_request(txn_id=size).header.SerializeToString()[5:] + bytes(size)


def test_no_v3_request_refers_to_its_frame() -> None:
    for data in v3_frames():
        assert not holds_a_message(one(ServerCodec(), frame(data[4:] + padding(60_000))))


def test_only_adds_are_large() -> None:
    body = body_of(1, 2, rest=bytes(5_000_000))
    add = v3_add(1, 2, body)
    add.header.priority = 100
    add.addRequest.writeFlags, add.addRequest.flag = 1, pb.AddRequest.RECOVERY_ADD
    add.requestContext.add(key="topic", value="t" * 1000)
    batch = one(ServerCodec(), add)
    assert isinstance(batch, AddBatch)
    assert batch.bodies == [body]
    padded = [frame(data[4:] + padding(SMALL_FRAME_MAX)) for data in v3_frames()]
    padded.append(frame(add.SerializeToString() + padding(SMALL_FRAME_MAX)))
    add.addRequest.ClearField("body")
    padded.append(frame(add.SerializePartialToString() + bytes((0xAA, 6, 4)) + b"\x22\x02ab" * 20_000))
    for data in padded:
        codec = ServerCodec()
        assert codec.receive(v3_frames()[0] + data)[1:] == []
        assert "only adds may be larger" in str(codec.error)


def test_a_large_v2_handshake_ends_the_connection() -> None:
    codec = ServerCodec()
    assert codec.receive(request_encoder(2).encode_auth("plugin", bytes(SMALL_FRAME_MAX))[1]) == []
    assert codec.error is not None


@pytest.mark.parametrize(
    "data", [v2_read(1, 2) + v2_read(2, 2), frame(b"\x0a\x06\x08\x03\x10\x63\x18\x09") * 2], ids=["v2", "v3"]
)
def test_many_requests_of_a_chunk_are_decoded_in_slices(data: bytes) -> None:
    codec, cut = ServerCodec(), 5
    found = [codec.receive(data * 1500 + data[:cut])]
    while codec.pending:
        assert codec.buffered == 0
        found.append(codec.receive(b""))
    assert [len(each) for each in found] == [REQUESTS_AT_ONCE, REQUESTS_AT_ONCE, 3000 - 2 * REQUESTS_AT_ONCE]
    assert codec.buffered == cut
    assert [request for each in found for request in each] == ServerCodec().receive(data) * 1500
    assert len(codec.receive(data[cut:])) == 2
    codec.receive(data * 1500)
    assert codec.receive(data * 1500)  # before the pending requests were decoded
    codec.drop_pending()
    assert codec.receive(b"") == []


def test_write_lac_refuses_a_packet_of_another_ledger() -> None:
    encoder, codec = v3_encoder(), ServerCodec()
    good, bad_ledger, short, negative = (
        one(codec, encoder.encode_write_lac(ledger_id, 5, KEY, packet)[1])
        for ledger_id, packet in (
            (1, struct.pack(">qq", 1, 5)),
            (1, struct.pack(">qq", 2, 5)),
            (1, bytes(15)),
            (-1, struct.pack(">qq", -1, 5)),
        )
    )
    assert isinstance(good, WriteLac)
    assert (good.ledger_id, good.master_key, good.body) == (1, KEY, struct.pack(">qq", 1, 5))
    for refused in (bad_ledger, short, negative):
        assert isinstance(refused, Malformed)
        assert not holds_a_message(refused)
        (answer,) = response_decoder(3).receive(codec.reply(refused, refused.status))
        assert isinstance(answer, WriteLacReply)
        assert answer.status is Status.BAD_REQUEST


def test_write_lac_takes_the_lac_of_the_packet_when_the_field_is_behind_it() -> None:
    """Apache's client packages the LAC after it has set the field; its bookie never reads the field."""
    packet = struct.pack(">qq", 1, 6)
    request = one(ServerCodec(), v3_encoder().encode_write_lac(1, 5, KEY, packet)[1])
    assert isinstance(request, WriteLac)
    assert request.body == packet


# --- v3: everything else --------------------------------------------------------------------------------------------


def test_flags_and_priority_of_a_v3_add() -> None:
    request = v3_add(1, 2)
    request.addRequest.flag, request.addRequest.writeFlags, request.header.priority = pb.AddRequest.RECOVERY_ADD, 1, 100
    batch = one(ServerCodec(), request)
    assert isinstance(batch, AddBatch)
    assert (batch.recovery, batch.deferred_sync, batch.high_priority) == (True, True, True)


def test_a_fence_wins_over_a_long_poll() -> None:
    request = _read(1, 5)
    request.readRequest.previousLAC, request.readRequest.flag = 4, pb.ReadRequest.FENCE_LEDGER
    fence = one(ServerCodec(), request)
    assert isinstance(fence, FenceRead)
    assert fence.master_key is None


def test_previous_lac_makes_a_read_a_long_poll() -> None:
    request = _read(1, -1)
    request.readRequest.flag = pb.ReadRequest.ENTRY_PIGGYBACK
    codec = ServerCodec()
    plain = one(codec, request)
    assert isinstance(plain, ReadBatch)
    request.readRequest.previousLAC, request.readRequest.timeOut = 4, 0
    poll = one(codec, request)
    assert isinstance(poll, LongPollRead)
    assert (poll.entry_id, poll.previous_lac, poll.timeout_ms, poll.piggyback) == (-1, 4, 0, True)
    answer = v3_answer(codec.reply(poll, Status.OK, body=b"b", max_lac=6, lac_update_ms=99)).readResponse
    assert (answer.body, answer.maxLAC, answer.lacUpdateTimestamp) == (b"b", 6, 99)


def test_v3_requests_and_their_answers() -> None:
    encoder, codec, decoder = v3_encoder(), ServerCodec(), response_decoder(3)
    lac, info, auth, fence = (
        one(codec, data)
        for _, data in (
            encoder.encode_read_lac(5),
            encoder.encode_bookie_info(total=False),
            encoder.encode_auth("p", b"\1"),
            encoder.encode_fence_reads(5, [6], KEY, high_priority=True),
        )
    )
    assert isinstance(lac, ReadLac)
    assert isinstance(info, BookieInfo)
    assert isinstance(auth, Auth)
    assert isinstance(fence, FenceRead)
    assert (lac.ledger_id, info.free, info.total, auth.plugin, auth.payload) == (5, True, False, "p", b"\1")
    assert fence.high_priority
    assert decoder.receive(
        codec.reply(lac, Status.OK, explicit_lac=b"x", last_entry=b"y")
        + codec.reply(lac, Status.NO_ENTRY)
        + codec.reply(info, Status.OK, free_bytes=10)
        + codec.reply(auth, Status.OK, plugin="p", payload=b"\2")
        + codec.reply(auth, Status.UNAUTHORIZED)
        + codec.reply(fence, Status.OK, body=b"z")
        + codec.reply(fence, Status.FENCED, body=b"not sent")
    ) == [
        ReadLacReply(5, Status.OK, b"x", b"y", 1),
        ReadLacReply(5, Status.NO_ENTRY, None, None, 1),
        BookieInfoReply(Status.OK, None, 10, 2),
        AuthReply(Status.OK, "p", b"\2", 3),
        GenericFailure(Operation.AUTH, Status.UNAUTHORIZED, 3),
        ReadBodies(5, [6], [b"z"], None, [4]),
        ReadFailed(5, 6, Status.FENCED, 4),
    ]


def test_force_and_list_have_answers() -> None:
    codec = ServerCodec()
    request = v3_request(pb.FORCE_LEDGER)
    request.forceLedgerRequest.ledgerId = 5
    force = one(codec, request)
    assert isinstance(force, ForceLedger)
    assert v3_answer(codec.reply(force, Status.BAD_REQUEST)).forceLedgerResponse.status == pb.EBADREQ
    request = v3_request(pb.GET_LIST_OF_ENTRIES_OF_LEDGER)
    request.getListOfEntriesOfLedgerRequest.ledgerId = 5
    listing = one(codec, request)
    assert isinstance(listing, ListEntries)
    answer = v3_answer(codec.reply(listing, Status.OK, availability=b"bits")).getListOfEntriesOfLedgerResponse
    assert (answer.ledgerId, answer.availabilityOfEntriesOfLedger) == (5, b"bits")


@pytest.mark.parametrize("version", [2, 3])
def test_one_status_answers_a_whole_batch(version: Literal[2, 3]) -> None:
    encoder, codec, decoder = request_encoder(version), ServerCodec(), response_decoder(version)
    adds = one(codec, b"".join(encoder.encode_adds(1, KEY, [1, 2], [body_of(1, 1), body_of(1, 2)])[1]))
    reads = one(codec, encoder.encode_reads(1, [1, 2])[1])
    answers = decoder.receive(codec.reply(adds, Status.READ_ONLY) + codec.reply(reads, Status.TOO_MANY_REQUESTS))
    ids = [None] * 4 if version == 2 else [1, 2, 3, 4]
    assert answers == [
        AddFailed(1, 1, Status.READ_ONLY, ids[0]),
        AddFailed(1, 2, Status.READ_ONLY, ids[1]),
        ReadFailed(1, 1, Status.TOO_MANY_REQUESTS, ids[2]),
        ReadFailed(1, 2, Status.TOO_MANY_REQUESTS, ids[3]),
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_found_and_missing_entries_are_answered_one_by_one(version: Literal[2, 3]) -> None:
    encoder, codec, decoder = request_encoder(version), ServerCodec(), response_decoder(version)
    reads = one(codec, encoder.encode_reads(1, [5, 6, 7])[1])
    assert isinstance(reads, ReadBatch)
    answers = decoder.receive(b"".join(codec.read_replies(reads, [b"five", Status.NO_ENTRY, b"seven"], 4)))
    lac = None if version == 2 else 4
    found_id, missing_id, last_id = (None, None, None) if version == 2 else ([1], 2, [3])
    assert answers == [
        ReadBodies(1, [5], [b"five"], lac, found_id),
        ReadFailed(1, 6, Status.NO_ENTRY, missing_id),
        ReadBodies(1, [7], [b"seven"], lac, last_id),
    ]
