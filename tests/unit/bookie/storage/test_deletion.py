"""Ledgers out of the storage, and logs out of the directories (I-63, I-64)."""

import random
from unittest import mock

import pytest

from bookkeeper.bookie.gc.tombstones import TombstoneKind
from bookkeeper.bookie.integrity.checksums.index import Rows
from bookkeeper.bookie.process.startup import StorageReplay
from bookkeeper.bookie.storage.entry_log.ledgers_map import LogLedgers
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.errors import NoWritableDisk, StorageError
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import Status
from tests.support.faulty_filesystem import PowerCut
from tests.support.stored_ledgers import StoredLedgers, entry_body


def _filled() -> StoredLedgers:
    """Ledgers 1 to 4, each with entries in several closed logs, everything checkpointed; 2 is fenced."""
    stored = StoredLedgers()
    stored.replay()
    for first in range(0, 60, 20):
        for ledger_id in (1, 2, 3, 4):
            stored.add(ledger_id, first, 20)
        stored.checkpoint()
    stored.fence(2)
    stored.lac(3, 11)
    stored.checkpoint()
    return stored


def test_a_deleted_ledger_is_gone_and_the_others_are_as_before() -> None:
    stored = _filled()
    assert stored.delete(1, 2) == [1, 2]
    assert stored.read(1, [0]) == [Status.NO_LEDGER]
    assert not stored.storage.exists(2)
    stored.check()
    assert (stored.storage.tombstone(1), stored.storage.tombstone(2)) == (None, TombstoneKind.DELETED)
    stored.crash()
    stored.replay()
    stored.check()
    assert stored.storage.tombstone(2) is TombstoneKind.DELETED


def test_a_moved_ledger_leaves_a_tombstone_fenced_or_not() -> None:
    stored = _filled()
    stored.delete(1, moved=True)
    assert stored.storage.tombstone(1) is TombstoneKind.MOVED


def test_a_ledger_that_is_being_written_is_not_deleted() -> None:
    """I-63: neither one in a write buffer, nor one with a location or a fence that no file has yet."""
    stored = _filled()
    stored.add(1, 60, 1)
    assert stored.delete(1) == []
    stored.flush()
    assert stored.delete(1) == []
    stored.fence(3)
    assert stored.delete(3) == []
    stored.checkpoint()
    stored.check()
    assert stored.delete(1, 3) == [1, 3]


def test_a_doomed_ledger_is_absent_and_is_not_created_anew_before_it_is_gone() -> None:
    stored = _filled()
    storage = stored.storage
    assert storage.doom([1]) == [1]
    assert storage.doom([1]) == []
    assert storage.read(1, [0]) == [Status.NO_LEDGER]
    with pytest.raises(StorageError, match="being deleted"):
        storage.set_fenced(1)
    storage.revive([1])  # given up: the files are still there
    stored.check()


def test_a_ledger_may_come_back_after_its_deletion() -> None:
    """A copy that is wanted again (I-66): nothing of the old index file is left in it."""
    stored = _filled()
    stored.delete(1)
    stored.add(1, 5, 3)
    stored.check()
    stored.checkpoint()
    stored.check()
    stored.crash()
    stored.replay()
    stored.check()


def test_a_power_cut_anywhere_in_a_deletion_leaves_each_ledger_whole_or_gone() -> None:
    """I-63, I-04: and one that is gone and was fenced has its tombstone."""
    cuts = 0
    while True:
        stored = _filled()
        before = dict(stored.entries)
        stored.fs.cut_power_at(cuts + 1)
        try:
            stored.delete(1, 2)
        except PowerCut:
            cuts += 1
        else:
            break
        for seed in range(4):
            stored.fs = _copy_of(stored, seed)
            stored.start()
            stored.replay()
            for ledger_id in (1, 2):
                there = stored.storage.exists(ledger_id)
                ids = [entry_id for owner, entry_id in before if owner == ledger_id]
                expected = [before[ledger_id, entry_id] for entry_id in ids]
                assert stored.read(ledger_id, ids) == (expected if there else [Status.NO_LEDGER] * len(ids))
            if not stored.storage.exists(2):
                assert stored.storage.tombstone(2) is TombstoneKind.DELETED
            else:
                assert stored.storage.is_fenced(2)
            stored.delete(1, 2)
            stored.check()
    assert cuts >= 6


