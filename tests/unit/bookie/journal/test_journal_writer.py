"""Journal: what is acknowledged when, and what every kind of failure leaves behind."""

import contextlib
import dataclasses
import errno

import pytest

from bookkeeper.bookie.journal.files import list_journals
from bookkeeper.bookie.journal.format import ALIGNMENT, entry_record, file_name
from bookkeeper.bookie.journal.group_commit import APPEND_OVERHEAD_BYTES, APPEND_SIZE_MAX
from bookkeeper.bookie.journal.settings import JournalSettings
from bookkeeper.bookie.journal.writer import Journal
from bookkeeper.errors import ConfigurationError, InvalidArgument, JournalFull, StorageError
from bookkeeper.model import LogMark
from tests.support.faulty_filesystem import CHANGING, Op, PowerCut
from tests.support.journals import BARE, DIRECTORY, SMALL, RunningJournal, body, new_disk, replayed, rolled, workload
from tests.support.manual_worker import ManualWorker
from tests.support.simulated_clock import SimulatedClock

TINY = dataclasses.replace(SMALL, file_size_max=4096, preallocation_size=2048, preparation_slice_size=512)


def path_of(journal_id: int) -> str:
    return f"{DIRECTORY}/{file_name(journal_id)}"


# --- group commit


def test_nothing_is_acknowledged_before_its_sync():
    """I-47."""
    fs = new_disk()
    running = RunningJournal(fs)
    running.add(1, 0)
    assert running.acked == []
    file = path_of(running.journal.mark().journal_id)
    before = fs.durable_contents(file)
    running.worker.run_one()
    assert running.acked == [(1, 0)]
    assert fs.durable_contents(file) != before
    assert body(1, 0) in fs.durable_contents(file)


def test_callback_never_runs_inside_append():
    running = RunningJournal(new_disk())
    seen = []
    record = entry_record(body(1, 0))
    running.journal.append([record], len(record), seen.append)
    assert seen == []
    running.worker.run_all()
    assert seen == [None]


def test_what_arrives_during_a_sync_is_one_group():
    fs = new_disk()
    running = RunningJournal(fs)
    running.add(1, 0)
    for entry_id in range(1, 50):
        running.add(1, entry_id)
    before = fs.counts.copy()
    running.worker.run_all()
    assert fs.counts[Op.SYNC] - before[Op.SYNC] == 2
    assert fs.counts[Op.WRITE] - before[Op.WRITE] == 2
    assert running.acked == [(1, entry_id) for entry_id in range(50)]


def test_next_group_is_submitted_before_the_answers_of_the_last():
    running = RunningJournal(new_disk())
    waiting_at_answer = []
    record = entry_record(body(1, 0))
    running.journal.append([record], len(record), lambda _: waiting_at_answer.append(running.worker.waiting))
    running.add(1, 1)
    running.worker.run_one()
    assert waiting_at_answer == [1]


def test_groups_are_split_at_their_bound():
    fs = new_disk()
    running = RunningJournal(fs, dataclasses.replace(BARE, group_bytes_max=1000))
    for entry_id in range(10):
        running.add(1, entry_id, b"x" * 364)  # 400 bytes framed: two fit
    before = fs.counts[Op.SYNC]
    running.worker.run_all()
    assert fs.counts[Op.SYNC] - before == 1 + 5  # the first left alone, nine more by twos
    assert running.acked == [(1, entry_id) for entry_id in range(10)]


def test_a_record_larger_than_a_group_goes_alone():
    running = RunningJournal(new_disk(), dataclasses.replace(BARE, group_bytes_max=1000, pending_bytes_max=2000))
    running.add(1, 0, b"x" * 5000)
    running.worker.run_all()
    assert running.acked == [(1, 0)]


def test_pieces_of_records_may_be_cut_anywhere():
    fs = new_disk()
    running = RunningJournal(fs)
    stream = b"".join(entry_record(body(4, entry_id)) for entry_id in range(3))
    running.journal.append([stream[:1], stream[1:70], stream[70:]], len(stream), lambda _: None)
    running.worker.run_all()
    assert sorted(replayed(fs)[0].bodies) == [(4, 0), (4, 1), (4, 2)]


def test_a_callback_that_raises_keeps_no_answer_back():
    running = RunningJournal(new_disk())
    record = entry_record(body(1, 0))

    def broken(_: object) -> None:
        raise ValueError("a bug in the caller")

    running.journal.append([record], len(record), broken)
    running.add(1, 1)
    running.add(1, 2)
    running.worker.run_all()
    assert running.acked == [(1, 1), (1, 2)]


