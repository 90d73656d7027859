"""The check of a stopped bookie's entry logs and index files finds what a bookie could not serve (I-59, I-60)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping

import pytest
from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.integrity.damage.index_texts import file_gone
from bookkeeper.bookie.offline.consistency import StorageCheck
from bookkeeper.bookie.offline.fault import Fault
from bookkeeper.bookie.offline.inspection import iter_records
from bookkeeper.bookie.offline.needed_entries import needed_entries, told
from bookkeeper.bookie.storage.entry_log.format import HEADER_SIZE as LOG_HEADER_SIZE
from bookkeeper.bookie.storage.index.format import HEADER_SIZE, PAGE_SIZE, IndexHeader, encode_copy, slot_offset
from bookkeeper.filesystem import OpenMode
from tests.support.stored_ledgers import StoredLedgers

LEDGER, OTHER = 7, 8
INDEX = "/a/current/0/7/7.idx"
COUNT = 1500


@pytest.fixture
def stored() -> StoredLedgers:
    """Two ledgers over several entry logs, everything checkpointed."""
    stored = StoredLedgers()
    for first in range(0, COUNT, 100):
        stored.add(LEDGER, first, 100)
        stored.add(OTHER, first, 100)
        stored.checkpoint()
    stored.storage.close()
    return stored


@pytest.fixture
def apaches(stored: StoredLedgers) -> StoredLedgers:
    """The same without side files, as Apache's bookie leaves it: only ids can be compared."""
    for name in stored.fs.listdir("/a/current"):
        if name.endswith(".crc") or name == "indexChecksums":
            stored.fs.unlink(f"/a/current/{name}")
    return stored


def faults(stored: StoredLedgers, journaled: Mapping[int, Collection[int]] | None = None) -> list[Fault]:
    check = StorageCheck(
        stored.fs, stored.ledger_dirs, stored.ledger_dirs, journaled=journaled or {}, on_progress=lambda _: None
    )
    return list(check.run())


def change(stored: StoredLedgers, path: str, offset: int, data: bytes) -> None:
    file = stored.fs.open(path, OpenMode.UPDATE)
    file.pwrite(data, offset)
    file.close()


def truncate(stored: StoredLedgers, path: str, size: int) -> None:
    file = stored.fs.open(path, OpenMode.UPDATE)
    file.truncate(size)
    file.close()


def logs(stored: StoredLedgers) -> list[str]:
    """The entry logs by id."""
    names = [name for name in stored.fs.listdir("/a/current") if name.endswith(".log")]
    return [f"/a/current/{name}" for name in sorted(names, key=lambda name: int(name[:-4], 16))]


def location(stored: StoredLedgers, entry_id: int) -> int:
    at = slot_offset(entry_id)
    (found,) = struct.unpack(">q", stored.fs.contents(INDEX)[at : at + 8])
    return int(found)


def test_a_bookies_files_have_no_fault_and_everything_is_counted(stored: StoredLedgers) -> None:
    seen: list[int] = []
    check = StorageCheck(stored.fs, ("/a",), ("/a",), journaled={}, on_progress=seen.append)
    assert list(check.run()) == []
    found = check.counters
    assert (found.logs, found.records, found.ledgers, found.locations) == (
        len(logs(stored)),
        2 * COUNT,
        2,
        2 * COUNT,
    )
    assert seen == sorted(seen)
    assert seen[-1] == check.total_bytes == sum(map(len, map(stored.fs.contents, [*logs(stored), INDEX, OTHER_INDEX])))


OTHER_INDEX = "/a/current/0/8/8.idx"


def test_a_location_that_leads_to_another_entry_is_found_with_its_place_in_the_index(apaches: StoredLedgers) -> None:
    change(apaches, INDEX, slot_offset(3), struct.pack(">q", location(apaches, 4)))
    (fault,) = faults(apaches)
    assert (fault.path, fault.offset, fault.ledger_id, fault.entry_id) == (INDEX, slot_offset(3), LEDGER, 3)
    assert "but there is entry 4 of ledger 7 in /a/current/" in fault.why


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (0x7FFF << 32 | 2048, "entry log 7fff.log, which is in no ledger directory"),
        (-1, "which is in no ledger directory"),
        (1 << 32 | 0x7FFFFFFF, "ends before"),
        (1 << 32 | 1, "ends before"),
    ],
)
def test_a_location_that_leads_nowhere_is_found(apaches: StoredLedgers, wrong: int, says: str) -> None:
    change(apaches, INDEX, slot_offset(COUNT - 1), struct.pack(">q", wrong))
    (fault,) = faults(apaches)
    assert fault.offset == slot_offset(COUNT - 1)
    assert says in fault.why


