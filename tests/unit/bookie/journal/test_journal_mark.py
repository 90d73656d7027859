"""lastMark: bytes, atomic and monotone writing, and what a damaged one means."""

import contextlib
import errno

import pytest

from bookkeeper.bookie.journal.mark import decode_mark, encode_mark, mark_name, read_marks, write_marks
from bookkeeper.errors import CorruptRecord, StorageError
from bookkeeper.filesystem import OpenMode, replace_durable
from bookkeeper.model import LogMark
from tests.support.faulty_filesystem import FaultyFileSystem, Op, PowerCut

DIRECTORIES = ["/d1/current", "/d2/current", "/d3/current"]
OLD, NEW, NEWER = LogMark(7, 512), LogMark(7, 4096), LogMark(8, 0)


@pytest.fixture
def fs() -> FaultyFileSystem:
    disk = FaultyFileSystem()
    for directory in DIRECTORIES:
        disk.make_dirs(directory)
    return disk


def write_raw(fs: FaultyFileSystem, directory: str, data: bytes) -> None:
    replace_durable(fs, f"{directory}/lastMark", data)


def test_a_mark_begins_with_apaches_bytes_and_apaches_own_is_read():
    encoded = encode_mark(LogMark(0x18BCFE56800, 4096))
    assert encoded[:16].hex() == "0000018bcfe568000000000000001000"
    assert decode_mark(encoded, "x") == LogMark(0x18BCFE56800, 4096)
    assert decode_mark(bytes.fromhex("0000018bcfe568000000000000001000"), "x") == LogMark(0x18BCFE56800, 4096)


def test_no_flipped_bit_of_a_mark_passes():
    """I-55: one that points further than it did would leave out what was acknowledged."""
    encoded = encode_mark(LogMark(0x18BCFE56800, 4096))
    for bit in range(8 * len(encoded)):
        flipped = bytearray(encoded)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecord, match="/d/lastMark"):
            decode_mark(bytes(flipped), "/d/lastMark")


@pytest.mark.parametrize("data", [b"", bytes(15), bytes(24), bytes(17), b"\xff" * 16, bytes(8) + b"\x80" + bytes(7)])
def test_other_bytes_are_no_mark(data):
    with pytest.raises(CorruptRecord, match="/d/lastMark"):
        decode_mark(data, "/d/lastMark")


def test_one_journal_has_the_plain_name_and_several_have_numbers():
    assert mark_name(0, 1) == "lastMark"
    assert [mark_name(index, 2) for index in range(2)] == ["lastMark.0", "lastMark.1"]


def test_no_mark_anywhere_is_the_beginning(fs):
    assert read_marks(fs, DIRECTORIES, "lastMark") == LogMark(0, 0)


def test_the_greatest_mark_counts(fs):
    write_raw(fs, DIRECTORIES[0], encode_mark(OLD))
    write_raw(fs, DIRECTORIES[2], encode_mark(NEWER))
    assert read_marks(fs, DIRECTORIES, "lastMark") == NEWER


@pytest.mark.parametrize("size", range(16))
def test_a_cut_mark_beside_a_good_one_is_passed_over(fs, size):
    write_raw(fs, DIRECTORIES[0], encode_mark(NEW)[:size])
    write_raw(fs, DIRECTORIES[1], encode_mark(OLD))
    assert read_marks(fs, DIRECTORIES, "lastMark") == OLD


@pytest.mark.parametrize("damaged", [1, 3])
def test_nothing_but_damaged_marks_refuses_to_start(fs, damaged):
    for directory in DIRECTORIES[:damaged]:
        write_raw(fs, directory, b"short")
    with pytest.raises(StorageError, match="no readable mark") as caught:
        read_marks(fs, DIRECTORIES, "lastMark")
    assert all(f"{directory}/lastMark" in str(caught.value) for directory in DIRECTORIES[:damaged])


def test_a_mark_that_cannot_be_read_is_not_taken_for_absent(fs):
    write_raw(fs, DIRECTORIES[0], encode_mark(NEW))
    fs.fail_nth(Op.READ, 1, errno.EIO)
    with pytest.raises(OSError, match="lastMark"):
        read_marks(fs, DIRECTORIES, "lastMark")


def test_a_written_mark_is_durable_everywhere(fs):
    assert write_marks(fs, DIRECTORIES, "lastMark", NEW) == NEW
    fs.crash()
    for directory in DIRECTORIES:
        assert fs.contents(f"{directory}/lastMark") == encode_mark(NEW)


def test_nested_checkpoints_never_move_the_mark_back(fs):
    """T10 (I-55): the inner checkpoint finishes first with a newer mark; the outer one then writes an older mark."""
    assert write_marks(fs, DIRECTORIES, "lastMark", NEWER) == NEWER
    writes = fs.counts[Op.WRITE]
    write_marks(fs, DIRECTORIES, "lastMark", NEW)
    assert fs.counts[Op.WRITE] == writes
    fs.crash()
    assert read_marks(fs, DIRECTORIES, "lastMark") == NEWER


def test_the_returned_mark_is_the_one_that_all_directories_reach(fs):
    """I-54, I-56: files may go below the lowest mark only."""
    write_raw(fs, DIRECTORIES[1], encode_mark(NEWER))
    assert write_marks(fs, DIRECTORIES, "lastMark", NEW) == NEW


def test_a_damaged_mark_is_replaced_by_the_next_checkpoint(fs):
    write_raw(fs, DIRECTORIES[1], b"")
    assert write_marks(fs, DIRECTORIES, "lastMark", NEW) == NEW
    assert fs.contents(f"{DIRECTORIES[1]}/lastMark") == encode_mark(NEW)


def test_a_leftover_of_a_crash_is_no_obstacle(fs):
    fs.open(f"{DIRECTORIES[0]}/lastMark.tmp", OpenMode.CREATE_EXCLUSIVE).pwrite(b"old rubbish", 0)
    assert write_marks(fs, DIRECTORIES, "lastMark", NEW) == NEW


@pytest.mark.parametrize("op", [Op.CREATE, Op.WRITE, Op.SYNC, Op.RENAME, Op.SYNC_DIR])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_any_error_stops_the_checkpoint(fs, op, n):
    """I-55."""
    write_marks(fs, DIRECTORIES, "lastMark", OLD)
    fs.fail_nth(op, n, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        write_marks(fs, DIRECTORIES, "lastMark", NEW)
    fs.crash()
    assert read_marks(fs, DIRECTORIES, "lastMark") in (OLD, NEW)


def test_power_cut_at_every_operation_leaves_the_old_or_the_new_mark(rng):
    """I-55: in each directory, whatever subset of the unsynced survives."""
    for n in range(1, 14):
        fs = FaultyFileSystem()
        for directory in DIRECTORIES:
            fs.make_dirs(directory)
        write_marks(fs, DIRECTORIES, "lastMark", OLD)
        fs.cut_power_at(n)
        finished = False
        with contextlib.suppress(PowerCut):
            write_marks(fs, DIRECTORIES, "lastMark", NEW)
            finished = True
        fs.crash(rng)
        for directory in DIRECTORIES:
            assert fs.contents(f"{directory}/lastMark") in (
                [encode_mark(NEW)] if finished else [encode_mark(OLD), encode_mark(NEW)]
            )
