"""The scrub finds what is damaged, says whose it is, and makes checksums of what has none (I-67)."""

import random
from collections.abc import Callable

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.integrity.damage import record as damage_module
from bookkeeper.bookie.integrity.damage.record import NO_LEDGER, Damage
from bookkeeper.bookie.integrity.scrub import page_repair
from bookkeeper.bookie.integrity.scrub import steps as scrub_module
from bookkeeper.bookie.integrity.scrub.page_repair import BadPage, FoundPages, PageSearch
from bookkeeper.bookie.integrity.scrub.repair_turns import MendingTurn
from bookkeeper.bookie.offline.checksum_check import check_log_pages
from bookkeeper.bookie.offline.index_rebuild import IndexRebuild, Journaled
from bookkeeper.bookie.offline.inspection import iter_records
from bookkeeper.bookie.storage.entry_log.format import LogHeader, decode_header, encode_header
from bookkeeper.bookie.storage.entry_log.ledgers_map import LogLedgers
from bookkeeper.bookie.storage.index import format as fmt
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.bookie.storage.settings import StorageSettings
from bookkeeper.errors import CorruptRecord
from bookkeeper.filesystem import OpenMode
from bookkeeper.model import LAST_ENTRY, Status
from tests.support.faulty_filesystem import PowerCut
from tests.support.stored_ledgers import StoredLedgers

LARGE_LOGS = StorageSettings(
    memtable_bytes_max=1 << 20, open_files_max=16, entry_log_bytes_max=50 << 10, block_bytes=16 << 10
)
LOG = "/a/current/1.log"


def stored_ledgers() -> StoredLedgers:
    """Two ledgers that share log 1, which is closed; the rest is in log 2 or later."""
    stored = StoredLedgers(settings=LARGE_LOGS)
    for round_ in range(3):
        for ledger_id in (2, 3):
            stored.add(ledger_id, round_ * 40, 40, payload=b"x" * 300)
        stored.flush()
    stored.fence(4)
    stored.checkpoint()
    return stored


def scrub(stored: StoredLedgers, *, everything: bool = True) -> list[Damage]:
    scrubbing = stored.storage.scrub()
    assert all(size <= 1 << 20 for size in scrubbing.steps(everything=everything))
    assert scrubbing.counters.unreadable == 0
    return stored.storage.damage.all()


def restarted(stored: StoredLedgers) -> StoredLedgers:
    stored.start()
    stored.storage.replay_finished()
    return stored


def test_nothing_is_found_where_nothing_is_damaged_and_reading_goes_on_meanwhile() -> None:
    stored = stored_ledgers()
    for _ in range(2):
        for step, _ in enumerate(stored.storage.scrub().steps(everything=True)):
            stored.add(5, step, 1)
            if step % 3 == 0:
                stored.checkpoint()
        stored.check()
        restarted(stored)


def test_a_damaged_page_of_a_log_is_reported_with_the_entries_it_takes_along() -> None:
    stored = stored_ledgers()
    stored.fs.poke(LOG, 20_000, b"?")
    damages = scrub(restarted(stored))
    assert damages
    assert {(damage.path, damage.offset) for damage in damages} == {(LOG, 16384)}
    for ledger_id in (2, 3):
        results = stored.read(ledger_id, range(120))
        bad = {entry_id for entry_id, result in enumerate(results) if result is Status.IO_ERROR}
        reported = {
            entry_id
            for damage in damages
            if damage.ledger_id == ledger_id
            for entry_id in range(damage.first_entry_id, damage.last_entry_id + 1)
        }
        assert bad == reported


def test_a_damaged_page_that_no_entry_needs_is_reported_without_one() -> None:
    stored = stored_ledgers()
    map_offset = decode_header(stored.fs.contents(LOG), LOG).map_offset
    stored.fs.poke(LOG, map_offset + 2, b"?")
    damages = scrub(restarted(stored))
    assert {damage.ledger_id for damage in damages} >= {NO_LEDGER}
    assert {damage.path for damage in damages} == {LOG}


@pytest.mark.parametrize("offset", [0, 5, 9, 17, 492, 500, 511])
def test_a_damaged_header_of_a_log_is_found(offset: int) -> None:
    stored = stored_ledgers()
    held = stored.fs.contents(LOG)
    stored.fs.poke(LOG, offset, bytes([held[offset] ^ 1]))
    (damage,) = scrub(restarted(stored))
    assert (damage.ledger_id, damage.path, damage.offset) == (NO_LEDGER, LOG, 0)
    stored.fs.poke(LOG, 0, held)
    restarted(stored).check()


