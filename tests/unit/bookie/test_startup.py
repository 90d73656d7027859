"""From the files a bookie left to one that may serve: everything acknowledged is back, or it does not start.

The real journal and storage on a file system that forgets what was not synced; the worker runs on the spot.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.task import Clock

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.journal.format import entry_record, explicit_lac_record, file_name, master_key_record, padding
from bookkeeper.bookie.journal.mark import mark_name, read_marks
from bookkeeper.bookie.journal.writer import Journal, JournalSettings
from bookkeeper.bookie.process.exit_codes import ExitCode, exit_code_of
from bookkeeper.bookie.process.mode import ModeSwitch
from bookkeeper.bookie.process.startup import check_unsynced_leftovers, persist_marks, recover
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.index.format import EXPLICIT_LAC_SIZE_MAX
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX, StorageSettings
from bookkeeper.errors import CorruptRecord, NoWritableDisk, StorageError
from bookkeeper.filesystem import create_durable
from bookkeeper.model import LogMark, Status
from bookkeeper.wire.messages import AddBatch, FenceRead, ReadBatch, WriteLac
from tests.support.bookie_fakes import KEY, OTHER_KEY, TOKEN, Answers, ManualWorker, body_of, lac_packet
from tests.support.faulty_filesystem import CHANGING, FaultyFileSystem, Op

JOURNAL_DIRS = ("/j0", "/j1")
LEDGER_DIRS = ("/l0", "/l1")
MARK_DIRS = [f"{directory}/current" for directory in LEDGER_DIRS]
LEDGERS = range(1, 7)


class Run:
    """One life of a bookie on `fs`, from its start to a power cut."""

    def __init__(self, fs: FaultyFileSystem) -> None:
        self.fs = fs
        self.worker = ManualWorker()
        self.clock = Clock()
        self.clock.advance(1_000_000)
        for directory in (*JOURNAL_DIRS, *LEDGER_DIRS):
            fs.make_dirs(f"{directory}/current")
        settings = StorageSettings(memtable_bytes_max=20_000)
        self.storage = LedgerStorage(fs, LedgerDirectories(LEDGER_DIRS), settings)
        self.ends = recover(fs, self.storage, JOURNAL_DIRS, LEDGER_DIRS)
        journal_settings = JournalSettings(file_size_max=64 * 1024, preallocation_size=0)
        self.journals = []
        for directory, end in zip(JOURNAL_DIRS, self.ends, strict=True):
            journal = Journal(
                fs, f"{directory}/current", self.worker, self.clock, journal_settings, now_ms=lambda: 1_000_000_000
            )
            journal.start(end)
            self.journals.append(journal)
        self.worker.run_all()
        self.failures: list[BaseException] = []
        self.bookie = Bookie(
            self.storage, self.journals, self.worker, ModeSwitch(), self.clock, exit=self.failures.append
        )

    def ask(self, call: Callable[..., None], request: Any, **options: Any) -> Any:
        answers = Answers()
        call(request, answers, **options)
        self.worker.run_all()
        assert len(answers) == 1
        return answers[0]

    def add(self, ledger_id: int, entry_id: int, *, key: bytes = KEY, recovery: bool = False) -> Status:
        body = body_of(ledger_id, entry_id, b"z" * 100)
        batch = AddBatch(ledger_id, key, [entry_id], [body], -1, recovery, False, False, TOKEN)
        return self.ask(self.bookie.add, batch)  # type: ignore[no-any-return]

    def read(self, ledger_id: int, entry_id: int) -> bytes | Status:
        return self.ask(self.bookie.read, ReadBatch(ledger_id, [entry_id], TOKEN), with_lac=False)[0][0]  # type: ignore[no-any-return]

    def crash(self, rng: random.Random | None = None) -> FaultyFileSystem:
        self.fs.crash(rng)
        return self.fs


def test_an_empty_bookie_starts_with_nothing() -> None:
    run = Run(FaultyFileSystem())
    assert run.read(1, 0) is Status.NO_LEDGER


@pytest.mark.parametrize("seed", range(20))
def test_everything_acknowledged_is_back_after_any_number_of_power_cuts(seed: int) -> None:
    rng = random.Random(seed)
    fs = FaultyFileSystem()
    held: dict[int, int] = dict.fromkeys(LEDGERS, -1)
    fenced: set[int] = set()
    for _ in range(4):
        run = Run(fs)
        for ledger_id, last in held.items():
            for entry_id in range(last + 1):
                assert run.read(ledger_id, entry_id) == body_of(ledger_id, entry_id, b"z" * 100)  # I-53
            if last >= 0:
                assert run.add(ledger_id, last + 1, key=OTHER_KEY) is Status.UNAUTHORIZED  # the key is back
        for ledger_id in fenced:
            assert run.add(ledger_id, held[ledger_id] + 1) is Status.FENCED  # I-24
        for _ in range(rng.randint(0, 200)):
            ledger_id = rng.choice(LEDGERS)
            if rng.random() < 0.02:
                run.ask(run.bookie.fence_read, FenceRead(ledger_id, -1, KEY, False, TOKEN))
                fenced.add(ledger_id)
            elif run.add(ledger_id, held[ledger_id] + 1, recovery=ledger_id in fenced) is Status.OK:
                held[ledger_id] += 1
        assert run.failures == []
        fs = run.crash(rng)
    assert sum(held.values()) > 0


def test_explicit_lacs_come_back() -> None:
    run = Run(FaultyFileSystem())
    assert run.ask(run.bookie.write_lac, WriteLac(1, KEY, lac_packet(1, 5), TOKEN)) is Status.OK
    again = Run(run.crash())
    assert again.storage.explicit_lac(1) == lac_packet(1, 5)


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (explicit_lac_record(3, lac_packet(3, 5).ljust(EXPLICIT_LAC_SIZE_MAX + 1, b"m")), "257 bytes"),
        (explicit_lac_record(3, b"lac"), "3 bytes"),
        (master_key_record(3, b""), "0 bytes"),
        (entry_record(body_of(3, ENTRY_ID_MAX + 1, b"z")), f"{ENTRY_ID_MAX + 1} is above {ENTRY_ID_MAX}"),
    ],
)
def test_a_journal_with_a_value_that_only_apache_takes_is_refused_with_place_value_and_remedy(
    record: bytes, value: str
) -> None:
    fs = FaultyFileSystem()
    for directory in (*JOURNAL_DIRS, *LEDGER_DIRS):
        fs.make_dirs(f"{directory}/current")
    head = b"BKLG\0\0\0\6".ljust(512, b"\0")
    good = entry_record(body_of(3, 0, b"z"))
    path = f"/j0/current/{file_name(1)}"
    create_durable(fs, path, head + good + record + padding(len(head + good + record)))
    with pytest.raises(StorageError) as refused:
        Run(fs)
    text = str(refused.value)
    assert f"{path} has a record of ledger 3 at offset {len(head + good)} " in text
    assert value in text
    assert "Start Apache's bookie on these directories" in text
    assert exit_code_of(refused.value) is ExitCode.BOOKIE_ERROR
    assert read_marks(fs, MARK_DIRS, mark_name(0, len(JOURNAL_DIRS))) == LogMark(0, 0)


def test_a_replay_is_not_repeated_for_ever() -> None:
    run = Run(FaultyFileSystem())
    for entry_id in range(50):
        run.add(1, entry_id)
    again = Run(run.crash())
    assert again.ends > run.ends  # I-57
    third = Run(again.crash())
    assert third.read(1, 49) == body_of(1, 49, b"z" * 100)


def test_a_replay_larger_than_the_write_buffer_is_flushed_as_it_goes() -> None:
    run = Run(FaultyFileSystem())
    for entry_id in range(150):  # each counts about 330 bytes; three buffers hold 60 000
        if run.storage.is_full:
            run.storage.rotate()
            run.storage.flush_snapshot()
        assert run.add(1, entry_id) is Status.OK
        assert run.add(2, entry_id) is Status.OK
        if run.storage.should_flush:
            run.storage.rotate()
            run.storage.flush_snapshot()
    again = Run(run.crash())
    for entry_id in range(150):
        assert again.read(1, entry_id) == body_of(1, entry_id, b"z" * 100)
    assert again.storage.memory_bytes < 3 * 20_000 + 1_000_000


class Killed(BaseException):
    """kill -9: the process ends, what it wrote stays in the page cache."""


@pytest.mark.parametrize("known_before", [False, True])
def test_what_a_killed_process_did_not_sync_is_durable_before_the_mark_passes_it(known_before: bool) -> None:
    """I-49, I-54: kill -9 in a checkpoint, a start, then a power cut; each alone loses nothing, nor do all three."""
    fenced, with_lac = [300, 600, 900], [1200, 1500, 1800]
    for moment in itertools.count(1):
        run = Run(FaultyFileSystem())
        if known_before:
            for ledger_id in fenced + with_lac:
                run.add(ledger_id, 0)
            run.storage.rotate()
            run.storage.checkpoint()
            persist_marks(run.fs, MARK_DIRS, [journal.mark() for journal in run.journals])
        for ledger_id in fenced:
            run.ask(run.bookie.fence_read, FenceRead(ledger_id, -1, KEY, False, TOKEN))
        for ledger_id in with_lac:
            run.ask(run.bookie.write_lac, WriteLac(ledger_id, KEY, lac_packet(ledger_id, 5), TOKEN))
        was_killed = kill_in_checkpoint(run, moment)
        again = Run(run.fs)
        third = Run(again.crash())
        for ledger_id in fenced:
            assert third.add(ledger_id, 1) is Status.FENCED, f"killed at operation {moment}"
        for ledger_id in with_lac:
            assert third.storage.explicit_lac(ledger_id) == lac_packet(ledger_id, 5), f"killed at operation {moment}"
            assert third.storage.master_key(ledger_id) == KEY
        if not was_killed:
            assert moment > 18
            return


def kill_in_checkpoint(run: Run, moment: int) -> bool:
    """Kill at the checkpoint's n-th change of the disk. False when it has fewer."""
    left = moment

    def kill(op: Op, path: str) -> None:
        nonlocal left
        left -= op in CHANGING
        if not left:
            raise Killed

    run.fs.on_operation = kill
    run.storage.rotate()
    try:
        run.storage.checkpoint()
    except Killed:
        return True
    finally:
        run.fs.on_operation = None
    return False


