"""Keeping the status file: since when what holds, and a write after each change, at most once a second.

    changed() ---- a second since the last write ---> snapshot -> worker: <file>.tmp written, renamed; nothing synced

So `bookkeeper why` can show the bookie's last status while HTTP is off, and after the bookie died. The file is for
people: a write that fails is logged once, is tried again with the next change and by a timer, and never fails the
bookie. A failure that ends the process is noted too, if the worker's thread still runs: no entry, fence or mark depends
on it.
Thread: reactor.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.bookie.process.mode import ModeSwitch, ReadOnlyReason
from bookkeeper.bookie.process.status_format import (
    LISTED_MAX,
    STATUS_FILE,
    STATUS_SIZE_MAX,
    BookieStatus,
    CheckpointStatus,
    CollectionStatus,
    DirectoryStatus,
    DiskStatus,
    ErrorStatus,
    JournalStatus,
    ModeStatus,
    PreviousRun,
    Reason,
    RegistrationStatus,
    ScrubStatus,
    format_status,
    parse_status,
    shortened,
)
from bookkeeper.bookie.storage.disks import DiskSettings, DiskVerdict
from bookkeeper.errors import StorageError
from bookkeeper.filesystem import DiskUsage, FileSystem, OpenMode, read_whole
from bookkeeper.ports import Clock, Timer, Worker

log = Logger()

WRITE_INTERVAL_S = 1.0
RETRY_INTERVAL_S = 10.0
"""Delay before a failed write is repeated, unless a change comes first: the file is outdated until then."""


class MeasuredDisks(Protocol):
    """What is asked of the disk monitor."""

    verdict: DiskVerdict
    usages: dict[str, DiskUsage]
    checked_s: float | None


class Checkpoints(Protocol):
    """What is asked of the checkpointer. Seconds of the reactor's clock; None before the first one."""

    last_end_s: float
    last_duration_s: float | None
    short_of_room: bool


