"""What every part of one bookie process is given: settings, reactor, files, counters, mode, and threads of its own.

Built once, by the server, before anything is bound or written. Nothing here decides or waits.
Thread: reactor; the workers that `Threads` hands out run each on a thread of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bookkeeper.bookie.process.mode import ModeSwitch
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.config import ServerSettings
from bookkeeper.filesystem import FileSystem
from bookkeeper.metrics import LONGEST_TURN, Metrics
from bookkeeper.ports import Worker
from bookkeeper.runtime import ThreadWorker, watch_turns


class Threads:
    """The named worker threads of one process, which stop together."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._workers: list[Worker] = []

    def start(self, name: str) -> Worker:
        """One more."""
        worker = ThreadWorker(self._reactor, name)
        self._workers.append(worker)
        return worker

    async def stop(self) -> None:
        """End all, in the order in which they were started; each finishes what it was given."""
        for worker in self._workers:
            await worker.stop()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Of one bookie process. journal_dirs: as configured, without `current`."""

    settings: ServerSettings
    reactor: Any
    fs: FileSystem
    metrics: Metrics
    mode: ModeSwitch
    threads: Threads
    directories: LedgerDirectories
    journal_dirs: tuple[str, ...]


def surroundings_of(settings: ServerSettings, reactor: Any, fs: FileSystem) -> Surroundings:
    """Those that a configuration gives. Starts no thread and touches no file."""
    metrics = Metrics()
    metrics.gauge(LONGEST_TURN, watch_turns(reactor))
    return Surroundings(
        settings,
        reactor,
        fs,
        metrics,
        ModeSwitch(),
        Threads(reactor),
        LedgerDirectories(
            [str(path) for path in settings.ledger_directories], [str(path) for path in settings.index_directories]
        ),
        tuple(str(path) for path in settings.journal_directories),
    )
