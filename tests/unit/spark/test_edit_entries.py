"""Entries of an edit log as records, and what becomes of damage."""

from __future__ import annotations

from journalmgr.edits.codec import decode
from journalmgr.edits.ops import Mkdir
from journalmgr.errors import EditsCorrupt, GapInTransactions
from journalmgr.model import HADOOP_2_7
from journalmgr.spark.edit_entries import EntryDecoder, Taken, first_txid_of
from tests.support.edit_journals import mkdirs, with_wrong_checksum
from tests.support.edit_ops import record_without_length, sample


def decoder(expected_txid: int | None = 1) -> EntryDecoder:
    return EntryDecoder(HADOOP_2_7, "ledger 5 of segment 1..9", expected_txid)


def txids(taken: Taken) -> list[int]:
    return [record.txid for record in taken.records]


def test_whole_entries_follow_each_other() -> None:
    reading = decoder()
    records = mkdirs(1, 6)
    taken = [reading.take(0, b"".join(records[:4])), reading.take(1, b"".join(records[4:])), reading.take(2, b"")]
    assert [txids(each) for each in taken] == [[1, 2, 3, 4], [5, 6], []]
    assert all(each.fault is None for each in taken)
    assert taken[1].records[0].offset == 0
    assert reading.expected_txid == 7


def test_a_wrong_checksum_gives_what_is_before_it_and_says_where() -> None:
    reading = decoder()
    records = mkdirs(1, 6)
    taken = reading.take(0, b"".join([records[0], with_wrong_checksum(records[1]), records[2]]))
    assert txids(taken) == [1]
    assert isinstance(taken.fault, EditsCorrupt)
    text = str(taken.fault)
    assert f"ledger 5 of segment 1..9, entry 0 at offset {len(records[0])}, txid 2" in text
    assert "checksum" in text
    # The entry behind it is read, whatever txid it begins with.
    behind = reading.take(1, b"".join(records[3:]))
    assert (txids(behind), behind.fault) == ([4, 5, 6], None)


def test_a_record_never_goes_on_in_the_next_entry() -> None:
    reading = decoder()
    [one, two] = mkdirs(1, 2)
    taken = reading.take(0, one + two[:-1])
    assert txids(taken) == [1]
    assert isinstance(taken.fault, EditsCorrupt)
    assert txids(reading.take(1, two)) == [2]


def test_padding_is_damage() -> None:
    taken = decoder().take(0, mkdirs(1, 1)[0] + b"\xff\xff")
    assert txids(taken) == [1]
    assert isinstance(taken.fault, EditsCorrupt)


def test_a_jump_of_txids_is_told_and_what_is_behind_it_is_given() -> None:
    reading = decoder()
    taken = reading.take(3, b"".join([*mkdirs(1, 2), *mkdirs(5, 6)]))
    assert isinstance(taken.fault, GapInTransactions)
    assert "entry 3" in str(taken.fault)
    assert "expected txid 3, but got txid 5" in str(taken.fault)
    assert txids(taken) == [1, 2, 5, 6]
    assert reading.take(4, mkdirs(7, 7)[0]).fault is None


def test_transactions_that_come_twice_are_given_once() -> None:
    reading = decoder()
    assert txids(reading.take(0, b"".join(mkdirs(1, 4)))) == [1, 2, 3, 4]
    taken = reading.take(1, b"".join(mkdirs(3, 6)))
    assert isinstance(taken.fault, GapInTransactions)
    assert txids(taken) == [5, 6]
    assert reading.take(2, mkdirs(7, 7)[0]).fault is None


def test_a_part_may_begin_at_any_entry() -> None:
    assert txids(decoder(None).take(7, b"".join(mkdirs(100, 101)))) == [100, 101]
    reading = decoder(8)
    reading.forget()
    assert reading.take(9, mkdirs(20, 20)[0]).fault is None


def test_layouts_without_a_length_are_read() -> None:
    op = sample(Mkdir, -40)
    payload = record_without_length(op, -40)
    taken = EntryDecoder(-40, "", 41).take(0, payload)
    assert decode(taken.records[0], -40) == op
    assert first_txid_of(-40, payload) == 41


def test_the_first_txid_of_an_entry_that_is_damaged_is_not_known() -> None:
    assert first_txid_of(HADOOP_2_7, b"".join(mkdirs(8, 9))) == 8
    assert first_txid_of(HADOOP_2_7, mkdirs(8, 8)[0] + with_wrong_checksum(mkdirs(9, 9)[0])) == 8
    for damaged in (b"", with_wrong_checksum(mkdirs(8, 8)[0]), mkdirs(8, 8)[0][:-1]):
        assert first_txid_of(HADOOP_2_7, damaged) is None
