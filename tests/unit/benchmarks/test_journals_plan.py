"""The plan of the benchmark against Hadoop's journals, and what it refuses before anything is measured."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks.apache.machine import code_id
from tests.benchmarks.apache.records import Record, Records, rounds_left
from tests.benchmarks.apache.session import plan_text
from tests.benchmarks.journals import main as program
from tests.benchmarks.journals.main import main
from tests.benchmarks.journals.plan import (
    DEFAULT_CELLS,
    OUR_FILES,
    OURS,
    QUORUM,
    RECORD_SIZE,
    SIDES,
    Plan,
    bytes_needed,
    chosen_cells,
    needs_hadoop,
    seconds_of,
    servers_of,
)
from tests.support.hadoop.fetched import Hadoop

WHOLE = Plan(DEFAULT_CELLS, 5, 4.0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs are looked for and put here."""
    path = tmp_path / "cache"
    monkeypatch.setattr(program, "CACHE", path)
    return path


def rounds_of(cells: str, repetitions: int = 1) -> Plan:
    return Plan(chosen_cells(cells), repetitions, 1.0)


def test_every_number_of_callers_is_measured_on_four_journals() -> None:
    sides = {cell.name: [side.name for side in cell.sides] for cell in DEFAULT_CELLS}
    four = ["ours", "our-files", "quorum", "hadoop-files"]
    assert sides == {"sync:1": four, "sync:16": four, "sync:128": four, "replay": ["ours"], "failover": ["ours"]}


def test_records_are_of_the_size_that_the_genuine_driver_writes() -> None:
    driver = Path(__file__).parents[2] / "interop" / "java" / "hadoop" / "JournalBench.java"
    assert f"RECORD_SIZE = {RECORD_SIZE};" in driver.read_text()


def test_cells_are_chosen_by_name() -> None:
    assert [cell.name for cell in chosen_cells("failover,sync:1*")] == ["sync:1", "sync:16", "sync:128", "failover"]
    assert chosen_cells("") == DEFAULT_CELLS


def test_each_side_begins_once_in_four_repetitions() -> None:
    rounds = [each for each in WHOLE.rounds() if each.cell.name == "sync:16"]
    assert {each.sides[0] for each in rounds[:4]} == set(SIDES)
    assert all(set(each.sides) == set(SIDES) for each in rounds)


def test_all_cells_have_a_turn_before_any_is_repeated() -> None:
    names = [each.cell.name for each in WHOLE.rounds()]
    assert names == [cell.name for cell in DEFAULT_CELLS] * 5


@pytest.mark.parametrize(
    ("cells", "servers", "genuine"),
    [("sync:1", ("ours", "quorum"), True), ("replay", ("ours",), False), ("failover", (), False)],
)
def test_only_what_is_measured_is_started(cells: str, servers: tuple[str, ...], genuine: bool) -> None:
    rounds = list(rounds_of(cells).rounds())
    assert servers_of(rounds) == servers
    assert needs_hadoop(rounds) is genuine


def test_genuine_are_the_two_of_hadoop() -> None:
    assert [side.is_genuine for side in SIDES] == [False, False, True, True]
    assert [side.servers for side in (OURS, OUR_FILES, QUORUM)] == ["ours", None, "quorum"]


def test_the_table_takes_less_than_half_an_hour_and_what_is_done_no_time() -> None:
    rounds = list(WHOLE.rounds())
    assert 10 * 60 < seconds_of(WHOLE, rounds) < 30 * 60
    assert seconds_of(WHOLE, rounds[12:]) < seconds_of(WHOLE, rounds)
    assert seconds_of(WHOLE, []) == 0


def test_disk_space_grows_with_what_is_written() -> None:
    rounds = list(WHOLE.rounds())
    assert bytes_needed(WHOLE, []) < bytes_needed(WHOLE, rounds[:5]) < bytes_needed(WHOLE, rounds) < 32 << 30


def test_the_plan_is_told_in_words() -> None:
    plan = rounds_of("sync:16,failover")
    assert plan_text(plan, list(plan.rounds()), 61.0, 14_000_000_000).splitlines() == [
        "2 cells, 1 repetition, 2 rounds to do with 5 measurements; about 1 minute on a quiet machine, 14 GB of disk",
        "  sync:16: ours, our-files, quorum, hadoop-files",
        "  failover: ours",
    ]


# --- the command


def recorded(cache: Path, *lines: Record) -> None:
    records = Records(cache / "earlier.jsonl")
    plan = {"cells": "failover", "repetitions": 2, "seconds": 1.0, "code": code_id(program.PACKAGES)}
    for line in ({"kind": "run", "plan": plan}, *lines):
        records.add(line)


def done(repetition: int) -> Record:
    return {"kind": "measured", "cell": "failover", "side": "ours", "repetition": repetition, "attempt": 0,
            "quiet": True}  # fmt: skip


def test_a_run_is_resumed_as_it_was_planned(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(cache, done(0))
    assert main(["plan", "--id", "earlier"]) == 0
    assert "1 cell, 2 repetitions, 1 round to do with 1 measurement" in capsys.readouterr().out
    assert [each.repetition for each in rounds_left([done(0)], rounds_of("failover", 2).rounds())] == [1]


def test_a_run_is_not_resumed_with_other_seconds(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(cache)
    assert main(["plan", "--id", "earlier", "--seconds", "2"]) == 1
    assert "run earlier measures 1 s, not 2 s" in capsys.readouterr().err


def test_a_run_is_not_resumed_with_other_programs(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(cache)
    monkeypatch.setattr(program, "code_id", lambda packages: f"other {' '.join(packages)}")
    assert main(["plan", "--id", "earlier"]) == 1
    assert "measured another revision" in capsys.readouterr().err


def test_unknown_cells_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--cells", "write:*"]) == 1
    assert "bench-journals: no cell is named 'write:*'; the cells: sync:1, sync:16" in capsys.readouterr().err


def missing_maven() -> Hadoop:
    pytest.skip("Hadoop 2.7.7: no Maven on this machine")


def test_without_maven_one_line_says_so(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find: Callable[[], Hadoop] = missing_maven
    monkeypatch.setattr(program, "find_hadoop", find)
    assert main(["run", "--cells", "sync:1"]) == 0
    assert capsys.readouterr().err == "bench-journals: skipped: Hadoop 2.7.7: no Maven on this machine\n"
    assert not cache.exists()