def test_a_lost_journal_directory_is_not_an_empty_one() -> None:
    run = Run(FaultyFileSystem())
    run.add(2, 0)
    fs = run.crash()
    Run(fs).add(2, 1)  # marks are beyond the first file now
    fs.crash()
    for name in fs.listdir("/j0/current"):
        fs.unlink(f"/j0/current/{name}")
    with pytest.raises(StorageError, match="/j0/current"):  # I-56
        Run(fs)


def test_an_index_file_lost_while_the_journal_has_entries_is_named_with_its_ledger_and_the_remedy() -> None:
    """I-31: the ledger is not begun anew with what the journal has; the file is made anew, then the bookie starts."""
    fs = FaultyFileSystem()
    run = Run(fs)
    assert run.add(5, 0) is Status.OK
    run.storage.rotate()
    run.storage.checkpoint()
    assert run.add(5, 1) is Status.OK
    path = next(path for path in fs.paths() if path.endswith("/0/5/5.idx"))
    fs.crash()
    fs.unlink(path)
    fs.sync_dir(path.rpartition("/")[0])
    with pytest.raises(CorruptRecord, match=r"regenerate-interleaved-storage-index-file -ledgerIds 5\b") as raised:
        Run(fs)
    assert raised.value.path == path
    assert "ledger 5 is gone" in str(raised.value)


