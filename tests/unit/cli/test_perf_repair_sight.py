"""What counts as repaired by what was seen of a repair, and what is looked at next."""

from __future__ import annotations

from random import Random

import pytest

from bookkeeper.cli.perf.repair_sight import FIRST_LOOKS_EVERY_S, LOOK_SHARE, RepairSight


def test_what_is_not_marked_yet_is_not_repaired() -> None:
    sight = RepairSight(range(3000))
    sight.on_listing(range(279))
    assert (sight.marked, sight.repaired, sight.unmarked) == (279, 0, 2721)


def test_a_ledger_whose_mark_has_come_and_gone_is_repaired_and_one_that_is_marked_again_is_not() -> None:
    sight = RepairSight(range(4))
    sight.on_listing([0, 1, 2])
    sight.on_listing([2, 3])
    assert (sight.marked, sight.repaired, sight.unmarked) == (2, 2, 0)
    sight.on_listing([1, 2, 3])
    assert (sight.marked, sight.repaired, sight.unmarked) == (3, 1, 0)


def test_a_ledger_that_is_whole_by_its_metadata_is_repaired_even_if_its_mark_was_never_seen_or_is_still_there() -> None:
    sight = RepairSight(range(4))
    sight.on_listing([0])
    sight.on_whole(0, 5000)
    sight.on_whole(3, 4000)
    assert (sight.marked, sight.repaired, sight.unmarked) == (0, 2, 2)


def test_marks_of_other_ledgers_do_not_matter() -> None:
    sight = RepairSight([10, 11])
    sight.on_listing([1, 2, 3])
    assert not sight.has_begun
    sight.on_listing([1, 2, 3, 10])
    assert (sight.marked, sight.repaired, sight.unmarked) == (1, 0, 1)
    sight.on_listing([1, 2, 3])
    assert sight.to_read() == [11, 10], "it may be over, whatever is left of the others"


def test_a_repair_is_over_only_once_the_metadata_of_each_ledger_was_seen_whole() -> None:
    sight = RepairSight([1, 2, 3])
    sight.on_listing([1, 2, 3])
    sight.on_listing([])
    assert (sight.repaired, sight.is_over) == (3, False)
    sight.on_whole(2, 7000)
    sight.on_whole(1, 9000)
    assert (sight.is_over, sight.to_read()) == (False, [3])
    sight.on_whole(3, 8000)
    assert (sight.is_over, sight.healed_ms) == (True, 9000)


def test_no_metadata_is_read_while_marks_go() -> None:
    sight = RepairSight(range(100))
    for left in range(100, 0, -1):
        sight.on_listing(range(left))
        assert sight.to_read() == []
    sight.on_listing([])
    assert sorted(sight.to_read()) == list(range(100))


def test_where_the_auditor_is_slow_the_first_one_read_is_one_that_it_has_not_come_to() -> None:
    sight = RepairSight(range(5))
    sight.on_listing([0, 1])
    sight.on_listing([])
    assert sight.to_read() == [2, 3, 4, 0, 1]


def test_a_directory_that_was_left_behind_does_not_hide_the_end() -> None:
    sight = RepairSight(range(3))
    sight.on_listing([0, 1, 2])
    sight.on_listing([1])
    assert sight.to_read() == []
    sight.on_listing([1])
    assert sight.to_read() == [1, 0, 2]


def test_one_ledger_is_looked_at_before_anything_is_marked() -> None:
    sight = RepairSight([4, 7])
    sight.on_listing([])
    assert sight.to_read() == [4]
    sight.on_whole(4, 1)
    assert sight.has_begun
    assert sight.to_read() == [7]


@pytest.mark.parametrize("look_s", [0.011, 0.05, 0.15])
def test_looks_take_no_more_than_their_share_of_the_time(look_s: float) -> None:
    sight = RepairSight([1])
    assert sight.pause_s(look_s) == FIRST_LOOKS_EVERY_S, (
        "a look at nothing costs nothing, and the start is told exactly"
    )
    sight.on_listing([1])
    assert look_s / (look_s + sight.pause_s(look_s)) <= LOOK_SHARE


def test_whatever_happens_no_more_is_counted_as_repaired_than_is() -> None:
    """Against a twin that knows the truth: ledgers are marked, repaired and looked at in any order."""
    rng = Random(7)
    for _ in range(200):
        ours = range(rng.randrange(1, 12))
        fate = dict.fromkeys(ours, "damaged")
        sight = RepairSight(ours)
        for _ in range(40):
            ledger_id = rng.choice(ours)
            fate[ledger_id] = {"damaged": "marked", "marked": "whole", "whole": "whole"}[fate[ledger_id]]
            if rng.random() < 0.4:
                sight.on_listing([each for each in ours if fate[each] == "marked"])
                for each in sight.to_read():
                    if fate[each] != "whole":
                        break
                    sight.on_whole(each, 1)
            truly = sum(state == "whole" for state in fate.values())
            assert sight.repaired <= truly
            assert not sight.is_over or truly == len(ours)
            assert sight.repaired + sight.marked + sight.unmarked == len(ours)
