"""Every row of the table in transitions.py, for every state of the ledger found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookkeeper.errors import LedgerClosed, LedgerFencedOff, RecoveryFailed, ReplicationFailed, UnclosedFragment
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, LedgerState
from bookkeeper.protocol.transitions import (
    NO_UPDATE,
    Change,
    Refused,
    Replacement,
    Reselect,
    change_ensemble,
    close_by_recovery,
    close_by_writer,
    rename_member,
    replace_members,
    start_recovery,
)


def names(*bookies: str) -> tuple[BookieId, ...]:
    return tuple(BookieId(bookie) for bookie in bookies)


OPEN = LedgerMetadata(
    3, 2, 2, (Fragment(EntryId(0), names("a", "b", "c")), Fragment(EntryId(10), names("a", "b", "d")))
)
IN_RECOVERY = OPEN.in_recovery()
CLOSED = OPEN.closed(EntryId(19), 200)


def change(current: LedgerMetadata, first: int, **chosen: tuple[int, str]) -> Change | Reselect:
    """chosen: failed bookie = (index, replacement)."""
    replacements = {i: Replacement(BookieId(failed), BookieId(new)) for failed, (i, new) in chosen.items()}
    return change_ensemble(current, ledger_id=7, first_entry_id=EntryId(first), replacements=replacements)


def test_recovery_starts_only_from_open() -> None:
    """I-13, I-21."""
    started = start_recovery(OPEN)
    assert isinstance(started, LedgerMetadata)
    assert started == IN_RECOVERY
    assert start_recovery(IN_RECOVERY) is NO_UPDATE
    assert start_recovery(CLOSED) is NO_UPDATE


def test_a_change_appends_a_fragment_after_the_last_or_replaces_it_at_the_same_entry() -> None:
    """I-09."""
    appended = change(OPEN, 15, d=(2, "e"))
    assert isinstance(appended, LedgerMetadata)
    assert appended.fragments == (*OPEN.fragments, Fragment(EntryId(15), names("a", "b", "e")))
    replaced = change(OPEN, 10, d=(2, "e"))
    assert isinstance(replaced, LedgerMetadata)
    assert replaced.fragments == (OPEN.fragments[0], Fragment(EntryId(10), names("a", "b", "e")))


def test_only_indexes_that_still_hold_their_failed_bookie_are_replaced() -> None:
    """Re-replication put d where c was: c's replacement is not needed. Mutant: replace whatever is there."""
    changed = change(OPEN, 15, c=(2, "x"), a=(0, "e"))
    assert isinstance(changed, LedgerMetadata)
    assert changed.last_fragment.ensemble == names("e", "b", "d")
    assert change(OPEN, 15, c=(2, "x")) is NO_UPDATE


def test_an_ensemble_change_that_went_through_unnoticed_needs_no_second_write() -> None:
    """I-16: the reply was lost, the loop reads again."""
    done = change(OPEN, 15, d=(2, "e"))
    assert isinstance(done, LedgerMetadata)
    assert change(done, 15, d=(2, "e")) is NO_UPDATE


def test_a_replacement_that_became_a_member_has_to_be_chosen_again() -> None:
    """I-10."""
    assert change(OPEN, 15, d=(2, "a")) == Reselect(frozenset(names("a")))
    assert change(OPEN, 15, a=(0, "e"), d=(2, "e")) == Reselect(frozenset())


def test_a_fragment_below_the_last_one_is_refused() -> None:
    """I-17. Another writer appended it."""
    refused = change(OPEN, 9, d=(2, "e"))
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, LedgerFencedOff)


@pytest.mark.parametrize(("current", "error"), [(IN_RECOVERY, LedgerFencedOff), (CLOSED, LedgerClosed)])
def test_a_writer_stops_when_the_ledger_is_not_open(current: LedgerMetadata, error: type[Exception]) -> None:
    """I-11, I-12. Mutant: the writer closes over IN_RECOVERY, as Apache's does."""
    for outcome in (
        change(current, 15, d=(2, "e")),
        close_by_writer(current, ledger_id=7, last_entry_id=EntryId(14), length=140),
    ):
        assert isinstance(outcome, Refused)
        assert isinstance(outcome.error, error)
        assert "ledger 7" in str(outcome.error)


def test_the_writers_close_keeps_the_fragments_it_finds() -> None:
    """I-12: re-replication changed an ensemble meanwhile."""
    closed = close_by_writer(OPEN, ledger_id=7, last_entry_id=EntryId(14), length=140)
    assert isinstance(closed, LedgerMetadata)
    assert (closed.state, closed.last_entry_id, closed.length) == (LedgerState.CLOSED, 14, 140)
    assert closed.fragments == OPEN.fragments


@pytest.mark.parametrize(("last", "length", "same"), [(19, 200, True), (18, 200, False), (19, 199, False)])
def test_closed_already_is_success_only_with_the_same_end(last: int, length: int, same: bool) -> None:
    """I-12, I-13."""
    outcome = close_by_writer(CLOSED, ledger_id=7, last_entry_id=EntryId(last), length=length)
    assert (outcome is NO_UPDATE) is same
    assert isinstance(outcome, Refused) is not same


