"""A small but complete bookie on a disk in memory, and everything it has promised.

The real journal, storage, replay and request handling; the worker runs on the spot. `build` lets one bookie do a bit of
everything and end in one of two ways; `Life` is another process on the same files, and `probe` asks it for all that
was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.gc.deletion import Deletion
from bookkeeper.bookie.identity.sessions import SessionFile
from bookkeeper.bookie.journal.mark import mark_name
from bookkeeper.bookie.journal.writer import Journal, JournalSettings
from bookkeeper.bookie.process.mode import ModeSwitch
from bookkeeper.bookie.process.startup import persist_marks, recover
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.index.format import PAGE_SLOTS
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.filesystem import create_durable
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.model import LAST_ENTRY, BookieId, Status
from bookkeeper.wire.messages import AddBatch, FenceRead, ReadBatch, ReadLac, WriteLac
from tests.support.bookie_fakes import KEY, OTHER_KEY, TOKEN, Answers, ManualWorker, body_of, lac_packet
from tests.support.faulty_filesystem import FaultyFileSystem

JOURNAL_DIRS = ("/journal",)
LEDGER_DIRS = ("/ledgers",)
MARK_DIRS = ["/ledgers/current"]
MARK = f"/ledgers/current/{mark_name(0, 1)}"
COOKIE = Cookie(BookieId("127.0.0.1:3181"), JOURNAL_DIRS, LEDGER_DIRS, "a-cluster", LEDGER_DIRS)
SESSION_ID = 0x1234ABCD
SETTINGS = StorageSettings(memtable_bytes_max=1 << 20, open_files_max=50, entry_log_bytes_max=6000, block_bytes=1500)


@dataclass(slots=True)
class Promises:
    """What was acknowledged. deleted: ledgers that were fenced and deleted since: their writers stay refused."""

    entries: dict[tuple[int, int], bytes] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    lacs: dict[int, bytes] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)

    @property
    def ledger_ids(self) -> list[int]:
        """Those that must be here."""
        return sorted({ledger_id for ledger_id, _ in self.entries} | self.fenced)


class Reports:
    """What the bookie said, from warnings upward."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __enter__(self) -> Reports:
        globalLogPublisher.addObserver(self._take)
        return self

    def __exit__(self, *_: object) -> None:
        globalLogPublisher.removeObserver(self._take)

    def _take(self, event: LogEvent) -> None:
        if event["log_level"] >= LogLevel.warn:
            self.lines.append(formatEvent(event))


class Life:
    """One process of the bookie. Raises what its start raises."""

    def __init__(self, fs: FaultyFileSystem) -> None:
        self.fs = fs
        self.worker = ManualWorker()
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        for directory in (*JOURNAL_DIRS, *LEDGER_DIRS):
            fs.make_dirs(f"{directory}/current")
        self.directories = LedgerDirectories(LEDGER_DIRS)
        self.storage = LedgerStorage(fs, self.directories, SETTINGS, now_ms=lambda: 1_700_000_000_000)
        ends = recover(fs, self.storage, JOURNAL_DIRS, LEDGER_DIRS)
        self.journal = Journal(
            fs,
            "/journal/current",
            self.worker,
            self.clock,
            JournalSettings(preallocation_size=0, backups_max=1),
            now_ms=lambda: int(self.clock.seconds() * 1000),
        )
        self.journal.start(ends[0])
        self.worker.run_all()
        self.failures: list[BaseException] = []
        self.bookie = Bookie(
            self.storage, [self.journal], self.worker, ModeSwitch(), self.clock, exit=self.failures.append
        )

    def ask(self, call: Callable[..., None], request: Any, **options: Any) -> Any:
        """The one answer to a request."""
        answers = Answers()
        call(request, answers, **options)
        self.worker.run_all()
        assert len(answers) == 1, (request, answers)
        return answers[0]

    def add(self, ledger_id: int, entry_id: int, *, key: bytes = KEY, payload: bytes = b"payload") -> Status:
        """A normal add."""
        body = body_of(ledger_id, entry_id, payload)
        batch = AddBatch(ledger_id, key, [entry_id], [body], -1, False, False, False, TOKEN)
        return self.ask(self.bookie.add, batch)  # type: ignore[no-any-return]

    def fence(self, ledger_id: int) -> Status:
        """A fencing read."""
        result = self.ask(self.bookie.fence_read, FenceRead(ledger_id, LAST_ENTRY, KEY, False, TOKEN))
        return Status.OK if isinstance(result, bytes) else result  # type: ignore[no-any-return]

    def read(self, ledger_id: int, entry_id: int) -> bytes | Status:
        """One entry."""
        return self.ask(self.bookie.read, ReadBatch(ledger_id, [entry_id], TOKEN), with_lac=False)[0][0]  # type: ignore[no-any-return]

    def checkpoint(self) -> None:
        """As the checkpointer does."""
        marks = [self.journal.mark()]
        self.storage.rotate()
        self.storage.checkpoint()
        persist_marks(self.fs, MARK_DIRS, marks)
        self.journal.collect(marks[0])


