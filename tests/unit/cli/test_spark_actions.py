"""`bookkeeper spark`: which actions there are, and where they come from."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from bookkeeper.cli.spark import command
from bookkeeper.console.output import EXIT_USAGE, CommandFailed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser


def _plugin(module: str, **found: object) -> EntryPoint:
    sys.modules[module] = type(sys)(module)
    vars(sys.modules[module]).update(found)
    return EntryPoint("census", module, command.PLUGINS)


def test_an_action_of_another_package_has_its_options_and_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--depth", type=int)

    entry = _plugin(
        "census_words",
        __doc__="`x spark census`: counts them.",
        add_arguments=add_arguments,
        run=lambda args: args.depth,
    )
    monkeypatch.setattr(command, "entry_points", lambda group: [entry] if group == command.PLUGINS else [])
    try:
        assert "counts them" in _parser().format_help()
        assert command.run(_parser().parse_args(["census", "--depth", "3"])) == 3
    finally:
        del sys.modules["census_words"]


def test_an_action_of_another_package_takes_no_name_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("audit", "no_such_module", command.PLUGINS)
    monkeypatch.setattr(command, "entry_points", lambda group: [entry])
    assert "every copy of every entry, verified" in _parser().format_help()


def test_every_action_tells_its_options_where_spark_is_not_installed() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None\n"
        "from bookkeeper.console.subcommands import LazyParser\n"
        "from bookkeeper.cli.spark import command\n"
        "for name in command._all_actions():\n"
        "    parser = LazyParser()\n"
        "    command.add_arguments(parser)\n"
        "    try:\n"
        "        parser.parse_args([name, '--help'])\n"
        "    except SystemExit as stop:\n"
        "        assert not stop.code, name\n"
        "    print(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(command.ACTIONS) <= set(done.stdout.split("\n"))


@pytest.mark.parametrize("asked", [[], ["--lose", "b:1", "--ensemble", "3"]])
def test_a_whatif_that_asks_nothing_or_two_things_is_misuse(asked: list[str]) -> None:
    args = _parser().parse_args(["whatif", "--uri", "zk://127.0.0.1:1/ledgers", *asked])
    with pytest.raises(CommandFailed) as caught:
        command.run(args)
    assert caught.value.exit_code == EXIT_USAGE
