"""Index files made anew serve what the lost ones did, keys and fences included (I-24, I-59, I-73)."""

from __future__ import annotations

import struct

import pytest

from bookkeeper.bookie.offline.consistency import StorageCheck
from bookkeeper.bookie.offline.index_rebuild import IndexRebuild, Journaled, Rebuilt
from bookkeeper.bookie.storage.entry_log.format import HEADER_SIZE as LOG_HEADER_SIZE
from bookkeeper.bookie.storage.index.format import decode_header, slot_offset
from bookkeeper.errors import StorageError
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import Status
from tests.support.faulty_filesystem import FaultyFileSystem, Op, PowerCut
from tests.support.stored_ledgers import KEY, StoredLedgers, lac_packet

LEDGER, FENCED = 7, 8
INDEX, FENCED_INDEX = "/a/current/0/7/7.idx", "/a/current/0/8/8.idx"
COUNT = 1500
NOTHING = Journaled(keys={}, fenced=(), lacs={}, earlier={}, later={})
KEYS = Journaled(keys={LEDGER: KEY, FENCED: KEY}, fenced=(), lacs={}, earlier={}, later={})


@pytest.fixture
def stored() -> StoredLedgers:
    """An open and a fenced ledger over several entry logs, and everything checkpointed."""
    stored = StoredLedgers()
    for first in range(0, COUNT, 100):
        stored.add(LEDGER, first, 100)
        stored.add(FENCED, first, 100, step=3)
        stored.checkpoint()
    stored.fence(FENCED)
    stored.lac(LEDGER, 40)
    stored.checkpoint()
    stored.storage.close()
    return stored


def rebuild(
    stored: StoredLedgers, journaled: Journaled = KEYS, *, given: bytes | None = None, ids: tuple[int, ...] = (7, 8)
) -> dict[int, Rebuilt]:
    work = IndexRebuild(stored.fs, stored.ledger_dirs, stored.ledger_dirs, ids, journaled, lambda _: given)
    seen: list[int] = []
    work.scan(seen.append)
    assert seen == list(range(work.log_count + 1))
    done = {ledger_id: work.write(ledger_id) for ledger_id in ids}
    work.close()
    return done


def start_and_check(stored: StoredLedgers) -> None:
    check = StorageCheck(stored.fs, stored.ledger_dirs, stored.ledger_dirs, journaled={}, on_progress=lambda _: None)
    assert list(check.run()) == []
    stored.start()
    stored.replay()
    stored.check()


def patch(stored: StoredLedgers, path: str, offset: int, data: bytes) -> None:
    file = stored.fs.open(path, OpenMode.UPDATE)
    file.pwrite(data, offset)
    file.close()


def test_files_that_are_gone_come_back_with_every_entry_and_a_fence(stored: StoredLedgers) -> None:
    for path in (INDEX, FENCED_INDEX):
        stored.fs.unlink(path)
    done = rebuild(stored, Journaled(KEYS.keys, (), {LEDGER: lac_packet(LEDGER, 40)}, {}, {}))
    assert [(each.refused, each.fenced) for each in done.values()] == [(None, True)] * 2
    assert "cannot be known" in done[LEDGER].fence
    assert (done[LEDGER].first_entry_id, done[LEDGER].last_entry_id, done[LEDGER].entry_count) == (0, COUNT - 1, COUNT)
    stored.fenced.add(LEDGER)  # the only thing that differs
    start_and_check(stored)


def test_zeroed_pages_come_back_and_an_intact_header_keeps_a_ledger_open(stored: StoredLedgers) -> None:
    for path in (INDEX, FENCED_INDEX):
        patch(stored, path, slot_offset(0), bytes(8 * 1024))
    done = rebuild(stored, NOTHING)
    assert [each.fenced for each in done.values()] == [False, True]
    assert {each.fence for each in done.values()} == {"the old index file says so"}
    start_and_check(stored)


def test_a_fence_that_only_the_journal_knows_is_restored(stored: StoredLedgers) -> None:
    done = rebuild(stored, Journaled(KEYS.keys, {LEDGER}, {}, {}, {}), ids=(LEDGER,))
    assert (done[LEDGER].fenced, done[LEDGER].fence) == (True, "the journal says so")
    assert decode_header(stored.fs.contents(INDEX), INDEX).fenced


