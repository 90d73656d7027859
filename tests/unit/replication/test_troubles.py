"""Back-offs and the two states of a ledger in trouble (I-79); rates and bounds of what is in flight."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from bookkeeper.model import LedgerId
from bookkeeper.rate_limit import Pace
from bookkeeper.replication.copies.flow import CopyFlow
from bookkeeper.replication.repair.failed_repairs import (
    DENIED_AFTER,
    TROUBLES_MAX,
    UNREADABLE_AFTER,
    Troubles,
    TroubleState,
    backoff_s,
)

L = LedgerId(7)


def test_the_back_off_doubles_five_times_and_then_stays() -> None:
    """Apache's: G/32 for the first failure, G from the sixth on."""
    assert [backoff_s(failures, 320.0) for failures in range(1, 9)] == [10, 20, 40, 80, 160, 320, 320, 320]


def test_a_ledger_is_left_alone_until_its_back_off_is_over() -> None:
    troubles = Troubles(320.0)
    assert troubles.may_try(L, 0.0)
    trouble = troubles.on_failure(L, "no room", 100.0)
    assert trouble.next_try_s == troubles.next_try_s() == 110.0
    assert not troubles.may_try(L, 109.9)
    assert troubles.may_try(L, 110.0)
    assert troubles.on_failure(L, "no room", 110.0).next_try_s == 130.0
    assert troubles.on_success(L) is not None
    assert troubles.may_try(L, 110.0)
    assert troubles.on_failure(L, "no room", 200.0).failures == 1


@pytest.mark.parametrize(("denied", "tries"), [(False, UNREADABLE_AFTER), (True, DENIED_AFTER)])
def test_what_stays_unreadable_is_unrepairable_in_the_end_and_repaired_if_it_comes_back(
    denied: bool, tries: int
) -> None:
    troubles = Troubles(320.0)
    states = [troubles.on_failure(L, "gone", 0.0, unreadable=True, denied=denied).state for _ in range(tries + 1)]
    assert states == [TroubleState.WAITING] * (tries - 1) + [TroubleState.UNREPAIRABLE] * 2
    assert troubles.unrepairable == 1
    troubles.on_success(L)
    assert troubles.unrepairable == 0


def test_failures_for_other_reasons_never_make_a_ledger_unrepairable() -> None:
    troubles = Troubles(320.0)
    for _ in range(50):
        assert troubles.on_failure(L, "no room", 0.0).state is TroubleState.WAITING


def test_a_try_that_reads_everything_again_starts_the_count_anew() -> None:
    troubles = Troubles(320.0)
    for _ in range(3):
        for _ in range(UNREADABLE_AFTER - 1):
            troubles.on_failure(L, "gone", 0.0, unreadable=True)
        assert troubles.on_failure(L, "no room", 0.0).state is TroubleState.WAITING


def test_the_ledgers_kept_in_mind_are_bounded() -> None:
    troubles = Troubles(320.0)
    for number in range(TROUBLES_MAX + 10):
        troubles.on_failure(LedgerId(number), "no room", 0.0)
    assert len(troubles) == TROUBLES_MAX
    assert troubles.of(LedgerId(0)) is None


def test_a_pace_without_a_rate_never_waits() -> None:
    assert Pace(0).delay_s(10**12, 5.0) == 0.0


def test_a_bookie_that_comes_ends_all_back_offs_and_early_tries_do_not_lengthen_them() -> None:
    troubles = Troubles(320.0)
    for _ in range(4):
        troubles.on_failure(LedgerId(7), "no bookie is left", 10.0, unreadable=True)
    assert not troubles.may_try(LedgerId(7), 11.0)
    assert troubles.try_all(11.0) == 1
    assert troubles.try_all(11.0) == 0
    assert troubles.may_try(LedgerId(7), 11.0)
    trouble = troubles.on_failure(LedgerId(7), "no bookie is left", 11.0, unreadable=True)
    assert (trouble.failures, trouble.unreadable, trouble.state) == (4, 4, TroubleState.WAITING)
    for _ in range(5):
        troubles.try_all(12.0)
        troubles.on_failure(LedgerId(8), "no answer", 12.0)
    assert (trouble := troubles.of(LedgerId(8))) is not None
    assert trouble.failures == 3, "whoever gives no answer is still given up in the end (I-77)"


def test_amounts_are_spread_at_the_rate_after_what_may_go_at_once() -> None:
    pace = Pace(100.0)
    assert pace.delay_s(50, 10.0) == 0.0
    assert pace.delay_s(100, 10.0) == pytest.approx(1.0)
    assert pace.delay_s(100, 10.0) == pytest.approx(2.0)
    assert pace.delay_s(100, 12.0) == pytest.approx(1.0)
    # A long rest saves up no more than half a second's worth.
    assert pace.delay_s(150, 1000.0) == pytest.approx(1.0)


def test_whoever_does_not_fit_waits_in_line() -> None:
    flow = CopyFlow(Clock(), entries_max=10, bytes_max=100)
    first, second = flow.enter(6, 60), flow.enter(6, 10)
    third = flow.enter(1, 1)
    assert (first.called, second.called, third.called) == (True, False, False)
    flow.correct(60, 20)
    assert not second.called  # 12 entries
    flow.leave(6, 20)
    assert (second.called, third.called) == (True, True)
    assert (flow.entries, flow.bytes) == (7, 11)


def test_a_batch_larger_than_the_bounds_goes_alone() -> None:
    flow = CopyFlow(Clock(), entries_max=10, bytes_max=100)
    assert flow.enter(11, 500).called
    waiting = flow.enter(1, 1)
    assert not waiting.called
    flow.leave(11, 500)
    assert waiting.called


def test_who_gives_up_in_line_takes_nothing() -> None:
    flow = CopyFlow(Clock(), entries_max=10, bytes_max=100)
    flow.enter(10, 0)
    waiting = flow.enter(5, 0)
    waiting.addErrback(lambda _: None)
    waiting.cancel()
    flow.leave(10, 0)
    assert (flow.entries, flow.bytes) == (0, 0)
