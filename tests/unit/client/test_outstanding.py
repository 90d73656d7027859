"""Who gets an answer: long polls are answered as reads are, and only their request ids tell them apart."""

from typing import Any

import pytest

from bookkeeper.client.bookies.pending_requests import Outstanding
from bookkeeper.errors import BookieUnavailable, ConnectionLost
from bookkeeper.model import BookieId, EntryId, Status
from bookkeeper.protocol.connection import PendingCall, PendingRead
from bookkeeper.wire.messages import GenericFailure, LongPollReply, Operation, ReadBodies, ReadFailed
from tests.support.simulated_clock import SimulatedClock

BOOKIE = BookieId("b1:3181")
KEY = bytes(20)
POLL, READ = 5, 6


class Told:
    """An owner of reads and polls that notes what it is told."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_bodies(self, bookie_id: BookieId, entry_ids: list[int], bodies: list[bytes], max_lac: int | None) -> None:
        self.events.append(("bodies", entry_ids, bodies))

    def on_read_status(self, bookie_id: BookieId, entry_id: int, status: Status) -> None:
        self.events.append(("status", entry_id, status))

    def on_read_unknown(self, bookie_id: BookieId, entry_ids: list[int], error: BookieUnavailable) -> None:
        self.events.append(("unknown", entry_ids, type(error)))

    def on_reply(self, reply: object) -> None:
        self.events.append(reply)

    def on_unknown(self, error: Exception) -> None:
        self.events.append(type(error))


class Asked:
    """One long poll of ledger 1 and one fencing read of `entry_ids`, both on their way."""

    def __init__(self, entry_ids: list[int]) -> None:
        self.outstanding = Outstanding(BOOKIE, SimulatedClock())
        self.poller, self.reader = Told(), Told()
        call = PendingCall(self.poller.on_reply, self.poller.on_unknown, 1.0)
        assert self.outstanding.add_call(POLL, call, waits=True)
        read: PendingRead[Any] = PendingRead(self.reader, 1, entry_ids, KEY, False, 10.0)
        assert self.outstanding.add_read(read)
        assert [list(sent) for _, sent in self.outstanding.sendable_reads()] == [entry_ids]

    def receive(self, *received: Any) -> BookieUnavailable | None:
        return self.outstanding.on_messages(list(received), lambda: False)


def test_a_poll_s_entry_is_not_the_fencing_read_s_entry() -> None:
    asked = Asked([2])
    asked.receive(ReadBodies(1, [2], [b"polled"], 7, [POLL]))
    assert asked.poller.events == [LongPollReply(1, 2, b"polled", 7, POLL)]
    assert asked.reader.events == []
    asked.receive(ReadBodies(1, [2], [b"fenced"], None, [READ]))
    assert asked.reader.events == [("bodies", [2], [b"fenced"])]
    assert not asked.outstanding.busy


def test_a_late_answer_of_a_poll_is_dropped_and_not_the_fencing_read_s_either() -> None:
    """I-29: taken for it, an unfenced bookie would count as fenced."""
    asked = Asked([2])
    for late in asked.outstanding.overdue_polls(1.0):
        late.on_unknown(ConnectionLost("late", bookie_id=BOOKIE))
    assert asked.poller.events == [ConnectionLost]
    asked.receive(ReadBodies(1, [2], [b"polled"], 7, [POLL]))
    assert asked.reader.events == []
    asked.receive(ReadBodies(1, [2], [b"fenced"], None, [READ]))
    assert asked.reader.events == [("bodies", [2], [b"fenced"])]


@pytest.mark.parametrize("place", range(3))
def test_a_poll_is_found_in_a_run_of_entries(place: int) -> None:
    asked = Asked([2, 3])
    ids, entry_ids, bodies = [READ, READ + 1], [2, 3], [b"two", b"three"]
    ids.insert(place, POLL)
    entry_ids.insert(place, 3)
    bodies.insert(place, b"polled")
    asked.receive(ReadBodies(1, entry_ids, bodies, 7, ids))
    assert asked.poller.events == [LongPollReply(1, 3, b"polled", 7, POLL)]
    assert asked.reader.events == [("bodies", [2, 3], [b"two", b"three"])]


@pytest.mark.parametrize("late", [False, True])
def test_a_poll_s_failure_is_not_that_of_a_read_of_the_last_entry(late: bool) -> None:
    """Both name entry -1."""
    asked = Asked([-1])
    if late:
        assert len(asked.outstanding.overdue_polls(1.0)) == 1
    failed = ReadFailed(1, -1, Status.NO_LEDGER, POLL)
    asked.receive(failed)
    assert asked.poller.events == ([] if late else [failed])
    assert asked.reader.events == []
    asked.receive(ReadFailed(1, -1, Status.NO_ENTRY, READ))
    assert asked.reader.events == [("status", -1, Status.NO_ENTRY)]


def test_a_read_that_is_told_ok_without_an_entry_has_no_verdict() -> None:
    asked = Asked([2])
    asked.receive(LongPollReply(1, 2, None, 7, READ))
    assert asked.reader.events == [("status", 2, Status.IO_ERROR)]
    assert asked.poller.events == []


def test_a_refusal_that_names_a_poll_does_not_end_the_connection() -> None:
    asked = Asked([2])
    refused = GenericFailure(Operation.READ, Status.BAD_REQUEST, POLL)
    assert asked.receive(refused) is None
    assert asked.poller.events == [refused]
    assert asked.receive(refused) is not None  # nobody's


def test_the_end_of_the_connection_is_told_once_and_frees_late_polls() -> None:
    asked = Asked([2])
    asked.outstanding.on_ended(ConnectionLost("cut", bookie_id=BOOKIE))
    assert asked.poller.events == [ConnectionLost]
    assert asked.reader.events == [("unknown", [EntryId(2)], ConnectionLost)]
    assert not asked.outstanding.busy
    asked.receive(ReadBodies(1, [2], [b"polled"], 7, [POLL]))
    assert len(asked.poller.events) == len(asked.reader.events) == 1


def test_a_connection_that_owes_the_answer_of_a_late_poll_is_busy() -> None:
    """Closed for idleness it would come back with the late poll still counting for the bound, and nobody to free it."""
    outstanding = Outstanding(BOOKIE, SimulatedClock())
    poller = Told()
    assert outstanding.add_call(POLL, PendingCall(poller.on_reply, poller.on_unknown, 1.0), waits=True)
    assert len(outstanding.overdue_polls(2.0)) == 1
    assert outstanding.busy
    outstanding.on_messages([LongPollReply(1, -1, None, 7, POLL)], lambda: False)
    assert not outstanding.busy
    assert poller.events == []
