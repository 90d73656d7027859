"""One window over all ledgers of a client process: what is in flight together never exceeds it, and always fills it.

Both sides go through their ledgers in turn, entry by entry (writes) or range by range (reads), so that a window smaller
than the number of ledgers still reaches every one of them. Differs from Apache: its benchmark draws the ledger of each
add at random; in turn, every ledger gets the same number.

Thread: reactor.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from bookkeeper.cli.perf.measurement import Measurement
from bookkeeper.errors import WindowFull

if TYPE_CHECKING:
    from bookkeeper.client.read.read_handle import Entry, ReadHandle
    from bookkeeper.client.write.write_handle import WriteHandle

RANGE_MAX = 100


class LedgerWriters:
    """Keeps `window` entries in flight over `handles`, until the time is up or enough are written."""

    def __init__(self, handles: Sequence[WriteHandle], payload: bytes, window: int, measurement: Measurement) -> None:
        self._payload, self._window, self._measurement = payload, window, measurement
        self._ledgers = [_Written(handle) for handle in handles]
        self._next = 0  # whose turn it is
        self._limit: int | None = None
        self._appended = self._acknowledged = 0
        self._owed = 0  # entries that wait for room in the window of their ledger
        self.finished: Deferred[None] = Deferred()
        for ledger in self._ledgers:
            ledger.handle.on_acknowledged = self._on_acknowledged_of(ledger)
            ledger.handle.on_failed = self._on_failed

    def run(self, entries: int | None = None) -> Deferred[None]:
        """Begin. entries: end after so many (warm-up), else when the measurement's time is up. Fires at the end."""
        self.finished = Deferred()
        self._limit = None if entries is None else self._appended + entries
        self._append(self._window if entries is None else min(self._window, entries))
        return self.finished

    def _append(self, count: int) -> None:
        ledgers, now = self._ledgers, time.perf_counter()
        each, one_more = divmod(count, len(ledgers))
        for turn in range(min(count, len(ledgers))):
            ledger = ledgers[(self._next + turn) % len(ledgers)]
            self._put(ledger, each + (turn < one_more), now)
        self._next = (self._next + count) % len(ledgers)

    def _put(self, ledger: _Written, count: int, now: float) -> None:
        """Append to one ledger; what its window does not take waits until it has room.

        An entry that is acknowledged keeps its place there until the last of its bookies has answered, so a slow one
        fills the window although no more is in flight than was asked for.
        """
        left, part = count, count
        while left:
            try:
                ledger.handle.append_batch_nowait([self._payload] * part)
            except WindowFull:
                if part == 1:
                    break
                part //= 2
                continue
            ledger.bursts.append((part, now))
            self._appended += part
            left -= part
            part = min(part, left)
        if left:
            self._owed += left
            ledger.handle.ready().addCallbacks(lambda _: self._pay(ledger, left), self._on_failure)

    def _pay(self, ledger: _Written, count: int) -> None:
        """There is room for what the window did not take; too late for it where the time is up."""
        self._owed -= count
        now = time.perf_counter()
        if self._limit is not None or now < self._measurement.finish_at:
            self._put(ledger, count, now)
        self._end_if_done()

    def _on_acknowledged_of(self, ledger: _Written) -> Any:
        def on_acknowledged(acknowledged: range) -> None:
            now = time.perf_counter()
            left = len(acknowledged)
            while left:
                count, began = ledger.bursts.popleft()
                if count > left:
                    ledger.bursts.appendleft((count - left, began))
                    count = left
                left -= count
                if self._limit is None:
                    self._measurement.add(count, began, now, payload_size=count * len(self._payload))
            self._acknowledged += len(acknowledged)
            self._refill(len(acknowledged), now)

        return on_acknowledged

    def _refill(self, freed: int, now: float) -> None:
        if self._limit is not None:
            room = min(freed, self._limit - self._appended - self._owed)
        else:
            room = freed if now < self._measurement.finish_at else 0
        if room:
            self._append(room)
        else:
            self._end_if_done()

    def _end_if_done(self) -> None:
        if self._acknowledged == self._appended and not self._owed and not self.finished.called:
            self.finished.callback(None)

    def _on_failure(self, failure: Any) -> None:
        self._on_failed(failure.value)

    def _on_failed(self, error: Exception) -> None:
        if not self.finished.called:
            self.finished.errback(error)


class _Written:
    """One ledger: `bursts` holds, in order, how many entries were appended when; the oldest may be partly done."""

    __slots__ = ("bursts", "handle")

    def __init__(self, handle: WriteHandle) -> None:
        self.handle = handle
        self.bursts: deque[tuple[int, float]] = deque()


class LedgerReaders:
    """Keeps reads of `window` entries in flight over ledgers, each from its start again and again.

    Of a ledger that is still written, what is confirmed is read.

    The window is split into ranges of at most RANGE_MAX consecutive entries; a range that is complete is asked for
    again, of the next ledger, from where that one stands.
    """

    def __init__(self, handles: Sequence[ReadHandle], window: int, measurement: Measurement) -> None:
        self._measurement = measurement
        self._turns = itertools.cycle([_Read(handle) for handle in handles])
        ranges = -(-window // RANGE_MAX)
        self._sizes = [window // ranges + (number < window % ranges) for number in range(ranges)]
        self._running = 0
        self.finished: Deferred[None] = Deferred()

    def run(self) -> Deferred[None]:
        """Begin; fires after the measurement's time is up, when nothing is in flight."""
        for size in self._sizes:
            self._read(size)
        return self.finished

    def _read(self, size: int) -> None:
        ledger = next(self._turns)
        first, end = ledger.next_entry_id, ledger.handle.last_add_confirmed
        last = min(first + size - 1, end)
        ledger.next_entry_id = last + 1 if last < end else 0
        self._running += 1
        began = time.perf_counter()
        ledger.handle.read(first, last).addCallbacks(self._on_read, self._on_failed, callbackArgs=(size, began))

    def _on_read(self, entries: list[Entry], size: int, began: float) -> None:
        now = time.perf_counter()
        self._running -= 1
        self._measurement.add(len(entries), began, now, payload_size=sum(len(entry.payload) for entry in entries))
        if now < self._measurement.finish_at:
            self._read(size)
        elif not self._running and not self.finished.called:
            self.finished.callback(None)

    def _on_failed(self, failure: Any) -> None:
        self._running -= 1
        if not self.finished.called:
            self.finished.errback(failure)


class _Read:
    """One ledger and where its next range begins."""

    __slots__ = ("handle", "next_entry_id")

    def __init__(self, handle: ReadHandle) -> None:
        self.handle, self.next_entry_id = handle, 0
