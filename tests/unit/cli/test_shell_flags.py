"""Options of `bookkeeper shell` in Apache's spelling. With the genuine shell: tests/interop/test_shell_flags.py."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bookkeeper.cli.main import main
from bookkeeper.cli.shell.command import COMMANDS, REFUSED_COMMANDS, REFUSED_OPTIONS, add_arguments, fill
from bookkeeper.console.output import EXIT_OK, EXIT_USAGE
from bookkeeper.console.subcommands import LazyParser, take_single_dashes


def shell(*words: str) -> argparse.Namespace:
    parser = LazyParser(prog="bookkeeper shell")
    add_arguments(parser)
    parsed: argparse.Namespace = parser.parse_args(words)
    return parsed


@pytest.mark.parametrize(("flag", "name"), [("journal", "txn"), ("entrylog", "log"), ("index", "idx")])
def test_long_flags_are_taken_with_one_dash(flag: str, name: str) -> None:
    for dashes in ("-", "--"):
        assert getattr(shell("listfilesondisc", dashes + flag), name)
    assert getattr(shell("listfilesondisc", f"-{name}"), name)


def test_options_before_the_command_are_taken_with_one_dash() -> None:
    args = shell("-conf", "bk.conf", "-uri", "zk://zk1/ledgers", "listledgers")
    assert (args.conf, args.uri, args.action) == (Path("bk.conf"), "zk://zk1/ledgers", "listledgers")


def test_a_short_option_is_not_taken_for_a_long_one() -> None:
    """--m would be -m, which is a different option."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", dest="short")
    parser.add_argument("--m", dest="long")
    take_single_dashes(parser)
    assert vars(parser.parse_args(["-m", "1", "--m", "2"])) == {"short": "1", "long": "2"}


@pytest.mark.parametrize("name", REFUSED_COMMANDS)
def test_a_command_of_apache_that_is_not_here_is_refused_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for options in ([], ["-f", "--instanceid", "x"], ["-verbose"]):
        assert main(["shell", name, *options]) == EXIT_USAGE
        assert capsys.readouterr() == ("", f"bookkeeper: bookkeeper shell has no {name}: {REFUSED_COMMANDS[name]}\n")


@pytest.mark.parametrize("option", REFUSED_OPTIONS)
def test_an_option_of_apache_that_means_nothing_here_is_refused_by_name(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["shell", option, "hex", "listledgers"]) == EXIT_USAGE
    assert capsys.readouterr() == ("", f"bookkeeper: {option}: {REFUSED_OPTIONS[option][1]}\n")


def test_help_shows_what_can_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shell", "--help"]) == EXIT_OK
    text = capsys.readouterr().out
    assert "listfilesondisc" in text
    assert not [name for name in [*REFUSED_COMMANDS, *REFUSED_OPTIONS] if f"  {name} " in text]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_of_a_command_is_ambiguous_before_the_command(name: str) -> None:
    """argparse searches all words for options of the shell, also the words of a command."""
    outer, command = LazyParser(prog="bookkeeper shell"), LazyParser(prog=name, conflict_handler="resolve")
    add_arguments(outer)
    fill(name, command)
    own = outer._option_string_actions  # noqa: SLF001 - argparse keeps no public list of them
    for option in command._option_string_actions:  # noqa: SLF001
        assert option in own or len(outer._get_option_tuples(option)) < 2, option  # noqa: SLF001


def test_the_short_option_of_a_ledger_is_that_of_the_command() -> None:
    assert shell("ledgermetadata", "-l", "7").ledger_id == 7
