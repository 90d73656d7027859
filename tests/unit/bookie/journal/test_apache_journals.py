"""Journal files of genuine bookies, versions 1 to 6: Apache's rules, and what is damage all the same."""

import struct

import pytest

from bookkeeper.bookie.journal.format import (
    ALIGNMENT,
    entry_record,
    explicit_lac_record,
    fence_record,
    file_name,
    master_key_record,
    padding,
)
from bookkeeper.bookie.journal.replay import replay
from bookkeeper.errors import CorruptRecord, InvalidArgument, StorageError, UnknownFormatVersion
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import LogMark
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.journals import BARE, DIRECTORY, NOTHING, RunningJournal, State, body, new_disk, replayed

KEY = b"k" * 20


def head(version: int) -> bytes:
    if version == 1:
        return b""
    start = b"BKLG" + struct.pack(">i", version)
    return start.ljust(512, b"\0") if version >= 5 else start


def disk_with(*files: bytes, first_id: int = 1) -> FaultyFileSystem:
    fs = new_disk()
    for number, data in enumerate(files):
        file = fs.open(f"{DIRECTORY}/{file_name(first_id + number)}", OpenMode.CREATE_EXCLUSIVE)
        file.pwrite(data, 0)
        file.sync()
    fs.sync_dir(DIRECTORY)
    return fs


def flushes(*groups: bytes, version: int = 6) -> bytes:
    """A file in which each group was flushed by itself: padded in version 5 and later."""
    data = head(version)
    for group in groups:
        data += group
        if version >= 5:
            data += padding(len(data))
    return data


def entries(*entry_ids: int, size: int = 100) -> bytes:
    return b"".join(entry_record(body(3, entry_id, b"e" * size)) for entry_id in entry_ids)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("zeros", [0, 3, 4, 512, 5 * 1024 * 1024])
def test_entries_of_all_versions_come_back(version, zeros):
    data = flushes(entries(0, 1), entries(2), version=version)
    fs = disk_with(data + bytes(zeros))
    state, end = replayed(fs)
    assert state.order == [(3, 0), (3, 1), (3, 2)]
    assert end == LogMark(1, len(data))


def test_meta_records_of_version_6_come_back():
    fs = disk_with(flushes(master_key_record(3, KEY), entries(0), fence_record(3) + explicit_lac_record(3, b"lac")))
    state, _ = replayed(fs)
    assert (state.keys, state.fenced, state.lacs) == ({3: KEY}, {3}, {3: b"lac"})


@pytest.mark.parametrize(
    ("record", "since"),
    [(master_key_record(3, KEY), 3), (fence_record(3), 4), (explicit_lac_record(3, b"lac"), 6)],
)
@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_a_meta_record_is_refused_in_files_older_than_itself(record, since, version):
    fs = disk_with(flushes(record, version=version))
    if version < since:
        with pytest.raises(CorruptRecord, match=f"version {version}"):
            replayed(fs)
    else:
        assert replayed(fs)[1].offset == len(flushes(record, version=version))


def test_an_entry_id_beyond_what_the_bookie_takes_is_told_with_its_place_and_a_remedy():
    """The highest one it takes comes back; nothing of the next one does."""

    class Bounded(State):
        entry_id_max = 1000

    state = Bounded()
    replay(disk_with(flushes(entries(0, 1000))), DIRECTORY, NOTHING, state)
    assert state.order == [(3, 0), (3, 1000)]
    data = flushes(entries(0), entries(1) + entries(1001))
    offset = len(flushes(entries(0)) + entries(1))
    with pytest.raises(StorageError) as refused:
        replay(disk_with(data), DIRECTORY, NOTHING, Bounded())
    text = str(refused.value)
    assert f"{DIRECTORY}/{file_name(1)} has a record of ledger 3 at offset {offset} " in text
    assert "entry id 1001 is above 1000" in text
    assert "Start Apache's bookie" in text
    assert "bookieformat" in text


@pytest.mark.parametrize("kind", ["master_key", "explicit_lac"])
def test_a_meta_record_that_the_bookie_cannot_take_is_told_with_its_place(kind):
    class Refusing(State):
        def refuse(self, ledger_id: int, content: bytes) -> None:
            raise InvalidArgument(f"{len(content)} bytes are too many")

        master_key = explicit_lac = refuse

    record = {"master_key": master_key_record, "explicit_lac": explicit_lac_record}[kind](3, b"x" * 300)
    data = flushes(entries(0), record)
    with pytest.raises(
        StorageError, match=rf"of ledger 3 at offset {len(flushes(entries(0)))} .*300 bytes are too many"
    ):
        replay(disk_with(data), DIRECTORY, NOTHING, Refusing())


def test_unknown_negative_entry_ids_are_ignored():
    unknown = entry_record(struct.pack(">qq", 3, -0x7777) + b"whatever")
    state, _ = replayed(disk_with(flushes(entries(0) + unknown + entries(1))))
    assert state.order == [(3, 0), (3, 1)]


@pytest.mark.parametrize("version", [0, 7, 99, -1])
def test_unknown_versions_are_refused(version):
    fs = disk_with(b"BKLG" + struct.pack(">i", version) + bytes(504) + entries(0))
    with pytest.raises(UnknownFormatVersion, match=str(version)):
        replayed(fs)


