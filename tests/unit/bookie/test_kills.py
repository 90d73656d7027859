"""A process that is killed leaves names and bytes that are there and not durable; the next one must not count on them.

Each test: something is done by hand up to the moment of the kill, the next process starts on it (L-6), the power goes.
"""

from __future__ import annotations

import errno

import pytest

from bookkeeper.bookie.gc.tombstones import FILE_NAME, Tombstone, TombstoneKind, encode
from bookkeeper.bookie.identity.identity import VERSION_FILE, directories_of, inspect_directories, stamp
from bookkeeper.bookie.journal.files import JournalFiles
from bookkeeper.bookie.journal.mark import encode_mark, mark_name, read_marks, write_marks
from bookkeeper.bookie.journal.replay import replay
from bookkeeper.bookie.journal.settings import JournalSettings
from bookkeeper.bookie.process.startup import StorageReplay
from bookkeeper.bookie.requests.fence import FenceState, LedgerAccess
from bookkeeper.filesystem import OpenMode
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.model import BookieId, LogMark
from tests.support.disk_image import DiskImage
from tests.support.faulty_filesystem import FaultyFileSystem, Op
from tests.support.stored_ledgers import StoredLedgers


class Killed(BaseException):
    """Not an Exception: nothing of the process sees it."""


def kill_at(fs: FaultyFileSystem, op: Op, path: str) -> None:
    """The process dies just before this operation."""

    def look(seen: Op, where: str) -> None:
        if seen is op and where == path:
            fs.on_operation = None
            raise Killed

    fs.on_operation = look


def written(fs: FaultyFileSystem, path: str, data: bytes) -> None:
    """A file as `create_durable` or `replace_durable` leave it just before they sync its directory."""
    file = fs.open(path, OpenMode.CREATE_EXCLUSIVE)
    file.pwrite(data, 0)
    file.sync()
    file.close()


def test_a_directory_that_a_killed_process_made_is_made_durable() -> None:
    """I-49."""
    fs = FaultyFileSystem()
    fs.make_dirs("/a")
    kill_at(fs, Op.SYNC_DIR, "/a")
    try:
        fs.make_dirs("/a/current")
    except Killed:
        fs.end_processes()
    assert fs.is_dir("/a/current")
    fs.make_dirs("/a/current")
    fs.crash()
    assert fs.is_dir("/a/current")


def test_a_cookie_that_a_killed_process_stamped_is_made_durable_before_the_store_gets_it() -> None:
    """I-70: else the next start finds a directory without one, and takes its data for lost."""
    fs = FaultyFileSystem()
    cookie = Cookie(BookieId("b:1"), ("/j",), ("/l",), "instance", ("/l",))
    for directory in ("/j", "/l"):
        fs.make_dirs(f"{directory}/current")
    written(fs, f"/j/current/{VERSION_FILE}", cookie.format())
    fs.end_processes()
    stamp(fs, cookie, inspect_directories(fs, directories_of(cookie)))
    fs.crash()
    assert all(state.cookie == cookie for state in inspect_directories(fs, directories_of(cookie)))


def test_the_name_of_a_journal_that_a_killed_process_began_is_durable_before_a_mark_names_it() -> None:
    """I-49, I-56: else the mark names a file that is not there, and the bookie does not start."""
    fs = FaultyFileSystem()
    fs.make_dirs("/j")
    files = JournalFiles(fs, "/j", JournalSettings(preallocation_size=0), lambda: 0.0)
    kill_at(fs, Op.SYNC_DIR, "/j")
    try:
        files.start(LogMark(0, 0), first_id=7)
    except Killed:
        fs.end_processes()
    stored = StoredLedgers()
    end = replay(fs, "/j", LogMark(0, 0), StorageReplay(stored.storage))
    assert end.journal_id == 7
    fs.crash()
    assert replay(fs, "/j", end, StorageReplay(stored.storage)) == end


def test_a_mark_that_a_killed_process_wrote_is_durable_before_anything_counts_on_it() -> None:
    """I-55, I-56: else the mark goes back, to journals that were deleted since."""
    fs = FaultyFileSystem()
    fs.make_dirs("/l")
    name, mark = mark_name(0, 1), LogMark(5, 1024)
    written(fs, f"/l/{name}", encode_mark(mark))
    fs.end_processes()
    assert write_marks(fs, ["/l"], name, mark) == mark
    fs.crash()
    assert read_marks(fs, ["/l"], name) == mark


