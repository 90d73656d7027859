"""Spark's filters on columns of whole numbers, as bounds that a source obeys. What it does not know stays Spark's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from bookkeeper.spark.options.bounds import Bounds, narrow

_OPERATORS: Mapping[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "<=>",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a source obeys, and what it leaves to Spark."""

    bounds: Mapping[str, Bounds]
    left: tuple[Filter, ...]


def push(filters: Iterable[Filter], columns: Iterable[str]) -> Pushed:
    """Take over the filters on `columns`, which hold whole numbers and no nulls."""
    bounds, left = {column: Bounds() for column in columns}, []
    for each in filters:
        column = each.attribute[0] if hasattr(each, "attribute") and len(each.attribute) == 1 else None
        if column not in bounds or not _take(bounds, column, each):
            left.append(each)
    return Pushed(bounds, tuple(left))


def _take(bounds: dict[str, Bounds], column: str, each: Filter) -> bool:
    if isinstance(each, IsNotNull):
        return True
    operator = _OPERATORS.get(type(each))
    if operator is None:
        return False
    narrowed = narrow(bounds[column], operator, getattr(each, "value", None))
    if narrowed is None:
        return False
    bounds[column] = narrowed
    return True
