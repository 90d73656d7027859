"""A process that did not run does not blame others for the time."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from bookkeeper.client.deadline_timer import GRACE_S, LATE_S, PatientTimer


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_timer_that_comes_in_time_calls_at_once(clock: Clock) -> None:
    called: list[float] = []
    timer = PatientTimer(clock, 5.0, lambda: called.append(clock.seconds()))
    clock.pump([4.9, 0.1 + LATE_S / 2])
    assert called == [pytest.approx(5.0 + LATE_S / 2)]
    assert not timer.active()


def test_a_timer_that_comes_late_waits_for_what_arrived_meanwhile(clock: Clock) -> None:
    called: list[float] = []
    timer = PatientTimer(clock, 5.0, lambda: called.append(clock.seconds()))
    clock.advance(60.0)  # nothing ran for a minute
    assert called == []
    assert timer.active()
    clock.pump([GRACE_S / 2, GRACE_S / 2])
    assert called == [60.0 + GRACE_S]
    assert not timer.active()


@pytest.mark.parametrize("late", [False, True])
def test_a_cancelled_timer_never_calls(clock: Clock, late: bool) -> None:
    called: list[int] = []
    timer = PatientTimer(clock, 5.0, lambda: called.append(1))
    if late:
        clock.advance(60.0)
    timer.cancel()
    assert not timer.active()
    clock.advance(100.0)
    assert called == []
