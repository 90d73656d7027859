"""Long polls, batch reads, forces and lists of entries on connections: bytes in, bytes out, and whom they hold up."""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.bookie.connections import dispatch
from bookkeeper.model import Status
from bookkeeper.serving.admission import ConnectionBounds
from bookkeeper.wire import v2
from bookkeeper.wire.availability import decode_availability
from bookkeeper.wire.codec import v3_encoder
from bookkeeper.wire.messages import (
    AddAcks,
    BatchReadReply,
    ForceReply,
    ListEntriesReply,
    LongPollReply,
    ReadBodies,
    ReadFailed,
    StartTlsReply,
)
from tests.support.bookie_connections import FRAME_SIZE_MAX, MemoryTransport, ServiceBench, answers, read_frames
from tests.support.bookie_fakes import KEY, body_of


class Peer:
    """A v3 client of ledger 7 in few words."""

    def __init__(self, bench: ServiceBench, *, room: int | None = None) -> None:
        self.transport = bench.connect(room=room)
        self._encoder = v3_encoder()

    def send(self, frames: bytes) -> None:
        self.transport.connection.dataReceived(frames)

    def poll(self, previous_lac: int, timeout_ms: int = 1000) -> bytes:
        return self._encoder.encode_long_poll(7, previous_lac, timeout_ms)[1]

    def read(self, entry_id: int) -> bytes:
        return self._encoder.encode_reads(7, [entry_id])[1]

    def force(self) -> bytes:
        return self._encoder.encode_force(7)[1]

    def list_entries(self) -> bytes:
        return self._encoder.encode_list_entries(7)[1]

    def start_tls(self) -> bytes:
        return self._encoder.encode_start_tls()[1]

    def add(self, entry_id: int, *, deferred: bool = False) -> bytes:
        frames = self._encoder.encode_adds(7, KEY, [entry_id], [body_of(7, entry_id)], deferred_sync=deferred)[1]
        return b"".join(frames)

    def answers(self) -> list[Any]:
        return answers(self.transport, 3)


def bench_with_ledger(*, bounds: ConnectionBounds | None = None, payload: bytes = b"payload") -> ServiceBench:
    """Ledger 7 with entries 0 to 4, the LAC known to be 3."""
    bench = ServiceBench(bounds=bounds)
    bench.add([0, 1, 2, 3, 4], lac=3, payload=payload)
    bench.finish()
    return bench


def batch_read(transport: MemoryTransport, first: int, count: int, size: int = 1 << 20) -> None:
    transport.connection.dataReceived(v2.RequestEncoder(FRAME_SIZE_MAX).encode_batch_read(7, first, count, size)[1])


# --- long polls


def test_a_waiting_long_poll_holds_nothing_else_up() -> None:
    bench = bench_with_ledger()
    peer = Peer(bench)
    peer.send(b"".join([peer.poll(3) for _ in range(600)]))  # more than a slice of reads
    peer.send(peer.read(0) + peer.read(1) + peer.force())
    bench.finish()
    assert [type(answer) for answer in peer.answers()] == [ReadBodies, ForceReply]
    assert peer.transport.reading
    bench.add([5], lac=4)
    bench.turn()
    bench.clock.advance(0)
    bench.turn()
    bench.clock.advance(0)
    bench.finish()
    told = [answer for answer in peer.answers() if isinstance(answer, ReadBodies) and answer.entry_ids[0] == 4]
    assert sum(len(answer.entry_ids) for answer in told) == 600


def test_a_long_poll_that_is_woken_names_the_entry_it_brings() -> None:
    bench = bench_with_ledger()
    peer = Peer(bench)
    peer.send(peer.poll(3))
    bench.add([5], lac=4)
    bench.turn()
    bench.turn()
    assert peer.answers() == [ReadBodies(7, [4], [body_of(7, 4, lac=3)], 4, [1])]


