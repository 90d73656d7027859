"""Checksums of index pages: a page that lost its locations never says "no entry" (I-31, I-59)."""

import errno
import random

import pytest

from bookkeeper.bookie.integrity.checksums import index as fmt
from bookkeeper.bookie.integrity.checksums import index_files
from bookkeeper.bookie.integrity.checksums.index import UNKNOWN, ChecksumTable, Kind, Rows
from bookkeeper.bookie.integrity.checksums.index_files import IndexChecksums
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.errors import CorruptRecord, NoWritableDisk, StorageError
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import LAST_ENTRY, Status
from tests.support.disk_image import DiskImage
from tests.support.faulty_filesystem import FaultyFileSystem, Op, PowerCut
from tests.support.stored_ledgers import StoredLedgers

STORE = "/a/current/indexChecksums"
NEGATIVE = {Status.NO_ENTRY, Status.NO_LEDGER}


def rows_of(*rows: tuple[int, int, int]) -> Rows:
    rows_ = Rows()
    for row in rows:
        rows_.add(*row)
    return rows_


# --- records and table ------------------------------------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written_and_only_at_its_place() -> None:
    for kind in Kind:
        rows = rows_of((1, 0, 7), (1 << 62, fmt.HEADER_ROW, fmt.DAMAGED), (5, 9, UNKNOWN))
        data = fmt.encode_record(kind, rows, 1024, 512)
        assert len(data) % 512 == 0
        record = fmt.decode_record(data, 1024)
        assert record is not None
        assert record.kind is kind
        assert record.synced == 512
        assert list(record.rows.ledgers) == [1, 1 << 62, 5]
        if kind in (Kind.HOLD, Kind.WRITING):
            assert list(record.rows) == list(rows)
        assert fmt.decode_record(data, 512) is None


def test_no_damaged_byte_of_a_record_passes() -> None:
    data = fmt.encode_record(Kind.HOLD, rows_of((1, 0, 7), (2, 1, 8)), 0, 0)
    for at in range(len(data)):
        assert fmt.decode_record(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :], 0) is None


def test_the_table_answers_as_a_dictionary_would() -> None:
    rng = random.Random(5)
    for _ in range(40):
        table, twin = ChecksumTable(), dict[tuple[int, int], int]()
        for _ in range(200):
            ledger_id, page = rng.randrange(12), rng.choice((0, 1, 2, 900, fmt.HEADER_ROW))
            match rng.randrange(8):
                case 0:
                    table.drop([ledger_id])
                    twin = {key: value for key, value in twin.items() if key[0] != ledger_id}
                case 1:
                    table.replace(table.merged())
                case _:
                    value = rng.choice((UNKNOWN, fmt.DAMAGED, rng.randrange(1 << 32)))
                    table.put(rows_of((ledger_id, page, value)))
                    twin[ledger_id, page] = value
        known = {key: value for key, value in twin.items() if value != UNKNOWN}
        for ledger_id in range(13):
            pages = {page: value for (owner, page), value in known.items() if owner == ledger_id}
            assert table.pages_of(ledger_id) == pages
            for page in (0, 1, 2, 3, 900, fmt.HEADER_ROW):
                assert table.get(ledger_id, page) == pages.get(page, UNKNOWN)
        assert [row[:2] for row in table.merged()] == sorted(known)


# --- the file ---------------------------------------------------------------------------------------------------------


def opened(fs: FaultyFileSystem, highest_log_id: int = 0) -> IndexChecksums:
    fs.make_dirs("/a/current")
    checksums = IndexChecksums(fs, ["/a"])
    checksums.open(highest_log_id)
    return checksums


def test_what_was_written_and_settled_is_there_after_a_restart() -> None:
    fs = FaultyFileSystem()
    checksums = opened(fs)
    rows = {"/a": rows_of((3, 0, 77), (3, 1, 78))}
    checksums.begin(rows)
    assert checksums.value("/a", 3, 0) == UNKNOWN
    checksums.written(rows)
    assert checksums.value("/a", 3, 0) == 77
    checksums.settle()
    assert opened(fs).pages_of("/a", 3) == {0: 77, 1: 78}


def test_pages_that_were_being_written_are_unknown_after_a_crash_for_good() -> None:
    fs = FaultyFileSystem()
    checksums = opened(fs)
    first = {"/a": rows_of((3, 0, 1))}
    checksums.begin(first)
    checksums.written(first)
    checksums.settle()
    checksums.begin({"/a": rows_of((3, 0, 2))})
    fs.crash()
    checksums = opened(fs)
    assert checksums.value("/a", 3, 0) == UNKNOWN
    assert checksums.unsettled == {3}
    other = {"/a": rows_of((4, 0, 9))}
    checksums.begin(other)
    checksums.written(other)
    checksums.settle()
    again = opened(fs)
    assert again.value("/a", 3, 0) == UNKNOWN
    assert again.value("/a", 4, 0) == 9