def _copy_of(stored: StoredLedgers, seed: int):  # type: ignore[no-untyped-def]
    fs = stored.fs.clone()
    fs.forget_faults()
    fs.crash(random.Random(seed) if seed else None)
    return fs


def test_nothing_is_deleted_while_there_is_no_room_for_a_tombstone() -> None:
    stored = _filled()
    before = dict(stored.entries), set(stored.fenced), dict(stored.keys)
    stored.fs.quota_bytes = stored.fs.used_bytes
    with pytest.raises(NoWritableDisk):
        stored.delete(2)
    stored.fs.quota_bytes = None
    stored.storage.revive([2])
    stored.entries, stored.fenced, stored.keys = before
    stored.check()
    assert stored.storage.failure is None


def test_the_map_of_a_closed_log_says_what_a_scan_finds_and_is_believed_only_while_sealed() -> None:
    """I-60: a log is never judged by a map that may be damaged."""
    stored = _filled()
    logs = LogLedgers(stored.fs)
    closed = stored.storage.entry_logs.closed()
    assert len(closed) >= 2
    for log_id, path in closed:
        found = logs.read_map(log_id, path)
        assert found is not None
        *_, scanned = LogLedgers(stored.fs).scan(log_id, path)
        assert scanned is not None
        assert found.same_as(scanned)
        assert logs.is_sealed(log_id)
    log_id, path = closed[0]
    file = stored.fs.open(path, OpenMode.READ)
    at = file.size() - 1
    file.close()
    stored.fs.poke(path, at, b"\x7f")
    assert LogLedgers(stored.fs).read_map(log_id, path) is None


def test_a_log_is_removed_durably_and_no_other_ever_has_its_id() -> None:
    """I-52."""
    stored = _filled()
    stored.delete(1, 2, 3, 4)
    logs = stored.storage.entry_logs
    logs.roll()
    removed = [log_id for log_id, _ in logs.closed()]
    logs.remove(removed)
    stored.crash()
    stored.replay()
    stored.check()
    assert not stored.storage.entry_logs.closed()
    stored.add(9, 0, 100)
    stored.checkpoint()
    assert min(stored.storage.entry_logs.log_ids) > max(removed)
    stored.check()


def test_what_the_scrub_read_of_a_file_that_is_just_being_deleted_is_not_adopted() -> None:
    """Or the ledger's absence would look like a loss for ever: no repair could bring its copy back (I-31, I-66).

    Mutant: adopt while the file goes.
    """
    stored = _filled()
    checksums = stored.storage.scrub()._checksums  # noqa: SLF001
    rows = Rows()
    rows.add(1, 0, 4711)
    adopted: list[bool] = []
    unlink = stored.fs.unlink

    def unlink_under_the_scrub(path: str) -> None:
        if path != index_path("/a", 1):
            unlink(path)
            return
        before = checksums.changes  # the scrub reads the file, sees that it is there
        unlink(path)
        adopted.append(checksums.adopt("/a", rows, before))
        adopted.append(checksums.adopt("/a", rows, checksums.changes))

    with mock.patch.object(stored.fs, "unlink", unlink_under_the_scrub):
        assert stored.delete(1, moved=True) == [1]
    assert adopted == [False, False]
    assert stored.read(1, [0]) == [Status.NO_LEDGER]
    stored.add(1, 0, 5)
    stored.checkpoint()
    stored.check()
    assert checksums.directory_of(1) == "/a"


def test_a_copy_that_a_repair_brought_back_is_fenced_after_a_crash_and_when_its_tombstone_is_gone() -> None:
    """I-24, I-66: its fence was in memory only, and the tombstone grows old. Mutant: replay entries only."""
    stored = _filled()
    stored.delete(1, moved=True)
    replay = StorageReplay(stored.storage)
    replay.entries(1, [0, 1], [entry_body(1, 0), entry_body(1, 1)])
    replay.entries(5, [0], [entry_body(5, 0)])
    assert stored.storage.is_fenced(1)
    assert not stored.storage.is_fenced(5)
    stored.storage.rotate()
    stored.storage.checkpoint()
    stored.fs.unlink("/a/current/tombstones")
    stored.fs.end_processes()
    stored.start()
    assert stored.storage.tombstone(1) is None
    assert stored.storage.is_fenced(1)
