"""The recovery machine step by step; whole traces are in `test_traces.py`.

Mutants: reading before coverage, ending on fewer negatives, closing before the write-back is acknowledged, committing
private fragments early, answers of an earlier state, the length of the entry that carried the LAC.
"""

from __future__ import annotations

import itertools

import pytest

from bookkeeper.errors import ClientClosed, RecoveryFailed, WrongPassword
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, Status
from bookkeeper.protocol.reads import Speculation
from bookkeeper.protocol.recovery import (
    Aborted,
    Action,
    Close,
    Fence,
    Finished,
    MarkInRecovery,
    Read,
    Recovered,
    Recovery,
    RecoveryState,
    ReplaceBookies,
    WriteBack,
)
from bookkeeper.protocol.schedule import write_set

A, B, C, D, E = (BookieId(name) for name in "abcde")


def ledger(ensemble: int = 3, write_quorum: int = 3, ack_quorum: int = 2) -> LedgerMetadata:
    names = tuple(BookieId(name) for name in "abcdefg"[:ensemble])
    return LedgerMetadata(ensemble, write_quorum, ack_quorum, (Fragment(EntryId(0), names),)).in_recovery()


def entry(entry_id: int, size: int = 3) -> Recovered:
    return Recovered(entry_id, b"x" * size, size * (entry_id + 1))


def only(actions: list[Action], kind: type[Action]) -> Action:
    assert [type(action) for action in actions] == [kind]
    return actions[0]


def reading(metadata: LedgerMetadata | None = None, *, batch: int = 1) -> tuple[Recovery, list[Action]]:
    """A recovery whose bookies a and b are fenced and hold nothing."""
    recovery = Recovery(7, read_batch_max=batch, response_timeout_s=5.0, speculation=Speculation())
    recovery.start()
    recovery.on_marked(metadata or ledger(), 0.0)
    recovery.on_fence_negative(A, 0.0)
    return recovery, recovery.on_fence_negative(B, 0.0)


def test_the_metadata_is_marked_before_the_first_fence() -> None:
    """I-21."""
    recovery = Recovery(7)
    only(recovery.start(), MarkInRecovery)
    assert only(recovery.on_marked(ledger(), 0.0), Fence) == Fence((A, B, C))
    assert recovery.state is RecoveryState.FENCING


def test_a_ledger_found_open_after_marking_is_not_fenced() -> None:
    """I-21."""
    recovery = Recovery(7)
    recovery.start()
    still_open = LedgerMetadata(3, 3, 2, ledger().fragments)
    with pytest.raises(AssertionError, match="I-21"):
        recovery.on_marked(still_open, 0.0)


def test_a_closed_ledger_needs_nothing() -> None:
    recovery = Recovery(7)
    recovery.start()
    closed = ledger().closed(EntryId(4), 12)
    assert only(recovery.on_marked(closed, 0.0), Finished) == Finished(closed)


@pytest.mark.parametrize("shape", [(e, w, a) for e in range(1, 6) for w in range(1, e + 1) for a in range(1, w + 1)])
def test_recovery_reads_exactly_when_the_bookies_that_live_cover_the_ensemble(shape: tuple[int, int, int]) -> None:
    """I-28: all subsets of dead bookies for E up to 5. Mutant: a plain count of answers."""
    ensemble_size, write_quorum, ack_quorum = shape
    for dead in itertools.chain.from_iterable(itertools.combinations(range(shape[0]), n) for n in range(shape[0] + 1)):
        metadata = ledger(*shape)
        recovery = Recovery(7)
        recovery.start()
        recovery.on_marked(metadata, 0.0)
        for index, bookie_id in enumerate(metadata.last_fragment.ensemble):
            if index in dead:
                recovery.on_fence_unknown(bookie_id, "unreachable", 0.0)
            else:
                recovery.on_fence_negative(bookie_id, 0.0)
        in_doubt = max(
            sum(index in dead for index in write_set(start, ensemble_size, write_quorum))
            for start in range(ensemble_size)
        )
        expected = RecoveryState.READING if in_doubt < ack_quorum else RecoveryState.ABORTED
        assert recovery.state is expected, f"dead {dead}"


