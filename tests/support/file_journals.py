"""Journals on files for tests: each with a process and a worker of its own, over one disk in memory."""

from __future__ import annotations

import random
from typing import Any

from bookkeeper.filesystem import Lock
from journalmgr.contract import JournalManager
from journalmgr.files.journal import FileJournal, FileJournalSettings
from journalmgr.model import NamespaceInfo
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.simulated_clock import SimulatedClock, SimulatedProcess, SimulatedWorker

PATH = "/edits"
CURRENT = PATH + "/current"
SETTINGS = FileJournalSettings(preallocation_size=4096)


class ProcessFileSystem:
    """The disk as one process has it: its locks end with it."""

    def __init__(self, fs: FaultyFileSystem) -> None:
        self._fs = fs
        self._locks: list[Lock] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def lock(self, path: str) -> Lock:
        lock = self._fs.lock(path)
        self._locks.append(lock)
        return lock

    def died(self) -> None:
        """Let go of the locks, as the kernel does."""
        for lock in self._locks:
            lock.release()


class FileJournals:
    """Opens journals in PATH, and kills the processes that they are in."""

    def __init__(
        self,
        fs: FaultyFileSystem,
        clock: SimulatedClock,
        rng: random.Random,
        settings: FileJournalSettings = SETTINGS,
        path: str = PATH,
    ) -> None:
        self.fs = fs
        self._clock, self._rng, self._settings, self._path = clock, rng, settings, path
        self._processes: dict[int, SimulatedProcess] = {}
        self._count = 0

    def open(self, namespace: NamespaceInfo | None) -> FileJournal:
        """A journal in a new process."""
        self._count += 1
        process = SimulatedProcess(f"p{self._count}", self._clock)
        fs = ProcessFileSystem(self.fs)
        process.on_crash(fs.died)
        worker = SimulatedWorker("disk", process, self._rng)
        journal = FileJournal(
            fs, self._path, worker, process.clock, namespace, holder=f"{self._count}@here", settings=self._settings
        )
        self._processes[id(journal)] = process
        return journal

    def crash(self, journal: JournalManager) -> None:
        """kill -9 of its process."""
        self._processes[id(journal)].crash()
