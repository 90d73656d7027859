"""Bytes at the journal's end that are no whole group may be damage: they are kept before they are cleared (I-51)."""

import contextlib
import errno
import os
import struct
from pathlib import Path

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.journal import torn_records as torn_records_module
from bookkeeper.bookie.journal import torn_tails as module
from bookkeeper.bookie.journal.files import list_journals
from bookkeeper.bookie.journal.format import ALIGNMENT, entry_record, journal_id_of, master_key_record
from bookkeeper.bookie.journal.torn_records import (
    LEDGERS_TOLD_MAX,
    NOTHING_TOLD,
    RANGES_TOLD_MAX,
    records_told,
    torn_records,
)
from bookkeeper.bookie.journal.torn_tails import (
    KEPT_MAX,
    ROOM_LEFT,
    place_of,
    read_set_aside,
    set_aside,
    set_aside_name,
)
from bookkeeper.cli.main import main
from bookkeeper.errors import CorruptRecord
from bookkeeper.filesystem import OpenMode, RealFileSystem
from bookkeeper.model import LogMark
from tests.support.faulty_filesystem import CHANGING, FaultyFile, FaultyFileSystem, Op, PowerCut
from tests.support.journals import DIRECTORY, RunningJournal, State, new_disk, replayed
from tests.unit.bookie.journal.test_journal_replay import ALL, FIRST_ID, path_of, three_groups


def damaged() -> tuple[FaultyFileSystem, int, bytes]:
    """A journal whose last group has a changed byte in the body of its first entry; where it begins, and its bytes."""
    fs, offsets = three_groups()
    fs.poke(path_of(), offsets[2] + 300, b"?")
    return fs, offsets[2], fs.contents(path_of())[offsets[2] : offsets[3]]


def said(fs: FaultyFileSystem) -> str:
    """What a start on these files says of the end."""
    with capturedLogs() as events:
        replayed(fs)
    (line,) = [line for event in events if "no whole group" in (line := formatEvent(event) or "")]
    return line


def kept(offset: int) -> str:
    return f"{DIRECTORY}/{set_aside_name(FIRST_ID, offset)}"


def test_the_bytes_are_kept_and_the_log_claims_no_more_than_is_known() -> None:
    fs, offset, tail = damaged()
    with capturedLogs() as events:
        state, end = replayed(fs)
    assert (state.order, end) == (ALL[:4], LogMark(FIRST_ID, offset)), "what is answered is as it was"
    assert fs.durable_contents(kept(offset)) == tail
    assert not any(fs.contents(path_of())[offset:])
    (line,) = [line for event in events if "no whole group" in (line := formatEvent(event) or "")]
    assert f"{path_of()} ends at offset {offset} with {len(tail)} bytes" in line
    assert "entries 4 to 5 of ledger 5" in line
    assert "nobody was told that it is durable" in line
    assert "acknowledged entries may be among them" in line
    assert f"kept in {kept(offset)}: `bookkeeper shell readjournal {kept(offset)}`" in line
    assert "`bookkeeper why ledger 5`" in line
    fs.crash()
    assert fs.contents(kept(offset)) == tail


def test_what_was_set_aside_is_no_journal_and_harms_no_replay() -> None:
    fs, offset, _ = damaged()
    _, end = replayed(fs)
    RunningJournal(fs, after=end).write([(6, 0)])
    name = set_aside_name(FIRST_ID, offset)
    assert journal_id_of(name) is None
    assert not name.endswith(".txn")
    assert FIRST_ID in list_journals(fs, DIRECTORY)
    state, _ = replayed(fs)
    assert (6, 0) in state.bodies


@pytest.mark.parametrize("seed", range(3))
def test_at_no_power_cut_are_the_bytes_in_neither_file(seed: int, rng: object) -> None:
    del seed
    good, offset, tail = damaged()
    for n in range(1, 14):
        fs = good.clone()
        for _ in range(3):
            fs.cut_power_at(n)
            with contextlib.suppress(PowerCut):
                replayed(fs)
            fs.crash(rng)  # type: ignore[arg-type] # a random.Random
            in_journal = fs.contents(path_of())[offset : offset + len(tail)]
            assert in_journal == tail or fs.contents(kept(offset)) == tail
        fs.forget_faults()
        assert replayed(fs)[0].order == ALL[:4]
        assert fs.contents(kept(offset)) == tail
        assert [path for path in fs.paths() if path.endswith(".tmp")] == []