def test_tombstones_that_a_killed_process_began_are_durable_before_more_are_added() -> None:
    """I-04."""
    stored = StoredLedgers()
    written(stored.fs, f"/a/current/{FILE_NAME}", encode(Tombstone(4, TombstoneKind.DELETED, 1 << 50)))
    stored.fs.end_processes()
    stored.start()
    stored.storage.tombstones.add([(5, TombstoneKind.DELETED)])
    stored.crash()
    assert stored.storage.tombstone(4) is stored.storage.tombstone(5) is TombstoneKind.DELETED


def test_a_fence_that_only_an_index_file_shows_is_journaled_before_it_is_answered_for() -> None:
    """I-23: a checkpoint may have written it ahead of the journal, and a kill have left it in the page cache alone."""
    stored = StoredLedgers()
    stored.fence(3)
    stored.checkpoint()
    stored.start()
    access = LedgerAccess(stored.storage)
    assert access.fence_state(3) is FenceState.UNSURE
    access.fence_appended(3)
    assert access.fence_state(3) is FenceState.PENDING
    access.fence_durable(3)
    assert access.fence_state(3) is FenceState.DURABLE


def test_an_index_file_that_a_killed_process_named_is_there_for_good_once_a_later_one_started() -> None:
    """I-49, I-54: else that one's checkpoint writes it, the mark moves, and a power cut takes the file."""
    stored = StoredLedgers()
    stored.add(1, 0, 2)
    kill_at(stored.fs, Op.SYNC_DIR, "/a/current/0/1")
    try:
        stored.checkpoint()
    except Killed:
        stored.fs.end_processes()
    stored.journal.clear()  # the checkpoint was ahead of it, and nobody was told of these entries
    stored.start()
    stored.storage.replay_finished()
    stored.add(1, 2, 2)
    stored.checkpoint()
    stored.crash()
    stored.replay()
    stored.check()


def test_index_files_that_a_crash_left_unfinished_are_removed() -> None:
    """I-62: those of ledgers that nobody was told of never come again."""
    stored = StoredLedgers()
    stored.add(1, 0, 2)
    stored.checkpoint()
    stored.fs.make_dirs("/a/current/0/9")
    written(stored.fs, "/a/current/0/9/9.idx.new", b"half")
    stored.start()
    left = stored.storage.unfinished_files()
    assert left == ["/a/current/0/9/9.idx.new"]
    stored.storage.remove_unfinished(left)
    stored.crash()
    assert stored.storage.unfinished_files() == []
    stored.replay()
    stored.check()


@pytest.mark.parametrize("sync_failed", [False, True], ids=["killed", "sync-failed"])
def test_a_compaction_that_another_process_finishes_makes_the_whole_switch_durable(sync_failed: bool) -> None:
    """I-62, I-48: the index names the new log already, in the page cache alone, when the old log goes."""
    stored = StoredLedgers()
    stored.replay()
    for ledger_id in (1, 2):
        stored.add(ledger_id, 0, 20)
    stored.checkpoint()
    stored.storage.entry_logs.roll()
    stored.delete(2)
    fs, index = stored.fs, "/a/current/0/1/1.idx"
    if sync_failed:
        fs.fail_nth(Op.SYNC, 1, errno.EIO, path=index, drop_dirty=True)
    else:
        kill_at(fs, Op.SYNC, index)
    for old_id, _ in stored.storage.entry_logs.closed():
        try:
            stored.compact(old_id)
        except (Killed, OSError):
            break
    else:
        raise AssertionError("no log was rewritten")
    fs.end_processes()
    stored.start()
    stored.replay()
    for new_id, old_id in list(stored.storage.entry_logs.unfinished):
        stored.finish(new_id, old_id)
    stored.check()
    stored.crash()
    stored.replay()
    stored.check()


def test_a_log_that_found_no_room_and_its_successor_elsewhere_have_two_ids() -> None:
    """I-52, I-68: a power cut may bring back the name of the first one, whose removal no sync covered."""
    stored = StoredLedgers(ledger_dirs=("/a", "/b"))
    stored.fs.fail_nth(Op.WRITE, 1, errno.ENOSPC, path=".log")
    stored.add(1, 0, 20)
    stored.checkpoint()
    image = DiskImage.of(stored.fs)
    assert sum(path.endswith(".log") for path in stored.fs.paths()) == 1
    for unit in image.units:
        again = StoredLedgers(ledger_dirs=("/a", "/b"), fs=image.after_power_cut([unit]))
        assert len(again.storage.entry_logs.log_ids) >= 1
    left = {unit: len(image.after_power_cut([unit]).paths()) for unit in image.units}
    assert max(left.values()) > len(image.after_power_cut(()).paths()), "some power cut brings the first one back"
