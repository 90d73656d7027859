"""An audit divided into parts and rounds."""

from __future__ import annotations

import pytest

from bookkeeper.spark.audit.division import PARTS_PER_TASK, ROUNDS_MAX, Division, Piece, pieces_of
from bookkeeper.spark.audit.evidence import CHUNK_ENTRIES
from bookkeeper.spark.ledgers.plan import Extent

MB = 1 << 20


def pieces(*extents: Extent, most: int = MB, least: int = 1) -> list[Piece]:
    return list(pieces_of(extents, partition_bytes_max=most, partitions_min=least))


def test_every_chunk_is_in_one_piece_and_knows_where_its_ledger_ends() -> None:
    found = pieces(Extent(1, 0, 10, 100), Extent(4, 0, 5 * CHUNK_ENTRIES, 10 * MB, copies=2), Extent(9, 0, 0, 5))
    chunks = [(each.ledger_id, at) for each in found for at in range(each.first_chunk, each.last_chunk + 1)]
    assert chunks == [(1, 0), *((4, at) for at in range(6)), (9, 0)]
    assert {each.ledger_id: each.last_entry_id for each in found} == {1: 10, 4: 5 * CHUNK_ENTRIES, 9: 0}
    assert [each.part for each in found] == sorted(each.part for each in found)
    assert sum(each.size for each in found if each.ledger_id == 4) == pytest.approx(20 * MB, abs=10)


@pytest.mark.parametrize("tasks", [1, 3])
def test_every_part_is_in_one_round_and_a_round_keeps_all_tasks_busy(tasks: int) -> None:
    found = pieces(*(Extent(each, 0, 0, MB) for each in range(100)))
    division = Division.of(found, tasks=tasks)
    parts = [part for number in range(division.rounds) for part in division.parts_of(number)]
    assert parts == list(range(len(division.starts)))
    assert len(division.parts_of(0)) == PARTS_PER_TASK * tasks
    assert all(part in division.parts_of(division.round_of(part)) for part in parts)


def test_there_are_never_more_rounds_than_are_worth_it() -> None:
    found = [Piece(part, part, 0, 0, 0, 1) for part in range(10_001)]
    assert Division.of(found, tasks=1).rounds <= ROUNDS_MAX


def test_all_parts_may_be_one_round_and_nothing_is_none() -> None:
    found = [Piece(part, part, 0, 0, 0, 1) for part in range(500)]
    assert Division.of(found, tasks=1, one_round=True).rounds == 1
    assert Division.of([], tasks=4).rounds == 0