def test_a_long_poll_whose_time_is_over_is_answered_without_an_entry() -> None:
    bench = bench_with_ledger()
    peer = Peer(bench)
    peer.send(peer.poll(3, 500))
    bench.clock.advance(0.5)
    bench.turn()
    assert peer.answers() == [LongPollReply(7, -1, None, 3, 1)]


def test_long_polls_of_one_connection_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "LONG_POLLS_MAX", 2)
    bench = bench_with_ledger()
    peer, other = Peer(bench), Peer(bench)
    peer.send(peer.poll(3) + peer.poll(3) + peer.poll(3))
    other.send(other.poll(3))
    bench.turn()
    assert peer.answers() == [ReadFailed(7, -1, Status.TOO_MANY_REQUESTS, 3)]
    assert other.answers() == []
    bench.clock.advance(1)
    bench.turn()
    assert len(peer.answers()) == 3
    peer.send(peer.poll(3))
    bench.turn()
    assert len(peer.answers()) == 3  # there is room again


def test_a_lost_connection_leaves_no_long_poll_behind() -> None:
    bench = bench_with_ledger()
    peer = Peer(bench)
    peer.send(peer.poll(3) + peer.poll(9))
    bench.storage.cold_ledgers.add(7)
    peer.send(peer.poll(3))  # still to be loaded when the connection goes
    assert bench.bookie.in_flight == 3
    peer.transport.connection.connectionLost(None)
    bench.worker.run_all()
    assert bench.bookie.in_flight == 0
    assert [call for call in bench.clock.getDelayedCalls() if call.active()] == []


def test_a_connection_that_ends_after_bad_bytes_does_not_wait_for_its_long_polls() -> None:
    bench = bench_with_ledger()
    peer = Peer(bench)
    peer.send(peer.poll(3))
    peer.send(b"\xff" * 20)
    bench.turn()
    assert peer.transport.closed
    peer.transport.connection.connectionLost(None)
    assert bench.bookie.in_flight == 0


def test_a_peer_that_takes_no_answers_gets_its_long_polls_answered_without_entries() -> None:
    """What is unsent stays bounded however many long polls one add wakes."""
    bounds = ConnectionBounds(unsent_bytes_max=20_000, unsent_bytes_low=10_000)
    bench = bench_with_ledger(bounds=bounds, payload=b"x" * 8000)
    peer = Peer(bench, room=0)
    peer.send(b"".join([peer.poll(3) for _ in range(100)]))
    bench.add([5], lac=4)
    bench.turn()
    bench.turn()
    assert peer.transport.unsent < 20_000 + 9000 + 100 * 64
    peer.transport.drain(1 << 20)
    bench.finish()
    found = peer.answers()
    assert sum(len(one.entry_ids) if isinstance(one, ReadBodies) else 1 for one in found) == 100
    assert {one.max_lac for one in found} == {4}


def test_a_cold_long_poll_that_begins_to_wait_lets_the_reads_behind_it_go() -> None:
    bench = bench_with_ledger()
    peer = Peer(bench)
    bench.storage.cold_ledgers.add(7)
    peer.send(b"".join([peer.poll(3) for _ in range(16)]) + peer.read(0))  # the first slice is 16
    assert peer.answers() == []
    bench.worker.run_all()
    bench.turn()
    assert [answer.entry_ids for answer in peer.answers()] == [[0]]


def test_a_stop_sends_the_answers_of_long_polls() -> None:
    bench = bench_with_ledger()
    peer = Peer(bench)
    peer.send(peer.poll(3))
    bench.service.stop()
    bench.bookie.stop()
    bench.turn()
    assert peer.answers() == [LongPollReply(7, -1, None, 3, 1)]


# --- the rest


def test_a_batch_read_is_one_frame() -> None:
    bench = bench_with_ledger()
    transport = bench.connect()
    batch_read(transport, 1, 3)
    bench.turn()
    bodies = tuple(body_of(7, entry_id, lac=3) for entry_id in (1, 2, 3))
    assert answers(transport) == [BatchReadReply(7, 1, Status.OK, bodies, 1)]
    assert transport.writes == 1
    batch_read(transport, 9, 3)
    bench.turn()
    assert answers(transport)[-1].status is Status.NO_ENTRY


