"""What a bookie sees of its storage: adds, reads, keys and fences, in memory and from the disk."""

import pytest

from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.storage.settings import ENTRY_ID_MAX, StorageSettings
from bookkeeper.errors import CorruptRecord, InvalidArgument, StorageError
from bookkeeper.model import LAST_ENTRY, Status
from tests.support.faulty_filesystem import Op
from tests.support.stored_ledgers import KEY, StoredLedgers, entry_body, lac_packet


def test_an_added_entry_is_read_at_once() -> None:
    stored = StoredLedgers()
    stored.add(7, 0, 3)
    assert stored.storage.read(7, [2, 0, 1]) == [entry_body(7, 2), entry_body(7, 0), entry_body(7, 1)]


def test_entries_are_found_in_buffer_snapshot_cache_and_file() -> None:
    stored = StoredLedgers()
    stored.add(7, 0, 5)
    stored.checkpoint()
    stored.add(7, 5, 5)
    stored.flush()
    stored.add(7, 10, 5)
    stored.storage.rotate()
    stored.add(7, 15, 5)
    stored.check()


def test_entries_are_read_after_an_orderly_restart() -> None:
    stored = StoredLedgers()
    for ledger_id in (1, 12345, 2147483647, 1 << 50):
        stored.add(ledger_id, 0, 40)
    stored.fence(1)
    stored.lac(12345, 17)
    stored.checkpoint()
    stored.storage.close()
    stored.start()
    stored.storage.replay_finished()
    stored.check()


def test_a_read_says_none_where_the_disk_must_be_waited_for() -> None:
    stored = StoredLedgers()
    stored.add(7, 0, 3)
    stored.checkpoint()
    stored.fs.nowait = False
    assert stored.storage.read(7, [0, 1, 9]) == [None, None, Status.NO_ENTRY]
    assert stored.storage.read_cold(7, [0, 1, 9]) == [entry_body(7, 0), entry_body(7, 1), Status.NO_ENTRY]


def test_an_unknown_ledger_is_denied_only_after_every_index_directory_was_asked() -> None:
    stored = StoredLedgers(ledger_dirs=("/a", "/b"))
    assert stored.storage.read(5, [0]) == [None]
    assert stored.storage.read_cold(5, [0, 1]) == [Status.NO_LEDGER, Status.NO_LEDGER]
    assert stored.storage.is_loaded(5)
    assert stored.storage.read(5, [0]) == [Status.NO_LEDGER]
    stored.fence(5)
    assert stored.storage.read(5, [0]) == [Status.NO_ENTRY]


def test_the_last_entry_is_the_one_with_the_highest_id() -> None:
    stored = StoredLedgers()
    stored.add(7, 5, 1)
    stored.add(7, 2, 1)
    assert stored.read(7, [LAST_ENTRY]) == [entry_body(7, 5)]
    stored.key(8)
    assert stored.read(8, [LAST_ENTRY]) == [Status.NO_ENTRY]
    assert stored.storage.last_entry_id(8) is None


def test_a_ledger_known_only_by_its_fence_survives_a_checkpoint() -> None:
    """I-22: it exists, is fenced, has no entries."""
    stored = StoredLedgers()
    assert stored.storage.set_fenced(9)
    assert not stored.storage.set_fenced(9)
    stored.fenced.add(9)
    stored.checkpoint()
    stored.start()
    stored.check()
    assert stored.read(9, [0]) == [Status.NO_ENTRY]


def test_the_key_of_the_index_file_counts_after_a_restart() -> None:
    """Apache compares only what it has in memory (trap 22)."""
    stored = StoredLedgers()
    stored.key(9)
    stored.checkpoint()
    stored.start()
    assert stored.storage.master_key(9) == KEY
    with pytest.raises(StorageError, match="another master key"):
        stored.storage.set_master_key(9, b"x" * 20)


