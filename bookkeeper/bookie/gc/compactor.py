"""Drives the compaction of one entry log after another: which thread does which step, how fast, and what may stop it.

Thread: reactor; reading and copying run on the collector's worker, what changes the index on the storage worker.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.bookie.gc.candidates import LedgerBytes, LogUsage
from bookkeeper.bookie.gc.compaction import Copied, LogCompaction, find_reference, room_for, switch
from bookkeeper.bookie.process.worker_calls import on_worker
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.entry_log.format import SIZE
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.errors import CorruptRecord, NoWritableDisk, StorageError
from bookkeeper.filesystem import FileSystem, OpenMode, is_no_space
from bookkeeper.metadata.outcome import pause
from bookkeeper.ports import Clock, Worker

T = TypeVar("T")
log = Logger()

STEP_PAUSE_S = 0.002
"""Between two steps that the rate does not bound, so that requests get their turn."""

RESERVE_BYTES = 64 * 1024 * 1024
"""Free space that a compaction leaves to the journal, marks and fences (I-68)."""


class Checkpoints(Protocol):
    """What makes changed locations durable."""

    def checkpoint_now(self) -> Deferred[None]:
        """Fires after a checkpoint that covers everything done by now."""


@dataclass(frozen=True, slots=True)
class CompactionRate:
    """How fast live entries are copied. Only one of them counts. <= 0: unbounded."""

    by_bytes: bool = False
    entries_per_s: float = 1000.0
    bytes_per_s: float = 1_000_000.0

    def seconds(self, copied: Copied) -> float:
        """How long a step that copied so much has to take at least."""
        amount, rate = (copied.bytes, self.bytes_per_s) if self.by_bytes else (copied.entries, self.entries_per_s)
        return amount / rate if rate > 0 else 0.0


class Outcome(enum.Enum):
    """What became of one log."""

    DONE = "rewritten"
    NO_ROOM = "no room for its live entries"
    DOUBTFUL = "left alone: damaged, or not what it should be"
    STOPPED = "stopped on the way; the old log stays"


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """entries, bytes: copied. freed: bytes that the disk got back. reason: in words, unless it was done. new_id: of the
    log that was written, where one was.

    log_damaged: the old log itself cannot be read through.
    """

    outcome: Outcome
    entries: int = 0
    bytes: int = 0
    freed: int = 0
    reason: str = ""
    log_damaged: bool = False
    new_id: int | None = None


@dataclass(frozen=True, slots=True)
class _Doubt:
    """Why a compaction cannot be finished, and what that depends on.

    repaired: damages that had been repaired by then. reference: ledger and entry that the index has in the old log.
    path: the damaged file.
    """

    result: CompactionResult
    repaired: int
    reference: tuple[int, int] | None = None
    path: str | None = None


class Compactor:
    """may_go_on: asked between two steps; False gives the log in hand up, which loses nothing.

    Failed writes and syncs are raised (OSError): the bookie must end (I-48).
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
        rate: CompactionRate,
        may_go_on: Callable[[], bool],
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._storage = storage
        self._checkpoints = checkpoints
        self._clock = clock
        self._worker = worker
        self._storage_worker = storage_worker
        self._rate = rate
        self._may_go_on = may_go_on
        self.progress = Copied()
        """Of the log in hand."""
        self._doubts: dict[tuple[int, int], _Doubt] = {}  # of `EntryLogs.unfinished`: new and old log

    async def compact(self, usage: LogUsage, path: str, expected: LedgerBytes | None) -> CompactionResult:
        """Rewrite a closed log. expected: its sealed map, None without a seal. Raises OSError (fatal: I-48)."""
        self.progress = Copied()
        needed = usage.live_bytes + usage.live_bytes // 64 + RESERVE_BYTES
        directory = await on_worker(self._worker, partial(room_for, self._fs, self._directories, path, needed=needed))
        if directory is None:
            return CompactionResult(Outcome.NO_ROOM, reason=f"{needed} bytes must be free in one ledger directory")
        compaction = self._compaction(usage.log_id, path, expected)
        failed = await self._write(compaction, directory, compaction.copy())
        sealed = expected is not None
        if failed is not None and failed.log_damaged:
            self.progress = Copied()
            compaction, sealed = self._compaction(usage.log_id, path, expected), False
            failed = await self._write_indexed(compaction, directory, path, expected)
        if failed is not None:
            return failed
        self._storage.entry_logs.unfinished.append((compaction.new_id, compaction.old_id))
        size = await on_worker(self._worker, partial(_size, self._fs, path))
        result = await self.finish(compaction.new_id, compaction.old_id, sealed=sealed)
        return CompactionResult(
            result.outcome,
            compaction.entries,
            compaction.bytes,
            max(0, size - compaction.bytes) if result.outcome is Outcome.DONE else 0,
            result.reason,
            new_id=compaction.new_id,
        )

    def _compaction(self, log_id: int, path: str, expected: LedgerBytes | None) -> LogCompaction:
        return LogCompaction(
            self._fs,
            self._storage.entry_logs,
            self._storage.ledger_cache,
            old_id=log_id,
            old_path=path,
            expected=expected,
        )

    async def _write(
        self, compaction: LogCompaction, directory: str, steps: Iterator[Copied]
    ) -> CompactionResult | None:
        """Steps 1 to 4: None once the new log is there; else why not, and nothing is left of it."""
        try:
            await on_worker(self._storage_worker, partial(compaction.begin, directory))
            if not await self._copy(steps):
                await on_worker(self._worker, compaction.settle)
                return None
        except OSError as error:
            if not is_no_space(error):
                raise
            failed = CompactionResult(Outcome.NO_ROOM, reason=str(error))
        except StorageError as error:
            damaged = isinstance(error, CorruptRecord) and error.path == compaction.old_path
            failed = CompactionResult(Outcome.DOUBTFUL, reason=str(error), log_damaged=damaged)
        else:
            failed = CompactionResult(Outcome.STOPPED)
        await on_worker(self._worker, compaction.give_up)
        return failed

    async def _write_indexed(
        self, compaction: LogCompaction, directory: str, path: str, expected: LedgerBytes | None
    ) -> CompactionResult | None:
        """As `_write`, of a log that cannot be read through."""
        try:
            await self._checkpoints.checkpoint_now()
        except NoWritableDisk as error:
            return CompactionResult(Outcome.NO_ROOM, reason=str(error))
        ledger_ids = None if expected is None else expected.ledger_ids
        needed = self._storage.indexed_records().steps(compaction.old_id, path, ledger_ids)
        return await self._write(compaction, directory, compaction.copy_indexed(needed))

    async def needed(self, log_id: int, path: str) -> LedgerBytes:
        """What the index needs of a closed log that cannot be read through.

        Raises StorageError when some of that is damaged, or the index is; OSError.
        """
        await self._checkpoints.checkpoint_now()
        found: dict[int, int] = {}
        steps = self._storage.indexed_records().steps(log_id, path, None)
        while (records := await self._step(self._worker, steps)) is not None:
            for record in records:
                found[record.ledger_id] = found.get(record.ledger_id, 0) + record.size + SIZE.size
            await pause(self._clock, STEP_PAUSE_S)
        return LedgerBytes(found, total=await on_worker(self._worker, partial(_size, self._fs, path)))

    async def _copy(self, steps: Iterator[Copied]) -> bool:
        """True when it was stopped."""
        while True:
            begun_s = self._clock.seconds()
            copied = await self._step(self._worker, steps)
            if copied is None:
                return False
            self.progress.entries += copied.entries
            self.progress.bytes += copied.bytes
            self.progress.records += copied.records
            if not self._may_go_on():
                return True
            took_s = self._clock.seconds() - begun_s
            await pause(self._clock, max(STEP_PAUSE_S, self._rate.seconds(copied) - took_s))
            if not self._may_go_on():
                return True

    async def finish(self, new_id: int, old_id: int, *, sealed: bool = False) -> CompactionResult:
        """Steps 5 and 6; also of a compaction that an earlier process settled. Raises OSError (fatal: I-48).

        What was found doubtful is not looked at again before what it depends on has changed.
        """
        pair = (new_id, old_id)
        doubt = self._doubts.pop(pair, None)
        if doubt is not None and await on_worker(self._worker, partial(self._holds, doubt, old_id)):
            self._doubts[pair] = doubt
            return doubt.result
        repaired = self._storage.damage.repaired_count
        try:
            found = await self._finish(new_id, old_id, sealed=sealed)
        except NoWritableDisk as error:
            return CompactionResult(Outcome.DOUBTFUL, reason=str(error))  # there may be room at any time
        except StorageError as error:
            result = CompactionResult(Outcome.DOUBTFUL, reason=str(error))
            path = error.path if isinstance(error, CorruptRecord) else None
            self._doubts[pair] = _Doubt(result, repaired, path=path)
            return result
        if found is None:
            return CompactionResult(Outcome.DONE)
        path = self._storage.entry_logs.path_of(old_id)
        why = f"the index of ledger {found[0]} has entry {found[1]} in {path}, where reading the log did not find it"
        result = CompactionResult(Outcome.DOUBTFUL, reason=why)
        self._doubts[pair] = _Doubt(result, repaired, reference=found)
        return result

    def _holds(self, doubt: _Doubt, old_id: int) -> bool:
        """Whether a doubt is still what it was. Thread: the collector's worker."""
        if doubt.reference is not None:
            ledger_id, entry_id = doubt.reference
            try:
                (location,) = self._storage.ledger_cache.located(ledger_id, [entry_id])
            except StorageError:
                return True  # the index cannot tell that it changed
            return location >> 32 == old_id
        if doubt.path is not None and not self._fs.exists(doubt.path):
            return False
        return doubt.repaired == self._storage.damage.repaired_count

    def look_again(self) -> None:
        """Forget all doubts: what they came from may have been mended."""
        self._doubts.clear()

    async def _finish(self, new_id: int, old_id: int, *, sealed: bool) -> tuple[int, int] | None:
        """None when it is done; else ledger and entry of an index that still points into the old log."""
        logs = self._storage.entry_logs
        path, old_path = logs.path_of(new_id), logs.path_of(old_id)
        assert path is not None
        steps = switch(
            self._fs,
            self._storage.ledger_cache,
            new_id=new_id,
            new_path=path,
            old_id=old_id,
            check=logs.checksums.checked(new_id),
        )
        while await self._step(self._storage_worker, steps) is not None:
            if self._storage.needs_checkpoint:
                await self._checkpoints.checkpoint_now()
            await pause(self._clock, STEP_PAUSE_S)
        await self._checkpoints.checkpoint_now()
        if old_path is not None and not sealed and (found := await self._reference(old_id)) is not None:
            return found
        await on_worker(self._storage_worker, partial(logs.end_compaction, new_id, old_id))
        return None

    async def reference(self, log_id: int) -> tuple[int, int] | None:
        """Ledger and entry of an index that points into a closed log; None when none does. Raises OSError."""
        await self._checkpoints.checkpoint_now()
        return await self._reference(log_id)

    async def _reference(self, log_id: int) -> tuple[int, int] | None:
        steps = _wrapped(find_reference(self._fs, self._directories, log_id))
        while True:
            step = await self._step(self._worker, steps)
            if step is None:
                return None
            if step.found is not None:
                return step.found
            await pause(self._clock, STEP_PAUSE_S)

    async def _step(self, worker: Worker, steps: Iterator[T]) -> T | None:
        return await on_worker(worker, lambda: next(steps, None))


@dataclass(frozen=True, slots=True)
class _Looked:
    found: tuple[int, int] | None


def _wrapped(steps: Iterator[tuple[int, int] | None]) -> Iterator[_Looked]:
    return map(_Looked, steps)


def _size(fs: FileSystem, path: str) -> int:
    file = fs.open(path, OpenMode.READ)
    try:
        return file.size()
    finally:
        file.close()
