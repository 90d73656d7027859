"""The tables of `make bench-spark`: rates, CPU time, and ratios within a repetition beside their goals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from bookkeeper.console.output import print_table


@dataclass(frozen=True, slots=True)
class Outcome:
    """One measurement. rate: rows, or copies, a second. quiet: others took little of the machine meanwhile.

    cpu_us: CPU time of a row, of all our processes together, bookies and JVM too; None where that cannot be told.
    """

    cell: str
    size: int
    repetition: int
    rate: float
    quiet: bool
    cpu_us: float | None = None

    def to_json(self) -> dict[str, object]:
        """As a line of --json."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio of two cells. least: what is wanted, by size; without an entry the ratio is only shown."""

    cell: str
    of: str
    least: Mapping[int, float] = field(default_factory=dict)


GOALS = (
    Goal("ledgers", "memory source", {100: 0.15, 1024: 0.25}),
    Goal("ledgers", "perf read", {100: 0.5, 1024: 0.5}),
    Goal("ledger stream", "ledgers", {100: 0.8, 1024: 0.8}),
    Goal("ledger stream, from the first trigger on", "ledgers", {100: 0.8, 1024: 0.8}),
    Goal("memory stream", "memory source"),
    Goal("memory stream, from the first trigger on", "memory source"),
    Goal("ledger sink", "perf write", {100: 0.4, 1024: 0.4}),
    Goal("ledger 2 tasks", "ledger 1 task"),
    Goal("ledger 4 tasks", "ledger 1 task"),
    Goal("ledgers", "parquet"),
    Goal("ledger stream", "memory stream"),
)
TRIGGER_S_MAX = 0.4
IN_PLACE_MB_PER_S_MIN = 200


@dataclass(frozen=True, slots=True)
class Volume:
    """A cell whose rate is told in bytes too. row_bytes: by size of the value."""

    cell: str
    row_bytes: Callable[[int], int]
    least_mb_per_s: float | None = None


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


def show(
    outcomes: Sequence[Outcome], rows: Mapping[int, int], trigger_s: float | None, volumes: Sequence[Volume] = ()
) -> None:
    """Print the tables."""
    what = ", ".join(f"{count:,} rows of {size} B" for size, count in rows.items())
    sizes = [f"{size} B" for size in rows]
    print(f"\nlocal[2], three bookies, E=3 Qw=3 Qa=2, CRC32C; {what}")
    print(f"{sum(each.quiet for each in outcomes)} of {len(outcomes)} measurements quiet; median (least-most)")
    names = list(dict.fromkeys(each.cell for each in outcomes))
    print_table(
        ["rows/s (audits: copies/s)", *sizes, *(f"CPU us, {size}" for size in sizes)],
        [
            [name, *(_rates(outcomes, name, size) for size in rows), *(_cpu(outcomes, name, size) for size in rows)]
            for name in names
        ],
    )
    print()
    found = [[f"{goal.cell} / {goal.of}", *(_against(outcomes, goal, size) for size in rows)] for goal in GOALS]
    print_table(["ratio", *sizes], [line for line in found if set(line[1:]) != {MISSING}])
    told = [[volume.cell, *(_volume(outcomes, volume, size) for size in rows)] for volume in volumes]
    told = [line for line in told if set(line[1:]) != {MISSING}]
    if told:
        print()
        print_table(["MB/s of copies, digests verified", *sizes], told)
    if trigger_s is not None:
        word = "" if trigger_s <= TRIGGER_S_MAX else ", short"
        print(f"smallest trigger: {trigger_s:.3f} s (goal <= {TRIGGER_S_MAX}{word})")


MISSING = "not measured"


def _chosen(outcomes: Sequence[Outcome], name: str, size: int) -> list[Outcome]:
    return [each for each in outcomes if each.cell == name and each.size == size]


def _rates(outcomes: Sequence[Outcome], name: str, size: int) -> str:
    rates = [each.rate for each in _chosen(outcomes, name, size)]
    return f"{median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})" if rates else "-"


def _cpu(outcomes: Sequence[Outcome], name: str, size: int) -> str:
    found = [each.cpu_us for each in _chosen(outcomes, name, size) if each.cpu_us is not None]
    return f"{median(found):.1f}" if found else "-"


def _against(outcomes: Sequence[Outcome], goal: Goal, size: int) -> str:
    found = ratios(outcomes, goal.cell, goal.of, size)
    if not found:
        return MISSING
    return _judged(found, goal.least.get(size), "{:.2f}")


def _volume(outcomes: Sequence[Outcome], volume: Volume, size: int) -> str:
    chosen = _chosen(outcomes, volume.cell, size)
    found = [each.rate * volume.row_bytes(size) / 1e6 for each in chosen]
    return _judged(found, volume.least_mb_per_s, "{:.0f}") if found else MISSING


def _judged(found: Sequence[float], least: float | None, form: str) -> str:
    """The median, the extremes, and the goal if there is one."""
    middle, low, high = (form.format(value) for value in (median(found), min(found), max(found)))
    if least is None:
        return f"{middle} ({low}-{high})"
    word = "" if median(found) >= least else ", short"
    return f"{middle} ({low}-{high}; goal >= {least}{word})"
