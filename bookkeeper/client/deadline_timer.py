"""A timer for deadlines of others, which does not blame them for time in which this process did not run. Pure.

A client that was suspended (SIGSTOP, a paused virtual machine, a closed laptop, a long computation in the reactor's
thread) finds its timers due before it has read the answers that came meanwhile. Judged at once, every bookie would be
late, and a healthy ledger would end for want of bookies.
"""

from __future__ import annotations

from collections.abc import Callable

from bookkeeper.ports import Clock, Timer

LATE_S = 0.5
"""A timer that fires so much after its time tells that nothing ran here meanwhile."""

GRACE_S = 1.0
"""How long judgement waits then: to read what has arrived, and for bookies that slept as well to answer."""


class PatientTimer:
    """Calls once after `delay_s`, or, when that comes late, `GRACE_S` after this process runs again."""

    __slots__ = ("_call", "_clock", "_due", "_timer")

    def __init__(self, clock: Clock, delay_s: float, call: Callable[[], object]) -> None:
        self._clock = clock
        self._call = call
        self._due = clock.seconds() + delay_s
        self._timer: Timer = clock.callLater(delay_s, self._on_time)

    def _on_time(self) -> None:
        if self._clock.seconds() - self._due > LATE_S:
            self._timer = self._clock.callLater(GRACE_S, self._call)
        else:
            self._call()

    def active(self) -> bool:
        """True until the call was made or cancelled."""
        return self._timer.active()

    def cancel(self) -> None:
        """Do not call."""
        self._timer.cancel()
