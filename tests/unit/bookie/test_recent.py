"""A RecentMap is bounded and keeps what is used."""

from __future__ import annotations

import random

import pytest

from bookkeeper.bookie.requests.lru_map import RecentMap


def test_it_never_holds_more_than_its_bound_and_keeps_what_was_used_last() -> None:
    rng = random.Random(1)
    recent: RecentMap[int, int] = RecentMap(100)
    for step in range(10_000):
        key = rng.randrange(1000)
        recent.put(key, step)
        assert len(recent) <= 100
        assert recent.get(key) == step


def test_a_key_in_steady_use_survives_any_number_of_others() -> None:
    recent: RecentMap[int, str] = RecentMap(10)
    recent.put(-1, "kept")
    for key in range(1000):
        recent.put(key, "passing")
        assert recent.get(-1) == "kept"
    assert recent.get(0) is None


def test_a_discarded_key_is_gone_from_both_generations() -> None:
    recent: RecentMap[int, str] = RecentMap(4)
    for key in range(3):
        recent.put(key, "x")
    assert recent.get(0) == "x"
    recent.discard(0)
    assert recent.get(0) is None


def test_a_map_too_small_to_have_two_generations_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        RecentMap(1)