def test_marks_are_written_for_each_journal_into_every_ledger_directory() -> None:
    fs = FaultyFileSystem()
    for directory in LEDGER_DIRS:
        fs.make_dirs(f"{directory}/current")
    marks = [LogMark(5, 512), LogMark(7, 1024)]
    assert persist_marks(fs, [f"{directory}/current" for directory in LEDGER_DIRS], marks) == marks
    fs.crash()
    assert fs.listdir("/l0/current") == fs.listdir("/l1/current") == ["lastMark.0", "lastMark.1"]


def test_a_full_disk_keeps_the_old_marks_and_is_no_failure() -> None:
    """I-55, I-68: the journal keeps its files, and the checkpoint is tried again."""
    fs = FaultyFileSystem()
    for directory in LEDGER_DIRS:
        fs.make_dirs(f"{directory}/current")
    persist_marks(fs, MARK_DIRS, [LogMark(5, 512)])
    fs.quota_bytes = fs.used_bytes
    with pytest.raises(NoWritableDisk, match="/l0/current"):
        persist_marks(fs, MARK_DIRS, [LogMark(6, 512)])
    assert read_marks(fs, MARK_DIRS, "lastMark") == LogMark(5, 512)
    fs.quota_bytes = None
    assert persist_marks(fs, MARK_DIRS, [LogMark(6, 512)]) == [LogMark(6, 512)]


def test_leftovers_of_an_unsynced_journal_are_refused() -> None:
    fs = FaultyFileSystem()
    fs.make_dirs("/l0/current")
    check_unsynced_leftovers(fs, ["/l0"], journal_was_off=True)
    create_durable(fs, "/l0/current/DIRTY", b"")
    check_unsynced_leftovers(fs, ["/l0"], journal_was_off=False)
    with pytest.raises(StorageError, match=r"/l0/current/DIRTY.*journalSyncData"):  # I-72
        check_unsynced_leftovers(fs, ["/l0"], journal_was_off=True)
