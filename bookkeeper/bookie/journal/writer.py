"""`Journal`: append records, answer after the sync that covers them.

    append ──> CommitQueue ──take──> worker: JournalFiles.write_group ──> callbacks, in order, once
                   ^                                  │
                   └── whatever came meanwhile <──────┘

A group with deferred appends goes to the worker in two pieces that follow each other, write and sync; its deferred
appends are reported between them. Still only one group is in flight, and every group is synced at once: deferring
shortens the way to an answer and leaves nothing behind that a later sync would have to remember.

The queue belongs to the reactor and the files to the worker's thread; what crosses are one list of parts there and one
`Progress` back per group. No lock, and no work per record.

The first error from the disk ends it (I-48): everything pending fails, every later append is refused, nothing is
written or synced any more, and `on_failed` tells the owner to end the process. What the disk then holds is true.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.bookie.journal.files import JournalFiles, Progress
from bookkeeper.bookie.journal.group_commit import APPEND_OVERHEAD_BYTES, Append, CommitQueue, OnDurable
from bookkeeper.bookie.journal.settings import JournalSettings
from bookkeeper.clock import wall_ms
from bookkeeper.errors import StorageError
from bookkeeper.filesystem import FileSystem
from bookkeeper.metrics import Metrics
from bookkeeper.model import LogMark
from bookkeeper.ports import Clock, Worker

__all__ = ["Journal", "JournalSettings", "OnDurable"]

log = Logger()


class _State(enum.Enum):
    NEW = "has not been started"
    STARTING = "is being started"
    RUNNING = "is running"
    STOPPING = "is stopping"  # no more appends; the pending ones are finished
    CLOSING = "is closing"
    STOPPED = "was stopped"
    FAILED = "failed"  # for ever (I-48)


class Journal:
    """The write-ahead log in one directory. Thread: reactor; its files on `worker`, which nobody else should slow down.

    directory: the `current` directory, locked by the caller: two processes must not share it (I-52).
    index: number of this journal among the bookie's; for messages.
    on_failed: called once, with the error that ended a started journal; then the process must end.
    on_drained: called whenever `is_congested` has become False again.
    now_ms: the date, which names the first file.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        worker: Worker,
        clock: Clock,
        settings: JournalSettings | None = None,
        *,
        index: int = 0,
        metrics: Metrics | None = None,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        settings = settings or JournalSettings()
        self.on_failed: Callable[[BaseException], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self._directory = directory
        self._index = index
        self._worker = worker
        self._clock, self._now_ms = clock, now_ms
        self._files = JournalFiles(fs, directory, settings, clock.seconds)
        self._queue = CommitQueue(
            group_bytes_max=settings.group_bytes_max,
            pending_bytes_max=settings.pending_bytes_max,
            append_overhead=APPEND_OVERHEAD_BYTES,
        )
        self._mark = LogMark(0, 0)
        self._state = _State.NEW
        self._failure: BaseException | None = None
        self._on_started: Deferred[None] | None = None
        self._on_stopped: Deferred[None] | None = None
        self._was_congested = False
        self._preparing = False
        self._deferred_waiting = False
        self._metrics = _JournalMetrics(metrics or Metrics(), self._queue, settings)

    # --- life

    def start(self, after: LogMark) -> Deferred[None]:
        """Begin a new file; records may be appended once this fires.

        after: the end of the replay (`replay.replay`): everything before it is durable or was never answered.
        Fails with OSError or StorageError, and then stays failed; `on_failed` is not called as well.
        """
        if self._state is not _State.NEW:
            raise StorageError(f"the journal in {self._directory} {self._state.value}: it starts once")
        self._state = _State.STARTING
        self._mark = after
        self._on_started = Deferred()
        # Apache's first id is the date in milliseconds; all later ones count up, whatever the clock does (I-52).
        self._worker.submit(partial(self._files.start, after, first_id=self._now_ms()), self._on_start_done, self._fail)
        return self._on_started

    def _on_start_done(self, progress: Progress) -> None:
        if self._state is _State.STARTING:
            self._state = _State.RUNNING
        self._note(progress)
        self._go_on(progress)
        started, self._on_started = self._on_started, None
        if started is not None:
            started.callback(None)

    def stop(self) -> Deferred[None]:
        """Refuse further appends, finish the pending ones, close. Does not stop the worker. Call it once.

        After a failure nothing more is written; it fires all the same.
        """
        if self._on_stopped is not None:
            raise StorageError(f"the journal in {self._directory} {self._state.value}: it stops once")
        stopped = self._on_stopped = Deferred()
        if self._state is _State.NEW:
            self._state = _State.STOPPED
        if self._state in (_State.STOPPED, _State.FAILED):
            self._fire_stopped()
        else:
            started = self._state is _State.RUNNING
            self._state = _State.STOPPING
            if started and self._queue.is_idle:
                self._close()
        return stopped

    def _close(self) -> None:
        self._state = _State.CLOSING
        self._worker.submit(self._files.close, self._on_closed, self._fail)

    def _on_closed(self, mark: LogMark) -> None:
        self._mark = mark
        self._state = _State.STOPPED
        self._fire_stopped()

    def _fire_stopped(self) -> None:
        if self._on_stopped is not None and not self._on_stopped.called:
            self._on_stopped.callback(None)

    # --- appending

    def append(
        self,
        parts: Sequence[bytes],
        size: int,
        on_durable: OnDurable,
        record_count: int = 1,
        *,
        deferred: bool = False,
    ) -> None:
        """Queue framed records; `on_durable(None)` runs after the sync that covers them (I-47), in order, once.

        `on_durable` never runs inside this call. With an error instead of None the journal has failed: nothing is
        known of these records, and the answer must not be a negative one.

        parts: [i32 length][payload]... cut into pieces anywhere; `size` is their sum. record_count: for metrics only.
        deferred: `on_durable(None)` runs once the file has the records, before the sync: the death of the process loses
        nothing then, a power cut may. When that sync fails nobody is told but `on_failed`.
        Raises JournalFull (too much is pending), InvalidArgument (can never fit) or StorageError (not running, or
        failed before); then nothing was queued.
        """
        if self._state is not _State.RUNNING:
            raise self._refusal()
        self._queue.add(Append(parts, size, record_count, on_durable, self._clock.seconds(), deferred))
        if deferred:
            self._deferred_waiting = True
        self._submit_group()

    def barrier(self, on_durable: OnDurable) -> None:
        """Have `on_durable(None)` run, once, after the sync of everything appended before, deferred or not.

        It runs inside this call when all of that is synced already; costs no sync of its own otherwise. With an error
        the journal has failed, as for `append`. Raises JournalFull, StorageError (not running, or failed before).
        """
        if self._state is not _State.RUNNING:
            raise self._refusal()
        if not self._queue.add_barrier(Append((), 0, 0, on_durable, self._clock.seconds())):
            on_durable(None)

    def _refusal(self) -> StorageError:
        if self._failure is None:
            return StorageError(f"the journal in {self._directory} {self._state.value}")
        error = StorageError(f"the journal in {self._directory} failed: {self._failure!r}; the bookie must restart")
        error.__cause__ = self._failure
        return error

    def _submit_group(self) -> None:
        appends = self._queue.take()
        if not appends:
            return
        parts = list(chain.from_iterable([append.parts for append in appends]))
        self._metrics.group_begun(appends, self._clock.seconds())
        if self._deferred_waiting:
            self._deferred_waiting = self._queue.has_deferred
            if any(append.deferred for append in appends):
                self._worker.submit(partial(self._files.begin_group, parts), self._on_begun, self._fail)
                self._worker.submit(self._files.finish_group, self._on_written, self._fail)
                return
        self._worker.submit(partial(self._files.write_group, parts), self._on_written, self._fail)

    def _on_begun(self, _: None) -> None:
        if self._state is not _State.FAILED:
            for append in self._queue.written():
                _report(append, None)

    def _on_written(self, progress: Progress) -> None:
        if self._queue.is_congested:
            self._was_congested = True
        self._note(progress)
        done = self._queue.landed()
        # The next group goes to the disk before the answers of this one are made.
        self._go_on(progress)
        self._metrics.group_synced(done, progress, self._clock.seconds())
        for append in done:
            _report(append, None)
        if self._was_congested and not self._queue.is_congested:
            self._was_congested = False
            if self.on_drained is not None:
                self.on_drained()

    def _go_on(self, progress: Progress) -> None:
        """Submit the next group if something waits; else close if asked to, else prepare if that is due."""
        self._submit_group()
        if not self._queue.is_idle:
            return
        if self._state is _State.STOPPING:
            self._close()
        elif self._state is _State.RUNNING and progress.preparation_due and not self._preparing:
            self._preparing = True
            self._worker.submit(self._files.prepare, self._on_prepared, self._fail)

    def _on_prepared(self, progress: Progress) -> None:
        self._preparing = False
        self._note(progress)
        self._go_on(progress)

    def _note(self, progress: Progress) -> None:
        self._mark = progress.mark
        if progress.created_s:
            self._metrics.created.observe(progress.created_s * 1000)

    # --- state

    @property
    def pending_bytes(self) -> int:
        """Bytes appended whose sync has not been reported, and what each append takes beside its records."""
        return self._queue.pending_bytes

    @property
    def is_congested(self) -> bool:
        """More than half of `pending_bytes_max` is pending."""
        return self._queue.is_congested

    @property
    def failure(self) -> BaseException | None:
        """The error that ended this journal."""
        return self._failure

    def mark(self) -> LogMark:
        """Position below which everything is synced (I-54): take it before flushing what was appended so far."""
        return self._mark

    def collect(self, mark: LogMark) -> None:
        """Delete or recycle files wholly below a mark that is durable in every ledger directory (I-56).

        `mark.write_marks` returns such a mark. An error is a failure of the journal. Nothing happens while stopping.
        """
        if self._state is _State.RUNNING:
            self._worker.submit(partial(self._files.collect, mark), self._on_collected, self._fail)

    def _on_collected(self, progress: Progress) -> None:
        self._go_on(progress)

    def _fail(self, error: BaseException) -> None:
        if self._state is _State.FAILED:
            return
        self._state = _State.FAILED
        self._failure = error
        log.error(
            "Journal {index} in {directory} failed; nothing is written to it any more, restart the bookie: {error!r}",
            index=self._index,
            directory=self._directory,
            error=error,
        )
        refusal = self._refusal()
        for append in self._queue.abandon():
            _report(append, refusal)
        self._fire_stopped()
        started, self._on_started = self._on_started, None
        if started is not None:
            started.errback(error)
        elif self.on_failed is not None:
            self.on_failed(error)


def _report(append: Append, error: BaseException | None) -> None:
    try:
        append.on_durable(error)
    except Exception:  # noqa: BLE001 - one caller's fault must not keep the others' answers back
        log.failure("A callback of the journal raised")


class _JournalMetrics:
    """Cells of one journal; touched once per group."""

    def __init__(self, metrics: Metrics, queue: CommitQueue, settings: JournalSettings) -> None:
        name = "bookie_journal_JOURNAL_"
        self.created = metrics.summary(name + "CREATION_LATENCY")
        self._add = metrics.summary(name + "ADD_ENTRY")
        self._queued = metrics.summary(name + "QUEUE_LATENCY")
        self._sync = metrics.summary(name + "SYNC")
        self._write = metrics.summary(name + "FLUSH_LATENCY")
        self._group_records = metrics.summary(name + "FORCE_WRITE_BATCH_ENTRIES")
        self._group_bytes = metrics.summary(name + "FORCE_WRITE_BATCH_BYTES")
        self._bytes = metrics.counter(name + "WRITE_BYTES")
        self._records = metrics.counter(name + "SYNCED_RECORDS")
        metrics.gauge(name + "QUEUE_SIZE", lambda: queue.waiting_count)
        metrics.gauge(name + "MEMORY_USED", lambda: queue.pending_bytes)
        metrics.gauge(name + "MEMORY_MAX").set(settings.pending_bytes_max)

    def group_begun(self, appends: Sequence[Append], now: float) -> None:
        """The oldest append's wait stands for the group's."""
        self._queued.observe((now - appends[0].queued_s) * 1000, sum([append.record_count for append in appends]))

    def group_synced(self, appends: Sequence[Append], progress: Progress, now: float) -> None:
        records = sum([append.record_count for append in appends])
        self._add.observe((now - appends[0].queued_s) * 1000, records)
        self._sync.observe(progress.sync_s * 1000)
        self._write.observe(progress.write_s * 1000)
        self._group_records.observe(records)
        self._group_bytes.observe(progress.size)
        self._bytes.add(progress.size)
        self._records.add(records)
