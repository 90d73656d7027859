"""Time in one turn of a hub's reactor for deliveries and for large batches of requests.

    resume --has_time?--> yes: deliver the next message (with a filter), or the next look of messages (without)
                          no:  later --first come, first served--> resume, in the next turn

A filter may take 1.5 ms for a message (hedwig/protocol/conditions.py), and a subscription may have any number of
messages to deliver, so a number of messages does not bound the time. In each turn, all subscriptions together use
`SLICE_S` and the time to finish what they began. Publishes and other requests are served between two turns. A
subscription waits behind those that already wait. So does a connection that sent thousands of requests at once
(endpoint.py).

The clock is read for each message with a filter, and for each further look of messages without a filter. The delivery
of newly published messages to a subscription without a filter does not check the time. Thread: reactor.
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
"""Time for deliveries in one turn of the reactor. It is exceeded by at most one message or one look."""

FILTERED_READS_MAX = 8
"""Subscriptions with a filter that have old messages in memory at the same time. Each has about 4 MiB
(`TopicSettings.read_size`), which wait for turns."""


class DeliveryTurns:
    """See the module. Each call to `later` runs once, in its turn."""

    __slots__ = ("_clock", "_is_begun", "_is_running", "_readers", "_readings", "_until_s", "_waiting")

    # is_running: a call that waited runs now.  is_begun: until_s counts, and _next is scheduled
    # waiting is empty, or is_begun.  readings <= FILTERED_READS_MAX
    # readers is empty, or readings > 0, or _wake_readers waits

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], object]] = deque()
        self._readers: deque[Callable[[], object]] = deque()
        self._readings = 0
        self._until_s = 0.0
        self._is_begun = self._is_running = False

    def has_time(self) -> bool:
        """Return whether the caller may continue in this turn. If not, it must call `later`."""
        if not self._is_begun:
            self._begin()
            return True
        if self._waiting and not self._is_running:
            return False
        return self._clock.seconds() < self._until_s

    def later(self, call: Callable[[], object]) -> None:
        """Run `call` in a later turn, after the calls that already wait."""
        if not self._is_begun:
            self._begin()
        self._waiting.append(call)

    def begin_reading(self, again: Callable[[], object]) -> bool:
        """Return whether a subscription with a filter may read old messages now. If not, `again` runs when it may.

        The reader calls `end_reading` when its filter has processed all messages, or when the subscription ends.
        """
        if self._readings >= FILTERED_READS_MAX:
            self._readers.append(again)
            return False
        self._readings += 1
        return True

    def end_reading(self) -> None:
        """Note that a reader has no old messages in memory any more."""
        self._readings -= 1
        if self._readers:
            self.later(self._wake_readers)

    def _wake_readers(self) -> None:
        # Some readers may not read again; the next ones then do.
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
        except Exception:  # noqa: BLE001 - an error of one subscription must not block the others
            log.failure("Delivery failed")
