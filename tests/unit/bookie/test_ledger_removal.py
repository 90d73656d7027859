"""Deleting ledgers under a bookie that serves, and what their old writers are told afterwards (I-04, I-63, I-66)."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.bookie.gc.tombstones import TombstoneKind
from bookkeeper.errors import NoWritableDisk
from bookkeeper.model import Status
from tests.support.bookie_fakes import KEY, BookieBench, ManualWorker


class Bench(BookieBench):
    """With a storage worker for deletions."""

    def __init__(self) -> None:
        super().__init__()
        self.storage_worker = ManualWorker()
        self.removal = self.bookie.removal(self.storage_worker)

    def written(self, ledger_id: int = 7, *, fenced: bool = False) -> None:
        self.add([0, 1], ledger_id=ledger_id)
        if fenced:
            self.fence(ledger_id=ledger_id)
        self.journal.sync()

    def remove(self, *ledger_ids: int, moved: bool = False) -> list[list[int]]:
        removed: list[list[int]] = []
        done: Deferred[list[int]] = self.removal.remove(ledger_ids, moved=moved)
        done.addCallback(removed.append)
        return removed


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_requests_wait_while_their_ledger_is_deleted_and_are_decided_afresh(bench: Bench) -> None:
    bench.written(7)
    bench.written(8)
    removed = bench.remove(7)
    waiting, other = bench.add(2), bench.add(2, ledger_id=8)
    bench.journal.sync()
    assert (waiting, other) == ([], [Status.OK])
    bench.storage_worker.run_all()
    assert removed == [[7]]
    bench.journal.sync()
    assert waiting == [Status.OK]  # not fenced: a ledger like any new one, to be collected again
    assert bench.read(0, 2)[0][0] == [Status.NO_ENTRY, bench.storage.entries[7][2]]
    assert not bench.storage.doomed


def test_a_ledger_that_is_being_written_or_loaded_is_left_for_later(bench: Bench) -> None:
    bench.written(7)
    bench.written(8)
    bench.storage.written.add(7)
    bench.storage.cold_ledgers.add(8)
    bench.add(2, ledger_id=8)  # its state is on its way from the disk: the gate is shut
    removed = bench.remove(7, 8)
    assert removed == [[]]
    assert not bench.storage_worker.queue
    bench.add(3, ledger_id=7)
    bench.worker.run_all()
    bench.journal.sync()
    assert sorted(bench.storage.entries[7]) == [0, 1, 3]


def test_a_fenced_ledger_that_was_deleted_refuses_everybody_with_its_key(bench: Bench) -> None:
    bench.written(7, fenced=True)
    bench.remove(7)
    bench.storage_worker.run_all()
    assert bench.add(2) == [Status.FENCED]
    assert bench.add(2, recovery=True) == [Status.FENCED]
    assert bench.fence() == [Status.NO_LEDGER]
    assert bench.write_lac(5) == [Status.NO_LEDGER]
    assert 7 not in bench.storage.entries
    assert bench.read(0) == [([Status.NO_LEDGER], None)]
    assert bench.read(-1) == [([Status.NO_ENTRY], None)]  # not NO_LEDGER: adds of a new ledger of this id are refused
    assert bench.read(-1, ledger_id=8) == [([Status.NO_LEDGER], None)]


def test_a_moved_ledger_refuses_its_writer_takes_a_repair_and_is_fenced_by_it(bench: Bench) -> None:
    """I-66: the tombstone must not block a later repair, nor let the old writer in behind it."""
    bench.written(7)
    bench.remove(7, moved=True)
    bench.storage_worker.run_all()
    assert bench.storage.tombstones == {7: TombstoneKind.MOVED}
    assert bench.add(2) == [Status.FENCED]
    assert bench.fence() == [Status.UNKNOWN_LEDGER_STATE]  # what was here must not be denied (I-31)
    assert bench.write_lac(5) == [Status.UNKNOWN_LEDGER_STATE]
    assert bench.add(2, key=b"x") == [Status.UNAUTHORIZED]
    repaired = bench.add([0, 1], recovery=True)
    bench.journal.sync()
    assert repaired == [Status.OK]
    assert bench.storage.is_fenced(7)
    assert bench.add(2) == [Status.FENCED]
    bench.storage.fenced.clear()  # a restart whose replay has the entries and the key, but not the fence
    bench.storage.journaled_keys.clear()
    assert bench.add(2) == [Status.FENCED]
    assert bench.storage.keys[7] == KEY


def test_without_room_nothing_is_deleted_and_requests_go_on(bench: Bench) -> None:
    bench.written(7)
    bench.storage.delete_error = NoWritableDisk("full")
    failed: list[object] = []
    bench.removal.remove([7], moved=False).addErrback(failed.append)
    waiting = bench.add(2)
    bench.storage_worker.run_all()
    assert len(failed) == 1
    bench.journal.sync()
    assert waiting == [Status.OK]
    assert not bench.exits


def test_a_failed_deletion_ends_the_bookie_and_nobody_is_answered(bench: Bench) -> None:
    """I-48."""
    bench.written(7)
    bench.storage.delete_error = OSError(5, "Input/output error")
    bench.remove(7)
    waiting = bench.add(2)
    bench.storage_worker.run_all()
    assert [type(error) for error in bench.exits] == [OSError]
    assert waiting == []
