"""Replay: complete, idempotent, and able to tell a torn tail from damage."""

import contextlib
import dataclasses
import errno

import pytest

from bookkeeper.bookie.journal.files import list_journals
from bookkeeper.bookie.journal.format import (
    GROUP_RECORD_SIZE,
    HEADER_SIZE,
    entry_record,
    file_name,
)
from bookkeeper.bookie.journal.replay import replay, scan_file
from bookkeeper.errors import CorruptRecord, StorageError, UnknownFormatVersion
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import LogMark
from tests.support.faulty_filesystem import FaultyFileSystem, Op, PowerCut
from tests.support.journals import BARE, DIRECTORY, NOTHING, SMALL, RunningJournal, State, new_disk, replayed

FIRST_ID = 1000000
FIRST_GROUP = 1024  # behind the header and the empty group every file begins with


def path_of(journal_id: int = FIRST_ID) -> str:
    return f"{DIRECTORY}/{file_name(journal_id)}"


def three_groups() -> tuple[FaultyFileSystem, list[int]]:
    """One file with three groups of two entries each; offsets where the groups begin, and the end."""
    fs = new_disk()
    running = RunningJournal(fs)
    offsets = [running.journal.mark().offset]
    for group in range(3):
        record = b"".join(
            entry_record(bytes.fromhex(f"{5:016x}{2 * group + i:016x}") + bytes([65 + group]) * 500) for i in range(2)
        )
        running.add_record(record)
        running.worker.run_all()
        offsets.append(running.journal.mark().offset)
    assert offsets == [1024, 1024 + 1536, 1024 + 3072, 1024 + 4608]
    return fs, offsets


ALL = [(5, entry_id) for entry_id in range(6)]


# --- complete and idempotent


def test_everything_comes_back():
    """I-53."""
    fs = new_disk()
    running = RunningJournal(fs)
    running.write_all_kinds()
    running.write([(1, 0), (2, 0), (1, 1)])
    state, end = replayed(fs)
    assert sorted(state.bodies) == [(1, 0), (1, 1), (2, 0), (7, 0)]
    assert state.keys == {7: b"k" * 20}
    assert state.fenced == {7}
    assert state.lacs == {7: b"packet"}
    assert end == running.journal.mark()


def test_entries_come_in_batches_by_ledger():
    fs = new_disk()
    running = RunningJournal(fs)
    running.write([(entry_id % 2, entry_id) for entry_id in range(100)])
    calls = []

    class Counting(State):
        def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
            calls.append((ledger_id, list(entry_ids)))

    replay(fs, DIRECTORY, NOTHING, Counting())
    assert calls == [(0, list(range(0, 100, 2))), (1, list(range(1, 100, 2)))]


def test_a_fence_comes_after_the_entries_written_before_it():
    fs = new_disk()
    running = RunningJournal(fs)
    running.write([(7, 40)])
    running.write_all_kinds()
    events = []

    class Ordered(State):
        def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
            events.extend(entry_ids)

        def fence(self, ledger_id: int) -> None:
            events.append("fence")

        def master_key(self, ledger_id: int, key: bytes) -> None:
            events.append("key")

    replay(fs, DIRECTORY, NOTHING, Ordered())
    assert events == [40, "key", "fence", 0]


def test_the_last_of_two_bodies_wins():
    fs = new_disk()
    running = RunningJournal(fs)
    running.add(1, 0, b"old")
    running.add(1, 0, b"new")
    running.worker.run_all()
    assert replayed(fs)[0].bodies[1, 0].endswith(b"new")


def test_large_entries_and_many_groups_span_windows():
    fs = new_disk()
    running = RunningJournal(fs)
    for entry_id in range(12):
        running.add(1, entry_id, bytes([entry_id]) * (900_000 if entry_id % 2 else 5_000_000))
        running.worker.run_all()
    state, end = replayed(fs)
    assert state.order == [(1, entry_id) for entry_id in range(12)]
    assert all(state.bodies[1, entry_id][-1] == entry_id for entry_id in range(12))
    assert end == running.journal.mark()


def test_replay_starts_at_the_mark():
    fs, offsets = three_groups()
    assert replayed(fs, LogMark(FIRST_ID, offsets[1]))[0].order == ALL[2:]
    assert replayed(fs, LogMark(FIRST_ID, offsets[3]))[0].order == []


def test_replaying_twice_changes_nothing():
    """I-53."""
    fs, offsets = three_groups()
    state, end = replayed(fs)
    before = state.values()
    assert replay(fs, DIRECTORY, NOTHING, state) == end == LogMark(FIRST_ID, offsets[3])
    assert state.values() == before


