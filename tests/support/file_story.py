"""Stories over journals on files: one disk in memory, simulated time, several journals in directories of their own."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.filesystem import OpenMode
from journalmgr.files.journal import FileJournal
from journalmgr.model import NamespaceInfo
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.file_journals import FileJournals
from tests.support.journal_contract import NAMESPACE
from tests.support.simulated_clock import SimulatedClock


class FileStory:
    """One disk, and processes that have journals on it."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.fs = FaultyFileSystem()
        self._rng = random.Random(3)
        self._journals: dict[str, FileJournals] = {}

    def open(self, path: str = "/edits", namespace: NamespaceInfo | None = NAMESPACE) -> FileJournal:
        """In a new process."""
        if path not in self._journals:
            self._journals[path] = FileJournals(self.fs, self.clock, self._rng, path=path)
        return self._journals[path].open(namespace)

    async def formatted(self, path: str = "/edits", namespace: NamespaceInfo = NAMESPACE) -> FileJournal:
        """One that may be written to."""
        journal = self.open(path, namespace)
        await journal.format(namespace)
        return journal

    def crash(self, path: str, journal: FileJournal) -> None:
        """kill -9 of its process."""
        self._journals[path].crash(journal)

    def damage(self, path: str, offset: int) -> None:
        """Flip a bit."""
        self.fs.poke(path, offset, bytes([self.fs.contents(path)[offset] ^ 1]))

    def cut(self, path: str, size: int) -> None:
        """Shorten a file."""
        file = self.fs.open(path, OpenMode.UPDATE)
        file.truncate(size)
        file.sync()
        file.close()

    def run(self, story: Coroutine[Any, Any, Any]) -> Any:
        """Until it ends; what it returns."""
        outcome: list[Any] = []
        Deferred.fromCoroutine(story).addBoth(outcome.append)
        assert self.clock.run_until(lambda: bool(outcome), seconds=3600.0), "nothing more happens"
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]
