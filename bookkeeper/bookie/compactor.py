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

from bookkeeper.bookie.storage.compaction import Copied, LogCompaction, find_reference, room_for, switch
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.garbage import LedgerBytes, LogUsage
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.worker_calls import on_worker
from bookkeeper.errors import NoWritableDisk, StorageError
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
    """entries, bytes: copied. freed: bytes that the disk got back. reason: in words, unless it was done."""

    outcome: Outcome
    entries: int = 0
    bytes: int = 0
    freed: int = 0
    reason: str = ""


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

    async def compact(self, usage: LogUsage, path: str, expected: LedgerBytes | None) -> CompactionResult:
        """Rewrite a closed log. expected: its sealed map, None without a seal. Raises OSError (fatal: I-48)."""
        self.progress = Copied()
        needed = usage.live_bytes + usage.live_bytes // 64 + RESERVE_BYTES
        directory = await on_worker(self._worker, partial(room_for, self._fs, self._directories, path, needed=needed))
        if directory is None:
            return CompactionResult(Outcome.NO_ROOM, reason=f"{needed} bytes must be free in one ledger directory")
        compaction = LogCompaction(
            self._fs,
            self._storage.entry_logs,
            self._storage.ledger_cache,
            old_id=usage.log_id,
            old_path=path,
            expected=expected,
        )
        try:
            await on_worker(self._storage_worker, partial(compaction.begin, directory))
            stopped = await self._copy(compaction)
        except OSError as error:
            if not is_no_space(error):
                raise
            await on_worker(self._worker, compaction.give_up)
            return CompactionResult(Outcome.NO_ROOM, reason=str(error))
        except StorageError as error:
            await on_worker(self._worker, compaction.give_up)
            return CompactionResult(Outcome.DOUBTFUL, reason=str(error))
        if stopped:
            await on_worker(self._worker, compaction.give_up)
            return CompactionResult(Outcome.STOPPED)
        try:
            await on_worker(self._worker, compaction.settle)
        except OSError as error:
            if not is_no_space(error):
                raise
            await on_worker(self._worker, compaction.give_up)
            return CompactionResult(Outcome.NO_ROOM, reason=str(error))
        self._storage.entry_logs.unfinished.append((compaction.new_id, compaction.old_id))
        size = await on_worker(self._worker, partial(_size, self._fs, path))
        result = await self.finish(compaction.new_id, compaction.old_id, sealed=expected is not None)
        return CompactionResult(
            result.outcome,
            compaction.entries,
            compaction.bytes,
            max(0, size - compaction.bytes) if result.outcome is Outcome.DONE else 0,
            result.reason,
        )

    async def _copy(self, compaction: LogCompaction) -> bool:
        """True when it was stopped."""
        steps = compaction.copy()
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
        """Steps 5 and 6; also of a compaction that an earlier process settled. Raises OSError (fatal: I-48)."""
        logs = self._storage.entry_logs
        path, old_path = logs.path_of(new_id), logs.path_of(old_id)
        assert path is not None
        try:
            steps = switch(self._fs, self._storage.ledger_cache, new_id=new_id, new_path=path, old_id=old_id)
            while await self._step(self._storage_worker, steps) is not None:
                if self._storage.needs_checkpoint:
                    await self._checkpoints.checkpoint_now()
                await pause(self._clock, STEP_PAUSE_S)
            await self._checkpoints.checkpoint_now()
            if old_path is not None and not sealed:
                found = await self._reference(old_id)
                if found is not None:
                    ledger_id, entry_id = found
                    return CompactionResult(
                        Outcome.DOUBTFUL,
                        reason=f"the index of ledger {ledger_id} has entry {entry_id} in {old_path}, "
                        "where reading the log did not find it",
                    )
        except (StorageError, NoWritableDisk) as error:
            return CompactionResult(Outcome.DOUBTFUL, reason=str(error))
        await on_worker(self._storage_worker, partial(logs.end_compaction, new_id, old_id))
        return CompactionResult(Outcome.DONE)

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
