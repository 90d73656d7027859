"""When a checkpoint happens, and in which order the journal may forget."""

import errno

import pytest
from twisted.internet.task import Clock

from bookkeeper.bookie.storage.checkpoint import BLOCK_PAUSE_MAX_S, Checkpointer
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.entry_log.format import decode_header
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.errors import NoWritableDisk
from bookkeeper.model import LogMark
from tests.support.bookie_fakes import ManualWorker
from tests.support.faulty_filesystem import FaultyFileSystem, Op
from tests.support.logged import logged
from tests.support.stored_ledgers import entry_body

SETTINGS = StorageSettings(
    memtable_bytes_max=4000, journal_bytes_between_checkpoints_max=20_000, entry_log_bytes_max=1 << 20, block_bytes=1024
)


class CountingJournal:
    """A journal whose position is the number of records the test has `synced`."""

    def __init__(self) -> None:
        self.synced = 0
        self.collected: list[LogMark] = []

    def mark(self) -> LogMark:
        return LogMark(1, self.synced)

    def collect(self, mark: LogMark, /) -> None:
        self.collected.append(mark)


class Rig:
    """A checkpointer whose worker runs when told to."""

    def __init__(self, settings: StorageSettings = SETTINGS, *, journals: int = 1) -> None:
        self.fs = FaultyFileSystem()
        self.directories = LedgerDirectories(("/a",))
        self.storage = LedgerStorage(self.fs, self.directories, settings)
        self.storage.open()
        self.clock = Clock()
        self.worker = ManualWorker()
        self.journals = [CountingJournal() for _ in range(journals)]
        self.persisted: list[list[LogMark]] = []
        self.failures: list[BaseException] = []
        self.full_count = 0
        self.room_count = 0
        self.no_room_for_marks = False
        self.next_entry_id = 0
        self.checkpointer = Checkpointer(
            self.storage,
            self.journals,
            self.persist,
            self.worker,
            self.clock,
            settings,
            on_failure=self.failures.append,
            on_disks_full=self.disks_full,
            on_room=self.found_room,
        )
        self.checkpointer.start()

    def persist(self, marks: object) -> None:
        assert isinstance(marks, list)
        if self.no_room_for_marks:
            raise NoWritableDisk("no space for the mark")
        assert all(
            journal.collected == [] or journal.collected[-1] <= mark
            for journal, mark in zip(self.journals, marks, strict=True)
        )
        self.persisted.append(marks)

    def disks_full(self) -> None:
        self.full_count += 1

    def found_room(self) -> None:
        self.room_count += 1

    def add(self, count: int = 1, payload: bytes = b"x" * 100) -> None:
        for _ in range(count):
            self.storage.add(7, [self.next_entry_id], [entry_body(7, self.next_entry_id, payload)])
            self.next_entry_id += 1
            self.journals[0].synced += 1
            self.checkpointer.after_add()

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance(1)
            self.worker.run_all()


def test_a_full_buffer_is_flushed_without_a_sync() -> None:
    rig = Rig()
    rig.add(20)
    assert len(rig.worker.queue) == 1
    rig.worker.run_all()
    assert rig.storage.counters.flushes == 1
    assert rig.persisted == []
    assert rig.storage.snapshot_count == 0


def test_a_checkpoint_marks_what_was_synced_before_it_began() -> None:
    """I-54: what arrives while it runs belongs to the next one."""
    rig = Rig()
    rig.add(3)
    done = rig.checkpointer.checkpoint_now()
    rig.add(2)
    tell = rig.worker.run_work()
    rig.add(1)
    assert rig.journals[0].collected == []
    tell()
    assert done.called
    assert rig.persisted == [[LogMark(1, 3)]]
    assert rig.journals[0].collected == [LogMark(1, 3)]


def test_marks_are_persisted_only_after_the_storage_is_durable() -> None:
    """I-54, I-58: with the power gone at the moment of the mark, everything below it is on the disk."""
    rig = Rig()
    rig.add(12)

    def persist(marks: object) -> None:
        twin = rig.fs.clone()
        twin.crash()
        storage = LedgerStorage(twin, LedgerDirectories(("/a",)), SETTINGS)
        storage.open()
        assert storage.read_cold(7, range(12)) == [entry_body(7, entry_id, b"x" * 100) for entry_id in range(12)]
        rig.persisted.append(list(marks))  # type: ignore[call-overload]

    checkpointer = Checkpointer(
        rig.storage, rig.journals, persist, rig.worker, rig.clock, SETTINGS, on_failure=rig.failures.append
    )
    checkpointer.checkpoint_now()
    rig.worker.run_all()
    assert rig.persisted == [[LogMark(1, 12)]]
    assert rig.failures == []


