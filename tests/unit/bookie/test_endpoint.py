"""Connections of a bookie: what bytes do to it, what comes back, and what it takes at most (issue: bad input).

A real `Bookie` over fake storage and journal, real codecs, a transport in memory.
"""

from __future__ import annotations

import struct

import pytest

from bookkeeper.bookie.connections.endpoint import DISPATCHED_AT_ONCE
from bookkeeper.model import Status
from bookkeeper.wire.codec import request_encoder, v3_encoder
from bookkeeper.wire.framing import request_size_max
from bookkeeper.wire.messages import (
    AddAcks,
    AddFailed,
    AuthReply,
    BookieInfoReply,
    GenericFailure,
    ReadBodies,
    ReadFailed,
    ReadLacReply,
    WriteLacReply,
)
from bookkeeper.wire.proto.BookkeeperProtocol_pb2 import Request
from tests.support.bookie_connections import (
    FRAME_SIZE_MAX,
    ServiceBench,
    add_frames,
    answers,
    assert_others_are_served,
    framed,
    read_frames,
    v2_packet,
)
from tests.support.bookie_fakes import KEY, OTHER_KEY, body_of, lac_packet

# --- answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_adds_are_acknowledged_after_the_sync_in_one_write(version: int) -> None:
    bench = ServiceBench()
    transport = bench.connect()
    for first in range(0, 100, 10):
        transport.connection.dataReceived(add_frames(range(first, first + 10), version=version))
    bench.turn()
    assert transport.sent == b""  # I-47
    bench.finish()
    assert [entry for ack in answers(transport, version) for entry in ack.entry_ids] == list(range(100))
    assert transport.writes == 1


def test_one_group_commit_is_one_write_for_each_connection() -> None:
    bench = ServiceBench()
    transports = [bench.connect() for _ in range(3)]
    for number, transport in enumerate(transports):
        transport.connection.dataReceived(add_frames(range(5), ledger_id=number))
        transport.connection.dataReceived(add_frames(range(5), ledger_id=number + 10))
    bench.finish()
    assert [transport.writes for transport in transports] == [1, 1, 1]


@pytest.mark.parametrize("version", [2, 3])
def test_reads_of_a_chunk_come_back_joined_and_in_order(version: int) -> None:
    bench = ServiceBench()
    bench.add(range(50), lac=10)
    transport = bench.connect()
    transport.connection.dataReceived(read_frames([*range(50), 77], version=version))
    bench.turn()
    *found, missing = answers(transport, version)
    assert [body for batch in found for body in batch.bodies] == [body_of(7, entry, lac=10) for entry in range(50)]
    assert isinstance(missing, ReadFailed)
    assert missing.status is Status.NO_ENTRY
    assert all(batch.max_lac == (10 if version == 3 else None) for batch in found)


def test_fencing_reads_answer_after_the_sync() -> None:
    bench = ServiceBench()
    bench.add([0])
    bench.settle()
    transport = bench.connect()
    transport.connection.dataReceived(request_encoder(2).encode_fence_reads(7, [-1], KEY)[1])
    bench.turn()
    assert transport.sent == b""  # I-23
    bench.finish()
    (answer,) = answers(transport)
    assert isinstance(answer, ReadBodies)
    assert answer.bodies == [body_of(7, 0)]


def test_lac_info_and_auth_are_served_over_v3() -> None:
    bench = ServiceBench()
    transport = bench.connect()
    encoder = v3_encoder()
    frames = [
        encoder.encode_write_lac(7, 5, KEY, lac_packet(7, 5)),
        encoder.encode_read_lac(7),
        encoder.encode_read_lac(8),
        encoder.encode_bookie_info(free=True, total=True),
        encoder.encode_auth("some.plugin", b"x"),
    ]
    transport.connection.dataReceived(frames[0][1])
    bench.finish()  # a LAC that is not durable yet is not served (I-07)
    transport.connection.dataReceived(b"".join(frame for _, frame in frames[1:]))
    bench.finish()
    ids = [request_id for request_id, _ in frames]
    by_id = {answer.request_id: answer for answer in answers(transport, 3)}
    assert by_id == {
        ids[0]: WriteLacReply(7, Status.OK, ids[0]),
        ids[1]: ReadLacReply(7, Status.OK, lac_packet(7, 5), None, ids[1]),
        ids[2]: ReadLacReply(8, Status.NO_ENTRY, None, None, ids[2]),
        ids[3]: BookieInfoReply(Status.OK, 1000, 250, ids[3]),
        ids[4]: AuthReply(Status.OK, "AuthDisabledPlugin", b"", ids[4]),
    }


def test_v2_auth_is_passed_through() -> None:
    bench = ServiceBench()
    transport = bench.connect()
    transport.connection.dataReceived(request_encoder(2).encode_auth("some.plugin", b"x")[1])
    bench.turn()
    assert [(answer.status, answer.plugin) for answer in answers(transport)] == [(Status.OK, "AuthDisabledPlugin")]


