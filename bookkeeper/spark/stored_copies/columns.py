"""Columns of int64 calculated with whole. Pure.

A column of numbers that are not negative is taken as one large number whose digits, to the base 2^64, they are: adding
and subtracting it does so with all of them, in C, without an object for each. A tenth of the time of one by one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache

TOGETHER = 8192
"""Numbers of a long column that are calculated with at once."""


def are_steps(numbers: Sequence[int], step: int) -> bool:
    """Each number is the one before it and `step`. None is negative; nor would be what they should be."""
    count = len(numbers)
    if count < 2:
        return True
    if numbers[-1] - numbers[0] != step * (count - 1):
        return False
    return _digits(numbers) == numbers[0] * _ones(count) + _steps(step, count)


def ascend(numbers: array[int]) -> bool:
    """None is less than the one before it."""
    return array("q", sorted(numbers)) == numbers


def less(numbers: array[int], what: int) -> array[int]:
    """Each of them less `what`, which none of them is below; `what` is not negative."""
    found: array[int] = array("q")
    for start in range(0, len(numbers), TOGETHER):
        some = numbers[start : start + TOGETHER]
        found.extend(_column(_digits(some) - what * _ones(len(some)), len(some)))
    return found


def _digits(numbers: Sequence[int]) -> int:
    column = array("q", numbers)
    if sys.byteorder == "big":
        column.reverse()
    return int.from_bytes(column.tobytes(), sys.byteorder)


def _column(digits: int, count: int) -> array[int]:
    column: array[int] = array("q")
    column.frombytes(digits.to_bytes(count * column.itemsize, sys.byteorder))
    if sys.byteorder == "big":
        column.reverse()
    return column


@lru_cache(maxsize=4)
def _ones(count: int) -> int:
    return _digits(array("q", [1]) * count)


@lru_cache(maxsize=4)
def _steps(step: int, count: int) -> int:
    return _digits(range(0, step * count, step) if step else array("q", [0]) * count)