def test_a_batch_read_never_passes_the_frame_bound() -> None:
    """Not even with its first entry: an entry of the longest add is refused, and a plain read brings it."""
    longest = FRAME_SIZE_MAX - 24 - 32
    bench = bench_with_ledger(payload=b"x" * longest)
    transport = bench.connect()
    batch_read(transport, 0, 5)
    bench.turn()
    assert answers(transport) == [BatchReadReply(7, 0, Status.BAD_REQUEST, (), 1)]
    transport.connection.dataReceived(read_frames([0]))
    bench.turn()
    assert len(answers(transport)[-1].bodies[0]) == longest + 32
    other = bench_with_ledger(payload=b"x" * 20_000)
    peer = other.connect()
    batch_read(peer, 0, 5)
    other.turn()
    assert len(answers(peer)[0].bodies) == 3
    assert len(peer.sent) <= FRAME_SIZE_MAX + 4


def test_batch_reads_of_a_peer_that_takes_nothing_are_looked_up_one_at_a_time() -> None:
    bench = bench_with_ledger(bounds=ConnectionBounds(unsent_bytes_max=10_000), payload=b"x" * 8000)
    transport = bench.connect(room=0)
    encoder = v2.RequestEncoder(FRAME_SIZE_MAX)
    transport.connection.dataReceived(b"".join([encoder.encode_batch_read(7, 0, 5, 1 << 20)[1] for _ in range(50)]))
    bench.turn()
    assert transport.unsent < 3 * 41_000
    assert not transport.reading
    for _ in range(60):
        transport.drain(50_000)
        bench.turn()
    assert len(answers(transport)) == 50


def test_cold_batch_reads_of_one_connection_come_one_after_the_other() -> None:
    bench = bench_with_ledger()
    transport = bench.connect()
    bench.storage.cold_entries.update((7, entry_id) for entry_id in range(5))
    encoder = v2.RequestEncoder(FRAME_SIZE_MAX)
    transport.connection.dataReceived(b"".join([encoder.encode_batch_read(7, 0, 5, 1 << 20)[1] for _ in range(3)]))
    for done in range(3):
        assert len(bench.worker.queue) == 1
        assert len(answers(transport)) == done
        bench.finish()
    assert [len(answer.bodies) for answer in answers(transport)] == [5, 5, 5]


def test_forces_and_deferred_adds_on_a_connection() -> None:
    bench = bench_with_ledger()
    peer = Peer(bench)
    peer.send(peer.add(5, deferred=True) + peer.force())
    bench.journal.write()
    bench.turn()
    assert peer.answers() == [AddAcks(7, [5], [1])]
    bench.journal.sync()
    bench.turn()
    assert peer.answers()[1:] == [ForceReply(7, Status.OK, 2)]


def test_a_list_of_entries_on_a_connection() -> None:
    bench = bench_with_ledger()
    peer = Peer(bench)
    peer.send(peer.list_entries())
    bench.finish()
    (reply,) = peer.answers()
    assert isinstance(reply, ListEntriesReply)
    assert reply.status is Status.OK
    assert reply.availability is not None
    assert decode_availability(reply.availability) == [range(5)]


def test_a_list_of_entries_that_fits_no_frame_is_an_error() -> None:
    bench = bench_with_ledger()
    bench.add(list(range(6, 6 + 2 * 3000, 2)))
    bench.finish()
    peer = Peer(bench)
    peer.send(peer.list_entries())
    bench.finish()
    assert peer.answers() == [ListEntriesReply(7, Status.IO_ERROR, None, 1)]


def test_tls_is_refused_where_it_is_not_configured() -> None:
    bench = ServiceBench()
    peer = Peer(bench)
    peer.send(peer.start_tls())
    bench.turn()
    assert peer.answers() == [StartTlsReply(Status.BAD_REQUEST, 1)]
