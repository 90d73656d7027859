"""The table of `make bench-spark`: rates, and ratios within a repetition beside their goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bookkeeper.cli.output import print_table


@dataclass(frozen=True, slots=True)
class Outcome:
    """One measurement. rate: rows a second. quiet: others took little of the machine meanwhile."""

    cell: str
    size: int
    repetition: int
    rate: float
    quiet: bool

    def to_json(self) -> dict[str, object]:
        """As a line of --json."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio that is wanted."""

    cell: str
    of: str
    least: Mapping[int, float]


GOALS = (
    Goal("ledgers", "memory source", {100: 0.15, 1024: 0.25}),
    Goal("ledgers", "perf read", {100: 0.5, 1024: 0.5}),
    Goal("ledger stream", "ledgers", {100: 0.8, 1024: 0.8}),
    Goal("ledger sink", "perf write", {100: 0.4, 1024: 0.4}),
)
TRIGGER_S_MAX = 0.4


def ratios(outcomes: Sequence[Outcome], cell: str, of: str, size: int) -> list[float]:
    """The ratio of two cells in each repetition that measured both; of quiet ones where there is any."""
    by = {(each.cell, each.size, each.repetition): each for each in outcomes}
    pairs = [
        (one, by[of, size, one.repetition])
        for one in outcomes
        if one.cell == cell and one.size == size and (of, size, one.repetition) in by
    ]
    quiet = [pair for pair in pairs if pair[0].quiet and pair[1].quiet]
    return [one.rate / other.rate for one, other in quiet or pairs]


def show(outcomes: Sequence[Outcome], rows: Mapping[int, int], trigger_s: float | None) -> None:
    """Print the tables."""
    what = ", ".join(f"{count:,} rows of {size} B" for size, count in rows.items())
    print(f"\nlocal[2], three bookies, E=3 Qw=3 Qa=2, CRC32C; {what}")
    print(f"{sum(each.quiet for each in outcomes)} of {len(outcomes)} measurements quiet; median (least-most)")
    names = list(dict.fromkeys(each.cell for each in outcomes))
    print_table(
        ["rows/s", *(f"{size} B" for size in rows)],
        [[name, *(_rates(outcomes, name, size) for size in rows)] for name in names],
    )
    print()
    found = [[f"{g.cell} / {g.of}", *(_against(outcomes, g, size) for size in rows)] for g in GOALS]
    print_table(["ratio", *(f"{size} B" for size in rows)], found)
    if trigger_s is not None:
        print(f"smallest trigger: {trigger_s:.3f} s (goal <= {TRIGGER_S_MAX})")


def _rates(outcomes: Sequence[Outcome], name: str, size: int) -> str:
    rates = [each.rate for each in outcomes if each.cell == name and each.size == size]
    return f"{median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})" if rates else "-"


def _against(outcomes: Sequence[Outcome], goal: Goal, size: int) -> str:
    found = ratios(outcomes, goal.cell, goal.of, size)
    if not found:
        return "not measured"
    word = "" if median(found) >= goal.least[size] else ", short"
    return f"{median(found):.2f} ({min(found):.2f}-{max(found):.2f}; goal >= {goal.least[size]}{word})"
