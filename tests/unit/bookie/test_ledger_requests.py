"""Force, deferred adds and lists of entries: what each answer promises, and when there is none."""

from __future__ import annotations

import pytest

from bookkeeper.bookie.requests import ledger
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.held import runs_of
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.errors import StorageError
from bookkeeper.model import Status
from tests.support.bookie_fakes import KEY, BookieBench, body_of
from tests.support.faulty_filesystem import FaultyFileSystem

DISK_ERROR = OSError(5, "Input/output error")


# --- deferred adds


def test_a_deferred_add_is_answered_once_it_is_written() -> None:
    bench = BookieBench()
    answers = bench.add([0, 1], deferred=True)
    assert answers == []
    bench.journal.write()
    assert answers == [Status.OK]
    assert bench.journal.durable == []
    bench.journal.sync()
    assert answers == [Status.OK]
    assert bench.bookie.in_flight == 0


def test_ordinary_adds_beside_deferred_ones_wait_for_the_sync() -> None:
    """I-47, also once the ledger is known and its adds need no decision."""
    bench = BookieBench()
    bench.add([0])
    bench.settle()
    deferred, ordinary = bench.add([1], deferred=True), bench.add([2])
    bench.journal.write()
    assert (deferred, ordinary) == ([Status.OK], [])
    bench.journal.sync()
    assert ordinary == [Status.OK]


def test_a_recovery_add_is_never_answered_early() -> None:
    """Recovery counts its answers as durable copies, whatever its flags say."""
    bench = BookieBench()
    answers = bench.add([0], deferred=True, recovery=True)
    bench.journal.write()
    assert answers == []
    bench.journal.sync()
    assert answers == [Status.OK]


def test_deferred_adds_are_refused_as_others_are() -> None:
    bench = BookieBench()
    bench.fence()
    bench.settle()
    assert bench.add([0], deferred=True) == [Status.FENCED]
    bench.journal.full = True
    assert bench.add([0], ledger_id=8, deferred=True) == [Status.TOO_MANY_REQUESTS]


def test_after_a_failed_write_a_deferred_add_is_not_answered() -> None:
    """I-48."""
    bench = BookieBench()
    answers = bench.add([0], deferred=True)
    bench.journal.fail(DISK_ERROR)
    assert answers == []
    assert bench.exits == [DISK_ERROR]


# --- force


def test_a_force_is_answered_after_the_sync_of_what_was_added_before() -> None:
    bench = BookieBench()
    added = bench.add([0], deferred=True)
    bench.journal.write()
    forced = bench.force()
    assert (added, forced) == ([Status.OK], [])
    bench.journal.sync()
    assert forced == [Status.OK]
    assert bench.metrics.value("bookie_BOOKIE_FORCE_LEDGER") == 1


def test_a_force_with_nothing_before_it_is_answered_at_once() -> None:
    """Also of a ledger that nobody knows."""
    bench = BookieBench()
    assert bench.force(ledger_id=99) == [Status.OK]
    assert not bench.storage.exists(99)


def test_a_force_waits_for_the_ledgers_own_journal_only() -> None:
    bench = BookieBench(journal_count=2)
    bench.add([0], ledger_id=7, deferred=True)
    assert bench.force(ledger_id=8) == [Status.OK]
    forced = bench.force(ledger_id=7)
    assert forced == []
    bench.journals[1].sync()
    assert forced == [Status.OK]


def test_a_force_of_a_fenced_ledger_and_in_read_only_mode_works() -> None:
    bench = BookieBench()
    bench.add([0], deferred=True)
    bench.fence()
    forced = bench.force()
    bench.settle()
    assert forced == [Status.OK]


def test_a_force_is_refused_while_the_journal_is_full() -> None:
    bench = BookieBench()
    bench.add([0])
    bench.journal.full = True
    assert bench.force() == [Status.TOO_MANY_REQUESTS]
    assert bench.bookie.in_flight == 1


def test_after_a_failed_sync_a_force_is_not_answered() -> None:
    """I-48: neither yes nor no."""
    bench = BookieBench()
    bench.add([0], deferred=True)
    bench.journal.write()
    forced = bench.force()
    bench.journal.fail(DISK_ERROR)
    assert forced == []
    assert bench.force() == []
    assert bench.bookie.failure is DISK_ERROR


def test_a_stop_answers_forces_in_flight() -> None:
    bench = BookieBench()
    bench.add([0], deferred=True)
    forced = bench.force()
    idle: list[bool] = []
    bench.bookie.on_idle = lambda: idle.append(True)
    bench.bookie.stop()
    assert (forced, idle) == ([], [])
    bench.journal.sync()
    assert (forced, idle) == ([Status.OK], [True])


# --- lists of entries


def test_the_runs_of_a_ledger_are_listed() -> None:
    bench = BookieBench()
    bench.add([0, 1, 2, 5, 7, 8])
    answers = bench.list_entries()
    assert answers == []  # off the reactor
    bench.worker.run_all()
    assert answers == [(Status.OK, [range(3), range(5, 6), range(7, 9)])]
    assert bench.list_entries(ledger_id=99) == [(Status.NO_LEDGER, [])]


