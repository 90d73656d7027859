"""Connections of a bookie: what bytes do to it, what comes back, and what it takes at most (issue: bad input).

A real `Bookie` over fake storage and journal, real codecs, a transport in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from bookkeeper.bookie.bookie import BookieBounds
from bookkeeper.bookie.endpoint import READ_SLICE_FIRST, BookieService, Connection, ConnectionBounds
from bookkeeper.filesystem import DiskUsage
from bookkeeper.model import Status
from bookkeeper.wire.codec import request_encoder, response_decoder, v3_encoder
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
from tests.support.bookie_fakes import KEY, OTHER_KEY, BookieBench, body_of, lac_packet

FRAME_SIZE_MAX = 64 * 1024
BUFFER_SIZE = 64 * 1024


class MemoryTransport:
    """What a connection writes, and the pressure of a peer that may read slowly.

    room: bytes the peer takes before the transport counts as full; None: any number.
    """

    def __init__(self, connection: Connection, *, room: int | None = None) -> None:
        self.connection = connection
        self.room = room
        self.sent = bytearray()
        self.writes = 0
        self.reading = True
        self.closed = False
        self.aborted = False
        self._unsent = bytearray()
        self._producer: Any = None
        self._producer_paused = False
        connection.makeConnection(self)

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes += 1
        self._unsent += data
        self._move()
        if self._producer is not None and len(self._unsent) > BUFFER_SIZE and not self._producer_paused:
            self._producer_paused = True
            self._producer.pauseProducing()

    def writeSequence(self, parts: Sequence[bytes]) -> None:
        self.write(b"".join(parts))

    def drain(self, room: int) -> None:
        """The peer reads on."""
        assert self.room is not None
        self.room += room
        self._move()
        if not self._unsent and self._producer_paused:
            self._producer_paused = False
            self._producer.resumeProducing()

    def _move(self) -> None:
        size = len(self._unsent) if self.room is None else min(self.room, len(self._unsent))
        self.sent += self._unsent[:size]
        del self._unsent[:size]
        if self.room is not None:
            self.room -= size

    @property
    def unsent(self) -> int:
        return len(self._unsent)

    def loseConnection(self) -> None:
        self.closed = True

    def abortConnection(self) -> None:
        self.aborted = True

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        self.reading = True

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        assert streaming
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None

    def getPeer(self) -> str:
        return "memory"


class ServiceBench(BookieBench):
    """A bookie bench with connections. `turn` lets scheduled calls run."""

    def __init__(self, *, bounds: ConnectionBounds | None = None, bookie_bounds: BookieBounds | None = None) -> None:
        super().__init__(bounds=bookie_bounds)
        self.service = BookieService(
            self.bookie,
            self.clock,
            lambda: DiskUsage(total=1000, free=250),
            bounds or ConnectionBounds(),
            frame_size_max=FRAME_SIZE_MAX,
            metrics=self.metrics,
        )

    def connect(self, *, room: int | None = None) -> MemoryTransport:
        return MemoryTransport(self.service.accept(), room=room)

    def turn(self) -> None:
        self.clock.advance(0)

    def finish(self) -> None:
        """Everything asked is done and answered."""
        self.settle()
        self.turn()


def answers(transport: MemoryTransport, version: int = 2) -> list[Any]:
    decoder = response_decoder(3 if version == 3 else 2)
    found = decoder.receive(bytes(transport.sent))
    assert decoder.error is None
    assert decoder.buffered == 0
    return list(found)


def add_frames(
    entry_ids: Sequence[int], *, ledger_id: int = 7, version: int = 2, key: bytes = KEY, payload: bytes = b"payload"
) -> bytes:
    encoder = request_encoder(3 if version == 3 else 2)
    bodies = [body_of(ledger_id, entry_id, payload) for entry_id in entry_ids]
    return b"".join(encoder.encode_adds(ledger_id, key, list(entry_ids), bodies)[1])


def read_frames(entry_ids: Sequence[int], *, ledger_id: int = 7, version: int = 2) -> bytes:
    return request_encoder(3 if version == 3 else 2).encode_reads(ledger_id, list(entry_ids))[1]


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def assert_others_are_served(bench: ServiceBench) -> None:
    """Another client's add on the same server succeeds, and nothing is left of the first one's bytes."""
    other = bench.connect()
    other.connection.dataReceived(add_frames([0], ledger_id=99))
    bench.finish()
    assert answers(other) == [AddAcks(99, [0], None)]
    assert bench.service.partial_bytes == 0
    assert bench.exits == []


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


# --- bad input ----------------------------------------------------------------------------------------------------


def v2_packet(opcode: int, rest: bytes, *, version: int = 2, flags: int = 0) -> bytes:
    return framed(struct.pack(">BBH", version, opcode, flags) + rest)


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
    "oversized frame": struct.pack(">i", FRAME_SIZE_MAX + 1) + b"x" * 100,
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
    assert bench.service.partial_bytes == 60
    assert answers(transport) == []
    transport.connection.dataReceived(frame[60:])
    assert bench.service.partial_bytes == 0
    transport.connection.dataReceived(frame[:60])
    transport.connection.connectionLost(None)
    assert_others_are_served(bench)


def test_incomplete_frames_of_all_connections_together_are_bounded() -> None:
    """Whoever does not go on with his frame has to go, and not whoever sends one just now."""
    bench = ServiceBench(bounds=ConnectionBounds(received_bytes_max=100_000))
    large = struct.pack(">i", FRAME_SIZE_MAX) + b"\x02\x01\x00\x00" + b"x" * 40_000
    transports = [bench.connect() for _ in range(4)]
    for transport in transports:
        transport.connection.dataReceived(large)
        transports[0].connection.dataReceived(b"x")  # slow, but it goes on
        assert bench.service.partial_bytes <= 100_000
    assert [transport.closed for transport in transports] == [False, True, True, False]
    for transport in transports:
        transport.connection.connectionLost(None)
    assert bench.service.partial_bytes == 0
    assert_others_are_served(bench)


def test_requests_that_wait_for_the_journal_are_bounded_over_all_connections() -> None:
    """Each connection may hold a frame of the largest size; all of them together must not."""
    bounds = ConnectionBounds(received_bytes_max=200_000)
    bench = ServiceBench(bounds=bounds, bookie_bounds=BookieBounds(journal_bytes_max=1000))
    bench.add([0], ledger_id=98, payload=b"z" * 2000)
    assert bench.bookie.congested
    transports = [bench.connect() for _ in range(20)]
    frame = add_frames([0], payload=b"z" * 40_000)
    taken = 0
    for transport in transports:
        for at in range(0, len(frame), 1000):
            if transport.reading:
                transport.connection.dataReceived(frame[at : at + 1000])
                taken += 1000
    assert bench.service.inbox_bytes + bench.service.partial_bytes <= 200_000 + 20 * 1000
    assert taken < len(frame) * 20 // 2
    for _ in range(10):  # the journal takes one of these at a time
        bench.finish()
        bench.clock.advance(0.1)
    bench.finish()
    assert all(transport.reading for transport in transports)
    assert bench.service.inbox_bytes == 0
    for transport in transports:
        transport.connection.connectionLost(None)
    assert_others_are_served(bench)


def test_fencing_reads_hold_no_more_bodies_than_other_reads_while_their_fence_is_not_durable() -> None:
    bench = ServiceBench()
    bench.add(range(100), payload=b"z" * 4000)
    bench.settle()
    looked_up: list[int] = []
    read = bench.storage.read

    def counting(ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status | None]:
        looked_up.extend(entry_ids)
        return read(ledger_id, entry_ids)

    bench.storage.read = counting  # type: ignore[method-assign]
    transport = bench.connect()
    transport.connection.dataReceived(request_encoder(2).encode_fence_reads(7, range(100), KEY)[1])
    bench.turn()
    assert len(looked_up) == READ_SLICE_FIRST
    for _ in range(20):
        bench.finish()
    assert sum(len(found.entry_ids) for found in answers(transport)) == 100


def test_the_size_of_a_look_up_is_learnt_anew_for_each_ledger() -> None:
    """Small entries of one ledger say nothing about those of the next."""
    bench = ServiceBench()
    bench.add(range(600), payload=b"s")
    bench.settle()
    bench.add(range(600), ledger_id=8, payload=b"z" * 60_000)
    bench.settle()
    sizes: list[int] = []
    read = bench.storage.read

    def counting(ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Status | None]:
        found = read(ledger_id, entry_ids)
        sizes.append(sum(len(body) for body in found if isinstance(body, bytes)))
        return found

    bench.storage.read = counting  # type: ignore[method-assign]
    transport = bench.connect()
    transport.connection.dataReceived(read_frames(range(600)) + read_frames(range(600), ledger_id=8))
    for _ in range(500):
        bench.turn()
    assert max(sizes) <= READ_SLICE_FIRST * 60_100
    assert sum(len(found.entry_ids) for found in answers(transport)) == 1200


def test_connections_are_bounded() -> None:
    bench = ServiceBench(bounds=ConnectionBounds(connections_max=2))
    transports = [bench.connect() for _ in range(3)]
    assert [transport.aborted for transport in transports] == [False, False, True]
    transports[2].connection.dataReceived(add_frames([0]))
    assert bench.storage.entries == {}
    transports[0].connection.connectionLost(None)
    transports[1].connection.connectionLost(None)
    assert_others_are_served(bench)


# --- holding back -------------------------------------------------------------------------------------------------


def test_a_client_that_does_not_read_its_answers_is_held_back_and_then_closed() -> None:
    bounds = ConnectionBounds(unsent_bytes_max=100_000, unsent_bytes_low=50_000, stall_timeout_s=60.0)
    bench = ServiceBench(bounds=bounds)
    bench.add(range(200), payload=b"z" * 4000)
    bench.settle()
    transport = bench.connect(room=0)
    for _ in range(20):
        transport.connection.dataReceived(read_frames(range(200)))
        bench.turn()
        if not transport.reading:
            break
    assert not transport.reading
    held = transport.unsent
    assert held <= 100_000 + 100_000 + BUFFER_SIZE  # the bound, one slice above it, and what the transport may hold
    bench.clock.advance(59.0)
    assert not transport.aborted
    bench.clock.advance(2.0)
    assert transport.aborted
    transport.connection.connectionLost(None)
    assert_others_are_served(bench)


def test_a_client_that_reads_slowly_gets_everything_in_the_end() -> None:
    bounds = ConnectionBounds(unsent_bytes_max=100_000, unsent_bytes_low=50_000, stall_timeout_s=60.0)
    bench = ServiceBench(bounds=bounds)
    bench.add(range(200), payload=b"z" * 4000)
    bench.settle()
    transport = bench.connect(room=0)
    transport.connection.dataReceived(read_frames(range(200)))
    peak = 0
    for _ in range(2000):
        bench.turn()
        peak = max(peak, transport.unsent)
        if len(transport.sent) >= 200 * (4032 + 28):
            break
        transport.drain(5_000)
        bench.clock.advance(1.0)  # slower than the stall timeout in all, but never stalled
    assert [entry for batch in answers(transport) for entry in batch.entry_ids] == list(range(200))
    assert peak <= 100_000 + 100_000 + BUFFER_SIZE
    assert transport.reading
    assert not transport.aborted


def test_adds_wait_while_the_journal_is_behind_and_reads_of_others_do_not() -> None:
    bench = ServiceBench(bookie_bounds=BookieBounds(journal_bytes_max=1000))
    writer, reader = bench.connect(), bench.connect()
    writer.connection.dataReceived(add_frames(range(50)))
    writer.connection.dataReceived(add_frames(range(50, 60)))
    assert not writer.reading
    assert bench.storage.last_entry_id(7) == 49
    reader.connection.dataReceived(read_frames([0]))
    bench.turn()
    assert [answer.entry_ids for answer in answers(reader)] == [[0]]
    bench.finish()
    assert writer.reading
    bench.finish()
    assert [entry for ack in answers(writer) for entry in ack.entry_ids] == list(range(60))


def test_full_write_buffers_hold_adds_back_until_they_drain() -> None:
    bench = ServiceBench()
    transport = bench.connect()
    bench.storage.is_full = True
    transport.connection.dataReceived(add_frames([0]))
    assert not transport.reading
    bench.clock.advance(1.0)
    assert bench.storage.entries == {}
    bench.storage.is_full = False
    bench.clock.advance(0.01)
    bench.finish()
    assert transport.reading
    assert answers(transport) == [AddAcks(7, [0], None)]


def test_cold_reads_of_one_connection_are_looked_up_slice_by_slice() -> None:
    bench = ServiceBench()
    bench.add(range(100))
    bench.settle()
    bench.storage.cold_entries |= {(7, entry_id) for entry_id in range(100)}
    transport = bench.connect()
    transport.connection.dataReceived(read_frames(range(100)))
    assert len(bench.worker.queue) == 1
    assert not transport.reading
    while bench.worker.queue:
        bench.worker.run_next()
        bench.turn()
    assert [entry for batch in answers(transport) for entry in batch.entry_ids] == list(range(100))
    assert transport.reading


# --- ends ---------------------------------------------------------------------------------------------------------


def test_what_a_lost_connection_asked_for_is_still_done() -> None:
    bench = ServiceBench()
    transport = bench.connect()
    transport.connection.dataReceived(add_frames([0]))
    transport.connection.connectionLost(None)
    bench.finish()
    assert (7, 0) in [struct.unpack_from(">qq", record) for record in bench.journal.durable]
    assert transport.sent == b""
    assert bench.bookie.in_flight == 0


def test_after_a_failure_nothing_is_answered_by_anybody() -> None:
    bench = ServiceBench()
    writer, reader = bench.connect(), bench.connect()
    writer.connection.dataReceived(add_frames([0]))
    bench.journal.fail(OSError(5, "Input/output error"))
    reader.connection.dataReceived(read_frames([5], ledger_id=12345) + request_encoder(2).encode_auth("p", b"")[1])
    bench.finish()
    assert (writer.sent, reader.sent) == (b"", b"")  # I-48: no negative answer either
    bench.service.abort()
    assert writer.aborted
    assert reader.aborted


def test_a_stopping_service_answers_what_it_took_and_closes() -> None:
    bench = ServiceBench()
    transport = bench.connect()
    transport.connection.dataReceived(add_frames([0]))
    bench.service.stop()
    transport.connection.dataReceived(add_frames([1]))
    bench.finish()
    bench.service.close()
    assert answers(transport) == [AddAcks(7, [0], None)]
    assert transport.closed
    assert not transport.reading
    assert bench.storage.last_entry_id(7) == 0
    late = bench.connect()
    assert late.aborted


def test_a_client_that_never_takes_the_last_answers_is_aborted_in_the_end() -> None:
    bench = ServiceBench(bounds=ConnectionBounds(stall_timeout_s=30.0))
    transport = bench.connect(room=0)
    transport.connection.dataReceived(add_frames([0]) + BROKEN["garbage"])
    bench.finish()
    assert transport.closed
    bench.clock.advance(31.0)
    assert transport.aborted


def test_frames_cut_anywhere_give_the_same_answers() -> None:
    data = add_frames(range(3)) + read_frames([0, 9]) + v2_packet(1, KEY + body_of(7, -1)) + add_frames([3])
    expected = None
    for cut in range(1, len(data)):
        bench = ServiceBench()
        transport = bench.connect()
        transport.connection.dataReceived(data[:cut])
        transport.connection.dataReceived(data[cut:])
        bench.finish()
        found = sorted(repr((type(a).__name__, getattr(a, "status", None))) for a in answers(transport))
        acked = [entry for a in answers(transport) if isinstance(a, AddAcks) for entry in a.entry_ids]
        assert acked == [0, 1, 2, 3]
        expected = expected or set(found)
        assert set(found) == expected
