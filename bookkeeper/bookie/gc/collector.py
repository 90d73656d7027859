"""Gives back the space of ledgers that were deleted: rounds of proof, deletion, removal of logs, compaction.

    every gcWaitTime, or when forced:
      ledgers: proof.py -> files that a crash left over -> entry logs: logs.py

One round at a time, and compaction is a part of it: nothing is deleted while entries are copied (I-63). Whether the
store went back in time is looked at beside the rounds as well, since a round may take hours.

Thread: reactor. Listing files and reading logs run on a worker of its own, what changes the index on the storage
worker.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.bookie.gc.candidates import CompactionKind, ranges_above
from bookkeeper.bookie.gc.compactor import Checkpoints
from bookkeeper.bookie.gc.history.file import HistoryFile
from bookkeeper.bookie.gc.history.guard import HistoryGuard
from bookkeeper.bookie.gc.logs import EntryLogCollection
from bookkeeper.bookie.gc.proof import DeletedLedgers
from bookkeeper.bookie.gc.removal import LedgerRemoval
from bookkeeper.bookie.gc.settings import GarbageSettings
from bookkeeper.bookie.gc.status import GarbageStage, GarbageStatus, KnownLog
from bookkeeper.bookie.process.worker_calls import on_worker
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.errors import MetadataError, NoWritableDisk, StorageError, UnknownFormatVersion
from bookkeeper.filesystem import FileSystem
from bookkeeper.metadata.outcome import pause
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.metrics import Metrics
from bookkeeper.model import BookieId
from bookkeeper.ports import Clock, Timer, Worker

log = Logger()

HISTORY_PAUSE_S = 1.0
HISTORY_PAUSE_MAX_S = 60.0
"""Least time between the starts of two history checks; doubled for each consecutive check that fails."""

HISTORY_WAIT_S = 10.0
"""How long a registration waits for a check of the store's history."""

HISTORY_BEAT_S = 60.0
HISTORY_BEAT_SHARE = 0.01
"""Time between two history checks, also during a round, and the share of it that a check may take. Ledgers that came
since the last check are in doubt if the connection breaks."""

FORCED_GRACE_S = 1.0
"""Between the two looks of a round that an operator ordered."""


