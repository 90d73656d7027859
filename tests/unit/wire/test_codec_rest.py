"""Operations other than adds, reads and LACs: both sides, and the numbers of bookkeeper/wire/FORMATS.md 2."""

from __future__ import annotations

import struct
from typing import Literal

import pytest

from bookkeeper.errors import LocalProtocolError
from bookkeeper.model import Status
from bookkeeper.wire import v3
from bookkeeper.wire.codec import ServerCodec, request_encoder, response_decoder, v2_encoder, v3_encoder
from bookkeeper.wire.messages import (
    AddBatch,
    BatchRead,
    BatchReadReply,
    ForceLedger,
    ForceReply,
    GenericFailure,
    ListEntries,
    ListEntriesReply,
    LongPollRead,
    LongPollReply,
    Operation,
    ReadBodies,
    StartTls,
    StartTlsReply,
)
from bookkeeper.wire.proto import BookkeeperProtocol_pb2 as pb

KEY = bytes(range(20))
LEDGER_ID = 12345


def body_of(entry_id: int, lac: int = -1) -> bytes:
    return struct.pack(">qqqq", LEDGER_ID, entry_id, lac, 0).ljust(40, b".")


def read_answer(request_id: int, entry_id: int, body: bytes | None, max_lac: int | None) -> bytes:
    return v3.read_answer_frame(request_id, pb.EOK, LEDGER_ID, entry_id, body, max_lac)


# --- long poll ------------------------------------------------------------------------------------------------------


def test_a_long_poll_carries_what_apache_sends() -> None:
    request_id, frame = v3_encoder().encode_long_poll(LEDGER_ID, 6, 1500)
    message = pb.Request.FromString(frame[4:])
    read = message.readRequest
    assert (request_id, message.header.txnId, message.header.operation) == (1, 1, pb.READ_ENTRY)
    assert (read.ledgerId, read.entryId, read.previousLAC, read.timeOut) == (LEDGER_ID, -1, 6, 1500)
    assert read.flag == pb.ReadRequest.ENTRY_PIGGYBACK
    assert not read.HasField("masterKey")
    (poll,) = ServerCodec().receive(frame)
    assert isinstance(poll, LongPollRead)
    assert (poll.ledger_id, poll.entry_id, poll.previous_lac, poll.timeout_ms, poll.piggyback) == (
        LEDGER_ID,
        -1,
        6,
        1500,
        True,
    )


def test_a_long_poll_of_an_empty_ledger_asks_beyond_minus_one() -> None:
    (poll,) = ServerCodec().receive(v3_encoder().encode_long_poll(LEDGER_ID, -1, 0)[1])
    assert isinstance(poll, LongPollRead)
    assert (poll.previous_lac, poll.timeout_ms) == (-1, 0)


def test_ok_without_a_body_is_no_empty_entry() -> None:
    codec = ServerCodec()
    (poll,) = codec.receive(v3_encoder().encode_long_poll(LEDGER_ID, 6, 1)[1])
    assert response_decoder(3).receive(codec.reply(poll, Status.OK, max_lac=6)) == [
        LongPollReply(LEDGER_ID, -1, None, 6, 1)
    ]
    assert response_decoder(3).receive(read_answer(9, 7, b"", None)) == [ReadBodies(LEDGER_ID, [7], [b""], None, [9])]


@pytest.mark.parametrize("place", range(4))
def test_an_answer_without_a_body_breaks_a_run_of_entries_and_is_lost_in_none(place: int) -> None:
    frames = [read_answer(10 + i, i, body_of(i), 8) for i in range(3)]
    frames.insert(place, read_answer(77, -1, None, 8))
    received = response_decoder(3).receive(b"".join(frames))
    assert [message for message in received if isinstance(message, LongPollReply)] == [
        LongPollReply(LEDGER_ID, -1, None, 8, 77)
    ]
    entries = [message for message in received if isinstance(message, ReadBodies)]
    assert [i for message in entries for i in message.entry_ids] == [0, 1, 2]
    assert [i for message in entries for i in message.request_ids or ()] == [10, 11, 12]