def recovered(current: LedgerMetadata, *fragments: Fragment, last: int = 19) -> Change:
    return close_by_recovery(current, ledger_id=7, last_entry_id=EntryId(last), length=200, fragments=fragments)


def test_the_recoverers_close_sets_everything_at_once() -> None:
    """I-36, I-39: one fragment replaces the last, one is appended."""
    closed = recovered(
        IN_RECOVERY, Fragment(EntryId(10), names("a", "b", "e")), Fragment(EntryId(12), names("a", "f", "e"))
    )
    assert isinstance(closed, LedgerMetadata)
    assert (closed.state, closed.last_entry_id, closed.length) == (LedgerState.CLOSED, 19, 200)
    assert closed.fragments == (
        IN_RECOVERY.fragments[0],
        Fragment(EntryId(10), names("a", "b", "e")),
        Fragment(EntryId(12), names("a", "f", "e")),
    )


def test_a_private_fragment_past_the_end_is_left_out() -> None:
    closed = recovered(IN_RECOVERY, Fragment(EntryId(20), names("a", "f", "e")))
    assert isinstance(closed, LedgerMetadata)
    assert closed.fragments == IN_RECOVERY.fragments


def test_a_ledger_that_another_recoverer_closed_is_adopted() -> None:
    """I-39."""
    assert recovered(CLOSED, Fragment(EntryId(12), names("a", "f", "e")), last=12) is NO_UPDATE


@pytest.mark.parametrize(
    ("current", "first"), [(OPEN, 12), (IN_RECOVERY, 5)], ids=["the ledger is open again", "a fragment below the last"]
)
def test_a_recovery_whose_ledger_changed_under_it_is_refused(current: LedgerMetadata, first: int) -> None:
    """I-17, I-39."""
    outcome = recovered(current, Fragment(EntryId(first), names("a", "f", "e")))
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, RecoveryFailed)


def moved(current: LedgerMetadata, first: int, **chosen: tuple[int, str]) -> Change:
    """chosen: the member that lost its copies = (index, who got them)."""
    replacements = {i: Replacement(BookieId(old), BookieId(new)) for old, (i, new) in chosen.items()}
    return replace_members(current, ledger_id=7, first_entry_id=EntryId(first), replacements=replacements)


@pytest.mark.parametrize("current", [OPEN, IN_RECOVERY, CLOSED])
def test_re_replication_swaps_members_of_an_agreed_fragment_and_changes_nothing_else(current: LedgerMetadata) -> None:
    """I-13, I-75."""
    changed = moved(current, 0, b=(1, "x"), c=(2, "y"))
    assert isinstance(changed, LedgerMetadata)
    assert changed.fragments == (Fragment(EntryId(0), names("a", "x", "y")), current.fragments[1])
    assert (changed.state, changed.last_entry_id, changed.length) == (
        current.state,
        current.last_entry_id,
        current.length,
    )


def test_re_replication_changes_the_last_fragment_of_a_closed_ledger_only() -> None:
    """I-74."""
    assert isinstance(moved(CLOSED, 10, d=(2, "x")), LedgerMetadata)
    for current in (OPEN, IN_RECOVERY):
        refused = moved(current, 10, d=(2, "x"))
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, UnclosedFragment)


def test_re_replication_leaves_a_place_alone_that_has_another_member_by_now() -> None:
    """I-75: decided on what was read; also how a change whose answer was lost knows itself (I-16)."""
    changed = moved(CLOSED, 0, c=(2, "x"), q=(1, "y"))
    assert isinstance(changed, LedgerMetadata)
    assert changed.fragments[0].ensemble == names("a", "b", "x")
    assert moved(changed, 0, c=(2, "x"), q=(1, "y")) is NO_UPDATE


def test_re_replication_never_names_a_member_twice() -> None:
    """I-10."""
    refused = moved(CLOSED, 0, c=(2, "a"))
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, ReplicationFailed)


def test_re_replication_of_a_fragment_that_is_gone_is_refused() -> None:
    refused = moved(CLOSED, 5, c=(2, "x"))
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, ReplicationFailed)


@pytest.mark.parametrize("current", [OPEN, IN_RECOVERY, CLOSED])
def test_a_bookie_that_moved_is_renamed_in_every_fragment_and_nothing_else_changes(current: LedgerMetadata) -> None:
    renamed = rename_member(current, ledger_id=7, old=BookieId("b"), new=BookieId("x"))
    assert isinstance(renamed, LedgerMetadata)
    assert [fragment.ensemble for fragment in renamed.fragments] == [names("a", "x", "c"), names("a", "x", "d")]
    assert replace(renamed, fragments=current.fragments) == current
    assert rename_member(renamed, ledger_id=7, old=BookieId("b"), new=BookieId("x")) is NO_UPDATE


def test_two_members_of_a_fragment_never_get_one_name() -> None:
    refused = rename_member(OPEN, ledger_id=7, old=BookieId("c"), new=BookieId("a"))
    assert isinstance(refused, Refused)
    assert "names c and a, which are two bookies" in str(refused.error)