def test_an_index_page_of_zeros_is_found_by_what_the_logs_hold(apaches: StoredLedgers) -> None:
    """I-59: a bookie would answer "never held" for each of its entries."""
    change(apaches, INDEX, HEADER_SIZE, bytes(PAGE_SIZE))
    found = faults(apaches)
    assert {fault.path for fault in found} == {INDEX}
    assert found[0].offset == slot_offset(0)
    covered = [int(word) for fault in found for word in fault.why.split() if word.isdigit()]
    assert 0 in covered
    assert PAGE_SIZE // 8 - 1 in covered


def test_what_the_journal_still_has_the_index_need_not_know(apaches: StoredLedgers) -> None:
    apaches.start()
    apaches.replay()
    apaches.add(LEDGER, COUNT, 10)
    apaches.flush()
    apaches.storage.close()  # killed before the checkpoint
    assert faults(apaches, {LEDGER: range(COUNT, COUNT + 10)}) == []
    (fault,) = faults(apaches)
    assert f"entries {COUNT} to {COUNT + 9} of ledger {LEDGER}" in fault.why


def test_an_index_file_that_became_shorter_is_found(apaches: StoredLedgers) -> None:
    truncate(apaches, INDEX, HEADER_SIZE + PAGE_SIZE)
    found = faults(apaches)
    assert found[0].offset == HEADER_SIZE + PAGE_SIZE
    assert "it had 2048 locations once" in found[0].why
    assert any(f"to {COUNT - 1} of ledger" in fault.why for fault in found[1:])


@pytest.mark.parametrize("offset", [0, 4, 9])
def test_a_damaged_index_header_is_found(apaches: StoredLedgers, offset: int) -> None:
    for copy in (0, 512):
        change(apaches, INDEX, copy + offset, b"\xff")
    assert [fault.path for fault in faults(apaches)][:1] == [INDEX]


def test_a_record_that_cannot_be_one_is_found_with_its_offset(apaches: StoredLedgers) -> None:
    path = logs(apaches)[0]
    change(apaches, path, LOG_HEADER_SIZE, struct.pack(">i", 5))
    assert (path, LOG_HEADER_SIZE) in [(fault.path, fault.offset) for fault in faults(apaches)]


def log_of_both(stored: StoredLedgers) -> tuple[str, int]:
    """A closed log with entries of both ledgers, and where its map begins."""
    for path in logs(stored):
        data = stored.fs.contents(path)
        (offset,) = struct.unpack_from(">q", data, 8)
        if offset and struct.pack(">q", OTHER) in data[offset:] and struct.pack(">q", LEDGER) in data[offset:]:
            return path, offset
    raise AssertionError("no such log")


def test_a_map_that_is_not_the_sealed_one_is_found(apaches: StoredLedgers) -> None:
    """I-60: collection would take the log for one without living ledgers."""
    path, offset = log_of_both(apaches)
    at = apaches.fs.contents(path).index(struct.pack(">q", OTHER), offset)
    change(apaches, path, at, struct.pack(">q", 99))
    (fault,) = faults(apaches)
    assert (fault.path, fault.offset, fault.why) == (path, offset, "the ledgers map is not the one that was sealed")


def test_a_map_without_a_seal_that_hides_a_ledger_is_found(apaches: StoredLedgers) -> None:
    """As above, in a log as Apache closes it."""
    path, offset = log_of_both(apaches)
    at = apaches.fs.contents(path).index(struct.pack(">q", OTHER), offset)
    change(apaches, path, at, struct.pack(">q", 99))
    change(apaches, path, 20, bytes(LOG_HEADER_SIZE - 20))
    first, second = faults(apaches)
    assert first.why.startswith("ledger 8 has ")
    assert first.why.endswith(" bytes in this log, but is not in its ledgers map")
    assert second.why == "the ledgers map names ledger 99, which has no entry here"


