"""What all copying of a process has in flight at once, and how fast it may go.

Entries and bytes in flight are bounded, whoever asks next waits in line, and rates hold for all copies together.

0 <= entries in flight <= entries_max, likewise bytes, except that a single batch larger than a bound goes alone.

Thread: reactor.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed

from bookkeeper.client.metadata_update import pause
from bookkeeper.rate_limit import Pace

if TYPE_CHECKING:
    from bookkeeper.ports import Clock


class CopyFlow:
    """The bounds of all copies. entries_per_s, bytes_per_s: 0 for no limit."""

    def __init__(
        self, clock: Clock, *, entries_max: int, bytes_max: int, entries_per_s: float = 0, bytes_per_s: float = 0
    ) -> None:
        self._clock = clock
        self._entries_max, self._bytes_max = entries_max, bytes_max
        self._entry_pace, self._byte_pace = Pace(entries_per_s), Pace(bytes_per_s)
        self._waiting: deque[tuple[int, int, Deferred[None]]] = deque()
        self.entries = self.bytes = 0  # in flight

    def enter(self, entries: int, size: int) -> Deferred[None]:
        """Fires when there is room for a batch of `size` bytes, as estimated. Once it has, `leave` must follow."""
        if not self._waiting and self._fits(entries, size):
            self.entries += entries
            self.bytes += size
            return succeed(None)
        waiting: Deferred[None] = Deferred(self._forget)
        self._waiting.append((entries, size, waiting))
        return waiting

    def correct(self, estimated: int, actual: int) -> None:
        """A batch turned out to have another size."""
        self.bytes += actual - estimated
        if actual < estimated:
            self._admit()

    def leave(self, entries: int, size: int) -> None:
        """A batch is done, or given up."""
        self.entries -= entries
        self.bytes -= size
        self._admit()

    def entries_due(self, entries: int) -> Deferred[None] | None:
        """Wait before `entries` are read; None: no need to."""
        return self._wait(self._entry_pace, entries)

    def bytes_due(self, size: int) -> Deferred[None] | None:
        """Wait before `size` bytes are written; None: no need to."""
        return self._wait(self._byte_pace, size)

    def _wait(self, pace: Pace, amount: int) -> Deferred[None] | None:
        if not pace.rate > 0:
            return None
        delay_s = pace.delay_s(amount, self._clock.seconds())
        return pause(self._clock, delay_s) if delay_s > 0 else None

    def _fits(self, entries: int, size: int) -> bool:
        if not self.entries:
            return True
        return self.entries + entries <= self._entries_max and self.bytes + size <= self._bytes_max

    def _admit(self) -> None:
        while self._waiting and self._fits(*self._waiting[0][:2]):
            entries, size, waiting = self._waiting.popleft()
            self.entries += entries
            self.bytes += size
            waiting.callback(None)

    def _forget(self, cancelled: Deferred[None]) -> None:
        self._waiting = deque(waiting for waiting in self._waiting if waiting[2] is not cancelled)
