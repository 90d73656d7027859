"""The table of `make bench-spark`, from values made by hand; which cells a word means."""

from __future__ import annotations

import pytest

from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, LedgerState
from tests.benchmarks.apache.quiet import TICKS_PER_S, CpuTimes, ProcessTimes, tree_cpu_s
from tests.benchmarks.spark.cells import CELLS, chosen
from tests.benchmarks.spark.ground import divided
from tests.benchmarks.spark.report import GOALS, Outcome, Volume, ratios, show

ROWS = {100: 6_000_000, 1024: 1_500_000}


def outcomes(cell: str, *rates: float, size: int = 100, quiet: bool = True) -> list[Outcome]:
    return [Outcome(cell, size, number, rate, quiet, cpu_us=2.5) for number, rate in enumerate(rates, 1)]


def shown(capsys: pytest.CaptureFixture[str], found: list[Outcome], **more: object) -> list[str]:
    show(found, ROWS, **{"trigger_s": None, **more})
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_ratios_are_of_the_same_repetition_and_quiet_ones_go_before_others() -> None:
    one = outcomes("ledgers", 30, 20, 10)
    other = outcomes("memory source", 100, 200)
    assert ratios([*one, *other], "ledgers", "memory source", 100) == [0.3, 0.1]
    noisy = [*outcomes("ledgers", 50, quiet=False), *one[1:]]
    assert ratios([*noisy, *other], "ledgers", "memory source", 100) == [0.1]
    assert ratios([*noisy[:1], *other], "ledgers", "memory source", 100) == [0.5]
    assert ratios(one, "ledgers", "memory source", 100) == []


def test_goals_are_judged_by_the_median_and_what_was_not_measured_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        *outcomes("memory source", 100, 100, 100),
        *outcomes("ledgers", 16, 14, 20),
        *outcomes("perf read", 40, 40, 40),
    ]
    lines = shown(capsys, found)
    assert "ledgers / memory source 0.16 (0.14-0.20; goal >= 0.15) not measured" in lines
    assert "ledgers / perf read 0.40 (0.35-0.50; goal >= 0.5, short) not measured" in lines
    assert "ledgers 16 (14-20) - 2.5 -" in lines
    assert not [line for line in lines if line.startswith("ledger sink")]


def test_a_ratio_without_a_goal_is_only_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, [*outcomes("ledger 1 task", 10), *outcomes("ledger 2 tasks", 17)])
    assert "ledger 2 tasks / ledger 1 task 1.70 (1.70-1.70) not measured" in lines


def test_volumes_and_the_trigger_have_goals_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    found = [*outcomes("in place", 2_000_000), *outcomes("in place", 180_000, size=1024)]
    lines = shown(capsys, found, trigger_s=0.5, volumes=[Volume("in place", lambda size: size, 200), Volume("x", len)])
    assert "in place 200 (200-200; goal >= 200) 184 (184-184; goal >= 200, short)" in lines
    assert lines[-1] == "smallest trigger: 0.500 s (goal <= 0.4, short)"


def test_every_goal_names_cells_that_there_are() -> None:
    names = {name for cell in CELLS for name in (cell.name, *(f"{cell.name}, {part}" for part in cell.parts))}
    assert {name for goal in GOALS for name in (goal.cell, goal.of)} <= names
    assert len({cell.name for cell in CELLS}) == len(CELLS)


def test_a_word_means_the_cells_that_it_begins() -> None:
    assert chosen(None) == CELLS
    assert [cell.name for cell in chosen("memory, perf read")] == ["memory source", "memory stream", "perf read"]
    with pytest.raises(ValueError, match="no cell parket; there are memory source; "):
        chosen("ledgers,parket")


def test_a_divided_ledger_has_fragments_of_the_same_bookies_and_nearly_one_size() -> None:
    bookies = tuple(BookieId(name) for name in "abc")
    whole = LedgerMetadata(
        3, 3, 2, (Fragment(EntryId(0), bookies),), state=LedgerState.CLOSED, last_entry_id=EntryId(10), length=110
    )
    found = divided(whole, 4)
    assert [fragment.first_entry_id for fragment in found.fragments] == [0, 2, 5, 8]
    assert ["".join(fragment.ensemble) for fragment in found.fragments] == ["abc", "bca", "cab", "abc"]
    assert (found.last_entry_id, found.length, found.state) == (10, 110, LedgerState.CLOSED)


def test_cpu_time_is_that_of_all_processes_below_and_of_those_that_ended() -> None:
    before = CpuTimes(0.0, 0, {1: ProcessTimes(0, 5), 7: ProcessTimes(1, 100, 10), 8: ProcessTimes(7, 50)})
    after = CpuTimes(9.0, 0, {1: ProcessTimes(0, 99), 7: ProcessTimes(1, 120, 90), 9: ProcessTimes(7, 30)})
    assert tree_cpu_s(before, after, 7) == (120 + 90 + 30 - 160) / TICKS_PER_S
    nobody_waited = CpuTimes(9.0, 0, {7: ProcessTimes(1, 120, 10), 9: ProcessTimes(7, 3)})
    assert tree_cpu_s(before, nobody_waited, 7) == (20 + 3) / TICKS_PER_S
