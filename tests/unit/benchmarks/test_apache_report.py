"""Verdicts and tables of the benchmark against Apache, from records made by hand."""

import pytest

from tests.benchmarks.apache.plan import Cell, chosen_cells, default_cells
from tests.benchmarks.apache.records import Record
from tests.benchmarks.apache.report import render, results, table
from tests.benchmarks.apache.targets import BELOW, PASS, SHORT, Goal, p99_goal, rate_goal, tuned_goal

CELL = "write:10240x1000:v2"  # target 1.0, floor 0.5


def measured(side: str, repetition: int, per_s: float, *, quiet: bool = True, cell: str = CELL) -> Record:
    return {
        "kind": "measured",
        "cell": cell,
        "side": side,
        "repetition": repetition,
        "attempt": 0,
        "quiet": quiet,
        "operations": 1000,
        "per_s": per_s,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
        "client_cpu_us": 5.0,
        "bookie_cpu_us": 10.0,
        "flushes": 10,
    }


def rounds(*pairs: tuple[float, float], quiet: bool = True) -> list[Record]:
    return [
        measured(side, repetition, per_s, quiet=quiet)
        for repetition, pair in enumerate(pairs)
        for side, per_s in zip(("ours", "apache"), pair, strict=True)
    ]


def row(text: str, cell: str = CELL) -> list[str]:
    """The first row of a cell: of its rates."""
    return next(line for line in text.splitlines() if line.startswith(cell)).split()


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(2.5, PASS), (1.9, PASS), (1.896, PASS), (1.89, SHORT), (1.0, SHORT), (0.9, BELOW)]
)
def test_a_rate_is_held_against_target_and_floor(ratio: float, verdict: str) -> None:
    assert Goal(1.9, 1.0).verdict(ratio) == verdict


@pytest.mark.parametrize(("ratio", "verdict"), [(0.4, PASS), (0.5, PASS), (0.7, SHORT), (1.0, SHORT), (1.1, BELOW)])
def test_a_cost_is_held_against_bounds_from_above(ratio: float, verdict: str) -> None:
    assert Goal(0.5, 1.0, higher_is_better=False).verdict(ratio) == verdict


def test_a_goal_without_a_floor_is_never_below_it() -> None:
    assert Goal(1.0).verdict(0.01) == SHORT


def test_goals_are_those_of_the_table() -> None:
    [cell] = chosen_cells("write:128x1:v2")
    assert (rate_goal(cell), tuned_goal(cell)) == (Goal(5.0, 3.0), Goal(0.9))
    [v3] = chosen_cells("write:128x1000:v3")
    assert (rate_goal(v3), tuned_goal(v3)) == (Goal(1.1, 0.6), None)
    assert rate_goal(Cell("write", 10240, "100", 3)) == Goal(0.8, 0.5)
    assert rate_goal(Cell("write", 10240, "1", 2)) is None
    halves = [each.name for each in default_cells() if each.kind != "start" and p99_goal(each).target == 0.5]
    assert halves == ["write:128x1000:v2"]


def test_the_ratio_is_the_median_of_ratios_within_rounds() -> None:
    # Ratios 0.5, 2, 4: their median is 2, although the medians of the two sides give 1.
    [result] = results(rounds((100, 200), (400, 200), (200, 50)))
    assert result.ratio("per_s") == 2.0
    assert result.figure("ours", "per_s") == 200
    assert row(render(rounds((100, 200), (400, 200), (200, 50))))[1:8] == [
        "200",
        "200",
        "2.00",
        "(0.50-4.00)",
        ">=1,",
        "0.5",
        "pass",
    ]


def test_rounds_that_were_not_quiet_do_not_count_beside_quiet_ones() -> None:
    records = [*rounds((100, 100)), measured("ours", 1, 900, quiet=False), measured("apache", 1, 100)]
    [result] = results(records)
    assert (result.ratio("per_s"), result.quiet_rounds, result.all_rounds) == (1.0, 1, 2)


def test_a_cell_without_a_quiet_round_says_so_and_gets_no_verdict() -> None:
    text = render(rounds((300, 100), quiet=False))
    assert "[3.00]" in row(text)
    assert row(text)[-2:] == ["0/1", "NOISY"]
    assert PASS not in text


def test_a_round_that_lacks_a_side_is_not_reported() -> None:
    [result] = results([measured("ours", 0, 100)])
    assert result.ratio("per_s") is None
    assert not result.rounds


def test_failures_are_told_once() -> None:
    failed = [
        {**measured("apache", 0, 1), "kind": "failed", "attempt": attempt, "error": "add: not enough bookies"}
        for attempt in range(2)
    ]
    assert render(failed).count("not enough bookies") == 1


def test_starts_and_memory_are_held_against_their_goals() -> None:
    mb = 1_000_000
    resident = {"ours bookie 1": 40 * mb, "apache bookie 1": 200 * mb, "client ours": 50 * mb}
    entries = {"ours": 0, "apache": 0}
    records: list[Record] = [
        {"kind": "memory", "moment": "idle", "resident": resident, "entries": entries},
        {
            "kind": "memory",
            "moment": "end",
            "resident": {**resident, "ours bookie 1": 390 * mb},
            "entries": {"ours": 12_000_000, "apache": 1},
        },
    ]
    for side, took_s in (("ours", 0.2), ("apache", 1.0)):
        records.append({**measured(side, 0, 1, cell="start:bookie"), "took_s": took_s})
    text = render(records)
    assert "idle bookie, ours/Apache: 0.20 (target <=0.3): pass" in text
    assert "390 MB after up to 12.0 M entries of the cluster (target <= 400 MB after 10 M): pass" in text
    start = next(line for line in text.splitlines() if line.startswith("start:bookie"))
    assert start.split()[-6:] == ["0.20", "1.00", "0.20", "<=0.5", "pass", "1/1"]


def test_memory_is_not_praised_before_enough_entries() -> None:
    records: list[Record] = [
        {"kind": "memory", "moment": "end", "resident": {"ours bookie 1": 100}, "entries": {"ours": 5}}
    ]
    assert "not enough entries to tell" in render(records)


def test_columns_line_up() -> None:
    lines = table("T", ("name", "a", "b"), [["long name", "1", "22"], ["x", "333", "4"]])
    assert lines == ["", "T", "name         a   b", "long name    1  22", "x          333   4"]


def test_a_table_without_rows_is_left_out() -> None:
    assert table("T", ("name",), []) == []


def test_the_machine_stands_above_the_figures() -> None:
    run = {"kind": "run", "machine": {"cores": "2", "python": "x"}, "settings": {"both": "E3"}}
    assert render([run]).splitlines() == ["cores 2; python x", "both: E3"]
