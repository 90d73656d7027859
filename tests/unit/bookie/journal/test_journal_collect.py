"""Files that go once a mark has passed them, and the orderly end of a journal."""

import dataclasses

import pytest

from bookkeeper.bookie.journal.files import list_journals
from bookkeeper.bookie.journal.format import ALIGNMENT, file_name
from bookkeeper.bookie.journal.replay import scan_file
from bookkeeper.bookie.journal.writer import Journal
from bookkeeper.model import LogMark
from tests.support.faulty_filesystem import Op
from tests.support.journals import BARE, DIRECTORY, SMALL, RunningJournal, State, new_disk, replayed, rolled
from tests.support.manual_worker import ManualWorker
from tests.support.simulated_clock import SimulatedClock

TINY = dataclasses.replace(SMALL, file_size_max=4096, preallocation_size=2048, preparation_slice_size=512)


def path_of(journal_id: int) -> str:
    return f"{DIRECTORY}/{file_name(journal_id)}"


# --- collecting


@pytest.mark.parametrize("backups_max", [0, 1, 2])
def test_collect_keeps_the_newest_backups_below_the_mark(backups_max):
    """I-56."""
    fs, running, ids = rolled(dataclasses.replace(TINY, backups_max=backups_max))
    mark = LogMark(ids[-2], 1024)
    running.journal.collect(mark)
    running.worker.run_all()
    below = [journal_id for journal_id in ids if journal_id < mark.journal_id]
    kept = below[len(below) - backups_max :]
    assert list_journals(fs, DIRECTORY) == kept + ids[-2:]
    fs.crash()
    assert list_journals(fs, DIRECTORY) == kept + ids[-2:]


def test_collect_never_touches_the_file_being_written():
    fs, running, ids = rolled(TINY)
    running.journal.collect(LogMark(ids[-1] + 1000, 0))
    running.worker.run_all()
    assert list_journals(fs, DIRECTORY) == ids[-1:]
    running.write([(5, 5)])
    assert running.acked[-1] == (5, 5)


def test_collect_without_a_mark_deletes_nothing():
    fs, running, ids = rolled(TINY)
    running.journal.collect(LogMark(0, 0))
    running.worker.run_all()
    assert list_journals(fs, DIRECTORY) == ids


def test_a_recycled_file_shows_no_old_record():
    """I-50: neither to our replay nor to one that only stops at zeros."""
    fs, running, ids = rolled(dataclasses.replace(TINY, recycle=True))
    old = set(running.acked)
    running.journal.collect(LogMark(ids[-1], 1024))
    running.worker.run_all()
    assert fs.counts[Op.RENAME] == 1
    unlinked = fs.counts[Op.CREATE]
    entry_id = 1000
    while running.journal.mark().journal_id == ids[-1]:
        running.write([(6, entry_id)])
        entry_id += 1
    assert fs.counts[Op.CREATE] == unlinked, "the next file is the recycled one"
    mark = running.journal.mark()
    contents = fs.contents(path_of(mark.journal_id))
    assert not contents[mark.offset :].strip(b"\0")
    fs.crash()
    state, _ = replayed(fs, LogMark(ids[-1], 1024))
    assert {entry for entry in state.bodies if entry[0] != 6} <= old
    assert {entry for entry in state.bodies if entry[0] == 6} == {entry for entry in running.acked if entry[0] == 6}
    only_new = State()
    scan_file(fs, DIRECTORY, mark.journal_id, 0, only_new)
    assert all(ledger_id == 6 for ledger_id, _ in only_new.bodies)


def test_a_recycled_file_that_is_needed_early_is_cut_to_what_is_zeroed():
    """I-50: the journal was never idle, so most of the old records are still in it."""
    fs, running, ids = rolled(dataclasses.replace(TINY, recycle=True))
    running.journal.collect(LogMark(ids[-1], 1024))
    running.add(6, 0)
    running.worker.run_one()
    entry_id = 1
    while running.journal.mark().journal_id == ids[-1]:
        running.add(6, entry_id)  # one more always waits
        running.worker.run_one()
        entry_id += 1
    assert fs.counts[Op.RENAME] == 1
    mark = running.journal.mark()
    assert not fs.contents(path_of(mark.journal_id))[mark.offset :].strip(b"\0")
    assert b"pppp" not in fs.contents(path_of(mark.journal_id))


def test_a_left_over_spare_is_removed_and_never_reused():
    fs, running, ids = rolled(dataclasses.replace(TINY, recycle=True))
    running.journal.collect(LogMark(ids[-1], 1024))
    running.worker.run_all()
    assert fs.exists(f"{DIRECTORY}/journal.spare")
    fs.crash()
    _, end = replayed(fs, LogMark(ids[-1], 1024))
    again = RunningJournal(fs, BARE, end)
    assert not fs.exists(f"{DIRECTORY}/journal.spare")
    again.write([(7, 7)])
    assert list_journals(fs, DIRECTORY) == [ids[-1], ids[-1] + 1]


# --- stopping


def test_stop_finishes_what_is_pending():
    fs = new_disk()
    running = RunningJournal(fs)
    running.add(1, 0)
    running.add(1, 1)
    running.stop()
    assert running.acked == [(1, 0), (1, 1)]
    fs.crash()
    assert sorted(replayed(fs)[0].bodies) == [(1, 0), (1, 1)]


def test_stop_proves_the_last_group_durable():
    """I-51: after an orderly stop, damage to the last group is no torn tail."""
    fs = new_disk()
    running = RunningJournal(fs)
    running.write([(1, 0)])
    before = running.journal.mark()
    running.stop()
    assert running.journal.mark().offset == before.offset + ALIGNMENT
    assert replayed(fs)[1] == running.journal.mark()


def test_stop_during_the_start_closes_the_file():
    fs = new_disk()
    worker, clock = ManualWorker(), SimulatedClock()
    journal = Journal(fs, DIRECTORY, worker, clock, BARE)
    events = []
    journal.start(LogMark(0, 0)).addCallback(lambda _: events.append("started"))
    journal.stop().addCallback(lambda _: events.append("stopped"))
    worker.run_all()
    assert events == ["started", "stopped"]
    assert fs.counts[Op.CLOSE] == 2
