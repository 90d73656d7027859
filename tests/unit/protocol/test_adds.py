"""The window of pending adds, event by event. `test_adds_twin.py` covers their combinations.

Mutants named in the tests; the others: an answer is a count instead of a bit, a late answer reaches a slot used again,
a failed window acknowledges, chosen ids may be used twice, a resend keeps its old deadline.
"""

from __future__ import annotations

import pytest

from bookkeeper.errors import AddFailed, DuplicateEntry, InvalidArgument, LedgerFencedOff, UnauthorizedAccess
from bookkeeper.model import BookieId, EntryId, Status
from bookkeeper.protocol.add_decisions import Decision
from bookkeeper.protocol.add_rings import CAPACITY_FIRST
from bookkeeper.protocol.adds import AddWindow

A, B, C, D, E = (BookieId(name) for name in "abcde")


def window(
    *,
    write_quorum: int = 3,
    ack_quorum: int = 2,
    entries_max: int = 8,
    bytes_max: int = 1000,
    next_entry_id: int = 0,
    frozen_lac: int | None = None,
    delayed: bool = False,
    changes_max: int = 100,
) -> AddWindow:
    return AddWindow(
        ledger_id=7,
        ensemble=(A, B, C),
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        entries_max=entries_max,
        bytes_max=bytes_max,
        next_entry_id=next_entry_id,
        frozen_lac=frozen_lac,
        delay_ensemble_change=delayed,
        response_timeout_s=5.0,
        quorum_timeout_s=20.0,
        changes_max=changes_max,
    )


def test_an_entry_is_acknowledged_by_its_ack_quorum_and_in_order() -> None:
    """I-05, I-06."""
    adds = window()
    assert adds.push([10, 20, 30], 0.0) == 0
    assert adds.on_responses(0, A, [0, 1, 2]) == range(0)
    assert adds.on_responses(1, B, [1, 2]) == range(0)
    assert adds.lac == -1
    assert adds.on_responses(2, C, [0]) == range(3)
    assert (adds.lac, adds.acknowledged_length) == (2, 60)


def test_a_repeated_answer_does_not_acknowledge() -> None:
    """I-05. Mutant: count answers."""
    adds = window()
    adds.push([10], 0.0)
    for _ in range(3):
        assert not adds.on_responses(0, A, [0, 0])
    assert adds.on_responses(1, B, [0]) == range(1)


def test_answers_outside_the_write_set_or_the_window_change_nothing() -> None:
    adds = window(write_quorum=2)
    adds.push([10], 0.0)
    assert not adds.on_responses(2, C, [0, -1, 1, 8, 2**40])
    assert not adds.on_responses(0, A, [0])
    assert adds.on_responses(1, B, [0]) == range(1)


def test_a_late_third_answer_does_not_reach_the_entry_that_uses_its_slot_now() -> None:
    """Mutant: no check against the window: entry 8 would be acknowledged by answers for entry 0."""
    adds = window(entries_max=8)
    adds.push([1] * 8, 0.0)
    adds.on_responses(0, A, range(8))
    adds.on_responses(1, B, range(8))
    adds.on_failure(2, C, None, None)
    request = adds.begin_change()
    assert request.first_entry_id == 8
    adds.end_change((A, B, D), 0.0)
    assert adds.push([1], 0.0) == 8
    assert not adds.on_responses(0, A, [0])
    assert not adds.on_responses(1, B, [0])
    assert adds.lac == 7


def test_memory_is_held_until_the_last_bookie_answered() -> None:
    """I-14. Mutant: free the entry with its acknowledgement."""
    adds = window(entries_max=4, bytes_max=100)
    adds.push([30, 30], 0.0)
    adds.on_responses(0, A, [0, 1])
    assert adds.on_responses(1, B, [0, 1]) == range(2)
    assert (adds.occupied_entries, adds.occupied_bytes, adds.unacknowledged_count) == (2, 60, 0)
    assert adds.accepts([30, 30]) == 1
    assert adds.accepts([1, 1, 1]) == 2
    adds.on_responses(2, C, [0])
    assert (adds.occupied_entries, adds.occupied_bytes) == (1, 30)
    assert adds.on_failure(2, C, None, [1]) is Decision.CHANGE
    assert (adds.occupied_entries, adds.occupied_bytes) == (0, 0)


def test_an_entry_larger_than_the_bound_goes_alone() -> None:
    adds = window(bytes_max=100)
    assert adds.accepts([500, 1]) == 1
    adds.push([500], 0.0)
    assert adds.accepts([0]) == 0


