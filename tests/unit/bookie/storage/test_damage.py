"""The record of damages: a place is told once, whoever finds it, and anew when it was mended."""

from __future__ import annotations

from unittest import mock

from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.storage import damage as damage_module
from bookkeeper.bookie.storage.damage import Damage, DamageRecord
from bookkeeper.bookie.storage.index_files import index_path
from bookkeeper.bookie.storage.index_format import slot_offset
from bookkeeper.model import Status
from tests.support.stored_ledgers import StoredLedgers


def found(ledger_id: int, entry_id: int, offset: int = 4096) -> Damage:
    return Damage(ledger_id, entry_id, entry_id, "/l/current/1.log", offset, "checksum")


def test_a_place_is_told_once_whatever_ledger_and_entry_it_is_found_by() -> None:
    record = DamageRecord()
    told = [record.add_at_place(found(ledger_id, entry_id)) for ledger_id in (1, 2) for entry_id in (5, 6, 9)]
    assert told == [True, False, False, False, False, False]
    assert record.among(2, range(10)) == {5, 6, 9}
    assert record.add_at_place(found(1, 5, offset=8192))


def test_a_place_that_was_mended_is_told_anew() -> None:
    record = DamageRecord()
    record.add_at_place(found(1, 5))
    record.add_at_place(found(2, 5))
    record.replaced(1, [5])
    assert not record.add_at_place(found(1, 6))  # that of ledger 2 is there still
    record.ledger_gone(1)
    record.replaced(2, [5])
    assert len(record) == 0
    assert record.add_at_place(found(1, 6))


def test_of_those_that_find_no_place_in_the_record_one_is_told() -> None:
    with mock.patch.object(damage_module, "DAMAGES_MAX", 2):
        record = DamageRecord()
        told = [record.add_at_place(found(1, 5, offset=4096 * page)) for page in range(6)]
    assert told == [True, True, True, False, False, False]
    assert record.omitted_count == 4


def test_a_flipped_byte_is_one_line_for_all_entries_of_its_page_read_one_by_one() -> None:
    stored = StoredLedgers()
    stored.replay()
    stored.add(1, 0, 20)
    stored.checkpoint()
    stored.storage.entry_logs.roll()
    ((_, path),) = stored.storage.entry_logs.closed()
    byte = stored.fs.contents(path)[1500:1501]
    stored.fs.poke(path, 1500, bytes([byte[0] ^ 1]))
    with capturedLogs() as events:
        results = [stored.storage.read_cold(1, [entry_id])[0] for entry_id in range(20)]
    failed = results.count(Status.IO_ERROR)
    assert failed > 1
    lines = [formatEvent(event) or "" for event in events]
    assert len([line for line in lines if path in line]) == 1, lines
    assert stored.storage.damage.found_count >= 1
    assert len(stored.storage.damage.among(1, range(20))) == failed


def test_a_flipped_byte_of_an_index_page_is_one_line_for_all_entries_looked_up_one_by_one() -> None:
    stored = StoredLedgers()
    stored.replay()
    stored.add(1, 0, 20)
    stored.checkpoint()
    path = index_path("/a", 1)
    offset = slot_offset(3) + 6
    byte = stored.fs.contents(path)[offset : offset + 1]
    stored.fs.poke(path, offset, bytes([byte[0] ^ 1]))
    stored.start()
    stored.storage.replay_finished()
    with capturedLogs() as events:
        results = [stored.storage.read_cold(1, [entry_id])[0] for entry_id in range(30)]
    assert results.count(Status.IO_ERROR) > 1
    lines = [formatEvent(event) or "" for event in events]
    assert len([line for line in lines if path in line]) == 1, lines
    assert not [line for line in lines if "Cannot look up" in line]
