"""Time: durations from a monotonic clock, dates from the wall clock.

    make_monotonic(reactor)   a reactor of our own: its `seconds` becomes `time.monotonic`
    clock_of(reactor)         for a caller's reactor: the reactor, or a MonotonicClock if it follows the wall clock
    wall_ms(), wall_s()       now as a date: milliseconds or seconds since 1970
    SteadyDate                a date that does not follow a step forward, for judging whether something has expired

Twisted's reactors take their time from `time.time`. When the wall clock is set back (an NTP step, a resumed virtual
machine, an operator), every call that was scheduled before, `callLater(0)` included, is late by as much. So every
reactor that this product makes is passed through `make_monotonic`, and a test checks that no other module makes or
imports one. A caller's reactor is not changed: it may have calls scheduled by the wall clock already, and the caller's
program may take dates from it.

Durations and dates are different values. A duration is a difference of two values of one monotonic clock in one
process. A date is for people, for other processes and for files; code that compares two dates states what a step of
the wall clock in either direction does there. Nothing compares a date with a monotonic value.
"""

from __future__ import annotations

import heapq
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from twisted.logger import Logger
from twisted.python import runtime

from bookkeeper.ports import Clock

R = TypeVar("R")

log = Logger()

IDLE_S: Final = 1.0
"""The waking thread ends when no clock has asked for a wake for this long."""

TURN_S: Final = 1.0
"""If a call without a delay has not run after this time, the wall clock was set back, or the reactor is busy."""

DEAD_ENTRIES_MIN: Final = 50
"""A clock's heap may hold this many cancelled and moved calls; more are removed once they are its larger half."""


def wall_ms() -> int:
    """Return the date in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def wall_s() -> float:
    """Return the date in seconds since 1970."""
    return time.time()


class SteadyDate:
    """A callable that returns the date for judging whether stored dates have expired, in milliseconds since 1970.

    It follows the wall clock, but is never further ahead of its value at construction than the process has run since.
    So a step forward expires nothing before the next start. A step back keeps dated things longer.
    """

    def __init__(self, now_ms: Callable[[], int] = wall_ms, seconds: Callable[[], float] = time.monotonic) -> None:
        self._now_ms, self._seconds = now_ms, seconds
        self._began_ms, self._began_s = now_ms(), seconds()

    def __call__(self) -> int:
        return min(self._now_ms(), self._began_ms + round((self._seconds() - self._began_s) * 1000))


def make_monotonic(reactor: R) -> R:
    """Make `reactor` take its time from `time.monotonic`; return it.

    For our own reactors, and for programs that own theirs. Call it before anything is scheduled.
    Raises RuntimeError if calls are scheduled by the wall clock already: they would never run.
    """
    changed: Any = reactor
    if changed.seconds is not time.monotonic:
        scheduled = changed.getDelayedCalls()
        if scheduled:
            raise RuntimeError(
                f"reactor: {len(scheduled)} calls are scheduled by the wall clock, the first is {scheduled[0]}; "
                "call make_monotonic before anything is scheduled"
            )
        changed.seconds = time.monotonic
    return reactor


class ReactorClock(Clock, Protocol):
    """The clock of a reactor, and the way to that reactor's thread."""

    def callFromThread(self, call: Callable[..., object], /, *args: Any, **kwargs: Any) -> object:
        """Run `call(*args, **kwargs)` on the reactor's thread. From any thread."""


def clock_of(reactor: Any) -> ReactorClock:
    """Return the clock for our deadlines on a reactor that may be the caller's.

    It is the reactor itself, unless that follows the wall clock.
    """
    if reactor.seconds not in (time.time, runtime.seconds):
        clock: ReactorClock = reactor
        return clock
    with _lock:
        found = _clocks.get(id(reactor))
        if found is None:
            found = _clocks[id(reactor)] = MonotonicClock(reactor)
        return found