def test_failed_coverage_names_every_answer() -> None:
    recovery = Recovery(7)
    recovery.start()
    recovery.on_marked(ledger(), 0.0)
    recovery.on_fence_negative(A, 0.0)
    recovery.on_fence_unknown(B, Status.IO_ERROR, 0.0)
    aborted = only(recovery.on_fence_unknown(C, TimeoutError("no answer"), 0.0), Aborted)
    assert isinstance(aborted, Aborted)
    assert isinstance(aborted.error, RecoveryFailed)
    assert aborted.error.answers == {"a": "no such entry", "b": "I/O error", "c": "no answer"}


def test_the_wrong_password_ends_the_recovery_when_too_few_bookies_accept_it() -> None:
    recovery = Recovery(7)
    recovery.start()
    recovery.on_marked(ledger(), 0.0)
    assert recovery.on_fence_unknown(A, Status.UNAUTHORIZED, 0.0) == []  # a stranger may have claimed the id there
    aborted = only(recovery.on_fence_unknown(B, Status.UNAUTHORIZED, 0.0), Aborted)
    assert isinstance(aborted, Aborted)
    assert isinstance(aborted.error, WrongPassword)


@pytest.mark.parametrize("whys", [(Status.UNAUTHORIZED, TimeoutError()), (TimeoutError(), Status.UNAUTHORIZED)])
def test_a_refusal_beside_a_bookie_that_is_away_is_no_wrong_password(whys: tuple[object, ...]) -> None:
    recovery = Recovery(7)
    recovery.start()
    recovery.on_marked(ledger(), 0.0)
    recovery.on_fence_unknown(A, whys[0], 0.0)
    aborted = only(recovery.on_fence_unknown(B, whys[1], 0.0), Aborted)
    assert isinstance(aborted, Aborted)
    assert isinstance(aborted.error, RecoveryFailed)
    assert "try again when they are back" in str(aborted.error)


def test_reading_starts_after_the_highest_lac_told() -> None:
    """I-32."""
    recovery = Recovery(7, read_batch_max=1)
    recovery.start()
    recovery.on_marked(ledger(), 0.0)
    recovery.on_fence_body(A, entry_id=9, lac=6, length=30, now=0.0)
    read = only(recovery.on_fence_body(B, entry_id=8, lac=7, length=27, now=0.0), Read)
    assert isinstance(read, Read)
    assert [request.entry_ids for request in read.requests] == [[8]]


def test_a_damaged_last_entry_counts_as_fenced_and_tells_no_lac() -> None:
    """I-02, I-33."""
    recovery = Recovery(7, read_batch_max=1)
    recovery.start()
    recovery.on_marked(ledger(), 0.0)
    assert recovery.on_fence_corrupt(A, 0.0) == []
    read = only(recovery.on_fence_body(B, entry_id=3, lac=2, length=12, now=0.0), Read)
    assert isinstance(read, Read)
    assert [request.entry_ids for request in read.requests] == [[3]]


@pytest.mark.parametrize("told", range(-1, 4))
def test_any_lac_up_to_the_true_one_leads_to_the_same_end(told: int) -> None:
    """I-33: entries 0 to 5 exist, 3 is the true LAC."""
    recovery = Recovery(7, read_batch_max=4)
    recovery.start()
    recovery.on_marked(ledger(), 0.0)
    recovery.on_fence_body(A, entry_id=5, lac=told, length=18, now=0.0)
    close = play(recovery, recovery.on_fence_negative(B, 0.0), stored=range(6))
    assert (close.last_entry_id, close.length) == (5, 18)


@pytest.mark.parametrize("hole", range(5))
def test_what_follows_a_hole_is_discarded(hole: int) -> None:
    """I-34: entries 0 to 6 but for one; batches of 4, so that later entries are found before the hole is certain."""
    recovery, actions = reading(batch=4)
    written: list[int] = []
    close = play(recovery, actions, stored=[e for e in range(7) if e != hole], written=written)
    assert close.last_entry_id == hole - 1
    assert close.length == 3 * hole
    assert max(written, default=-1) < hole