@pytest.mark.parametrize(
    ("status", "error"), [(Status.FENCED, LedgerFencedOff), (Status.UNAUTHORIZED, UnauthorizedAccess)]
)
def test_one_fenced_answer_ends_the_window_for_ever(status: Status, error: type[Exception]) -> None:
    """I-08. Mutant: a later positive answer acknowledges."""
    adds = window()
    adds.push([10, 10], 0.0)
    adds.on_responses(0, A, [0, 1])
    assert adds.on_failure(1, B, status, [0]) is Decision.FATAL
    assert isinstance(adds.error, error)
    assert not adds.on_responses(2, C, [0, 1])
    assert adds.fail(adds.error) == range(2)
    assert adds.fail(AddFailed("again")) == ()
    assert isinstance(adds.error, error)
    assert not adds.on_responses(1, B, [0, 1])
    assert adds.on_failure(0, A, None, None) is Decision.IGNORED
    assert adds.accepts([1]) == 0
    assert adds.lac == -1
    assert adds.occupied_bytes == 0
    assert adds.next_deadline() is None


def test_a_fenced_answer_during_a_change_is_final_when_the_change_ends() -> None:
    """I-08, I-09."""
    adds = window()
    adds.push([10], 0.0)
    adds.on_failure(2, C, None, [0])
    adds.begin_change()
    adds.on_responses(0, A, [0])
    adds.on_responses(1, B, [0])
    assert adds.on_failure(1, B, Status.FENCED, [0]) is Decision.FATAL
    result = adds.end_change((A, B, D), 0.0)
    assert (result.resend, list(result.acknowledged), result.further) == ({}, [], False)
    assert adds.fail(AddFailed("late")) == range(1)


def test_answers_of_a_replaced_bookie_do_not_count() -> None:
    """I-05. Mutant: count by index only."""
    adds = window(ack_quorum=3)
    adds.push([10], 0.0)
    adds.on_responses(0, A, [0])
    adds.on_responses(1, B, [0])
    adds.on_failure(2, C, None, [0])
    adds.begin_change()
    assert adds.end_change((A, B, D), 0.0).resend == {2: [0]}
    assert not adds.on_responses(2, C, [0])
    assert adds.on_failure(2, C, Status.FENCED, [0]) is Decision.IGNORED
    assert adds.on_responses(2, D, [0]) == range(1)


def test_no_acknowledgement_while_the_ensemble_changes() -> None:
    """I-09. What stays complete under the new ensemble is acknowledged by the end of the change."""
    adds = window()
    adds.push([10], 0.0)
    adds.on_failure(2, C, None, [0])
    assert adds.begin_change().failed == {2: C}
    adds.on_responses(0, A, [0])
    assert not adds.on_responses(1, B, [0])
    result = adds.end_change((A, B, D), 0.0)
    assert result.acknowledged == range(1)
    assert result.resend == {2: [0]}


def test_failures_during_a_change_are_merged_into_it_or_into_the_next() -> None:
    """I-09."""
    adds = window()
    adds.push([10], 0.0)
    assert adds.on_failure(2, C, None, [0]) is Decision.CHANGE
    adds.begin_change()
    assert adds.on_failure(1, B, None, [0]) is Decision.MERGED
    assert dict(adds.failed) == {1: B, 2: C}
    result = adds.end_change((A, B, D), 0.0)
    assert result.further
    assert adds.begin_change().failed == {1: B}
    assert not adds.end_change((A, E, D), 0.0).further


def test_an_index_that_somebody_else_replaced_starts_anew_too() -> None:
    """I-05, I-12: re-replication changed the last fragment; the committed ensemble decides."""
    adds = window(ack_quorum=3)
    adds.push([10], 0.0)
    adds.on_responses(0, A, [0])
    adds.on_failure(2, C, None, [0])
    adds.begin_change()
    assert adds.end_change((E, B, D), 0.0).resend == {0: [0], 2: [0]}


def test_the_number_of_changes_is_limited() -> None:
    """I-09. Mutant: never count them."""
    adds = window(changes_max=1)
    adds.push([10], 0.0)
    adds.on_failure(2, C, None, [0])
    adds.begin_change()
    adds.end_change((A, B, D), 0.0)
    assert adds.on_failure(2, D, None, [0]) is Decision.FATAL
    assert isinstance(adds.error, AddFailed)