def test_journals_collect_only_below_what_is_durable_everywhere() -> None:
    """I-56: the answer of the marks' writer counts, not the wish."""
    rig = Rig(journals=2)
    rig.add(1)
    checkpointer = Checkpointer(
        rig.storage,
        rig.journals,
        lambda marks: [LogMark(0, 5), LogMark(0, 6)],
        rig.worker,
        rig.clock,
        SETTINGS,
        on_failure=rig.failures.append,
    )
    checkpointer.checkpoint_now()
    rig.worker.run_all()
    assert [journal.collected for journal in rig.journals] == [[LogMark(0, 5)], [LogMark(0, 6)]]


def test_the_interval_brings_a_checkpoint_and_an_idle_bookie_writes_nothing() -> None:
    rig = Rig()
    rig.add(1)
    rig.seconds(9)
    assert rig.persisted == []
    rig.seconds(1)
    assert len(rig.persisted) == 1
    writes = rig.fs.counts[Op.WRITE]
    rig.seconds(60)
    assert rig.fs.counts[Op.WRITE] == writes
    assert len(rig.persisted) == 1


def test_many_bytes_bring_a_checkpoint_at_once() -> None:
    """The replay stays bounded whatever the interval says."""
    rig = Rig()
    for _ in range(20):
        rig.add(10)
        rig.worker.run_all()
    rig.seconds(1)
    assert len(rig.persisted) == 1


def test_a_rolled_log_brings_a_checkpoint() -> None:
    rig = Rig(StorageSettings(memtable_bytes_max=4000, entry_log_bytes_max=2500, block_bytes=500))
    while not rig.storage.rolled_log_count:
        rig.add(5)
        rig.worker.run_all()
    rig.seconds(2)
    assert len(rig.persisted) == 1


def test_a_slow_checkpoint_is_paid_off_before_the_next_one() -> None:
    """3 s of work at a duty of 0.1: the next one begins 27 s later, although 10 s is the interval."""
    rig = Rig()
    rig.add(1)
    rig.checkpointer.checkpoint_now()
    rig.clock.advance(3)
    rig.worker.run_all()
    rig.add(1)
    rig.seconds(26)
    assert len(rig.persisted) == 1
    rig.seconds(1)
    assert len(rig.persisted) == 2


def test_checkpoints_never_overlap_and_the_second_caller_gets_one_of_its_own() -> None:
    """I-55, T10."""
    rig = Rig()
    rig.add(1)
    first = rig.checkpointer.checkpoint_now()
    rig.add(1)
    second = rig.checkpointer.checkpoint_now()
    rig.worker.run_next()
    assert first.called
    assert not second.called
    rig.worker.run_all()
    assert second.called
    assert rig.persisted == [[LogMark(1, 1)], [LogMark(1, 2)]]


def test_a_checkpoint_waits_for_a_snapshot_slot() -> None:
    rig = Rig()
    while not rig.storage.is_full:
        rig.add(1)
    done = rig.checkpointer.checkpoint_now()
    assert rig.persisted == []
    rig.worker.run_all()
    assert done.called
    assert rig.persisted == [[LogMark(1, rig.next_entry_id)]]
    assert not rig.storage.is_dirty


def test_a_failed_write_ends_everything() -> None:
    """I-48."""
    rig = Rig()
    rig.add(1)
    rig.fs.fail_nth(Op.SYNC, 1, errno.EIO)
    done = rig.checkpointer.checkpoint_now()
    errors: list[BaseException] = []
    done.addErrback(lambda failure: errors.append(failure.value))
    rig.worker.run_all()
    assert [type(error) for error in (*errors, *rig.failures)] == [OSError, OSError]
    assert rig.persisted == []
    rig.seconds(30)
    assert not rig.worker.queue
    assert not rig.clock.getDelayedCalls()
    rig.checkpointer.checkpoint_now().addErrback(lambda failure: errors.append(failure.value))
    assert len(errors) == 2


def test_a_mark_that_cannot_be_written_ends_everything_and_nothing_is_collected() -> None:
    """I-55."""
    rig = Rig()
    rig.add(1)

    def persist(_: object) -> None:
        raise OSError(errno.EIO, "no mark")

    checkpointer = Checkpointer(
        rig.storage, rig.journals, persist, rig.worker, rig.clock, SETTINGS, on_failure=rig.failures.append
    )
    checkpointer.checkpoint_now().addErrback(lambda _: None)
    rig.worker.run_all()
    assert len(rig.failures) == 1
    assert rig.journals[0].collected == []