def test_an_older_explicit_lac_changes_nothing() -> None:
    """I-07."""
    stored = StoredLedgers()
    stored.lac(9, 5)
    stored.storage.set_explicit_lac(9, lac_packet(9, 4))
    assert stored.storage.explicit_lac(9) == lac_packet(9, 5)


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(-1, 0), (1, -1), (1, ENTRY_ID_MAX + 1), (1 << 63, 0)])
def test_ids_out_of_range_are_refused_and_leave_nothing(ledger_id: int, entry_id: int) -> None:
    stored = StoredLedgers()
    with pytest.raises(InvalidArgument):
        stored.storage.add(ledger_id, [0, entry_id], [b"x" * 40, b"y" * 40])
    assert list(stored.storage.ledger_ids()) == []
    assert not stored.storage.rotate()


def test_all_new_is_sure_only_above_the_last_entry() -> None:
    stored = StoredLedgers()
    assert stored.storage.all_new(7, [0, 1])
    stored.add(7, 3, 1)
    assert stored.storage.all_new(7, [4, 5])
    assert not stored.storage.all_new(7, [2])
    assert not stored.storage.all_new(7, [5, 3])
    stored.checkpoint()
    stored.start()
    assert stored.storage.all_new(7, [4])
    assert not stored.storage.all_new(7, [3])


def test_full_buffers_push_back() -> None:
    stored = StoredLedgers(settings=StorageSettings(memtable_bytes_max=2000))
    first = 0
    for _ in range(2):
        while not stored.storage.should_flush:
            stored.add(7, first, 1)
            first += 1
        assert stored.storage.rotate()
    while not stored.storage.is_full:
        stored.add(7, first, 1)
        first += 1
    assert not stored.storage.should_flush
    assert not stored.storage.rotate()
    assert stored.storage.flush_snapshot() > 0
    assert not stored.storage.is_full
    stored.check()


def test_sparse_and_striped_ids_are_told_from_absent_ones() -> None:
    stored = StoredLedgers()
    stored.add(7, 1, 700, step=3)
    stored.flush()
    stored.add(7, 5000, 2)
    stored.checkpoint()
    stored.add(7, 0, 600, step=3)
    stored.checkpoint()
    stored.check()
    stored.start()
    stored.check()


def test_a_partly_cached_page_is_completed_before_it_is_written() -> None:
    """A page of which memory knows two slots must not wipe out the slots between them in the file."""
    stored = StoredLedgers()
    stored.add(7, 0, 50, step=2)
    stored.add(7, 1500, 1)  # the page that loading the ledger brings in
    stored.checkpoint()
    stored.start()
    stored.storage.replay_finished()
    stored.add(7, 1, 1)
    stored.add(7, 95, 1)
    stored.checkpoint()
    stored.start()
    stored.check()


def test_entries_larger_than_every_window_are_read() -> None:
    stored = StoredLedgers(settings=StorageSettings(block_bytes=4096))
    for entry_id, size in enumerate((10, 5000, 100_000, 2_000_000, 1)):
        stored.add(7, entry_id, 1, payload=b"z" * size)
    stored.checkpoint()
    stored.check()
    stored.fs.nowait = False
    stored.check()


def test_memory_of_pages_is_bounded_and_evicted_pages_are_read_again() -> None:
    stored = StoredLedgers(settings=StorageSettings(index_cache_bytes_max=40_000))
    for ledger_id in range(30):
        stored.add(ledger_id, 0, 1500)
        stored.checkpoint()
    assert stored.storage.memory_bytes < 80_000
    stored.check()
    stored.start()
    stored.check()
    assert stored.storage.memory_bytes < 80_000


def test_ledger_states_are_bounded_and_forgotten_ones_come_back_exactly() -> None:
    stored = StoredLedgers(settings=StorageSettings(ledger_states_max=10))
    for ledger_id in range(60):
        stored.add(ledger_id, 0, 2)
        if ledger_id % 3 == 0:
            stored.fence(ledger_id)
        stored.checkpoint()
    assert stored.storage.ledger_state_count <= 12
    stored.check()


