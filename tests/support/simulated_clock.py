"""The simulator's time: one heap, one thread, and processes that can die.

`SimulatedClock` has the `Clock` port's shape. A `SimulatedProcess` owns everything that happens in one simulated
program: calls made through its `clock` never run once the process has crashed, as nothing of a dead program runs.

Seconds are monotonic. A process reads dates from the wall clock of its own machine, `wall_ms`. That clock may be
stepped in either direction at any moment, which moves no timer.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from typing import Any

WALL_MS = 1_700_000_000_000
"""The date of the simulation's second 0."""


class SimulatedTimer:
    """A scheduled call; the shape of Twisted's IDelayedCall."""

    __slots__ = ("_args", "_call", "_clock", "_kwargs", "_pending", "due", "process")

    def __init__(
        self,
        clock: SimulatedClock,
        due: float,
        call: Callable[..., object],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        process: SimulatedProcess | None,
    ) -> None:
        self._clock, self.due, self._call, self._args, self._kwargs = clock, due, call, args, kwargs
        self.process = process
        self._pending = True

    def active(self) -> bool:
        return self._pending

    def cancel(self) -> None:
        if not self._pending:
            raise ValueError("the call has run or was cancelled")
        self._pending = False

    def reset(self, delay_s: float) -> None:
        if not self._pending:
            raise ValueError("the call has run or was cancelled")
        self.due = self._clock.seconds() + delay_s
        self._clock.push(self)

    def getTime(self) -> float:
        return self.due

    @property
    def description(self) -> str:
        return getattr(self._call, "__qualname__", repr(self._call))

    def fire(self) -> bool:
        """Run the call unless it was cancelled or its process died. True when it ran.

        Of a dead process it stays pending for ever: what a test still does with its objects may cancel it.
        """
        if not self._pending or (self.process is not None and not self.process.alive):
            return False
        self._pending = False
        self._call(*self._args, **self._kwargs)
        return True


class SimulatedClock:
    """Simulated seconds and a heap of calls; ties run in the order they were scheduled."""

    def __init__(self) -> None:
        self._now = 0.0
        self._heap: list[tuple[float, int, SimulatedTimer]] = []
        self._sequence = 0
        self.steps = 0
        """Calls run so far."""

    def seconds(self) -> float:
        return self._now

    def spend(self, work_s: float) -> None:
        """Let the current call take this long. Calls that become due in the meantime run late."""
        self._now += work_s

    def callLater(self, delay_s: float, call: Callable[..., object], *args: Any, **kwargs: Any) -> SimulatedTimer:
        return self.schedule(delay_s, call, args, kwargs, None)

    def schedule(
        self,
        delay_s: float,
        call: Callable[..., object],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        process: SimulatedProcess | None,
    ) -> SimulatedTimer:
        if delay_s < 0:
            raise ValueError(f"a delay of {delay_s} s")
        timer = SimulatedTimer(self, self._now + delay_s, call, args, kwargs, process)
        self.push(timer)
        return timer

    def push(self, timer: SimulatedTimer) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (timer.due, self._sequence, timer))

    def pending(self, process: SimulatedProcess) -> list[SimulatedTimer]:
        """Calls of this process that are still to come."""
        return [timer for _, _, timer in self._heap if timer.process is process and timer.active()]

    def step(self, limit: float = math.inf) -> bool:
        """Run the next call. False when nothing is left that is due by `limit`."""
        while self._heap and self._heap[0][0] <= limit:
            due, _, timer = heapq.heappop(self._heap)
            if timer.due > due:
                continue  # reset to a later moment: its newer heap entry counts
            self._now = max(self._now, due)
            process = timer.process
            if process is not None and process.alive and process.asleep_until > self._now and timer.active():
                timer.due = process.asleep_until  # with all the others, in their order
                self.push(timer)
                continue
            if timer.fire():
                self.steps += 1
                return True
        return False

    def run_until(
        self, done: Callable[[], bool], *, seconds: float, after_step: Callable[[], None] | None = None
    ) -> bool:
        """Step until `done()`, or until `seconds` of simulated time have passed (then False)."""
        limit = self._now + seconds
        while not done():
            if not self.step(limit):
                self._now = max(self._now, min(limit, self._heap[0][0] if self._heap else limit))
                return done()
            if after_step is not None:
                after_step()
        return True