def test_a_full_disk_is_reported_and_tried_again() -> None:
    """I-68: nothing is lost, nothing is marked, and the bookie goes on once there is room."""
    rig = Rig()
    rig.fs.quota_bytes = 0
    rig.add(20)
    rig.worker.run_all()
    assert rig.full_count == 1
    assert rig.failures == []
    rig.seconds(3)
    assert rig.full_count > 1
    assert rig.room_count == 0
    rig.fs.quota_bytes = None
    rig.directories.set_full(())
    rig.seconds(12)
    assert rig.room_count == 1
    assert rig.persisted[-1] == [LogMark(1, 20)]
    assert rig.storage.read(7, range(20)) == [entry_body(7, entry_id, b"x" * 100) for entry_id in range(20)]


def test_marks_that_found_no_room_are_tried_again_although_nothing_is_dirty() -> None:
    """The bookie is read-only, so no new entry makes a checkpoint due; without a retry it stays so for ever."""
    rig = Rig()
    rig.no_room_for_marks = True
    rig.add(10)
    rig.checkpointer.checkpoint_now().addErrback(lambda failure: failure.trap(NoWritableDisk))
    rig.worker.run_all()
    assert not rig.storage.is_dirty
    for tries in range(2, 5):
        rig.seconds(2)
        assert rig.full_count >= tries
    assert (rig.failures, rig.persisted, rig.room_count) == ([], [], 0)
    rig.no_room_for_marks = False
    rig.seconds(2)
    assert rig.room_count == 1
    assert rig.persisted == [[LogMark(1, 10)]]
    assert rig.journals[0].collected == [LogMark(1, 10)]
    rig.seconds(30)
    assert len(rig.persisted) == 1, "further checkpoints although nothing was due"


def test_retries_without_room_log_one_line_in_a_minute() -> None:
    rig = Rig()
    rig.no_room_for_marks = True
    rig.add(10)
    with logged() as lines:
        rig.checkpointer.checkpoint_now().addErrback(lambda failure: failure.trap(NoWritableDisk))
        rig.worker.run_all()
        rig.seconds(50)
        assert lines.count("no space for the mark") == 1
        rig.seconds(20)
    assert rig.full_count > 10
    assert lines.count("no space for the mark") == 2


def test_a_flush_that_finds_room_does_not_end_the_retries_of_marks() -> None:
    rig = Rig()
    rig.no_room_for_marks = True
    rig.add(1)
    rig.checkpointer.checkpoint_now().addErrback(lambda failure: failure.trap(NoWritableDisk))
    rig.worker.run_all()
    before = rig.storage.counters.flushes
    rig.add(40)
    rig.seconds(2)
    assert rig.storage.counters.flushes > before
    assert (rig.room_count, rig.checkpointer.short_of_room) == (0, True)
    rig.no_room_for_marks = False
    rig.seconds(2)
    assert (rig.room_count, rig.checkpointer.short_of_room) == (1, False)


def test_a_checkpoint_asked_for_on_a_full_disk_fails_with_the_reason() -> None:
    rig = Rig()
    rig.fs.quota_bytes = 0
    rig.add(1)
    errors: list[BaseException] = []
    rig.checkpointer.stop().addErrback(lambda failure: errors.append(failure.value))
    rig.worker.run_all()
    assert [type(error) for error in errors] == [NoWritableDisk]
    assert not rig.clock.getDelayedCalls()


def test_stop_makes_a_last_checkpoint() -> None:
    rig = Rig()
    rig.add(5)
    done = rig.checkpointer.stop()
    rig.worker.run_all()
    assert done.called
    assert rig.persisted == [[LogMark(1, 5)]]
    assert not rig.clock.getDelayedCalls()


def test_a_checkpoint_that_began_before_the_stop_leaves_the_log_open() -> None:
    """The last checkpoint writes the rest to the same log, not to another one of a few entries."""
    rig = Rig()
    rig.add(3)
    rig.checkpointer.checkpoint_now()
    rig.add(2)
    done = rig.checkpointer.stop()
    rig.worker.run_all()
    assert done.called
    assert rig.persisted == [[LogMark(1, 3)], [LogMark(1, 5)]]
    assert rig.storage.rolled_log_count == 1


