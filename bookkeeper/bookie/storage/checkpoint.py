"""When to flush and when to checkpoint, and the order in which the journal may forget.

    reactor          take the journals' marks, then rotate the write buffer (all below a mark is in a snapshot or older)
    storage worker   storage.checkpoint(): entry logs synced, index files synced;  then the marks, durable, everywhere
    reactor          the journals collect what is below the marks

A full buffer is written block by block, with pauses that let it take about half the time until the next one is full:
all at once, and on all bookies of a ledger at the same moment, it would hold up the journals' forces. Nobody pauses
while a second full buffer waits, nor before a checkpoint.

One checkpoint at a time, in the order I-54, I-58, I-55, I-56; anything that fails ends the bookie (I-48), except a full
disk, which is tried again every second. A checkpoint may fail when everything but the marks is durable. The next one is
then due although nothing is dirty: a read-only bookie gets no new entries that could make one due.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.errors import NoWritableDisk, StorageError, again
from bookkeeper.logs import LogLimit
from bookkeeper.model import LogMark
from bookkeeper.ports import Clock, Timer, Worker

log = Logger()

CHECK_INTERVAL_S = 1.0
RETRY_INTERVAL_S = 1.0
"""How long a full disk is left alone before the flush is tried again."""

ERROR_INTERVAL_S = 60.0
"""Between two log lines that say that no disk has room."""

FLUSH_SHARE = 0.5
"""Of the time in which a buffer fills, that its writing may take by its pauses."""

BLOCK_PAUSE_MAX_S = 0.05
BLOCK_PAUSE_MIN_S = 0.002
"""What would be shorter is left out."""


class MarkedJournal(Protocol):
    """What a checkpoint needs of a journal. Thread: reactor."""

    def mark(self) -> LogMark:
        """The position below which everything is synced and was given to the storage."""

    def collect(self, mark: LogMark, /) -> None:
        """Everything below `mark` is durable in every ledger directory: its files may go."""


PersistMarks = Callable[[Sequence[LogMark]], Sequence[LogMark] | None]
"""Write the marks, in the order of the journals, durably into every ledger directory; return those now durable in all
of them (None: the ones given). Runs on the storage worker."""


class Checkpointer:
    """Flushes and checkpoints a storage. Thread: reactor; its work runs on `worker`, one piece of each kind at a time.

    on_failure: a write or sync failed; the bookie must end (I-48). Nothing is submitted any more.
    on_disks_full: no ledger directory takes entries; the bookie turns read-only and asks the disks. Called at each try.
    on_room: the first try after that which succeeded.
    """

    def __init__(
        self,
        storage: LedgerStorage,
        journals: Sequence[MarkedJournal],
        persist_marks: PersistMarks,
        worker: Worker,
        clock: Clock,
        settings: StorageSettings,
        *,
        on_failure: Callable[[BaseException], None],
        on_disks_full: Callable[[], None] | None = None,
        on_room: Callable[[], None] | None = None,
    ) -> None:
        self._storage = storage
        self._journals = tuple(journals)
        self._persist_marks = persist_marks
        self._worker = worker
        self._clock = clock
        self._settings = settings
        self._on_failure = on_failure
        self._on_disks_full = on_disks_full
        self._on_room = on_room
        # checkpoint_refused implies short_of_room; a flush that succeeds does not show that there is room for marks
        self.short_of_room = False
        self._checkpoint_refused = False
        self._timer: Timer | None = None
        self._stopped = False
        self._failed = False
        self._flushing = False
        self._pause: Timer | None = None  # between two blocks of a flush
        self._pause_s = 0.0
        self._rotated_s = clock.seconds()
        self._marking = False
        self._waiting: list[Deferred[None]] = []
        self._joining: list[Deferred[None]] = []
        self._marked_bytes = storage.added_bytes
        self._marked_rolls = storage.rolled_log_count
        self.last_end_s = clock.seconds()
        self.last_duration_s: float | None = None  # of the last one that ended well; None before it
        self._not_before_s = 0.0
        self._retry_at_s = 0.0
        self._errors = LogLimit(clock, ERROR_INTERVAL_S)

    def start(self) -> None:
        """Look every second whether something is due."""
        self._timer = self._clock.callLater(CHECK_INTERVAL_S, self._tick)

    def after_add(self) -> None:
        """To be called after batches were added; flushes a full buffer. Cheap when nothing is due."""
        if self._storage.should_flush and not self._failed and self._clock.seconds() >= self._retry_at_s:
            self._rotate()
            self._flush()

    def _rotate(self) -> None:
        if not self._storage.rotate():
            return
        now, settings = self._clock.seconds(), self._settings
        blocks = max(1, settings.memtable_bytes_max // settings.block_bytes)
        self._pause_s = min(BLOCK_PAUSE_MAX_S, (now - self._rotated_s) * FLUSH_SHARE / blocks)
        self._rotated_s = now

    def checkpoint_now(self) -> Deferred[None]:
        """A checkpoint that covers everything synced by now. Fails with what made it fail, NoWritableDisk included."""
        done: Deferred[None] = Deferred()
        if self._failed:
            done.errback(StorageError("the storage failed; no checkpoint is possible any more"))
            return done
        self._waiting.append(done)
        self._begin()
        return done

    def stop(self) -> Deferred[None]:
        """Look no more, make a last checkpoint, and close the active log. The worker is not stopped."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        return self.checkpoint_now()

    def _tick(self) -> None:
        if self._stopped or self._failed:
            return
        self._timer = self._clock.callLater(CHECK_INTERVAL_S, self._tick)
        if self._clock.seconds() < self._retry_at_s:
            return
        self.after_add()
        self._flush()
        if self._is_due():
            self._begin()

    def _is_due(self) -> bool:
        """Urgent reasons, which bound replay and memory, count at once; others when the last one's cost is paid off."""
        if self._marking:
            return False
        storage, settings = self._storage, self._settings
        if storage.needs_checkpoint or self.short_of_room:
            return True
        if storage.added_bytes - self._marked_bytes > settings.journal_bytes_between_checkpoints_max:
            return True
        now = self._clock.seconds()
        if now < self._not_before_s or not storage.is_dirty:
            return False
        rolled = storage.rolled_log_count > self._marked_rolls
        return rolled or now - self.last_end_s >= settings.flush_interval_s

    # --- flush --------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write on, unless it is under way or pausing."""
        storage = self._storage
        if self._flushing or self._marking or not storage.snapshot_count:
            return
        if not storage.can_rotate or self._waiting or self._stopped or self._pause_s < BLOCK_PAUSE_MIN_S:
            self._end_pause()
            self._flushing = True
            self._worker.submit(storage.flush_snapshot, self._flushed, self._flush_failed)
        elif self._pause is None:
            self._flushing = True
            self._worker.submit(storage.flush_block, self._block_written, self._flush_failed)

    def _block_written(self, more: bool) -> None:
        if more:
            self._pause = self._clock.callLater(self._pause_s, self._after_pause)
        self._flushed(0)

    def _after_pause(self) -> None:
        self._pause = None
        self._flush()

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _flushed(self, _: int) -> None:
        self._flushing = False
        if not self._checkpoint_refused:
            self._found_room()
        if self._waiting:
            self._begin()
        self.after_add()
        self._flush()

    def _flush_failed(self, error: BaseException) -> None:
        self._flushing = False
        if not self._is_disk_full(error):
            self._fail(error)
        elif self._waiting:
            self._end_waiting(error)

    # --- checkpoint ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start a checkpoint unless one is under way or both snapshots must be flushed first."""
        if self._marking or self._failed:
            return
        if not self._storage.can_rotate:
            self._flush()
            return
        marks = [journal.mark() for journal in self._journals]
        self._end_pause()
        self._rotate()
        self._marking = True
        self._joining, self._waiting = self._waiting, []
        self._worker.submit(
            partial(self._work, marks, self._storage.added_bytes, self._storage.rolled_log_count, last=self._stopped),
            partial(self._done, self._clock.seconds()),
            self._checkpoint_failed,
        )

    def _work(
        self, marks: list[LogMark], added_bytes: int, rolls: int, *, last: bool
    ) -> tuple[Sequence[LogMark], int, int]:
        """last: it began after `stop`, so that it covers everything. Thread: storage worker."""
        self._storage.checkpoint()
        durable = self._persist_marks(marks)
        if last:
            self._storage.end_log()
        return (marks if durable is None else durable), added_bytes, rolls

    def _done(self, began_s: float, result: tuple[Sequence[LogMark], int, int]) -> None:
        marks, self._marked_bytes, self._marked_rolls = result
        now = self.last_end_s = self._clock.seconds()
        self.last_duration_s = now - began_s
        # A duty of 0.1: after a checkpoint of 3 s the next one begins 27 s later at the earliest.
        duty = self._settings.checkpoint_duty_max
        self._not_before_s = now + (now - began_s) * (1 / duty - 1)
        self._marking = False
        self._checkpoint_refused = False
        self._found_room()
        try:
            for journal, mark in zip(self._journals, marks, strict=True):
                journal.collect(mark)
        except (OSError, StorageError) as error:
            self._fail(error)
            return
        joined, self._joining = self._joining, []
        for done in joined:
            done.callback(None)
        if self._waiting:
            self._begin()
        self.after_add()
        self._flush()

    def _checkpoint_failed(self, error: BaseException) -> None:
        self._marking = False
        self._waiting, self._joining = self._joining + self._waiting, []
        if self._is_disk_full(error):
            self._checkpoint_refused = True
            self._end_waiting(error)
        else:
            self._fail(error)

    # --- failures -----------------------------------------------------------------------------------------------------

    def _is_disk_full(self, error: BaseException) -> bool:
        if not isinstance(error, NoWritableDisk):
            return False
        if self._errors.admits("no room"):  # retries are as frequent as RETRY_INTERVAL_S
            log.error("{error}", error=error)
        self._retry_at_s = self._clock.seconds() + RETRY_INTERVAL_S
        self.short_of_room = True
        if self._on_disks_full is not None:
            self._on_disks_full()
        return True

    def _found_room(self) -> None:
        if self.short_of_room:
            self.short_of_room = False
            if self._on_room is not None:
                self._on_room()

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        self._end_pause()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._waiting, self._joining = self._joining + self._waiting, []
        self._end_waiting(error)
        self._on_failure(error)

    def _end_waiting(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.errback(again(error))