@pytest.mark.parametrize("place", range(4))
def test_a_long_poll_with_an_entry_is_found_by_its_request_id_inside_a_run(place: int) -> None:
    """It looks exactly like the reads around it; 11 is the long poll, 3 the entry it brought."""
    frames = [read_answer(20 + i, i, body_of(i), 8) for i in range(3)]
    frames.insert(place, read_answer(11, 3, body_of(3), 8))
    (batch,) = response_decoder(3).receive(b"".join(frames))
    assert isinstance(batch, ReadBodies)
    assert batch.request_ids is not None
    assert batch.take_out(batch.request_ids.index(11)) == LongPollReply(LEDGER_ID, 3, body_of(3), 8, 11)
    assert (batch.request_ids, batch.entry_ids) == ([20, 21, 22], [0, 1, 2])
    assert batch.bodies == [body_of(0), body_of(1), body_of(2)]


# --- force, list of entries, TLS ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [Status.OK, Status.BAD_REQUEST, Status.TOO_MANY_REQUESTS])
def test_force(status: Status) -> None:
    codec = ServerCodec()
    request_id, frame = v3_encoder().encode_force(LEDGER_ID)
    (force,) = codec.receive(frame)
    assert isinstance(force, ForceLedger)
    assert (request_id, force.ledger_id) == (1, LEDGER_ID)
    assert response_decoder(3).receive(codec.reply(force, status)) == [ForceReply(LEDGER_ID, status, 1)]


def test_the_list_of_entries() -> None:
    codec, encoder, decoder = ServerCodec(), v3_encoder(), response_decoder(3)
    encoder.encode_force(1)
    request_id, frame = encoder.encode_list_entries(LEDGER_ID)
    (listing,) = codec.receive(frame)
    assert isinstance(listing, ListEntries)
    assert (request_id, listing.ledger_id) == (2, LEDGER_ID)
    assert decoder.receive(codec.reply(listing, Status.OK, availability=b"runs")) == [
        ListEntriesReply(LEDGER_ID, Status.OK, b"runs", 2)
    ]
    assert decoder.receive(codec.reply(listing, Status.NO_LEDGER)) == [
        ListEntriesReply(LEDGER_ID, Status.NO_LEDGER, None, 2)
    ]
    assert decoder.receive(codec.reply(listing, Status.OK)) == [ListEntriesReply(LEDGER_ID, Status.OK, None, 2)]


def test_start_tls_is_apaches_bytes_and_a_refusal_has_no_inner_message() -> None:
    codec, decoder = ServerCodec(), response_decoder(3)
    message = bytes.fromhex("0a06080310091801d20600")
    assert v3_encoder().encode_start_tls() == (1, len(message).to_bytes(4, "big") + message)
    (start,) = codec.receive(len(message).to_bytes(4, "big") + message)
    assert isinstance(start, StartTls)
    assert decoder.receive(codec.reply(start, Status.OK)) == [StartTlsReply(Status.OK, 1)]
    assert decoder.receive(codec.reply(start, Status.BAD_REQUEST)) == [StartTlsReply(Status.BAD_REQUEST, 1)]


@pytest.mark.parametrize("operation", [pb.READ_ENTRY, pb.FORCE_LEDGER, pb.GET_LIST_OF_ENTRIES_OF_LEDGER, pb.START_TLS])
def test_ok_without_the_inner_answer_ends_the_connection(operation: pb.OperationType) -> None:
    response = pb.Response(status=pb.EOK)
    response.header.version, response.header.operation, response.header.txnId = pb.VERSION_THREE, operation, 4
    decoder = response_decoder(3)
    assert decoder.receive(v3.framed(response)) == []
    assert decoder.error is not None