class Backlog(Protocol):
    """What is asked of a journal."""

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for their sync."""


class BookieChronicle:
    """What is remembered of one bookie process, and the file that says it.

    now_ms: wall clock. worker: writes. process: what tells this process from others, None to ask the system.
    collection, scrub: asked at each write, once they are there.
    """

    def __init__(
        self,
        fs: FileSystem,
        journal_dir: str,
        worker: Worker,
        clock: Clock,
        now_ms: Callable[[], int],
        *,
        bookie_id: str,
        metadata_service_uri: str,
        instance_id: str,
        mode: ModeSwitch,
        process: str | None = None,
    ) -> None:
        self._fs, self._worker, self._clock, self._now_ms = fs, worker, clock, now_ms
        self._path = os.path.join(journal_dir, "current", STATUS_FILE)
        self._bookie_id, self._uri, self._instance_id = bookie_id, metadata_service_uri, instance_id
        self._mode = mode
        now = now_ms()
        self._started_ms = self._phase_since_ms = now
        self._phase = "starting"
        self._reasons: dict[ReadOnlyReason, int] = {}
        self._registration = RegistrationStatus("none", mode.mode.value, now)
        self._directories: dict[str, tuple[tuple[bool, bool], int]] = {}
        self._last_error: ErrorStatus | None = None
        self._errors_count = 0
        self._previous = _previous_run(fs, self._path)
        self._disks: tuple[MeasuredDisks, DiskSettings, dict[str, tuple[str, ...]]] | None = None
        self._checkpoints: Checkpoints | None = None
        self._journals: list[tuple[str, Backlog]] = []
        self.collection: Callable[[], CollectionStatus] | None = None
        self.scrub: Callable[[], ScrubStatus] | None = None
        self._process = process or process_identity(os.getpid()) or f"{os.getpid()}"
        self._timer: Timer | None = None
        self._retry: Timer | None = None
        self._written_s = clock.seconds() - WRITE_INTERVAL_S
        self._writing = False
        self._again = False
        self._waiting: list[Deferred[None]] = []
        self._complained = False

    # --- where it looks

    def watch_disks(self, disks: MeasuredDisks, settings: DiskSettings, uses: dict[str, tuple[str, ...]]) -> None:
        """uses: of each directory, as the keys that name it."""
        self._disks = (disks, settings, uses)

    def watch_storage(self, checkpoints: Checkpoints, journals: Sequence[tuple[str, Backlog]]) -> None:
        """journals: with their directories."""
        self._checkpoints, self._journals = checkpoints, list(journals)

    # --- what happens

    def on_phase(self, phase: str) -> None:
        """It starts to serve, to stop, it stopped or failed. Written at once: there are few of them."""
        self._phase, self._phase_since_ms = phase, self._now_ms()
        self.write_last()

    def on_reasons(self) -> None:
        """A reason against writing came or went."""
        now = self._now_ms()
        self._reasons = {reason: self._reasons.get(reason, now) for reason in self._mode.reasons}
        self.changed()

    def on_registration(self, state: str, error: object = "") -> None:
        """Registered in the present mode, or what is in the way of it."""
        self._registration = RegistrationStatus(state, self._mode.mode.value, self._now_ms(), shortened(str(error)))
        self.changed()

    def on_error(self, subject: str, error: object, *, fatal: bool = False) -> None:
        """Something went wrong."""
        self._last_error = ErrorStatus(self._now_ms(), subject, shortened(str(error)), fatal)
        self._errors_count += 1
        self.changed()

    def changed(self) -> None:
        """Write soon."""
        if self._timer is not None and self._timer.active():
            return
        wait_s = self._written_s + WRITE_INTERVAL_S - self._clock.seconds()
        if wait_s > 0:
            self._timer = self._clock.callLater(wait_s, self._write)
        else:
            self._write()

    def write_last(self) -> Deferred[None]:
        """Write what is known now, whenever the last write was. Fires when it is in the file, or cannot be."""
        done: Deferred[None] = Deferred()
        self._waiting.append(done)
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._write()
        return done

    # --- the file

    def _write(self) -> None:
        if self._writing:
            self._again = True
            return
        self._written_s = self._clock.seconds()
        self._writing = True
        if self._retry is not None:
            if self._retry.active():
                self._retry.cancel()
            self._retry = None
        data = format_status(self.snapshot())
        try:
            self._worker.submit(lambda: write_status(self._fs, self._path, data), self._written, self._not_written)
        except RuntimeError:  # it was stopped, and so is the bookie
            self._ended()

    def _written(self, _: None) -> None:
        self._complained = False
        self._ended()

    def _not_written(self, error: BaseException) -> None:
        if not self._complained:
            log.warn(
                "Cannot write {path}: {error}. It is tried again every {seconds:g} s",
                path=self._path,
                error=error,
                seconds=RETRY_INTERVAL_S,
            )
            self._complained = True
        self._ended()
        if self._phase not in ("stopped", "failed") and self._retry is None:
            self._retry = self._clock.callLater(RETRY_INTERVAL_S, self._write)

    def _ended(self) -> None:
        self._writing = False
        again, self._again = self._again, False
        if again and self._waiting:
            self._write()
            return
        if again:
            self.changed()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)

    def snapshot(self) -> BookieStatus:
        """What the next write says."""
        now = self._now_ms()
        return BookieStatus(
            written_ms=now,
            bookie_id=self._bookie_id,
            process=self._process,
            started_ms=self._started_ms,
            phase=self._phase,
            phase_since_ms=self._phase_since_ms,
            metadata_service_uri=self._uri,
            instance_id=self._instance_id,
            mode=ModeStatus(
                self._mode.read_only,
                self._mode.priority_writes_allowed,
                tuple(
                    Reason(reason.name, reason.value, since)
                    for reason, since in sorted(self._reasons.items(), key=lambda item: item[0].name)
                ),
            ),
            registration=self._registration,
            disks=self._disk_status(now),
            checkpoint=self._checkpoint_status(now),
            journals=tuple(JournalStatus(path, each.pending_bytes) for path, each in self._journals[:LISTED_MAX]),
            collection=None if self.collection is None else self.collection(),
            scrub=None if self.scrub is None else self.scrub(),
            last_error=self._last_error,
            errors_count=self._errors_count,
            previous=self._previous,
        )

    def _disk_status(self, now: int) -> DiskStatus | None:
        if self._disks is None:
            return None
        disks, settings, uses = self._disks
        if disks.checked_s is None:
            return None
        verdict = disks.verdict
        self._directories = {
            path: self._since(path, (path in verdict.full, path in verdict.warn), now) for path in disks.usages
        }
        return DiskStatus(
            self._wall_ms(disks.checked_s, now),
            settings.usage_threshold,
            settings.warn_threshold,
            settings.low_water_mark,
            settings.read_only_on_any_full,
            len(disks.usages),
            tuple(_directories(disks, uses, self._directories)),
        )

    def _since(self, path: str, state: tuple[bool, bool], now: int) -> tuple[tuple[bool, bool], int]:
        known = self._directories.get(path)
        return known if known is not None and known[0] == state else (state, now)

    def _checkpoint_status(self, now: int) -> CheckpointStatus | None:
        checkpoints = self._checkpoints
        if checkpoints is None:
            return None
        ended = None if checkpoints.last_duration_s is None else self._wall_ms(checkpoints.last_end_s, now)
        return CheckpointStatus(ended, checkpoints.last_duration_s, checkpoints.short_of_room)

    def _wall_ms(self, at_s: float, now: int) -> int:
        return now - round((self._clock.seconds() - at_s) * 1000)


def _directories(
    disks: MeasuredDisks, uses: dict[str, tuple[str, ...]], known: dict[str, tuple[tuple[bool, bool], int]]
) -> Iterable[DirectoryStatus]:
    # The full ones first: the list is bounded.
    for path in sorted(disks.usages, key=lambda each: (not known[each][0][0], each))[:LISTED_MAX]:
        (full, warn), since = known[path]
        usage = disks.usages[path]
        yield DirectoryStatus(path, uses.get(path, ()), usage.total, usage.free, full, warn, since)


def read_status(fs: FileSystem, path: str) -> BookieStatus:
    """What the file says. Raises CorruptRecord, UnknownFormatVersion, OSError (FileNotFoundError: never written)."""
    return parse_status(read_whole(fs, path, size_max=STATUS_SIZE_MAX), path)


def _previous_run(fs: FileSystem, path: str) -> PreviousRun | None:
    try:
        status = read_status(fs, path)
    except FileNotFoundError:
        return None
    except (OSError, StorageError) as error:
        log.warn("Passing over the status of the last run: {error}", error=error)
        return None
    return PreviousRun(status.written_ms, status.phase, status.last_error)


def write_status(fs: FileSystem, path: str, data: bytes) -> None:
    """Replace the file at once, without a sync. Thread: a worker. Raises OSError."""
    if len(data) > STATUS_SIZE_MAX:
        raise OSError(f"{len(data)} bytes of status, {STATUS_SIZE_MAX} at most")
    temporary = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):
        fs.unlink(temporary)
    file = fs.open(temporary, OpenMode.CREATE_EXCLUSIVE)
    try:
        file.pwrite(data, 0)
    finally:
        file.close()
    fs.rename(temporary, path)


def process_identity(pid: int) -> str | None:
    """pid and start time of a running process, in ticks since the system's start; None where there is none such.

    A pid alone may belong to another process by now. Linux only; elsewhere None.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before may hold anything
    return f"{pid}:{fields[19]}"
