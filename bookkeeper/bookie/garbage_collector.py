"""Gives back the space of ledgers that were deleted: rounds of proof, deletion, removal of logs, compaction.

    every gcWaitTime, or when forced:
      is this our cluster? (I-65) -> ledgers here -> ledgers of the store -> suspects -> ripe ones read one by one
      -> proven: deleted, in batches -> closed logs without a ledger: removed -> compaction, if one is due

Invariants:
    a ledger is deleted only after the store itself said, to a synced read of that very ledger, that it is not there,
    in a session that did not change meanwhile; every error means "keep" (I-64);
    one round at a time, and compaction is a part of it: nothing is deleted while entries are copied (I-63);
    one bad log, ledger or round never stops the rest (L-5).

Thread: reactor. Listing files and reading logs run on a worker of its own, what changes the index on the storage
worker.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import merge

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.bookie.compactor import STEP_PAUSE_S, Checkpoints, CompactionRate, Compactor, Outcome
from bookkeeper.bookie.garbage_status import GarbageStage, GarbageStatus
from bookkeeper.bookie.ledger_removal import BATCH_MAX, LedgerRemoval
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.garbage import (
    CompactionKind,
    CompactionSchedule,
    CompactionSettings,
    LedgerBytes,
    LogUsage,
    Missing,
    Suspects,
    absent_from,
    ascending,
    worth_compacting,
)
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.log_ledgers import LogLedgers
from bookkeeper.bookie.worker_calls import on_worker
from bookkeeper.errors import CorruptRecord, MetadataError, NoSuchLedger, NoWritableDisk, StorageError
from bookkeeper.filesystem import FileSystem
from bookkeeper.metadata.outcome import pause
from bookkeeper.metadata.store import MetadataStore, StoreState
from bookkeeper.metrics import Metrics
from bookkeeper.model import BookieId, LedgerId, LedgerMetadata, LedgerState
from bookkeeper.ports import Clock, Timer, Worker

log = Logger()

PROOFS_IN_FLIGHT = 64
"""Reads of the metadata store that are awaited at once."""

DELETIONS_MAX = 100_000
ALARMED_DELETIONS_MAX = 1000
"""Ledgers deleted in one round; after an alarm no more than that, each with its proof as ever."""

QUARANTINE_S = 86_400.0
"""How long a log that is left alone is not read, nor the index asked about it, again; a forced round does at once."""

FORCED_GRACE_S = 1.0
"""Between the two looks of a round that an operator ordered."""


@dataclass(frozen=True, slots=True)
class GarbageSettings:
    """wait_s: between two rounds. overreplicated_wait_s: between two looks for copies too many; <= 0: never.

    metadata_reads_per_s: of the look for copies too many.
    """

    wait_s: float = 600.0
    overreplicated_wait_s: float = 86_400.0
    metadata_reads_per_s: float = 1000.0
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    rate: CompactionRate = field(default_factory=CompactionRate)


class GarbageCollector:
    """instance_id, bookie_id: as in the cookie. wall_s: seconds since 1970, for the status.

    on_failure: a write or sync failed; the bookie must end (I-48). on_round: after each round, whatever it did.
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
        on_round: Callable[[], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._storage = storage
        self._removal = removal
        self._compactor = Compactor(
            fs,
            directories,
            storage,
            checkpoints,
            clock,
            worker=worker,
            storage_worker=storage_worker,
            rate=settings.rate,
            may_go_on=self._may_compact,
        )
        self._store = store
        self._log_ledgers = LogLedgers(fs, storage.entry_logs.checksums)
        self._checkpoints = checkpoints
        self._clock = clock
        self._worker = worker
        self._storage_worker = storage_worker
        self._settings = settings
        self._instance_id = instance_id
        self._bookie_id = bookie_id
        self._wall_s = wall_s
        self._on_failure = on_failure
        self._on_round = on_round
        self._suspects = Suspects()
        self._schedule = CompactionSchedule(settings.compaction, clock.seconds())
        self._overreplicated_s = self._quarantine_s = clock.seconds()
        self._sessions_lost = 0
        self._watch = store.watch_state(self._on_state)
        self._timer: Timer | None = None
        self._round: Deferred[None] | None = None
        self._forced: CompactionKind | None = None
        self._force_due = False
        self._waiting: list[Deferred[None]] = []
        self._left_over = True  # files of an earlier process, perhaps
        self._kind: CompactionKind | None = None
        self._deadline_s = float("inf")
        self._stopped = False
        self.status = GarbageStatus()
        if metrics is not None:
            self._count(metrics)

    def _count(self, metrics: Metrics) -> None:
        status = self.status
        metrics.gauge("bookie_gc_ACTIVE_LEDGER_TOTAL", lambda: status.ledgers_local)
        metrics.counter("bookie_gc_DELETED_LEDGER_TOTAL", lambda: status.ledgers_deleted + status.ledgers_moved)
        metrics.gauge("bookie_gc_ACTIVE_ENTRY_LOG_SPACE_BYTES", lambda: status.total_bytes)
        metrics.gauge("bookie_gc_LIVE_ENTRY_LOG_BYTES", lambda: status.live_bytes)
        metrics.counter("bookie_gc_RECLAIMED_DELETION_SPACE_BYTES", lambda: status.bytes_removed)
        metrics.counter("bookie_gc_RECLAIMED_COMPACTION_SPACE_BYTES", lambda: status.bytes_compacted)
        metrics.counter("bookie_gc_MINOR_COMPACTION_TOTAL", lambda: status.minor_compactions)
        metrics.counter("bookie_gc_MAJOR_COMPACTION_TOTAL", lambda: status.major_compactions)
        metrics.counter("bookie_gc_COMPACTED_ENTRY_LOGS", lambda: status.logs_compacted)
        metrics.counter("bookie_gc_COMPACTED_BYTES", lambda: status.bytes_copied)
        metrics.gauge("bookie_gc_QUARANTINED_ENTRY_LOGS", lambda: len(status.quarantined))
        metrics.counter("bookie_gc_ALARMS", lambda: status.alarms)

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The first round comes after the wait: a bookie that just started has better things to do."""
        self._plan()

    def stop(self) -> Deferred[None]:
        """No more rounds; fires when the one under way has let go. What it began is finished by the next start."""
        self._stopped = True
        self.status.stage = GarbageStage.STOPPED
        self._watch.cancel()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)
        under_way = self._round
        ended: Deferred[None] = Deferred()
        if under_way is None:
            ended.callback(None)
        else:
            under_way.addBoth(lambda _: ended.callback(None))
            under_way.cancel()
        return ended

    def force(self, kind: CompactionKind | None = None) -> Deferred[None]:
        """A round now, or after the one under way, with a compaction of this kind; fires at its end.

        It looks twice, FORCED_GRACE_S apart, so that one order is enough for what was deleted before it.
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

    @property
    def compacting_kind(self) -> CompactionKind | None:
        """Which compaction is under way."""
        return self._kind

    def suspend(self, *, minor: bool = False, major: bool = False) -> None:
        """No compaction of these kinds until `resume`; one under way gives up its log, which loses nothing."""
        self.status.minor_suspended |= minor
        self.status.major_suspended |= major

    def resume(self, *, minor: bool = False, major: bool = False) -> None:
        """Take `suspend` back."""
        if minor:
            self.status.minor_suspended = False
        if major:
            self.status.major_suspended = False

    def _plan(self) -> None:
        if self._stopped:
            return
        wait_s = self._settings.wait_s
        self.status.stage = GarbageStage.IDLE
        self.status.next_round_s = self._wall_s() + wait_s
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
        self._note_error(error)
        if isinstance(error, MetadataError | StorageError):
            log.error("Garbage collection: {error}. Nothing was deleted without proof; it goes on", error=error)
        else:
            log.failure("Garbage collection failed", failure=failure)
            self._on_failure(error)

    def _note_error(self, error: BaseException) -> None:
        self.status.last_error = str(error) or type(error).__name__
        self.status.last_error_s = self._wall_s()

    def _ended(self, _: object, began_s: float, waiting: list[Deferred[None]]) -> None:
        self._round = None
        self.status.last_round_s = self._wall_s()
        self.status.last_round_took_s = self._clock.seconds() - began_s
        self.status.rounds += 1
        self.status.compacting = ""
        self.status.forced = self._force_due
        if self._on_round is not None:
            self._on_round()
        if self._force_due and not self._stopped:
            self._begin()
        else:
            self._plan()
        for done in waiting:
            done.callback(None)

    def _on_state(self, state: StoreState) -> None:
        if state in (StoreState.LOST, StoreState.CLOSED):
            self._sessions_lost += 1

    # --- a round ------------------------------------------------------------------------------------------------------

    async def _run(self, kind: CompactionKind | None, *, forced: bool) -> None:
        """kind: the compaction that was ordered."""
        self.status.last_error = ""
        if forced or self._clock.seconds() - self._quarantine_s >= QUARANTINE_S:
            self.status.quarantined.clear()  # what kept them from being read, or rewritten, may have been mended
            self._compactor.look_again()
            self._quarantine_s = self._clock.seconds()
        try:
            await self._collect_ledgers(grace_s=0.0 if forced else self._settings.wait_s / 2)
            if forced:
                await pause(self._clock, FORCED_GRACE_S)
                await self._checkpoints.checkpoint_now()  # what was written until a moment ago can be deleted, too
                await self._collect_ledgers(grace_s=FORCED_GRACE_S / 2)
            await self._collect_overreplicated(forced=forced)
        except (MetadataError, NoWritableDisk) as error:
            # Logs of ledgers that were deleted before can be removed all the same.
            self._note_error(error)
            log.error("Garbage collection kept all ledgers that are not proven to be deleted: {error}", error=error)
        await on_worker(self._storage_worker, self._storage.tombstones.tidy)
        self.status.stage = GarbageStage.SWEEPING
        await self._remove_left_over()
        await self._finish_compactions()
        usages = await self._sweep()
        await self._compact(usages, kind)

    async def _collect_ledgers(self, *, grace_s: float) -> None:
        self.status.stage = GarbageStage.CHECKING
        await self._check_cluster()
        local = await on_worker(self._worker, self._local_ledgers)
        self.status.ledgers_local = len(local)
        missing = Missing(local)
        async for batch in self._store.ledgers.ids():
            missing.feed(batch)
        absent = missing.finish()
        await self._check_cluster()
        deletions_max = DELETIONS_MAX
        if missing.alarming:
            self.status.alarms += 1
            deletions_max = ALARMED_DELETIONS_MAX
            log.critical(
                "{missing} of the {local} ledgers here are not in the metadata store, which lists {listed}: is that "
                "right? Each is deleted only after a proof of its own, and at most {limit} in a round",
                missing=len(absent),
                local=len(local),
                listed=missing.listed_count,
                limit=deletions_max,
            )
        ripe = self._suspects.observe(absent, self._clock.seconds(), grace_s=grace_s)
        self.status.suspects = len(self._suspects)
        deleted = 0
        for start in range(0, len(ripe), BATCH_MAX):
            if deleted >= deletions_max:
                break
            gone = await self._prove_gone(ripe[start : start + BATCH_MAX])
            self.status.stage = GarbageStage.DELETING
            removed: list[int] = await self._removal.remove(gone, moved=False) if gone else []
            self._suspects.forget(removed)
            deleted += len(removed)
            self.status.ledgers_deleted += len(removed)
            self.status.ledgers_local -= len(removed)
            self.status.suspects = len(self._suspects)
        if deleted:
            log.info("Deleted {count} ledgers that the metadata store has no more", count=deleted)

    async def _check_cluster(self) -> None:
        """I-65: pointed at an empty or foreign root, an honest collector would delete everything."""
        await self._store.sync()
        found = await self._store.admin.instance_id()
        if found != self._instance_id:
            raise StorageError(
                f"{self._store.description} is of cluster {found}, this bookie's directories are of cluster "
                f"{self._instance_id}: nothing is collected. Check metadataServiceUri"
            )

    def _local_ledgers(self) -> array[int]:
        """Ascending; with the ledgers that lost their index file: nobody deleted them, and their entries are in logs.

        Thread: the collector's worker.
        """
        local = ascending(self._storage.ledger_ids())
        for known in self._storage.ledgers_with_checksums():
            lost = absent_from(local, known)
            if lost:
                local = array("q", merge(local, lost))
        return local

    async def _prove_gone(self, ledger_ids: Sequence[int]) -> list[int]:
        """Those of which the store says, to a synced read, that they do not exist."""
        gone: list[int] = []
        for start in range(0, len(ledger_ids), PROOFS_IN_FLIGHT):
            some = ledger_ids[start : start + PROOFS_IN_FLIGHT]
            before = self._sessions_lost
            await self._store.sync()
            answers = await gatherResults([self._is_gone(LedgerId(ledger_id)) for ledger_id in some])
            self._check_running()
            if self._sessions_lost != before or self._store.state is not StoreState.CONNECTED:
                continue  # another server may have answered, behind the one that was synced with (I-19)
            gone += [ledger_id for ledger_id, is_gone in zip(some, answers, strict=True) if is_gone]
        return gone

    def _is_gone(self, ledger_id: LedgerId) -> Deferred[bool]:
        def failed(failure: Failure) -> bool:
            if isinstance(failure.value, NoSuchLedger):
                return True
            log.warn("Cannot tell whether ledger {id} exists: {error}; it stays", id=ledger_id, error=failure.value)
            return False

        return self._store.ledgers.read(ledger_id).addCallbacks(lambda _: False, failed)

    def _check_running(self) -> None:
        """To be called after a wait for answers, to which a stop is one more reason to know nothing."""
        if self._stopped:
            raise CancelledError

    # --- copies too many ----------------------------------------------------------------------------------------------

    async def _collect_overreplicated(self, *, forced: bool) -> None:
        wait_s = self._settings.overreplicated_wait_s
        now_s = self._clock.seconds()
        if wait_s <= 0 or (not forced and now_s - self._overreplicated_s < wait_s):
            return
        self.status.stage = GarbageStage.OVERREPLICATED
        local = await on_worker(self._worker, self._local_ledgers)
        pause_s = 1.0 / self._settings.metadata_reads_per_s if self._settings.metadata_reads_per_s > 0 else 0.0
        removed = 0
        for start in range(0, len(local), PROOFS_IN_FLIGHT):
            some = local[start : start + PROOFS_IN_FLIGHT]
            await self._store.sync()
            found = await gatherResults([self._is_elsewhere(LedgerId(ledger_id)) for ledger_id in some])
            self._check_running()
            for ledger_id, elsewhere in zip(some, found, strict=True):
                if elsewhere and await self._remove_elsewhere(LedgerId(ledger_id)):
                    removed += 1
            await pause(self._clock, pause_s * len(some))
        self._overreplicated_s = now_s
        self.status.last_overreplicated_s = self._wall_s()
        if removed:
            log.info("Deleted the copies of {count} closed ledgers that belong to other bookies", count=removed)

    async def _remove_elsewhere(self, ledger_id: LedgerId) -> bool:
        """Under the lock of those who make copies, or one might be taken away that is being made (I-66)."""
        lock = await self._store.underreplication.lock(ledger_id, self._bookie_id, lambda: None)
        if lock is None:
            return False  # somebody copies it, perhaps to this bookie
        try:
            before = self._sessions_lost
            await self._store.sync()
            elsewhere = await self._is_elsewhere(ledger_id)
            self._check_running()
            if not elsewhere or not lock.held or self._sessions_lost != before:
                return False
            removed: list[int] = await self._removal.remove([ledger_id], moved=True)
        finally:
            lock.release().addErrback(_lock_lingers, ledger_id)
        self.status.ledgers_moved += len(removed)
        return bool(removed)

    def _is_elsewhere(self, ledger_id: LedgerId) -> Deferred[bool]:
        """Whether the ledger is closed and no fragment of it names this bookie; False also where nobody can tell."""

        def found(metadata: LedgerMetadata) -> bool:
            return metadata.state is LedgerState.CLOSED and not any(
                self._bookie_id in fragment.ensemble for fragment in metadata.fragments
            )

        def failed(failure: Failure) -> bool:
            if isinstance(failure.value, MetadataError | CancelledError):
                return False
            raise AssertionError("the store failed otherwise than it may") from failure.value

        return self._store.ledgers.read(ledger_id).addCallbacks(lambda versioned: found(versioned.value), failed)

    # --- files left over ----------------------------------------------------------------------------------------------

    async def _remove_left_over(self) -> None:
        """Index files that a crash kept from getting their names; if their ledgers do not come again, nobody else does.

        Once in a process: what it leaves itself, on a full disk, it takes up again.
        """
        if not self._left_over:
            return
        paths = await on_worker(self._worker, self._storage.unfinished_files)
        if paths:
            await on_worker(self._storage_worker, partial(self._storage.remove_unfinished, paths))
            log.info("Removed {count} index files that a crash had left unfinished", count=len(paths))
        self._left_over = False

    # --- entry logs ---------------------------------------------------------------------------------------------------

    async def _sweep(self) -> list[tuple[LogUsage, str]]:
        """Remove closed logs without a ledger; what the others hold. Closed first, then ledgers: the ledgers of a log
        are known, or in files, before it is closed.
        """
        closed = await on_worker(self._storage_worker, self._storage.entry_logs.closed)
        ledgers: frozenset[int] = await on_worker(self._worker, lambda: frozenset(self._local_ledgers()))
        unfinished = {log_id for pair in self._storage.entry_logs.unfinished for log_id in pair}
        there = {log_id for log_id, _ in closed}
        self._log_ledgers.forget_others(there.__contains__)
        self._forget_quarantined({path for _, path in closed})
        usages: list[tuple[LogUsage, str]] = []
        for log_id, path in closed:
            if log_id in unfinished:
                continue
            found = await self._ledgers_of(log_id, path)
            if found is None:
                continue
            usage = await on_worker(self._worker, partial(found.usage, log_id, ledgers))
            if not usage.dead:
                usages.append((usage, path))
            elif await self._may_remove(log_id, path):
                size = await on_worker(self._storage_worker, partial(self._remove_log, log_id))
                self.status.logs_removed += 1
                self.status.bytes_removed += size
                self._log_ledgers.forget(log_id)
        self.status.live_bytes = sum(usage.live_bytes for usage, _ in usages)
        self.status.total_bytes = sum(usage.total_bytes for usage, _ in usages)
        return usages

    def _remove_log(self, log_id: int) -> int:
        """Bytes that the disk got back. Thread: storage worker."""
        logs = self._storage.entry_logs
        size = logs.size_of(log_id)
        logs.remove([log_id])
        return size

    async def _ledgers_of(self, log_id: int, path: str) -> LedgerBytes | None:
        """Which ledgers a log has entries of; None when that cannot be told, and the log stays."""
        known = self._log_ledgers.known(log_id)
        if known is not None:
            return known
        try:
            found = await on_worker(self._worker, partial(self._log_ledgers.read_map, log_id, path))
            if found is not None:
                return found
            if path in self.status.quarantined:
                return None
            steps = self._log_ledgers.scan(log_id, path)
            while True:
                scanned: LedgerBytes | None = await on_worker(self._worker, partial(next, steps))
                if scanned is not None:
                    return scanned
                await pause(self._clock, STEP_PAUSE_S)
        except CorruptRecord as error:
            return await self._needed_of(log_id, path, error)
        except (StorageError, OSError) as error:
            self._quarantine(path, str(error))
            return None

    async def _needed_of(self, log_id: int, path: str, damaged: CorruptRecord) -> LedgerBytes | None:
        """As `_ledgers_of`, from the index: of a log that cannot be read through, nothing else can tell."""
        if path in self.status.quarantined:
            return None
        try:
            needed = await self._compactor.needed(log_id, path)
        except NoWritableDisk as error:
            self._note_error(error)
            return None
        except (StorageError, OSError) as error:
            self._quarantine(path, f"{damaged}; {error}")
            return None
        return self._log_ledgers.keep_indexed(log_id, needed)

    async def _may_remove(self, log_id: int, path: str) -> bool:
        """The map of a sealed log is proof enough; of another one the index is asked (I-60)."""
        if self._log_ledgers.is_sealed(log_id):
            return True
        if path in self.status.quarantined:
            return False
        try:
            found = await self._compactor.reference(log_id)
        except NoWritableDisk as error:
            # The index cannot be asked while it cannot be written; other logs give room without that.
            self._note_error(error)
            return False
        if found is None:
            return True
        self._quarantine(
            path, f"the index of ledger {found[0]} has entry {found[1]} in it, where reading the log did not find it"
        )
        return False

    def _quarantine(self, path: str, reason: str) -> None:
        if self.status.quarantine(path, reason):
            log.error("Entry log {path} is left alone: {reason}", path=path, reason=reason)

    def _forget_quarantined(self, paths: set[str]) -> None:
        for path in [path for path in self.status.quarantined if path not in paths]:
            del self.status.quarantined[path]

    # --- compaction ---------------------------------------------------------------------------------------------------

    def _may_compact(self) -> bool:
        if self._stopped or self._clock.seconds() > self._deadline_s or self._kind is None:
            return False
        return not self._suspended(self._kind)

    def _suspended(self, kind: CompactionKind) -> bool:
        return self.status.minor_suspended if kind is CompactionKind.MINOR else self.status.major_suspended

    async def _finish_compactions(self) -> None:
        """What an earlier process, or a log in hand when the disk filled up, left at step 5."""
        for new_id, old_id in list(self._storage.entry_logs.unfinished):
            result = await self._compactor.finish(new_id, old_id)
            if result.outcome is Outcome.DONE:
                self.status.logs_compacted += 1
                self._log_ledgers.forget(old_id)
            else:
                path = self._storage.entry_logs.path_of(old_id)
                self._quarantine(path or f"{old_id:x}.log", result.reason)

    async def _compact(self, usages: list[tuple[LogUsage, str]], ordered: CompactionKind | None) -> None:
        now_s = self._clock.seconds()
        kind = ordered or self._schedule.due(now_s)
        if kind is None or self._suspended(kind):
            return
        self._kind = kind
        self._deadline_s = now_s + self._settings.compaction.time_max_s(kind)
        self.status.stage = GarbageStage.COMPACTING
        paths = {usage.log_id: path for usage, path in usages}
        threshold = self._settings.compaction.threshold(kind)
        try:
            for usage in worth_compacting((usage for usage, _ in usages), threshold):
                if not self._may_compact():
                    break
                await self._compact_one(usage, paths[usage.log_id])
        finally:
            self._kind, self._deadline_s = None, float("inf")
            self.status.compacting = ""
        self._schedule.done(kind, self._clock.seconds())
        self.status.last_minor_s = self._wall_s()
        self.status.minor_compactions += kind is CompactionKind.MINOR
        if kind is CompactionKind.MAJOR:
            self.status.major_compactions += 1
            self.status.last_major_s = self._wall_s()

    async def _compact_one(self, usage: LogUsage, path: str) -> None:
        if path in self.status.quarantined:
            return
        self.status.compacting = path
        expected = self._log_ledgers.known(usage.log_id) if self._log_ledgers.is_sealed(usage.log_id) else None
        result = await self._compactor.compact(usage, path, expected)
        self.status.entries_copied += result.entries
        self.status.bytes_copied += result.bytes
        if result.outcome is Outcome.DONE:
            self.status.logs_compacted += 1
            self.status.bytes_compacted += result.freed
            self._log_ledgers.forget(usage.log_id)
            log.info(
                "Rewrote {entries} entries of {path}; {freed} bytes are free again",
                entries=result.entries,
                path=path,
                freed=result.freed,
            )
        elif result.outcome is Outcome.DOUBTFUL:
            self._quarantine(path, result.reason)
        elif result.outcome is Outcome.NO_ROOM:
            self._note_error(StorageError(f"cannot compact {path}: {result.reason}"))
            log.warn("Cannot compact {path}: {reason}", path=path, reason=result.reason)


def _lock_lingers(failure: Failure, ledger_id: LedgerId) -> None:
    log.info(
        "The lock of ledger {id} could not be given back, it goes with the session: {error}",
        id=ledger_id,
        error=failure.value,
    )
