"""What a query asks of columns of whole numbers: bounds that a source can obey by itself. Pure.

`Bounds` says which values a column may have; filters of Spark narrow it. A filter that is not of a form known here is
left to Spark, which applies it to the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LOW, HIGH = 0, 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Values low..high, both included, of `only` these if that is not None."""

    low: int = LOW
    high: int = HIGH
    only: frozenset[int] | None = None

    def at_least(self, value: int) -> Bounds:
        """Narrowed to value and above."""
        return Bounds(max(self.low, value), self.high, self.only)

    def at_most(self, value: int) -> Bounds:
        """Narrowed to value and below."""
        return Bounds(self.low, min(self.high, value), self.only)

    def among(self, values: Iterable[int]) -> Bounds:
        """Narrowed to these values."""
        given = frozenset(values)
        return Bounds(self.low, self.high, given if self.only is None else self.only & given)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value that may pass; the first is above the second where none can."""
        if self.only is None:
            return self.low, self.high
        inside = [value for value in self.only if self.low <= value <= self.high]
        return (min(inside), max(inside)) if inside else (1, 0)

    @property
    def is_range(self) -> bool:
        """Every value of `range` passes."""
        first, last = self.range
        return self.only is None or last - first + 1 <= sum(first <= value <= last for value in self.only)

    def __contains__(self, value: int) -> bool:
        return self.low <= value <= self.high and (self.only is None or value in self.only)


def narrow(bounds: Bounds, operator: str, value: object) -> Bounds | None:
    """Bounds narrowed by `column operator value`; None where the comparison is of another kind.

    operator: =, <=>, >, >=, <, <=, in (then value is a sequence).
    """
    if operator == "in":
        values: Sequence[object] = value if isinstance(value, (list, tuple)) else [value]
        whole = [each for each in values if isinstance(each, int) and not isinstance(each, bool)]
        # A null among them matches no row; anything else is left to Spark.
        return bounds.among(whole) if len(whole) == sum(each is not None for each in values) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    narrowed: Mapping[str, Bounds] = {
        "=": bounds.among([value]),
        "<=>": bounds.among([value]),
        ">": bounds.at_least(value + 1),
        ">=": bounds.at_least(value),
        "<": bounds.at_most(value - 1),
        "<=": bounds.at_most(value),
    }
    return narrowed.get(operator)
