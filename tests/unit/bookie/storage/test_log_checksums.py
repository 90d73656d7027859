"""Side files of entry logs: what they cover, what they find, and that nothing depends on them (I-31, I-67)."""

import random
from array import array

import crc32c
import pytest

from bookkeeper.bookie.integrity.checksums import entry_log as fmt
from bookkeeper.bookie.integrity.checksums.entry_log_files import PageCheck
from bookkeeper.bookie.storage.entry_log.format import decode_header
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.model import Status
from tests.support.faulty_filesystem import FaultyFileSystem, Op
from tests.support.stored_ledgers import StoredLedgers

LARGE_LOGS = StorageSettings(
    memtable_bytes_max=1 << 20, open_files_max=16, entry_log_bytes_max=50 << 10, block_bytes=16 << 10
)


def checksums_of(log: bytes, *, whole_only: bool) -> list[int]:
    """The simple twin: what the checksums of a log are."""
    pages = [log[max(at, 1024) : at + 4096] for at in range(0, len(log), 4096)]
    return [crc32c.crc32c(page) for at, page in enumerate(pages) if not whole_only or (at + 1) * 4096 <= len(log)]


def test_checksums_do_not_depend_on_how_the_log_was_appended() -> None:
    rng = random.Random(7)
    for _ in range(300):
        log = bytes(1024)
        pages = fmt.PageChecksums()
        for _ in range(rng.randrange(8)):
            block = rng.randbytes(rng.choice((0, 1, 20, 3071, 3072, 3073, 4096, 8192, rng.randrange(30_000))))
            pages.append(block)
            log += block
        assert pages.size == len(log)
        assert list(pages.crcs) == checksums_of(log, whole_only=True)
        tail = [] if pages.tail is None else [pages.tail]
        assert list(pages.crcs) + tail == checksums_of(log, whole_only=False)


@pytest.mark.parametrize("count", [0, 1, 1015, 1016, 1017, 5000])
def test_blocks_hold_what_was_put_in_and_belong_to_their_place(count: int) -> None:
    crcs = array("I", range(1 << 30, (1 << 30) + count))
    size = max(1024, count * 4096 - 100)
    found: list[int] = []
    blocks = list(fmt.blocks_of(9, crcs, size=size, first_page=0, closed=True))
    assert len(blocks) == max(1, -(-count // fmt.BLOCK_PAGES))
    for number, (offset, data) in enumerate(blocks):
        assert (offset, len(data)) == (number * fmt.BLOCK_SIZE, fmt.BLOCK_SIZE)
        block = fmt.decode_block(data, log_id=9, number=number)
        assert block is not None
        assert block.log_ends == (number == len(blocks) - 1)
        found += block.crcs
        assert fmt.decode_block(data, log_id=8, number=number) is None
        assert fmt.decode_block(data, log_id=9, number=number + 1) is None
    assert found == list(crcs)
    last = fmt.decode_block(blocks[-1][1], log_id=9, number=len(blocks) - 1)
    assert last is not None
    assert last.end == size


def test_no_damaged_byte_of_a_block_passes() -> None:
    ((_, data),) = fmt.blocks_of(3, array("I", [1, 2, 3]), size=9000, first_page=0, closed=True)
    for at in range(len(data)):
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert fmt.decode_block(flipped, log_id=3, number=0) is None
        assert fmt.decode_block(data[:at], log_id=3, number=0) is None


def closed_log() -> StoredLedgers:
    """Log 1 is full and closed, log 2 is being written."""
    stored = StoredLedgers(settings=LARGE_LOGS)
    stored.add(2, 0, 200, payload=b"x" * 300)
    stored.checkpoint()
    assert stored.fs.exists("/a/current/1.crc")
    assert stored.fs.exists("/a/current/2.log")
    return stored


def test_every_damaged_byte_of_a_closed_log_is_found_at_the_read_that_would_serve_it() -> None:
    """I-31, I-67: also inside bodies, where the ids look right."""
    stored = closed_log()
    path = "/a/current/1.log"
    held = stored.fs.contents(path)
    map_offset = decode_header(held, path).map_offset
    rng = random.Random(3)
    whole = stored.read(2, range(200))
    for offset in [*range(1024, 1100), *rng.sample(range(1100, len(held)), 400), len(held) - 1]:
        stored.fs.poke(path, offset, bytes([held[offset] ^ 0x10]))
        stored.start()
        results = stored.read(2, range(200))
        assert all(result == Status.IO_ERROR or result == body for result, body in zip(results, whole, strict=True))
        page = fmt.page_of(offset)
        for damage in stored.storage.damage.all():
            assert (damage.ledger_id, damage.path, damage.offset) == (2, path, fmt.page_start(page))
        assert Status.IO_ERROR in results or offset >= map_offset
        stored.fs.poke(path, offset, held[offset : offset + 1])
    stored.start()
    stored.check()


@pytest.mark.parametrize("nowait", [True, False])
def test_damage_is_found_however_the_entries_are_asked_for(nowait: bool) -> None:
    stored = closed_log()
    stored.fs.nowait = nowait
    stored.fs.poke("/a/current/1.log", 9000, b"?")
    stored.start()
    one_by_one = [stored.read(2, [entry_id])[0] for entry_id in range(200)]
    stored.start()
    assert stored.read(2, range(200)) == one_by_one
    stored.start()
    backwards = list(reversed(range(200)))
    assert stored.read(2, backwards) == one_by_one[::-1]
    bad = one_by_one.count(Status.IO_ERROR)
    assert 10 < bad < 16
    assert len(stored.storage.damage) == 1
    (damage,) = stored.storage.damage.all()
    assert damage.last_entry_id - damage.first_entry_id + 1 == bad
    entry_ids = range(damage.first_entry_id, damage.last_entry_id + 1)
    assert stored.storage.damaged(2, entry_ids) == set(entry_ids)


def test_damage_in_one_log_leaves_others_alone() -> None:
    stored = closed_log()
    stored.add(3, 0, 10)
    stored.checkpoint()
    stored.fs.poke("/a/current/1.log", 1024, bytes(40_000))
    stored.start()
    assert Status.IO_ERROR in stored.read(2, range(200))
    assert stored.read(3, range(10)) == [stored.entries[3, entry_id] for entry_id in range(10)]


def test_a_log_being_written_is_checked_up_to_its_last_whole_page() -> None:
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 100, payload=b"y" * 100)
    stored.flush()
    stored.fs.poke("/a/current/1.log", 5000, b"?")
    results = stored.read(2, range(100))
    assert Status.IO_ERROR in results
    assert results[0] == stored.entries[2, 0]


def test_what_was_synced_is_checked_after_a_kill() -> None:
    """The side file follows the log at each checkpoint; the rest of an unfinished log is read unchecked."""
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 100, payload=b"y" * 100)
    stored.checkpoint()
    stored.start()
    stored.storage.replay_finished()
    stored.fs.poke("/a/current/1.log", 5000, b"?")
    assert Status.IO_ERROR in stored.read(2, range(100))
    stored.fs.unlink("/a/current/1.crc")
    stored.start()
    assert Status.IO_ERROR not in stored.read(2, range(100))