def test_the_location_that_the_old_file_had_counts_before_a_later_copy(stored: StoredLedgers) -> None:
    before = stored.fs.contents(INDEX)
    first = next(name for name in stored.fs.listdir("/a/current") if name.endswith(".log"))
    stored.fs.link(f"/a/current/{first}", "/a/current/7f.log")  # all of its entries once more, in a later log
    rebuild(stored, ids=(LEDGER,))
    assert stored.fs.contents(INDEX)[1024:] == before[1024:]
    stored.fs.unlink(INDEX)
    rebuild(stored, ids=(LEDGER,))
    assert stored.fs.contents(INDEX)[1024:] != before[1024:]
    stored.fenced.add(LEDGER)
    stored.lacs.clear()  # with the header; no journal was given that knows it
    start_and_check(stored)  # also where the checksums of its pages were others


def test_a_ledger_without_any_key_needs_the_password(stored: StoredLedgers) -> None:
    stored.fs.unlink(INDEX)
    refused = rebuild(stored, NOTHING, ids=(LEDGER,))[LEDGER].refused
    assert refused is not None
    assert "give its password" in refused
    assert not stored.fs.exists(INDEX)
    assert rebuild(stored, NOTHING, given=KEY, ids=(LEDGER,))[LEDGER].refused is None
    assert decode_header(stored.fs.contents(INDEX), INDEX).master_key == KEY


def test_a_recorded_key_is_not_replaced_by_another_password(stored: StoredLedgers) -> None:
    """I-73."""
    before = stored.fs.contents(INDEX)
    refused = rebuild(stored, given=b"x" * 20, ids=(LEDGER,))[LEDGER].refused
    assert refused is not None
    assert "the recorded one stays" in refused
    assert stored.fs.contents(INDEX) == before


def test_a_damaged_log_refuses_every_ledger_that_may_be_in_it(stored: StoredLedgers) -> None:
    """I-59: an index without an entry that is there answers "never held"."""
    before = stored.fs.contents(INDEX)
    patch(stored, "/a/current/1.log", LOG_HEADER_SIZE, struct.pack(">i", 3))
    refused = rebuild(stored)[LEDGER].refused
    assert refused is not None
    assert f"/a/current/1.log is damaged at offset {LOG_HEADER_SIZE}" in refused
    assert stored.fs.contents(INDEX) == before


def test_a_ledger_of_which_nothing_is_known_gets_no_file(stored: StoredLedgers) -> None:
    refused = rebuild(stored, given=KEY, ids=(99,))[99].refused
    assert refused == "no entry log has an entry of it, and no journal its key"


def test_entries_that_only_old_journals_have_are_counted(stored: StoredLedgers) -> None:
    journaled = Journaled({}, (), {}, {LEDGER: {3, COUNT, COUNT + 1}}, {LEDGER: {COUNT}})
    assert rebuild(stored, journaled, ids=(LEDGER,))[LEDGER].only_journaled == 1


def test_a_ledger_with_two_files_is_refused(stored: StoredLedgers) -> None:
    stored.fs.make_dirs("/b/current/0/7")
    stored.fs.open("/b/current/0/7/7.idx", OpenMode.CREATE_EXCLUSIVE).close()
    stored.ledger_dirs = ("/a", "/b")
    with pytest.raises(StorageError, match="keep this bookie's one"):
        rebuild(stored)


def test_a_power_cut_leaves_the_old_file_or_the_new_one(stored: StoredLedgers) -> None:
    old = stored.fs.contents(INDEX)
    patch(stored, INDEX, slot_offset(0), bytes(8 * 1024))
    damaged = stored.fs.contents(INDEX)
    fs = stored.fs
    file = fs.open(INDEX, OpenMode.UPDATE)
    file.sync()
    file.close()
    for step, nth in ((Op.CREATE, 1), (Op.WRITE, 1), (Op.WRITE, 2), (Op.SYNC, 1), (Op.RENAME, 1), (Op.SYNC_DIR, 1)):
        stored.fs = fs.clone()
        stored.fs.fail_nth(step, nth, 5)
        with pytest.raises((OSError, PowerCut)):
            rebuild(stored, ids=(LEDGER,))
        stored.fs.crash()
        assert stored.fs.contents(INDEX) in (damaged, old)
    stored.fs = fs
    rebuild(stored, ids=(LEDGER,))
    stored.fs.crash()
    assert stored.fs.contents(INDEX)[1024:] == old[1024:]