def test_a_ledger_in_use_stays_while_others_come_and_go() -> None:
    stored = StoredLedgers(settings=StorageSettings(ledger_states_max=10))
    stored.key(0)
    stored.add(0, 0, 1)
    stored.storage.key_journaled(0)
    stored.checkpoint()
    for ledger_id in range(1, 60):
        stored.add(ledger_id, 0, 2)
        stored.checkpoint()
        assert stored.storage.last_entry_id(0) == 0
    assert stored.storage.is_loaded(0)
    assert stored.storage.is_key_journaled(0)
    assert not stored.storage.is_loaded(1)
    assert stored.storage.ledger_state_count <= 12


def test_a_forgotten_ledgers_key_is_journaled_anew() -> None:
    """I-53: whether this process journaled it is forgotten with the state, and once too often does no harm."""
    stored = StoredLedgers(settings=StorageSettings(ledger_states_max=10))
    stored.key(0)
    stored.storage.key_journaled(0)
    assert stored.storage.is_key_journaled(0)
    for ledger_id in range(1, 60):
        stored.add(ledger_id, 0, 2)
        stored.checkpoint()
    assert not stored.storage.is_key_journaled(0)
    stored.storage.load_cold(0)
    assert stored.storage.master_key(0) == KEY
    assert not stored.storage.is_key_journaled(0)


def test_dirty_ledgers_are_never_forgotten() -> None:
    stored = StoredLedgers(settings=StorageSettings(ledger_states_max=5))
    for ledger_id in range(50):
        stored.fence(ledger_id)
    stored.add(60, 0, 1)
    for ledger_id in range(50, 55):
        stored.fence(ledger_id)
    assert stored.storage.ledger_state_count >= 55
    stored.check()


def test_open_files_stay_within_their_bound() -> None:
    stored = StoredLedgers()
    for ledger_id in range(200):
        stored.add(ledger_id, 0, 3)
    stored.checkpoint()
    stored.check()
    assert stored.storage.open_file_count <= stored.settings.open_files_max


def test_a_ledger_with_two_index_files_is_refused_rather_than_half_read() -> None:
    stored = StoredLedgers(ledger_dirs=("/a", "/b"))
    stored.add(2, 0, 1)
    stored.checkpoint()
    fs = stored.fs
    fs.make_dirs("/b/current/0/2")
    fs.link("/a/current/0/2/2.idx", "/b/current/0/2/2.idx")
    stored.start()
    assert stored.read(2, [0]) == [Status.IO_ERROR]
    with pytest.raises(StorageError, match="/b"):
        stored.storage.is_fenced(2)


def test_an_unreadable_index_directory_is_an_error_not_an_absent_ledger() -> None:
    """I-31: what could not be asked is not denied."""
    stored = StoredLedgers()
    stored.add(2, 0, 1)
    stored.checkpoint()
    stored.start()
    stored.fs.fail_nth(Op.OPEN, 1, 5, path="2.idx")
    assert stored.storage.read_cold(2, [0]) == [Status.IO_ERROR]
    stored.fs.fail_nth(Op.READ, 1, 5, path="2.idx")
    with pytest.raises(StorageError):
        stored.storage.exists(2)
    stored.check()


def test_an_unreadable_index_page_is_an_error_for_its_entries_only() -> None:
    """I-31."""
    stored = StoredLedgers()
    stored.add(2, 0, 4)
    stored.add(2, 1500, 1)
    stored.checkpoint()
    stored.start()
    stored.storage.load_cold(2)
    stored.fs.fail_nth(Op.READ, 1, 5, path="2.idx")
    expected = [Status.IO_ERROR, Status.IO_ERROR, entry_body(2, 1500), Status.NO_ENTRY]
    assert stored.storage.read_cold(2, [0, 9, 1500, 1501]) == expected
    stored.check()


