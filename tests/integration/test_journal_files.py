"""The journal of files on a real disk: the journal contract, and a writer in another process that is killed."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor, threads

from bookkeeper.filesystem import RealFileSystem
from bookkeeper.ports import Clock
from bookkeeper.runtime import ThreadWorker
from journalmgr.contract import JournalManager, RecordBatch
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import JournalUnavailable
from journalmgr.files.journal import FileJournal, FileJournalSettings
from journalmgr.model import NamespaceInfo, TxId
from tests.support.file_journals import ProcessFileSystem
from tests.support.journal_contract import NAMESPACE, Fact, facts, raises
from tests.support.journal_contract.world import payload


class DiskWorld:
    """A JournalWorld on the machine's disk; a process that is killed is one whose locks are gone and whose worker died.

    Its threads are real, so a crash lets what the worker has begun come to its end, as the kernel does with a write.
    """

    clock: Clock = reactor  # type: ignore[assignment]
    fences = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = itertools.count(1)
        self._opened: dict[int, tuple[FileJournal, ProcessFileSystem, MortalWorker]] = {}

    async def open(self, namespace: NamespaceInfo | None = NAMESPACE) -> JournalManager:
        number = next(self._count)
        worker = MortalWorker(f"journal {number}")
        fs = ProcessFileSystem(RealFileSystem())  # type: ignore[arg-type]
        journal = FileJournal(
            fs,
            str(self._path),
            worker,
            self.clock,
            namespace,
            holder=f"{number}@here",
            settings=FileJournalSettings(tail_period_s=0.02),
        )
        self._opened[id(journal)] = (journal, fs, worker)
        return journal

    def crash(self, journal: JournalManager) -> None:
        _, fs, worker = self._opened[id(journal)]
        worker.kill()
        fs.died()

    async def close(self) -> None:
        for journal, fs, worker in self._opened.values():
            if worker.alive:
                await journal.close()
            else:
                await worker.end()
            fs.died()


class MortalWorker:
    """A ThreadWorker of a process that can die: its queue is forgotten, and nobody hears of what was done."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self._inner = ThreadWorker(reactor, name)

    def submit(self, work: Any, on_done: Any, on_error: Any) -> None:
        def run() -> Any:
            return work() if self.alive else None

        def told(call: Any) -> Any:
            return lambda result: call(result) if self.alive else None

        self._inner.submit(run, told(on_done), told(on_error))

    def stop(self) -> Any:
        return self._inner.stop()

    def kill(self) -> None:
        self.alive = False

    def end(self) -> Any:
        return self._inner.stop()


@pytest.mark.parametrize("fact", facts().values(), ids=facts().keys())
@pytest_twisted.ensureDeferred
async def test_file_journal_on_a_disk(fact: Fact, tmp_path: Path) -> None:
    world = DiskWorld(tmp_path / "edits")
    try:
        await fact(world)
    finally:
        await world.close()


@pytest.fixture
def disk(tmp_path: Path) -> DiskWorld:
    return DiskWorld(tmp_path / "edits")


def writer_of(path: Path) -> subprocess.Popen[str]:
    """Another process that writes there until it is killed."""
    command = [sys.executable, "-m", "tests.support.doomed_journal_writer", f"file://{path}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest_twisted.ensureDeferred
async def test_what_a_killed_process_was_told_is_durable(disk: DiskWorld, tmp_path: Path) -> None:
    """Three writers, one after the other, each killed with 32 appends on their way; a tail follows all of them.

    While one lives, recovery is refused and names it (I-80).
    """
    first = await disk.open()
    await first.format(NAMESPACE)
    await first.close()
    reader = await disk.open()
    tail = reader.tail(TxId(1))
    followed: list[int] = []
    bodies: dict[int, tuple[int, bytes]] = {}

    def note(batch: RecordBatch) -> None:
        for record in batch.records:
            followed.append(record.txid)
            bodies[record.txid] = (record.opcode, record.body)

    acknowledged = 0
    try:
        for more in (500, 3000, 1000):
            enough = acknowledged + more
            with writer_of(tmp_path / "edits") as process:
                assert process.stdout is not None
                while acknowledged < enough:
                    line = await threads.deferToThread(process.stdout.readline)
                    assert line, f"the writer ended by itself, with {process.wait()}"
                    acknowledged = int(line)
                rival = await disk.open()
                error = await raises(JournalUnavailable, rival.recover_unfinalized())
                assert f"process {process.pid}@" in str(error)
                process.kill()
                rest = await threads.deferToThread(process.stdout.read)
                acknowledged = max([acknowledged, *map(int, rest.split("\n")[:-1])])
            await rival.recover_unfinalized()
            segments = await rival.segments()
            assert [one.first_txid for one in segments[1:]] == [(one.last_txid or 0) + 1 for one in segments[:-1]]
            last = segments[-1].last_txid
            assert last is not None
            assert last >= acknowledged
            await rival.close()
            while not followed or followed[-1] < last:
                note(await tail.next())
            assert followed == list(range(1, last + 1))
        opaque = [txid for txid, (opcode, _) in bodies.items() if opcode == OpCode.OPAQUE]
        assert len(opaque) > 4000
        assert all(bodies[txid][1] == payload(txid) for txid in opaque)
    finally:
        await tail.stop()
        await disk.close()
