"""What a bookie's process does besides requests, checkpoints and collection, as far as a story is about it.

    disks     full, warned, read-only (I-68); what the server does with the verdict, and with a flush without room
    status    the status file, written after each change
    scrub     catch-up at the start, rounds when a story orders one (I-67)

Put together as `bookkeeper.bookie.server` does. Everything is off unless a story's layout says so: stories stay short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from twisted.internet.defer import Deferred, succeed

from bookkeeper.bookie.integrity.scrub.driver import Scrubber, ScrubSettings
from bookkeeper.bookie.process.mode import ModeSwitch, ReadOnlyReason
from bookkeeper.bookie.process.status import BookieChronicle
from bookkeeper.bookie.storage.disks import DiskMonitor, DiskSettings, DiskVerdict, LedgerDirectories, measure
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.filesystem import FileSystem
from bookkeeper.metadata.memory.store import INSTANCE_ID
from bookkeeper.ports import Clock, Worker


@dataclass(frozen=True)
class UpkeepSettings:
    """disks: None where nobody looks at them."""

    disks: DiskSettings | None = None
    keeps_status: bool = False
    scrubs: bool = False


NO_UPKEEP = UpkeepSettings()


class Upkeep:
    """Of one process. worker: makes one. fail: ends the bookie."""

    def __init__(
        self,
        settings: UpkeepSettings,
        fs: FileSystem,
        clock: Clock,
        mode: ModeSwitch,
        worker: Callable[[str], Worker],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._fs = fs
        self._clock = clock
        self._mode = mode
        self._worker = worker
        self._fail = fail
        self._now_ms: Callable[[], int] = lambda: 0
        self.monitor: DiskMonitor | None = None
        self.chronicle: BookieChronicle | None = None
        self.scrubber: Scrubber | None = None

    # --- status -------------------------------------------------------------------------------------------------------

    def keep_status(self, journal_dir: str, worker: Worker, now_ms: Callable[[], int]) -> None:
        """From now on, until `note_end`."""
        self._now_ms = now_ms
        if not self._settings.keeps_status:
            return
        self.chronicle = BookieChronicle(
            self._fs,
            journal_dir,
            worker,
            self._clock,
            now_ms,
            bookie_id="bookie:3181",
            metadata_service_uri="memory",
            instance_id=INSTANCE_ID,
            mode=self._mode,
            process="4711:1",
        )
        self._mode.on_reasons = self.chronicle.on_reasons
        self.chronicle.changed()

    def note_end(self, phase: str, error: object = "") -> Deferred[None]:
        """The bookie stopped, or failed. Fires when the file says so, or cannot."""
        if self.chronicle is None:
            return succeed(None)
        if error:
            self.chronicle.on_error("storage", error, fatal=True)
        self.chronicle.on_phase(phase)
        return self.chronicle.write_last()

    # --- disks --------------------------------------------------------------------------------------------------------

    def watch_disks(self, directories: LedgerDirectories, worker: Worker) -> None:
        """Look at them now and from then on."""
        disks = self._settings.disks
        if disks is None:
            return
        on_disks = partial(self._on_disks, directories)
        self.monitor = DiskMonitor(self._fs, directories, disks, self._clock, worker, on_disks, self._fail)
        if self.chronicle is not None:
            self.chronicle.watch_disks(self.monitor, disks, {})
        self.monitor.start()

    def _on_disks(self, directories: LedgerDirectories, verdict: DiskVerdict) -> None:
        free = max(usage.free for usage in measure(self._fs, directories.ledger_dirs).values())
        self._mode.priority_writes_allowed = free > 0
        if self.chronicle is not None:
            self.chronicle.changed()
        if verdict.read_only:
            self._mode.forbid(ReadOnlyReason.DISK_FULL)
        else:
            self._mode.allow(ReadOnlyReason.DISK_FULL)

    def on_no_room(self) -> None:
        """A flush found none."""
        self._mode.forbid(ReadOnlyReason.NO_ROOM)
        if self.monitor is not None:
            self.monitor.check_now()

    def on_room(self) -> None:
        """The next one did."""
        self._mode.allow(ReadOnlyReason.NO_ROOM)

    def stop_watching(self) -> None:
        """Look no more."""
        if self.monitor is not None:
            self.monitor.stop()

    # --- scrub --------------------------------------------------------------------------------------------------------

    def scrub(self, storage: LedgerStorage) -> None:
        """Begin with the catch-up."""
        if not self._settings.scrubs:
            return
        scrub, settings = storage.scrub(), ScrubSettings(interval_s=0, bytes_per_s=0)
        worker = self._worker("scrub")
        self.scrubber = Scrubber(scrub, storage.damage, self._clock, worker, settings, self._now_ms)
        self.scrubber.start()

    def stop_scrub(self) -> Deferred[None]:
        """Fires when the step under way has ended."""
        return succeed(None) if self.scrubber is None else self.scrubber.stop()