class Killed(BaseException):
    """A process that ends here; what it wrote stays in the cache."""


def killed_at(fs: FaultyFileSystem, n: int) -> None:
    """A start that is killed before its n-th changing operation."""
    count = 0

    def before(op: Op, _: str) -> None:
        nonlocal count
        count += op in CHANGING
        if count >= n:
            raise Killed

    fs.on_operation = before
    with contextlib.suppress(Killed):
        replayed(fs)
    fs.on_operation = None
    fs.end_processes()


@pytest.mark.parametrize("n", range(1, 14))
def test_nor_when_a_start_was_killed_before_the_power_cut(n: int) -> None:
    """The next start found the name in the cache, and cleared before it was durable."""
    good, offset, tail = damaged()
    for m in range(1, 14):
        fs = good.clone()
        killed_at(fs, n)
        fs.cut_power_at(m)
        with contextlib.suppress(PowerCut):
            replayed(fs)
        fs.crash()
        in_journal = fs.contents(path_of())[offset : offset + len(tail)]
        assert in_journal == tail or fs.contents(kept(offset)) == tail, (n, m)


def test_what_a_crash_left_unfinished_is_removed_by_the_next_start() -> None:
    fs, _, _ = damaged()
    left_over = f"{DIRECTORY}/{set_aside_name(3, 4096)}.tmp"
    fs.open(left_over, OpenMode.CREATE_EXCLUSIVE).close()
    replayed(fs)
    assert not fs.exists(left_over)


def test_other_bytes_under_the_name_are_not_taken_for_a_copy() -> None:
    for other in (b"", b"other", None):
        fs, offset, tail = damaged()
        file = fs.open(kept(offset), OpenMode.CREATE_EXCLUSIVE)
        file.pwrite(tail[:301] + b"!" + tail[302:] if other is None else other, 0)
        file.close()
        with pytest.raises(CorruptRecord, match="holds other bytes; move it away"):
            replayed(fs)
        assert fs.contents(path_of())[offset : offset + len(tail)] == tail


@pytest.mark.parametrize("cleared", [slice(0, 100), slice(700, 1400), slice(0, None)])
def test_what_a_start_that_died_has_cleared_of_it_already_is_no_difference(cleared: slice) -> None:
    fs, offset, tail = damaged()
    whole = fs.clone()
    gone = bytearray(tail)
    gone[cleared] = bytes(len(gone[cleared]))
    file = whole.open(kept(offset), OpenMode.CREATE_EXCLUSIVE)
    file.pwrite(tail, 0)
    file.close()
    whole.poke(path_of(), offset, bytes(gone))
    assert replayed(whole)[0].order == ALL[:4]
    assert whole.contents(kept(offset)) == tail


def test_the_oldest_and_the_newest_are_kept() -> None:
    """A bookie that fails again and again does not push out what was damaged first."""
    fs = new_disk()
    for number in range(KEPT_MAX + 7):
        assert set_aside(fs, DIRECTORY, 5 + number, b"torn", 1024) is not None
    fs.crash()
    left = sorted(place for path in fs.paths() if (place := place_of(os.path.basename(path))) is not None)
    half = KEPT_MAX // 2
    assert left == [(5 + number, 1024) for number in [*range(half), *range(half + 7, KEPT_MAX + 7)]]


def test_what_was_just_kept_is_never_the_one_that_goes() -> None:
    fs, offset, tail = damaged()
    for number in range(2 * KEPT_MAX):
        fs.open(f"{DIRECTORY}/{set_aside_name(FIRST_ID + 9 + number, 512)}", OpenMode.CREATE_EXCLUSIVE).close()
    replayed(fs)
    assert fs.contents(kept(offset)) == tail
    assert sum(".torn" in path for path in fs.paths()) == KEPT_MAX


def test_a_file_that_cannot_be_removed_keeps_no_bookie_from_starting() -> None:
    fs, _, _ = damaged()
    for number in range(KEPT_MAX):
        fs.open(f"{DIRECTORY}/{set_aside_name(number, 512)}", OpenMode.CREATE_EXCLUSIVE).close()
    fs.fail_nth(Op.UNLINK, 2, errno.EPERM, path=".torn")  # the first is of the .tmp
    assert replayed(fs)[0].order == ALL[:4]
    fs, _, _ = damaged()
    for number in range(KEPT_MAX):
        fs.open(f"{DIRECTORY}/{set_aside_name(number, 512)}", OpenMode.CREATE_EXCLUSIVE).close()
    fs.fail_nth(Op.UNLINK, 2, errno.EIO, path=".torn")
    with pytest.raises(OSError, match="Input/output"):
        replayed(fs)