class SimulatedProcess:
    """One program: its calls die with it. A restart is a new process of the same name."""

    def __init__(self, name: str, clock: SimulatedClock) -> None:
        self.name = name
        self.alive = True
        self.asleep_until = 0.0
        self.wall_ahead_s = 0.0
        self.next_step_s = 0.0
        self.shared_clock = clock
        self.clock = ProcessClock(self)
        self._on_crash: list[Callable[[], None]] = []

    def on_crash(self, call: Callable[[], None]) -> None:
        """Run `call` (of the world, not of the process) when the process dies."""
        self._on_crash.append(call)

    def wall_ms(self) -> int:
        """Return the date on the process's machine, in milliseconds since 1970."""
        return WALL_MS + round((self.shared_clock.seconds() + self.wall_ahead_s) * 1000)

    def step_wall(self, by_s: float) -> None:
        """Set the machine's date forward, or back with a negative step."""
        self.wall_ahead_s += by_s

    def step_wall_within_a_turn(self, by_s: float) -> None:
        """Do so once the process has scheduled a call for its next turn, which has not run then."""
        self.next_step_s += by_s

    def sleep(self, for_s: float) -> None:
        """SIGSTOP, and SIGCONT after so long: what is due meanwhile runs then, late and in order."""
        self.asleep_until = max(self.asleep_until, self.shared_clock.seconds() + for_s)

    def crash(self) -> None:
        """kill -9: nothing of the process runs from now on."""
        if self.alive:
            self.alive = False
            for call in self._on_crash:
                call()


class ProcessClock:
    """The `Clock` port as one process sees it."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process

    def seconds(self) -> float:
        return self._process.shared_clock.seconds()

    def callLater(self, delay_s: float, call: Callable[..., object], *args: Any, **kwargs: Any) -> SimulatedTimer:
        process = self._process
        timer = process.shared_clock.schedule(delay_s, call, args, kwargs, process)
        if process.next_step_s and not delay_s:
            by_s, process.next_step_s = process.next_step_s, 0.0
            process.step_wall(by_s)
        return timer


class SimulatedWorker:
    """The `Worker` port: work runs in order, each piece after a random delay, its callback after another."""

    def __init__(
        self,
        name: str,
        process: SimulatedProcess,
        rng: random.Random,
        *,
        delay_max_s: float = 0.004,
    ) -> None:
        self.name = name
        self._process, self._rng, self._delay_max_s = process, rng, delay_max_s
        self._free_at = 0.0
        self._stopped = False
        self._queued = 0
        self._idle: list[Any] = []

    def submit(
        self, work: Callable[[], Any], on_done: Callable[[Any], object], on_error: Callable[[BaseException], object]
    ) -> None:
        if self._stopped:
            raise RuntimeError(f"worker {self.name} is stopped")
        clock = self._process.clock
        self._queued += 1
        self._free_at = max(self._free_at, clock.seconds()) + self._rng.random() * self._delay_max_s
        clock.callLater(self._free_at - clock.seconds(), self._run, work, on_done, on_error)

    def _run(
        self, work: Callable[[], Any], on_done: Callable[[Any], object], on_error: Callable[[BaseException], object]
    ) -> None:
        call: Callable[[Any], object]
        try:
            outcome: Any = work()
            call = on_done
        except Exception as error:  # noqa: BLE001 - handed to the submitter, as the port promises
            outcome, call = error, on_error
        # In order although the delays are random: each callback is scheduled at or after the previous one.
        self._process.clock.callLater(0.0, self._finish, call, outcome)

    def _finish(self, call: Callable[[Any], object], outcome: Any) -> None:
        self._queued -= 1
        call(outcome)
        if self._stopped and not self._queued:
            waiting, self._idle = self._idle, []
            for deferred in waiting:
                deferred.callback(None)

    def stop(self) -> Any:
        from twisted.internet.defer import Deferred, succeed

        self._stopped = True
        if not self._queued:
            return succeed(None)
        deferred: Deferred[None] = Deferred()
        self._idle.append(deferred)
        return deferred