def test_an_empty_directory_replays_to_nothing():
    assert replayed(new_disk())[1] == NOTHING


def test_restarts_without_writes_do_not_lengthen_the_replay():
    """I-57: the mark moves to the true end, also when nothing is written."""
    fs, _ = three_groups()
    mark = NOTHING
    counts = []
    for _ in range(4):
        state, end = replayed(fs, mark)
        counts.append(len(state.order))
        running = RunningJournal(fs, BARE, end)
        mark = running.journal.mark()
        running.stop()
    assert counts == [6, 0, 0, 0]


# --- torn tails


def test_every_cut_of_the_last_group_starts_with_the_groups_before(rng):
    """I-51: all cut points; the tail is cleaned, and stays no obstacle once the file is not the last."""
    good, offsets = three_groups()
    size = offsets[3] - offsets[2]
    for cut in sorted({*range(90), *range(500, 560), *range(1000, 1100), size - 1}):
        fs = good.clone()
        last = fs.contents(path_of())[offsets[2] : offsets[3]]
        fs.poke(path_of(), offsets[2] + cut, bytes(size - cut))
        state, end = replayed(fs)
        if last[cut:].strip(b"\0"):
            assert (state.order, end.offset) == (ALL[:4], offsets[2])
            assert not fs.durable_contents(path_of())[offsets[2] :].strip(b"\0")
        else:
            assert (state.order, end.offset) == (ALL, offsets[3])
        again = RunningJournal(fs, BARE, end)
        again.write([(6, 6)])
        fs.crash(rng)
        assert replayed(fs)[0].order == [*state.order, (6, 6)]


def test_every_short_file_ends_at_its_last_whole_group():
    good, offsets = three_groups()
    for size in (*range(offsets[2], offsets[2] + 80), offsets[3] - 500, offsets[3] - 1):
        fs = good.clone()
        file = fs.open(path_of(), OpenMode.UPDATE)
        file.truncate(size)
        file.sync()
        state, end = replayed(fs)
        whole = size >= offsets[2] + GROUP_RECORD_SIZE + 2 * 520
        assert state.order == (ALL if whole else ALL[:4])
        assert replayed(fs, end)[0].order == [], "the end is a mark from which the next replay can start"


def test_cuts_inside_the_last_group_with_later_sectors_written_are_torn_too():
    """A disk may write sectors in any order."""
    good, offsets = three_groups()
    for sector in range(offsets[2], offsets[3], 512):
        fs = good.clone()
        fs.poke(path_of(), sector, bytes(512))
        state, end = replayed(fs)
        assert (state.order, end.offset) == (ALL[:4], offsets[2])
        assert not fs.durable_contents(path_of())[offsets[2] :].strip(b"\0")


def test_the_same_cuts_in_an_earlier_group_refuse_to_start():
    """I-51: a valid group follows, so acknowledged records are lost."""
    good, offsets = three_groups()
    for group in (0, 1):
        start, end = offsets[group], offsets[group + 1]
        for cut in (0, 1, 3, 4, 20, 60, 67, 68, 80, 511, 512, 1023, 1100):
            fs = good.clone()
            fs.poke(path_of(), start + cut, bytes(end - start - cut))
            with pytest.raises(CorruptRecord) as caught:
                replayed(fs)
            assert caught.value.path == path_of()
            assert caught.value.offset == start
            assert f"offset {end}" in caught.value.why


def test_a_torn_tail_in_a_file_that_is_not_the_last_refuses_to_start():
    """I-51: the next file exists only because the last group of this one was durable."""
    good, offsets = three_groups()
    RunningJournal(good, BARE, LogMark(FIRST_ID, offsets[3]))
    for damage in (b"\0" * 1536, b"x", b"\xff" * 100):
        fs = good.clone()
        fs.poke(path_of(), offsets[2], damage)
        with pytest.raises(CorruptRecord, match=f"synced up to {offsets[3]}"):
            replayed(fs)


def test_a_group_zeroed_at_the_mark_is_damage_not_an_end():
    """I-51: before a position known to be synced."""
    fs, offsets = three_groups()
    fs.poke(path_of(), offsets[1], bytes(offsets[3] - offsets[1]))
    with pytest.raises(CorruptRecord, match="mark"):
        replayed(fs, LogMark(FIRST_ID, offsets[2]))
    assert replayed(fs, LogMark(FIRST_ID, offsets[1]))[1].offset == offsets[1]


