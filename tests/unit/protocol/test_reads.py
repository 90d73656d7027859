"""Reads of entry ranges: the three classes, next replicas, speculation, order, errors.

Mutants: negatives needed off by one; any failure counts as a negative (I-30); a damaged copy counts as a negative
(I-44); an answer nobody asked for counts; speculation ignores progress; a second replica is asked while one is open.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import EntryCorrupt, EntryMissing, EntryUnreadable
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, Status
from bookkeeper.protocol.reads import Outcome, RangeRead, ReadMode, ReadRequest, Speculation

NAMES = [BookieId(name) for name in "abcdefg"]
A, B, C, D, E = NAMES[:5]


def ledger(ensemble: int = 3, write_quorum: int = 3, ack_quorum: int = 2) -> LedgerMetadata:
    return LedgerMetadata(ensemble, write_quorum, ack_quorum, (Fragment(EntryId(0), tuple(NAMES[:ensemble])),))


def read(
    metadata: LedgerMetadata, first: int, last: int, *, mode: ReadMode = ReadMode.ORDINARY, speculate: bool = False
) -> RangeRead[str]:
    speculation = Speculation(first_s=1.0, max_s=4.0, multiplier=2.0) if speculate else None
    return RangeRead(metadata, first, last, ledger_id=7, mode=mode, speculation=speculation)


def asked(requests: list[ReadRequest]) -> dict[str, list[int]]:
    return {request.bookie_id: list(request.entry_ids) for request in requests}


def test_each_entry_is_asked_of_the_first_bookie_of_its_write_set() -> None:
    assert asked(read(ledger(), 1, 7).start(0.0)) == {"a": [3, 6], "b": [1, 4, 7], "c": [2, 5]}


def test_every_fragment_has_its_own_bookies() -> None:
    metadata = ledger().with_fragment(EntryId(4), (A, D, C)).with_fragment(EntryId(6), (E, D, C))
    assert asked(read(metadata, 3, 7).start(0.0)) == {"a": [3], "d": [4, 7], "c": [5], "e": [6]}
    assert asked(read(metadata, 4, 5).start(0.0)) == {"d": [4], "c": [5]}


def test_a_preference_decides_whom_to_ask_first() -> None:
    ordered: RangeRead[str] = RangeRead(
        ledger(), 0, 3, ledger_id=7, prefer=lambda replicas: sorted(replicas, reverse=True)
    )
    assert asked(ordered.start(0.0)) == {"c": [0, 1, 2, 3]}
    assert asked(ordered.on_unknown(C, [1, 2], "lost")) == {"b": [1, 2]}


def test_values_come_out_in_order_whatever_order_they_come_in() -> None:
    whole = read(ledger(), 0, 4)
    whole.start(0.0)
    assert whole.on_bodies(B, [1, 4], ["one", "four"]) == []
    assert whole.take() == []
    whole.on_bodies(A, [0, 3], ["zero", "three"])
    assert whole.take() == ["zero", "one"]
    assert whole.taken_until == 2
    whole.on_bodies(C, [2], ["two"])
    assert whole.done
    assert whole.take() == ["two", "three", "four"]
    assert whole.take() == []
    assert whole.error() is None


def test_the_first_good_body_wins_and_strangers_are_ignored() -> None:
    one = read(ledger(), 5, 5)
    one.start(0.0)
    assert one.on_bodies(C, [4, 6], ["four", "six"]) == []
    assert one.outcome(EntryId(4)) is Outcome.PENDING
    one.on_bodies(C, [5], ["first"])
    one.on_bodies(A, [5], ["second"])
    assert one.take() == ["first"]


@pytest.mark.parametrize("failure", ["negative", "unknown", "damaged"])
def test_a_failed_replica_is_followed_by_the_next(failure: str) -> None:
    """I-44 for the damaged one."""
    one = read(ledger(), 0, 0)
    one.start(0.0)
    assert asked(fail(one, A, 0, failure)) == {"b": [0]}
    assert asked(fail(one, B, 0, failure)) == {"c": [0]}
    one.on_bodies(C, [0], ["found"])
    assert one.take() == ["found"]


def fail(one: RangeRead[str], bookie_id: BookieId, entry_id: int, how: str) -> list[ReadRequest]:
    if how == "negative":
        return one.on_negative(bookie_id, [entry_id], Status.NO_ENTRY)
    if how == "damaged":
        return one.on_bodies(bookie_id, [entry_id], [None])
    return one.on_unknown(bookie_id, [entry_id], Status.IO_ERROR)


CLASSES = ["present", "negative", "unknown", "damaged"]


@pytest.mark.parametrize(("write_quorum", "ack_quorum"), [(w, a) for w in range(1, 6) for a in range(1, w + 1)])
def test_every_combination_of_answers_in_recovery(write_quorum: int, ack_quorum: int) -> None:
    """I-30, L-3: in order of arrival, Qw - Qa + 1 negatives end it, one body settles it, neither is unknown."""
    classes = CLASSES[:3] if write_quorum > 4 else CLASSES
    for answers in itertools.product(classes, repeat=write_quorum):
        one = read(ledger(write_quorum, write_quorum, ack_quorum), 0, 0, mode=ReadMode.RECOVERY)
        waiting = set(asked(one.start(0.0)))
        expected, negatives = Outcome.PENDING, 0
        for bookie_id, answer in zip(NAMES, answers, strict=False):
            if expected is Outcome.PENDING:
                assert bookie_id in waiting, "a replica that could decide was not asked"
            negatives += answer == "negative"
            if answer == "present":
                one.on_bodies(bookie_id, [0], ["found"])
            else:
                waiting |= set(asked(fail(one, bookie_id, 0, answer)))
            if expected is Outcome.PENDING:
                if answer == "present":
                    expected = Outcome.PRESENT
                elif negatives == write_quorum - ack_quorum + 1:
                    expected = Outcome.ABSENT
            assert one.outcome(0) is (
                Outcome.UNKNOWN if expected is Outcome.PENDING and bookie_id == NAMES[write_quorum - 1] else expected
            )


@pytest.mark.parametrize(("write_quorum", "ack_quorum"), [(w, a) for w in range(1, 5) for a in range(1, w + 1)])
def test_every_combination_of_answers_in_an_ordinary_read(write_quorum: int, ack_quorum: int) -> None:
    """I-44: all replicas are asked, one after the other; a damaged copy is never 'never written'."""
    for answers in itertools.product(CLASSES, repeat=write_quorum):
        one = read(ledger(write_quorum, write_quorum, ack_quorum), 0, 0)
        waiting = set(asked(one.start(0.0)))
        for bookie_id, answer in zip(NAMES, answers, strict=False):
            assert waiting == {bookie_id}
            if answer == "present":
                one.on_bodies(bookie_id, [0], ["found"])
                break
            waiting = set(asked(fail(one, bookie_id, 0, answer)))
        error = one.error()
        if "present" in answers:
            assert one.take() == ["found"]
            assert error is None
        elif "damaged" in answers:
            assert isinstance(error, EntryUnreadable if "unknown" in answers else EntryCorrupt)
        elif answers.count("negative") > write_quorum - ack_quorum:
            assert isinstance(error, EntryMissing)
        else:
            assert isinstance(error, EntryUnreadable)
        assert one.done


def test_the_error_names_the_entry_and_every_answer() -> None:
    some = read(ledger(), 0, 1)
    some.start(0.0)
    some.on_bodies(B, [1], ["one"])
    some.on_unknown(A, [0], TimeoutError("no answer in 5 s"))
    some.on_negative(B, [0], Status.NO_ENTRY)
    assert some.error() is None
    some.on_bodies(C, [0], [None])
    error = some.error()
    assert isinstance(error, EntryUnreadable)
    assert error.entry_id == 0
    assert error.answers == {"a": "no answer in 5 s", "b": "no such entry", "c": "digest mismatch"}
    assert "ledger 7, entry 0" in str(error)


def test_an_answer_that_was_not_asked_for_does_not_settle_anything() -> None:
    """Mutant: count it: two replicas that were never asked would end the ledger."""
    one = read(ledger(), 0, 0, mode=ReadMode.RECOVERY)
    one.start(0.0)
    for bookie_id in (B, C, D):
        assert one.on_negative(bookie_id, [0], Status.NO_ENTRY) == []
    one.on_negative(A, [0], Status.NO_ENTRY)
    assert one.on_negative(A, [0], Status.NO_ENTRY) == []
    assert one.outcome(0) is Outcome.PENDING


def test_a_lost_bookie_fails_only_what_it_has_not_answered() -> None:
    whole = read(ledger(), 0, 6)
    whole.start(0.0)
    whole.on_bodies(A, [3], ["three"])
    assert whole.outstanding(A) == [0, 6]
    assert asked(whole.on_bookie_lost(A, "connection lost")) == {"b": [0, 6]}
    assert whole.outstanding(A) == []
    assert whole.outstanding(B) == [0, 1, 4, 6]


def test_speculation_asks_the_next_replica_of_what_is_outstanding() -> None:
    """L-3."""
    whole = read(ledger(), 0, 3, speculate=True)
    whole.start(10.0)
    assert whole.speculative_due(10.9) == []
    whole.on_bodies(B, [1], ["one"])
    assert asked(whole.speculative_due(11.0)) == {"b": [0, 3], "a": [2]}
    assert whole.speculative_due(12.9) == []
    assert asked(whole.speculative_due(13.0)) == {"c": [0, 3], "b": [2]}
    assert whole.speculative_due(16.9) == []
    assert whole.speculative_due(17.0) == []
    assert whole.next_speculation is None
    whole.on_bodies(C, [0, 3, 2], ["zero", "three", "two"])
    assert whole.done


def test_a_bookie_that_keeps_delivering_is_not_doubted_until_it_stops() -> None:
    whole = read(ledger(), 0, 6, speculate=True)
    whole.start(0.0)
    whole.on_bodies(B, [1, 4], ["one", "four"])
    whole.on_bodies(A, [0], ["zero"])
    assert asked(whole.speculative_due(1.0)) == {"a": [2, 5]}
    assert asked(whole.speculative_due(3.0)) == {"b": [2, 3, 5, 6]}


def test_after_speculation_one_failure_does_not_start_a_third_replica() -> None:
    one = read(ledger(), 0, 0, speculate=True)
    one.start(0.0)
    one.speculative_due(1.0)
    assert one.on_unknown(A, [0], "lost") == []
    assert asked(one.on_unknown(B, [0], "lost")) == {"c": [0]}


def test_a_finished_read_has_no_next_speculation() -> None:
    one = read(ledger(), 0, 0, speculate=True)
    one.start(0.0)
    one.on_bodies(A, [0], ["zero"])
    assert one.next_speculation is None


def test_only_explicit_negatives_are_negatives() -> None:
    """I-30, I-31."""
    one = read(ledger(), 0, 0)
    one.start(0.0)
    with pytest.raises(AssertionError, match="I-30"):
        one.on_negative(A, [0], Status.IO_ERROR)


@given(
    st.lists(
        st.tuples(st.sampled_from([A, B, C]), st.integers(0, 9), st.integers(1, 6), st.booleans(), st.booleans()),
        max_size=12,
    )
)
def test_a_range_of_ids_means_the_same_as_the_ids_one_by_one(
    events: list[tuple[BookieId, int, int, bool, bool]],
) -> None:
    """Answers of batches take a short way; it must settle, refuse and ask exactly as the long one."""
    short, long = read(ledger(), 2, 8), read(ledger(), 2, 8)
    assert asked(short.start(0.0)) == asked(long.start(0.0))
    for bookie_id, first, count, damaged, lost in events:
        entry_ids = range(first, first + count)
        if lost:
            further = [core.on_unknown(bookie_id, entry_ids, "lost") for core in (short, long)]
        else:
            texts = [f"{entry_id} of {bookie_id}" for entry_id in entry_ids]
            values = [None if damaged and entry_id % 2 else f"{entry_id} of {bookie_id}" for entry_id in entry_ids]
            further = [
                short.on_bodies(bookie_id, entry_ids, values) if damaged else short.on_run(bookie_id, entry_ids, texts),
                long.on_bodies(bookie_id, list(entry_ids), values),
            ]
        assert asked(further[0]) == asked(further[1])
        assert [short.outcome(entry_id) for entry_id in range(2, 9)] == [long.outcome(e) for e in range(2, 9)]
        assert short.done == long.done
        assert repr(short.error()) == repr(long.error())
        assert short.take() == long.take()
