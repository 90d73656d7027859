"""Dozens of events are one line, and none of them is lost from the count."""

from __future__ import annotations

from bookkeeper.bookie.process.log_throttle import KEYS_MAX, Seldom


def test_the_first_is_told_at_once_and_the_others_with_the_next_line() -> None:
    seldom = Seldom(10.0)
    assert seldom.count(7, 0.0, 3) == 3
    assert [seldom.count(7, at_s) for at_s in (1.0, 2.0, 9.9)] == [0, 0, 0]
    assert seldom.count(8, 5.0) == 1  # of another kind
    assert seldom.count(7, 10.0) == 4
    assert seldom.count(7, 11.0) == 0


def test_kinds_are_remembered_up_to_a_bound() -> None:
    seldom = Seldom(1e9)
    for kind in range(3 * KEYS_MAX):
        assert seldom.count(kind, float(kind)) == 1
    assert len(seldom) == KEYS_MAX
    assert seldom.count(0, 1e5) == 1  # forgotten, so it is new
    assert seldom.count(3 * KEYS_MAX - 1, 1e5) == 0