def test_after_a_failed_sync_nothing_is_written_or_denied_any_more() -> None:
    """I-48, T14: the next sync would succeed without the data."""
    stored = StoredLedgers()
    stored.add(2, 0, 5)
    stored.fs.fail_nth(Op.SYNC, 1, 5, path=".idx", drop_dirty=True)
    with pytest.raises(OSError, match="rror"):
        stored.checkpoint()
    assert stored.storage.failure is not None
    with pytest.raises(StorageError, match="failed"):
        stored.storage.checkpoint()
    with pytest.raises(StorageError, match="failed"):
        stored.storage.add(2, [7], [entry_body(2, 7)])
    assert Status.NO_ENTRY not in stored.read(2, [6])
    assert Status.NO_LEDGER not in stored.read(3, [6])


def test_index_directories_may_differ_from_ledger_directories() -> None:
    stored = StoredLedgers(ledger_dirs=("/log1", "/log2"), index_dirs=("/i1", "/i2", "/i3"))
    for ledger_id in range(9):
        stored.add(ledger_id, 0, 30)
    stored.checkpoint()
    stored.start()
    stored.check()
    for directory in ("/i1", "/i2", "/i3"):
        assert any(name == "0" for name in stored.fs.listdir(directory + "/current"))
    for directory in ("/log1", "/log2"):
        assert any(name.endswith(".log") for name in stored.fs.listdir(directory + "/current"))


def test_start_opens_no_index_file() -> None:
    stored = StoredLedgers()
    for ledger_id in range(300):
        stored.add(ledger_id, 0, 1)
    stored.checkpoint()
    before = stored.fs.counts[Op.OPEN], stored.fs.counts[Op.LIST]
    stored.start()
    opened, listed = stored.fs.counts[Op.OPEN] - before[0], stored.fs.counts[Op.LIST] - before[1]
    assert opened <= 2  # lastId, and the checksums of index pages
    assert listed == 4  # what is in `current`, for logs and for directories, and in the two below it


def test_a_damaged_header_is_an_error_and_stays_one() -> None:
    stored = StoredLedgers()
    stored.key(2)
    stored.checkpoint()
    path = "/a/current/0/2/2.idx"
    stored.fs.poke(path, 20, b"?")
    stored.fs.poke(path, 530, b"?")
    stored.start()
    for _ in range(2):
        with pytest.raises(CorruptRecord):
            stored.storage.is_fenced(2)
        assert stored.read(2, [0]) == [Status.IO_ERROR]
    with pytest.raises(CorruptRecord):
        stored.storage.set_fenced(2)


def test_a_ledger_that_two_threads_load_at_once_has_one_state() -> None:
    """I-24: the second to finish must not put what it read over what was changed since."""
    stored = StoredLedgers()
    stored.add(7, 0, 3)
    stored.checkpoint()
    stored.start()
    reads = 0

    def other_thread(op: Op, _: str) -> None:
        nonlocal reads
        reads += op is Op.READ
        if reads == 2:  # the first one has read the header and is about to read the last page
            reads += 1
            stored.fence(7)

    stored.fs.on_operation = other_thread
    stored.storage.load_cold(7)
    assert reads > 2
    assert stored.storage.is_fenced(7)
    stored.check()


def test_a_ledger_evicted_during_a_cold_read_is_looked_up_again() -> None:
    """Not an I/O error: its reader was only too late."""
    settings = StorageSettings(ledger_states_max=2, index_cache_bytes_max=1)
    stored = StoredLedgers(settings=settings)
    stored.add(7, 0, 2000)
    for ledger_id in range(20, 30):
        stored.add(ledger_id, 0, 1)
    stored.checkpoint()
    stored.start()
    stored.storage.replay_finished()
    reads = 0

    def evict(op: Op, path: str) -> None:
        nonlocal reads
        reads += op is Op.READ and path.endswith("/7.idx")
        if reads == 3:  # header and last page are read, the page of entry 3 is about to be
            reads += 1
            for ledger_id in range(20, 30):
                stored.storage.set_fenced(ledger_id)
            stored.checkpoint()
            for ledger_id in range(40, 45):
                stored.storage.set_fenced(ledger_id)

    stored.fs.on_operation = evict
    assert stored.storage.read_cold(7, [3]) == [entry_body(7, 3)]
    assert reads > 4


