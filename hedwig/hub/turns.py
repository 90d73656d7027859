"""The time that deliveries, and requests that came many at once, may take in one turn of the reactor of a hub.

    resume --has_time?--> yes: deliver the next message (with a filter), or the next look of messages (without)
                          no:  later --first come, first served--> resume, in the next turn

A message for a filter may take 1.5 ms (hedwig/protocol/conditions.py), and a subscription may have any number of
messages to come, so a count of messages bounds no time. In each turn all of them together take `SLICE_S` and what they
began; publishes and other requests are served between two turns. A subscription that asks while others wait, waits
behind them, and so does a connection that sent thousands of requests at once (endpoint.py).

The clock is read for each message that a filter looks at, and for each further look of messages without a filter: the
delivery of what was just published, to a subscription without a filter, asks for no time. Thread: reactor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.logger import Logger

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

SLICE_S = 0.005
"""Time that deliveries take in one turn of the reactor, and one message or look more."""

FILTERED_READS_MAX = 8
"""Subscriptions with a filter that have old messages in memory at the same time, about 4 MiB each
(`TopicSettings.read_size`): the messages wait there for the turns of their filter."""


class DeliveryTurns:
    """See the module. Each call that waits (`later`) is made once, in its turn."""

    __slots__ = ("_clock", "_is_begun", "_is_running", "_readers", "_readings", "_until_s", "_waiting")

    # is_running: a call that waited runs now.  is_begun: until_s counts, and _next is scheduled
    # waiting is empty, or is_begun.  readings <= FILTERED_READS_MAX
    # readers is empty, or some read, or _wake_readers waits

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], object]] = deque()
        self._readers: deque[Callable[[], object]] = deque()
        self._readings = 0
        self._until_s = 0.0
        self._is_begun = self._is_running = False

    def has_time(self) -> bool:
        """Return whether the caller may continue in this turn. If not, it has to wait (`later`)."""
        if not self._is_begun:
            self._begin()
            return True
        if self._waiting and not self._is_running:
            return False
        return self._clock.seconds() < self._until_s

    def later(self, call: Callable[[], object]) -> None:
        """Call in a later turn, after those that wait already."""
        if not self._is_begun:
            self._begin()
        self._waiting.append(call)

    def begin_reading(self, again: Callable[[], object]) -> bool:
        """Return whether a subscription with a filter may read old messages now; if not, `again` is called when it may.

        It calls `end_reading` once a filter has looked at all of them, or when it has ended.
        """
        if self._readings >= FILTERED_READS_MAX:
            self._readers.append(again)
            return False
        self._readings += 1
        return True

    def end_reading(self) -> None:
        """Nothing of what was begun is in memory any more."""
        self._readings -= 1
        if self._readers:
            self.later(self._wake_readers)

    def _wake_readers(self) -> None:
        # Some do not read any more: then others do.
        while self._readers and self._readings < FILTERED_READS_MAX:
            self._run(self._readers.popleft())

    def _begin(self) -> None:
        self._is_begun = True
        self._until_s = self._clock.seconds() + SLICE_S
        self._clock.callLater(0, self._next)

    def _next(self) -> None:
        self._is_begun = False
        if not self._waiting:
            return
        self._begin()
        self._is_running = True
        try:
            for _ in range(len(self._waiting)):
                self._run(self._waiting.popleft())
                if self._clock.seconds() >= self._until_s:
                    break
        finally:
            self._is_running = False

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:  # noqa: BLE001 - one subscription's fault must not keep the others back
            log.failure("Delivering broke")
