"""Filters on whole numbers as bounds."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.spark.options.bounds import HIGH, LOW, Bounds, narrow

_TESTS = {
    "=": operator.eq,
    "<=>": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "in": lambda value, among: value in among,
}
_small = st.integers(-3, 30)
_filters = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["=", "<=>", ">", ">=", "<", "<="]), _small),
        st.tuples(st.just("in"), st.lists(_small | st.none(), max_size=5)),
    ),
    max_size=5,
)


@given(_filters)
def test_bounds_pass_what_every_filter_passes(filters: list[tuple[str, object]]) -> None:
    bounds = Bounds()
    for word, value in filters:
        narrowed = narrow(bounds, word, value)
        assert narrowed is not None
        bounds = narrowed
    passing = [value for value in range(33) if all(_TESTS[word](value, given) for word, given in filters)]
    assert [value for value in range(33) if value in bounds] == passing
    first, last = bounds.range
    assert all(first <= value <= last for value in passing)
    if bounds.is_range:
        assert [value for value in range(33) if first <= value <= last] == passing


@pytest.mark.parametrize(("word", "value"), [("=", "7"), ("=", True), (">", 1.5), ("in", [1, "2"]), ("like", 7)])
def test_what_is_no_comparison_of_whole_numbers_is_left_alone(word: str, value: object) -> None:
    assert narrow(Bounds(), word, value) is None


def test_without_filters_every_id_passes() -> None:
    assert Bounds().range == (LOW, HIGH)
    assert Bounds().is_range
