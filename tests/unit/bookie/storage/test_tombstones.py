"""What is remembered of ledgers that were deleted (I-04), and what a disk may do to it."""

import contextlib
import random
from collections.abc import Iterable
from typing import Any
from unittest import mock

import pytest

from bookkeeper.bookie.gc import tombstones as fmt
from bookkeeper.bookie.gc.tombstone_file import TombstoneFile
from bookkeeper.bookie.gc.tombstones import Tombstone, TombstoneBook, TombstoneKind
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.clock import SteadyDate
from bookkeeper.errors import NoWritableDisk
from bookkeeper.filesystem import OpenMode
from tests.support.faulty_filesystem import FaultyFileSystem, PowerCut

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
PATH = "/a/current/tombstones"
DELETED, MOVED = TombstoneKind.DELETED, TombstoneKind.MOVED


class Disk:
    """A file over a disk that may be cut off, and a clock."""

    def __init__(self, *directories: str) -> None:
        self.fs = FaultyFileSystem()
        self.dirs = LedgerDirectories(directories or ("/a",))
        for directory in self.dirs.ledger_dirs:
            self.fs.make_dirs(f"{directory}/current")
        self.now_ms = 1_700_000_000_000

    def open(self) -> TombstoneFile:
        file = TombstoneFile(self.fs, self.dirs, lambda: self.now_ms, lambda: self.now_ms)
        file.open()
        return file

    def size(self) -> int:
        file = self.fs.open(PATH, OpenMode.READ)
        try:
            return file.size()
        finally:
            file.close()


def test_a_record_has_32_bytes_and_is_never_in_two_sectors() -> None:
    data = fmt.encode(Tombstone(0x1122334455667788, MOVED, 0x18BCFE56800))
    assert data.hex() == "707954530200000011223344556677880000018bcfe5680000000000" + data[-4:].hex()
    assert len(data) == 32
    assert 512 % len(data) == 0
    assert fmt.decode_all(data) == ([Tombstone(0x1122334455667788, MOVED, 0x18BCFE56800)], [])


def test_every_flipped_byte_of_a_record_is_found() -> None:
    data = fmt.encode(Tombstone(7, DELETED, 5))
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            assert fmt.decode_all(data + bytes(flipped) + data)[1] == [32]


def put(book: TombstoneBook, tombstones: Iterable[Tombstone]) -> int:
    """As the file does; how many older ones had to go."""
    book.put(tombstones)
    if not book.should_merge:
        return 0
    columns = book.merged()
    book.replace(columns)
    return columns.surplus


def expire(book: TombstoneBook, now_ms: int) -> int:
    """As the file does; how many went."""
    before = len(book)
    left = book.unexpired(now_ms)
    if left is not None:
        book.replace(left)
    return before - len(book)


def test_the_book_is_a_dictionary_with_an_end() -> None:
    """Against a dictionary, over random puts, merges and expiries."""
    rng = random.Random(3)
    book, twin = TombstoneBook(), dict[int, tuple[TombstoneKind, int]]()
    now_ms = 100 * DAY_MS
    for _ in range(60):
        now_ms += rng.randrange(HOUR_MS, 12 * HOUR_MS)
        gone = [Tombstone(rng.randrange(3000), rng.choice([DELETED, MOVED]), now_ms) for _ in range(rng.randrange(400))]
        put(book, gone)
        twin.update((one.ledger_id, (one.kind, one.deleted_ms)) for one in gone)
        if rng.random() < 0.3:
            before = len(twin)
            twin = {
                ledger_id: known
                for ledger_id, known in twin.items()
                if known[1] // HOUR_MS >= (now_ms - fmt.KEPT_S * 1000) // HOUR_MS
            }
            assert expire(book, now_ms) == before - len(twin)
        assert len(book) == len(twin)
        for ledger_id in range(0, 3000, 7):
            assert book.get(ledger_id) == (twin[ledger_id][0] if ledger_id in twin else None)