class GarbageCollector:
    """instance_id, bookie_id: as in the cookie. wall_s: seconds since 1970, for the status.

    on_failure: a write or sync failed; the bookie must end (I-48). on_change: at each step of a round, and after each
    round, whatever it did.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: LedgerDirectories,
        storage: LedgerStorage,
        removal: LedgerRemoval,
        checkpoints: Checkpoints,
        store: MetadataStore,
        clock: Clock,
        *,
        worker: Worker,
        storage_worker: Worker,
        settings: GarbageSettings,
        instance_id: str,
        bookie_id: BookieId,
        wall_s: Callable[[], float],
        on_failure: Callable[[BaseException], None],
        on_change: Callable[[], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.status = GarbageStatus()
        if on_change is not None:
            self.status.on_change = on_change
        self._storage = storage
        self._worker = worker
        self._checkpoints = checkpoints
        self._clock = clock
        self._storage_worker = storage_worker
        self._settings = settings
        self._wall_s = wall_s
        self._on_failure = on_failure
        self.history = HistoryGuard(
            HistoryFile(fs, directories),
            storage,
            store,
            worker=worker,
            bookie_id=bookie_id,
            cluster=instance_id,
            clock=clock,
            wall_s=wall_s,
            status=self.status,
            on_reconnected=self._on_reconnected,
        )
        self._ledgers = DeletedLedgers(
            storage,
            removal,
            store,
            self.history,
            clock,
            worker=worker,
            settings=settings,
            instance_id=instance_id,
            bookie_id=bookie_id,
            wall_s=wall_s,
            status=self.status,
        )
        self._logs = EntryLogCollection(
            fs,
            directories,
            storage,
            checkpoints,
            clock,
            worker=worker,
            storage_worker=storage_worker,
            settings=settings,
            local_ledgers=self._ledgers.local,
            wall_s=wall_s,
            status=self.status,
        )
        self._timer: Timer | None = None
        self._history_timer: Timer | None = None
        self._history_due = False
        self._history_waits: list[tuple[Deferred[None], Timer]] = []  # of registrations
        self._history_s: float | None = None  # when the last history check outside of a round began
        self._history_failures = 0  # consecutive checks that failed
        self._checking: Deferred[None] | None = None
        self._round: Deferred[None] | None = None
        self._forced: CompactionKind | None = None
        self._force_due = False
        self._waiting: list[Deferred[None]] = []
        self._stopped = False
        if metrics is not None:
            self._count(metrics)

    def _count(self, metrics: Metrics) -> None:
        status = self.status
        metrics.gauge("bookie_gc_ACTIVE_LEDGER_TOTAL", lambda: status.ledgers_local)
        metrics.counter("bookie_gc_DELETED_LEDGER_TOTAL", lambda: status.ledgers_deleted + status.ledgers_moved)
        metrics.gauge("bookie_gc_ACTIVE_ENTRY_LOG_SPACE_BYTES", lambda: status.total_bytes)
        metrics.gauge("bookie_gc_LIVE_ENTRY_LOG_BYTES", lambda: status.live_bytes)
        metrics.gauge("bookie_gc_WRITTEN_ENTRY_LOG_SPACE_BYTES", lambda: status.active_total_bytes)
        metrics.gauge("bookie_gc_WRITTEN_ENTRY_LOG_LIVE_BYTES", lambda: status.active_live_bytes)
        metrics.counter("bookie_gc_RECLAIMED_DELETION_SPACE_BYTES", lambda: status.bytes_removed)
        metrics.counter("bookie_gc_RECLAIMED_COMPACTION_SPACE_BYTES", lambda: status.bytes_compacted)
        metrics.counter("bookie_gc_MINOR_COMPACTION_TOTAL", lambda: status.minor_compactions)
        metrics.counter("bookie_gc_MAJOR_COMPACTION_TOTAL", lambda: status.major_compactions)
        metrics.counter("bookie_gc_COMPACTED_ENTRY_LOGS", lambda: status.logs_compacted)
        metrics.counter("bookie_gc_COMPACTED_BYTES", lambda: status.bytes_copied)
        metrics.gauge("bookie_gc_QUARANTINED_ENTRY_LOGS", lambda: len(status.quarantined))
        metrics.counter("bookie_gc_ALARMS", lambda: status.alarms)
        metrics.gauge("bookie_gc_BAD_RECORDS", lambda: status.bad_records.count)
        metrics.gauge("bookie_gc_METADATA_WENT_BACK", lambda: 1 if status.finding else 0)
        metrics.gauge("bookie_gc_KEPT_LEDGERS", lambda: status.kept_count)

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Plan the first round, which comes after the wait, and check the store's history now.

        Ledgers that come after the check are known to be newer than what the store showed then.
        """
        self._plan()
        self._check_history()

    def stop(self) -> Deferred[None]:
        """No more rounds; fires when the one under way has let go. What it began is finished by the next start."""
        self._stopped = True
        self.status.enter(GarbageStage.STOPPED)
        self._ledgers.stop()
        self._logs.stop()
        for timer in (self._timer, self._history_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self._end_history_waits()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)
        under_way = [each for each in (self._round, self._checking) if each is not None]
        ended = DeferredList(under_way).addCallback(lambda _: None)
        for each in under_way:
            each.cancel()
        return ended

    def force(self, kind: CompactionKind | None = None) -> Deferred[None]:
        """A round now, or after the one under way, with a compaction of this kind; fires at its end.

        It looks twice, FORCED_GRACE_S apart, so that one order is enough for what was deleted before it; the log being
        written is closed for it where that gives something back.
        """
        done: Deferred[None] = Deferred()
        self._waiting.append(done)
        self._force_due = True
        if kind is CompactionKind.MAJOR or self._forced is None:
            self._forced = kind
        self.status.forced = True
        if self._round is None and not self._stopped:
            self._begin()
        return done

    async def known_logs(self) -> list[KnownLog]:
        """All entry logs there are, with what the last sweep found in them. Fails with OSError."""
        return await self._logs.known_logs()

    async def known_ledgers(self, after: int, ranges_max: int) -> list[tuple[int, int]]:
        """Of the ledgers that a round compares with those of the metadata store: the ranges of ids above `after`, both
        ends included, so many at most. Fails with OSError.
        """

        def look() -> list[tuple[int, int]]:
            return list(islice(ranges_above(self._ledgers.local(), after), ranges_max))

        found: list[tuple[int, int]] = await on_worker(self._worker, look)
        return found

    @property
    def compacting_kind(self) -> CompactionKind | None:
        """Which compaction is under way."""
        return self._logs.compacting_kind

    def suspend(self, *, minor: bool = False, major: bool = False) -> None:
        """No compaction of these kinds until `resume`; one under way gives up its log, which loses nothing."""
        self.status.minor_suspended |= minor
        self.status.major_suspended |= major

    def resume(self, *, minor: bool = False, major: bool = False) -> None:
        """Take `suspend` back. A compaction that was suspended on the way begins anew, now or after this round."""
        if minor:
            self.status.minor_suspended = False
        if major:
            self.status.major_suspended = False
        self._logs.show_sizes()
        self._take_up()
        if self._force_due and self._round is None and not self._stopped:
            self._begin()

    def _take_up(self) -> None:
        """Order what was interrupted, once its kind is not suspended any more."""
        kind = self._logs.interrupted
        if kind is None or self._logs.is_suspended(kind):
            return
        self._logs.interrupted, self.status.interrupted = None, ""
        if kind is CompactionKind.MAJOR or self._forced is None:
            self._forced = kind
        self._force_due = self.status.forced = True

    def _plan(self) -> None:
        if self._stopped:
            return
        wait_s = self._settings.wait_s
        self.status.next_round_s = self._wall_s() + wait_s
        self.status.enter(GarbageStage.IDLE)
        self._timer = self._clock.callLater(wait_s, self._begin)

    def _begin(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        waiting, self._waiting = self._waiting, []
        forced, self._force_due = self._force_due, False
        kind, self._forced = self._forced, None  # one that is ordered from now on is for the round after this one
        began_s = self._clock.seconds()
        under_way = self._round = Deferred.fromCoroutine(self._run(kind, forced=forced))
        under_way.addErrback(self._failed)
        under_way.addBoth(self._ended, began_s, waiting)

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        if error is None or isinstance(error, CancelledError):
            return
        self.status.note_error(error, self._wall_s())
        if isinstance(error, MetadataError | StorageError):
            log.error("Garbage collection: {error}. Nothing was deleted without proof; it goes on", error=error)
        else:
            log.failure("Garbage collection failed", failure=failure)
            self._on_failure(error)

    def _ended(self, _: object, began_s: float, waiting: list[Deferred[None]]) -> None:
        self._round = None
        self.status.last_round_s = self._wall_s()
        self.status.last_round_took_s = self._clock.seconds() - began_s
        self.status.rounds += 1
        self.status.forced = self._force_due
        self._take_up()
        if self._force_due and not self._stopped:
            self._begin()
        else:
            self._plan()
        self.status.on_change()  # what is shown of a round is how it left things, not its last step
        for done in waiting:
            done.callback(None)

    def wait_history_checked(self) -> Deferred[None]:
        """Fire once the store's history was checked in this session, the check failed, or HISTORY_WAIT_S have passed.

        The bookie registers only then, so that it gets no new ledgers before generators that went back are raised.
        """
        if not self.history.is_current:
            self._check_history()
        done: Deferred[None] = Deferred()
        if self._stopped or (self._checking is None and not self._history_due):
            done.callback(None)
            return done
        late = self._clock.callLater(HISTORY_WAIT_S, self._end_history_waits)
        self._history_waits.append((done, late))
        return done

    def _end_history_waits(self) -> None:
        waiting, self._history_waits = self._history_waits, []
        for done, late in waiting:
            if late.active():
                late.cancel()
            done.callback(None)

    # --- the store's history ------------------------------------------------------------------------------------------

    def _on_reconnected(self) -> None:
        self._history_failures = 0
        self._check_history()

    def _check_history(self) -> None:
        """Check, also during a round, whether the store went back: at start, after broken connections, by a timer."""
        self._history_due = True
        if self._stopped or self._checking is not None:
            return
        if self._history_timer is not None and self._history_timer.active():
            self._history_timer.cancel()
        now_s = self._clock.seconds()
        pause_s = min(HISTORY_PAUSE_S * 2 ** min(self._history_failures, 10), HISTORY_PAUSE_MAX_S)
        wait_s = 0.0 if self._history_s is None else self._history_s + pause_s - now_s
        if wait_s > 0.0:
            self._history_timer = self._clock.callLater(wait_s, self._check_history)
            return
        self._history_due, self._history_s = False, now_s
        checking = self._checking = Deferred.fromCoroutine(self._ledgers.check_history())
        checking.addErrback(self._history_unchecked)
        checking.addBoth(self._history_checked, now_s)

    def _history_unchecked(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, MetadataError | StorageError):
            log.debug("The history of the metadata store cannot be checked yet: {error}", error=error)
            self._history_due = not isinstance(error, UnknownFormatVersion)
            self._history_failures += 1
        elif error is not None and not isinstance(error, CancelledError):
            log.failure("The history of the metadata store could not be checked", failure=failure)
            self._on_failure(error)

    def _history_checked(self, _: object, began_s: float) -> None:
        self._checking = None
        if self._stopped:
            return
        self._end_history_waits()
        if self._history_due:
            self._check_history()
        else:
            self._history_failures = 0
            beat_s = max(HISTORY_BEAT_S, (self._clock.seconds() - began_s) / HISTORY_BEAT_SHARE)
            self._history_timer = self._clock.callLater(beat_s, self._check_history)
        self.status.on_change()

    # --- a round ------------------------------------------------------------------------------------------------------

    async def _run(self, kind: CompactionKind | None, *, forced: bool) -> None:
        """kind: the compaction that was ordered."""
        self.status.last_error = ""
        self._logs.look_again(forced=forced)
        try:
            await self._ledgers.collect(grace_s=0.0 if forced else self._settings.wait_s / 2)
            if forced:
                await pause(self._clock, FORCED_GRACE_S)
                await self._checkpoints.checkpoint_now()  # what was written until a moment ago can be deleted, too
                await self._ledgers.collect(grace_s=FORCED_GRACE_S / 2)
            await self._ledgers.collect_elsewhere(forced=forced)
        except (MetadataError, NoWritableDisk, UnknownFormatVersion) as error:
            # Logs of ledgers that were deleted before can be removed all the same.
            self.status.note_error(error, self._wall_s())
            log.error("Garbage collection kept all ledgers that are not proven to be deleted: {error}", error=error)
        await on_worker(self._storage_worker, self._storage.tombstones.tidy)
        self.status.enter(GarbageStage.SWEEPING)
        await self._logs.remove_left_over()
        await self._logs.finish_compactions()
        if forced:
            await self._logs.close_written(kind)
        usages = await self._logs.sweep()
        await self._logs.compact(usages, kind)