def play(
    recovery: Recovery, actions: list[Action], stored: range | list[int], written: list[int] | None = None
) -> Close:
    """Perfect bookies, all of which hold `stored`; later answers before earlier ones. Returns the Close."""
    waiting = list(actions)
    while waiting:
        action = waiting.pop()
        match action:
            case Read(requests):
                for request in requests:
                    present = [e for e in request.entry_ids if e in stored]
                    absent = [e for e in request.entry_ids if e not in stored]
                    waiting += recovery.on_bodies(request.bookie_id, present, [entry(e) for e in present], 0.0)
                    waiting += recovery.on_negative(request.bookie_id, absent, Status.NO_ENTRY, 0.0)
            case WriteBack(entries, targets, ensemble, lac):
                assert lac < entries[0].entry_id
                if written is not None:
                    written += [one.entry_id for one in entries]
                for index, entry_ids in targets.items():
                    waiting += recovery.on_added(index, ensemble[index], entry_ids, 0.0)
            case Close():
                return action
            case _:
                raise AssertionError(f"unexpected {action}")
    raise AssertionError("the recovery came to rest without closing")


def test_an_unknown_entry_aborts_and_names_the_answers() -> None:
    """I-30. Mutant: treat it as the end."""
    recovery, _ = reading()
    recovery.on_unknown(A, [0], "lost", 0.0)
    recovery.on_negative(B, [0], Status.NO_ENTRY, 0.0)
    aborted = only(recovery.on_bodies(C, [0], [None], 0.0), Aborted)
    assert isinstance(aborted, Aborted)
    assert "entry 0" in str(aborted.error)
    assert isinstance(aborted.error, RecoveryFailed)
    assert aborted.error.answers == {"a": "lost", "b": "no such entry", "c": "digest mismatch"}


def test_an_unknown_entry_behind_the_end_does_not_matter() -> None:
    """I-34."""
    recovery, _ = reading(batch=2)
    recovery.on_unknown(B, [1], "lost", 0.0)
    recovery.on_unknown(C, [1], "lost", 0.0)
    recovery.on_unknown(A, [1], "lost", 0.0)
    recovery.on_negative(A, [0], Status.NO_ENTRY, 0.0)
    close = only(recovery.on_negative(B, [0], Status.NO_ENTRY, 0.0), Close)
    assert close == Close(EntryId(-1), 0, ())


def test_a_length_below_the_payload_is_a_damaged_copy() -> None:
    recovery, _ = reading()
    actions = recovery.on_bodies(A, [0], [Recovered(0, b"four", 3)], 0.0)
    assert isinstance(only(actions, Read), Read)


def written_back(*, batch: int = 1, metadata: LedgerMetadata | None = None) -> tuple[Recovery, WriteBack]:
    """Entry 0 was found and is on its way back; entry 1 is absent."""
    recovery, _ = reading(metadata, batch=batch)
    actions = recovery.on_bodies(A, [0], [entry(0)], 0.0)
    write = actions[0]
    assert isinstance(write, WriteBack)
    recovery.on_negative(B, [1], Status.NO_ENTRY, 0.0)
    assert recovery.on_negative(C, [1], Status.NO_ENTRY, 0.0) == []
    return recovery, write


def test_the_ledger_is_closed_only_when_all_of_it_is_on_qa_bookies() -> None:
    """I-37. Mutant: close when the end is found."""
    recovery, write = written_back()
    assert write.targets == {0: range(1), 1: range(1), 2: range(1)}
    assert write.lac == -1
    assert recovery.on_added(0, A, [0], 0.0) == []
    assert only(recovery.on_added(2, C, [0], 0.0), Close) == Close(EntryId(0), 3, ())
    closed = ledger().closed(EntryId(0), 3)
    assert only(recovery.on_closed(closed), Finished) == Finished(closed)
    assert recovery.abort(ClientClosed("late")) == []


def test_a_replacement_stays_private_until_the_close() -> None:
    """I-36."""
    recovery, _ = written_back()
    replace = only(recovery.on_add_failed(2, C, None, None, 0.0), ReplaceBookies)
    assert replace == ReplaceBookies({2: C}, (A, B, C))
    write = only(recovery.on_replaced({2: D}, 0.0), WriteBack)
    assert isinstance(write, WriteBack)
    assert (write.ensemble, write.targets, write.lac) == ((A, B, D), {2: [0]}, -1)
    recovery.on_added(0, A, [0], 0.0)
    close = only(recovery.on_added(2, D, [0], 0.0), Close)
    assert close == Close(EntryId(0), 3, (Fragment(EntryId(0), (A, B, D)),))