def test_beyond_the_bound_the_oldest_go() -> None:
    book = TombstoneBook(count_max=10)
    assert put(book, (Tombstone(ledger_id, DELETED, ledger_id * HOUR_MS) for ledger_id in range(10))) == 0
    assert put(book, [Tombstone(99, DELETED, 50 * HOUR_MS)]) == 1
    assert book.get(0) is None
    assert book.get(1) is DELETED
    assert book.get(99) is DELETED


def test_tombstones_outlive_a_power_cut_from_the_moment_they_were_reported() -> None:
    disk = Disk()
    file = disk.open()
    file.add([(1, DELETED), (2, MOVED)])
    file.add([(3, DELETED)])
    disk.fs.crash()
    again = disk.open()
    assert [again.get(ledger_id) for ledger_id in (1, 2, 3, 4)] == [DELETED, MOVED, DELETED, None]


def test_a_cut_anywhere_in_an_append_leaves_all_earlier_tombstones() -> None:
    for number in range(1, 12):
        for seed in range(6):
            disk = Disk()
            file = disk.open()
            file.add([(1, DELETED)])
            disk.fs.cut_power_at(number)
            reported = [1]
            with contextlib.suppress(PowerCut):
                file.add([(ledger_id, DELETED) for ledger_id in range(100, 140)])
                reported += range(100, 140)
            disk.fs.crash(random.Random(seed))
            again = disk.open()
            assert all(again.get(ledger_id) is DELETED for ledger_id in reported)
            again.add([(7, MOVED)])
            disk.fs.crash()
            once_more = disk.open()
            assert once_more.get(7) is MOVED
            assert all(once_more.get(ledger_id) is DELETED for ledger_id in reported)


def test_damaged_records_are_dropped_and_the_others_kept() -> None:
    disk = Disk()
    disk.open().add([(ledger_id, DELETED) for ledger_id in range(5)])
    file = disk.fs.open(PATH, OpenMode.UPDATE)
    file.pwrite(b"\xff", 2 * 32 + 9)
    file.sync()
    file.close()
    again = disk.open()
    assert [again.get(ledger_id) for ledger_id in range(5)] == [DELETED, DELETED, None, DELETED, DELETED]
    assert disk.size() == 4 * 32


def test_old_tombstones_leave_memory_and_file() -> None:
    disk = Disk()
    file = disk.open()
    file.add([(ledger_id, DELETED) for ledger_id in range(100)])
    disk.now_ms += 8 * DAY_MS
    file.add([(500, DELETED)])
    file.tidy()
    assert (file.get(5), file.get(500), len(file)) == (None, DELETED, 1)
    assert disk.size() == 32
    assert disk.open().get(500) is DELETED


def test_a_clock_step_forward_while_the_bookie_runs_expires_no_tombstone() -> None:
    disk = Disk()
    seconds = 1000.0
    steady = SteadyDate(lambda: disk.now_ms, lambda: seconds)
    file = TombstoneFile(disk.fs, disk.dirs, lambda: disk.now_ms, steady)
    file.open()
    file.add([(1, DELETED)])
    disk.now_ms += 8 * DAY_MS
    file.tidy()
    assert file.get(1) is DELETED
    disk.now_ms -= 9 * DAY_MS
    file.tidy()
    assert file.get(1) is DELETED
    seconds += 8 * 86400
    disk.now_ms += 9 * DAY_MS
    file.tidy()
    assert file.get(1) is None


def test_a_full_directory_is_passed_by_and_when_all_are_full_nothing_is_deleted() -> None:
    disk = Disk("/a", "/b")
    file = disk.open()
    disk.fs.quota_bytes = disk.fs.used_bytes
    with pytest.raises(NoWritableDisk, match="tombstones"):
        file.add([(1, DELETED)])
    assert file.get(1) is None
    disk.fs.quota_bytes = None
    file.add([(1, DELETED)])
    assert disk.open().get(1) is DELETED