def test_a_ledger_that_is_only_fenced_has_no_entries() -> None:
    bench = BookieBench()
    bench.fence()
    bench.settle()
    assert bench.list_entries() == [(Status.OK, [])]


def test_long_ledgers_are_listed_in_pieces_and_runs_go_across(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LISTED_AT_ONCE", 10)
    bench = BookieBench()
    bench.add([*range(5, 25), *range(30, 33), 39])
    answers = bench.list_entries()
    bench.worker.run_next()
    other = bench.list_entries()  # goes on in turn with the first
    bench.worker.run_all()
    assert answers == other == [(Status.OK, [range(5, 25), range(30, 33), range(39, 40)])]


def test_entries_added_after_the_question_are_not_in_the_answer() -> None:
    bench = BookieBench()
    bench.add([0])
    answers = bench.list_entries()
    bench.add([1])
    bench.worker.run_all()
    assert answers == [(Status.OK, [range(1)])]


def test_more_runs_than_fit_into_an_answer_are_an_error() -> None:
    """A list that leaves entries out would deny them."""
    bench = BookieBench()
    bench.add([0, 2, 4, 6])
    few, enough = bench.list_entries(runs_max=3), bench.list_entries(runs_max=4)
    bench.worker.run_all()
    assert few == [(Status.IO_ERROR, [])]
    assert [status for status, _ in enough] == [Status.OK]


def test_an_index_that_cannot_be_read_is_an_error() -> None:
    """I-31."""
    bench = BookieBench()
    bench.add([0])
    bench.storage.cold_error = StorageError("a page of zeros")
    answers = bench.list_entries()
    bench.worker.run_all()
    assert answers == [(Status.IO_ERROR, [])]


def test_listings_are_bounded_and_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LISTINGS_MAX", 1)
    bench = BookieBench()
    bench.add([0])
    first = bench.list_entries()
    assert bench.list_entries() == [(Status.TOO_MANY_REQUESTS, [])]
    bench.worker.run_all()
    assert first == [(Status.OK, [range(1)])]
    again = bench.list_entries()
    bench.worker.run_all()
    assert again == first


def test_a_listing_ends_with_the_bookie_or_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LISTED_AT_ONCE", 1)
    bench = BookieBench()
    bench.add([0, 1, 2])
    bench.settle()
    slow = bench.list_entries()
    bench.clock.advance(ledger.LISTING_S_MAX + 1)
    bench.worker.run_next()
    assert slow == [(Status.IO_ERROR, [])]
    stopped = bench.list_entries()
    idle: list[bool] = []
    bench.bookie.on_idle = lambda: idle.append(True)
    bench.bookie.stop()
    bench.worker.run_all()
    assert (stopped, idle) == ([(Status.IO_ERROR, [])], [True])


def test_a_listing_of_a_bookie_that_failed_is_not_answered() -> None:
    bench = BookieBench()
    bench.add([0])
    answers = bench.list_entries()
    bench.journal.fail(DISK_ERROR)
    bench.worker.run_all()
    assert answers == []


# --- what the real storage holds


def storage_of(fs: FaultyFileSystem) -> LedgerStorage:
    storage = LedgerStorage(fs, LedgerDirectories(["/ledgers"], ["/ledgers"]), StorageSettings())
    storage.open()
    return storage


def test_runs_are_found_in_buffers_snapshots_and_index_alike() -> None:
    """Entries 0 to 1999 and 3000 on the disk, 2500 in a snapshot, 2000 and 5000 in the buffer."""
    fs = FaultyFileSystem()
    storage = storage_of(fs)
    storage.set_master_key(7, KEY)

    def add(*entry_ids: int) -> None:
        storage.add(7, entry_ids, [body_of(7, entry_id) for entry_id in entry_ids])

    add(*range(2000), 3000)
    storage.rotate()
    storage.checkpoint()
    add(2500)
    storage.rotate()
    add(2000, 5000)
    expected = [range(2001), range(2500, 2501), range(3000, 3001), range(5000, 5001)]
    assert storage.held_cold(7, 0, 5001) == expected
    assert storage.held_cold(7, 1000, 2501) == [range(1000, 2001), range(2500, 2501)]
    storage.flush_snapshot()
    assert storage.held_cold(7, 0, 5001) == expected
    storage.rotate()
    storage.checkpoint()
    storage.close()
    again = storage_of(fs)
    assert again.held_cold(7, 0, 5001) == expected
    assert again.held_cold(8, 0, 10) == []
    again.failure = DISK_ERROR
    with pytest.raises(StorageError):
        again.held_cold(7, 0, 10)
    again.close()


@pytest.mark.parametrize(
    ("flags", "runs"),
    [
        (b"", []),
        (b"\0\0", []),
        (b"\1", [range(10, 11)]),
        (b"\1\1\0\1", [range(10, 12), range(13, 14)]),
        (b"\0\1\0\0\1\1", [range(11, 12), range(14, 16)]),
    ],
)
def test_runs_of_flags(flags: bytes, runs: list[range]) -> None:
    assert runs_of(flags, 10) == runs