def test_a_delayed_change_waits_until_an_entry_cannot_reach_its_quorum() -> None:
    """delayEnsembleChange: all failed bookies are replaced at once."""
    adds = window(delayed=True)
    adds.push([10], 0.0)
    assert adds.on_failure(2, C, Status.IO_ERROR, [0]) is Decision.NOTED
    assert adds.on_failure(1, B, Status.IO_ERROR, [0]) is Decision.CHANGE
    assert adds.begin_change().failed == {1: B, 2: C}


def test_a_read_only_bookie_is_replaced_without_delay() -> None:
    adds = window(delayed=True)
    adds.push([10], 0.0)
    assert adds.on_failure(2, C, Status.READ_ONLY, [0]) is Decision.CHANGE


def test_a_failure_with_a_delayed_change_leaves_the_entries_to_their_quorum() -> None:
    adds = window(delayed=True)
    adds.push([10], 0.0)
    adds.on_failure(2, C, None, None)
    adds.on_responses(0, A, [0])
    assert adds.on_responses(1, B, [0]) == range(1)
    assert adds.occupied_entries == 0


def test_abandoned_indexes_are_given_up_for_later_entries_too() -> None:
    """I-28a. Mutant: later entries wait for the abandoned bookie for ever."""
    adds = window()
    adds.push([10], 0.0)
    adds.on_failure(2, C, None, [0])
    adds.begin_change()
    assert not adds.abandon([2])
    assert adds.abandoned == {2}
    assert adds.stuck is None
    adds.push([10], 0.0)
    adds.on_responses(0, A, [0, 1])
    assert adds.on_responses(1, B, [0, 1]) == range(2)
    assert adds.occupied_entries == 0
    assert adds.on_failure(2, C, None, None) is Decision.NOTED


def test_an_abandoned_index_that_gets_a_new_bookie_is_used_again() -> None:
    adds = window(ack_quorum=3)
    adds.push([10], 0.0)
    adds.on_responses(0, A, [0])
    adds.on_failure(2, C, None, [0])
    adds.begin_change()
    adds.abandon([2])
    adds.on_failure(1, B, None, [0])
    adds.begin_change()
    assert adds.end_change((A, D, E), 0.0).resend == {1: [0], 2: [0]}
    assert not adds.abandoned
    assert adds.stuck is None
    adds.on_responses(1, D, [0])
    assert adds.on_responses(2, E, [0]) == range(1)


def test_stuck_names_the_first_entry_that_cannot_reach_its_quorum() -> None:
    """I-28a, I-37."""
    adds = window(write_quorum=2)
    adds.push([10, 10, 10], 0.0)
    adds.on_failure(2, C, None, None)
    adds.begin_change()
    adds.abandon([2])
    assert adds.stuck == 1  # entry 0 is on a and b, entry 1 on b and c
    adds.abandon([0])
    assert adds.stuck == 0


def test_a_frozen_lac_stays_while_entries_are_acknowledged() -> None:
    """I-38."""
    adds = window(next_entry_id=5, frozen_lac=4)
    assert adds.push([10], 0.0) == 5
    adds.on_responses(0, A, [5])
    assert adds.on_responses(1, B, [5]) == range(5, 6)
    assert adds.lac == 4
    assert adds.last_acknowledged == 5


# --- chosen ids -----------------------------------------------------------------------------------------------------


def acknowledge(adds: AddWindow, *entry_ids: int) -> range:
    adds.on_responses(0, A, entry_ids)
    adds.on_responses(2, C, entry_ids)
    return adds.on_responses(1, B, entry_ids)


def test_chosen_ids_are_acknowledged_only_when_the_gap_below_is_filled() -> None:
    """I-03, I-06."""
    adds = window()
    adds.push_ids([2, 0], [20, 10], 0.0)
    assert acknowledge(adds, 2, 0) == range(0) or adds.lac == 0
    assert adds.lac == 0
    adds.push_ids([1], [30], 0.0)
    acknowledge(adds, 1)
    assert adds.lac == 2
    assert adds.acknowledged_length == 60
    assert adds.occupied_entries == 0


@pytest.mark.parametrize("entry_ids", [[0], [3], [5, 5], [4, 3]], ids=["acknowledged", "pending", "twice", "second"])
def test_a_chosen_id_is_used_once_and_a_refused_call_takes_nothing(entry_ids: list[int]) -> None:
    """I-03."""
    adds = window()
    adds.push_ids([0, 3], [10, 10], 0.0)
    acknowledge(adds, 0)
    with pytest.raises(DuplicateEntry, match="ledger 7"):
        adds.push_ids(entry_ids, [10] * len(entry_ids), 0.0)
    assert adds.pushed_length == 20
    assert adds.last_pushed == 3
    adds.push_ids([4], [10], 0.0)