def test_a_damaged_seal_is_found(apaches: StoredLedgers) -> None:
    path, _ = log_of_both(apaches)
    change(apaches, path, 511, bytes([apaches.fs.contents(path)[511] ^ 1]))
    (fault,) = faults(apaches)
    assert (fault.path, fault.offset) == (path, 20)
    assert "neither zeros nor an intact seal" in fault.why


def test_a_log_without_a_header_yet_is_no_fault(apaches: StoredLedgers) -> None:
    apaches.fs.open("/a/current/ff.log", OpenMode.CREATE_EXCLUSIVE).close()
    assert faults(apaches) == []


def test_ledgers_without_an_index_file_are_counted_and_no_fault(apaches: StoredLedgers) -> None:
    apaches.fs.unlink(INDEX)
    check = StorageCheck(apaches.fs, ("/a",), ("/a",), journaled={}, on_progress=lambda _: None)
    assert list(check.run()) == []
    assert check.counters.unindexed == 1


def _copy(apaches: StoredLedgers, source: str, target: str) -> None:
    apaches.fs.make_dirs(target.rpartition("/")[0])
    file = apaches.fs.open(target, OpenMode.CREATE_EXCLUSIVE)
    file.pwrite(apaches.fs.contents(source), 0)
    file.close()


@pytest.mark.parametrize("which", [lambda apaches: INDEX, lambda apaches: logs(apaches)[0]])
def test_a_file_that_is_in_two_directories_is_found(
    stored: StoredLedgers, which: Callable[[StoredLedgers], str]
) -> None:
    source = which(stored)
    _copy(stored, source, source.replace("/a/", "/b/"))
    stored.fs.make_dirs("/b/current")
    stored.ledger_dirs = ("/a", "/b")
    assert any("is here and in /a/current/" in fault.why for fault in faults(stored))


# --- with checksums


def test_a_changed_byte_of_an_entry_is_found_by_its_pages_checksum(stored: StoredLedgers) -> None:
    path, _ = log_of_both(stored)
    at = stored.fs.contents(path).index(b"payload")
    change(stored, path, at, b"P")
    (fault,) = faults(stored)
    assert (fault.path, fault.offset) == (path, LOG_HEADER_SIZE)
    assert fault.why.startswith("bytes 1024 to 4095 are not as they were written (checksum); there: entries ")
    assert "auto-recovery writes them anew" in fault.why


def test_a_damaged_log_page_is_told_with_the_entries_that_lie_there(stored: StoredLedgers) -> None:
    """Those whose records touch it, also where the head of a record is what was damaged."""
    path, map_offset = log_of_both(stored)
    log_id = int(path.rsplit("/", 1)[1][:-4], 16)
    records = [(each.ledger_id, each.entry_id, each.offset) for each in iter_records(stored.fs, path, log_id=log_id)]
    first, stop = 2000, 3000
    hit = next(offset for _, _, offset in records if offset > first)
    change(stored, path, hit - 4, b"\x77")
    change(stored, path, hit + 3, b"\x77")
    wanted: dict[int, list[int]] = {}
    ends = [offset - 4 for _, _, offset in records[1:]] + [map_offset]
    for (ledger_id, entry_id, offset), end in zip(records, ends, strict=True):
        if offset - 4 < stop and end > first:
            wanted.setdefault(ledger_id, []).append(entry_id)
    indexes = {LEDGER: INDEX, OTHER: INDEX.replace("7", "8")}
    assert needed_entries(stored.fs, indexes, log_id, path, [(first, stop)]) == [wanted]
    (page,) = [fault for fault in faults(stored) if "checksum" in fault.why]
    assert (page.path, page.offset) == (path, LOG_HEADER_SIZE)
    for ledger_id in (LEDGER, OTHER):
        entry_ids = [entry_id for each, entry_id, _ in records if each == ledger_id]
        assert f"{entry_ids[0]} to {entry_ids[-1]} of ledger {ledger_id}" in page.why


def test_of_very_many_entries_in_damaged_bytes_some_are_named() -> None:
    text = told({ledger_id: list(range(0, 100, 3)) for ledger_id in range(20)})
    assert text.startswith("there: entries 0, 3, 6, 9, 12, 15, 18, 21 and 26 more ranges of ledger 0, entries 0, 3")
    assert ", and entries of 12 more ledgers. " in text
    assert told({}) == "no index names an entry there, so that none is lost"