@pytest.mark.parametrize("kept", [1024, 5000, 16384, 40_000])
def test_a_log_that_was_cut_is_found(kept: int) -> None:
    stored = stored_ledgers()
    file = stored.fs.open(LOG, OpenMode.UPDATE)
    file.truncate(kept)
    file.sync()
    damages = scrub(restarted(stored))
    lost = {(damage.ledger_id, damage.path) for damage in damages}
    assert lost <= {(2, LOG), (3, LOG), (NO_LEDGER, LOG)}
    assert damages
    for ledger_id in (2, 3):
        for entry_id, result in enumerate(stored.read(ledger_id, range(120))):
            covered = stored.storage.damaged(ledger_id, [entry_id])
            assert (result is Status.IO_ERROR) == bool(covered), entry_id


def test_a_log_without_checksums_gets_them_and_damage_is_found_from_then_on() -> None:
    stored = stored_ledgers()
    stored.fs.unlink("/a/current/1.crc")
    restarted(stored)
    assert scrub(stored, everything=False) == []
    assert stored.fs.exists("/a/current/1.crc")
    stored.fs.poke(LOG, 20_000, b"?")
    assert scrub(restarted(stored))


def test_a_log_that_a_killed_bookie_left_gets_checksums_but_no_known_damage_is_forgotten() -> None:
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 100, payload=b"y" * 100)
    stored.checkpoint()
    stored.fs.poke(LOG, 5000, b"?")
    restarted(stored)
    for _ in range(2):
        damages = scrub(stored, everything=False)
        assert {(damage.path, damage.offset) for damage in damages} == {(LOG, 4096)}
        assert Status.IO_ERROR in stored.read(2, range(100))
        restarted(stored)
        assert Status.IO_ERROR in stored.read(2, range(100))
    assert scrub(stored, everything=True)


def test_a_damaged_index_page_is_found_and_a_torn_header_is_mended() -> None:
    stored = stored_ledgers()
    path = "/a/current/0/2/2.idx"
    whole = stored.fs.contents(path)
    stored.fs.poke(path, 600, b"torn")
    restarted(stored)
    assert scrub(stored) == []
    stored.checkpoint()
    assert stored.fs.durable_contents(path)[:1024] == whole[:1024]
    stored.fs.poke(path, 1024 + 80, bytes(8))
    (damage,) = scrub(restarted(stored))
    assert (damage.ledger_id, damage.path, damage.offset) == (2, path, 1024)
    stored.fs.poke(path, 0, bytes(1024))
    assert {damage.first_entry_id for damage in scrub(restarted(stored))} == {0}


@pytest.mark.parametrize("ledger_id", [2, 4])
def test_a_missing_index_file_is_found(ledger_id: int) -> None:
    stored = stored_ledgers()
    path = f"/a/current/0/{ledger_id}/{ledger_id}.idx"
    stored.fs.unlink(path)
    (damage,) = scrub(restarted(stored))
    assert (damage.ledger_id, damage.path) == (ledger_id, path)


def test_a_missing_log_is_found_through_the_index() -> None:
    stored = stored_ledgers()
    stored.fs.unlink(LOG)
    damages = scrub(restarted(stored))
    assert {damage.ledger_id for damage in damages} == {2, 3}


def test_an_index_without_checksums_gets_them() -> None:
    stored = stored_ledgers()
    stored.fs.unlink("/a/current/indexChecksums")
    restarted(stored)
    assert stored.storage.scrub().catch_up_due
    assert scrub(stored, everything=False) == []
    restarted(stored)
    assert not stored.storage.scrub().catch_up_due
    stored.fs.poke("/a/current/0/2/2.idx", 1024, bytes(16))
    assert len(scrub(restarted(stored))) == 1


def test_pages_that_a_crash_left_unknown_get_checksums_again() -> None:
    """The settling record of the last checkpoint is not synced."""
    stored = stored_ledgers()
    stored.crash()
    stored.replay()
    assert stored.storage.scrub().catch_up_due
    assert scrub(stored, everything=False) == []
    restarted(stored)
    stored.fs.poke("/a/current/0/3/3.idx", 1024, bytes(16))
    assert len(scrub(restarted(stored))) == 1


def test_an_unreadable_file_stops_no_other() -> None:
    stored = stored_ledgers()
    stored.fs.poke("/a/current/0/2/2.idx", 0, b"JUNK" * 256)
    stored.fs.poke("/a/current/0/3/3.idx", 1024, bytes(16))
    assert {damage.ledger_id for damage in scrub(restarted(stored))} == {2, 3}


def test_damaged_entries_that_were_added_again_are_whole_for_good() -> None:
    """What a recovery add does to them, with a checkpoint, a restart and a scrub behind it (I-67)."""
    stored = stored_ledgers()
    stored.fs.poke(LOG, 20_000, b"?")
    before = scrub(restarted(stored))
    for damage in before:
        entry_ids = range(damage.first_entry_id, damage.last_entry_id + 1)
        assert stored.storage.damaged(damage.ledger_id, entry_ids) == set(entry_ids)
        stored.add(damage.ledger_id, damage.first_entry_id, len(entry_ids), payload=b"x" * 300)
        assert stored.storage.damaged(damage.ledger_id, entry_ids) == set()
    stored.check()
    stored.checkpoint()
    stored.check()
    restarted(stored).check()
    (left,) = scrub(stored)  # the bytes are as they were, but no entry needs them
    assert (left.ledger_id, left.path, left.offset) == (NO_LEDGER, LOG, 16384)


