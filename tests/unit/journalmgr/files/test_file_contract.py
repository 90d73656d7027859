"""The journal contract over files, on a disk in memory, with workers whose work takes its time."""

import random
from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from journalmgr.contract import JournalManager
from journalmgr.files.journal import FileJournalSettings
from journalmgr.model import NamespaceInfo
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.file_journals import FileJournals
from tests.support.journal_contract import NAMESPACE, Fact, facts
from tests.support.simulated_clock import SimulatedClock

TIME_LIMIT_S = 3600.0


class FileWorld:
    """See JournalWorld."""

    fences = False

    def __init__(self, rng: random.Random, settings: FileJournalSettings) -> None:
        self.clock = SimulatedClock()
        self._journals = FileJournals(FaultyFileSystem(), self.clock, rng, settings)

    async def open(self, namespace: NamespaceInfo = NAMESPACE) -> JournalManager:
        return self._journals.open(namespace)

    def crash(self, journal: JournalManager) -> None:
        self._journals.crash(journal)


def run(fact: Fact, world: FileWorld) -> None:
    """Run the fact and the world's clock until it is over."""
    outcome: list[object] = []
    Deferred.fromCoroutine(fact(world)).addBoth(outcome.append)  # type: ignore[arg-type]
    assert world.clock.run_until(lambda: bool(outcome), seconds=TIME_LIMIT_S), "nothing more happens"
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()


def padded() -> FileJournalSettings:
    return FileJournalSettings(preallocation_size=4096)


def unpadded() -> FileJournalSettings:
    return FileJournalSettings(preallocation_size=0)


@pytest.mark.parametrize("settings", [padded, unpadded], ids=lambda made: made.__name__)
@pytest.mark.parametrize("fact", facts().values(), ids=facts().keys())
def test_file_journal(fact: Fact, settings: Callable[[], FileJournalSettings], rng: random.Random) -> None:
    run(fact, FileWorld(rng, settings()))