def build(*, orderly: bool) -> tuple[FaultyFileSystem, Promises]:
    """A bookie's files and its promises.

    orderly: its last act was a checkpoint; else it was killed with a tail of the journal that no file has. The last
    group of a journal cannot be told from one that a power cut tore (I-51), so what it holds is promised to nobody.
    """
    fs, promises = FaultyFileSystem(), Promises()
    life = Life(fs)
    for directory in (*JOURNAL_DIRS, *LEDGER_DIRS):
        create_durable(fs, f"{directory}/current/VERSION", COOKIE.format())
    noted = SessionFile(fs, "/journal/current", life.worker).add(SESSION_ID)
    life.worker.run_all()
    assert noted.called
    _work(life, promises, ledger_ids=(1, 2, 3), count=12, size=100)
    life.fence(9)
    promises.fenced.add(9)
    for entry_id in (0, 1, 2, PAGE_SLOTS - 1):  # an index page that is used up to its last slot
        assert life.add(6, entry_id) is Status.OK
        promises.entries[6, entry_id] = body_of(6, entry_id, b"payload")
    _work(life, Promises(), ledger_ids=(5,), count=2, size=20)
    life.fence(5)
    life.checkpoint()
    assert life.storage.doom([5]) == [5]
    life.storage.delete(Deletion((5,)))
    life.storage.revive([5])
    promises.deleted.add(5)
    life.fence(3)
    promises.fenced.add(3)
    assert life.ask(life.bookie.write_lac, WriteLac(2, KEY, lac_packet(2, 7), TOKEN)) is Status.OK
    promises.lacs[2] = lac_packet(2, 7)
    life.checkpoint()
    _work(life, promises, ledger_ids=(1, 4), count=4, size=50)
    life.fence(4)
    promises.fenced.add(4)
    if orderly:
        life.checkpoint()
    else:
        life.add(77, 0)
    fs.crash()
    return fs, promises


def _work(life: Life, promises: Promises, *, ledger_ids: tuple[int, ...], count: int, size: int) -> None:
    for _ in range(count):
        for ledger_id in ledger_ids:
            entry_id = 1 + max([known for owner, known in promises.entries if owner == ledger_id], default=-1)
            payload = bytes([ledger_id]) * size
            assert life.add(ledger_id, entry_id, payload=payload) is Status.OK
            promises.entries[ledger_id, entry_id] = body_of(ledger_id, entry_id, payload)


@dataclass(slots=True)
class Findings:
    """silent: broken promises. lost_with_report: those that must be told of. unknown: answers that said so."""

    silent: list[str] = field(default_factory=list)
    lost_with_report: list[str] = field(default_factory=list)
    unknown: int = 0


def probe(life: Life, promises: Promises) -> Findings:
    """Ask for everything promised."""
    found = Findings()
    for (ledger_id, entry_id), body in promises.entries.items():
        _judge(found, f"entry {entry_id} of ledger {ledger_id}", life.read(ledger_id, entry_id), body)
    for ledger_id in {owner for owner, _ in promises.entries}:
        last = max(entry_id for owner, entry_id in promises.entries if owner == ledger_id)
        whole = promises.entries[ledger_id, last]
        _judge(found, f"the last entry of ledger {ledger_id}", life.read(ledger_id, LAST_ENTRY), whole)
        if isinstance(life.read(ledger_id, last + 1), bytes):
            found.silent.append(f"entry {last + 1} of ledger {ledger_id} was never written")
    for ledger_id, packet in promises.lacs.items():
        status, stored, _ = life.ask(life.bookie.read_lac, ReadLac(ledger_id, TOKEN))
        _judge(found, f"the explicit LAC of ledger {ledger_id}", stored if status is Status.OK else status, packet)
    for ledger_id in promises.ledger_ids:
        _refused(found, life, ledger_id, "another key", OTHER_KEY)
    for ledger_id in sorted(promises.fenced):
        _refused(found, life, ledger_id, "a fenced writer", KEY)
    for ledger_id in sorted(promises.deleted):
        if life.add(ledger_id, 1000) is Status.OK:
            found.lost_with_report.append(f"the writer of ledger {ledger_id}, which was deleted, was let in")
    return found


def _judge(found: Findings, what: str, answer: object, expected: bytes) -> None:
    if answer == expected:
        return
    if isinstance(answer, Status) and answer not in (Status.NO_ENTRY, Status.NO_LEDGER, Status.OK):
        found.unknown += 1
    else:
        found.silent.append(f"{what}: {answer!r}")


def _refused(found: Findings, life: Life, ledger_id: int, who: str, key: bytes) -> None:
    answer = life.add(ledger_id, 1000, key=key)
    if answer is Status.OK:
        found.silent.append(f"{who} was let into ledger {ledger_id}")
    elif answer not in (Status.FENCED, Status.UNAUTHORIZED):
        found.unknown += 1