# --- bounds


def test_full_queue_refuses_and_queues_nothing():
    fs = new_disk()
    running = RunningJournal(fs, dataclasses.replace(BARE, pending_bytes_max=2 * (100 + APPEND_OVERHEAD_BYTES)))
    drained = []
    running.journal.on_drained = lambda: drained.append(running.journal.pending_bytes)
    running.add(1, 0, b"x" * 64)
    running.add(1, 1, b"x" * 64)
    with pytest.raises(JournalFull, match="journalMaxMemorySizeMb"):
        running.add(1, 2, b"x" * 64)
    assert running.journal.pending_bytes == 2 * (100 + APPEND_OVERHEAD_BYTES)
    assert running.journal.is_congested
    running.worker.run_all()
    assert drained
    assert not running.journal.is_congested
    assert running.journal.pending_bytes == 0
    running.write([(1, 3)])
    assert sorted(replayed(fs)[0].bodies) == [(1, 0), (1, 1), (1, 3)]


def test_what_can_never_fit_is_refused():
    running = RunningJournal(new_disk())
    with pytest.raises(InvalidArgument):
        running.journal.append([b""], APPEND_SIZE_MAX + 1, lambda _: None)


@pytest.mark.parametrize(
    "change",
    [
        {"alignment": 500},
        {"alignment": 0},
        {"file_size_max": 1000},
        {"format_version": 4},
        {"format_version": 7},
        {"group_bytes_max": 0},
        {"preparation_slice_size": 0},
        {"backups_max": -1},
        {"pending_bytes_max": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(change):
    with pytest.raises(ConfigurationError, match=next(iter(change))):
        JournalSettings(**change)


# --- failures


@pytest.mark.parametrize("settings", [BARE, TINY], ids=["bare", "tiny"])
@pytest.mark.parametrize("op", [Op.WRITE, Op.SYNC, Op.SYNC_DIR, Op.CREATE, Op.LINK, Op.UNLINK, Op.OPEN])
def test_an_io_error_is_final_and_loses_nothing_acknowledged(settings, op):
    """I-48, I-68: the n-th operation of each kind fails, for every n of a workload."""
    clean = new_disk()
    before = clean.counts[op]
    workload(RunningJournal(clean, settings))
    failed_at_least_once = False
    for n in range(1, clean.counts[op] - before + 1):
        fs = new_disk()
        fs.fail_nth(op, n, errno.EIO)
        running = RunningJournal(fs, settings)
        workload(running)
        failure = running.journal.failure
        assert failure is not None
        failed_at_least_once = True
        quiet = fs.counts.copy()
        with pytest.raises(StorageError, match="failed"):
            running.add(1, 999)
        running.worker.run_all()
        running.stop()
        assert fs.counts == quiet, "nothing is written or synced after the failure"
        assert all(isinstance(error, StorageError) for error in running.errors)
        fs.crash()
        state, _ = replayed(fs)
        assert set(running.acked) <= set(state.bodies)
    assert failed_at_least_once or clean.counts[op] == 0


def test_a_sync_that_fails_and_then_succeeds_acknowledges_nothing_more():
    """T14: the kernel forgot the bytes of the failed sync; the next one succeeds without them (I-48)."""
    fs = new_disk()
    running = RunningJournal(fs)
    running.write([(1, 0)])
    fs.fail_nth(Op.SYNC, 1, errno.EIO, drop_dirty=True)
    running.add(1, 1)
    running.add(1, 2)
    running.journal.collect(LogMark(1, 0))  # queued behind the failed group: must not run
    running.worker.run_one()
    after_the_failure = fs.counts.copy()
    running.worker.run_all()
    assert fs.counts == after_the_failure
    assert running.acked == [(1, 0)]
    assert len(running.errors) == 2
    assert len(running.failures) == 1
    with pytest.raises(StorageError):
        running.add(1, 3)
    fs.crash()
    assert sorted(replayed(fs)[0].bodies) == [(1, 0)]


def test_a_start_that_fails_says_so_once():
    fs = new_disk()
    fs.fail_nth(Op.SYNC, 1, errno.EIO)
    running = RunningJournal(fs)
    assert running.start_results[0].type is OSError
    assert running.failures == []
    with pytest.raises(StorageError, match="failed"):
        running.add(1, 0)


def test_a_journal_takes_records_only_while_it_runs():
    journal = Journal(new_disk(), DIRECTORY, ManualWorker(), SimulatedClock(), BARE)
    with pytest.raises(StorageError, match="has not been started"):
        journal.append([b""], 0, lambda _: None)
    running = RunningJournal(new_disk())
    running.stop()
    with pytest.raises(StorageError, match="was stopped"):
        running.add(1, 0)


@pytest.mark.parametrize("settings", [BARE, TINY], ids=["bare", "tiny"])
def test_every_byte_count_of_a_full_disk_keeps_what_was_acknowledged(settings):
    """I-68."""
    clean = new_disk()
    workload(RunningJournal(clean, settings))
    step = 1 if settings is BARE else 37
    for quota in range(0, clean.used_bytes, step * 13):
        fs = new_disk()
        fs.quota_bytes = quota
        running = RunningJournal(fs, settings)
        if running.journal.failure is None:
            workload(running)
        assert running.journal.failure is None or not running.failures or running.failures[0].errno == errno.ENOSPC
        fs.crash()
        fs.quota_bytes = None
        state, end = replayed(fs)
        assert set(running.acked) <= set(state.bodies)
        again = RunningJournal(fs, settings, end)
        again.write([(9, 9)])
        assert set(replayed(fs)[0].bodies) == set(state.bodies) | {(9, 9)}


def test_groups_use_up_the_zeros_ahead_on_a_full_disk():
    """I-68: that no more zeros can be written is no failure; only a group that does not fit is."""
    fs = new_disk()
    running = RunningJournal(fs, TINY)
    fs.quota_bytes = fs.used_bytes
    size = len(fs.contents(path_of(running.journal.mark().journal_id)))
    fitting = (size - running.journal.mark().offset) // ALIGNMENT
    for entry_id in range(fitting):
        running.write([(1, entry_id)])
    assert len(running.acked) == fitting > 2
    assert running.failures == []
    running.write([(1, fitting)])
    assert [error.errno for error in running.failures] == [errno.ENOSPC]
    assert len(running.acked) == fitting


# --- power cuts


@pytest.mark.parametrize("settings", [BARE, TINY], ids=["bare", "tiny"])
def test_a_power_cut_at_every_operation_loses_nothing_acknowledged(settings, rng):
    """I-47, I-49, I-51: cut, lose any subset of what was not synced, replay, go on, cut again."""
    clean = new_disk()
    before = sum(clean.counts[op] for op in CHANGING)
    workload(RunningJournal(clean, settings))
    operations = sum(clean.counts[op] for op in CHANGING) - before
    for n in range(1, operations, 2):
        fs = new_disk()
        fs.cut_power_at(n)
        acked: set[tuple[int, int]] = set()
        finished = False
        with contextlib.suppress(PowerCut):
            running = RunningJournal(fs, settings)
            running.acked = AckSet(acked)
            workload(running)
            finished = True
        assert not finished
        fs.crash(rng)
        state, end = replayed(fs)
        assert acked <= set(state.bodies)
        again = RunningJournal(fs, settings, end)
        again.write([(8, 8)])
        fs.crash(rng)
        assert acked | {(8, 8)} <= set(replayed(fs)[0].bodies)


class AckSet(list):
    """A list that also fills a set, so that it outlives the journal it belongs to."""

    def __init__(self, entries: set[tuple[int, int]]) -> None:
        self.entries = entries

    def append(self, entry: tuple[int, int]) -> None:
        self.entries.add(entry)


@pytest.mark.parametrize("recycle", [False, True])
def test_a_power_cut_while_collecting_keeps_what_is_above_the_mark(recycle, rng):
    """I-56."""
    settings = dataclasses.replace(TINY, recycle=recycle)
    for n in range(1, 40):
        fs, running, ids = rolled(settings)
        mark = LogMark(ids[-2], 1024)
        expected = replayed(fs, mark)[0].values()
        fs.cut_power_at(n)
        with contextlib.suppress(PowerCut):
            running.journal.collect(mark)
            running.worker.run_all()
        fs.crash(rng)
        assert replayed(fs, mark)[0].values() == expected


def test_replayed_entries_are_a_prefix_of_the_appended(rng):
    """I-51: a crash keeps the groups up to some point, and nothing behind a gap."""
    for n in range(1, 60):
        fs = new_disk()
        running = RunningJournal(fs, TINY)
        fs.cut_power_at(n)
        appended = []
        with contextlib.suppress(PowerCut):
            for entry_id in range(40):
                running.add(1, entry_id, b"z" * 100)
                appended.append((1, entry_id))
                if entry_id % 3 == 2:
                    running.worker.run_all()
        fs.crash(rng)
        state, _ = replayed(fs)
        assert state.order == appended[: len(state.order)]
        assert len(running.acked) <= len(state.order)


# --- files


def test_the_first_file_is_named_by_the_time_in_ms():
    fs = new_disk()
    RunningJournal(fs, now=1234.5)
    assert list_journals(fs, DIRECTORY) == [1234500]


def test_file_ids_grow_though_the_clock_goes_back():
    """I-52."""
    fs = new_disk()
    end = LogMark(0, 0)
    ids = []
    for now in (5000.0, 3000.0, 0.0, 9000.0):
        running = RunningJournal(fs, after=end, now=now)
        running.write([(1, len(ids))])
        ids.append(running.journal.mark().journal_id)
        running.stop()
        end = replayed(fs)[1]
    assert ids == [5000000, 5000001, 5000002, 5000003]


def test_a_file_id_is_above_the_mark_even_when_all_files_are_gone():
    """I-52: ids of deleted files are not used again."""
    fs = new_disk()
    running = RunningJournal(fs, after=LogMark(77, 1024))
    assert running.journal.mark().journal_id == 78


def test_an_existing_file_is_never_replaced():
    """I-52: creation is exclusive."""
    fs = new_disk()
    running = RunningJournal(fs, TINY)
    intruder = path_of(running.journal.mark().journal_id + 1)
    RunningJournal(fs, BARE)  # a second process without the lock takes the next id
    before = fs.contents(intruder)
    workload(running)
    assert isinstance(running.journal.failure, FileExistsError)
    assert fs.contents(intruder) == before


def test_a_full_file_is_followed_by_the_next_id():
    fs = new_disk()
    running = RunningJournal(fs, TINY)
    first = running.journal.mark().journal_id
    workload(running)
    ids = list_journals(fs, DIRECTORY)
    assert len(ids) > 2
    assert ids == list(range(first, first + len(ids)))
    state, end = replayed(fs)
    assert state.order
    assert set(state.order) == set(running.acked)
    assert end == running.journal.mark()


def test_the_mark_moves_only_with_a_sync():
    """I-54."""
    running = RunningJournal(new_disk())
    before = running.journal.mark()
    running.add(1, 0)
    assert running.journal.mark() == before
    running.worker.run_all()
    after = running.journal.mark()
    assert after.offset == before.offset + ALIGNMENT


@pytest.mark.parametrize("alignment", [512, 4096])
def test_groups_end_at_the_configured_alignment(alignment):
    fs = new_disk()
    running = RunningJournal(fs, dataclasses.replace(BARE, alignment=alignment))
    for entry_id in range(5):
        running.write([(1, entry_id)])
        assert running.journal.mark().offset % alignment == 0
    assert len(replayed(fs)[0].bodies) == 5


def test_zeros_lie_ahead_of_the_groups_and_are_synced():
    fs = new_disk()
    running = RunningJournal(fs, SMALL)
    for entry_id in range(60):
        running.write([(1, entry_id)])
        mark = running.journal.mark()
        ahead = fs.durable_contents(path_of(mark.journal_id))[mark.offset :]
        assert len(ahead) >= SMALL.preallocation_size // 2
        assert not ahead.strip(b"\0")


def test_preparation_writes_one_slice_at_a_time_and_lets_groups_in_between():
    fs = new_disk()
    running = RunningJournal(fs, SMALL)
    while running.worker.waiting == 0:  # until a preparation is due behind a group
        running.add(1, 0, b"x" * 400)
        running.worker.run_one()
    size_before = len(fs.contents(path_of(running.journal.mark().journal_id)))
    running.add(1, 1)
    running.worker.run_one()  # the slice that was submitted before the add
    assert len(fs.contents(path_of(running.journal.mark().journal_id))) == size_before + SMALL.preparation_slice_size
    running.worker.run_one()  # and then the add, whatever preparation is left
    assert running.acked[-1] == (1, 1)


def test_a_busy_journal_takes_a_slice_of_zeros_with_a_group():
    """One sync for both, where no idle moment came to write zeros in."""
    fs = new_disk()
    running = RunningJournal(fs, SMALL)
    for entry_id in range(100):
        running.add(1, entry_id, b"x" * 300)
        running.add(1, entry_id, b"x" * 300)  # something always waits: never idle
        running.worker.run_one()
    size = len(fs.contents(path_of(running.journal.mark().journal_id)))
    mark = running.journal.mark()
    assert mark.offset <= size < mark.offset + SMALL.preparation_slice_size + ALIGNMENT
    assert (size % ALIGNMENT) == 0
