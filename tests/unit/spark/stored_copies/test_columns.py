"""Columns calculated with whole, beside the same one by one."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.spark.stored_copies import columns
from bookkeeper.spark.stored_copies.columns import are_steps, ascend, less

numbers = st.integers(0, 2**63 - 1)


@given(st.integers(0, 2**40), st.integers(0, 2**20), st.integers(0, 50), st.data())
def test_steps_are_those_of_a_range_and_any_other_number_is_seen(
    first: int, step: int, count: int, data: st.DataObject
) -> None:
    column = array("q", [first + step * at for at in range(count)])
    assert are_steps(column, step)
    if count > 1:
        at = data.draw(st.integers(0, count - 1))
        column[at] = data.draw(numbers.filter(lambda other: other != column[at]))
        assert are_steps(column, step) == all(two - one == step for one, two in pairwise(column))


def test_two_faults_that_even_out_are_seen() -> None:
    column = array("q", range(1000, 2000, 10))
    column[40] += 1
    column[41] -= 1
    assert not are_steps(column, 10)
    assert not are_steps(array("q", [5, 5 + (1 << 62), 15]), 5)


@given(st.lists(numbers))
def test_a_column_ascends_where_no_number_is_less_than_the_one_before_it(found: list[int]) -> None:
    assert ascend(array("q", found)) == all(one <= two for one, two in pairwise(found))
    assert ascend(array("q", sorted(found)))


@given(st.lists(numbers, max_size=20), numbers, st.sampled_from([1, 3, columns.TOGETHER]))
def test_less_is_each_number_less_the_same(found: list[int], what: int, together: int) -> None:
    column = array("q", [max(each, what) for each in found])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "TOGETHER", together)
        assert less(column, what) == array("q", [each - what for each in column])
