"""A power cut at every file operation of a journal's life: nothing acknowledged is lost, nothing is there twice.

Method: a life of two turns (format, recover, write, roll, purge; a writer that dies; recover, write) runs on a disk
that loses power at its n-th changing operation, for every n. What was unsynced is then lost, or (three seeds each) any
subset of its sectors and names survives. The machine starts again: the journal is recovered, also with a second power
cut within that recovery, and must hold exactly the txids 1..m without what was purged, m at least what was
acknowledged; and it can be written on.
"""

import itertools
import random
from dataclasses import dataclass, replace

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from journalmgr.contract import JournalManager
from journalmgr.errors import NotFormatted
from journalmgr.files.journal import FileJournal, FileJournalSettings
from journalmgr.model import OPAQUE, TxId
from tests.support.faulty_filesystem import FaultyFileSystem, PowerCut
from tests.support.file_journals import CURRENT, FileJournals
from tests.support.journal_contract import NAMESPACE, opaque, read_all
from tests.support.simulated_clock import SimulatedClock

SETTINGS = {
    "padded": FileJournalSettings(preallocation_size=1500),
    "unpadded": FileJournalSettings(preallocation_size=0),
}


@dataclass
class Life:
    """What the journal promised so far."""

    formatted: bool = False
    acknowledged: int = 0
    written: int = 0
    kept_from: int = 1


class Machine:
    """One disk, one boot."""

    def __init__(self, fs: FaultyFileSystem, settings: FileJournalSettings) -> None:
        self.clock = SimulatedClock()
        self.journals = FileJournals(fs, self.clock, random.Random(7), settings)

    def open(self) -> FileJournal:
        return self.journals.open(NAMESPACE)

    def run(self, coroutine):  # type: ignore[no-untyped-def]
        outcome: list[object] = []
        Deferred.fromCoroutine(coroutine).addBoth(outcome.append)
        assert self.clock.run_until(lambda: bool(outcome), seconds=3600.0), "nothing more happens"
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]


async def segment(journal: JournalManager, life: Life, groups: list[int]) -> int:
    """Write one segment, and note what was acknowledged; its first txid."""
    first = life.written + 1
    writer = await journal.start_segment(TxId(first), OPAQUE)
    for count in groups:
        writer.write(opaque(life.written + 1, life.written + count))
        life.written += count
        writer.set_ready_to_flush()
        life.acknowledged = await writer.flush()
    return first


async def live(machine: Machine, life: Life) -> None:
    journal = machine.open()
    await journal.format(NAMESPACE)
    life.formatted = True
    await journal.recover_unfinalized()
    for groups in ([3, 40, 1], [30], [2, 2]):
        first = await segment(journal, life, groups)
        await journal.finalize_segment(TxId(first), TxId(life.written))
    life.kept_from = 45  # what may be gone from now on
    await journal.purge_older_than(TxId(45))
    await segment(journal, life, [5, 60])
    machine.journals.crash(journal)
    successor = machine.open()
    await successor.recover_unfinalized()
    await segment(successor, life, [])
    machine.journals.crash(successor)
    third = machine.open()
    await third.recover_unfinalized()
    first = await segment(third, life, [7])
    await third.finalize_segment(TxId(first), TxId(life.written))
    await third.close()


async def recovered(machine: Machine, life: Life) -> None:
    journal = machine.open()
    if not life.formatted:
        try:
            await journal.recover_unfinalized()
        except NotFormatted:
            await journal.format(NAMESPACE)
    await journal.recover_unfinalized()
    segments = await journal.segments()
    first = segments[0].first_txid if segments else life.written + 1
    if segments:
        # Below what is kept anything may be missing; from there on nothing is.
        start = max(first, life.kept_from) if life.kept_from > 1 else 1
        found = await read_all(journal, start)
        assert found == list(range(start, start + len(found)))
        last = found[-1]
        assert segments[-1].last_txid == last
    else:
        last = 0
    assert life.acknowledged <= last <= life.written, "acknowledged edits are lost"
    life.written = life.acknowledged = last
    begun = await segment(journal, life, [4])
    await journal.finalize_segment(TxId(begun), TxId(life.written))
    assert (await read_all(journal, max(begun - 1, 1)))[-1] == life.written
    assert not [name for name in machine.journals.fs.listdir(CURRENT) if name.endswith((".synced", ".tmp", ".stale"))]
    await journal.close()


@pytest.mark.parametrize("survivors", [None, 1, 2, 3], ids=["nothing-survives", "some-1", "some-2", "some-3"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_a_power_cut_anywhere_loses_nothing_that_was_acknowledged(
    settings: FileJournalSettings, survivors: int | None
) -> None:
    cuts = 0
    for n in itertools.count(1):
        fs, life = FaultyFileSystem(), Life()
        fs.cut_power_at(n)
        machine = Machine(fs, settings)
        try:
            machine.run(live(machine, life))
        except PowerCut:
            cuts += 1
        else:
            break
        rng = None if survivors is None else random.Random(survivors * 1000 + n)
        fs.crash(rng)
        # A second power cut within recovery, at a place that moves with the first.
        fs.cut_power_at(n % 11 + 1)
        machine = Machine(fs, settings)
        try:
            machine.run(recovered(machine, replace(life)))
        except PowerCut:
            fs.crash(rng)
        fs.forget_faults()
        machine = Machine(fs, settings)
        again = replace(life)
        again.written += 4  # the interrupted recovery may have written on
        machine.run(recovered(machine, again))
    assert cuts > 60, "the life has more operations than that"