def test_entries_added_again_to_a_damaged_index_page_are_found() -> None:
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 1100)
    stored.checkpoint()
    stored.fs.poke("/a/current/0/2/2.idx", 1024 + 8 * 10, bytes(16))
    restarted(stored)
    assert stored.read(2, [9, 10, 11, 12])[1:3] == [Status.IO_ERROR] * 2
    assert stored.storage.damaged(2, [10, 11]) == {10, 11}
    stored.add(2, 10, 2)
    stored.checkpoint()
    restarted(stored)
    assert stored.read(2, range(1100)) == [stored.entries[2, entry_id] for entry_id in range(1100)]


def test_no_damaged_page_is_copied_by_compaction() -> None:
    """A copy would get a checksum of its own, and look whole for ever."""
    stored = stored_ledgers()
    stored.fs.poke(LOG, 20_000, b"?")
    restarted(stored)
    with pytest.raises(CorruptRecord, match="16384"):
        stored.compact(1)
    logs = stored.storage.entry_logs
    assert stored.fs.exists(LOG)
    with pytest.raises(CorruptRecord, match="16384"):
        list(LogLedgers(stored.fs, logs.checksums).scan(1, LOG))


def test_an_index_file_that_was_made_anew_offline_is_no_damage() -> None:
    stored = stored_ledgers()
    stored.fs.poke("/a/current/0/2/2.idx", 1024, bytes(64))
    nothing = Journaled({}, (), {}, {}, {})
    rebuild = IndexRebuild(stored.fs, ["/a"], ["/a"], [2], nothing, lambda _: None)
    rebuild.scan(lambda _: None)
    assert rebuild.write(2).refused is None
    restarted(stored).check()
    assert scrub(stored) == []
    stored.check()


def test_what_a_killed_bookie_appended_behind_its_last_checkpoint_is_no_damage() -> None:
    """It begins inside a page whose first bytes have a checksum; they are checked, offline and by the scrub."""
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 20, payload=b"y" * 100)
    stored.checkpoint()
    size = len(stored.fs.contents(LOG))
    stored.add(2, 20, 20, payload=b"y" * 100)
    stored.flush()
    assert size % 4096
    assert size < len(stored.fs.contents(LOG))
    assert list(check_log_pages(stored.fs, 1, LOG, {})) == []
    stored.start()
    assert scrub(stored, everything=False) == []


def test_what_is_in_the_cache_alone_is_made_durable_before_checksums_speak_of_it() -> None:
    """A killed bookie left it; a power cut behind the scrub must not look like damage."""
    stored = stored_ledgers()
    stored.add(2, 120, 40, payload=b"z" * 300)
    stored.flush()
    stored.fs.poke("/a/current/indexChecksums", 0, b"nothing to trust")
    file = stored.fs.open("/a/current/0/3/3.idx", OpenMode.UPDATE)
    file.pwrite(stored.fs.contents("/a/current/0/3/3.idx")[1024:1032], 1024 + 8 * 500)  # of an unfinished checkpoint
    stored.fs.end_processes()
    restarted(stored)
    assert scrub(stored, everything=False) == []
    stored.checkpoint()
    stored.fs.crash()
    assert scrub(restarted(stored)) == []


@pytest.mark.parametrize("size", [0, 512, 1024])
def test_a_log_that_a_crash_kept_without_its_header_is_no_damage(size: int) -> None:
    stored = stored_ledgers()
    path = "/a/current/7f.log"
    file = stored.fs.open(path, OpenMode.CREATE_EXCLUSIVE)
    file.pwrite(stored.fs.contents(LOG)[:4].ljust(512, b"\0") if size == 512 else bytes(size), 0)
    restarted(stored)
    assert scrub(stored) == []


def test_a_page_that_was_checked_in_part_stays_bad_when_its_first_part_is() -> None:
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 20, payload=b"y" * 100)
    stored.checkpoint()
    stored.add(2, 20, 20, payload=b"y" * 100)
    stored.flush()
    stored.fs.poke(LOG, 1100, b"?")
    assert [(fault.path, fault.offset) for fault in check_log_pages(stored.fs, 1, LOG, {})] == [(LOG, 1024)]
    for _ in range(2):
        stored.start()
        assert {damage.offset for damage in scrub(stored, everything=True)} == {1024}