def test_a_file_shorter_than_the_mark_refuses_to_start():
    fs, offsets = three_groups()
    with pytest.raises(CorruptRecord, match="the mark says"):
        replayed(fs, LogMark(FIRST_ID, offsets[3] + 512))


def test_a_mark_between_two_groups_refuses_to_start_and_clears_nothing():
    """A damaged mark must not turn good groups into a torn tail."""
    fs, offsets = three_groups()
    before = fs.contents(path_of())
    with pytest.raises(CorruptRecord, match="mark"):
        replayed(fs, LogMark(FIRST_ID, offsets[2] + 512))
    assert fs.contents(path_of()) == before


def test_a_mark_just_behind_the_end_is_apaches_and_fine():
    """A genuine bookie that replayed our file leaves its mark 4 bytes behind the end."""
    fs, offsets = three_groups()
    running = RunningJournal(fs, SMALL, LogMark(FIRST_ID, offsets[3]))
    running.write([(1, 1)])
    mark = running.journal.mark()
    state, end = replayed(fs, LogMark(mark.journal_id, mark.offset + 4))
    assert (state.order, end) == ([], mark)


@pytest.mark.parametrize("settings", [BARE, SMALL], ids=["bare", "zeros ahead"])
def test_every_flipped_byte_is_detected_or_harmless(settings):
    """I-50: never is an acknowledged record dropped or changed in silence, except in the last, unproven group."""
    good = new_disk()
    running = RunningJournal(good, settings)
    running.write_all_kinds()
    proven = {(7, 0), (1, 0)}
    running.write([(1, 0)])
    running.write([(1, 1)])
    expected = replayed(good.clone())[0]
    end = running.journal.mark().offset
    outcomes = {"refused": 0, "same": 0, "torn": 0}
    for at in range(min(end + 600, len(good.contents(path_of())))):
        for mask in (0x01, 0x80, 0xFF):
            fs = good.clone()
            fs.poke(path_of(), at, bytes([fs.contents(path_of())[at] ^ mask]))
            try:
                state, _ = replayed(fs)
            except (CorruptRecord, UnknownFormatVersion):
                outcomes["refused"] += 1
                continue
            assert (state.keys, state.fenced, state.lacs) == (expected.keys, expected.fenced, expected.lacs)
            assert proven <= set(state.bodies)
            assert all(expected.bodies[entry] == found for entry, found in state.bodies.items())
            outcomes["same" if state.values() == expected.values() else "torn"] += 1
    assert outcomes["refused"] > 3 * (512 + 68)
    assert 0 < outcomes["torn"] <= 3 * (68 + 43)
    assert outcomes["same"] > 0


def test_after_an_orderly_stop_every_flipped_byte_of_the_last_group_is_detected():
    """I-51: the closing group proves the one before durable."""
    fs = new_disk()
    running = RunningJournal(fs)
    running.write([(1, 0)])
    start, end = FIRST_GROUP, FIRST_GROUP + GROUP_RECORD_SIZE + 43
    running.stop()
    for at in range(start, end):
        damaged = fs.clone()
        damaged.poke(path_of(), at, bytes([damaged.contents(path_of())[at] ^ 0x10]))
        with pytest.raises(CorruptRecord):
            replayed(damaged)


def test_a_flipped_length_byte_in_mid_journal_refuses_to_start():
    """T15 (I-50, I-51)."""
    good, offsets = three_groups()
    for record in (offsets[0], offsets[0] + GROUP_RECORD_SIZE, offsets[1], offsets[1] + GROUP_RECORD_SIZE + 520):
        for byte in range(4):
            for mask in (0x01, 0x40, 0x80):
                fs = good.clone()
                at = record + byte
                fs.poke(path_of(), at, bytes([fs.contents(path_of())[at] ^ mask]))
                with pytest.raises(CorruptRecord):
                    replayed(fs)


def test_a_damaged_first_group_does_not_pass_for_a_foreign_file():
    good, _ = three_groups()
    for at in range(HEADER_SIZE, HEADER_SIZE + GROUP_RECORD_SIZE):
        fs = good.clone()
        fs.poke(path_of(), at, b"\xa5")
        if fs.contents(path_of()) == good.contents(path_of()):
            continue
        with pytest.raises(CorruptRecord):
            replayed(fs)


@pytest.mark.parametrize("version", [2, 6])
def test_a_first_group_of_zeros_does_not_end_the_file(version):
    """The rule for files of genuine bookies must not hide ours."""
    fs, _ = three_groups()
    fs.poke(path_of(), 4, version.to_bytes(4, "big"))
    fs.poke(path_of(), HEADER_SIZE, bytes(512))
    with pytest.raises(CorruptRecord, match=f"follows at offset {FIRST_GROUP}"):
        replayed(fs)


