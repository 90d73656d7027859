"""The deadlines of all write handles of a client over one timer.

Thousands of handles each have a deadline while adds are on their way, and nearly every one of them is met. So a handle
is noted once, under the deadline it has at that moment, and asked for its next one only when that comes up; the timer
is set for the first deadline that still holds. With everything answered in time that is one timer per timeout, whatever
the number of handles.

Thread: reactor. At most LOOKS_MAX handles are asked in one turn, which delays no deadline: the others' are later.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Protocol

from twisted.logger import Logger

from bookkeeper.client.deadline_timer import PatientTimer

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

LOOKS_MAX = 1000
"""Deadlines that have not come yet and are looked at in one go."""


class Watched(Protocol):
    """Who has deadlines."""

    def next_deadline(self) -> float | None:
        """The next moment at which something may be overdue; None while there is none."""

    def on_deadline(self) -> None:
        """That moment has come."""


class DeadlineWatch:
    """Deadlines of many, one timer. Exact: `on_deadline` runs when the deadline comes, not a tick later."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, list[Watched]]] = []  # the list is empty once its owner was dropped
        self._noted: dict[Watched, list[Watched]] = {}
        self._sequence = 0  # ties go by the order of noting
        self._timer: PatientTimer | None = None
        self._timer_due = 0.0

    def __contains__(self, owner: Watched) -> bool:
        return owner in self._noted

    def watch(self, owner: Watched, deadline: float) -> None:
        """Call `owner.on_deadline()` at its deadline, unless it has another one by then. Not while it is watched."""
        holder = [owner]
        self._noted[owner] = holder
        self._push(deadline, holder)
        if self._timer is None or deadline < self._timer_due:
            self._set_timer(deadline)

    def drop(self, owner: Watched) -> None:
        """Forget the owner, if it is watched."""
        holder = self._noted.pop(owner, None)
        if holder is not None:
            holder.clear()
            if not self._noted:
                self._heap.clear()
                self._stop_timer()

    def _push(self, deadline: float, holder: list[Watched]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (deadline, self._sequence, holder))

    def _on_time(self) -> None:
        self._timer = None
        heap, now = self._heap, self._clock.seconds()
        looks = 0
        while heap:
            due, _, holder = heap[0]
            if due > now and looks >= LOOKS_MAX:
                self._set_timer(now)  # go on in the next turn
                return
            looks += 1
            if not holder:
                heapq.heappop(heap)
                continue
            owner = holder[0]
            deadline = owner.next_deadline()
            if deadline is not None and deadline == due > now:
                self._set_timer(due)
                return
            heapq.heappop(heap)
            if deadline is not None and deadline > now:
                self._push(deadline, holder)
                continue
            del self._noted[owner]
            if deadline is not None:
                _guarded(owner)

    def _set_timer(self, due: float) -> None:
        self._stop_timer()
        self._timer_due = due
        self._timer = PatientTimer(self._clock, max(0.0, due - self._clock.seconds()), self._on_time)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _guarded(owner: Watched) -> None:
    """A mistake in one handle must not keep the others' deadlines back. The owner may watch itself again."""
    try:
        owner.on_deadline()
    except Exception:  # noqa: BLE001 - whatever it is, it is told here
        log.failure("a deadline of a write handle failed")