@pytest.mark.parametrize("content", [b"", b"BK", encode_header(LogHeader())[:100], encode_header(LogHeader())])
def test_a_log_in_which_nothing_was_written_is_no_damage(content: bytes) -> None:
    """A genuine bookie of 4.18.0 creates the next log ahead and leaves it without a byte; the header may follow."""
    stored = stored_ledgers()
    file = stored.fs.open("/a/current/77.log", OpenMode.CREATE_EXCLUSIVE)
    file.pwrite(content, 0)
    file.sync()
    restarted(stored)
    for _ in range(2):
        assert scrub(stored) == []
        stored.check()
        restarted(stored)


def test_a_log_that_was_cut_to_nothing_is_damage_as_long_as_its_checksums_tell() -> None:
    stored = stored_ledgers()
    file = stored.fs.open(LOG, OpenMode.UPDATE)
    file.truncate(0)
    file.sync()
    restarted(stored)
    assert {damage.ledger_id for damage in scrub(stored)} == {2, 3, NO_LEDGER}


# --- index pages made anew --------------------------------------------------------------------------------------------


def mendable() -> StoredLedgers:
    """Ledger 2 has two index pages with gaps, over several closed logs; the log being written has none of it."""
    stored = StoredLedgers(settings=LARGE_LOGS)
    stored.replay()
    for first in range(0, 1200, 200):
        stored.add(2, first, 150, payload=b"x" * 100)
        stored.add(3, first, 50)
        stored.checkpoint()
    stored.storage.entry_logs.roll()
    for _ in stored.storage.scrub().steps(everything=True):
        pass
    return stored


INDEX = "/a/current/0/2/2.idx"
PAGE_0, PAGE_1 = 1024, 1024 + 8192


def mended(stored: StoredLedgers) -> int:
    """A round and a checkpoint; the pages that were made anew."""
    scrub(stored)
    assert stored.storage.is_dirty == bool(stored.storage._found_pages)  # noqa: SLF001
    stored.checkpoint()
    return stored.storage._found_pages.mended_count  # noqa: SLF001


@pytest.mark.parametrize("damage", [bytes(8192), bytes(800), b"\xff" * 8, b"\0\0\0\1\0\0\x10\0"])
@pytest.mark.parametrize("offset", [PAGE_0, PAGE_1, PAGE_0 + 8 * 20])
def test_a_damaged_index_page_is_made_anew_out_of_the_logs(offset: int, damage: bytes) -> None:
    """I-59: every entry is found again, and what was never stored is denied again; for good."""
    stored = mendable()
    stored.fs.poke(INDEX, offset, damage[: 8192 - (offset - PAGE_0) % 8192])
    restarted(stored)
    assert mended(stored) == 1
    stored.check()
    for _ in range(2):
        stored.crash()
        stored.replay()
        assert scrub(stored) == []
        stored.check()


def test_a_damaged_index_page_that_memory_has_whole_is_written_anew_from_there() -> None:
    stored = mendable()
    assert stored.read(2, [7]) == [stored.entries[2, 7]]
    stored.fs.poke(INDEX, PAGE_0, bytes(8192))
    assert mended(stored) == 1
    stored.check()
    restarted(stored)
    stored.check()


def test_the_last_entry_of_a_page_that_was_made_anew_is_never_denied_nor_guessed() -> None:
    """Of a damaged last page the last entry is not known; it is once the ledger was read anew (I-31)."""
    stored = mendable()
    stored.fs.poke(INDEX, PAGE_1, bytes(8192))
    restarted(stored)
    assert stored.storage.read_cold(2, [LAST_ENTRY]) == [Status.IO_ERROR]
    scrub(stored)
    stored.storage.rotate()
    stored.storage.checkpoint()
    assert stored.storage.read_cold(2, [LAST_ENTRY, 0]) == [Status.IO_ERROR, stored.entries[2, 0]]
    assert stored.storage.read(2, [0]) in ([None], [stored.entries[2, 0]])  # the reactor has it read anew
    assert stored.read(2, [LAST_ENTRY]) == [stored.entries[2, 1149]]
    stored.check()


def _flip(path: str, offset: int) -> Callable[[StoredLedgers], None]:
    def flip(stored: StoredLedgers) -> None:
        stored.fs.poke(path, offset, b"?")

    return flip


def _unseal(stored: StoredLedgers) -> None:
    stored.fs.poke(LOG, 0, encode_header(LogHeader()))


def _hide_a_record(stored: StoredLedgers) -> None:
    """In a log whose checksums were lost: they are made anew of what it has by then. Its map says that it lacks one."""
    record = next(iter_records(stored.fs, LOG, log_id=1))
    stored.fs.poke(LOG, record.offset, (9).to_bytes(8, "big"))
    stored.storage.entry_logs.checksums.remove(1)


