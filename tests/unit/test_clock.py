"""Reactors on monotonic time, and the clock that replaces the timers of a caller's reactor."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.task import Clock

from bookkeeper import clock as clock_module
from bookkeeper.client.faces.loop_reactor import LoopReactor
from bookkeeper.client.faces.reactor_thread import ReactorThread
from bookkeeper.clock import TURN_S, MonotonicClock, clock_of, make_monotonic


class CallersReactor:
    """A reactor that follows the wall clock; the test runs its turns."""

    seconds = staticmethod(time.time)

    def __init__(self) -> None:
        self.entered: list[Callable[[], object]] = []
        self.stopped = False
        """Whether its timers wait, as after the wall clock was set back."""

    def callLater(self, delay_s: float, call: Callable[..., object]) -> None:
        assert delay_s == 0
        if not self.stopped:
            self.entered.append(call)

    def callFromThread(self, call: Callable[..., object], *args: Any) -> None:
        self.entered.append(lambda: call(*args))

    def turn(self) -> None:
        """Run the calls that entered before this turn."""
        entered, self.entered = self.entered, []
        for call in entered:
            call()


class World:
    """A MonotonicClock with the test in place of time and the waking thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.asked: dict[MonotonicClock, float] = {}
        self.wakes = 0
        monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=lambda: self.now_s, time=time.time))
        monkeypatch.setattr(clock_module, "_waker", self)
        self.reactor = CallersReactor()
        self.clock = MonotonicClock(self.reactor)

    def ask(self, clock: MonotonicClock, due_s: float) -> None:
        self.asked[clock] = due_s

    def advance(self, by_s: float) -> None:
        """Let time pass, in steps that end when the thread was asked to wake."""
        end_s = self.now_s + by_s
        self.turns()
        while (due_s := min(self.asked.values(), default=end_s + 1)) <= end_s:
            self.now_s = max(self.now_s, due_s)
            self.asked.clear()
            self.wakes += 1
            self.clock.wake()
            self.turns()
        self.now_s = end_s

    def turns(self) -> None:
        while self.reactor.entered:
            self.reactor.turn()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_private_reactor_is_on_monotonic_time() -> None:
    thread = ReactorThread()
    try:
        assert thread.reactor.seconds is time.monotonic
    finally:
        thread.stop()


def test_a_reactor_on_the_callers_loop_is_on_monotonic_time() -> None:
    loop = asyncio.new_event_loop()
    reactor = LoopReactor(loop)
    try:
        assert reactor.seconds is time.monotonic
    finally:
        reactor.release()
        loop.close()


def test_a_reactor_with_calls_by_the_wall_clock_is_refused() -> None:
    clock = Clock()
    clock.callLater(1, int)
    with pytest.raises(RuntimeError, match="1 calls are scheduled by the wall clock"):
        make_monotonic(clock)
    assert make_monotonic(Clock()).seconds is time.monotonic


def test_only_a_wall_clock_reactor_gets_another_clock_which_its_clients_share() -> None:
    own: Any = Clock()
    callers = CallersReactor()
    assert clock_of(own) is own
    replaced: Any = clock_of(callers)
    assert isinstance(replaced, MonotonicClock)
    assert clock_of(callers) is replaced
    assert clock_of(CallersReactor()) is not replaced


def test_a_call_without_delay_takes_the_next_turn_and_enters_the_reactor_once(world: World) -> None:
    seen: list[int] = []

    def again() -> None:
        seen.append(0)
        world.clock.callLater(0, seen.append, 3)

    world.clock.callLater(0, again)
    world.clock.callLater(0, seen.append, 1)
    assert len(world.reactor.entered) == 1
    world.reactor.turn()
    assert seen == [0, 1]
    world.reactor.turn()
    assert seen == [0, 1, 3]
    assert not world.reactor.entered
    world.advance(100.0)
    assert world.wakes == 1, "once, as the timer may have stopped"