def test_the_file_is_bounded_also_where_more_are_deleted_than_can_be_remembered() -> None:
    """No tombstone grows old then; the file would grow until the bookie refused to read it at its next start."""
    disk = Disk()
    with mock.patch.object(fmt, "TOMBSTONES_MAX", 100):
        file = disk.open()
        file._book = TombstoneBook(count_max=100)  # noqa: SLF001
        for first in range(0, 5000, 50):
            file.add([(ledger_id, DELETED) for ledger_id in range(first, first + 50)])
            file.tidy()
            disk.now_ms += HOUR_MS // 10
            assert disk.size() <= 2 * 150 * fmt.RECORD_SIZE
    assert len(file) == 100
    assert disk.open().get(4999) is DELETED


def test_a_file_of_which_nothing_is_remembered_is_emptied_and_then_left_alone() -> None:
    disk = Disk()
    file = disk.open()
    file.tidy()
    file.add([(7, DELETED)])
    disk.now_ms += 8 * DAY_MS
    file.tidy()
    assert disk.size() == 0
    before = disk.fs.counts.copy()
    file.tidy()
    assert disk.fs.counts == before


def test_the_book_is_the_newest_of_each_ledger_whatever_is_put_and_expired() -> None:
    rng = random.Random(3)
    book, expected = TombstoneBook(), dict[int, int]()
    now_ms = 1_700_000_000_000
    with mock.patch.object(fmt, "_RECENT_MAX", 20):
        for _ in range(400):
            now_ms += rng.randrange(6 * HOUR_MS)
            ledger_ids = [rng.randrange(100) for _ in range(rng.randrange(5))]
            put(book, (Tombstone(ledger_id, DELETED, now_ms) for ledger_id in ledger_ids))
            expected.update(dict.fromkeys(ledger_ids, now_ms // HOUR_MS))
            if rng.random() < 0.3:
                expire(book, now_ms)
                oldest = (now_ms - fmt.KEPT_S * 1000) // HOUR_MS
                expected = {ledger_id: hour for ledger_id, hour in expected.items() if hour >= oldest}
            assert {each.ledger_id: each.deleted_ms // HOUR_MS for each in book} == expected
            assert len(book) == len(expected)


def test_the_oldest_go_as_a_sort_by_hour_would_have_it_and_a_few_more_than_must() -> None:
    rng = random.Random(9)
    book = TombstoneBook(count_max=1024)
    hours = {ledger_id: rng.randrange(50) for ledger_id in range(3000)}
    known: dict[int, int] = {}
    for ledger_id, hour in hours.items():
        known[ledger_id] = hour
        lost = put(book, [Tombstone(ledger_id, DELETED, hour * HOUR_MS)])
        assert lost in (0, 1 + 1024 // 256)
        left = {each.ledger_id: each.deleted_ms // HOUR_MS for each in book}
        gone = known.keys() - left.keys()
        assert len(gone) == lost
        assert not gone or max(known[each] for each in gone) <= min(left.values())
        known = left


def test_nobody_waits_for_a_book_that_is_put_in_order() -> None:
    """The reactor asks for tombstones at each keyed request, and waits for the lock: millions are not gone through
    while it is held, neither when they expire nor when they are too many.
    """
    disk = Disk()
    file = disk.open()
    file._book = TombstoneBook(count_max=8000)  # noqa: SLF001
    held: list[bool] = []
    chosen = fmt._chosen  # noqa: SLF001

    def watched(*args: Any) -> Any:
        held.append(file._lock.locked())  # noqa: SLF001
        return chosen(*args)

    with mock.patch.object(fmt, "_chosen", watched):
        for first in range(0, 9000, 1000):
            file.add([(ledger_id, DELETED) for ledger_id in range(first, first + 1000)])
        disk.now_ms += 8 * DAY_MS
        file.tidy()
    assert held == [False, False]
    assert len(file) == 0
