"""From extents to partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.spark.ledgers.plan import OPEN_COST_BYTES, Extent, Slice, partitions_of

MIB = 1024 * 1024


@st.composite
def extents(draw: st.DrawFn) -> list[Extent]:
    found = []
    for ledger_id in range(draw(st.integers(0, 8))):
        first = draw(st.integers(0, 50))
        last = first + draw(st.integers(0, 500))
        borders = sorted(draw(st.sets(st.integers(0, 600), max_size=4)) | {0})
        found.append(Extent(ledger_id, first, last, draw(st.integers(0, 20 * MIB)), tuple(borders)))
    return found


@given(extents(), st.integers(64 * 1024, 8 * MIB), st.integers(1, 40))
def test_every_entry_is_in_exactly_one_partition_in_order(
    wanted: list[Extent], partition_bytes_max: int, partitions_min: int
) -> None:
    found = partitions_of(wanted, partition_bytes_max=partition_bytes_max, partitions_min=partitions_min)
    read = [
        (piece.ledger_id, entry_id)
        for partition in found
        for piece in partition
        for entry_id in range(piece.first_entry_id, piece.last_entry_id + 1)
    ]
    assert read == [
        (extent.ledger_id, entry_id)
        for extent in wanted
        for entry_id in range(extent.first_entry_id, extent.last_entry_id + 1)
    ]
    assert all(found)
    assert len(found) >= min(partitions_min, len(read))


@given(extents(), st.integers(64 * 1024, 8 * MIB))
def test_a_partition_is_not_much_larger_than_asked_for(wanted: list[Extent], partition_bytes_max: int) -> None:
    for partition in partitions_of(wanted, partition_bytes_max=partition_bytes_max):
        largest_entry = max(piece.size // (piece.last_entry_id - piece.first_entry_id + 1) + 1 for piece in partition)
        assert sum(piece.size for piece in partition) <= 2 * max(partition_bytes_max, OPEN_COST_BYTES, largest_entry)


def test_a_large_ledger_is_cut_where_its_bookies_change() -> None:
    extent = Extent(7, 0, 99, 100 * MIB, borders=(0, 30))
    assert partitions_of([extent], partition_bytes_max=80 * MIB) == [
        (Slice(7, 0, 29, 30 * MIB),),
        (Slice(7, 30, 99, 70 * MIB),),
    ]


def test_small_ledgers_share_a_partition_and_fragments_that_do_are_read_in_one_go() -> None:
    wanted = [Extent(1, 0, 9, 100, (0, 5)), Extent(2, 0, 0, 100)]
    assert partitions_of(wanted, partition_bytes_max=MIB) == [(Slice(1, 0, 9, 100), Slice(2, 0, 0, 100))]


def test_nothing_to_read_makes_no_partition() -> None:
    assert partitions_of([], partition_bytes_max=MIB, partitions_min=8) == []


def test_ledgers_of_unknown_size_are_halved_into_any_number_of_partitions_the_largest_first() -> None:
    """As many as a user may ask for: each halving looks at the largest, and not at all of them."""
    wanted = [Extent(ledger_id, 0, 20_479, 0) for ledger_id in range(2000)]
    found = partitions_of(wanted, partition_bytes_max=8 * MIB, partitions_min=50_000)
    sizes = [sum(piece.last_entry_id - piece.first_entry_id + 1 for piece in partition) for partition in found]
    assert (len(found), sum(sizes)) == (50_000, 2000 * 20_480)
    assert max(sizes) <= 2 * min(sizes) + 1
    assert [partition[0].ledger_id for partition in found] == sorted(partition[0].ledger_id for partition in found)
