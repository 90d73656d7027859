"""The deadlines of many handles over one timer: exact, few wake-ups, nothing kept of who is dropped."""

from __future__ import annotations

from collections.abc import Callable

from bookkeeper.client.write import add_deadlines
from bookkeeper.client.write.add_deadlines import DeadlineWatch
from tests.support.simulated_clock import SimulatedClock


class Handle:
    """Has the deadline it was given, until it is met."""

    def __init__(self, clock: SimulatedClock, deadline: float | None, on_deadline: Callable[[], object] = int) -> None:
        self.clock, self.deadline, self._call = clock, deadline, on_deadline
        self.told: list[float] = []

    def next_deadline(self) -> float | None:
        return self.deadline

    def on_deadline(self) -> None:
        self.told.append(self.clock.seconds())
        self._call()


def run(clock: SimulatedClock, seconds: float) -> None:
    clock.run_until(lambda: False, seconds=seconds)


def watched(clock: SimulatedClock, watch: DeadlineWatch, deadline: float) -> Handle:
    handle = Handle(clock, deadline)
    watch.watch(handle, deadline)
    return handle


def test_a_deadline_comes_when_it_is_due_and_once() -> None:
    clock = SimulatedClock()
    watch = DeadlineWatch(clock)
    later, sooner = watched(clock, watch, 5.0), watched(clock, watch, 2.5)
    run(clock, 100.0)
    assert (sooner.told, later.told) == ([2.5], [5.0])
    assert later not in watch


def test_deadlines_that_are_met_cost_no_wake_up_each() -> None:
    clock = SimulatedClock()
    watch = DeadlineWatch(clock)
    handles = [watched(clock, watch, 5.0 + number / 1000) for number in range(500)]
    for handle in handles[:-1]:
        handle.deadline = None
    run(clock, 100.0)
    assert clock.steps == 2  # the first deadline, at which all others are looked at, and the last
    assert [handle.told for handle in handles if handle.told] == [[5.0 + 499 / 1000]]


def test_a_deadline_that_moved_on_comes_at_its_new_time() -> None:
    clock = SimulatedClock()
    watch = DeadlineWatch(clock)
    moved, other = watched(clock, watch, 1.0), watched(clock, watch, 1.5)
    moved.deadline = 3.0
    run(clock, 100.0)
    assert (moved.told, other.told) == ([3.0], [1.5])


def test_more_handles_than_are_looked_at_in_one_turn() -> None:
    clock = SimulatedClock()
    watch = DeadlineWatch(clock)
    handles = [watched(clock, watch, 5.0 + number / 10_000) for number in range(2 * add_deadlines.LOOKS_MAX + 10)]
    for handle in handles[:-1]:
        handle.deadline = None
    run(clock, 100.0)
    assert handles[-1].told == [handles[-1].deadline]
    assert clock.steps == 4  # three turns of looking, and the deadline


def test_who_is_dropped_hears_nothing_and_the_last_one_takes_the_timer_along() -> None:
    clock = SimulatedClock()
    watch = DeadlineWatch(clock)
    dropped, other = watched(clock, watch, 1.0), watched(clock, watch, 2.0)
    watch.drop(dropped)
    watch.drop(dropped)
    assert dropped not in watch
    watch.drop(other)
    run(clock, 100.0)
    assert (dropped.told, other.told, clock.steps) == ([], [], 0)


def test_a_handle_that_fails_at_its_deadline_does_not_hold_up_the_others() -> None:
    clock = SimulatedClock()
    watch = DeadlineWatch(clock)

    def mistake() -> None:
        raise RuntimeError("a mistake")

    broken = Handle(clock, 1.0, mistake)
    watch.watch(broken, 1.0)
    other = watched(clock, watch, 2.0)
    run(clock, 100.0)
    assert (broken.told, other.told) == ([1.0], [2.0])


def test_a_handle_may_watch_itself_again_at_its_deadline() -> None:
    clock = SimulatedClock()
    watch = DeadlineWatch(clock)

    def again() -> None:
        if len(handle.told) < 3:
            handle.deadline = clock.seconds() + 2.0
            watch.watch(handle, handle.deadline)

    handle = Handle(clock, 1.0, again)
    watch.watch(handle, 1.0)
    run(clock, 100.0)
    assert handle.told == [1.0, 3.0, 5.0]