def test_a_group_that_is_whole_when_it_is_read_again_is_not_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong reading, of a disk that is right."""
    fs, offsets = three_groups()
    pread = FaultyFile.pread

    def wrong(self: FaultyFile, size: int, offset: int) -> bytes:
        data, at = pread(self, size, offset), offsets[2] + 300 - offset
        if not self._writable and 0 <= at < len(data):  # the scan's handle, not the one that clears
            return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        return data

    monkeypatch.setattr(FaultyFile, "pread", wrong)
    with pytest.raises(CorruptRecord, match="start once more"):
        replayed(fs)
    monkeypatch.undo()
    assert replayed(fs)[0].order == ALL


def test_what_is_longer_than_any_group_is_kept_in_part_and_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_SIZE_MAX", 1000)
    fs, offset, tail = damaged()
    with capturedLogs() as events:
        replayed(fs)
    assert fs.contents(kept(offset)) == tail[:1000]
    assert any("the first 1000 of them are kept" in (formatEvent(event) or "") for event in events)


def test_a_full_disk_keeps_no_bookie_from_starting() -> None:
    fs, offset, _ = damaged()
    fs.fail_nth(Op.WRITE, 1, errno.ENOSPC, path=".torn")
    with capturedLogs() as events:
        state, _ = replayed(fs)
    assert state.order == ALL[:4]
    assert not [path for path in fs.paths() if ".torn" in path]
    assert any("there is no room to keep them" in (formatEvent(event) or "") for event in events)
    assert not any(fs.contents(path_of())[offset:])


def test_a_disk_that_is_nearly_full_keeps_its_room_for_the_start() -> None:
    fs, offset, tail = damaged()
    for left, is_kept in ((ROOM_LEFT - 1, False), (ROOM_LEFT, True)):
        disk = fs.clone()
        disk.quota_bytes = disk.used_bytes + len(tail) + left
        assert ("there is no room to keep them" in said(disk)) is not is_kept
        assert disk.exists(kept(offset)) is is_kept


def test_where_the_name_finds_no_room_nothing_is_left() -> None:
    fs, _, _ = damaged()
    fs.fail_nth(Op.SYNC_DIR, 1, errno.ENOSPC)
    assert "there is no room to keep them" in said(fs)
    assert not [path for path in fs.paths() if ".torn" in path]


def test_any_other_error_of_the_disk_clears_nothing() -> None:
    """I-48."""
    fs, offset, tail = damaged()
    fs.fail_nth(Op.SYNC, 1, errno.EIO, path=".torn")
    with pytest.raises(OSError, match="Input/output"):
        replayed(fs)
    assert fs.contents(path_of())[offset : offset + len(tail)] == tail


def test_the_records_are_read_as_far_as_they_make_sense() -> None:
    fs, offset, tail = damaged()
    replayed(fs)
    state = State()
    found = read_set_aside(fs, kept(offset), state)
    assert sorted(state.bodies) == ALL[4:]
    assert (found.journal_id, found.offset, found.size, found.read_size) == (FIRST_ID, offset, len(tail), len(tail))
    assert found.intact == 0
    second = tail.index(bytes.fromhex(f"{5:016x}{5:016x}")) - 4
    assert records_told(tail[:second] + b"\xff" * 4 + tail[second + 4 :], FIRST_ID)[0].endswith("entry 4 of ledger 5")
    assert records_told(tail[: second + 100], FIRST_ID)[0].endswith("entry 4 of ledger 5"), "cut off"
    assert records_told(b"\xff" * 600, FIRST_ID) == records_told(b"", FIRST_ID) == (NOTHING_TOLD, None)
    with pytest.raises(CorruptRecord, match="its name"):
        read_set_aside(fs, f"{DIRECTORY}/5.txn", state)


def test_records_that_cannot_be_one_end_the_reading() -> None:
    head = bytes(68)
    for ledger_id, entry_id in ((-1, 0), (5, -3)):
        record = b"\0\0\0\x18" + struct.pack(">qq", ledger_id, entry_id) + b"payload!"
        assert list(torn_records(head + record + entry_record(struct.pack(">qq", 6, 1)), FIRST_ID)) == []


def test_groups_behind_the_first_are_made_out_too() -> None:
    """A page of 4 KiB holds several small ones."""
    fs, offsets = three_groups()
    fs.poke(path_of(), offsets[1], bytes(ALIGNMENT))
    fs.poke(path_of(), offsets[2] + 300, b"?")
    line = said(fs)
    assert "entries 4 to 5 of ledger 5" in line, "of the group before not even the head can be made out"
    state = State()
    read_set_aside(fs, kept(offsets[1]), state)
    assert sorted(state.bodies) == ALL[4:]
    fs = new_disk()
    running = RunningJournal(fs)
    for number in range(6):
        start = running.journal.mark().offset
        running.write([(number, 7)])
        fs.poke(path_of(), start + 100, b"\xee")
    assert "entry 7 of ledger 0, entry 7 of ledger 1, entry 7 of ledger 2" in said(fs)


def test_the_zeros_that_end_the_last_record_belong_to_it() -> None:
    fs = new_disk()
    running = RunningJournal(fs)
    start = running.journal.mark().offset
    running.add_record(entry_record(struct.pack(">qq", 5, 0) + b"A" * 100 + bytes(2048)))
    running.worker.run_all()
    fs.poke(path_of(), start + 100, b"?")
    assert "entry 0 of ledger 5" in said(fs)


def test_a_key_that_makes_no_sense_hides_no_record_behind_it(tmp_path: Path) -> None:
    data = bytes(68) + master_key_record(5, b"k" * 20)[:-22] + b"\0\0\xff\xff" + bytes(18)
    data += entry_record(struct.pack(">qq", 6, 1) + b"body")
    path = tmp_path / set_aside_name(1, 512)
    path.write_bytes(data)
    state = State()
    read_set_aside(RealFileSystem(), str(path), state)
    assert sorted(state.bodies) == [(6, 1)]


def test_what_is_told_is_bounded_and_its_counts_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    def tail(*names: tuple[int, int]) -> bytes:
        return bytes(68) + b"".join(entry_record(struct.pack(">qq", *name)) for name in names)

    many = records_told(tail(*[(1, 2 * number) for number in range(20)]), 1)[0]
    assert f" and {20 - RANGES_TOLD_MAX} more ranges of ledger 1" in many
    ledgers = records_told(tail(*[(number, 0) for number in range(20)]), 1)[0]
    assert f"and of {20 - LEDGERS_TOLD_MAX} more ledgers" in ledgers
    monkeypatch.setattr(torn_records_module, "_RANGES_MAX", 10)
    monkeypatch.setattr(torn_records_module, "_LEDGERS_MAX", 12)
    many = records_told(tail(*[(1, 2 * number) for number in range(20)]), 1)[0]
    assert " and at least 2 more ranges of ledger 1" in many
    ledgers = records_told(tail(*[(number, 0) for number in range(20)]), 1)[0]
    assert "and of at least 4 more ledgers" in ledgers
    key = records_told(bytes(68) + master_key_record(5, b"k" * 20), 1)[0]
    assert key.endswith("no entry but the key, the fence or an explicit LAC of ledger 5")


def test_nothing_is_set_aside_where_the_journal_ends_clean() -> None:
    fs, _ = three_groups()
    replayed(fs)
    assert not [path for path in fs.paths() if ".torn" in path]


def test_readjournal_prints_what_was_set_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, offset, tail = damaged()
    assert offset % ALIGNMENT == 0
    path = tmp_path / set_aside_name(FIRST_ID, offset)
    path.write_bytes(tail)
    assert main(["shell", "readjournal", str(path)]) == 0
    printed = capsys.readouterr()
    assert len([line for line in printed.out.splitlines() if line.startswith("entry:")]) == 2
    assert f"stood at offset {offset} of {FIRST_ID:x}.txn and were taken for no whole group; 2 records" in printed.err
    assert "no group in them has a right checksum" in printed.err
    assert "may have been acknowledged" in printed.err.replace("\n", " ")
    assert main(["shell", "readjournal", str(tmp_path / set_aside_name(1, 2))]) != 0
    assert "there is no file" in capsys.readouterr().err
    good, offsets = three_groups()
    whole = tmp_path / set_aside_name(FIRST_ID, offsets[1])
    whole.write_bytes(good.contents(path_of())[offsets[1] : offsets[3]])
    assert main(["shell", "readjournal", str(whole)]) == 0
    assert "2 groups of them right by the checksum" in capsys.readouterr().err