def test_a_negative_chosen_id_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="-3"):
        window().push_ids([-3], [10], 0.0)


def test_a_chosen_id_too_far_above_the_oldest_entry_waits() -> None:
    """I-14: the ring spans 8 ids."""
    adds = window(entries_max=8)
    assert adds.accepts_ids([8], [10]) == 0
    assert adds.accepts_ids([7, 8], [10, 10]) == 1
    adds.push_ids([0], [10], 0.0)
    acknowledge(adds, 0)
    assert adds.accepts_ids([8], [10]) == 1


def test_a_gap_in_a_slot_used_before_is_still_a_gap() -> None:
    """Mutant: leave a freed slot as it was: entry 8 would count as complete, and be refused as a duplicate."""
    adds = window(entries_max=8)
    adds.push_ids(range(8), [10] * 8, 0.0)
    acknowledge(adds, *range(8))
    adds.push_ids([9], [10], 0.0)
    assert not acknowledge(adds, 9)
    assert adds.lac == 7
    adds.push_ids([8], [10], 0.0)
    acknowledge(adds, 8)
    assert adds.lac == 9


def test_outstanding_chosen_ids_are_listed_without_the_gaps() -> None:
    adds = window()
    adds.push_ids([1, 4], [10, 10], 0.0)
    assert adds.fail(AddFailed("over")) == [1, 4]


def test_an_ensemble_change_does_not_send_gaps() -> None:
    adds = window()
    adds.push_ids([1, 4], [10, 10], 0.0)
    adds.on_failure(2, C, None, None)
    adds.begin_change()
    assert adds.end_change((A, B, D), 0.0).resend == {2: [1, 4]}


# --- time -----------------------------------------------------------------------------------------------------------


def test_late_bookies_are_found_by_one_deadline_and_reported_once() -> None:
    adds = window()
    adds.push([1, 1], 10.0)
    adds.push([1], 12.0)
    adds.on_responses(0, A, [0, 1, 2])
    adds.on_responses(1, B, [1])
    assert adds.next_deadline() == 15.0
    assert adds.overdue(14.9) == []
    late = adds.overdue(15.0)
    assert [(one.index, one.bookie_id, one.entry_ids) for one in late] == [(1, B, [0]), (2, C, [0, 1])]
    assert adds.overdue(16.0) == []
    assert adds.next_deadline() == 17.0
    assert [one.entry_ids for one in adds.overdue(17.0)] == [[2], [2]]


def test_what_was_answered_or_given_up_is_not_overdue() -> None:
    adds = window(delayed=True)
    adds.push([1], 0.0)
    adds.on_responses(0, A, [0])
    adds.on_failure(1, B, Status.IO_ERROR, [0])
    assert [(one.index, one.entry_ids) for one in adds.overdue(9.0)] == [(2, [0])]


def test_a_resend_has_its_own_deadline() -> None:
    """Mutant: the replaced index keeps the deadline of the first sending: the new bookie is replaced at once."""
    adds = window()
    adds.push([1], 0.0)
    adds.on_responses(0, A, [0])
    adds.on_failure(2, C, None, [0])
    adds.begin_change()
    adds.end_change((A, B, D), 4.0)
    assert [(one.index, one.bookie_id) for one in adds.overdue(5.0)] == [(1, B)]
    assert adds.next_deadline() == 9.0
    assert [(one.index, one.bookie_id) for one in adds.overdue(9.0)] == [(2, D)]


def test_an_entry_without_quorum_is_found_after_the_quorum_timeout() -> None:
    adds = window()
    adds.push([1], 0.0)
    adds.push([1], 1.0)
    adds.on_responses(0, A, [0])
    adds.overdue(6.0)
    assert adds.next_deadline() == 20.0
    assert adds.quorum_overdue(19.9) is None
    assert adds.quorum_overdue(20.0) == 0
    adds.on_responses(1, B, [0])
    assert adds.quorum_overdue(20.5) is None
    assert adds.quorum_overdue(21.0) == 1


