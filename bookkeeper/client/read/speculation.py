"""The speculative delay of single reads: one timer for all of a client.

They all wait equally long, and nearly all are answered before; so nothing is scheduled or cancelled per read. Thread:
reactor.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Timer


EARLY_S = 0.001
"""A read may be told so much too soon: with sums of rounded times, "now" may never be quite late enough."""


class LateRead(Protocol):
    """A read that may be late."""

    over: bool
    """It is not, or no longer, waited for here."""
    began_s: float

    def on_late(self) -> None:
        """The delay has passed."""


class LateReads:
    """Tells reads of one entry when their speculative delay has passed. One timer; nothing is cancelled by an answer.

    Bound: the reads that began within the delay, and are not behind a finished one.
    """

    def __init__(self, clock: Clock, delay_s: float) -> None:
        self._clock, self._delay_s = clock, delay_s
        self._reads: deque[LateRead] = deque()  # by the time they began
        self._timer: Timer | None = None

    def watch(self, reading: LateRead) -> None:
        """Call its `on_late` when the time comes, unless it is over by then."""
        reads = self._reads
        while reads and reads[0].over:
            reads.popleft()
        reads.append(reading)
        if self._timer is None:
            self._timer = self._clock.callLater(self._delay_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        reads, late_s = self._reads, self._clock.seconds() - self._delay_s + EARLY_S
        while reads and (reads[0].over or reads[0].began_s <= late_s):
            reading = reads.popleft()
            if not reading.over:
                reading.on_late()
        if reads and self._timer is None:
            self._timer = self._clock.callLater(reads[0].began_s - late_s + EARLY_S, self._on_time)

    def close(self) -> None:
        """Tell nobody any more."""
        self._reads.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
