"""Journals in memory for tests: write groups, replay, compare what came back."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable

from bookkeeper.bookie.journal.files import list_journals
from bookkeeper.bookie.journal.format import entry_record, explicit_lac_record, fence_record, master_key_record
from bookkeeper.bookie.journal.replay import replay
from bookkeeper.bookie.journal.settings import JournalSettings
from bookkeeper.bookie.journal.writer import Journal
from bookkeeper.filesystem import FileSystem
from bookkeeper.model import LogMark
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.manual_worker import ManualWorker
from tests.support.simulated_clock import SimulatedClock

DIRECTORY = "/journal/current"
NOTHING = LogMark(0, 0)
SMALL = JournalSettings(
    file_size_max=64 * 1024, preallocation_size=8192, preparation_slice_size=2048, backups_max=0, recycle=False
)
BARE = JournalSettings(preallocation_size=0, backups_max=0)


def body(ledger_id: int, entry_id: int, payload: bytes = b"payload") -> bytes:
    """An entry body: 32-byte head and payload."""
    return struct.pack(">qqqq", ledger_id, entry_id, entry_id - 1, 0) + payload


class State:
    """A ReplayVisitor that remembers the state it was told; replaying twice must not change it (I-53)."""

    entry_id_max = sys.maxsize

    def __init__(self) -> None:
        self.bodies: dict[tuple[int, int], bytes] = {}
        self.order: list[tuple[int, int]] = []
        self.keys: dict[int, bytes] = {}
        self.fenced: set[int] = set()
        self.lacs: dict[int, bytes] = {}

    def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
        assert len(entry_ids) == len(bodies) > 0
        for entry_id, data in zip(entry_ids, bodies, strict=True):
            assert struct.unpack_from(">qq", data) == (ledger_id, entry_id)
            self.bodies[ledger_id, entry_id] = data
            self.order.append((ledger_id, entry_id))

    def master_key(self, ledger_id: int, key: bytes) -> None:
        self.keys[ledger_id] = key

    def fence(self, ledger_id: int) -> None:
        self.fenced.add(ledger_id)

    def explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        self.lacs[ledger_id] = packet

    def values(self) -> tuple[object, ...]:
        """For comparing two states."""
        return self.bodies, self.keys, self.fenced, self.lacs


def new_disk() -> FaultyFileSystem:
    """An empty disk with the journal's directory."""
    fs = FaultyFileSystem()
    fs.make_dirs(DIRECTORY)
    return fs


class RunningJournal:
    """A started `Journal` over a manual worker; remembers what it acknowledged and what it failed."""

    def __init__(
        self,
        fs: FileSystem,
        settings: JournalSettings = BARE,
        after: LogMark = NOTHING,
        now: float = 1000.0,
        directory: str = DIRECTORY,
    ) -> None:
        self.clock = SimulatedClock()
        self.clock.run_until(lambda: False, seconds=now)
        self.worker = ManualWorker()
        self.acked: list[tuple[int, int]] = []
        self.errors: list[BaseException] = []
        self.failures: list[BaseException] = []
        self.journal = Journal(
            fs, directory, self.worker, self.clock, settings, now_ms=lambda: int(self.clock.seconds() * 1000)
        )
        self.journal.on_failed = self.failures.append
        self.start_results: list[object] = []
        self.journal.start(after).addBoth(self.start_results.append)
        self.worker.run_all()

    def add(self, ledger_id: int, entry_id: int, payload: bytes = b"payload") -> None:
        """Append one entry; noted in `acked` or `errors`."""
        record = entry_record(body(ledger_id, entry_id, payload))

        def report(error: BaseException | None) -> None:
            if error is None:
                self.acked.append((ledger_id, entry_id))
            else:
                self.errors.append(error)

        self.journal.append([record], len(record), report)

    def add_record(self, record: bytes) -> None:
        """Append any framed record."""
        self.journal.append([record], len(record), lambda _: None)

    def write(self, entries: Iterable[tuple[int, int]]) -> None:
        """One group of entries, synced."""
        for ledger_id, entry_id in entries:
            self.add(ledger_id, entry_id)
        self.worker.run_all()

    def write_all_kinds(self) -> None:
        """A key, a fence, an explicit LAC and an entry of ledger 7, in one group."""
        for record in (master_key_record(7, b"k" * 20), fence_record(7), explicit_lac_record(7, b"packet")):
            self.add_record(record)
        self.add(7, 0)
        self.worker.run_all()

    def stop(self) -> None:
        """Orderly end."""
        done: list[None] = []
        self.journal.stop().addCallback(done.append)
        self.worker.run_all()
        assert done == [None]


def replayed(fs: FileSystem, mark: LogMark = NOTHING, directory: str = DIRECTORY) -> tuple[State, LogMark]:
    """State and end of a replay."""
    state = State()
    return state, replay(fs, directory, mark, state)


def workload(running: RunningJournal) -> None:
    """Twenty groups of different sizes with rolls between them; stops where the journal fails."""
    entry_id = 0
    for group in range(20):
        for _ in range(group % 4 + 1):
            if running.failures or running.journal.failure:
                return
            running.add(group % 3, entry_id, b"p" * (group * 17 % 300))
            entry_id += 1
        running.worker.run_all()


def rolled(settings: JournalSettings) -> tuple[FaultyFileSystem, RunningJournal, list[int]]:
    """A disk and a running journal after `workload`, and the ids of its files."""
    fs = new_disk()
    running = RunningJournal(fs, settings)
    workload(running)
    return fs, running, list_journals(fs, DIRECTORY)