def test_a_damaged_page_stays_damaged_while_it_is_written_and_when_a_crash_cuts_that_short() -> None:
    """I-31: nothing that is added to a page gives its lost locations back."""
    fs = FaultyFileSystem()
    checksums = opened(fs)
    checksums.begin({"/a": rows_of((3, 0, fmt.DAMAGED), (3, 1, 5))})
    assert [checksums.value("/a", 3, page) for page in (0, 1)] == [fmt.DAMAGED, UNKNOWN]
    for _ in range(2):
        fs.crash()
        checksums = opened(fs)
        assert [checksums.value("/a", 3, page) for page in (0, 1)] == [fmt.DAMAGED, UNKNOWN]
        assert checksums.unsettled == {3}


@pytest.mark.parametrize("name_survives", [True, False])
def test_a_file_whose_new_name_could_not_be_synced_is_written_once_more(
    monkeypatch: pytest.MonkeyPatch, *, name_survives: bool
) -> None:
    """What is noted next must not go to the old file, which has no name any more."""
    fs = FaultyFileSystem()
    checksums = opened(fs)
    checksums.adopt("/a", rows_of((3, 0, 1)), checksums.changes)
    monkeypatch.setattr(index_files, "REWRITE_SIZE_MIN", 0)
    fs.fail_nth(Op.SYNC_DIR, 1, errno.EIO)
    failed = False
    for page in range(1, 40):  # until it is large enough to be written anew
        try:
            checksums.adopt("/a", rows_of((3, page, 1)), checksums.changes)
        except OSError:
            failed = True
            break
    assert failed
    checksums.begin({"/a": rows_of((3, 0, 2))})
    image = DiskImage.of(fs)
    fs = image.after_power_cut(image.units if name_survives else ())
    assert opened(fs).value("/a", 3, 0) == UNKNOWN


def test_a_torn_end_is_left_out_and_damage_before_it_drops_the_file() -> None:
    fs = FaultyFileSystem()
    checksums = opened(fs)
    for page in range(4):
        rows = {"/a": rows_of((3, page, page))}
        checksums.begin(rows)
        checksums.written(rows)
        checksums.settle()
    whole = fs.contents(STORE)
    for at in range(0, len(whole), 100):
        fs.poke(STORE, at, bytes([whole[at] ^ 1]))
        twin = IndexChecksums(fs.clone(), ["/a"])
        twin.open(0)
        found = twin.pages_of("/a", 3)
        # The last record is that of settle: without it the last page is unknown; that there is a file is not.
        assert found == ({0: 0, 1: 1, 2: 2, fmt.HEADER_ROW: 0} if at >= len(whole) - 512 else {})
        fs.poke(STORE, at, whole[at : at + 1])


@pytest.mark.parametrize("settled", [True, False])
def test_of_records_that_were_not_synced_the_last_may_be_there_alone(*, settled: bool) -> None:
    """A power cut, not damage; nothing they speak of was begun. Mutant: a good record behind a bad one is damage."""
    fs = FaultyFileSystem()
    checksums = opened(fs)
    rows = {"/a": rows_of((3, 0, 7))}
    checksums.begin(rows)
    checksums.written(rows)
    checksums.settle()
    start = len(fs.contents(STORE))
    checksums.note_damaged("/a", 4, 0)
    checksums.begin({"/a": rows_of((5, 0, 8))})
    if settled:
        checksums.settle()  # knows that the note was durable, so that it is damage now
    assert len(fs.contents(STORE)) >= start + 1024
    fs.poke(STORE, start, bytes(512))
    found = opened(fs)
    assert found.value("/a", 3, 0) == (UNKNOWN if settled else 7)
    assert found.unsettled == set()
    if not settled:
        assert len(fs.contents(STORE)) == start


def test_what_the_kernel_dropped_is_written_by_the_next_process() -> None:
    """I-31, I-48: a page that was noted as damaged would deny its entries without that note. Mutant: only read it."""
    fs = FaultyFileSystem()
    checksums = opened(fs)
    rows = {"/a": rows_of((3, 0, 7))}
    checksums.begin(rows)
    checksums.written(rows)
    checksums.settle()
    checksums.note_damaged("/a", 3, 0)
    fs.fail_nth(Op.SYNC, 1, errno.EIO, drop_dirty=True)
    with pytest.raises(OSError, match="Input/output error"):
        checksums.begin(rows)
    fs.forget_faults()
    assert opened(fs).value("/a", 3, 0) >= fmt.DAMAGED
    fs = DiskImage.of(fs).after_power_cut(())
    assert opened(fs).value("/a", 3, 0) >= fmt.DAMAGED