def test_a_bookie_without_replacement_is_done_without_if_qa_can_be_reached() -> None:
    """I-28a."""
    recovery, _ = written_back()
    recovery.on_add_failed(2, C, None, None, 0.0)
    assert recovery.on_replaced({}, 0.0) == []
    recovery.on_added(0, A, [0], 0.0)
    assert only(recovery.on_added(1, B, [0], 0.0), Close) == Close(EntryId(0), 3, ())


def test_two_bookies_without_replacement_end_the_attempt() -> None:
    """I-37."""
    recovery, _ = written_back()
    recovery.on_add_failed(2, C, None, None, 0.0)
    recovery.on_replaced({}, 0.0)
    recovery.on_add_failed(1, B, None, None, 0.0)
    aborted = only(recovery.on_replaced({}, 0.0), Aborted)
    assert isinstance(aborted, Aborted)
    assert "entry 0" in str(aborted.error)


def test_failures_while_replacements_are_looked_for_are_replaced_next() -> None:
    """I-09 in its private form."""
    recovery, _ = written_back()
    recovery.on_add_failed(2, C, None, None, 0.0)
    assert recovery.on_add_failed(1, B, None, None, 0.0) == []
    actions = recovery.on_replaced({2: D}, 0.0)
    assert isinstance(actions[0], WriteBack)
    assert actions[1] == ReplaceBookies({1: B}, (A, B, D))
    recovery.on_replaced({1: E}, 0.0)
    recovery.on_added(2, D, [0], 0.0)
    close = only(recovery.on_added(1, E, [0], 0.0), Close)
    assert close == Close(EntryId(0), 3, (Fragment(EntryId(0), (A, E, D)),))


def test_an_abandoned_bookie_is_sent_nothing_more() -> None:
    """I-28a."""
    recovery, _ = reading(batch=2)
    recovery.on_bodies(A, [0], [entry(0)], 0.0)
    recovery.on_add_failed(2, C, None, None, 0.0)
    recovery.on_replaced({}, 0.0)
    actions = recovery.on_bodies(B, [1], [entry(1)], 0.0)
    assert isinstance(actions[0], WriteBack)
    assert set(actions[0].targets) == {0, 1}


def test_a_fatal_answer_to_a_write_back_aborts() -> None:
    """I-37."""
    recovery, _ = written_back()
    aborted = only(recovery.on_add_failed(0, A, Status.FENCED, [0], 0.0), Aborted)
    assert isinstance(aborted, Aborted)
    assert isinstance(aborted.error, RecoveryFailed)


def test_a_bookie_that_refuses_the_key_of_a_write_back_is_replaced() -> None:
    """A stranger claimed the id there: others accepted the key with the fence, so the key is right."""
    recovery, _ = written_back()
    actions = recovery.on_add_failed(0, A, Status.UNAUTHORIZED, [0], 0.0)
    assert [type(action) for action in actions] == [ReplaceBookies]


def measuring() -> tuple[Recovery, Read]:
    """LAC 4 was told by entry 6, which then is not there: entry 4 has to tell its length."""
    recovery = Recovery(7, read_batch_max=1)
    recovery.start()
    recovery.on_marked(ledger(), 0.0)
    recovery.on_fence_negative(A, 0.0)
    recovery.on_fence_body(B, entry_id=6, lac=4, length=21, now=0.0)
    recovery.on_negative(C, [5], Status.NO_ENTRY, 0.0)
    read = only(recovery.on_negative(A, [5], Status.NO_ENTRY, 0.0), Read)
    assert isinstance(read, Read)
    assert recovery.state is RecoveryState.MEASURING
    assert [(request.bookie_id, request.entry_ids) for request in read.requests] == [(B, [4])]
    return recovery, read


def test_with_nothing_recovered_the_length_is_that_of_the_entry_at_the_lac() -> None:
    """I-12. Mutant: the length of the entry that carried the LAC, which counts entries past the end."""
    recovery, _ = measuring()
    assert only(recovery.on_bodies(B, [4], [entry(4)], 0.0), Close) == Close(EntryId(4), 15, ())


