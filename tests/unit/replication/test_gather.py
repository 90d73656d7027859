"""Which source is asked for which entry, whatever the others said."""

from __future__ import annotations

import itertools

import pytest

from bookkeeper.model import BookieId, Status
from bookkeeper.replication.copies.gather import DAMAGED, Gather

A, B, C = map(BookieId, "abc")


def striped(entry_id: int) -> tuple[BookieId, ...]:
    return ((A, B), (B, C), (C, A))[entry_id % 3]


def test_each_entry_is_asked_of_its_own_first_source() -> None:
    gather: Gather[bytes] = Gather(range(6), striped)
    assert {request.bookie_id: request.entry_ids for request in gather.start()} == {A: [0, 3], B: [1, 4], C: [2, 5]}
    assert not gather.done


def test_values_come_in_the_order_of_the_entries_whoever_delivered_them_first() -> None:
    gather: Gather[bytes] = Gather(range(6), striped)
    gather.start()
    for bookie_id, entry_ids in ((C, [5, 2]), (A, [0, 3]), (B, [1, 4])):
        assert gather.on_bodies(bookie_id, entry_ids, [b"%d" % entry_id for entry_id in entry_ids]) == []
    assert gather.done
    assert gather.take() == [b"%d" % entry_id for entry_id in range(6)]


@pytest.mark.parametrize("why", [Status.NO_ENTRY, Status.IO_ERROR, "connection lost"])
def test_the_next_source_is_asked_whatever_the_reason(why: object) -> None:
    gather: Gather[bytes] = Gather([0, 3], striped)
    gather.start()
    (request,) = gather.on_failed(A, [0, 3], why)
    assert (request.bookie_id, request.entry_ids) == (B, [0, 3])
    assert gather.on_bodies(B, [0, 3], [b"x", b"y"]) == []
    assert gather.take() == [b"x", b"y"]


def test_a_damaged_copy_is_passed_over_and_told() -> None:
    gather: Gather[bytes] = Gather([0, 3], striped)
    gather.start()
    (request,) = gather.on_bodies(A, [0, 3], [b"x", None])
    assert (request.bookie_id, request.entry_ids) == (B, [3])
    gather.on_bodies(B, [3], [b"y"])
    assert gather.take() == [b"x", b"y"]
    assert gather.failures == {3: {A: DAMAGED}}


def test_an_entry_that_no_source_delivers_is_told_with_all_answers() -> None:
    gather: Gather[bytes] = Gather([0, 1], striped)
    gather.start()
    gather.on_failed(A, [0], Status.NO_ENTRY)
    gather.on_bodies(B, [1], [b"y"])
    assert not gather.done
    assert gather.on_failed(B, [0], Status.IO_ERROR) == []
    assert gather.done
    unreadable = gather.unreadable
    assert unreadable is not None
    assert unreadable.entry_id == 0
    assert unreadable.answers == {A: "no such entry", B: "I/O error"}


def test_no_source_is_asked_twice_and_every_entry_is_settled_under_all_orders_of_answers() -> None:
    """All ways in which three sources of two entries may answer: the entry is there iff one of them delivers it."""
    for delivered in itertools.product([False, True], repeat=6):
        gather: Gather[bytes] = Gather([0, 1], lambda entry_id: (A, B, C) if entry_id else (C, B, A))
        waiting = list(gather.start())
        asked: list[tuple[BookieId, int]] = []
        while waiting:
            request = waiting.pop()
            for entry_id in request.entry_ids:
                asked.append((request.bookie_id, entry_id))
                good = delivered[3 * entry_id + "abc".index(request.bookie_id)]
                if good:
                    waiting += gather.on_bodies(request.bookie_id, [entry_id], [b"!"])
                else:
                    waiting += gather.on_failed(request.bookie_id, [entry_id], Status.NO_LEDGER)
        assert len(asked) == len(set(asked))
        assert gather.done
        missing = [entry_id for entry_id in (0, 1) if not any(delivered[3 * entry_id : 3 * entry_id + 3])]
        assert (gather.unreadable.entry_id if gather.unreadable else None) == (missing[0] if missing else None)


def test_a_second_failure_of_the_same_source_counts_once() -> None:
    gather: Gather[bytes] = Gather([0], lambda _: (A, B, C))
    gather.start()
    assert len(gather.on_failed(A, [0], "lost")) == 1
    assert gather.on_failed(A, [0], "lost again") == []
