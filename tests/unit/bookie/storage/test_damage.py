"""The record of damages: a place is told once, whoever finds it, and anew when it was mended."""

from __future__ import annotations

import random
from unittest import mock

from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.storage import damage as damage_module
from bookkeeper.bookie.storage.bad_bytes import GONE, BadBytes
from bookkeeper.bookie.storage.damage import Damage, DamageKind, DamageRecord
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


def test_entries_of_one_index_page_are_one_damage_and_those_between_are_not_concerned() -> None:
    """A ledger over more bookies than write quorum has here only some entries of any range."""
    record = DamageRecord()
    held = [*range(0, 3000, 3), *range(1, 3000, 3)]
    for damage in Damage.of_entries(1, held, "/l/current/1.log", 0, "missing", DamageKind.GONE):
        record.add(damage)
    assert (len(record), record.gone_count) == (3, 3)
    assert record.among(1, range(3000)) == set(held)
    assert sum(damage.entry_count for damage in record.all()) == len(held)
    assert sum(damage.range_count for damage in record.all()) == 1000 + 1  # one is cut by the end of an index page
    for start in range(0, 3000, 100):
        record.replaced(1, [entry_id for entry_id in range(start, start + 100) if entry_id % 3 < 2])
    assert (len(record), record.gone_count) == (0, 0)
    assert record.of_ledger(1) == []


def test_what_is_left_of_a_damage_is_exactly_what_was_not_replaced() -> None:
    """Against sets, with ranges inside and across index pages."""
    rng = random.Random(5)
    for _ in range(200):
        record, expected = DamageRecord(), set[int]()
        for _ in range(rng.randrange(1, 6)):
            first = rng.randrange(2100)
            last = first + rng.choice((0, 1, 5, 40, 1500))
            record.add(Damage(1, first, last, "/l/current/1.log", rng.choice((0, 4096)), "checksum"))
            expected.update(range(first, last + 1))
        assert record.among(1, range(4000)) == expected
        for _ in range(rng.randrange(4)):
            gone = [rng.randrange(3000) for _ in range(rng.choice((1, 30)))]
            record.replaced(1, gone)
            expected.difference_update(gone)
        assert record.among(1, range(4000)) == expected
        assert (len(record) == 0) == (not expected)
        assert len(record) == len(record.all())


def test_bytes_that_were_met_are_looked_at_once() -> None:
    met = BadBytes()
    for page in (7, 3, 7, GONE):
        met.met(1, page)
    assert met.waiting
    assert met.take() == (1, [GONE, 3, 7])
    met.met(1, 3)
    assert not met.waiting
    assert met.take() is None
    met.looked_at(2, [5])
    met.met(2, 5)
    assert not met.waiting
    met.failed(1, [3])
    met.met(1, 3)
    met.met(1, 7)
    assert met.take() == (1, [3])