def test_a_ledger_created_and_evicted_while_it_was_looked_for_is_not_taken_for_absent() -> None:
    """I-24, I-31: "no file" was true of the moment in which the first directory was asked."""
    stored = StoredLedgers(ledger_dirs=("/a", "/b"), settings=StorageSettings(ledger_states_max=2))
    asked = False

    def create_and_evict(op: Op, path: str) -> None:
        nonlocal asked
        if op is Op.OPEN and path.startswith("/b") and path.endswith("/6.idx") and not asked:
            asked = True
            stored.fence(6)
            stored.checkpoint()
            for ledger_id in range(40, 45):
                stored.fence(ledger_id)
            assert not stored.storage.is_loaded(6)

    stored.fs.on_operation = create_and_evict
    stored.storage.load_cold(6)
    assert asked
    assert stored.storage.is_fenced(6)


def test_an_index_directory_that_is_gone_denies_nothing() -> None:
    """I-31: its disk may not be mounted."""
    stored = StoredLedgers()
    directories = LedgerDirectories(("/a",), ("/gone",))
    storage = LedgerStorage(stored.fs, directories, StorageSettings())
    assert storage.read_cold(5, [0]) == [Status.IO_ERROR]
    with pytest.raises(StorageError, match="/gone/current"):
        storage.load_cold(5)


def test_ledgers_that_wait_for_a_checkpoint_are_bounded() -> None:
    stored = StoredLedgers(settings=StorageSettings(dirty_ledgers_max=10))
    for ledger_id in range(6):
        stored.fence(ledger_id)
    assert stored.storage.needs_checkpoint
    assert not stored.storage.is_full
    for ledger_id in range(6, 10):
        stored.fence(ledger_id)
    assert stored.storage.is_full
    assert not stored.storage.takes_ledgers
    stored.checkpoint()
    assert not stored.storage.is_full
    assert stored.storage.takes_ledgers


def test_locations_that_wait_for_a_checkpoint_are_bounded_by_the_memory_they_take() -> None:
    """Entries far apart cost a whole page each."""
    stored = StoredLedgers(settings=StorageSettings(index_cache_bytes_max=256 * 1024))
    stored.add(7, 1023, 20, step=1024)
    stored.flush()
    assert stored.storage.memory_bytes > 20 * 8192
    assert stored.storage.needs_checkpoint
    stored.add(7, 1023 + 20 * 1024, 20, step=1024)
    stored.flush()
    assert stored.storage.is_full
    stored.checkpoint()
    assert not stored.storage.is_full
    stored.check()


def test_a_page_that_is_dirty_already_is_not_counted_again() -> None:
    """Else very many ledgers, each written a little at a time, would be checkpointed far too often."""
    stored = StoredLedgers(settings=StorageSettings(index_cache_bytes_max=256 * 1024))
    for entry_id in range(10):
        for ledger_id in range(100):
            stored.add(ledger_id, entry_id, 1)
        stored.flush()
    assert not stored.storage.needs_checkpoint  # 100 pages of 280 bytes, not 1000
    stored.checkpoint()
    for entry_id in range(10, 13):
        for ledger_id in range(600):
            stored.add(ledger_id, entry_id, 1)
        stored.flush()
    assert stored.storage.needs_checkpoint  # each of them whole: they cannot be evicted
    stored.check()


def test_a_checkpoint_ends_although_adds_fill_buffers_as_fast_as_it_writes_them() -> None:
    stored = StoredLedgers(settings=StorageSettings(memtable_bytes_max=1000))
    refills = 0

    def add_more(op: Op, path: str) -> None:
        nonlocal refills
        if op is Op.WRITE and path.endswith(".log") and stored.storage.can_rotate and refills < 50:
            refills += 1
            stored.add(7, refills * 10, 10)
            stored.storage.rotate()

    stored.add(7, 0, 10)
    stored.fs.on_operation = add_more
    stored.checkpoint()
    assert refills < 10
    stored.fs.on_operation = None
    stored.check()
