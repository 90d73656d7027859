"""What connections of a bookie take at most, and who is held back or closed beyond it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bookkeeper.bookie.bookie import BookieBounds
from bookkeeper.bookie.connections.endpoint import READ_SLICE_FIRST, REQUEST_COST
from bookkeeper.model import Status
from bookkeeper.serving.admission import ConnectionBounds
from bookkeeper.wire.codec import request_encoder
from bookkeeper.wire.messages import REQUESTS_AT_ONCE, AddAcks
from tests.support.bookie_connections import (
    BUFFER_SIZE,
    FRAME_SIZE_MAX,
    ServiceBench,
    add_frames,
    answers,
    assert_others_are_served,
    framed,
    read_frames,
    v2_packet,
)
from tests.support.bookie_fakes import KEY, body_of


def test_incomplete_frames_of_all_connections_together_are_bounded() -> None:
    """Whoever does not go on with his frame has to go, and not whoever sends one just now."""
    bench = ServiceBench(bounds=ConnectionBounds(received_bytes_max=100_000))
    large = struct.pack(">i", FRAME_SIZE_MAX) + b"\x02\x01\x00\x00" + b"x" * 40_000
    transports = [bench.connect() for _ in range(4)]
    for transport in transports:
        transport.connection.dataReceived(large)
        transports[0].connection.dataReceived(b"x")  # slow, but it goes on
        assert bench.service.admission.partial_bytes <= 100_000
    assert [transport.closed for transport in transports] == [False, True, True, False]
    for transport in transports:
        transport.connection.connectionLost(None)
    assert bench.service.admission.partial_bytes == 0
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
    assert bench.service.inbox_bytes + bench.service.admission.partial_bytes <= 200_000 + 20 * 1000
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


def test_a_client_gets_in_while_strangers_hold_all_their_places() -> None:
    bench = ServiceBench(bounds=ConnectionBounds(connections_max=8))
    strangers = [bench.connect() for _ in range(4)]
    strangers[1].connection.dataReceived(add_frames([0])[:20])
    client = bench.connect()
    assert [each.aborted for each in strangers] == [True, False, False, False]
    client.connection.dataReceived(add_frames([0], ledger_id=8))
    more = [bench.connect() for _ in range(40)]
    assert [each.aborted for each in more] == [True] * 36 + [False] * 4
    bench.finish()
    assert (answers(client), client.aborted) == ([AddAcks(8, [0], None)], False)
    assert len(bench.service.admission) == 5


def test_when_all_places_are_served_the_one_silent_for_longest_goes() -> None:
    bench = ServiceBench(bounds=ConnectionBounds(connections_max=3, evictable_s=10.0))
    clients = []
    for number in range(3):
        clients.append(bench.connect())
        clients[-1].connection.dataReceived(add_frames([number]))
        bench.finish()
    assert bench.connect().aborted  # none of them has been silent for long
    bench.clock.advance(11.0)
    clients[0].connection.dataReceived(add_frames([5]))
    bench.finish()
    assert not bench.connect().aborted
    assert [each.aborted for each in clients] == [False, True, False]


def test_a_connection_without_a_request_is_closed_after_its_time() -> None:
    bench = ServiceBench(bounds=ConnectionBounds(first_request_s=60.0))
    client, stranger, slow = bench.connect(), bench.connect(), bench.connect()
    client.connection.dataReceived(add_frames([0]))
    for at in range(59):
        slow.connection.dataReceived(add_frames([1])[at : at + 1])
        bench.clock.advance(1.0)
    assert [each.closed for each in (client, stranger, slow)] == [False, False, False]
    bench.clock.advance(1.5)
    assert [each.closed for each in (client, stranger, slow)] == [False, True, True]


def test_a_valid_request_behind_a_malformed_one_counts() -> None:
    bench = ServiceBench(bounds=ConnectionBounds(first_request_s=60.0))
    client, stranger = bench.connect(), bench.connect()
    malformed = v2_packet(1, KEY + body_of(50, -1))
    stranger.connection.dataReceived(malformed * 2)
    client.connection.dataReceived(malformed + add_frames([0]))
    bench.finish()
    bench.clock.advance(61.0)
    assert (client.closed, stranger.closed) == (False, True)


def test_a_silent_connection_is_closed_unless_it_waits_for_an_answer() -> None:
    bench = ServiceBench(bounds=ConnectionBounds(idle_s=20.0))
    bench.add(range(5), lac=3)
    bench.settle()
    silent, waiting = bench.connect(), bench.connect()
    silent.connection.dataReceived(read_frames([0]))
    waiting.connection.dataReceived(request_encoder(3).encode_long_poll(7, 3, 10_000_000)[1])
    bench.finish()
    bench.clock.advance(19.0)
    assert not silent.closed
    bench.clock.advance(22.0)
    assert (silent.closed, waiting.closed) == (True, False)


def test_answers_that_clients_do_not_take_are_bounded_over_all_connections() -> None:
    bounds = ConnectionBounds(unsent_bytes_max=100_000, unsent_bytes_low=50_000, untaken_bytes_max=600_000)
    bench = ServiceBench(bounds=bounds)
    bench.add(range(200), payload=b"z" * 4000)
    bench.settle()
    modest = bench.connect(room=200_000)
    modest.connection.dataReceived(read_frames(range(2)))
    transports = [bench.connect(room=0) for _ in range(20)]
    for transport in transports:
        for _ in range(20):
            if not transport.reading or transport.aborted:
                break
            transport.connection.dataReceived(read_frames(range(200)))
            bench.turn()
        for each in transports:
            if each.aborted:
                each.connection.connectionLost("aborted")
        assert bench.service.admission.untaken_bytes <= 600_000
    assert 10 < sum(each.aborted for each in transports) < 20
    assert not modest.aborted


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


def test_refused_requests_of_a_chunk_are_decoded_and_counted_in_slices() -> None:
    bench = ServiceBench()
    transport = bench.connect(room=0)
    unknown = framed(b"\x0a\x06\x08\x03\x10\x0a\x18\x09")  # a force without its message
    transport.connection.dataReceived(unknown * 40_000)
    bench.turn()
    assert not transport.reading
    size = REQUESTS_AT_ONCE * REQUEST_COST
    assert len(unknown) * 40_000 + size <= bench.service.inbox_bytes <= len(unknown) * 40_000 * REQUEST_COST
    transport.drain(1 << 30)
    for _ in range(100):
        bench.turn()
    assert (len(answers(transport, 3)), bench.service.inbox_bytes, transport.reading) == (40_000, 0, True)


def test_a_connection_that_is_lost_or_stopped_decodes_nothing_more() -> None:
    for end in ("lost", "stopped"):
        bench = ServiceBench()
        transport = bench.connect(room=0)
        transport.connection.dataReceived(read_frames([0]) * 5 + v2_packet(2, struct.pack(">qq", -5, 0)) * 40_000)
        if end == "lost":
            transport.connection.connectionLost(None)
        else:
            bench.service.stop()
        bench.turn()
        assert (bench.service.inbox_bytes, transport.connection.codec.pending) == (0, False)


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
    transport.connection.dataReceived(add_frames([0]) + b"GET / HTTP/1.1\r\n\r\n")
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