@pytest.mark.parametrize("index_dirs", [("/a",), ("/x", "/y")])
@pytest.mark.parametrize("damage", ["lost", "a page of zeros"])
def test_a_crash_at_any_moment_never_makes_lost_entries_absent(damage: str, index_dirs: tuple[str, ...]) -> None:
    """I-31: the ledger is unknown, or whole, until the rebuild has ended, and then whole."""
    stored = StoredLedgers(index_dirs=index_dirs)
    stored.add(LEDGER, 0, 20)
    stored.add(FENCED, 0, 20)
    stored.fence(FENCED)
    stored.checkpoint()
    stored.storage.close()
    for ledger_id in (LEDGER, FENCED):
        (path,) = [path for path in stored.fs.paths() if path.endswith(f"/{ledger_id}.idx")]
        if damage == "lost":
            stored.fs.unlink(path)
            stored.fs.sync_dir(path.rpartition("/")[0])
        else:
            stored.fs.poke(path, slot_offset(0), bytes(80))
    seen = set()
    for nth in range(1, 1000):
        fs = stored.fs.clone()
        fs.cut_power_at(nth)
        try:
            _rebuild_both(fs, index_dirs)
        except PowerCut:
            fs.crash()
        else:
            fs.cut_power_at(10**6)
            fs.crash()
            assert nth > 20
            assert {complete for complete, _ in seen} == {False, True}
            assert (False, True) not in seen, "what is not complete is known to be damaged"
            break
        seen.add(_look(stored, fs, index_dirs))
        _rebuild_both(fs, index_dirs)
        assert _look(stored, fs, index_dirs) == (True, True)
    assert _look(stored, fs, index_dirs) == (True, True)


def _rebuild_both(fs: FaultyFileSystem, index_dirs: tuple[str, ...]) -> None:
    work = IndexRebuild(fs, ("/a",), index_dirs, (LEDGER, FENCED), KEYS, lambda _: None)
    work.scan(lambda _: None)
    for ledger_id in (LEDGER, FENCED):
        assert work.write(ledger_id).refused is None
    work.close()


def _look(stored: StoredLedgers, fs: FaultyFileSystem, index_dirs: tuple[str, ...]) -> tuple[bool, bool]:
    """Whether a bookie has everything, and whether it knows of no damage; a denial fails the test."""
    started = StoredLedgers(index_dirs=index_dirs, fs=fs.clone())
    started.storage.replay_finished()
    complete = True
    for ledger_id in (LEDGER, FENCED):
        results = started.read(ledger_id, range(20))
        assert not {Status.NO_ENTRY, Status.NO_LEDGER} & {each for each in results if isinstance(each, Status)}
        complete = complete and results == [stored.entries[ledger_id, entry_id] for entry_id in range(20)]
        if results != [Status.IO_ERROR] * 20:
            assert started.storage.is_fenced(ledger_id) or ledger_id == LEDGER
    for _ in started.storage.scrub().steps(everything=True):
        pass
    return complete, started.storage.damage.all() == []


def test_a_log_that_a_crash_kept_without_its_header_hides_nothing(stored: StoredLedgers) -> None:
    before = stored.fs.contents(INDEX)
    for log_id, data in (
        (0x7E, b""),
        (0x7F, bytes(1024)),
        (0x80, stored.fs.contents("/a/current/1.log")[:4] + bytes(508)),
    ):
        file = stored.fs.open(f"/a/current/{log_id:x}.log", OpenMode.CREATE_EXCLUSIVE)
        file.pwrite(data, 0)
        file.close()
    assert rebuild(stored, ids=(LEDGER,))[LEDGER].refused is None
    assert stored.fs.contents(INDEX) == before