class _Call:
    """A scheduled call, like Twisted's IDelayedCall. entry: in the heap; None once the call has run or is cancelled."""

    __slots__ = ("args", "call", "clock", "entry", "kwargs")

    def __init__(
        self, clock: MonotonicClock, call: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.clock, self.call, self.args, self.kwargs = clock, call, args, kwargs
        self.entry: _Entry | None = None

    def active(self) -> bool:
        """See ports.Timer."""
        return self.entry is not None

    def cancel(self) -> None:
        """See ports.Timer."""
        self.clock.remove(self)
        self.call, self.args, self.kwargs = _nothing, (), {}

    def reset(self, delay_s: float, /) -> None:
        """See ports.Timer."""
        self.clock.remove(self)
        self.clock.schedule(self, delay_s)


_Entry = list[Any]
"""[due_s, number, _Call, or None once the call was cancelled or moved]: compared by the first two."""


class MonotonicClock:
    """The `Clock` port on a caller's reactor; no delay depends on a timer of that reactor.

    Calls wait in a heap of the clock's own. A daemon thread, one for all clocks of the process, sleeps until the first
    call is due and enters the reactor by `callFromThread`. Calls without a delay run in the reactor's next turn, by a
    timer of the reactor: `callFromThread` would cost a system call on either side, 15 us a turn instead of 5. A step of
    the wall clock may stop that timer, so the thread enters the reactor `TURN_S` later as well. The thread wakes when a
    call is due, and once in each TURN_S that had calls without a delay. Thread: the reactor's.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        # The asyncio reactor's own callFromThread goes through a timer of that reactor.
        loop = getattr(reactor, "_asyncioEventloop", None)
        self._enter: Callable[[Callable[[], object]], object] = (
            reactor.callFromThread if loop is None else loop.call_soon_threadsafe
        )
        self._heap: list[_Entry] = []
        self._count = 0  # entries ever made: ties run in the order in which they were scheduled
        self._dead_count = 0
        self._entering = False  # `_run` is scheduled for the reactor's next turn
        self._wake_s = math.inf  # when the thread was asked to wake the clock; inf once it has
        self._running = False

    def seconds(self) -> float:
        """See ports.Clock."""
        return time.monotonic()

    def callLater(self, delay_s: float, call: Callable[..., object], /, *args: Any, **kwargs: Any) -> _Call:
        """See ports.Clock."""
        made = _Call(self, call, args, kwargs)
        self.schedule(made, delay_s)
        return made

    def callFromThread(self, call: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
        """Run `call(*args, **kwargs)` on the reactor's thread. From any thread."""
        self._enter(lambda: _guarded(call, args, kwargs))

    def schedule(self, call: _Call, delay_s: float) -> None:
        """Put a call into the heap."""
        assert delay_s >= 0, f"{delay_s} s is not a delay"
        due_s = time.monotonic() + delay_s
        self._count += 1
        call.entry = [due_s, self._count, call]
        heapq.heappush(self._heap, call.entry)
        if not self._running:
            self._ask(due_s, delay_s)

    def remove(self, call: _Call) -> None:
        """Take a call that has not run yet out of the heap. Raises ValueError for any other."""
        entry, call.entry = call.entry, None
        if entry is None:
            raise ValueError("the call has run or was cancelled")
        entry[2] = None
        self._dead_count += 1
        if self._dead_count > DEAD_ENTRIES_MIN and self._dead_count * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2] is not None]
            heapq.heapify(self._heap)
            self._dead_count = 0

    def _ask(self, due_s: float, delay_s: float) -> None:
        if delay_s <= 0:
            if self._entering:
                return
            self._entering = True
            self._reactor.callLater(0, self._run)
            due_s += TURN_S
        if due_s < self._wake_s:
            self._wake_s = due_s
            _waker.ask(self, due_s)

    def start_over(self) -> None:
        """Ask again, in a forked child: the thread that was asked does not exist there."""
        self._entering, self._wake_s = False, math.inf
        if self._heap:
            self._wake_s = self._heap[0][0]
            _waker.ask(self, self._wake_s)

    def wake(self) -> None:
        """Run the due calls in the reactor. Thread: the waking one."""
        self._enter(self._woken)

    def _woken(self) -> None:
        self._wake_s = math.inf
        self._run()

    def _run(self) -> None:
        """Run the calls that are due; calls that they schedule wait for the next turn."""
        self._entering, self._running = False, True
        now_s, last = time.monotonic(), self._count
        try:
            while self._heap and self._heap[0][0] <= now_s and self._heap[0][1] <= last:
                call = heapq.heappop(self._heap)[2]
                if call is None:
                    self._dead_count -= 1
                    continue
                call.entry = None
                _guarded(call.call, call.args, call.kwargs)
        finally:  # also after what `_guarded` does not catch, as asyncio.CancelledError
            self._running = False
            while self._heap and self._heap[0][2] is None:
                heapq.heappop(self._heap)
                self._dead_count -= 1
            if self._heap:
                due_s = self._heap[0][0]
                self._ask(due_s, due_s - time.monotonic())


def _guarded(call: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        call(*args, **kwargs)
    except Exception:  # noqa: BLE001 - as a reactor does: one call's error is logged and stops no other
        log.failure("A scheduled call failed")


def _nothing() -> None:
    """Stand in for the function of a cancelled call, which need not stay alive."""


class _Waker:
    """The thread that sleeps for all MonotonicClocks of the process. It runs only while one of them has asked."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked: dict[MonotonicClock, float] = {}
        self._sleeps_until_s = -math.inf
        self._thread: threading.Thread | None = None

    def ask(self, clock: MonotonicClock, due_s: float) -> None:
        """Wake `clock` at `due_s`; replaces its earlier request."""
        with self._changed:
            self._asked[clock] = due_s
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bookkeeper-clock", daemon=True)
                self._thread.start()
            elif due_s < self._sleeps_until_s:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._asked:
                    self._sleeps_until_s = math.inf
                    if not self._changed.wait(IDLE_S) and not self._asked:
                        self._thread = None
                        return
                now_s = time.monotonic()
                due = [clock for clock, due_s in self._asked.items() if due_s <= now_s]
                for clock in due:
                    del self._asked[clock]
                if not due:
                    self._sleeps_until_s = min(self._asked.values())
                    self._changed.wait(min(self._sleeps_until_s - now_s, threading.TIMEOUT_MAX))
                    self._sleeps_until_s = -math.inf
            for clock in due:
                try:
                    clock.wake()
                except RuntimeError:  # its asyncio loop is closed: nothing runs there any more
                    continue
                except Exception:  # noqa: BLE001 - the thread serves other reactors, too
                    log.failure("Waking a reactor failed")
            del due


_lock = threading.Lock()
_clocks: WeakValueDictionary[int, MonotonicClock] = WeakValueDictionary()
"""By id(reactor). A clock refers to its reactor, so no other object has this id while the clock lives."""

_waker = _Waker()


def _start_over() -> None:
    """Replace lock and thread in a forked child: the thread does not exist there, and the lock may be held."""
    global _lock, _waker
    _lock, _waker = threading.Lock(), _Waker()
    for clock in list(_clocks.values()):
        clock.start_over()


os.register_at_fork(after_in_child=_start_over)