def test_a_file_older_than_the_entry_logs_is_dropped() -> None:
    """Another bookie has written entries, and their index, meanwhile."""
    fs = FaultyFileSystem()
    checksums = opened(fs, 4)
    checksums.note_log(5)
    assert checksums.adopt("/a", rows_of((1, 0, 9)), checksums.changes)
    checksums.completed("/a")
    assert opened(fs, 5).value("/a", 1, 0) == 9
    assert opened(fs, 5).is_complete("/a")
    later = opened(fs, 6)
    assert later.value("/a", 1, 0) == UNKNOWN
    assert not later.is_complete("/a")


def test_what_was_read_before_something_was_written_is_not_adopted() -> None:
    checksums = opened(FaultyFileSystem())
    before = checksums.changes
    checksums.begin({"/a": rows_of((1, 0, 9))})
    assert not checksums.adopt("/a", rows_of((1, 0, 8)), before)
    assert not checksums.adopt("/a", rows_of((1, 0, 8)), checksums.changes)


def test_the_file_is_written_anew_before_it_grows_for_ever() -> None:
    fs = FaultyFileSystem()
    checksums = opened(fs)
    checksums.note_log(3)
    for value in range(3000):
        rows = {"/a": rows_of((1, 0, value), (2, 0, value))}
        checksums.begin(rows)
        checksums.written(rows)
        checksums.settle()
        assert len(fs.contents(STORE)) <= (1 << 20) + 2048
    fs.crash()
    assert opened(fs, 3).pages_of("/a", 1) in ({0: 2999}, {})


def test_forgotten_ledgers_stay_forgotten() -> None:
    fs = FaultyFileSystem()
    checksums = opened(fs)
    rows = {"/a": rows_of((1, 0, 5), (2, 0, 6))}
    checksums.begin(rows)
    checksums.written(rows)
    checksums.settle()
    checksums.forget([1, 9])
    fs.crash()
    checksums = opened(fs)
    assert checksums.directory_of(1) is None
    assert checksums.directory_of(9) is None


# --- in the storage ---------------------------------------------------------------------------------------------------


def two_pages() -> StoredLedgers:
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 1030)
    stored.add(3, 0, 5)
    stored.fence(4)
    stored.checkpoint()
    return stored


INDEX = "/a/current/0/2/2.idx"