@pytest.mark.parametrize(
    ("operation", "named"),
    [
        (pb.READ_ENTRY, Operation.READ),
        (pb.FORCE_LEDGER, Operation.FORCE),
        (pb.GET_LIST_OF_ENTRIES_OF_LEDGER, Operation.LIST_ENTRIES),
    ],
)
def test_a_refusal_without_the_inner_answer_keeps_its_request_id(operation: pb.OperationType, named: Operation) -> None:
    response = pb.Response(status=pb.EUA)
    response.header.version, response.header.operation, response.header.txnId = pb.VERSION_THREE, operation, 4
    assert response_decoder(3).receive(v3.framed(response)) == [GenericFailure(named, Status.UNAUTHORIZED, 4)]


# --- deferred sync --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recovery", [False, True])
def test_a_run_of_deferred_adds_is_what_protobuf_writes_and_the_bookie_sees_the_flag(recovery: bool) -> None:
    bodies = [body_of(entry_id) for entry_id in range(3)]
    _, frames = v3_encoder().encode_adds(LEDGER_ID, KEY, range(3), bodies, recovery=recovery, deferred_sync=True)
    assert frames == [
        v3.add_frame(1 + i, LEDGER_ID, i, KEY, body, recovery=recovery, deferred_sync=True)
        for i, body in enumerate(bodies)
    ]
    (batch,) = ServerCodec().receive(b"".join(frames))
    assert isinstance(batch, AddBatch)
    assert (batch.entry_ids, batch.bodies) == ([0, 1, 2], bodies)
    assert (batch.deferred_sync, batch.recovery) == (True, recovery)


def test_v2_refuses_a_deferred_sync_rather_than_sync_at_once() -> None:
    with pytest.raises(LocalProtocolError, match="deferred sync"):
        request_encoder(2).encode_adds(LEDGER_ID, KEY, [0], [body_of(0)], deferred_sync=True)


@pytest.mark.parametrize("version", [2, 3])
def test_adds_are_not_deferred_unless_asked(version: Literal[2, 3]) -> None:
    _, frames = request_encoder(version).encode_adds(LEDGER_ID, KEY, [0], [body_of(0)])
    (batch,) = ServerCodec().receive(frames[0])
    assert isinstance(batch, AddBatch)
    assert not batch.deferred_sync


# --- batch read -----------------------------------------------------------------------------------------------------


def test_batch_read_is_apaches_bytes_and_counts_its_request_ids() -> None:
    encoder = v2_encoder()
    vector = "00000028020700000000000000003039000000000000000700000000000000010000000a0000000000100000"
    assert encoder.encode_batch_read(LEDGER_ID, 7, 10, 1048576) == (1, bytes.fromhex(vector))
    encoder.encode_reads(LEDGER_ID, [1])
    request_id, frame = encoder.encode_batch_read(LEDGER_ID, 0, 0, 0)
    (request,) = ServerCodec().receive(frame)
    assert isinstance(request, BatchRead)
    assert (request_id, request.request_id) == (2, 2)
    assert (request.first_entry_id, request.count_max, request.size_max, request.fence) == (0, 0, 0, False)


def test_batch_answers_come_in_any_order_between_others() -> None:
    codec, encoder, decoder = ServerCodec(), v2_encoder(), response_decoder(2)
    first, second = codec.receive(
        encoder.encode_batch_read(LEDGER_ID, 0, 2, 1000)[1] + encoder.encode_batch_read(LEDGER_ID, 2, 2, 1000)[1]
    )
    stream = codec.reply(second, Status.NO_ENTRY) + codec.reply(first, Status.OK, bodies=[body_of(0), body_of(1)])
    received = [
        message for position in range(len(stream)) for message in decoder.receive(stream[position : position + 1])
    ]
    assert received == [
        BatchReadReply(LEDGER_ID, 2, Status.NO_ENTRY, (), 2),
        BatchReadReply(LEDGER_ID, 0, Status.OK, (body_of(0), body_of(1)), 1),
    ]
