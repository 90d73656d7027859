"""What a bookie keeps, from the replay to the last checkpoint: storage, journals, disks, and the Bookie over them.

    start:  replay, flush, mark -> journals -> first look at the disks -> Bookie -> checkpoints
    stop:   no more looks -> last checkpoint -> journals                 (behind the last answer)
    fail:   a write or sync failed: answer nothing more, end the process (I-48)

A bookie without room is read-only, or ends where readOnlyModeEnabled=false.
Thread: reactor. The storage's work runs on "storage" and "read", each journal's on its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.journal.writer import Journal
from bookkeeper.bookie.process import part_settings, startup
from bookkeeper.bookie.process.disk_gauges import show_disks
from bookkeeper.bookie.process.mode import ReadOnlyReason
from bookkeeper.bookie.process.process_context import Surroundings
from bookkeeper.bookie.process.status import BookieChronicle
from bookkeeper.bookie.process.worker_calls import on_worker
from bookkeeper.bookie.storage.checkpoint import Checkpointer
from bookkeeper.bookie.storage.disks import DiskMonitor, DiskVerdict, current, measure, refuse_rocksdb
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.config import ServerSettings
from bookkeeper.errors import NoWritableDisk
from bookkeeper.filesystem import DiskUsage
from bookkeeper.model import LogMark
from bookkeeper.ports import Worker
from bookkeeper.serving import descriptors

log = Logger()


class StorageSide:
    """That of one bookie process, on directories that are locked.

    read_worker: for what need not wait for writes. on_failed: the process must end without another write to what is
    stored. on_unwritable: the disks are full, and the configuration has no read-only mode.
    `bookie` is None until there is one to ask; `storage`, `storage_worker` and `checkpointer` are there once `start`
    has returned.
    """

    storage: LedgerStorage
    storage_worker: Worker
    checkpointer: Checkpointer

    def __init__(
        self,
        surroundings: Surroundings,
        chronicle: BookieChronicle,
        read_worker: Worker,
        *,
        on_failed: Callable[[BaseException], None],
        on_unwritable: Callable[[], None],
    ) -> None:
        self._surroundings, self._chronicle, self._read_worker = surroundings, chronicle, read_worker
        self._on_failed, self._on_unwritable = on_failed, on_unwritable
        self._journals: list[Journal] = []
        self._disks: DiskMonitor | None = None
        self.bookie: Bookie | None = None

    # --- start and stop

    async def start(self, *, journal_was_off: bool) -> Bookie:
        """The bookie, with all that was acknowledged in earlier runs. Raises what `startup.recover` does.

        journal_was_off: the configuration says that an Apache bookie ran here without a synced journal.
        """
        around = self._surroundings
        settings, fs = around.settings, around.fs
        self.storage_worker = around.threads.start("storage")
        log_fewer_open_files(settings)
        storage = self.storage = LedgerStorage(fs, around.directories, part_settings.storage_settings(settings))
        ledger_dirs = around.directories.ledger_dirs
        refuse_rocksdb(fs, (*ledger_dirs, *around.directories.index_dirs))
        startup.check_unsynced_leftovers(fs, ledger_dirs, journal_was_off=journal_was_off)
        ends = await on_worker(
            self.storage_worker, partial(startup.recover, fs, storage, around.journal_dirs, ledger_dirs)
        )
        await self._start_journals(ends)
        disk_settings = part_settings.disk_settings(settings)
        self._disks = DiskMonitor(
            fs,
            around.directories,
            disk_settings,
            around.reactor,
            self._read_worker,
            self._on_disks,
            self.fail,
            watched=around.journal_dirs,
        )
        show_disks(
            around.metrics, self._disks, around.directories, [str(path) for path in settings.journal_directories]
        )
        self.checkpointer = Checkpointer(
            storage,
            self._journals,
            partial(startup.persist_marks, fs, [current(directory) for directory in ledger_dirs]),
            self.storage_worker,
            around.reactor,
            part_settings.storage_settings(settings),
            on_failure=self.fail,
            on_disks_full=self._on_no_room,
            on_room=partial(around.mode.allow, ReadOnlyReason.NO_ROOM),
        )
        self._chronicle.watch_disks(self._disks, disk_settings, part_settings.directory_uses(settings))
        self._chronicle.watch_storage(self.checkpointer, list(zip(around.journal_dirs, self._journals, strict=True)))
        if settings.force_read_only:
            around.mode.forbid(ReadOnlyReason.CONFIGURED)
        self._disks.start()
        await on_worker(self._read_worker, lambda: None)  # the first look is done: we know whether we are read-only
        self.bookie = Bookie(
            storage,
            self._journals,
            self._read_worker,
            around.mode,
            around.reactor,
            exit=self._on_failed,
            bounds=part_settings.bookie_bounds(settings),
            after_add=self.checkpointer.after_add,
            metrics=around.metrics,
        )
        self.checkpointer.start()
        return self.bookie

    async def _start_journals(self, ends: Sequence[LogMark]) -> None:
        around = self._surroundings
        journal_settings = part_settings.journal_settings(around.settings)
        for index, (directory, end) in enumerate(zip(around.journal_dirs, ends, strict=True)):
            journal = Journal(
                around.fs,
                current(directory),
                around.threads.start(f"journal-{index}"),
                around.reactor,
                journal_settings,
                index=index,
                metrics=around.metrics,
            )
            journal.on_failed = self.fail
            self._journals.append(journal)
            await journal.start(end)

    async def answer_the_last(self) -> None:
        """Take no more requests; return when all that were taken are answered."""
        assert self.bookie is not None
        idle: Deferred[None] = Deferred()
        self.bookie.on_idle = partial(idle.callback, None)
        self.bookie.stop()
        await idle

    async def stop(self) -> None:
        """Behind `answer_the_last`: checkpoint and end the journals. `close` is for when no thread runs any more."""
        assert self._disks is not None
        self._disks.stop()
        try:
            await self.checkpointer.stop()
        except NoWritableDisk as error:
            log.warn("No checkpoint at the end, the next start replays the journal: {error}", error=error)
        for journal in self._journals:
            await journal.stop()

    def close(self) -> None:
        """Close all files."""
        self.storage.close()

    # --- while it runs

    def fail(self, error: BaseException) -> None:
        """Storage or journal cannot be relied upon any more: answer nothing, and have the process end."""
        if self.bookie is not None:
            self.bookie.fail(error)
        else:
            self._on_failed(error)

    @property
    def failed(self) -> bool:
        """True once the bookie has; the process is about to end by itself."""
        return self.bookie is not None and self.bookie.failure is not None

    def usage(self) -> DiskUsage:
        """Sum over the disks of the ledger directories, each file system once."""
        usages = measure(self._surroundings.fs, self._surroundings.directories.ledger_dirs)
        devices = {os.stat(directory).st_dev: usage for directory, usage in usages.items()}
        return DiskUsage(
            total=sum(usage.total for usage in devices.values()), free=sum(usage.free for usage in devices.values())
        )

    def _on_no_room(self) -> None:
        """A flush found no space although the disks did not look full, or not yet."""
        assert self._disks is not None
        self._chronicle.on_error("flush", "no space in any ledger directory; it is tried again every second")
        if self._surroundings.settings.read_only_mode_enabled:
            self._surroundings.mode.forbid(ReadOnlyReason.NO_ROOM)
        self._disks.check_now()

    def _on_disks(self, verdict: DiskVerdict) -> None:
        around = self._surroundings
        settings, mode = around.settings, around.mode
        mode.priority_writes_allowed = verdict.priority_writes
        self._chronicle.changed()
        if not verdict.read_only:
            mode.allow(ReadOnlyReason.DISK_FULL)
        elif settings.read_only_mode_enabled:
            mode.forbid(ReadOnlyReason.DISK_FULL)
        else:
            log.critical("The disks are full and readOnlyModeEnabled=false: stopping")
            self._on_unwritable()


def log_fewer_open_files(settings: ServerSettings) -> None:
    """Log the number of index files to keep open if it is below openFileLimit; warn unless that is the default."""
    wanted, files = settings.open_index_files_max, part_settings.open_files_max(settings)
    if files < wanted:
        is_default = wanted == ServerSettings().open_index_files_max
        (log.info if is_default else log.warn)(
            "At most {files} index files are kept open, because ulimit -n is {limit}; openFileLimit={wanted} needs "
            "{needed}" + ("" if is_default else ": raise ulimit -n, or lower openFileLimit"),
            files=files,
            limit=descriptors.raise_descriptor_limit(),
            wanted=wanted,
            needed=descriptors.descriptors_for(wanted),
        )