def test_a_flood_of_requests_is_served_in_turns_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,700 small requests that arrived in one read once took one reactor turn.

    Method: each read of the clock takes 1 ms.
    """
    bench = ServiceBench()
    bench.add([0])
    bench.settle()
    transport, other = bench.connect(), bench.connect()
    looked = 0

    def seconds() -> float:
        nonlocal looked
        looked += 1
        return looked / 1000

    monkeypatch.setattr(bench.clock, "seconds", seconds)
    frames = [read_frames([0]), read_frames([0], ledger_id=8)]  # two ledgers, so that no two reads are joined
    transport.connection.dataReceived(b"".join(frames) * 500)
    first = len(answers(transport))
    assert DISPATCHED_AT_ONCE <= first < 200
    assert not transport.reading
    other.connection.dataReceived(read_frames([0]))
    bench.turn()
    assert len(answers(other)) == 1
    for _ in range(1000):
        if transport.reading:
            break
        bench.turn()
    kinds = [type(answer) for answer in answers(transport)]
    assert kinds == [ReadBodies, ReadFailed] * 500


# --- bad input ----------------------------------------------------------------------------------------------------


def v3_add(ledger_id: int, entry_id: int, body: bytes, *, key: bytes = KEY) -> bytes:
    request = Request()
    request.header.version, request.header.operation, request.header.txnId = 3, 2, 9
    add = request.addRequest
    add.ledgerId, add.entryId, add.masterKey, add.body = ledger_id, entry_id, key, body
    return framed(request.SerializeToString())


def v3_operation(operation: int) -> bytes:
    """A request whose header names any operation, as a newer client would send it."""
    header = bytes([0x08, 3, 0x10, operation, 0x18, 9])
    return framed(bytes([0x0A, len(header)]) + header)


BROKEN = {
    "oversized frame": struct.pack(">i", request_size_max(FRAME_SIZE_MAX) + 1) + b"x" * 100,
    "zero-length frame": struct.pack(">i", 0),
    "negative length": struct.pack(">i", -5),
    "garbage": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "unknown v2 operation": v2_packet(9, struct.pack(">qq", 7, 0)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_bytes_close_the_connection_after_what_came_before_is_answered(name: str) -> None:
    bench = ServiceBench()
    transport = bench.connect()
    transport.connection.dataReceived(add_frames([0, 1]) + BROKEN[name])
    assert not transport.closed
    bench.finish()
    assert answers(transport) == [AddAcks(7, [0, 1], None)]
    assert transport.closed
    transport.connection.dataReceived(add_frames([2]))
    assert bench.storage.last_entry_id(7) == 1  # nothing is decoded after it
    transport.connection.connectionLost(None)
    assert_others_are_served(bench)
    assert bench.metrics.value("bookkeeper_server_PROTOCOL_ERRORS") == 1


REFUSED: dict[str, tuple[bytes, int, Status]] = {
    "wrong key": (add_frames([5], ledger_id=50, key=OTHER_KEY), 2, Status.UNAUTHORIZED),
    "negative entry id": (v2_packet(1, KEY + body_of(50, -1)), 2, Status.BAD_REQUEST),
    "master-key record as an entry": (v2_packet(1, KEY + body_of(50, -0x1000)), 2, Status.BAD_REQUEST),
    "negative ledger id": (v2_packet(1, KEY + body_of(-5, 0)), 2, Status.BAD_REQUEST),
    "fence of a negative ledger": (v2_packet(2, struct.pack(">qq", -5, -1) + KEY, flags=1), 2, Status.BAD_REQUEST),
    "fence without a key": (v2_packet(2, struct.pack(">qq", 50, -1), version=1, flags=1), 2, Status.UNAUTHORIZED),
    "newer protocol version": (v2_packet(2, struct.pack(">qq", 50, 0), version=2)[:4] + b"\x03\x02\x00\x00"
        + struct.pack(">qq", 50, 0), 2, Status.BAD_VERSION),
    "v3 negative entry id": (v3_add(50, -1, body_of(50, -1)), 3, Status.BAD_REQUEST),
    "v3 body of another ledger": (v3_add(50, 5, body_of(51, 5)), 3, Status.BAD_REQUEST),
    "v3 body of another entry": (v3_add(50, 5, body_of(50, 6)), 3, Status.BAD_REQUEST),
    "v3 body too short": (v3_add(50, 5, b"short"), 3, Status.BAD_REQUEST),
    "v3 unknown operation": (v3_operation(3), 3, Status.BAD_REQUEST),
    "v3 force, which is not served yet": (v3_operation(10), 3, Status.BAD_REQUEST),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_requests_are_answered_change_nothing_and_the_connection_goes_on(name: str) -> None:
    frame, version, status = REFUSED[name]
    bench = ServiceBench()
    bench.add([0], ledger_id=50)
    bench.settle()
    before = (dict(bench.storage.entries[50]), set(bench.storage.fenced), len(bench.journal.durable))
    transport = bench.connect()
    transport.connection.dataReceived(frame)
    bench.finish()
    found = answers(transport, version)
    assert [answer.status for answer in found] == [status]
    assert isinstance(found[0], AddFailed | ReadFailed | GenericFailure)
    assert before == (dict(bench.storage.entries[50]), set(bench.storage.fenced), len(bench.journal.durable))
    assert set(bench.storage.keys) == {50}
    transport.connection.dataReceived(add_frames([1], ledger_id=50, version=version))
    bench.finish()
    assert isinstance(answers(transport, version)[-1], AddAcks)
    assert_others_are_served(bench)


def test_half_a_frame_waits_and_is_forgotten_with_its_connection() -> None:
    bench = ServiceBench()
    transport = bench.connect()
    frame = add_frames([0])
    transport.connection.dataReceived(frame[:60])
    assert bench.service.admission.partial_bytes == 60
    assert answers(transport) == []
    transport.connection.dataReceived(frame[60:])
    assert bench.service.admission.partial_bytes == 0
    transport.connection.dataReceived(frame[:60])
    transport.connection.connectionLost(None)
    assert_others_are_served(bench)