def _lose_log(stored: StoredLedgers) -> None:
    stored.fs.unlink(LOG)
    stored.fs.unlink(LOG.replace(".log", ".crc"))


def _tear_side_file(stored: StoredLedgers) -> None:
    """Of a log that a kill left: where its writer had synced it is not known any more."""
    _kill_while_writing(stored)
    side_file = f"/a/current/{stored.storage.entry_logs.highest_log_id:x}.crc"
    stored.fs.poke(side_file, 300, b"????")


def _cut_a_killed_log(stored: StoredLedgers) -> None:
    _kill_while_writing(stored)
    path = f"/a/current/{stored.storage.entry_logs.highest_log_id:x}.log"
    file = stored.fs.open(path, OpenMode.UPDATE)
    file.truncate(2000)


def _kill_while_writing(stored: StoredLedgers) -> None:
    """The log in use has entries of the damaged page, and behind its last checkpoint some of nobody's."""
    stored.add(2, 160, 30)
    stored.checkpoint()
    stored.add(9, 0, 30)
    stored.flush()
    stored.fs.end_processes()
    restarted(stored)


def _cut_compaction_short(stored: StoredLedgers) -> None:
    stored.storage.entry_logs.unfinished.append((2, 1))


@pytest.mark.parametrize(
    "obstacle",
    [_flip(LOG, 9000), _unseal, _hide_a_record, _lose_log, _cut_compaction_short, _tear_side_file, _cut_a_killed_log],
)
def test_an_index_page_is_not_made_anew_where_an_entry_might_be_overlooked(
    obstacle: Callable[[StoredLedgers], None],
) -> None:
    """I-31, I-59: then its zeros stay unknown, and nothing is denied."""
    stored = mendable()
    stored.fs.poke(INDEX, PAGE_0, bytes(8192))
    restarted(stored)
    obstacle(stored)
    if obstacle is _lose_log:
        restarted(stored)
    scrubbing = stored.storage.scrub()
    for _ in scrubbing.steps(everything=True):
        pass
    assert scrubbing.counters.pages_left == 1
    ((page, why),) = scrubbing.unmended
    assert (page.ledger_id, page.page, bool(why)) == (2, 0, True)
    stored.checkpoint()
    assert stored.storage._found_pages.mended_count == 0  # noqa: SLF001
    for _ in range(2):
        assert stored.read(2, [0, 149, 150, 1000]) == [Status.IO_ERROR] * 4
        restarted(stored)


def test_logs_without_checksums_tell_nothing_about_an_index_page() -> None:
    stored = mendable()
    bad = BadPage("/a", 2, INDEX, 0)
    found = FoundPages()
    for lost in (None, 1):
        if lost is not None:
            stored.storage.entry_logs.checksums.remove(lost)
        search = PageSearch(stored.fs, stored.storage.entry_logs, found)
        assert (sum(search.steps([bad])) > 50_000) == (lost is None)
        assert list(search.left) == ([bad] if lost else [])
        assert len(found) == (0 if lost else 1)


@pytest.mark.parametrize("byte", range(8))
@pytest.mark.parametrize("written_before", [False, True])
def test_a_byte_flipped_in_an_empty_slot_is_healed_by_the_page_s_checksum(byte: int, *, written_before: bool) -> None:
    """No log has a record, and with the slot empty the page has the checksum that it was written with.

    Also after a repair has written other entries of it anew (I-31: of those that none was stored the answer is "no").
    """
    stored = mendable()
    stored.fs.poke(INDEX, PAGE_0 + 8 * 160 + byte, b"@")
    restarted(stored)
    if written_before:
        for first in (0, 200, 400):
            stored.add(2, first, 150, payload=b"anew")
        stored.checkpoint()
        restarted(stored)
        assert stored.read(2, [160, 5]) == [Status.IO_ERROR, stored.entries[2, 5]]
    assert mended(stored) == 1
    for _ in range(2):
        assert stored.read(2, [160]) == [Status.NO_ENTRY]
        assert stored.storage.damage.all() == []
        stored.check()
        restarted(stored)


def _without_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a power cut while entries were written onto a damaged page."""
    monkeypatch.setattr(page_repair, "expected_checksum", lambda value: None)


@pytest.mark.parametrize(
    "place", [b"\0\0\0\1\0\0\x10\0", b"\0\0\0\0\0\0\0@", b"\0\0\0@\0\0\x10\0", b"\x80\0\0\1\0\0\x10\0"]
)
def test_without_its_checksum_a_page_is_made_anew_where_the_place_it_names_cannot_be(
    place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a log that is here and has something else there; or where no record, or no log, ever was."""
    _without_checksum(monkeypatch)
    stored = mendable()
    stored.fs.poke(INDEX, PAGE_0 + 8 * 160, place)
    restarted(stored)
    assert mended(stored) == 1
    for _ in range(2):
        assert stored.read(2, [160]) == [Status.NO_ENTRY]
        stored.check()
        restarted(stored)


