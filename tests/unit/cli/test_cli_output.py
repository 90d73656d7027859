"""Tables, JSON, questions and progress: one behaviour for all commands."""

import io
import json
import sys

import pytest

from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_USAGE,
    PROGRESS_INTERVAL_S,
    CommandFailed,
    Progress,
    confirm,
    counted,
    entries,
    note,
    print_json,
    print_json_line,
    print_table,
    readable_size,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def table(header: list[str], rows: list[list[object]]) -> list[str]:
    out = io.StringIO()
    print_table(header, rows, out)
    return out.getvalue().splitlines()


def test_numbers_stand_to_the_right_and_text_to_the_left() -> None:
    assert table(["name", "bytes"], [["a", 5], ["longer", 1234]]) == [
        "name    bytes",
        "a           5",
        "longer   1234",
    ]


def test_unknown_values_do_not_turn_a_column_of_numbers_into_text() -> None:
    assert table(["n"], [["-"], ["1,000"], [""], ["3.5"]]) == ["    n", "    -", "1,000", "", "  3.5"]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (999, "999B"),
        (1000, "1KB"),
        (1999, "1.999KB"),
        (1_234_567, "1.234MB"),
        (999_999_999, "999.999MB"),
        (10_500_000_000, "10.5GB"),
        (2 * 10**12, "2TB"),
        (1_234_567 * 10**12, "1234567TB"),
    ],
)
def test_sizes_are_rounded_down_to_three_decimals(size: int, text: str) -> None:
    assert readable_size(size) == text


def test_a_table_without_rows_is_its_header() -> None:
    assert table(["bookie", "state"], []) == ["bookie  state"]


def test_json_has_bytes_as_text_and_tuples_as_lists(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"key": b"\xff", "list": (1, 2), "set": frozenset([3])})
    assert json.loads(capsys.readouterr().out) == {"key": "\xff", "list": [1, 2], "set": [3]}


@pytest.mark.parametrize(
    ("number", "entries_text", "files"),
    [
        (0, "0 entries", "0 files"),
        (1, "1 entry", "1 file"),
        (2, "2 entries", "2 files"),
        (1000, "1,000 entries", "1,000 files"),
    ],
)
def test_one_of_a_thing_is_not_several(number: int, entries_text: str, files: str) -> None:
    assert (entries(number), counted(number, "file")) == (entries_text, files)


def test_a_json_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json_line({"a": {"b": ["x\ny", "ö"]}})
    assert capsys.readouterr().out == '{"a":{"b":["x\\ny","ö"]}}\n'


def test_notes_do_not_go_where_data_goes(capsys: pytest.CaptureFixture[str]) -> None:
    note("for the operator")
    assert capsys.readouterr() == ("", "for the operator\n")


def ask(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    confirm("Delete?", force=False)


@pytest.mark.parametrize("answer", ["y\n", "Yes\n", " YES \n"])
def test_yes_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str) -> None:
    """It asked, and took one line as its answer; what is typed after it belongs to the next question."""
    monkeypatch.setattr(sys, "stdin", Terminal(answer + "no\n"))
    confirm("Delete?", force=False)
    assert capsys.readouterr() == ("", "Delete? (y/N) ")
    assert sys.stdin.readline() == "no\n"


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "yesterday\n"])
def test_anything_else_stops(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    with pytest.raises(CommandFailed, match="Nothing was done") as failed:
        ask(monkeypatch, answer)
    assert failed.value.exit_code == EXIT_FAILURE


def test_where_nobody_can_be_asked_force_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(CommandFailed, match="--force") as failed:
        confirm("Delete?", force=False)
    assert failed.value.exit_code == EXIT_USAGE
    confirm("Delete?", force=True)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_progress_is_shown_at_most_twice_a_second_and_cleared_at_the_end() -> None:
    out, clock = Terminal(), Clock()
    progress = Progress("entries", 2000, clock=clock, out=out)
    progress.update(10)
    assert out.getvalue() == ""
    clock.now += PROGRESS_INTERVAL_S
    progress.update(1000)
    shown = out.getvalue()
    assert shown == "\rentries: 1,000/2,000, 2,000/s\x1b[K"
    progress.update(1500)
    assert out.getvalue() == shown
    progress.close()
    assert out.getvalue() == shown + "\r\x1b[K"


@pytest.mark.parametrize("quiet", ["pipe", "NO_PROGRESS"])
def test_progress_is_silent_in_a_pipe_and_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch, quiet: str) -> None:
    out, clock = Terminal() if quiet == "NO_PROGRESS" else io.StringIO(), Clock()
    if quiet == "NO_PROGRESS":
        monkeypatch.setenv("NO_PROGRESS", "1")
    progress = Progress("entries", clock=clock, out=out)
    clock.now += 10
    progress.update(5)
    progress.close()
    assert out.getvalue() == ""


def test_progress_says_what_is_left_and_what_it_waits_for() -> None:
    out, clock = Terminal(), Clock()
    clock.now = 0
    progress = Progress("ledgers", 1000, clock=clock, out=out)
    for now, done, waits_for, shown in (
        (10, 100, "", "ledgers: 100/1,000, 10/s, 1 min 30 s left"),
        (20, 200, "the auditor", "ledgers: 200/1,000, 10/s, 1 min 20 s left; waits for the auditor"),
        (10_000, 400, "", "ledgers: 400/1,000, 0.04/s, 4 h 10 min left"),
        (10_001, 999, "", "ledgers: 999/1,000, 0.1/s, 10 s left"),
        (10_002, 1000, "", "ledgers: 1,000/1,000, 0.1/s"),
        (10_003, 0, "", "ledgers: 0/1,000, 0/s"),
    ):
        clock.now = now
        progress.update(done, waits_for)
        assert out.getvalue().rpartition("\r")[2] == f"{shown}\x1b[K"
    clock.now = 10_004
    progress.update(10, "workers", total=20, besides="70 entries")
    assert out.getvalue().rpartition("\r")[2] == (
        "ledgers: 10/20, 0.001/s, 2 h 46 min left; 70 entries; waits for workers\x1b[K"
    )
    clock.now = 20_000
    progress.finish(1000)
    assert out.getvalue().endswith("\r\x1b[Kledgers: 1,000 in 20,000.0 s, 0.05/s\n")


def test_progress_has_lines_in_a_pipe_where_a_command_takes_hours() -> None:
    out, clock = io.StringIO(), Clock()
    clock.now = 0
    progress = Progress("ledgers", lines_every_s=10, clock=clock, out=out)
    for second in range(25):
        clock.now = second
        progress.update(second)
    progress.close()
    assert out.getvalue() == "ledgers: 10, 1/s\nledgers: 20, 1/s\n"


def test_settings_are_key_and_value() -> None:
    assert parse_settings(["a=1", " b = x=y ", "c="]) == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("word", ["novalue", "=1", ""])
def test_a_word_that_is_no_setting_is_named(word: str) -> None:
    with pytest.raises(CommandFailed, match=f"setting {word!r}: write it as KEY=VALUE") as failed:
        parse_settings([word])
    assert failed.value.exit_code == EXIT_USAGE
