"""What the benchmark against Apache says, and what it refuses, before anything is measured."""

from pathlib import Path

import pytest

from tests.benchmarks.apache import main as program
from tests.benchmarks.apache.main import main
from tests.benchmarks.apache.plan import Plan, chosen_cells
from tests.benchmarks.apache.session import plan_text


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs are looked for and put here."""
    path = tmp_path / "a" / "b" / "cache"
    monkeypatch.setattr(program, "CACHE", path)
    return path


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    assert stop.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "name", ["../../x", "..", ".", ".hidden", "a/b", "/tmp/x", "a b", "x\n", "ä", "a\0", "x" * 101, "$(x)"]
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_an_id_names_nothing_outside_the_directory_of_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, name: str
) -> None:
    told = refusal(capsys, command, "--id", name)
    assert f"argument --id: {name!r} is no id of a run: use letters, digits, '-', '_' and '.'" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["20260101-120000", "quick_1.5", "x" * 100, "_"])
def test_other_ids_are_welcome(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["plan", "--id", name]) == 0
    assert "rounds to do" in capsys.readouterr().out


def test_a_report_is_of_an_id_or_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "'../x' is no id of a run" in refusal(capsys, "report", "../x")
    assert main(["report", str(tmp_path / "missing.jsonl")]) == 1
    assert "there is no " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--reps", "abc", "'abc' is not a whole number above 0"),
        ("--reps", "1.5", "'1.5' is not a whole number above 0"),
        ("--reps", "0", "'0' is not a whole number above 0"),
        ("--seconds", "abc", "'abc' is not a number above 0"),
        ("--seconds", "nan", "'nan' is not a number above 0"),
        ("--seconds", "inf", "'inf' is not a number above 0"),
        ("--minutes", "-1", "'-1' is not a number above 0"),
    ],
)
def test_numbers_are_refused_by_name(capsys: pytest.CaptureFixture[str], option: str, value: str, told: str) -> None:
    assert refusal(capsys, "plan", f"{option}={value}").endswith(f"error: argument {option}: {told}")


def text_of(cells: str, repetitions: int, expected_s: float) -> str:
    plan = Plan(chosen_cells(cells), repetitions, 1.0)
    return plan_text(plan, list(plan.all_rounds()), expected_s, 14_000_000_000).splitlines()[0]


def test_one_of_a_thing_is_told_in_the_singular() -> None:
    assert text_of("write:10240x1000:v2", 1, 61.0) == (
        "1 cell, 1 repetition, 1 round to do with 2 measurements; about 1 minute on a quiet machine, 14 GB of disk"
    )
    assert text_of("read:128:*", 3, 600.0) == (
        "5 cells, 3 repetitions, 15 rounds to do with 30 measurements; "
        "about 10 minutes on a quiet machine, 14 GB of disk"
    )


def test_less_than_half_a_minute_is_not_no_time() -> None:
    assert "about 1 minute on" in text_of("start:client", 1, 12.0)