def test_an_ensemble_change_that_takes_too_long_is_a_quorum_timeout() -> None:
    adds = window()
    adds.push([1], 0.0)
    adds.on_failure(2, C, None, [0])
    adds.begin_change()
    adds.on_responses(0, A, [0])
    adds.on_responses(1, B, [0])
    assert adds.quorum_overdue(20.0) == 0


def test_a_complete_entry_behind_a_gap_is_not_a_quorum_timeout_and_leaves_no_deadline() -> None:
    """Mutant: keep its deadline: the timer would fire without end."""
    adds = window()
    adds.push_ids([1], [10], 0.0)
    acknowledge(adds, 1)
    assert adds.overdue(5.0) == []
    assert adds.quorum_overdue(20.0) is None
    assert adds.next_deadline() is None


def test_an_answered_window_has_no_deadline() -> None:
    adds = window()
    adds.push([1, 1], 0.0)
    acknowledge(adds, 0, 1)
    assert adds.next_deadline() is None


@pytest.mark.parametrize(("entries_max", "bytes_max"), [(0, 1), (1, 0)])
def test_a_window_that_holds_nothing_is_refused(entries_max: int, bytes_max: int) -> None:
    with pytest.raises(InvalidArgument, match="at least 1"):
        window(entries_max=entries_max, bytes_max=bytes_max)


def test_changes_that_follow_each_other_count_against_the_limit_too() -> None:
    """I-09. Mutant: a change begun because more bookies failed meanwhile lets the count pass zero: no limit."""
    adds = window(changes_max=1)
    adds.push([10], 0.0)
    adds.on_failure(0, A, None, [0])
    adds.begin_change()
    assert adds.on_failure(1, B, None, [0]) is Decision.MERGED
    assert not adds.end_change((D, B, C), 0.0).further
    assert isinstance(adds.error, AddFailed)
    assert "limit of ensemble changes" in str(adds.error)


def test_rings_grow_with_what_is_on_its_way_and_shrink_at_rest() -> None:
    """I-14: twenty thousand idle handles must not hold twenty thousand full windows."""
    adds = window(entries_max=8192, bytes_max=1 << 30)
    for first in range(0, 8192, 512):
        assert adds.push([1] * 512, 0.0) == first
    assert adds.accepts([1]) == 0
    for first in range(0, 8192, 1024):
        entry_ids = list(range(first, first + 1024))
        adds.on_responses(0, A, entry_ids)
        assert adds.on_responses(1, B, entry_ids) == range(first, first + 1024)
        adds.on_responses(2, C, entry_ids)
    assert adds.slot_count == 8192
    assert adds.overdue(5.0) == []
    assert adds.slot_count == CAPACITY_FIRST
    assert adds.push([3], 6.0) == 8192
    adds.on_responses(0, A, [8192])
    assert adds.on_responses(1, B, [8192]) == range(8192, 8193)
    assert adds.acknowledged_length == 8195


def test_the_first_gap_is_the_id_that_everything_behind_it_waits_for() -> None:
    adds = window()
    assert adds.first_gap() == 0
    adds.push_ids([0, 1, 4], [1, 1, 1], 0.0)
    assert adds.first_gap() == 2
    assert adds.first_gap({2, 7}) == 3
    assert adds.first_gap({2, 3, 5}) == 6
    adds.push_ids([2, 3], [1, 1], 0.0)
    assert adds.first_gap() == 5


def test_an_index_that_owes_no_answer_is_not_waited_for() -> None:
    adds = window(write_quorum=2)
    assert not adds.expects(0)
    adds.push([1], 0.0)
    assert [adds.expects(index) for index in range(3)] == [True, True, False]
    adds.on_responses(0, A, [0])
    assert [adds.expects(index) for index in range(3)] == [False, True, False]


def test_a_frozen_lac_goes_on_when_it_is_told_to_but_never_back_or_beyond_the_acknowledgements() -> None:
    """I-07: with deferred sync what is acknowledged is not confirmed."""
    adds = window(frozen_lac=-1)
    adds.push([1, 1, 1, 1], 0.0)
    for index, bookie_id in enumerate((A, B)):
        adds.on_responses(index, bookie_id, [0, 1, 2])
    assert (adds.last_acknowledged, adds.lac) == (2, -1)
    adds.move_lac(EntryId(1))
    assert adds.lac == 1
    assert adds.push_one(1, 0.0)[1] == 1
    for wrong in (0, 3):
        with pytest.raises(AssertionError):
            adds.move_lac(EntryId(wrong))
    with pytest.raises(AssertionError):
        window().move_lac(EntryId(0))