def test_the_length_is_known_when_the_entry_before_the_last_fragment_told_it() -> None:
    """I-32: no entry has to be read for it."""
    metadata = ledger().with_fragment(EntryId(5), (A, B, D))
    recovery = Recovery(7, read_batch_max=1)
    recovery.start()
    recovery.on_marked(metadata, 0.0)
    recovery.on_fence_body(A, entry_id=4, lac=3, length=15, now=0.0)
    recovery.on_fence_negative(B, 0.0)
    recovery.on_negative(D, [5], Status.NO_ENTRY, 0.0)
    assert only(recovery.on_negative(A, [5], Status.NO_ENTRY, 0.0), Close) == Close(EntryId(4), 15, ())


def test_an_unreadable_entry_at_the_lac_does_not_keep_the_ledger_open() -> None:
    """L-1."""
    recovery, _ = measuring()
    recovery.on_unknown(B, [4], "lost", 0.0)
    recovery.on_unknown(C, [4], "lost", 0.0)
    assert only(recovery.on_unknown(A, [4], "lost", 0.0), Close) == Close(EntryId(4), 21, ())


def test_late_answers_change_nothing() -> None:
    recovery, _ = written_back()
    assert recovery.on_fence_body(C, entry_id=9, lac=8, length=30, now=0.0) == []
    assert recovery.on_fence_unknown(C, Status.UNAUTHORIZED, 0.0) == []
    assert recovery.on_marked(ledger(), 0.0) == []
    assert recovery.on_closed(ledger().closed(EntryId(8), 1)) == []
    recovery.on_added(0, A, [0], 0.0)
    recovery.on_added(1, B, [0], 0.0)
    assert recovery.state is RecoveryState.CLOSING
    assert recovery.on_add_failed(2, C, None, None, 0.0) == []
    assert recovery.on_bodies(A, [1], [entry(1)], 0.0) == []
    assert recovery.on_replaced({2: D}, 0.0) == []
    assert recovery.next_deadline() is None


def test_an_abort_is_the_end() -> None:
    recovery, _ = written_back()
    assert isinstance(only(recovery.abort(ClientClosed("closed")), Aborted), Aborted)
    assert recovery.abort(ClientClosed("again")) == []
    assert recovery.on_added(0, A, [0], 0.0) == []
    assert recovery.on_time(100.0) == []
    assert recovery.state is RecoveryState.ABORTED


def test_time_brings_further_reads_and_gives_up_late_bookies() -> None:
    """L-3."""
    recovery, _ = reading()
    assert recovery.next_deadline() == 2.0
    read = only(recovery.on_time(2.0), Read)
    assert isinstance(read, Read)
    assert [(request.bookie_id, request.entry_ids) for request in read.requests] == [(B, [0])]
    recovery.on_bodies(B, [0], [entry(0)], 2.0)
    recovery.on_added(0, A, [0], 2.0)
    assert recovery.next_deadline() == 4.0  # the read of entry 1
    actions = recovery.on_time(7.0)
    assert ReplaceBookies({1: B}, (A, B, C)) in actions


def test_reading_waits_for_the_write_back_and_goes_on_after_it() -> None:
    """I-14. Mutant: read on whatever waits, or forget what an ended change acknowledged."""
    recovery, _ = reading()
    assert [type(action) for action in recovery.on_bodies(A, [0], [entry(0)], 0.0)] == [WriteBack, Read]
    assert [type(action) for action in recovery.on_bodies(B, [1], [entry(1)], 0.0)] == [WriteBack]
    recovery.on_add_failed(2, C, None, None, 0.0)
    recovery.on_added(0, A, [0, 1], 0.0)
    recovery.on_added(1, B, [0, 1], 0.0)
    assert [type(action) for action in recovery.on_replaced({2: D}, 0.0)] == [WriteBack, Read]


def test_large_entries_are_read_in_smaller_batches() -> None:
    """I-14: a quarter of bytes_max per batch, by the sizes seen."""
    recovery = Recovery(7, read_batch_max=8, bytes_max=400)
    recovery.start()
    recovery.on_marked(ledger(1, 1, 1), 0.0)
    actions = recovery.on_fence_negative(A, 0.0)
    sizes = []
    for _ in range(3):
        read = next(action for action in actions if isinstance(action, Read))
        entry_ids = read.requests[0].entry_ids
        sizes.append(len(entry_ids))
        actions = recovery.on_bodies(A, entry_ids, [entry(e, 50) for e in entry_ids], 0.0)
        for action in list(actions):
            if isinstance(action, WriteBack):
                actions += recovery.on_added(0, A, action.targets[0], 0.0)
    assert sizes == [8, 2, 2]