def test_a_call_without_delay_runs_after_turn_s_if_the_timer_stopped(world: World) -> None:
    seen: list[float] = []
    world.reactor.stopped = True
    for _ in range(3):
        world.clock.callLater(0, lambda: seen.append(world.now_s))
        world.advance(10.0)
    assert seen == [1000.0 + TURN_S, 1010.0 + TURN_S, 1020.0 + TURN_S]


def test_the_thread_is_woken_once_per_turn_s_for_any_number_of_turns(world: World) -> None:
    for _ in range(1000):
        world.clock.callLater(0, int)
        world.clock.callLater(500, int)
        world.advance(0.01)
    assert world.wakes <= 10 / TURN_S + 1


def test_nothing_wakes_before_something_is_due(world: World) -> None:
    seen: list[float] = []
    for delay_s in (30.0, 20.0, 10.0):
        world.clock.callLater(delay_s, lambda: seen.append(world.now_s))
    world.advance(100.0)
    assert seen == [1010.0, 1020.0, 1030.0]
    assert world.wakes == 3
    assert not world.asked


def test_a_call_that_fails_stops_no_other(world: World) -> None:
    seen: list[int] = []
    world.clock.callLater(1, lambda: 1 / 0)
    world.clock.callLater(1, seen.append, 1)
    world.advance(1.0)
    assert seen == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_a_call_that_raises_a_base_exception_stops_no_other(world: World, error: type[BaseException]) -> None:
    seen: list[int] = []

    def fail() -> None:
        raise error

    world.clock.callLater(1, fail)
    world.clock.callLater(1, seen.append, 1)
    world.clock.callLater(2, seen.append, 2)
    with pytest.raises(error):
        world.advance(1.0)
    world.advance(1.0)
    assert seen == [1, 2]


def test_cancelled_timers_do_not_pile_up(world: World) -> None:
    kept = world.clock.callLater(1e6, int)
    for number in range(10_000):
        kept.reset(1e6 - number)
        world.clock.callLater(5, int).cancel()
    assert len(world.clock._heap) <= 2 * clock_module.DEAD_ENTRIES_MIN + 2  # noqa: SLF001 - the part that would grow


@pytest.mark.parametrize("seed", range(40))
def test_timers_behave_as_those_of_twisted(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply random calls, cancellations and resets to a MonotonicClock and to Twisted's own test clock."""
    rng = random.Random(seed)
    world, twin = World(monkeypatch), Clock()
    found: list[list[tuple[int, float]]] = [[], []]
    timers: list[tuple[Any, Any]] = []

    def note(which: int, number: int) -> None:
        now_s = world.now_s - 1000.0 if which == 0 else twin.seconds()
        found[which].append((number, round(now_s, 6)))

    for number in range(200):
        match rng.choice(("call", "call", "cancel", "reset", "advance")):
            case "call":
                delay_s = rng.choice((0.0, rng.randrange(1, 40) / 4))
                timers.append(
                    (world.clock.callLater(delay_s, note, 0, number), twin.callLater(delay_s, note, 1, number))
                )
            case "cancel" if timers:
                pair = rng.choice(timers)
                assert pair[0].active() == bool(pair[1].active())
                for timer in pair:
                    if timer.active():
                        timer.cancel()
                    else:
                        with pytest.raises(ValueError, match="cancel"):
                            timer.cancel()
            case "reset" if timers:
                delay_s = rng.randrange(0, 40) / 4
                for timer in rng.choice(timers):
                    if timer.active():
                        timer.reset(delay_s)
            case _:
                world.turns()
                twin.advance(0)
                for _ in range(rng.randrange(1, 20)):  # the twin's time stops at each step only
                    world.advance(0.25)
                    twin.advance(0.25)
                assert sorted(found[0]) == sorted(found[1])
    assert [at for _, at in found[0]] == sorted(at for _, at in found[1])
