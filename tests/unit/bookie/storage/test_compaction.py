"""Rewriting entry logs (I-62): nothing live is ever unreachable, whatever happens, and nothing grows."""

import random
from collections.abc import Callable
from unittest import mock

import pytest

from bookkeeper.bookie.gc.compaction import LogCompaction, find_reference, switch
from bookkeeper.bookie.storage.entry_log.ledgers_map import LogLedgers
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.errors import CorruptRecord
from bookkeeper.model import Status
from tests.support.faulty_filesystem import FaultyFileSystem, PowerCut
from tests.support.stored_ledgers import StoredLedgers


def _filled() -> StoredLedgers:
    """Ledgers 1 to 3 over several closed logs; 2 was deleted."""
    stored = StoredLedgers()
    stored.replay()
    for first in range(0, 60, 20):
        for ledger_id in (1, 2, 3):
            stored.add(ledger_id, first, 20)
        stored.checkpoint()
    stored.delete(2)
    return stored


def _names(fs: FaultyFileSystem) -> list[str]:
    return [name for name in fs.listdir("/a/current") if ".log" in name]


def _size(stored: StoredLedgers) -> int:
    return sum(stored.storage.entry_logs.size_of(log_id) for log_id, _ in stored.storage.entry_logs.closed())


def test_a_rewritten_log_has_the_live_entries_and_the_old_one_is_gone() -> None:
    stored = _filled()
    before = _size(stored)
    closed = stored.storage.entry_logs.closed()
    for log_id, path in closed:
        expected = LogLedgers(stored.fs).read_map(log_id, path)
        assert expected is not None
        copied = stored.compact(log_id, expected=expected)
        assert 0 < copied < 60
        stored.check()
    assert _size(stored) < before * 0.8
    assert not {log_id for log_id, _ in closed}.intersection(stored.storage.entry_logs.log_ids)
    rewritten = stored.storage.entry_logs.closed()
    assert len(rewritten) == len(closed)
    stored.crash()
    stored.replay()
    stored.check()
    for log_id, path in rewritten:
        assert LogLedgers(stored.fs).read_map(log_id, path) is not None, "a rewritten log is sealed, too"


def test_only_the_newest_copy_of_an_entry_is_copied() -> None:
    stored = _filled()
    first = stored.storage.entry_logs.closed()[0][0]
    for entry_id in range(5):
        stored.add(1, entry_id, 1, payload=b"newer!")  # as a repair does
    stored.checkpoint()
    stored.compact(first)
    stored.check()
    stored.crash()
    stored.replay()
    stored.check()


def test_an_entry_written_again_while_its_log_is_rewritten_stays_the_new_one() -> None:
    stored = _filled()
    logs = stored.storage.entry_logs
    old_id, path = logs.closed()[0]
    compaction = LogCompaction(
        stored.fs, logs, stored.storage.ledger_cache, old_id=old_id, old_path=path, expected=None
    )
    compaction.begin("/a")
    for _ in compaction.copy():
        pass
    stored.add(1, 0, 1, payload=b"newer!")
    stored.checkpoint()
    compaction.settle()
    stored.finish(compaction.new_id, old_id)
    stored.check()


def test_a_ledger_deleted_while_its_log_is_rewritten_stays_deleted() -> None:
    """I-63: switching its locations must not bring it back."""
    stored = _filled()
    logs = stored.storage.entry_logs
    old_id, path = logs.closed()[0]
    compaction = LogCompaction(
        stored.fs, logs, stored.storage.ledger_cache, old_id=old_id, old_path=path, expected=None
    )
    compaction.begin("/a")
    for _ in compaction.copy():
        pass
    compaction.settle()
    stored.delete(1)
    stored.finish(compaction.new_id, old_id)
    stored.check()
    stored.crash()
    stored.replay()
    stored.check()


def test_a_power_cut_anywhere_in_a_compaction_loses_nothing_and_leaves_nothing_behind() -> None:
    """I-62. Method: cut at each operation of one compaction, with several choices of what was not synced; start again,
    check everything, let the next round finish, check again, and look for files that nobody needs.
    """
    assert _cut_everywhere(StoredLedgers.compact) >= 15


def test_a_power_cut_anywhere_in_a_compaction_from_the_index_loses_nothing_either() -> None:
    """As above, of a log that cannot be read through."""

    def indexed(stored: StoredLedgers, old_id: int) -> int:
        for _ in stored.storage.scrub().steps(everything=False):  # it makes index pages certain
            pass
        logs = stored.storage.entry_logs
        path = logs.path_of(old_id)
        assert path is not None
        compaction = LogCompaction(
            stored.fs, logs, stored.storage.ledger_cache, old_id=old_id, old_path=path, expected=None
        )
        needed = list(stored.storage.indexed_records().steps(old_id, path, None))
        compaction.begin("/a")
        for _ in compaction.copy_indexed(iter(needed)):
            pass
        compaction.settle()
        stored.finish(compaction.new_id, old_id)
        return compaction.entries

    assert _cut_everywhere(indexed) >= 15


def test_cutting_everywhere_finds_an_old_log_that_goes_before_the_index_is_durable() -> None:
    """The guard above is proven by a compaction without it: steps 5 and 6 without their checkpoint."""

    def hasty(stored: StoredLedgers, old_id: int) -> int:
        with mock.patch.object(StoredLedgers, "checkpoint"):
            return stored.compact(old_id)

    with pytest.raises(AssertionError, match="ledger"):
        _cut_everywhere(hasty)