def test_a_zeroed_page_is_never_taken_for_an_empty_one() -> None:
    stored = two_pages()
    for offset in (1024, 1024 + 512, 1024 + 8 * 7):
        whole = stored.fs.contents(INDEX)
        size = 8192 if offset == 1024 else 512 if offset == 1536 else 8
        stored.fs.poke(INDEX, offset, bytes(size))
        stored.start()
        results = stored.read(2, range(1030))
        bad = [entry_id for entry_id, result in enumerate(results) if result is Status.IO_ERROR]
        first = (offset - 1024) // 8
        assert bad == list(range(first, first + size // 8))
        assert not NEGATIVE & {result for result in results if isinstance(result, Status)}
        (damage,) = stored.storage.damage.all()
        assert (damage.ledger_id, damage.first_entry_id, damage.last_entry_id) == (2, 0, 1023)
        assert (damage.path, damage.offset) == (INDEX, 1024)
        with pytest.raises(StorageError):
            stored.storage.held_cold(2, 0, 1024)
        assert stored.read(3, [0]) == [stored.entries[3, 0]]
        stored.fs.poke(INDEX, 0, whole)


@pytest.mark.parametrize("count", [1000, 1023, 1024, 1025, 2047, 2048])
def test_the_last_page_is_checked_however_full_it_is(count: int) -> None:
    """I-31, I-59: it was not where its last slot was used, and what was zeroed in it was denied."""
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, count)
    stored.checkpoint()
    first = (count - 1) // 1024 * 1024
    stored.fs.poke(INDEX, 1024 + 8 * first, bytes(8))
    stored.start()
    assert stored.read(2, [first, count - 1])[0] is Status.IO_ERROR
    assert stored.storage.damaged(2, [first]) == {first}
    with pytest.raises(StorageError):
        stored.storage.held_cold(2, first, first + 1)
    list(stored.storage.scrub().steps(everything=True))
    stored.storage.checkpoint()
    stored.start()
    assert stored.read(2, [first]) in ([stored.entries[2, first]], [Status.IO_ERROR])


def test_of_a_zeroed_last_page_nothing_is_denied_and_nothing_taken_for_new() -> None:
    """The highest entry is not known; key and fence are, and what other pages say."""
    stored = two_pages()
    stored.fence(2)
    stored.checkpoint()
    stored.fs.poke(INDEX, 1024 + 8192, bytes(8192))
    stored.start()
    assert stored.read(2, [1029, 1030, 2047, LAST_ENTRY]) == [Status.IO_ERROR] * 4
    assert stored.read(2, [0, 2048]) == [stored.entries[2, 0], Status.NO_ENTRY]  # the header knows of two pages
    assert not stored.storage.all_new(2, [1030])
    assert stored.storage.damaged(2, [1029, 1030, 1023]) == {1029, 1030}
    assert stored.storage.is_fenced(2)
    assert stored.storage.master_key(2) == stored.keys[2]


def test_a_ledger_whose_only_page_is_damaged_is_repaired_in_place() -> None:
    """As a recovery add does it: all of it is readable again, and what was never there stays unknown."""
    stored = two_pages()
    stored.fs.poke("/a/current/0/3/3.idx", 1024, bytes(8192))
    stored.start()
    stored.storage.replay_finished()
    assert stored.read(3, range(5)) == [Status.IO_ERROR] * 5
    assert stored.storage.damaged(3, range(5)) == set(range(5))
    stored.add(3, 0, 5)
    stored.checkpoint()
    for _ in range(2):
        assert stored.read(3, range(5)) == [stored.entries[3, entry_id] for entry_id in range(5)]
        assert stored.read(3, [5]) == [Status.IO_ERROR]
        stored.start()


@pytest.mark.parametrize("ledger_id", [2, 4])
def test_a_missing_index_file_is_damage_and_not_an_unknown_ledger(ledger_id: int) -> None:
    """Also that of a ledger which has nothing but a fence (I-22)."""
    stored = two_pages()
    stored.fs.unlink(f"/a/current/0/{ledger_id}/{ledger_id}.idx")
    stored.start()
    assert stored.read(ledger_id, [0]) == [Status.IO_ERROR]
    with pytest.raises(CorruptRecord):
        stored.storage.is_fenced(ledger_id)
    assert len(stored.storage.damage) == 1


def test_a_damaged_page_stops_no_checkpoint_and_keeps_what_is_added_to_it() -> None:
    """Its zeros stay unknown, also after another page of the same ledger and this one were written."""
    stored = two_pages()
    stored.fs.poke(INDEX, 1024 + 8 * 100, bytes(80))
    stored.start()
    stored.storage.replay_finished()
    stored.add(2, 100, 2)  # as a repair does
    stored.add(2, 1030, 5)
    stored.checkpoint()
    for _ in range(2):
        results = stored.read(2, range(1035))
        bad = [entry_id for entry_id, result in enumerate(results) if result is Status.IO_ERROR]
        assert bad == list(range(102, 110))
        assert not NEGATIVE & {result for result in results if isinstance(result, Status)}
        stored.start()


def test_a_crash_while_something_is_added_to_a_damaged_page_makes_no_denial_of_it() -> None:
    """I-31: the page is neither what it was nor what it was to become, and nobody may take it for whole."""
    whole = two_pages()
    whole.fs.poke(INDEX, 1024 + 8 * 100, bytes(80))
    for op, path, nth in ((Op.WRITE, INDEX, 1), (Op.SYNC, INDEX, 1), (Op.WRITE, STORE, 2), (Op.SYNC, STORE, 2)):
        stored = StoredLedgers(settings=StorageSettings(), fs=whole.fs.clone())
        stored.storage.replay_finished()
        stored.add(2, 100, 2)
        stored.storage.rotate()
        stored.storage.flush_snapshot()
        stored.storage.entry_logs.roll()
        stored.fs.fail_nth(op, nth, errno.EIO, path=path)
        with pytest.raises(OSError, match="error"):
            stored.checkpoint()
        stored.fs.end_processes()
        for _ in range(2):
            stored.start()
            stored.replay()
            assert set(stored.read(2, range(102, 110))) == {Status.IO_ERROR}


def test_pages_are_unknown_after_another_bookie_wrote_and_nothing_is_denied() -> None:
    stored = two_pages()
    log = stored.fs.open("/a/current/9.log", OpenMode.CREATE_EXCLUSIVE)
    log.pwrite(stored.fs.contents("/a/current/1.log")[:1024], 0)
    log.sync()
    page = bytearray(stored.fs.contents(INDEX)[1024:9216])
    page[800:808] = page[808:816]  # legal bytes, of somebody else
    stored.fs.poke(INDEX, 1024, bytes(page))
    stored.start()
    results = stored.read(2, range(1030))
    assert results[100] is Status.IO_ERROR  # by the ids in the log
    assert results.count(Status.IO_ERROR) == 1


@pytest.mark.parametrize("damage", ["missing", "zeroed", "cut"])
def test_without_the_checksums_everything_is_read_as_before(damage: str) -> None:
    stored = two_pages()
    if damage == "missing":
        stored.fs.unlink(STORE)
    elif damage == "zeroed":
        stored.fs.poke(STORE, 0, bytes(len(stored.fs.contents(STORE))))
    else:
        stored.fs.poke(STORE, 512, bytes(len(stored.fs.contents(STORE)) - 512))
    stored.start()
    stored.check()
    stored.add(2, 1030, 5)
    stored.checkpoint()
    stored.start()
    stored.check()


def test_a_directory_without_room_for_a_new_index_file_does_not_claim_that_it_has_it() -> None:
    """I-59, I-68: the file is made elsewhere; else the ledger would be damaged, not absent, once it is deleted."""
    stored = StoredLedgers(ledger_dirs=("/a", "/b"))
    stored.replay()
    stored.add(2, 0, 3)
    stored.fs.fail_nth(Op.WRITE, 1, errno.ENOSPC, path="2.idx.new")
    with pytest.raises(NoWritableDisk):
        stored.checkpoint()
    stored.checkpoint()
    stored.directories.set_full(())
    stored.add(4, 0, 3)
    stored.checkpoint()  # syncs what the one before said
    stored.check()
    stored.delete(2)
    assert stored.read(2, [0]) == [Status.NO_LEDGER]
    stored.crash()
    stored.replay()
    assert stored.read(2, [0]) == [Status.NO_LEDGER]


def test_a_ledger_that_lost_its_index_file_is_never_denied_wherever_the_power_goes() -> None:
    """I-31, I-59. Method: a ledger that a checkpoint has covered, so that the journal may forget it; another checkpoint
    writes to it, and the power goes at each of its operations, with several choices of what was not synced; its index
    file is gone, by accident. The first checkpoint, too: from the moment its mark counts.
    """
    cuts = 0
    while True:
        stored = two_pages()
        covered = stored.fs.clone()
        stored.add(2, 1030, 3)
        stored.add(3, 5, 3)
        stored.fs.cut_power_at(cuts + 1)
        try:
            stored.checkpoint()
        except PowerCut:
            cuts += 1
        else:
            break
        for seed in range(6):
            for ledger_id in (2, 3, 4):
                _check_denies_nothing(stored.fs, ledger_id, seed)
    assert cuts >= 10
    for fs in (covered, stored.fs):
        for ledger_id in (2, 3, 4):
            _check_denies_nothing(fs, ledger_id, seed=0)


def _check_denies_nothing(fs: FaultyFileSystem, ledger_id: int, seed: int) -> None:
    twin = fs.clone()
    twin.forget_faults()
    twin.crash(random.Random(seed) if seed else None)
    twin.unlink(f"/a/current/0/{ledger_id}/{ledger_id}.idx")
    started = StoredLedgers(settings=StorageSettings(), fs=twin)
    for _ in range(2):
        assert started.read(ledger_id, [0, LAST_ENTRY]) == [Status.IO_ERROR] * 2
        with pytest.raises(CorruptRecord):
            started.storage.add(ledger_id, [7], [b"x" * 40])  # nor made anew, with what the journal still has
        started.start()


def test_a_damaged_page_stays_damaged_when_a_crash_cuts_short_what_is_added_to_it() -> None:
    """I-31, I-59: else the scrub would take its zeros for what was written."""
    stored = two_pages()
    stored.fs.poke(INDEX, 1024 + 8 * 100, bytes(80))
    stored.start()
    stored.storage.replay_finished()
    stored.add(2, 100, 2)
    stored.fs.fail_nth(Op.SYNC, 1, errno.EIO, path="2.idx")
    with pytest.raises(OSError, match="5"):
        stored.checkpoint()
    assert stored.storage.read_cold(2, [105]) == [Status.IO_ERROR]
    stored.fs.end_processes()
    for _ in range(2):
        stored.start()
        for _ in stored.storage.scrub().steps(everything=True):
            pass
        assert stored.read(2, [105]) == [Status.IO_ERROR]
