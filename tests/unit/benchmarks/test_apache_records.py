"""The JSON lines of the benchmark against Apache: what was measured, what is left, what is reported."""

import json
from pathlib import Path

import pytest

from tests.benchmarks.apache.plan import Plan, Round, chosen_cells
from tests.benchmarks.apache.records import ATTEMPTS_MAX, Record, Records, best_attempt, load, next_attempt

[ROUND] = Plan(chosen_cells("write:10240x1000:v2"), 1, 1.0).all_rounds()
SIDES = [side.name for side in ROUND.sides]


def line(side: str, attempt: int = 0, *, quiet: bool = True, kind: str = "measured", **more: object) -> Record:
    return {
        "kind": kind,
        "cell": ROUND.cell.name,
        "side": side,
        "repetition": 0,
        "attempt": attempt,
        "quiet": quiet,
        **more,
    }


def whole(attempt: int, *, quiet: bool = True) -> list[Record]:
    return [line(side, attempt, quiet=quiet) for side in SIDES]


def test_a_round_that_was_never_tried_is_tried_first() -> None:
    assert next_attempt([], ROUND) == 0
    assert next_attempt(whole(0), Round(ROUND.cell, 1, ROUND.sides)) == 0


def test_a_quiet_round_is_done() -> None:
    assert next_attempt(whole(0), ROUND) is None


def test_an_interrupted_attempt_is_repeated_and_costs_none() -> None:
    records = [each for attempt in range(ATTEMPTS_MAX + 2) for each in whole(attempt)[:1]]
    assert next_attempt(records, ROUND) == ATTEMPTS_MAX + 2


def test_one_disturbed_side_makes_the_whole_round_disturbed() -> None:
    assert next_attempt([line("ours"), line("apache", quiet=False)], ROUND) == 1


@pytest.mark.parametrize("kind", ["measured", "failed"])
def test_attempts_are_bounded(kind: str) -> None:
    records = [line(side, attempt, quiet=False, kind=kind) for attempt in range(ATTEMPTS_MAX) for side in SIDES]
    assert next_attempt(records[: -len(SIDES)], ROUND) == ATTEMPTS_MAX - 1
    assert next_attempt(records, ROUND) is None


def test_the_quiet_attempt_is_reported_and_not_the_last() -> None:
    records = whole(0, quiet=False) + whole(1) + whole(2, quiet=False)
    assert {each["attempt"] for each in best_attempt(records, ROUND.cell.name, 0, SIDES)} == {1}


def test_without_a_quiet_attempt_the_last_whole_one_is_reported() -> None:
    records = whole(0, quiet=False) + whole(1, quiet=False) + whole(2, quiet=False)[:1]
    assert {each["attempt"] for each in best_attempt(records, ROUND.cell.name, 0, SIDES)} == {1}
    assert best_attempt(whole(0)[:1], ROUND.cell.name, 0, SIDES) == []


def test_lines_come_back_and_a_torn_one_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "one.jsonl"
    Records(path).add(line("ours"))
    with path.open("a") as file:
        file.write('{"kind": "meas')
    again = Records(path)
    assert again.all == [line("ours")]
    again.add(line("apache"))
    assert load(path) == [line("ours"), line("apache")]
    assert [json.loads(text)["side"] for text in path.read_text().splitlines()] == ["ours", "apache"]


def test_no_file_is_no_records(tmp_path: Path) -> None:
    assert load(tmp_path / "none.jsonl") == []