def test_what_a_repair_wrote_anew_is_not_reported_again_where_the_page_stays_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would be written anew for ever, and the logs would grow with each round."""
    _without_checksum(monkeypatch)
    stored = mendable()
    stored.fs.poke(INDEX, PAGE_0 + 8 * 160, b"\0\0\0\0\0\0\x10\0")
    restarted(stored)
    assert [(each.first_entry_id, each.last_entry_id) for each in scrub(stored)] == [(0, 1023)]
    stored.add(2, 0, 160, payload=b"anew")
    stored.add(2, 161, 863, payload=b"anew")
    for _ in range(2):
        stored.checkpoint()
        assert stored.read(2, [5, 160, 161]) == [stored.entries[2, 5], Status.IO_ERROR, stored.entries[2, 161]]
        assert [(each.first_entry_id, each.last_entry_id) for each in scrub(stored)] == [(160, 160)]
        assert stored.storage.scrub().pages_damaged


def test_a_page_that_names_a_place_in_a_log_that_is_gone_stays_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """I-31: something may have been there; without its checksum nothing tells."""
    _without_checksum(monkeypatch)
    stored = mendable()
    stored.fs.poke(INDEX, PAGE_0 + 8 * 160, b"\0\0\0\0\0\0\x10\0")
    restarted(stored)
    assert mended(stored) == 0
    for _ in range(2):
        assert stored.read(2, [150, 160]) == [Status.IO_ERROR] * 2
        assert stored.read(2, [0]) == [stored.entries[2, 0]]
        restarted(stored)


@pytest.mark.parametrize("between", ["roll", "compact", "add", "delete"])
def test_what_changes_between_the_search_and_the_checkpoint_is_not_lost(between: str) -> None:
    stored = mendable()
    stored.fs.poke(INDEX, PAGE_0, bytes(8192))
    restarted(stored)
    scrub(stored)
    match between:
        case "roll":
            stored.add(3, 5000, 1)
            stored.flush()
            stored.storage.entry_logs.roll()
        case "compact":
            stored.storage.entry_logs.publish(77, LOG)
        case "add":
            stored.add(2, 0, 1, payload=b"newer")
            stored.add(2, 170, 1)
            stored.flush()
        case "delete":
            stored.delete(2)
    stored.checkpoint()
    if between == "delete":
        assert stored.read(2, [0]) == [Status.NO_LEDGER]
        return
    if between == "compact":
        assert stored.storage._found_pages.mended_count == 0  # noqa: SLF001
        assert stored.read(2, [1, 151]) == [Status.IO_ERROR] * 2
        return
    assert stored.storage._found_pages.mended_count == 1  # noqa: SLF001
    stored.check()
    restarted(stored)
    stored.check()


def test_a_page_whose_ledger_got_much_is_made_anew_once_the_active_log_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I-59: what a checkpoint cannot read at once the next search reads; a ledger that is written to is healed, too."""
    monkeypatch.setattr(page_repair, "NEWER_BYTES_MAX", 1500)
    stored = mendable()
    stored.fs.poke(INDEX, PAGE_0, bytes(8192))
    restarted(stored)
    stored.add(2, 160, 30)
    stored.checkpoint()
    rolled = stored.storage.rolled_log_count
    assert mended(stored) == 0
    assert stored.storage.rolled_log_count == rolled + 1
    assert stored.read(2, [0, 151]) == [Status.IO_ERROR] * 2
    assert mended(stored) == 1
    stored.check()


def test_a_log_that_a_kill_left_is_as_certain_as_a_sealed_one_up_to_what_was_synced() -> None:
    """I-58, I-59: what is behind the last sync no index names, whatever a power cut makes of it."""
    stored = mendable()
    stored.fs.poke(INDEX, PAGE_0, bytes(8192))
    restarted(stored)
    _kill_while_writing(stored)
    log_id = stored.storage.entry_logs.highest_log_id
    size = stored.storage.entry_logs.size_of(log_id)
    end = stored.storage.entry_logs.checksums.blocks(log_id)[-1]
    assert end is not None
    assert end.end < size
    stored.replay()
    stored.storage.entry_logs.roll()
    assert mended(stored) == 1
    assert stored.storage.entry_logs.checksums.certain_end(log_id) == end.end
    stored.check()
    path = f"/a/current/{log_id:x}.log"
    stored.fs.poke(path, end.end + 5, bytes(size - end.end - 5))  # a sync that failed once, and a power cut
    restarted(stored)
    assert scrub(stored) == []
    stored.check()


