"""Bytes at the journal's end that are no whole group may be damage: they are kept before they are cleared (I-51)."""

import contextlib
import errno
import os
from pathlib import Path

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.journal import set_aside as module
from bookkeeper.bookie.journal.files import list_journals
from bookkeeper.bookie.journal.format import ALIGNMENT, journal_id_of
from bookkeeper.bookie.journal.set_aside import (
    KEPT_MAX,
    place_of,
    read_set_aside,
    records_told,
    set_aside,
    set_aside_name,
)
from bookkeeper.cli.main import main
from bookkeeper.errors import CorruptRecord
from bookkeeper.model import LogMark
from tests.support.faulty_filesystem import FaultyFileSystem, Op, PowerCut
from tests.support.journals import DIRECTORY, RunningJournal, State, new_disk, replayed
from tests.unit.bookie.journal.test_journal_replay import ALL, FIRST_ID, path_of, three_groups


def damaged() -> tuple[FaultyFileSystem, int, bytes]:
    """A journal whose last group has a changed byte in the body of its first entry; where it begins, and its bytes."""
    fs, offsets = three_groups()
    fs.poke(path_of(), offsets[2] + 300, b"?")
    return fs, offsets[2], fs.contents(path_of())[offsets[2] : offsets[3]].rstrip(b"\0")


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
    assert "nobody was told that it is stored" in line
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


def test_the_newest_few_are_kept() -> None:
    fs = new_disk()
    for number in range(KEPT_MAX + 3):
        assert set_aside(fs, DIRECTORY, 5 + number, b"torn", 1024) is not None
    fs.crash()
    left = sorted(place for path in fs.paths() if (place := place_of(os.path.basename(path))) is not None)
    assert left == [(8 + number, 1024) for number in range(KEPT_MAX)]


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
    assert (found.journal_id, found.offset, found.size) == (FIRST_ID, offset, len(tail))
    second = tail.index(bytes.fromhex(f"{5:016x}{5:016x}")) - 4
    assert records_told(tail[:second] + b"\xff" * 4 + tail[second + 4 :])[0].endswith("entry 4 of ledger 5")
    assert records_told(b"\xff" * 600) == ("no record can be made out there", None)
    assert records_told(b"") == ("no record can be made out there", None)
    with pytest.raises(CorruptRecord, match="its name"):
        read_set_aside(fs, f"{DIRECTORY}/5.txn", state)


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
    said = capsys.readouterr()
    assert len([line for line in said.out.splitlines() if line.startswith("entry:")]) == 2
    assert f"stood at offset {offset} of {FIRST_ID:x}.txn and were no whole group; 2 records" in said.err
    assert "may have been acknowledged" in said.err.replace("\n", " ")
    assert main(["shell", "readjournal", str(tmp_path / set_aside_name(1, 2))]) != 0
    assert "there is no file" in capsys.readouterr().err
