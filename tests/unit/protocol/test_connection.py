"""Requests in flight on one client connection: keys, lateness, bounds."""

import pytest

from bookkeeper.errors import LocalProtocolError
from bookkeeper.protocol.connection import (
    AddsInFlight,
    CallsInFlight,
    PendingCall,
    PendingRead,
    ReadsInFlight,
)


def pending(
    owner: str, entry_ids: range | list[int], *, fence: bool = False, deadline: float = 5.0
) -> PendingRead[str]:
    return PendingRead(owner, 7, list(entry_ids), b"k" * 20 if fence else None, False, deadline)


def deliveries(reads: ReadsInFlight[str], entry_ids: list[int]) -> list[tuple[str, list[int], list[bytes]]]:
    found = reads.on_bodies(7, entry_ids, [b"body %d" % entry_id for entry_id in entry_ids])
    return [(delivery.read.owner, delivery.entry_ids, delivery.bodies) for delivery in found]


def test_answers_go_to_whoever_asked_each_once() -> None:
    reads: ReadsInFlight[str] = ReadsInFlight(entries_max=100)
    assert reads.submit(pending("a", range(3))) == [0, 1, 2]
    assert reads.submit(pending("b", range(3, 5))) == [3, 4]
    assert deliveries(reads, [0, 1]) == [("a", [0, 1], [b"body 0", b"body 1"])]
    assert deliveries(reads, [4, 2, 1]) == [("b", [4], [b"body 4"]), ("a", [2], [b"body 2"])]
    assert deliveries(reads, [3, 3]) == [("b", [3], [b"body 3"])]
    assert reads.count == 0
    assert deliveries(reads, [0, 9]) == []


def test_a_fencing_read_waits_until_the_plain_read_of_its_key_is_answered() -> None:
    """I-29: v2 names an answer by ledger and entry only."""
    reads: ReadsInFlight[str] = ReadsInFlight(entries_max=100)
    reads.submit(pending("plain", [4]))
    assert reads.submit(pending("fence", [4, 5], fence=True)) == [5]
    assert deliveries(reads, [4]) == [("plain", [4], [b"body 4"])]
    [(released, entry_id)] = reads.take_released()
    assert (released.owner, entry_id, released.fence_key) == ("fence", 4, b"k" * 20)
    assert reads.take_released() == []
    assert deliveries(reads, [4]) == [("fence", [4], [b"body 4"])]


def test_the_late_answer_of_a_timed_out_read_is_nobodys() -> None:
    reads: ReadsInFlight[str] = ReadsInFlight(entries_max=100)
    reads.submit(pending("plain", [4], deadline=5.0))
    assert reads.next_deadline == 5.0
    assert [(read.owner, entry_ids) for read, entry_ids in reads.overdue(5.0)] == [("plain", [4])]
    assert reads.submit(pending("fence", [4], fence=True, deadline=9.0)) == []
    assert deliveries(reads, [4]) == []
    assert [(read.owner, entry_id) for read, entry_id in reads.take_released()] == [("fence", 4)]
    assert deliveries(reads, [4]) == [("fence", [4], [b"body 4"])]


def test_a_negative_late_answer_frees_the_key_too() -> None:
    reads: ReadsInFlight[str] = ReadsInFlight(entries_max=100)
    reads.submit(pending("plain", [4]))
    reads.overdue(5.0)
    reads.submit(pending("next", [4]))
    assert reads.on_failed(7, 4) is None
    assert [read.owner for read, _ in reads.take_released()] == ["next"]
    failed = reads.on_failed(7, 4)
    assert failed is not None
    assert (failed[0].owner, failed[1]) == ("next", 4)
    assert reads.on_failed(7, 4) is None