def test_a_log_whose_last_known_page_is_full_is_taken_as_it_was_found() -> None:
    """Another block may have followed, and be lost: the log must not end before what the index names."""
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 1600, payload=b"y" * 3000)
    stored.checkpoint()
    side_file = stored.fs.open("/a/current/1.crc", OpenMode.UPDATE)
    assert side_file.size() == 2 * 4096
    side_file.truncate(4096)
    stored.fs.end_processes()
    restarted(stored)
    assert scrub(stored) == []
    last = stored.storage.entry_logs.checksums.blocks(1)[-1]
    assert last is not None
    assert (last.end, last.as_found) == (len(stored.fs.contents(LOG)), True)
    assert stored.storage.entry_logs.checksums.certain_end(1) is None


def test_a_block_that_a_power_cut_kept_from_before_is_no_damage() -> None:
    """It lacks pages that the next block follows on."""
    stored = StoredLedgers(settings=StorageSettings())
    stored.add(2, 0, 100, payload=b"y" * 3000)
    stored.checkpoint()
    old = stored.fs.contents("/a/current/1.crc")
    stored.add(2, 100, 1500, payload=b"y" * 3000)
    stored.checkpoint()
    stored.fs.poke("/a/current/1.crc", 0, old)
    stored.fs.end_processes()
    restarted(stored)
    assert scrub(stored) == []
    stored.check()
    assert stored.storage.entry_logs.checksums.certain_end(1) is None


def test_a_power_cut_while_a_page_is_made_anew_leaves_it_whole_or_damaged() -> None:
    """I-31: never unknown, which the scrub would believe, zeros and all."""
    cuts = 0
    while True:
        stored = mendable()
        stored.fs.poke(INDEX, PAGE_0, bytes(8192))
        restarted(stored)
        scrub(stored)
        stored.fs.cut_power_at(cuts + 1)
        try:
            stored.checkpoint()
        except PowerCut:
            cuts += 1
        else:
            break
        for seed in range(4):
            twin = StoredLedgers(settings=LARGE_LOGS, fs=stored.fs.clone())
            twin.fs.forget_faults()
            twin.entries, twin.keys = stored.entries, stored.keys
            twin.crash(random.Random(seed) if seed else None)
            twin.storage.replay_finished()
            for _ in range(2):
                for _ in twin.storage.scrub().steps(everything=False):
                    pass
                for entry_id in (0, 100, 149, 151, 300):
                    wanted = twin.entries.get((2, entry_id), Status.NO_ENTRY)
                    assert twin.read(2, [entry_id])[0] in (wanted, Status.IO_ERROR)
                twin.start()
                twin.storage.replay_finished()
            if seed == 0:
                mended(twin)
                twin.check()
    assert cuts >= 5


def test_a_ledger_that_comes_back_while_its_index_file_is_read_is_no_damage_and_gets_no_checksum_of_its_old_file() -> (
    None
):
    """Deleted, and brought back by replication: what the scrub has read and what is known are of different files."""
    stored = StoredLedgers(settings=LARGE_LOGS)
    stored.replay()
    stored.add(1, 0, 10)
    stored.add(1, 1500, 10)
    stored.checkpoint()
    steps = stored.storage.scrub().steps(everything=True)
    while next(steps) != fmt.HEADER_SIZE:
        pass  # up to the header of the index file
    assert stored.delete(1) == [1]
    stored.add(1, 0, 20)
    stored.checkpoint()
    for _ in steps:
        pass
    assert stored.storage.damage.found_count == 0
    assert scrub(stored) == []
    stored.check()
    restarted(stored).check()


def _without_needed_entries() -> StoredLedgers:
    """Log 1 has nothing of a ledger that is here, log 2 has 40 entries of ledger 3."""
    stored = StoredLedgers(
        settings=StorageSettings(
            memtable_bytes_max=1 << 30, open_files_max=16, entry_log_bytes_max=1 << 30, block_bytes=1 << 20
        )
    )
    stored.add(2, 0, 200, payload=b"x" * 4000)
    stored.checkpoint()
    stored.storage.end_log()
    restarted(stored)
    stored.delete(2)
    stored.add(3, 0, 40, payload=b"x" * 300)
    stored.checkpoint()
    stored.storage.end_log()
    return stored


def test_damaged_pages_that_no_entry_needs_are_one_line_of_their_log_and_hide_no_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(damage_module, "DAMAGES_MAX", 20)
    stored = _without_needed_entries()
    for page in range(1, 190, 2):
        stored.fs.poke(LOG, page * 4096 + 5, b"?")
    stored.fs.poke("/a/current/2.log", 5000, b"?")
    restarted(stored)
    bad = {entry_id for entry_id, result in enumerate(stored.read(3, range(40))) if result is Status.IO_ERROR}
    restarted(stored)
    scrubbing = stored.storage.scrub()
    for lines in (1, 0):
        with capturedLogs() as events:
            list(scrubbing.steps(everything=True))
        assert len([event for event in events if LOG in (formatEvent(event) or "")]) == lines
        (of_log,) = [damage for damage in stored.storage.damage.all() if damage.ledger_id == NO_LEDGER]
        assert (of_log.path, of_log.offset) == (LOG, 4096)
        assert of_log.reason.startswith("95 of the pages 1 to 189 fail their checksum")
        assert stored.storage.damaged(3, range(40)) == bad != set()
    stored.fs.poke(LOG, 191 * 4096 + 5, b"?")
    list(scrubbing.steps(everything=True))
    (of_log,) = [damage for damage in stored.storage.damage.all() if damage.ledger_id == NO_LEDGER]
    assert of_log.reason.startswith("96 of the pages 1 to 191")