@pytest.mark.parametrize("copy", [0, 512])
@pytest.mark.parametrize(
    ("offset", "field"),
    [
        (0, "magic"),
        (7, "version"),
        (11, "length of the master key"),
        (14, "master key"),
        (35, "state bits"),
        (39, "length of the explicit LAC"),
        (300, "zeros behind the fields"),
        (496, "mark of the copy"),
        (507, "number of locations"),
        (511, "checksum of the copy"),
    ],
)
def test_one_damaged_copy_of_an_index_header_is_named_with_its_field(
    stored: StoredLedgers, copy: int, offset: int, field: str
) -> None:
    """The other copy serves, so nothing else tells of it."""
    assert len(stored.keys[LEDGER]) == 20
    at = copy + offset
    change(stored, INDEX, at, bytes([stored.fs.contents(INDEX)[at] ^ 0x40]))
    (fault,) = faults(stored)
    assert (fault.path, fault.offset, fault.ledger_id) == (INDEX, at, LEDGER)
    which = "second" if copy else "first"
    assert fault.why.startswith(f"the {which} copy of the header is damaged: its {field} is not")
    assert "writes it anew" in fault.why
    with capturedLogs() as events:
        for _ in range(2):
            stored.start()
            assert stored.read(LEDGER, [0]) == [stored.entries[LEDGER, 0]]
            stored.checkpoint()
    lines = [line for line in map(formatEvent, events) if line is not None and "copy of the header" in line]
    assert len(lines) == 1
    assert lines[0].startswith(
        f"{INDEX} at {at}, ledger {LEDGER}: the {which} copy of the header is damaged: its {field}"
    )
    stored.storage.close()
    assert faults(stored) == []


def test_two_whole_copies_of_an_index_header_that_differ_are_no_fault(stored: StoredLedgers) -> None:
    """A kill came between them; the journal has what the first lacks."""
    newer = encode_copy(IndexHeader(stored.keys[LEDGER], True, None, COUNT))
    change(stored, INDEX, 512, newer)
    assert faults(stored) == []


def test_a_changed_location_and_a_zeroed_page_are_found_by_their_checksums(stored: StoredLedgers) -> None:
    change(stored, INDEX, slot_offset(3), struct.pack(">q", location(stored, 4)))
    assert any("entries 0 to 1023: not as it was written" in fault.why for fault in faults(stored))
    change(stored, OTHER_INDEX, slot_offset(1024), bytes(PAGE_SIZE))
    found = [fault for fault in faults(stored) if fault.ledger_id == OTHER]
    assert found[0].offset == slot_offset(1024)
    assert "entries 1024 to 2047: not as it was written" in found[0].why


def test_an_index_file_that_is_gone_is_found_where_its_checksums_know_it(stored: StoredLedgers) -> None:
    stored.fs.unlink(INDEX)
    (fault,) = faults(stored)
    assert (fault.path, fault.why) == (INDEX, file_gone(7))
    assert "regenerate-interleaved-storage-index-file -ledgerIds 7" in fault.why


def test_damaged_checksums_are_reported_and_what_they_were_for_is_still_checked(stored: StoredLedgers) -> None:
    path, _ = log_of_both(stored)
    change(stored, path.replace(".log", ".crc"), 40, b"\xff\xff")
    change(stored, "/a/current/indexChecksums", 40, b"\xff\xff")
    change(stored, INDEX, slot_offset(3), struct.pack(">q", -1))
    assert {fault.path for fault in faults(stored)} == {
        path.replace(".log", ".crc"),
        "/a/current/indexChecksums",
        INDEX,
    }


def test_an_entry_of_an_earlier_life_of_a_ledger_is_no_fault(stored: StoredLedgers) -> None:
    """Dropped here and come back, it has not all of the entries that older logs still hold."""
    path, _ = log_of_both(stored)
    _copy(stored, path, "/a/current/0.log")
    not_held = struct.pack(">q", COUNT + 10)
    change(stored, "/a/current/0.log", LOG_HEADER_SIZE + 12, not_held)
    assert [fault for fault in faults(stored) if fault.path == INDEX] == []


def test_the_check_writes_nothing(stored: StoredLedgers) -> None:
    change(stored, "/a/current/indexChecksums", 40, b"\xff\xff")
    before = {name: stored.fs.contents(f"/a/current/{name}") for name in ("indexChecksums", "lastId")}
    assert faults(stored)
    assert {name: stored.fs.contents(f"/a/current/{name}") for name in before} == before