def test_stop_seals_the_active_log_and_a_checkpoint_does_not() -> None:
    """I-60, I-61: what a clean stop leaves need not be read through to know what it has."""
    rig = Rig()
    for close in (rig.checkpointer.checkpoint_now, rig.checkpointer.stop):
        rig.add(5)
        done = close()
        rig.worker.run_all()
        assert done.called
        logs = rig.storage.entry_logs
        sealed = decode_header(rig.fs.contents("/a/current/1.log"), "").seal is not None
        assert sealed == (close == rig.checkpointer.stop) == (logs.active_log_id is None)
    assert logs.checksums.certain_end(1) == logs.size_of(1)


@pytest.mark.parametrize("count", [1, 3])
def test_all_journals_are_marked_in_their_order(count: int) -> None:
    rig = Rig(journals=count)
    for number, journal in enumerate(rig.journals):
        journal.synced = number * 10
    rig.storage.set_fenced(1)
    rig.checkpointer.checkpoint_now()
    rig.worker.run_all()
    assert rig.persisted == [[LogMark(1, number * 10) for number in range(count)]]


def rig_with_a_paced_flush() -> Rig:
    """A buffer that took more than a second to fill, of which the first of some blocks is written."""
    rig = Rig(StorageSettings(memtable_bytes_max=4000, block_bytes=256))
    while not rig.worker.queue:
        rig.add(1)
        if not rig.worker.queue:
            rig.clock.advance(0.4)
    rig.worker.run_next()
    assert rig.storage.snapshot_count == 1
    assert not rig.worker.queue
    return rig


def all_there(rig: Rig) -> bool:
    return rig.storage.read_cold(7, range(rig.next_entry_id)) == [
        entry_body(7, entry_id, b"x" * 100) for entry_id in range(rig.next_entry_id)
    ]


def test_a_full_buffer_is_written_in_blocks_that_leave_the_disk_to_the_journal_between_them() -> None:
    """Else all bookies of a busy ledger write 14 MB at one moment, and every add of that moment waits for it."""
    rig = rig_with_a_paced_flush()
    blocks = 1
    while rig.storage.snapshot_count:
        assert all_there(rig)
        rig.clock.advance(BLOCK_PAUSE_MAX_S - 0.001)
        assert not rig.worker.queue
        rig.clock.advance(0.002)
        rig.worker.run_next()
        blocks += 1
    assert blocks >= 3
    assert all_there(rig)
    assert rig.storage.counters.flushes == 1


def test_a_second_full_buffer_ends_the_pauses() -> None:
    rig = rig_with_a_paced_flush()
    while not rig.worker.queue:
        rig.add(1)
    rig.worker.run_next()
    assert rig.storage.snapshot_count == 1, "the first one, all the rest of it"
    rig.worker.run_all()
    rig.seconds(1)
    assert rig.storage.snapshot_count == 0
    assert all_there(rig)


@pytest.mark.parametrize("stops", [False, True])
def test_a_checkpoint_ends_the_pauses_and_covers_what_was_left(stops: bool) -> None:
    rig = rig_with_a_paced_flush()
    done = rig.checkpointer.stop() if stops else rig.checkpointer.checkpoint_now()
    rig.worker.run_all()
    assert done.called
    assert rig.persisted == [[LogMark(1, rig.next_entry_id)]]
    assert not rig.storage.is_dirty
    rig.fs.crash()
    storage = LedgerStorage(rig.fs, LedgerDirectories(("/a",)), SETTINGS)
    storage.open()
    assert storage.read_cold(7, [rig.next_entry_id - 1]) == [entry_body(7, rig.next_entry_id - 1, b"x" * 100)]
    assert bool(rig.clock.getDelayedCalls()) is not stops


def test_a_disk_that_fills_up_between_two_blocks_loses_nothing() -> None:
    """I-68: the buffer is written again from its beginning."""
    rig = rig_with_a_paced_flush()
    rig.fs.quota_bytes = 0
    rig.seconds(3)
    assert rig.full_count > 0
    assert rig.storage.snapshot_count == 1
    rig.fs.quota_bytes = None
    rig.directories.set_full(())
    rig.seconds(3)
    assert rig.storage.snapshot_count == 0
    assert all_there(rig)


def test_a_buffer_that_fills_fast_is_written_without_pauses() -> None:
    rig = Rig()
    rig.add(20)
    rig.worker.run_next()
    assert rig.storage.snapshot_count == 0
