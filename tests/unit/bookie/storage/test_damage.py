"""The record of damages: a place is told once, whoever finds it, and anew when it was mended."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from unittest import mock

from twisted.logger import capturedLogs, formatEvent

from bookkeeper.bookie.integrity.damage import record as damage_module
from bookkeeper.bookie.integrity.damage import suspect_bytes as bad_bytes_module
from bookkeeper.bookie.integrity.damage.log_lines import FILES_TOLD_MAX, TOLD_EVERY_S, DamageLines
from bookkeeper.bookie.integrity.damage.record import NO_LEDGER, Damage, DamageKind, DamageRecord
from bookkeeper.bookie.integrity.damage.suspect_bytes import GONE, PAUSE_MAX_S, PAUSE_S, BadBytes
from bookkeeper.bookie.storage.index.files import index_path
from bookkeeper.bookie.storage.index.format import slot_offset
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
    assert met.due
    assert met.take() == {1: [GONE, 3, 7]}
    met.met(1, 3)
    assert not met.due
    assert met.take() == {}
    met.looked_at(2, [5])
    met.met(2, 5)
    assert not met.due


def test_bytes_that_a_look_did_not_tell_of_are_looked_at_again_when_they_are_met_behind_a_pause_that_doubles() -> None:
    now_s = [1000.0]
    met = BadBytes(lambda: now_s[0])
    met.met(1, 3)
    met.met(1, 7)
    for pause_s in (PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S):
        assert met.take()[1][0] == 3
        met.failed(1, [3])
        now_s[0] += 2 * PAUSE_MAX_S
        assert not met.due, "nobody met them"
        now_s[0] -= 2 * PAUSE_MAX_S
        met.met(1, 3)
        met.met(1, 7)  # of that one the first look has told
        now_s[0] += pause_s - 1
        assert not met.due
        met.met(2, 1)
        assert met.take() == {2: [1]}, "other logs do not wait for this one"
        met.failed(2, [1])
        met.told(2)
        now_s[0] += 1
    assert met.take() == {1: [3]}
    met.told(1)
    met.failed(1, [3])
    met.met(1, 3)
    now_s[0] += PAUSE_S
    assert met.due, "a look that told ends the doubling"


def test_half_of_the_time_is_without_looks() -> None:
    now_s = [1000.0]
    met = BadBytes(lambda: now_s[0])
    met.met(1, 3)
    met.take()
    now_s[0] += 300
    met.told(1)
    met.ended()
    met.met(1, 4)
    now_s[0] += 299
    assert not met.due
    now_s[0] += 1
    assert met.take() == {1: [4]}


def test_a_round_forgets_what_is_gone_pauses_and_the_pages_of_logs_that_were_removed() -> None:
    met = BadBytes()
    with mock.patch.object(bad_bytes_module, "PAGES_MAX", 6):
        met.looked_at(1, [GONE, 3])
        met.looked_at(2, [4, 5, 6, 7])
        met.failed(2, [7])
        met.met(3, 1)
        met.met(4, 1)
        assert len(met) == 6
        met.begin_round({1, 3})
        assert len(met) == 2
        for log_id, page in ((1, 3), (1, GONE), (2, 7), (3, 1)):
            met.met(log_id, page)
    assert met.take() == {1: [GONE], 2: [7], 3: [1]}


def test_a_damage_noted_where_a_look_came_before_is_checked_once_more() -> None:
    met = BadBytes()
    met.met(1, 3, noted=True)
    met.take()
    assert met.take_late() == [], "the look does"
    met.met(1, 3)
    assert not met.due
    met.met(1, 3, noted=True)
    assert met.due
    assert met.take_late() == [1]
    assert not met.due


def test_of_very_many_missing_files_a_few_are_told_and_the_rest_is_counted() -> None:
    now_s = [1000.0]
    lines = DamageLines(lambda: now_s[0])
    with capturedLogs() as events:
        for log_id in range(500):
            lines.missing(f"/l/current/{log_id:x}.log", 1, log_id)
    assert len(events) == FILES_TOLD_MAX
    now_s[0] += TOLD_EVERY_S
    with capturedLogs() as events:
        lines.missing("/l/current/0.log", 1, 0)
    told = [formatEvent(event) or "" for event in events]
    assert [line.split()[0] for line in told] == [str(500 - FILES_TOLD_MAX), "/l/current/0.log"]


def _calls(work: Callable[[], object]) -> int:
    """Functions that are called, those in C included: what it takes, without a clock."""
    count = 0

    def called(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def _at_places(count: int) -> DamageRecord:
    """One ledger, so many damaged pages of one log, 13 entries in each."""
    record = DamageRecord()
    for page in range(count):
        for damage in Damage.of_entries(
            2, range(page * 13, page * 13 + 13), "/l/current/1.log", page * 4096, "checksum", DamageKind.CHANGED
        ):
            record.add(damage)
    return record


def test_what_a_recovery_add_asks_and_changes_takes_as_long_for_many_damaged_places_as_for_some() -> None:
    """The reactor does both with every recovery add."""
    few, many = _at_places(100), _at_places(5000)
    entry_ids = [*range(500, 550), *range(10**6, 10**6 + 50)]
    assert few.among(2, entry_ids) == many.among(2, entry_ids) == set(range(500, 550))
    asked = [_calls(lambda record=record: record.among(2, entry_ids)) for record in (few, many)]  # type: ignore[misc]
    assert asked[1] <= 2 * asked[0]
    changed = [_calls(lambda record=record: record.replaced(2, entry_ids)) for record in (few, many)]  # type: ignore[misc]
    assert changed[1] <= 2 * changed[0]
    of_one = [_calls(lambda record=record: record.in_file("/l/current/2.log")) for record in (few, many)]  # type: ignore[misc]
    assert of_one[0] == of_one[1]
    assert few.among(2, entry_ids) == many.among(2, entry_ids) == set()


def test_many_places_files_and_ledgers_keep_exactly_what_was_not_replaced_mended_or_gone() -> None:
    """Against a dictionary of sets, by ledger, path and offset."""
    rng = random.Random(7)
    paths = ["/l/current/1.log", "/l/current/2.log", "/i/current/0/1/1.idx"]
    for _ in range(150):
        record, expected = DamageRecord(), dict[tuple[int, str, int], set[int]]()
        for _ in range(30):
            ledger_id, path, offset = rng.choice((1, 2)), rng.choice(paths), rng.choice((0, 4096, 8192))
            match rng.choice("aaaaarrpmfg"):
                case "a":
                    first = rng.randrange(2100)
                    last = first + rng.choice((0, 1, 5, 40, 1500))
                    record.add(Damage(ledger_id, first, last, path, offset, "checksum"))
                    expected.setdefault((ledger_id, path, offset), set()).update(range(first, last + 1))
                case "r":
                    some = [rng.randrange(3000) for _ in range(rng.choice((1, 30)))]
                    record.replaced(ledger_id, some)
                    for key, entry_ids in expected.items():
                        entry_ids.difference_update(some if key[0] == ledger_id else ())
                case "p":
                    some = list(range(rng.randrange(1200, 2000), 2100))
                    record.replaced(ledger_id, some, path=path)
                    for key, entry_ids in expected.items():
                        entry_ids.difference_update(some if key[:2] == (ledger_id, path) else ())
                case "m":
                    record.mended(path, offset)
                    expected = {key: some for key, some in expected.items() if key[1:] != (path, offset)}
                case "f":
                    record.file_gone(path)
                    expected = {key: some for key, some in expected.items() if key[1] != path}
                case "g":
                    record.ledger_gone(ledger_id)
                    expected = {key: some for key, some in expected.items() if key[0] != ledger_id}
            for one in (1, 2):
                of_one = set[int]().union(*(some for key, some in expected.items() if key[0] == one))
                assert record.among(one, range(4000)) == of_one
            kept: dict[tuple[int, str, int], set[int]] = {}
            for damage in record.all():
                key = (damage.ledger_id, damage.path, damage.offset)
                of_it = (
                    damage.entry_ids() if damage.is_narrow else range(damage.first_entry_id, damage.last_entry_id + 1)
                )
                kept.setdefault(key, set()).update(of_it)
            assert kept == {key: some for key, some in expected.items() if some}
            assert len(record) == len(record.all())
            assert sorted(map(str, record.in_file(path))) == sorted(str(x) for x in record.all() if x.path == path)


def test_damages_of_no_ledger_take_no_place_of_one_that_is_to_be_repaired() -> None:
    with mock.patch.object(damage_module, "DAMAGES_MAX", 3):
        record = DamageRecord()
        for log_id in range(9):
            record.add(Damage(NO_LEDGER, 0, 0, f"/l/current/{log_id}.log", 0, "the header fails its checksum"))
        for page in range(3):
            assert record.add(found(1, 5 + page, offset=page * 4096))
    assert record.among(1, range(10)) == {5, 6, 7}
    assert (len(record), record.omitted_count) == (12, 0)
    with mock.patch.object(damage_module, "NO_LEDGER_DAMAGES_MAX", 9):
        assert record.add(Damage(NO_LEDGER, 0, 0, "/l/current/9.log", 0, "the header fails its checksum"))
    assert (len(record), record.found_count) == (12, 13)


def test_damaged_bytes_that_no_entry_needs_are_one_damage_of_their_log() -> None:
    record = DamageRecord()
    first, second = (Damage(NO_LEDGER, 0, 0, "/l/current/1.log", at, f"{at} pages") for at in (4096, 8192))
    assert record.note_unneeded(first.path, first)
    assert not record.note_unneeded(first.path, first)
    assert record.note_unneeded(first.path, second)
    assert (record.all(), record.found_count) == ([second], 1)
    assert not record.note_unneeded(first.path, None)
    assert record.all() == []
    record.note_unneeded(first.path, first)
    record.file_gone(first.path)
    assert record.unneeded(first.path) is None
    assert record.note_unneeded(first.path, first)