@pytest.mark.parametrize("size", [None, 0, 100, 4095])
def test_a_missing_or_cut_side_file_denies_nothing(size: int | None) -> None:
    stored = closed_log()
    if size is None:
        stored.fs.unlink("/a/current/1.crc")
    else:
        stored.fs.poke("/a/current/1.crc", size, bytes(4096 - size))
    stored.start()
    stored.check()


def test_a_side_file_that_cannot_be_written_is_given_up_and_stops_nothing() -> None:
    """Nothing that was promised depends on it."""
    for op in (Op.CREATE, Op.WRITE, Op.SYNC):
        stored = StoredLedgers(settings=LARGE_LOGS)
        stored.fs.fail_nth(op, 1, 5, path=".crc")
        stored.add(2, 0, 200, payload=b"x" * 300)
        stored.checkpoint()
        assert not stored.fs.exists("/a/current/1.crc")
        stored.check()
        stored.crash()
        stored.replay()
        stored.check()


def test_a_side_file_that_was_given_up_does_not_come_back_after_a_power_cut() -> None:
    """It would end the log before entries that the index names (I-58)."""
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 20)
    stored.checkpoint()
    stored.fs.fail_nth(Op.WRITE, 1, 5, path=".crc")
    stored.add(2, 20, 20)
    stored.checkpoint()
    stored.crash()
    assert not stored.fs.exists("/a/current/1.crc")
    stored.replay()
    stored.check()


def test_what_cannot_be_checked_is_unknown_and_no_duplicate() -> None:
    """I-31, I-69: the side file is there, and its disk fails."""
    stored = closed_log()
    stored.start()
    stored.fs.fail_nth(Op.READ, 1, 5, path="/a/current/1.crc")
    assert stored.read(2, [0]) == [Status.IO_ERROR]
    stored.fs.forget_faults()
    assert stored.read(2, [0]) == [stored.entries[2, 0]]
    stored.check()


def test_a_side_file_without_its_log_is_removed_at_the_start() -> None:
    stored = closed_log()
    fs: FaultyFileSystem = stored.fs
    fs.unlink("/a/current/1.log")
    stored.start()
    assert not fs.exists("/a/current/1.crc")
    assert fs.exists("/a/current/2.crc")


def test_a_page_that_got_whole_after_the_bytes_were_read_is_not_judged_by_them() -> None:
    """Where a log may be checked is asked before it is read; what the writer did since is not in the bytes (I-67)."""
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 60, payload=b"y" * 100)
    stored.flush()
    check = PageCheck(stored.storage.entry_logs.checksums, wait=True)
    limit = check.limit(1)
    before = stored.fs.contents("/a/current/1.log")[4096:]
    stored.add(2, 60, 60, payload=b"y" * 100)
    stored.flush()
    assert 4096 < limit < check.limit(1)
    assert check.bad_pages(1, 4096, before, limit) == []
    stored.storage.entry_logs.roll()
    assert check.bad_pages(1, 4096, before, limit) == []
    assert check.bad_pages(1, 4096, b"?" + before[1:], limit) == [1]
