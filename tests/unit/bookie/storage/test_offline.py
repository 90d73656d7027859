"""What the command line sees of entry logs and index files, those of a crashed bookie included."""

import pytest

from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.storage.entry_log.format import (
    HEADER_SIZE,
    LogHeader,
    encode_header,
    encode_ledgers_map,
    location,
)
from bookkeeper.errors import CorruptRecord
from bookkeeper.filesystem import OpenMode, create_durable
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.stored_ledgers import StoredLedgers, entry_body


def record(ledger_id: int, entry_id: int) -> bytes:
    body = entry_body(ledger_id, entry_id)
    return len(body).to_bytes(4, "big") + body


def disk_with_log(data: bytes) -> FaultyFileSystem:
    fs = FaultyFileSystem()
    fs.make_dirs("/a/current")
    create_durable(fs, "/a/current/5.log", encode_header(LogHeader()) + data)
    return fs


def stored_ledgers() -> StoredLedgers:
    stored = StoredLedgers(ledger_dirs=("/a", "/b"))
    for ledger_id in (3, 4, 700):
        stored.add(ledger_id, 0, 30)
    stored.fence(9)
    stored.checkpoint()
    return stored


def test_logs_hold_every_entry_once_in_order_of_ledger_and_entry() -> None:
    stored = stored_ledgers()
    records = [
        item
        for log_id, path in inspection.list_entry_logs(stored.fs, ("/a", "/b"))
        for item in inspection.iter_records(stored.fs, path, log_id=log_id)
    ]
    assert [(item.ledger_id, item.entry_id) for item in records] == sorted(stored.entries)
    assert {(item.ledger_id, item.entry_id): item.body for item in records} == stored.entries


def test_a_closed_log_has_the_map_a_scan_gives_and_the_active_one_has_none() -> None:
    """I-60, I-61."""
    stored = stored_ledgers()
    logs = inspection.list_entry_logs(stored.fs, ("/a", "/b"))
    assert len(logs) > 1
    for _, path in logs[:-1]:
        assert inspection.read_ledgers_map(stored.fs, path) == inspection.scan_ledgers(stored.fs, path)
    assert inspection.read_ledgers_map(stored.fs, logs[-1][1]) is None


def test_the_index_points_to_the_records() -> None:
    stored = stored_ledgers()
    paths = dict(inspection.list_entry_logs(stored.fs, ("/a", "/b")))
    indexes = dict(inspection.list_index_files(stored.fs, ("/a", "/b")))
    assert sorted(indexes) == [3, 4, 9, 700]
    for ledger_id in (3, 4, 700):
        slots = list(inspection.iter_index(stored.fs, indexes[ledger_id]))
        assert [entry_id for entry_id, _ in slots] == list(range(30))
        for entry_id, place in slots:
            assert inspection.read_entry(stored.fs, paths[place >> 32], place).body == entry_body(ledger_id, entry_id)
    assert inspection.read_index_header(stored.fs, indexes[9]).fenced
    assert not list(inspection.iter_index(stored.fs, indexes[9]))


@pytest.mark.parametrize("padding", [0, 1, 2, 3, 4, 511, 3_000_000])
def test_padding_is_skipped(padding: int) -> None:
    fs = disk_with_log(record(1, 0) + bytes(padding) + record(1, 1) + bytes(padding))
    records = list(inspection.iter_records(fs, "/a/current/5.log", log_id=5))
    assert [item.entry_id for item in records] == [0, 1]
    assert records[0].location == location(5, 1028)


def test_a_cut_record_ends_a_scan_quietly() -> None:
    whole = record(1, 0)
    for cut in range(len(whole)):
        fs = disk_with_log(whole + record(1, 1)[:cut])
        assert [item.entry_id for item in inspection.iter_records(fs, "/a/current/5.log", log_id=5)] == [0]


def test_a_record_too_small_for_its_ids_is_damage() -> None:
    fs = disk_with_log(record(1, 0) + (9).to_bytes(4, "big") + bytes(100))
    with pytest.raises(CorruptRecord) as caught:
        list(inspection.iter_records(fs, "/a/current/5.log", log_id=5))
    assert caught.value.offset == 1024 + len(record(1, 0))


def test_a_map_beyond_the_end_is_damage() -> None:
    fs = disk_with_log(record(1, 0))
    file = fs.open("/a/current/5.log", OpenMode.UPDATE)
    file.pwrite(encode_header(LogHeader(map_offset=99_999, ledger_count=1)), 0)
    with pytest.raises(CorruptRecord):
        inspection.read_ledgers_map(fs, "/a/current/5.log")


def test_heads_are_read_without_bodies() -> None:
    fs = disk_with_log(record(1, 0) + record(2, 7))
    heads = list(inspection.iter_records(fs, "/a/current/5.log", log_id=5, bodies=False))
    assert [(item.ledger_id, item.entry_id, item.body) for item in heads] == [(1, 0, None), (2, 7, None)]


def test_files_of_other_kinds_are_passed_over() -> None:
    stored = stored_ledgers()
    for name in ("lastMark", "VERSION", "7.log.compacting"):
        create_durable(stored.fs, "/a/current/" + name, b"x")
    create_durable(stored.fs, "/a/current/0/9/9.idx.new", b"x") if stored.fs.exists("/a/current/0/9") else None
    assert sorted(ledger_id for ledger_id, _ in inspection.list_index_files(stored.fs, ("/a", "/b"))) == [3, 4, 9, 700]
    assert 7 not in dict(inspection.list_entry_logs(stored.fs, ("/a", "/b")))


def test_entries_behind_the_place_the_header_names_are_scanned_and_the_map_is_refused() -> None:
    """Apache's sorted storage adds entries while it appends the map: one lies at its offset, the map behind it."""
    fs = FaultyFileSystem()
    fs.make_dirs("/a/current")
    first, late = record(1, 0), record(2, 0)
    header = encode_header(LogHeader(map_offset=HEADER_SIZE + len(first), ledger_count=2))
    create_durable(fs, "/a/current/5.log", header + first + late + encode_ledgers_map({1: len(first), 2: len(late)}))
    path = "/a/current/5.log"
    assert [(item.ledger_id, item.entry_id) for item in inspection.iter_records(fs, path, log_id=5)] == [(1, 0), (2, 0)]
    assert inspection.scan_ledgers(fs, path) == {1: len(first), 2: len(late)}
    with pytest.raises(CorruptRecord, match="inside the ledgers map"):
        inspection.read_ledgers_map(fs, path)
