"""Which directories take new files, and when the bookie turns read-only (I-68).

`decide` is pure; `DiskMonitor` asks the disks on a worker every so often and applies the verdict on the reactor.

    usage > threshold, or less free than the reserve     ->  full: no new entry log, no new index file there
    all ledger directories full (or any, as configured)  ->  read-only; fences, marks and the journal keep the reserve
    usage <= threshold - RELEASE_GAP, and a quarter more free than the reserve  ->  no longer full
    read-only with less free than minUsableSizeForHighPriorityWrites  ->  recovery and high-priority adds refused, too
    all were full: writable again when, besides, the usage over all directories is below the low-water mark

Differs from Apache: the reserve. Journal, marks and fences must find room when new entries no longer do, often on the
same disk, and no share of a disk says how much that is: of a disk of 1 GB the 5 % above the threshold are 50 MB.

Differs from Apache: there a directory is full or not by the threshold alone (and the low-water mark is the threshold
unless set), so a bookie that compacts near it turns read-only and back every few seconds; each turn makes every writer
change its ensembles. The gap is the least distance; diskUsageLwmThreshold widens it.

A disk that fails, one of several as well as the only one: a failed write or sync, or a disk that cannot be asked for
its space, ends the bookie (I-48), and a directory that is not there any more keeps it from starting (I-71): nobody
knows which acknowledged entries, fences and index pages it had, so no answer about any ledger would be certain. What
cannot be read meanwhile is answered as unknown, never as absent (I-31); the other directories' entries are still
served. The remedy is not a bookie without that disk but a new one: its ledgers are copied from the other bookies
(auto-recovery, `recover`, `decommissionbookie`), then it starts empty.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from twisted.logger import Logger

from bookkeeper.errors import UnknownFormatVersion
from bookkeeper.filesystem import DiskUsage, FileSystem
from bookkeeper.ports import Clock, Timer, Worker

log = Logger()


RELEASE_GAP = 0.01
"""Part of a disk by which its usage must fall below the threshold before it takes files again."""

RESERVE_BYTES = 64 * 1024 * 1024
"""Free bytes that entry logs and index files leave to the journal, marks and fences."""


class LedgerDirectories:
    """The directories of entry logs and of index files, and which of them are full.

    Base directories as configured; files live in `<directory>/current`. Thread: any (one tuple is swapped at a time).
    """

    def __init__(self, ledger_dirs: Sequence[str], index_dirs: Sequence[str] = ()) -> None:
        if not ledger_dirs:
            raise ValueError("a bookie needs at least one ledger directory")
        self.ledger_dirs = tuple(ledger_dirs)
        self.index_dirs = tuple(index_dirs) or self.ledger_dirs
        self._full: frozenset[str] = frozenset()
        self._roomy: frozenset[str] = frozenset()

    @property
    def all_dirs(self) -> tuple[str, ...]:
        """Ledger and index directories, each once."""
        return tuple(dict.fromkeys((*self.ledger_dirs, *self.index_dirs)))

    @property
    def full(self) -> frozenset[str]:
        """Directories that take no new files."""
        return self._full

    def set_full(self, directories: Iterable[str], roomy: Iterable[str] = ()) -> None:
        """Replace the set of full directories; `roomy` are those of them that could hold one more entry log."""
        self._full = frozenset(directories)
        self._roomy = frozenset(roomy)

    def mark_full(self, directory: str) -> None:
        """A write there found no space; the next verdict may lift it."""
        self._full |= {directory}
        self._roomy -= {directory}

    def writable_ledger_dirs(self) -> list[str]:
        """Ledger directories that are not full, in configured order; if all are, those that could hold one more log.

        What the journal has taken, and what recovery still adds, must get into entry logs on a read-only bookie too.
        """
        return [directory for directory in self.ledger_dirs if directory not in self._full] or [
            directory for directory in self.ledger_dirs if directory in self._roomy
        ]

    def writable_index_dirs(self) -> list[str]:
        """Index directories that are not full; all of them when every one is, since fences must be storable (I-22)."""
        return [directory for directory in self.index_dirs if directory not in self._full] or list(self.index_dirs)


def current(directory: str) -> str:
    """Where the files of a configured directory are."""
    return os.path.join(directory, "current")


def refuse_rocksdb(fs: FileSystem, directories: Iterable[str]) -> None:
    """Refuse ledger and index directories of Apache's DbLedgerStorage, which keeps its index in RocksDB.

    Only Apache's bookie reads that index: without it every stored entry would seem absent (I-31, I-71).
    Raises UnknownFormatVersion, OSError.
    """
    for directory in directories:
        for name in ("locations", "ledgers"):
            path = os.path.join(current(directory), name)
            if fs.is_dir(path):
                raise UnknownFormatVersion(
                    f"{path} is a RocksDB index of Apache's DbLedgerStorage, which only Apache's bookie reads; convert "
                    "the directories with convert-to-interleaved-storage of Apache's shell, or run Apache's bookie"
                )


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """Thresholds as used part of a disk, 0..1.

    low_water_mark: over all ledger directories together, below which a bookie whose disks were all full writes again.
    entry_log_free_bytes_min: free space with which a full directory still takes an entry log when all are full.
    priority_free_bytes_min: free space with which a read-only bookie still takes recovery and high-priority adds.
    reserve_bytes: free space below which a directory is full whatever its size; kept for journal, marks and fences.
    """

    usage_threshold: float = 0.95
    warn_threshold: float = 0.90
    low_water_mark: float = 0.95
    read_only_on_any_full: bool = True
    entry_log_free_bytes_min: int = 1200 * 1024 * 1024
    priority_free_bytes_min: int = 1200 * 1024 * 1024
    reserve_bytes: int = RESERVE_BYTES
    check_interval_s: float = 10.0

    @property
    def release_free_bytes(self) -> int:
        """Free space from which on a directory that the reserve made full is not full any more."""
        return self.reserve_bytes * 5 // 4


@dataclass(frozen=True, slots=True)
class DiskVerdict:
    """What the last look said of the directories.

    full: takes no new files. roomy: full, yet with room for an entry log. warn: nearly full; compaction should pause.
    priority_writes: recovery and high-priority adds pass: always while the disks do not forbid writing, else while one
    ledger directory has enough room for them. was_all_full: the hysteresis of `decide`.
    """

    full: frozenset[str] = frozenset()
    roomy: frozenset[str] = frozenset()
    warn: frozenset[str] = frozenset()
    read_only: bool = False
    priority_writes: bool = True
    was_all_full: bool = False


def decide(
    previous: DiskVerdict, usages: Mapping[str, DiskUsage], ledger_dirs: Sequence[str], settings: DiskSettings
) -> DiskVerdict:
    """What the usages mean, given what was decided before.

    usages: of every ledger and index directory. An index directory that is full stops new index files only.
    """
    full = frozenset(
        directory
        for directory, usage in usages.items()
        if _is_full(usage, settings, was_full=directory in previous.full)
    )
    roomy = frozenset(path for path in full if usages[path].free >= settings.entry_log_free_bytes_min)
    warn = frozenset(
        directory
        for directory, usage in usages.items()
        if _used(usage) > settings.warn_threshold - (RELEASE_GAP if directory in previous.warn else 0)
    )
    ledgers_full = [directory in full for directory in ledger_dirs]
    all_full = all(ledgers_full)
    if not all_full and previous.was_all_full:
        total = sum(usages[directory].total for directory in ledger_dirs)
        free = sum(usages[directory].free for directory in ledger_dirs)
        all_full = _used(DiskUsage(total=total, free=free)) >= settings.low_water_mark
    read_only = all_full or (settings.read_only_on_any_full and any(ledgers_full))
    roomiest = max((usages[directory].free for directory in ledger_dirs), default=0)
    priority_writes = not read_only or roomiest >= settings.priority_free_bytes_min
    return DiskVerdict(full, roomy, warn, read_only, priority_writes, all_full)


def _is_full(usage: DiskUsage, settings: DiskSettings, *, was_full: bool) -> bool:
    if was_full:
        return _used(usage) > settings.usage_threshold - RELEASE_GAP or usage.free < settings.release_free_bytes
    return _used(usage) > settings.usage_threshold or usage.free < settings.reserve_bytes


def free_to_release(usage: DiskUsage, settings: DiskSettings) -> tuple[int, bool]:
    """Free bytes with which a full directory takes files again, and whether that is for the reserve: then the threshold
    has nothing to do with it.
    """
    by_threshold = round(usage.total * (1 - settings.usage_threshold + RELEASE_GAP)) + 1
    return max(by_threshold, settings.release_free_bytes), settings.release_free_bytes >= by_threshold


def why_full(usage: DiskUsage, settings: DiskSettings) -> str:
    """In words, of a directory that is full."""
    if _used(usage) > settings.usage_threshold:
        return f"{_used(usage):.1%} of its disk are used, more than diskUsageThreshold {settings.usage_threshold:g}"
    if usage.free < settings.reserve_bytes:
        return f"{usage.free} bytes are free on its disk, fewer than the {settings.reserve_bytes} that are always kept"
    needed, _ = free_to_release(usage, settings)
    return f"it was full, and {usage.free} bytes are free on its disk: it takes files again with {needed}"


def _used(usage: DiskUsage) -> float:
    return 1.0 - usage.free / usage.total if usage.total > 0 else 1.0


class DiskMonitor:
    """Asks the disks every `check_interval_s` and on demand. Thread: reactor; the asking runs on `worker`.

    on_change: called with a verdict that differs from the last one, after `directories` was updated.
    on_failure: a disk that cannot even be asked (I-48); the monitor stops. watched: other directories, which are looked
    at for people only.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: LedgerDirectories,
        settings: DiskSettings,
        clock: Clock,
        worker: Worker,
        on_change: Callable[[DiskVerdict], None],
        on_failure: Callable[[BaseException], None],
        *,
        watched: Sequence[str] = (),
    ) -> None:
        self._fs = fs
        self._watched = tuple(watched)
        self._directories = directories
        self._settings = settings
        self._clock = clock
        self._worker = worker
        self._on_change = on_change
        self._on_failure = on_failure
        self._timer: Timer | None = None
        self._asking = False
        self._stopped = False
        self.verdict = DiskVerdict()
        self.usages: dict[str, DiskUsage] = {}  # of the last look
        self.watched_usages: dict[str, DiskUsage] = {}  # likewise
        self.checked_s: float | None = None  # when that was, on the clock

    def start(self) -> None:
        """Ask now and from then on."""
        self.check_now()

    def stop(self) -> None:
        """Ask no more; a verdict under way is dropped."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def check_now(self) -> None:
        """Ask unless an answer is awaited already (a write just found no space)."""
        if self._asking or self._stopped:
            return
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._asking = True
        self._worker.submit(self._ask, self._measured, self._failed)

    def _ask(self) -> tuple[dict[str, DiskUsage], dict[str, DiskUsage]]:
        watched: dict[str, DiskUsage] = {}
        for directory in self._watched:
            with contextlib.suppress(OSError):
                watched[directory] = self._fs.usage(directory)
        return measure(self._fs, self._directories.all_dirs), watched

    def _measured(self, found: tuple[dict[str, DiskUsage], dict[str, DiskUsage]]) -> None:
        self._asking = False
        if self._stopped:
            return
        usages, self.watched_usages = found
        self.usages, self.checked_s = usages, self._clock.seconds()
        verdict = decide(self.verdict, usages, self._directories.ledger_dirs, self._settings)
        self._directories.set_full(verdict.full, verdict.roomy)
        self._timer = self._clock.callLater(self._settings.check_interval_s, self.check_now)
        if verdict != self.verdict:
            newly = verdict.warn - self.verdict.warn
            if newly:
                log.warn("Disks of {nearly} are nearly full: free space or add directories", nearly=sorted(newly))
            self._tell(verdict)
            self.verdict = verdict
            self._on_change(verdict)

    def _tell(self, verdict: DiskVerdict) -> None:
        """What changed, and why."""
        for directory in sorted(verdict.full - self.verdict.full):
            usage = self.usages[directory]
            needed, _ = free_to_release(usage, self._settings)
            log.warn(
                "{directory} takes no new files: {why}. It does again once {needed} bytes are free",
                directory=directory, why=why_full(usage, self._settings), needed=needed,
            )  # fmt: skip
        for directory in sorted(self.verdict.full - verdict.full):
            log.info("{directory} takes new files again", directory=directory)
        if verdict.read_only != self.verdict.read_only:
            word = "no new entries" if verdict.read_only else "new entries again"
            log.warn("The disks allow {word}; full directories: {full}", word=word, full=sorted(verdict.full))

    def _failed(self, error: BaseException) -> None:
        self._asking = False
        self._stopped = True
        self._on_failure(error)


def measure(fs: FileSystem, directories: Iterable[str]) -> dict[str, DiskUsage]:
    """Size and free space of the disk of each directory. Thread: a worker; may block. Raises OSError."""
    return {directory: fs.usage(directory) for directory in directories}
