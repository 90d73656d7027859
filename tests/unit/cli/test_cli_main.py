"""The command tree: exit codes, errors in one line, commands of other packages, help for everything."""

import argparse
import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Protocol

import pytest

from bookkeeper.bookie.process.exit_codes import ExitCode
from bookkeeper.cli.ledger.command import ACTIONS
from bookkeeper.cli.main import COMMANDS, main
from bookkeeper.cli.shell.command import COMMANDS as SHELL_COMMANDS
from bookkeeper.console.output import (
    EXIT_BROKEN_PIPE,
    EXIT_FAILURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
)
from bookkeeper.console.subcommands import LazyParser, add_verbose
from bookkeeper.errors import NoSuchLedger

ROOT = Path(__file__).resolve().parents[3]

ALL = [
    [],
    *([name] for name in COMMANDS),
    *(["ledger", name] for name in ACTIONS),
    *(["shell", name] for name in SHELL_COMMANDS),
    *(["perf", name] for name in ("write", "read", "bench")),
]


class Install(Protocol):
    """See `command`."""

    def __call__(self, outcome: BaseException | int, value_option: str = ...) -> list[argparse.Namespace]: ...


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install the command `other`, as another package would; it ends as told. Returns the arguments it got.

    value_option: an option of its own that takes a value.
    """

    def install(outcome: BaseException | int, value_option: str = "--value") -> list[argparse.Namespace]:
        calls: list[argparse.Namespace] = []
        module = types.ModuleType("other_package_command", "What it does.")

        def add_arguments(parser: argparse.ArgumentParser) -> None:
            parser.add_argument("--count", type=int, default=1)
            parser.add_argument(value_option)
            if value_option != "-v":
                add_verbose(parser)

        def run(args: argparse.Namespace) -> int:
            calls.append(args)
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        module.__dict__.update(add_arguments=add_arguments, run=run)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        entry_point = importlib.metadata.EntryPoint("other", module.__name__, "bookkeeper.commands")

        def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
            return [entry_point] if group == "bookkeeper.commands" else []

        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
        return calls

    return install


@pytest.mark.parametrize("arguments", [["nonsense"], [], ["ledger"], ["ledger", "read"], ["ledger", "read", "seven"]])
def test_wrong_usage_ends_with_2_and_says_how(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == EXIT_USAGE
    output = capsys.readouterr()
    assert output.out == ""
    assert "usage: bookkeeper" in output.err


@pytest.mark.parametrize(
    ("words", "usage", "says"),
    [
        (["ledger", "write", "--ensembel", "1"], "ledger write", "--ensembel 1; did you mean --ensemble?"),
        (["ledger", "create", "--write-qorum=1"], "ledger create", "--write-qorum=1; did you mean --write-quorum?"),
        (["shell", "simpletest", "--numEntrys", "5"], "shell simpletest", "did you mean --numEntries?"),
        (["shell", "listbookies", "--conf", "x"], "shell listbookies", "; --conf stands before the command: "),
        (["bookie", "--config", "x"], "bookie", "did you mean --conf?"),
        (["shell", "recover", "-bookie", "b"], "shell recover", "unrecognized arguments: -bookie"),
        (["shell", "recover", "b", "--deletCookie"], "shell recover", "did you mean --deleteCookie?"),
        (["ledgr"], "", "invalid choice: 'ledgr'; did you mean ledger?\n"),
        (["shell", "lisbookies"], "shell", "invalid choice: 'lisbookies'; did you mean listbookies?\n"),
        (["shell", "nonsense"], "shell", "invalid choice: 'nonsense' (choose from 'metaformat', "),
        (["--zzzzzz"], "", "required: COMMAND"),
        (["config", "show", "--qqqqqq"], "config", "unrecognized arguments: --qqqqqq\n"),
        (["config", "show", "more"], "config", "unrecognized arguments: more\n"),
    ],
)
def test_an_unknown_option_shows_its_commands_usage_and_the_nearest_option(
    words: list[str], usage: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == EXIT_USAGE
    err = capsys.readouterr().err
    assert err.startswith(f"usage: bookkeeper {usage}".rstrip() + " [")
    assert says in err


def test_an_option_that_destroys_is_no_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shell", "recover", "-bookie", "b1:3181"]) == EXIT_USAGE
    assert "did you mean" not in capsys.readouterr().err
    assert main(["why", "disk"]) == EXIT_USAGE
    assert "which bookie? Give its conf file: bookkeeper why disk --conf FILE" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-o", "-D"])
@pytest.mark.parametrize(
    "words",
    [
        ["bookie"],
        ["config", "check"],
        ["shell", "{}", "simpletest"],
        *(["ledger", action, "{}", "7"] for action in ("show", "delete")),
        *(["ledger", action] for action in ("create", "write", "list")),
    ],
    ids=" ".join,
)
def test_a_setting_follows_either_letter_where_o_means_nothing_else(
    words: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that does not exist shows that the setting arrived, before anything is connected to."""
    setting = [option, "bokiePort=1", option, "bookieId=x"]
    at = words.index("{}") if "{}" in words else len(words)
    assert main([*words[:at], *setting, *words[at + 1 :]]) == EXIT_FAILURE
    assert "unknown key 'bokiePort'; did you mean bookiePort?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "as_json"),
    [
        (["ledger", "show", "7"], False),
        (["ledger", "--json", "show", "7"], True),
        (["ledger", "show", "7", "--json"], True),
        (["ledger", "-J", "read", "7"], True),
        (["ledger", "read", "-J", "7"], True),
        (["shell", "listbookies"], False),
        (["shell", "--json", "listbookies"], True),
        (["shell", "listbookies", "--json"], True),
    ],
)
def test_json_is_asked_for_before_or_after_the_action(
    words: list[str], as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(f"bookkeeper.cli.{words[0]}.command.run", seen.append)
    assert main(words) == EXIT_OK
    assert seen[0].json is as_json


def test_a_message_does_not_name_a_function_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    def _positive(text: str) -> int:
        return int(text)

    parser = LazyParser(prog="some")
    parser.add_argument("count", type=_positive)
    with pytest.raises(SystemExit):
        parser.parse_args(["x"])
    assert capsys.readouterr().err.endswith("error: argument count: invalid value: 'x'\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["localbookie", "x"], "argument N: 'x' is not a whole number from 1 on"),
        (["localbookie", "0"], "argument N: 0 is not a whole number from 1 on"),
        (["perf", "write", "-entrysize", "x"], "argument -entrysize: 'x' is not a whole number from 0 on"),
        (["perf", "bench", "--sizes", "128,x"], "argument --sizes: 'x' is not a whole number from 1 on"),
        (["perf", "bench", "--versions", "2,x"], "argument --versions: 'x' is not a whole number from 1 on"),
        (["shell", "simpletest", "-e", "x"], "argument -e/-ensemble/--ensemble: not a whole number: 'x'"),
        (["shell", "bookiesanity", "-t", "x"], "argument -t/-timeout/--timeout: not a number: 'x'"),
    ],
)
def test_a_value_that_is_no_number_is_told_with_what_is_wanted(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == EXIT_USAGE
    assert capsys.readouterr().err.endswith(f"error: {says}\n")


def test_another_packages_command_is_found_by_its_entry_point(
    command: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = command(3)
    assert main(["other", "--count", "5"]) == 3
    assert calls[0].count == 5
    assert main(["--help"]) == EXIT_OK
    assert "from other_package_command" in capsys.readouterr().out


def test_a_command_that_failed_says_why_in_one_line(command: Install, capsys: pytest.CaptureFixture[str]) -> None:
    command(CommandFailed("the disk is full; free some space", 5))
    assert main(["other"]) == 5
    assert capsys.readouterr() == ("", "bookkeeper: the disk is full; free some space\n")


def test_what_a_command_failed_by_is_shown_with_v_alone(command: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """As an error of Spark, whose stack of the JVM is in it."""
    failed = CommandFailed("the query failed: no such ledger")
    failed.__cause__ = RuntimeError("no such ledger\n\tat org.apache.spark.Anything")
    command(failed)
    assert main(["other"]) == EXIT_FAILURE
    assert capsys.readouterr().err == "bookkeeper: the query failed: no such ledger\n"
    assert main(["other", "-v"]) == EXIT_FAILURE
    verbose = capsys.readouterr().err
    assert "\tat org.apache.spark.Anything" in verbose
    assert verbose.endswith("bookkeeper: the query failed: no such ledger\n")


def test_a_v_that_is_the_commands_own_shows_no_traceback(command: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """As the value in `journalmgr fs setfattr -n user.a -v x`."""
    failed = CommandFailed("/none does not exist")
    failed.__cause__ = RuntimeError("said by the server")
    calls = command(failed, value_option="-v")
    assert main(["other", "-v", "x"]) == EXIT_FAILURE
    assert calls[0].v == "x"
    assert capsys.readouterr().err == "bookkeeper: /none does not exist\n"
    assert main(["-v", "other", "-v", "x"]) == EXIT_FAILURE
    assert "said by the server" in capsys.readouterr().err


def test_ctrl_c_ends_with_130_and_no_traceback(command: Install, capsys: pytest.CaptureFixture[str]) -> None:
    command(KeyboardInterrupt())
    assert main(["other"]) == EXIT_INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_went_away_ends_as_sigpipe_would() -> None:
    """In a process of its own: its standard output is what is given up."""
    program = "import sys; from bookkeeper.cli.main import main; sys.exit(main(['config', 'show']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (EXIT_BROKEN_PIPE, b"")


def test_the_help_of_a_bookie_has_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bookie", "--help"]) == EXIT_OK
    listed = re.findall(r"(?m)^  (\d+)  +\w", capsys.readouterr().out)
    assert [int(code) for code in listed] == [*ExitCode, EXIT_INTERRUPTED]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NoSuchLedger("ledger 7 does not exist"), "ledger 7 does not exist"),
        (PermissionError(13, "Permission denied", "/data"), "/data: Permission denied"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (OSError("the port is taken"), "the port is taken"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
    ],
)
def test_an_error_is_one_line_and_a_traceback_only_with_v(
    command: Install, capsys: pytest.CaptureFixture[str], error: Exception, text: str
) -> None:
    """Where it came from is only worth knowing for one that nobody expected."""
    command(error)
    assert main(["other"]) == EXIT_FAILURE
    hint = " (-v shows where)" if isinstance(error, ZeroDivisionError) else ""
    assert capsys.readouterr().err == f"bookkeeper: {text}{hint}\n"
    assert main(["other", "-v"]) == EXIT_FAILURE
    verbose = capsys.readouterr().err
    assert "Traceback (most recent call last)" in verbose
    assert verbose.endswith(f"bookkeeper: {text}\n")


def test_only_the_module_of_the_command_that_was_typed_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("bookkeeper.cli.perf")]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["ledger", "--help"]) == EXIT_OK
    assert not any(name.startswith("bookkeeper.cli.perf") for name in sys.modules)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == EXIT_OK
    assert re.fullmatch(r"pybookkeeper \S+\n", capsys.readouterr().out)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_describes_every_command_and_the_default_of_every_option(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--help"]) == EXIT_OK
    text = capsys.readouterr().out
    assert re.match(rf"usage: {' '.join(['bookkeeper', *words])}\s", text)  # a long name has a line of its own
    for option in options_of(text):
        if takes_a_value(option):
            assert re.search(r"default|repeatable|required", option), option


@pytest.mark.parametrize(
    "words",
    [
        [],
        *([name] for name in COMMANDS if name != "perf"),
        *(["ledger", name] for name in ACTIONS),
        *(["shell", name] for name in SHELL_COMMANDS),
    ],
    ids=" ".join,
)
def test_help_has_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == EXIT_OK
    example = re.compile(rf"examples?:\n  .*{' '.join(['bookkeeper', *words[:1]])} .*{' '.join(words[1:])}")
    assert example.search(capsys.readouterr().out) is not None


def options_of(help_text: str) -> list[str]:
    """The entries of a help text's options, each with its own text."""
    body = help_text[re.search(r"\n\n(?=[^\n]*options:|[a-z ]+:\n)", help_text).end() :]  # type: ignore[union-attr]
    return re.findall(r"(?m)^  -[^\n]*(?:\n {4,}[^\n]*)*", body)


def takes_a_value(option: str) -> bool:
    return re.match(r"  (-[\w-]+,? )*-[\w-]+ ([A-Z{]|K)", option) is not None


def test_an_interrupt_after_the_end_changes_nothing() -> None:
    """What was asked for is done; the interpreter takes a while to go."""
    program = (
        "import os, signal, sys; from bookkeeper.cli.main import main; sys.argv = ['bookkeeper', '--version']; "
        "code = main(); os.kill(os.getpid(), signal.SIGINT); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (EXIT_OK, "")


@pytest.mark.parametrize("action", ["write", "soak", "collect", "rereplicate", "bench"])
@pytest.mark.parametrize(("digest", "most"), [("crc32c", 5_242_760), ("mac", 5_242_744), ("dummy", 5_242_764)])
def test_a_measurement_refuses_an_entry_too_large_for_a_frame(
    capsys: pytest.CaptureFixture[str], action: str, digest: str, most: int
) -> None:
    option = "--sizes" if action == "bench" else "-entrysize"
    assert main(["perf", action, option, str(most + 1), "--digest", digest]) == EXIT_USAGE
    assert f"an entry of {most + 1:,} bytes: at most {most:,} fit into a frame" in capsys.readouterr().err


NO_SECRETS = {"--custom", "--option", "--property"}
"""Options of the form KEY=VALUE that are no settings."""

SEEN = ("SEEN_BY_OTHERS", "list of processes", "the same as -D")


def test_every_option_that_may_hold_a_secret_says_who_sees_it() -> None:
    checked = 0
    for package in ("bookkeeper", "hedwig", "journalmgr"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            for call in ast.walk(ast.parse(text)) if "add_argument" in text else ():
                if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "add_argument":
                    continue
                names = {each.value for arg in call.args for each in ast.walk(arg) if isinstance(each, ast.Constant)}
                source = ast.unparse(call)
                if names & NO_SECRETS or not ("'KEY=VALUE'" in source or names & {"-password", "--password"}):
                    continue
                checked += 1
                assert any(words in source for words in SEEN), f"{path}:{call.lineno}: {source}"
    assert checked > 15
