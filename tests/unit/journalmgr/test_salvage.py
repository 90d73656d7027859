"""Reading behind damage: what is delivered are whole records, and what is skipped is told to the byte."""

import random

import pytest

from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import UnsupportedLayout
from journalmgr.model import HADOOP_2_7, OPAQUE
from journalmgr.reading import Jumps
from journalmgr.salvage import Skipped, salvage

RECORDS = [encode_record(OpCode.OPAQUE, txid, b"transaction %d" % txid) for txid in range(1, 21)]
DATA = b"".join(RECORDS)
BEGINS = [sum(map(len, RECORDS[:index])) for index in range(len(RECORDS) + 1)]


def salvaged(data: bytes, *, begin: int = 0, offset: int = 0) -> tuple[list[int], list[tuple[int, int]]]:
    """Txids, and the ranges that were skipped."""
    txids: list[int] = []
    ranges: list[tuple[int, int]] = []
    for found in salvage(data, OPAQUE, source="edits", begin=begin, offset=offset):
        if isinstance(found, Skipped):
            ranges.append((found.offset, found.end))
        else:
            txids += [record.txid for record in found]
    return txids, ranges


def test_whole_transactions_are_all_delivered() -> None:
    assert salvaged(DATA) == (list(range(1, 21)), [])
    assert salvaged(DATA + b"\xff" * 100 + bytes(100)) == (list(range(1, 21)), [])
    assert salvaged(b"") == ([], [])


def test_a_changed_byte_costs_the_record_it_is_in() -> None:
    rng = random.Random(5)
    for position in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[position] ^= 1 << rng.randrange(8)
        hit = max(index for index, begin in enumerate(BEGINS) if begin <= position)
        txids, ranges = salvaged(bytes(damaged))
        assert txids == [txid for txid in range(1, 21) if txid != hit + 1]
        assert ranges == [(BEGINS[hit], BEGINS[hit + 1])]


def test_several_damages_are_told_one_by_one() -> None:
    damaged = bytearray(DATA)
    damaged[BEGINS[2] + 20] ^= 1
    damaged[BEGINS[9] : BEGINS[11]] = bytes(BEGINS[11] - BEGINS[9])
    txids, ranges = salvaged(bytes(damaged))
    assert txids == [txid for txid in range(1, 21) if txid not in (3, 10, 11)]
    assert ranges == [(BEGINS[2], BEGINS[3]), (BEGINS[9], BEGINS[11])]


def test_what_was_cut_off_is_told() -> None:
    assert salvaged(DATA[:-3]) == (list(range(1, 20)), [(BEGINS[19], len(DATA) - 3)])


def test_garbage_alone_gives_nothing() -> None:
    garbage = bytes(random.Random(1).randrange(255) for _ in range(3000))
    assert salvaged(garbage) == ([], [(0, 3000)])


def test_offsets_count_from_the_beginning_of_the_source() -> None:
    """begin: behind a header; offset: of the data in what it comes from."""
    damaged = bytearray(b"headerxx" + DATA)
    damaged[8 + 20] ^= 1
    assert salvaged(bytes(damaged), begin=8)[1] == [(8, 8 + BEGINS[1])]
    assert salvaged(bytes(damaged), begin=8, offset=1000)[1] == [(1008, 1008 + BEGINS[1])]


def test_a_record_behind_the_terminator_is_found() -> None:
    assert salvaged(RECORDS[0] + b"\xff" * 30 + RECORDS[1]) == ([1, 2], [(BEGINS[1], BEGINS[1] + 30)])


def test_without_lengths_nothing_can_be_found() -> None:
    with pytest.raises(UnsupportedLayout, match="do not say how long they are"):
        list(salvage(DATA, -40, source="edits"))


def test_a_range_is_told_with_what_is_wrong() -> None:
    damaged = bytearray(DATA)
    damaged[20] ^= 1
    (skipped,) = (each for each in salvage(bytes(damaged), HADOOP_2_7, source="edits") if isinstance(each, Skipped))
    assert str(skipped).startswith("edits: skipped bytes 0..29 (30): transaction of opcode 112 is corrupt")


def test_txids_that_are_missing_or_repeated_are_told() -> None:
    jumps = Jumps(None)
    records = [
        record for found in salvage(DATA, OPAQUE, source="") if not isinstance(found, Skipped) for record in found
    ]
    assert list(jumps.look(records[3:5])) == []
    assert list(jumps.look(records[7:9])) == ["txids 6..7 are missing"]
    assert list(jumps.look(records[:1])) == ["txid 1 comes behind txid 9"]
    assert list(Jumps(1).look(records[2:3])) == ["txids 1..2 are missing"]
