"""Deferred appends and barriers: what is told between write and sync, what each kind of death leaves, what it costs."""

from __future__ import annotations

import dataclasses
import errno
import random

import pytest

from bookkeeper.bookie.journal.format import entry_record
from bookkeeper.errors import JournalFull, StorageError
from tests.support.faulty_filesystem import FaultyFileSystem, Op
from tests.support.journals import BARE, SMALL, RunningJournal, body, new_disk, replayed


def defer(running: RunningJournal, entry_id: int, payload: bytes = b"payload") -> None:
    """Append one deferred entry of ledger 1; noted as `RunningJournal.add` notes it."""
    record = entry_record(body(1, entry_id, payload))

    def report(error: BaseException | None) -> None:
        if error is None:
            running.acked.append((1, entry_id))
        else:
            running.errors.append(error)

    running.journal.append([record], len(record), report, deferred=True)


def held(fs: FaultyFileSystem) -> list[tuple[int, int]]:
    """What a restart finds."""
    return sorted(replayed(fs)[0].bodies)


# --- deferred


def test_a_deferred_append_is_told_after_the_write_and_before_the_sync() -> None:
    """The death of the process loses nothing that was told; a power cut at that moment may."""
    fs = new_disk()
    running = RunningJournal(fs)
    defer(running, 0)
    assert running.acked == []
    syncs = fs.counts[Op.SYNC]
    running.worker.run_one()
    assert running.acked == [(1, 0)]
    assert fs.counts[Op.SYNC] == syncs
    killed, cut = fs.clone(), fs.clone()
    assert held(killed) == [(1, 0)]
    cut.crash()
    assert held(cut) == []
    running.worker.run_one()
    assert running.acked == [(1, 0)]  # once
    fs.crash()
    assert held(fs) == [(1, 0)]


def test_an_ordinary_append_in_a_group_with_deferred_ones_still_waits_for_the_sync() -> None:
    """I-47."""
    fs = new_disk()
    running = RunningJournal(fs)
    running.add(1, 0)  # alone in the first group
    running.add(1, 1)
    defer(running, 2)
    running.add(1, 3)
    running.worker.run_one()
    assert running.acked == [(1, 0)]
    running.worker.run_one()
    assert running.acked == [(1, 0), (1, 2)]
    running.worker.run_one()
    assert running.acked == [(1, 0), (1, 2), (1, 1), (1, 3)]
    fs.crash()
    assert held(fs) == [(1, 0), (1, 1), (1, 2), (1, 3)]


def test_ordinary_groups_are_one_piece_of_work_also_after_deferred_ones() -> None:
    running = RunningJournal(new_disk())
    defer(running, 0)
    assert running.worker.waiting == 2
    running.worker.run_all()
    running.add(1, 1)
    assert running.worker.waiting == 1
    running.worker.run_all()
    assert running.acked == [(1, 0), (1, 1)]


def test_a_deferred_append_that_fits_no_longer_into_the_group_is_told_with_the_next() -> None:
    running = RunningJournal(new_disk(), dataclasses.replace(BARE, group_bytes_max=500))
    running.add(1, 0)
    running.add(1, 1, b"x" * 364)
    defer(running, 2, b"x" * 364)
    running.worker.run_one()
    running.worker.run_one()
    assert running.acked == [(1, 0), (1, 1)]
    assert running.worker.waiting == 2
    running.worker.run_one()
    assert running.acked == [(1, 0), (1, 1), (1, 2)]
    running.worker.run_all()
    assert running.journal.pending_bytes == 0


def test_what_is_told_early_counts_until_its_sync() -> None:
    running = RunningJournal(new_disk())
    defer(running, 0)
    pending = running.journal.pending_bytes
    running.worker.run_one()
    assert running.acked == [(1, 0)]
    assert running.journal.pending_bytes == pending > 0
    running.worker.run_one()
    assert running.journal.pending_bytes == 0


def test_a_failed_write_tells_a_deferred_append_nothing_good() -> None:
    """I-48: and the sync that was queued behind it does not happen."""
    fs = new_disk()
    running = RunningJournal(fs)
    fs.fail_nth(Op.WRITE, 1, errno.EIO)
    defer(running, 0)
    syncs = fs.counts[Op.SYNC]
    running.worker.run_all()
    assert running.acked == []
    assert len(running.errors) == len(running.failures) == 1
    assert fs.counts[Op.SYNC] == syncs