def test_records_and_paddings_across_windows():
    groups = [entries(number, size=300_000) for number in range(40)]
    groups.insert(20, entries(100, size=6_000_000))
    data = flushes(*groups)
    state, end = replayed(disk_with(data))
    assert len(state.order) == 41
    assert end.offset == len(data)


@pytest.mark.parametrize("cut", range(1, 136))
def test_a_record_cut_off_at_the_end_of_the_file_ends_it(cut):
    """Also inside the length field (BK-166)."""
    data = flushes(entries(0), version=4) + entries(1)
    state, end = replayed(disk_with(data[: len(data) - cut]))
    assert state.order == [(3, 0)]
    assert end.offset == len(flushes(entries(0), version=4))


def test_files_that_are_not_the_last_end_by_the_same_rule():
    """A genuine bookie leaves its torn tails where they are."""
    torn = flushes(entries(0)) + entries(1)[:50]
    state, end = replayed(disk_with(torn, flushes(entries(2))))
    assert state.order == [(3, 0), (3, 2)]
    assert end.journal_id == 2


@pytest.mark.parametrize("size", [-1, -0x101, -(2**31), 1, 15, 2**31 - 1, 65 * 1024 * 1024])
def test_an_impossible_length_before_more_data_is_damage(size):
    """I-50; -1 and the like crashed Apache's bookie (#2176 to #2178)."""
    start = len(flushes(entries(0)))
    data = flushes(entries(0), struct.pack(">i", size) + entries(1)[4:], entries(2))
    with pytest.raises(CorruptRecord) as caught:
        replayed(disk_with(data))
    assert caught.value.offset == start
    assert str(size) in caught.value.why


@pytest.mark.parametrize("size", [-1, 7, 2**31 - 1])
def test_an_impossible_length_with_nothing_behind_it_is_a_torn_tail(size):
    data = flushes(entries(0)) + struct.pack(">i", size)
    assert replayed(disk_with(data + bytes(600)))[0].order == [(3, 0)]


def test_a_flipped_length_that_runs_past_the_end_is_damage_when_flushes_follow():
    """T15 for files without checksums."""
    start = len(flushes(entries(0)))
    data = bytearray(flushes(entries(0), entries(1), entries(2, 3), entries(4)))
    data[start + 1] ^= 0x10  # one MiB more
    with pytest.raises(CorruptRecord) as caught:
        replayed(disk_with(bytes(data)))
    assert caught.value.offset == start
    assert f"follow at {start + ALIGNMENT}" in caught.value.why


def test_negative_padding_is_damage():
    data = flushes(entries(0)) + struct.pack(">ii", -0x100, -8) + entries(1)
    with pytest.raises(CorruptRecord, match="padding"):
        replayed(disk_with(data))


def test_padding_in_old_versions_is_damage():
    data = flushes(entries(0), version=4) + padding(8 + len(entries(0))) + entries(1)
    with pytest.raises(CorruptRecord, match="-256"):
        replayed(disk_with(data))


def test_a_master_key_record_with_a_wrong_inner_length_is_damage():
    record = bytearray(master_key_record(3, KEY))
    record[23] = 19
    with pytest.raises(CorruptRecord, match="inside"):
        replayed(disk_with(flushes(bytes(record))))


def test_replay_starts_at_apaches_mark():
    first = len(flushes(entries(0)))
    fs = disk_with(flushes(entries(0), entries(1)), flushes(entries(2)))
    state, _ = replayed(fs, LogMark(1, first))
    assert state.order == [(3, 1), (3, 2)]


def test_replay_leaves_apaches_files_as_they_are():
    data = flushes(entries(0)) + entries(1)[:70]
    fs = disk_with(data)
    replayed(fs)
    assert fs.contents(f"{DIRECTORY}/1.txn") == data


def test_our_journal_goes_on_behind_apaches():
    data = flushes(entries(0)) + entries(1)[:70]
    fs = disk_with(data)
    _, end = replayed(fs)
    running = RunningJournal(fs, BARE, end)
    assert running.journal.mark().journal_id == 2
    running.write([(4, 0)])
    fs.crash()
    assert replayed(fs)[0].order == [(3, 0), (4, 0)]


def test_a_genuine_bookie_can_read_our_files():
    """Our file through Apache's rules alone: the group records are skipped, everything else is there."""
    fs = new_disk()
    running = RunningJournal(fs)
    running.write_all_kinds()
    running.write([(1, 0), (1, 1)])
    running.stop()
    data = fs.contents(f"{DIRECTORY}/{file_name(running.journal.mark().journal_id)}")
    found = []
    at = 512
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if size == 0:
            break
        if size == -0x100:
            (size,) = struct.unpack_from(">i", data, at + 4)
            at += 8 + size
            continue
        assert size > 0
        found.append(struct.unpack_from(">qq", data, at + 4))
        at += 4 + size
    assert at == len(data)
    known = [ids for ids in found if ids[1] != -0x10000]
    assert known == [(7, -0x1000), (7, -0x2000), (7, -0x8000), (7, 0), (1, 0), (1, 1)]
    assert len(found) - len(known) == 6  # the first, one for each of four groups, the last


def test_visitor_errors_reach_the_caller():
    class Refusing(State):
        def fence(self, ledger_id: int) -> None:
            raise OSError("the disk of the index is gone")

    with pytest.raises(OSError, match="index is gone"):
        replay(disk_with(flushes(fence_record(3))), DIRECTORY, NOTHING, Refusing())
