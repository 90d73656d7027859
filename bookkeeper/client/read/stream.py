"""Streams of entries in batches, with read-ahead, and tails of ledgers that are still written.

A stream keeps several sub-ranges on their way, so that the next batch is there when the caller comes for it. Bounds:
`read_ahead_entries_max` entries and about `read_ahead_bytes_max` bytes asked for or waiting; how large entries are is
learnt from the ledger's length and from what was read. Thread: reactor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.client.read.entries import Entry, PayloadBatch
from bookkeeper.client.read.range import RangeReading
from bookkeeper.errors import BookKeeperError, EntryMissing, EntryUnreadable, again

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bookkeeper.client.read.read_handle import ReadHandle

B = TypeVar("B", list[Entry], PayloadBatch)

BATCHES_AHEAD = 4
"""Sub-ranges on their way at a time."""

ANSWER_BYTES = 2 * 1024 * 1024
"""Of one answer that becomes one batch of payloads."""

FILLED = 0.95
"""How full it is to be: some entries are larger than others, and the last few would cost a request of their own."""

FIRST_BATCH = 16
"""Entries of the first batches of a ledger whose entry size is not known."""

LONG_POLL_S = 10.0
"""How long a tail asks its bookies to wait for the next entry before it asks again."""

POLL_FAILURES_MAX = 20
"""Polls of a tail that may fail one after the other before the tail does (L-9)."""


class _Unclaimed:
    """A failure that no caller of `next` has seen. As a plain value it is not logged if the stream is dropped."""

    __slots__ = ("failure",)

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class ReadAhead(OfOneProcess, ABC, Generic[B]):
    """Entries first..last of a ledger (last None: as far as is confirmed when the stream gets there), in batches.

    `next()` gives the next batch, an empty one at the end. One call at a time.
    """

    def __init__(self, handle: ReadHandle, first_entry_id: int, last_entry_id: int | None) -> None:
        self._handle = handle
        self._next, self._end = first_entry_id, last_entry_id
        self._reads: deque[tuple[RangeReading[Any, B], Deferred[B | _Unclaimed]]] = deque()
        settings = handle.settings
        self._entries_max = max(1, settings.read_ahead_entries_max // BATCHES_AHEAD)
        self._bytes_max = max(1, settings.read_ahead_bytes_max // BATCHES_AHEAD)
        self._size_seen = handle.mean_entry_size
        self.failure: BaseException | None = None

    @abstractmethod
    def _start(self, first_entry_id: int, last_entry_id: int) -> RangeReading[Any, B]:
        """Ask for a batch."""

    @abstractmethod
    def _mean_size(self, batch: B) -> float:
        """Payload bytes of an entry of a batch, on average."""

    @abstractmethod
    def _nothing(self) -> B:
        """The empty batch at the end."""

    def _fitting(self, size: float) -> int:
        """How many entries of this size are a batch."""
        return min(self._entries_max, int(self._bytes_max / max(1.0, size)))

    def _batch_count(self) -> int:
        if self._size_seen is None:
            return min(FIRST_BATCH, self._entries_max)
        return max(1, self._fitting(self._size_seen))

    def _read_ahead(self) -> None:
        confirmed = self._handle.last_add_confirmed
        end = confirmed if self._end is None else min(self._end, confirmed)
        while len(self._reads) < BATCHES_AHEAD and self._next <= end:
            last = min(end, self._next + self._batch_count() - 1)
            reading = self._start(self._next, last)
            self._reads.append((reading, reading.result.addErrback(_Unclaimed)))
            self._next = last + 1

    def next(self) -> Deferred[B]:
        """The next batch; empty once the end is reached.

        What can be read before an entry that cannot is a batch of its own. After a failure every call fails alike:
        nothing is skipped.
        """
        if self.failure is not None:
            return fail(again(self.failure))
        self._read_ahead()
        if not self._reads:
            return succeed(self._nothing())
        reading, result = self._reads.popleft()
        return result.addCallback(self._arrived, reading)

    def _arrived(self, batch: B | _Unclaimed, reading: RangeReading[Any, B]) -> Failure | B:
        return self._failed(batch.failure, reading) if isinstance(batch, _Unclaimed) else self._got(batch)

    def _failed(self, failure: Failure, reading: RangeReading[Any, B]) -> Failure | B:
        self.failure = failure.value
        self.stop()
        readable = reading.take_readable()
        return failure if readable is None else readable

    def _got(self, batch: B) -> B:
        size = self._mean_size(batch)
        # Entries grow and shrink: follow quickly upwards, where memory is at stake, slowly downwards.
        self._size_seen = size if self._size_seen is None else max(size, (self._size_seen * 3 + size) / 4)
        self._read_ahead()
        return batch

    def stop(self) -> None:
        """Forget what is on its way."""
        while self._reads:
            reading, result = self._reads.popleft()
            result.cancel()
            reading.take_readable()

    async def __aiter__(self) -> AsyncIterator[B]:
        try:
            while batch := await self.next():
                yield batch
        finally:
            self.stop()


class EntryStream(ReadAhead[list[Entry]]):
    """Entries with their ids."""

    def _start(self, first_entry_id: int, last_entry_id: int) -> RangeReading[Entry, list[Entry]]:
        return self._handle.start_read(first_entry_id, last_entry_id)

    def _mean_size(self, batch: list[Entry]) -> float:
        return sum(len(entry.payload) for entry in batch) / len(batch)

    def _nothing(self) -> list[Entry]:
        return []


class PayloadStream(ReadAhead[PayloadBatch]):
    """Payloads without an object for each entry: a batch is one bookie's answer, where answers hold many entries.

    At most ANSWER_BYTES of payloads, what comes with them included, unless a single entry has more.
    """

    def _start(self, first_entry_id: int, last_entry_id: int) -> RangeReading[bytes, PayloadBatch]:
        return self._handle.start_payload_read(first_entry_id, last_entry_id, ANSWER_BYTES)

    def _fitting(self, size: float) -> int:
        in_answer = FILLED * ANSWER_BYTES / (size + self._handle.answer_entry_overhead)
        return min(super()._fitting(size), int(in_answer))

    def _mean_size(self, batch: PayloadBatch) -> float:
        return sum(map(len, batch.payloads)) / len(batch)

    def _nothing(self) -> PayloadBatch:
        return PayloadBatch(self._next, ())


class LedgerTail(OfOneProcess):
    """Entries as they are confirmed, from `first` on, until the ledger is closed and read to its end.

    Its bookies answer when there is something new (`long_poll`); one of them is enough where every bookie gets every
    entry, else all wait, because the next entry may go to any of them. Where none of them can wait (no v3, or nothing
    of the ledger yet) it asks for the LAC, more and more seldom while nothing happens (`tail_poll_min_s`..
    `tail_poll_max_s`), and at that pace too when they answer early without news, as a fenced bookie does. Of the close
    it learns by the metadata watch. Never fences (I-43), never reads past the LAC (I-42), follows ensemble changes
    (I-46).
    """

    def __init__(self, handle: ReadHandle, first_entry_id: int) -> None:
        self._handle = handle
        self._next = first_entry_id
        self._stream: EntryStream | None = None

    def next(self) -> Deferred[list[Entry]]:
        """The next batch, once there is one; empty at the end of a closed ledger. One call at a time."""
        return Deferred.fromCoroutine(self._wait())

    async def _wait(self) -> list[Entry]:
        handle, settings = self._handle, self._handle.settings
        delay_s, failures = settings.tail_poll_min_s, 0
        while True:
            handle.check_open()
            if self._stream is None or self._stream.failure is not None:
                self._stream = EntryStream(handle, self._next, None)
            try:
                batch = await self._stream.next()
                if batch:
                    self._next = batch[-1].entry_id + 1
                    return batch
                if handle.closed and self._next > handle.last_add_confirmed:
                    return []
                began_s = handle.clock.seconds()
                entry = await self._hear()
                failures = 0
                if entry is not None and handle.last_add_confirmed == self._next:
                    self.stop()
                    self._next += 1
                    return [entry]
                if handle.clock.seconds() - began_s >= LONG_POLL_S / 2:
                    delay_s = settings.tail_poll_min_s  # they do wait
                    continue
            except BookKeeperError as error:
                failures += 1
                if not error.retriable or failures >= POLL_FAILURES_MAX:
                    raise
                self.stop()
            if failures or (handle.last_add_confirmed < self._next and not handle.closed):
                await self._pause(delay_s)
                delay_s = min(settings.tail_poll_max_s, delay_s * 2)

    async def _hear(self) -> Entry | None:
        """Wait for news of the ledger, or ask for it. Returns the next entry if the news brought it."""
        handle = self._handle
        metadata = handle.metadata
        try:
            parallel = metadata.ensemble_size > metadata.write_quorum
            return await handle.wait_for(self._next, LONG_POLL_S, parallel=parallel)
        except (EntryMissing, EntryUnreadable):  # none of them waits
            await handle.read_last_confirmed()
            return None

    def _pause(self, delay_s: float) -> Deferred[None]:
        """Fires when the delay is over or something is heard of the ledger."""
        waiting: Deferred[None] = Deferred(lambda _: None)

        def wake() -> None:
            if not waiting.called:
                waiting.callback(None)

        timer = self._handle.clock.callLater(delay_s, wake)
        key = self._handle.on_news(wake)

        def clean_up(result: None) -> None:
            self._handle.forget_news(key)
            if timer.active():
                timer.cancel()
            return result

        return waiting.addBoth(clean_up)

    def stop(self) -> None:
        """Forget what is on its way."""
        if self._stream is not None:
            self._stream.stop()
            self._stream = None

    async def __aiter__(self) -> AsyncIterator[list[Entry]]:
        try:
            while batch := await self.next():
                yield batch
        finally:
            self.stop()
