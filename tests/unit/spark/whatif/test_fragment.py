"""One fragment's arithmetic beside a twin that looks at every entry."""

from __future__ import annotations

import random

import pytest

from bookkeeper.protocol.schedule import write_set
from bookkeeper.spark.whatif.fragment import Loss, Stripes, loss_of, rewrite_of


def slow_loss(stripes: Stripes, ack_quorum: int, lost: set[int], readable: set[int], taken: set[int]) -> Loss:
    """Entry by entry."""
    found = Loss()
    for entry_id in range(stripes.first_entry_id, stripes.last_entry_id + 1):
        members = write_set(entry_id, stripes.ensemble_size, stripes.write_quorum)
        gone, left = set(members) & lost, set(members) - lost
        if not gone:
            continue
        found.affected += 1
        found.lost_copies += len(gone)
        found.no_copy += not left
        found.one_copy += len(left) == 1
        found.below_ack_quorum += len(left) < ack_quorum
        found.no_readable_copy += bool(left) and not left & readable
        if not left & readable:
            continue
        found.unplaced_copies += len(gone - taken)
        found.written_copies += len(gone & taken)
        for index in gone & taken:
            found.written[index] = found.written.get(index, 0) + 1
        if gone & taken:
            found.read_entries += 1
            source = next(index for index in members if index in readable)
            found.read[source] = found.read.get(source, 0) + 1
    return found


@pytest.mark.parametrize("seed", range(300))
def test_a_fragment_of_any_shape_loses_what_its_entries_lose_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    ensemble_size = rng.randint(1, 7)
    write_quorum = rng.randint(1, ensemble_size)
    ack_quorum = rng.randint(1, write_quorum)
    first = rng.randint(0, 20)
    stripes = Stripes(first, first + rng.randint(-1, 40), ensemble_size, write_quorum)
    indexes = range(ensemble_size)
    lost = {index for index in indexes if rng.random() < 0.4}
    readable = {index for index in indexes if index not in lost and rng.random() < 0.8}
    taken = {index for index in lost if rng.random() < 0.8}
    found = loss_of(stripes, ack_quorum, lost=lost, readable=readable, taken=taken)
    assert found == slow_loss(stripes, ack_quorum, lost, readable, taken)
    assert sum(found.written.values()) == found.written_copies
    assert sum(found.read.values()) == found.read_entries


def test_two_of_three_lost_leave_one_copy_below_the_ack_quorum_which_is_read_once_and_written_twice() -> None:
    found = loss_of(Stripes(0, 9, 3, 3), 2, lost={0, 1}, readable={2}, taken={0, 1})
    assert found == Loss(
        affected=10,
        one_copy=10,
        below_ack_quorum=10,
        lost_copies=20,
        written_copies=20,
        read_entries=10,
        read={2: 10},
        written={0: 10, 1: 10},
    )


def test_of_a_striped_ledger_two_neighbours_take_some_entries_with_them() -> None:
    """E=3, Qw=2: entry e lies on e and e + 1 mod 3; what lies on 0 and 1 is gone."""
    found = loss_of(Stripes(0, 8, 3, 2), 1, lost={0, 1}, readable={2}, taken={0, 1})
    assert (found.no_copy, found.one_copy, found.affected) == (3, 6, 9)
    assert (found.below_ack_quorum, found.lost_copies, found.written_copies) == (3, 12, 6)


def test_what_is_left_on_a_bookie_that_nobody_can_ask_is_neither_lost_nor_copied() -> None:
    found = loss_of(Stripes(0, 4, 2, 2), 1, lost={0}, readable=set(), taken={0})
    assert (found.no_copy, found.no_readable_copy, found.written_copies, found.unplaced_copies) == (0, 5, 0, 0)


def test_a_ledger_of_any_length_costs_no_more_than_its_ensemble() -> None:
    found = loss_of(Stripes(0, 2**62 - 1, 4, 2), 2, lost={0}, readable={1, 2, 3}, taken={0})
    assert (found.affected, found.written_copies) == (2**61, 2**61)


def test_an_empty_fragment_loses_nothing() -> None:
    assert loss_of(Stripes(5, 4, 3, 2), 2, lost={0, 1, 2}, readable=set(), taken=set()) == Loss()


def test_written_anew_each_entry_is_read_once_and_leaves_the_places_where_it_was() -> None:
    found = rewrite_of(Stripes(0, 8, 3, 2), 4, 3, readable={0, 1, 2})
    assert found.read_entries == 9
    assert found.read == {0: 3, 1: 3, 2: 3}
    assert found.gone == {0: 6, 1: 6, 2: 6}
    assert sum(found.written) == 27


def test_what_cannot_be_read_is_not_written_anew_and_stays() -> None:
    found = rewrite_of(Stripes(0, 8, 3, 1), 2, 2, readable={0})
    assert (found.read_entries, found.no_readable_copy) == (3, 6)
    assert (found.gone, found.written) == ({0: 3}, [3, 3])