def test_a_failed_sync_ends_the_journal_and_tells_nobody_twice() -> None:
    """I-48: what was told early was told for the life of the process only; everything else fails."""
    fs = new_disk()
    running = RunningJournal(fs)
    defer(running, 0)
    fs.fail_nth(Op.SYNC, 1, errno.EIO, drop_dirty=True)
    running.worker.run_one()
    running.add(1, 1)
    barriers: list[BaseException | None] = []
    running.journal.barrier(barriers.append)
    running.worker.run_all()
    assert running.acked == [(1, 0)]
    assert [type(error) for error in running.errors] == [StorageError]
    assert [type(error) for error in barriers] == [StorageError]
    assert len(running.failures) == 1
    with pytest.raises(StorageError, match="failed"):
        defer(running, 2)
    with pytest.raises(StorageError, match="failed"):
        running.journal.barrier(barriers.append)


def test_a_stop_syncs_what_was_told_early() -> None:
    fs = new_disk()
    running = RunningJournal(fs)
    defer(running, 0)
    running.worker.run_one()
    running.stop()
    fs.crash()
    assert held(fs) == [(1, 0)]


# --- barriers


def test_a_barrier_comes_with_the_sync_that_covers_what_was_told_early() -> None:
    fs = new_disk()
    running = RunningJournal(fs)
    told: list[BaseException | None] = []
    defer(running, 0)
    running.worker.run_one()
    running.journal.barrier(told.append)
    assert told == []
    running.worker.run_one()
    assert told == [None]
    fs.crash()
    assert held(fs) == [(1, 0)]


def test_a_barrier_covers_what_waits_behind_the_group_in_flight() -> None:
    running = RunningJournal(new_disk())
    order: list[str] = []
    running.add(1, 0)
    running.add(1, 1)
    running.journal.barrier(lambda _: order.append("barrier"))
    running.add(1, 2)
    running.worker.run_one()
    assert order == []
    running.worker.run_one()
    assert order == ["barrier"]
    assert running.acked == [(1, 0), (1, 1), (1, 2)]


def test_a_barrier_costs_no_write_and_no_sync_of_its_own() -> None:
    fs = new_disk()
    running = RunningJournal(fs)
    running.add(1, 0)
    told: list[BaseException | None] = []
    before = fs.counts.copy()
    for _ in range(10):
        running.journal.barrier(told.append)
    running.worker.run_all()
    assert told == [None] * 10
    assert fs.counts[Op.WRITE] - before[Op.WRITE] == fs.counts[Op.SYNC] - before[Op.SYNC] == 1


def test_a_barrier_on_an_idle_journal_is_told_at_once() -> None:
    fs = new_disk()
    running = RunningJournal(fs)
    running.write([(1, 0)])
    before = fs.counts.copy()
    told: list[BaseException | None] = []
    running.journal.barrier(told.append)
    assert told == [None]
    assert running.worker.waiting == 0
    assert fs.counts == before


def test_barriers_are_bounded_by_the_memory_they_take() -> None:
    running = RunningJournal(new_disk(), dataclasses.replace(BARE, pending_bytes_max=5000))
    running.add(1, 0)
    told: list[BaseException | None] = []
    for _ in range(8):
        running.journal.barrier(told.append)
    with pytest.raises(JournalFull):
        running.journal.barrier(told.append)
    running.worker.run_all()
    assert told == [None] * 8
    assert running.journal.pending_bytes == 0


# --- both, at random


@pytest.mark.parametrize("seed", range(40))
def test_a_kill_keeps_all_that_was_told_and_a_power_cut_all_that_was_forced(seed: int) -> None:
    """Random adds, deferred or not, and barriers, cut between any two pieces of work."""
    rng = random.Random(seed)
    fs = new_disk()
    running = RunningJournal(fs, dataclasses.replace(SMALL, group_bytes_max=1000, file_size_max=4096))
    forced: set[tuple[int, int]] = set()
    ordinary: set[tuple[int, int]] = set()
    for entry_id in range(60):
        action = rng.randrange(4)
        if action == 0:
            running.add(1, entry_id, b"p" * rng.randrange(300))
            ordinary.add((1, entry_id))
        elif action == 1:
            defer(running, entry_id, b"p" * rng.randrange(300))
        elif action == 2:
            covered = set(running.acked)
            running.journal.barrier(lambda _, covered=covered: forced.update(covered))  # type: ignore[misc]
        elif running.worker.waiting:
            running.worker.run_one()
        killed, cut = fs.clone(), fs.clone()
        assert set(running.acked) <= set(held(killed))
        cut.crash(random.Random(seed))
        assert forced | (ordinary & set(running.acked)) <= set(held(cut))