def test_a_damaged_log_that_is_collected_while_it_is_read_leaves_no_damage() -> None:
    stored = _without_needed_entries()
    stored.fs.poke(LOG, 5 * 4096, b"?")
    restarted(stored)
    steps = stored.storage.scrub().steps(everything=True)
    next(steps)
    stored.storage.entry_logs.remove([1])
    list(steps)
    assert stored.storage.damage.all() == []


def test_a_page_that_a_checkpoint_would_not_make_anew_is_shown_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_checksum(monkeypatch)
    stored = mendable()
    stored.fs.poke(INDEX, PAGE_0 + 8 * 160, b"\0\0\0\0\0\0\x10\0")
    restarted(stored)
    scrubbing = stored.storage.scrub()
    for _ in range(2):
        list(scrubbing.steps(everything=True))
        stored.checkpoint()
        ((page, why),) = scrubbing.unmended
        assert page == BadPage("/a", 2, INDEX, 0)
        assert "for entry 160 in entry log 0, which is gone" in why


def test_a_page_that_reads_well_again_is_shown_no_more() -> None:
    stored = mendable()
    held = stored.fs.contents(INDEX)
    _two_that_stay(stored)
    restarted(stored)
    scrubbing = stored.storage.scrub()
    list(scrubbing.steps(everything=True))
    assert [page.ledger_id for page, _ in scrubbing.unmended] == [2, 3]
    stored.fs.poke(INDEX, 0, held)
    list(scrubbing.steps(everything=True))
    assert [page.ledger_id for page, _ in scrubbing.unmended] == [3]


def _two_that_stay(stored: StoredLedgers) -> None:
    """A page of ledgers 2 and 3 each is damaged, and so is a log that both have entries in."""
    stored.fs.poke(INDEX, PAGE_0, bytes(8192))
    stored.fs.poke(index_path("/a", 3), PAGE_0, bytes(800))
    stored.fs.poke(LOG, 9000, b"\x99")


def test_a_page_of_a_ledger_that_was_deleted_is_shown_no_more_and_the_others_are_tried_again() -> None:
    stored = mendable()
    _two_that_stay(stored)
    restarted(stored)
    scrubbing = stored.storage.scrub()
    list(scrubbing.steps(everything=True))
    stored.checkpoint()
    assert [page.ledger_id for page, _ in scrubbing.unmended] == [2, 3]
    basis = scrubbing.mending_basis
    assert stored.delete(2) == [2]
    assert [page.ledger_id for page, _ in scrubbing.unmended] == [3]
    assert scrubbing.mending_basis != basis


def test_pages_that_cannot_be_made_anew_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub_module, "PAGES_MAX", 1)
    stored = mendable()
    stored.add(9, 0, 50)
    stored.checkpoint()
    stored.storage.entry_logs.roll()
    list(stored.storage.scrub().steps(everything=True))
    _two_that_stay(stored)
    stored.fs.poke(index_path("/a", 9), PAGE_0, bytes(100))
    restarted(stored)
    scrubbing = stored.storage.scrub()
    untried = []
    for _ in range(3):
        list(scrubbing.mending_steps())
        untried.append(scrubbing.pages_untried)
        stored.checkpoint()
    assert stored.storage._found_pages.mended_count == 1  # noqa: SLF001
    assert untried == [True, True, False]
    assert [page.ledger_id for page, _ in scrubbing.unmended] == [2, 3]


def test_damaged_pages_are_tried_in_turn_and_then_from_the_beginning() -> None:
    pages = [BadPage("/a", ledger_id, index_path("/a", ledger_id), page) for ledger_id in (1, 2) for page in range(4)]
    rng, tried, seen, more = random.Random(3), None, list[list[BadPage]](), list[bool]()
    for _ in range(4):
        turn = MendingTurn(3, tried)
        for page in rng.sample(pages, len(pages)):
            turn.found(page)
        seen.append(turn.chosen)
        more.append(turn.more)
        tried = turn.chosen[-1]
    assert seen == [pages[:3], pages[3:6], pages[6:], pages[:3]]
    assert more == [True, True, False, True]
    assert MendingTurn(3, tried).chosen == []
