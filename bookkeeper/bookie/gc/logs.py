"""Entry logs whose ledgers are gone are removed; those that hold little are rewritten.

    closed logs -> which ledgers (sealed map, or a scan) -> none left: removed -> little left: compaction, if one is due

Invariants:
    a log is removed only when its sealed map, or a scan and a look through the whole index, says that no ledger is in
    it (I-60); one bad log never stops the rest (L-5); nothing is deleted while entries are copied (I-63): whoever calls
    sees to it.

Thread: reactor. Reading logs runs on the collector's worker, what changes the index on the storage worker.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable
from functools import partial

from twisted.logger import Logger

from bookkeeper.bookie.gc.candidates import (
    CompactionKind,
    CompactionSchedule,
    LedgerBytes,
    LogUsage,
    worth_compacting,
)
from bookkeeper.bookie.gc.compactor import STEP_PAUSE_S, Checkpoints, Compactor, Outcome
from bookkeeper.bookie.gc.settings import GarbageSettings
from bookkeeper.bookie.gc.status import GarbageStage, GarbageStatus, KnownLog
from bookkeeper.bookie.process.worker_calls import on_worker
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.entry_log.ledgers_map import LogLedgers
from bookkeeper.bookie.storage.entry_log.logs import EntryLogs
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.errors import CorruptRecord, NoWritableDisk, StorageError
from bookkeeper.filesystem import FileSystem
from bookkeeper.metadata.outcome import pause
from bookkeeper.ports import Clock, Worker

log = Logger()

QUARANTINE_S = 86_400.0
"""How long a log that is left alone is not read, nor the index asked about it, again; a forced round does at once."""


class EntryLogCollection:
    """See `GarbageCollector` for the arguments.

    local_ledgers: all ledgers here, ascending; called on `worker`. status: what was done is noted there, and there it
    is told which kinds of compaction are suspended.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: LedgerDirectories,
        storage: LedgerStorage,
        checkpoints: Checkpoints,
        clock: Clock,
        *,
        worker: Worker,
        storage_worker: Worker,
        settings: GarbageSettings,
        local_ledgers: Callable[[], array[int]],
        wall_s: Callable[[], float],
        status: GarbageStatus,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._worker = worker
        self._storage_worker = storage_worker
        self._settings = settings
        self._local_ledgers = local_ledgers
        self._wall_s = wall_s
        self._status = status
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
        self._log_ledgers = LogLedgers(fs, storage.entry_logs.checksums)
        self._schedule = CompactionSchedule(settings.compaction, clock.seconds())
        self._quarantine_s = clock.seconds()
        self._left_over = True  # files of an earlier process, perhaps
        self._usages: dict[int, LogUsage] = {}  # of closed logs: of the last sweep, and what was done since
        self._written: LogUsage | None = None  # of the log that is written to, at the last sweep
        self._kind: CompactionKind | None = None
        self._deadline_s = float("inf")
        self._stopped = False
        self.interrupted: CompactionKind | None = None
        """A compaction that was suspended before it had been through all logs, until one of its kind has."""

    @property
    def compacting_kind(self) -> CompactionKind | None:
        """Which compaction is under way."""
        return self._kind

    def stop(self) -> None:
        """A compaction under way gives up its log, which loses nothing."""
        self._stopped = True

    def look_again(self, *, forced: bool) -> None:
        """Once a day, or when forced: what kept logs from being read, or rewritten, may have been mended."""
        if forced or self._clock.seconds() - self._quarantine_s >= QUARANTINE_S:
            self._status.quarantined.clear()
            self._compactor.look_again()
            self._quarantine_s = self._clock.seconds()

    async def remove_left_over(self) -> None:
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

    async def close_written(self, kind: CompactionKind | None) -> None:
        """Close the log that is written to where its dead part comes back by that: no ledger of it is left, or so
        little that a compaction of this kind rewrites it. An operator asked for the space; else it is closed when full.
        """
        written = await self._usage_of_written()
        if written is None or not _worth(written, 0.0 if kind is None else self._settings.compaction.threshold(kind)):
            return
        await on_worker(self._storage_worker, self._storage.entry_logs.roll)

    async def _usage_of_written(self) -> LogUsage | None:
        """What is in the log that is written to, and how much of it is of ledgers that are here."""
        active = await on_worker(self._storage_worker, self._storage.entry_logs.active_bytes)
        if active is None:
            return None
        log_id, found = active
        return await on_worker(self._worker, lambda: found.usage(log_id, frozenset(self._local_ledgers())))

    async def sweep(self) -> list[tuple[LogUsage, str]]:
        """Remove closed logs without a ledger; what the others hold. Closed first, then ledgers: the ledgers of a log
        are known, or in files, before it is closed.
        """
        self._written = await self._usage_of_written()
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
                self._status.logs_removed += 1
                self._status.bytes_removed += size
                self._log_ledgers.forget(log_id)
        self._usages = {usage.log_id: usage for usage, _ in usages}
        self._status.swept_s = self._wall_s()
        self.show_sizes()
        return usages

    async def known_logs(self) -> list[KnownLog]:
        """All logs there are, ascending, with what the last sweep found in them. Fails with OSError."""
        logs = self._storage.entry_logs
        sizes: dict[int, int] = await on_worker(self._worker, partial(_sizes_of, logs))
        written_id, written, alone = logs.active_log_id, self._written, self._status.quarantined
        usages = dict(self._usages)
        if written_id is not None and written is not None and written.log_id == written_id:
            usages[written_id] = written
        return [
            KnownLog(log_id, size, usages.get(log_id), log_id == written_id, alone.get(logs.path_of(log_id) or "", ""))
            for log_id, size in sizes.items()
        ]

    def show_sizes(self) -> None:
        """What is in the logs as far as this process knows by now."""
        status, usages, written = self._status, self._usages.values(), self._written
        status.live_bytes = sum(usage.live_bytes for usage in usages)
        status.total_bytes = sum(usage.total_bytes for usage in usages)
        status.active_live_bytes = written.live_bytes if written is not None else 0
        status.active_total_bytes = written.total_bytes if written is not None else 0
        threshold = self._forced_threshold()
        paths = self._storage.entry_logs.path_of
        movable = [usage for usage in usages if paths(usage.log_id) not in status.quarantined]
        worth = [*worth_compacting(movable, threshold), *([written] if written and _worth(written, threshold) else [])]
        status.worth_bytes = sum(usage.total_bytes - usage.live_bytes for usage in worth)

    def _forced_threshold(self) -> float:
        """Of the compaction that a forced round makes."""
        return max(
            0.0 if self.is_suspended(kind) else self._settings.compaction.threshold(kind) for kind in CompactionKind
        )

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
            if path in self._status.quarantined:
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
        if path in self._status.quarantined:
            return None
        try:
            needed = await self._compactor.needed(log_id, path)
        except NoWritableDisk as error:
            self._status.note_error(error, self._wall_s())
            return None
        except (StorageError, OSError) as error:
            self._quarantine(path, f"{damaged}; {error}")
            return None
        return self._log_ledgers.keep_indexed(log_id, needed)

    async def _may_remove(self, log_id: int, path: str) -> bool:
        """The map of a sealed log is proof enough; of another one the index is asked (I-60)."""
        if self._log_ledgers.is_sealed(log_id):
            return True
        if path in self._status.quarantined:
            return False
        try:
            found = await self._compactor.reference(log_id)
        except NoWritableDisk as error:
            # The index cannot be asked while it cannot be written; other logs give room without that.
            self._status.note_error(error, self._wall_s())
            return False
        if found is None:
            return True
        self._quarantine(
            path, f"the index of ledger {found[0]} has entry {found[1]} in it, where reading the log did not find it"
        )
        return False

    def _quarantine(self, path: str, reason: str) -> None:
        if self._status.quarantine(path, reason):
            log.error("Entry log {path} is left alone: {reason}", path=path, reason=reason)

    def _forget_quarantined(self, paths: set[str]) -> None:
        for path in [path for path in self._status.quarantined if path not in paths]:
            del self._status.quarantined[path]

    def _may_compact(self) -> bool:
        if self._stopped or self._clock.seconds() > self._deadline_s or self._kind is None:
            return False
        return not self.is_suspended(self._kind)

    def is_suspended(self, kind: CompactionKind) -> bool:
        """By an operator."""
        return self._status.minor_suspended if kind is CompactionKind.MINOR else self._status.major_suspended

    async def finish_compactions(self) -> None:
        """What an earlier process, or a log in hand when the disk filled up, left at step 5."""
        for new_id, old_id in list(self._storage.entry_logs.unfinished):
            result = await self._compactor.finish(new_id, old_id)
            if result.outcome is Outcome.DONE:
                self._status.logs_compacted += 1
                self._log_ledgers.forget(old_id)
            else:
                path = self._storage.entry_logs.path_of(old_id)
                self._quarantine(path or f"{old_id:x}.log", result.reason)

    async def compact(self, usages: list[tuple[LogUsage, str]], ordered: CompactionKind | None) -> None:
        now_s = self._clock.seconds()
        kind = ordered or self._schedule.due(now_s)
        if kind is None:
            return
        if self.is_suspended(kind):
            if ordered is not None:
                self._interrupt(kind)
            return
        self._kind = kind
        self._deadline_s = now_s + self._settings.compaction.time_max_s(kind)
        self._status.enter(GarbageStage.COMPACTING)
        paths = {usage.log_id: path for usage, path in usages}
        threshold = self._settings.compaction.threshold(kind)
        suspended = False
        try:
            for usage in worth_compacting((usage for usage, _ in usages), threshold):
                given_up = self._may_compact() and not await self._compact_one(usage, paths[usage.log_id])
                # A log that was given up stays so, though its kind may be resumed by now.
                if given_up or not self._may_compact():
                    suspended = not self._stopped and self._clock.seconds() <= self._deadline_s
                    break
        finally:
            self._kind, self._deadline_s = None, float("inf")
            self._status.enter(self._status.stage)
            self.show_sizes()
        if suspended:
            self._interrupt(kind)
            return
        if self.interrupted is kind or kind is CompactionKind.MAJOR:
            self.interrupted, self._status.interrupted = None, ""
        self._schedule.done(kind, self._clock.seconds())
        self._status.last_minor_s = self._wall_s()
        self._status.minor_compactions += kind is CompactionKind.MINOR
        if kind is CompactionKind.MAJOR:
            self._status.major_compactions += 1
            self._status.last_major_s = self._wall_s()

    def _interrupt(self, kind: CompactionKind) -> None:
        """It is not done, so it stays due; whoever resumes it has it begin anew."""
        if self.interrupted is not CompactionKind.MAJOR:  # which does what a minor one does
            self.interrupted, self._status.interrupted = kind, kind.value
        log.info(
            "The {kind} compaction was suspended on the way; the logs that it did not get to are rewritten once it is "
            "resumed",
            kind=kind.value,
        )

    async def _compact_one(self, usage: LogUsage, path: str) -> bool:
        """False when it was given up on the way."""
        if path in self._status.quarantined:
            return True
        self._status.enter(GarbageStage.COMPACTING, path)
        expected = self._log_ledgers.known(usage.log_id) if self._log_ledgers.is_sealed(usage.log_id) else None
        result = await self._compactor.compact(usage, path, expected)
        self._status.entries_copied += result.entries
        self._status.bytes_copied += result.bytes
        if result.outcome is Outcome.DONE:
            self._status.logs_compacted += 1
            self._status.bytes_compacted += result.freed
            self._log_ledgers.forget(usage.log_id)
            self._usages.pop(usage.log_id, None)
            assert result.new_id is not None
            self._usages[result.new_id] = LogUsage(result.new_id, result.bytes, result.bytes, usage.live_ledger_count)
            log.info(
                "Rewrote {entries} entries of {path}; {freed} bytes are free again",
                entries=result.entries,
                path=path,
                freed=result.freed,
            )
        elif result.outcome is Outcome.DOUBTFUL:
            self._quarantine(path, result.reason)
        elif result.outcome is Outcome.NO_ROOM:
            self._status.note_error(StorageError(f"cannot compact {path}: {result.reason}"), self._wall_s())
            log.warn("Cannot compact {path}: {reason}", path=path, reason=result.reason)
        return result.outcome is not Outcome.STOPPED


def _worth(usage: LogUsage, threshold: float) -> bool:
    """Whether closing a log gives something back: it could be removed, or rewritten. One without records could not."""
    return usage.total_bytes > 0 and (usage.dead or usage.share < threshold)


def _sizes_of(logs: EntryLogs) -> dict[int, int]:
    """Bytes of each log's file; one that was removed meanwhile is left out."""
    sizes: dict[int, int] = {}
    for log_id in logs.log_ids:
        with contextlib.suppress(FileNotFoundError):
            sizes[log_id] = logs.size_of(log_id)
    return sizes