def _cut_everywhere(compact: Callable[[StoredLedgers, int], int]) -> int:
    cuts = 0
    while True:
        stored = _filled()
        old_id = stored.storage.entry_logs.closed()[0][0]
        stored.fs.cut_power_at(cuts + 1)
        try:
            compact(stored, old_id)
        except PowerCut:
            cuts += 1
        else:
            stored.fs.forget_faults()
            _check_after_cut(stored, old_id, seed=0)
            return cuts
        for seed in range(5):
            _check_after_cut(stored, old_id, seed)


def _check_after_cut(stored: StoredLedgers, old_id: int, seed: int) -> None:
    twin = StoredLedgers()
    twin.journal, twin.mark, twin.entries, twin.keys = [], 0, stored.entries, stored.keys
    twin.fs = stored.fs.clone()
    twin.fs.forget_faults()
    twin.fs.crash(random.Random(seed) if seed else None)
    twin.start()
    twin.replay()
    twin.check()
    for new_id, other_id in list(twin.storage.entry_logs.unfinished):
        twin.finish(new_id, other_id)
        twin.check()
    if old_id in twin.storage.entry_logs.log_ids:
        twin.compact(old_id)
    twin.check()
    names = _names(twin.fs)
    assert not [name for name in names if not name.endswith(".log")], names
    assert f"{old_id:x}.log" not in names
    twin.crash()
    twin.replay()
    twin.check()
    live = sum(len(body) + 4 for body in twin.entries.values())
    assert _size(twin) < 3 * live + 1024 * len(names)


def test_a_log_whose_records_are_not_what_its_map_says_is_not_rewritten() -> None:
    """I-60: a flipped size hides the records behind it."""
    stored = _filled()
    log_id, path = stored.storage.entry_logs.closed()[0]
    expected = LogLedgers(stored.fs).read_map(log_id, path)
    stored.fs.poke(path, 1024 + 3, b"\xf0")
    with pytest.raises(CorruptRecord):
        stored.compact(log_id, expected=expected)
    assert path in [path for _, path in stored.storage.entry_logs.closed()]


def test_where_an_index_page_is_damaged_no_log_is_rewritten_before_it_was_made_anew() -> None:
    """I-31, I-62: an entry whose place on the page was changed was taken for dead, its log deleted, and then denied."""
    stored = _filled()
    log_id, log_path = stored.storage.entry_logs.closed()[0]
    stored.fs.poke("/a/current/0/1/1.idx", 1024 + 8 * 5, b"\0\0\0\x7f")  # another log, they say
    stored.start()
    stored.replay()
    with pytest.raises(CorruptRecord, match="index page 0"):
        stored.compact(log_id)
    assert stored.fs.exists(log_path)
    assert stored.read(1, [5]) == [Status.IO_ERROR]
    list(stored.storage.scrub().steps(everything=True))
    stored.checkpoint()
    assert stored.read(1, [5]) == [stored.entries[1, 5]]
    assert stored.compact(log_id) > 0
    assert stored.read(1, range(60)) == [stored.entries[1, entry_id] for entry_id in range(60)]


def test_the_index_tells_whether_a_log_is_still_needed() -> None:
    stored = _filled()
    closed = [log_id for log_id, _ in stored.storage.entry_logs.closed()]
    found = [list(find_reference(stored.fs, stored.directories, log_id))[-1] for log_id in closed]
    assert all(one is not None for one in found)
    stored.delete(1, 3)
    assert all(not any(find_reference(stored.fs, stored.directories, log_id)) for log_id in closed)


@pytest.mark.parametrize("name", ["switching", "compacted"])
def test_a_start_finishes_what_we_left_and_what_a_genuine_bookie_left(name: str) -> None:
    """I-62. Ours has a name that a genuine bookie does not know: of Apache's it makes a log with a wrong id."""
    stored = _filled()
    logs = stored.storage.entry_logs
    old_id, path = logs.closed()[0]
    compaction = LogCompaction(
        stored.fs, logs, stored.storage.ledger_cache, old_id=old_id, old_path=path, expected=None
    )
    compaction.begin("/a")
    for _ in compaction.copy():
        pass
    compaction.settle()
    new_id = compaction.new_id
    second = f"/a/current/{new_id:x}.log.{old_id:x}."
    assert [each for each in _names(stored.fs) if "compacted" in each] == []
    stored.fs.rename(second + "switching", second + name)
    stored.fs.unlink(f"/a/current/{new_id:x}.log")
    stored.fs.sync_dir("/a/current")
    stored.crash()
    stored.replay()
    assert stored.storage.entry_logs.unfinished == [(new_id, old_id)]
    stored.check()
    stored.finish(new_id, old_id)
    stored.check()
    assert not stored.fs.exists(second + name)
    assert not stored.fs.exists(path)
    assert stored.fs.exists(f"/a/current/{new_id:x}.log")


def test_a_step_of_the_switch_is_bounded_in_records_and_in_bytes() -> None:
    """It is a turn of the storage worker, which writes entries, too: large entries must not make it a long one."""
    stored = StoredLedgers(settings=StorageSettings(memtable_bytes_max=1 << 26))
    stored.replay()
    stored.add(1, 0, 40, payload=b"x" * 150_000)
    stored.add(2, 0, 3000)
    stored.checkpoint()
    stored.storage.entry_logs.roll()
    logs = stored.storage.entry_logs
    old_id, path = logs.closed()[0]
    compaction = LogCompaction(
        stored.fs, logs, stored.storage.ledger_cache, old_id=old_id, old_path=path, expected=None
    )
    compaction.begin("/a")
    for _ in compaction.copy():
        pass
    compaction.settle()
    new_path = logs.path_of(compaction.new_id)
    assert new_path is not None
    steps = list(
        switch(stored.fs, stored.storage.ledger_cache, new_id=compaction.new_id, new_path=new_path, old_id=old_id)
    )
    assert sum(steps) == 3040
    assert max(steps) <= 1000
    assert steps[:5] == [7] * 5