# --- crashes during replay and cleaning


def test_crashes_during_replay_change_nothing(rng):
    """I-53: power cut at every operation of the replay of a torn journal, again and again."""
    good, offsets = three_groups()
    good.poke(path_of(), offsets[2] + 600, b"torn" * 100)
    for n in range(1, 6):
        fs = good.clone()
        for _ in range(4):
            fs.cut_power_at(n)
            with contextlib.suppress(PowerCut):
                replayed(fs)
            fs.crash(rng)
        state, end = replayed(fs)
        assert (state.order, end) == (ALL[:4], LogMark(FIRST_ID, offsets[2]))


def test_what_only_the_page_cache_held_is_durable_after_replay():
    """A killed process leaves an unsynced group in the cache: once replayed, it must survive a power cut."""
    fs, offsets = three_groups()
    contents = fs.contents(path_of())
    cached = new_disk()
    file = cached.open(path_of(), OpenMode.CREATE_EXCLUSIVE)
    file.pwrite(contents[: offsets[2]], 0)
    file.sync()
    cached.sync_dir(DIRECTORY)
    file.pwrite(contents[offsets[2] :], offsets[2])
    state, end = replayed(cached)
    assert state.order == ALL
    RunningJournal(cached, BARE, end)
    cached.crash()
    assert replayed(cached)[0].order == ALL


# --- missing files


def test_what_a_failed_sync_left_in_the_page_cache_is_durable_after_replay():
    """I-48, T14: the kernel took the pages for clean, so the replay's sync alone would store nothing."""
    disk = new_disk()
    running = RunningJournal(disk, SMALL)
    running.write([(1, 0)])
    disk.fail_nth(Op.SYNC, 1, errno.EIO, path=".txn", drop_dirty=True)
    running.write([(1, 1)])
    assert len(running.failures) == 1
    state, end = replayed(disk)  # a new process, the machine goes on
    assert (1, 1) in state.bodies
    RunningJournal(disk, SMALL, after=end).write([(1, 2)])
    disk.crash()
    assert set(replayed(disk)[0].bodies) == {(1, 0), (1, 1), (1, 2)}
    assert set(replayed(disk, end)[0].bodies) == {(1, 2)}


def test_a_missing_marked_file_refuses_to_start():
    """I-56."""
    fs, _ = three_groups()
    for journal_id in (FIRST_ID - 1, FIRST_ID + 1, 1):
        with pytest.raises(StorageError, match="missing") as caught:
            replayed(fs, LogMark(journal_id, 512))
        assert file_name(journal_id) in str(caught.value)


def test_a_missing_file_in_the_middle_refuses_to_start():
    """I-56: the file after it says that it was there."""
    fs = new_disk()
    mark = NOTHING
    for entry_id in range(3):
        running = RunningJournal(fs, BARE, mark)
        running.write([(1, entry_id)])
        mark = running.journal.mark()
    fs.unlink(path_of(FIRST_ID + 1))
    with pytest.raises(StorageError, match="missing"):
        replayed(fs)
    assert replayed(fs, LogMark(FIRST_ID + 2, 512))[0].order == [(1, 2)]


def test_lost_marks_do_not_hide_that_files_were_deleted():
    """I-56: with the marks gone, the oldest file still says what came before it."""
    fs = new_disk()
    running = RunningJournal(fs, dataclasses.replace(SMALL, file_size_max=4096))
    for entry_id in range(20):
        running.write([(1, entry_id)])
    ids = list_journals(fs, DIRECTORY)
    running.journal.collect(LogMark(ids[-1], 1024))
    running.worker.run_all()
    assert replayed(fs, LogMark(ids[-1], 1024))[0].order
    with pytest.raises(StorageError, match="missing"):
        replayed(fs, NOTHING)


# --- reading one file


def test_scan_file_reads_only():
    fs, offsets = three_groups()
    fs.poke(path_of(), offsets[2] + 70, b"\xff")
    before, counts = fs.contents(path_of()), fs.counts.copy()
    state = State()
    scan = scan_file(fs, DIRECTORY, FIRST_ID, 0, state)
    assert (scan.ours, scan.version, scan.end, scan.record_count) == (True, 6, offsets[2], 4)
    assert scan.torn is not None
    assert scan.synced == (0, 0)
    assert fs.contents(path_of()) == before
    assert {op for op in fs.counts if fs.counts[op] > counts[op]} == {
        op for op in fs.counts if op.value in ("open", "read", "close")
    }