def test_a_read_that_times_out_behind_a_taken_key_asks_for_a_new_connection() -> None:
    reads: ReadsInFlight[str] = ReadsInFlight(entries_max=100)
    reads.submit(pending("hung", [4], deadline=5.0))
    reads.overdue(5.0)
    reads.submit(pending("parked", [4, 5], deadline=9.0))
    assert not reads.blocked
    assert [(read.owner, entry_ids) for read, entry_ids in reads.overdue(9.0)] == [("parked", [4, 5])]
    assert reads.blocked
    assert reads.count == 2  # the keys of 4 (hung) and 5 stay taken


def test_the_end_of_the_connection_tells_everything_outstanding_once() -> None:
    reads: ReadsInFlight[str] = ReadsInFlight(entries_max=100)
    reads.submit(pending("late", [1], deadline=1.0))
    reads.overdue(1.0)
    reads.submit(pending("sent", [2, 3], deadline=5.0))
    reads.submit(pending("parked", [3], deadline=5.0))
    deliveries(reads, [2])
    assert [(read.owner, entry_ids) for read, entry_ids in reads.on_ended()] == [("sent", [3]), ("parked", [3])]
    assert (reads.count, reads.next_deadline, reads.on_ended()) == (0, None, [])


def test_more_reads_than_the_bound_are_refused_before_anything_is_noted() -> None:
    reads: ReadsInFlight[str] = ReadsInFlight(entries_max=3)
    reads.submit(pending("a", range(2)))
    assert reads.room == 1
    with pytest.raises(LocalProtocolError, match="2 reads where 1 fit"):
        reads.submit(pending("b", range(2, 4)))
    assert reads.count == 2


def test_a_bookie_of_4_2_3_may_answer_the_last_entry_under_its_real_id() -> None:
    reads: ReadsInFlight[str] = ReadsInFlight(entries_max=3)
    reads.submit(pending("lac", [-1]))
    [delivery] = reads.on_bodies(7, [41], [b"last"])
    assert (delivery.read.owner, delivery.entry_ids, delivery.bodies) == ("lac", [-1], [b"last"])


def test_unanswered_bytes_are_released_as_answers_are_counted() -> None:
    adds: AddsInFlight[str] = AddsInFlight()
    adds.on_sent(1, "w1", count=3, size=300)
    adds.on_sent(2, "w2", count=1, size=50)
    assert (adds.count, adds.bytes) == (4, 350)
    adds.on_answered(2)
    assert adds.bytes == 350
    adds.on_answered(1)
    assert adds.bytes == 50
    adds.on_answered(7)  # a bookie that answers twice
    assert (adds.count, adds.bytes) == (0, 0)
    assert (adds.owner_of(1), adds.owner_of(3)) == ("w1", None)
    adds.forget(1, "w1")
    adds.forget(2, "an earlier writer of the same ledger")
    assert adds.on_ended() == ["w2"]


def test_adds_of_several_ledgers_are_counted_in_together() -> None:
    adds: AddsInFlight[str] = AddsInFlight()
    adds.on_sent(1, "w1", count=1, size=10)
    adds.owners.update({2: "w2", 3: "w3"})
    adds.on_sent_mixed(count=2, size=200)
    adds.on_answered(2)
    assert (adds.count, adds.bytes) == (1, 200)
    adds.on_answered(1)
    assert (adds.count, adds.bytes) == (0, 0)
    assert adds.on_ended() == ["w1", "w2", "w3"]


def test_calls_are_answered_by_id_and_time_out_once() -> None:
    calls = CallsInFlight(calls_max=2)
    told: list[object] = []
    calls.submit(1, PendingCall(told.append, told.append, 5.0))
    calls.submit(2, PendingCall(told.append, told.append, 3.0))
    assert (calls.room, calls.next_deadline) == (0, 3.0)
    with pytest.raises(LocalProtocolError):
        calls.submit(3, PendingCall(told.append, told.append, 3.0))
    assert len(calls.overdue(4.0)) == 1
    assert calls.on_reply(2) is None
    assert calls.on_reply(None) is None
    assert calls.on_reply(1) is not None
    assert len(calls) == 0
