"""Our shell accepts every command and option that the genuine shell lists, or refuses it by name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from bookkeeper.cli.shell import command
from bookkeeper.console.subcommands import LazyParser
from tests.support.apache import Apache

_COMMAND = re.compile(r" {7}(\S+) {2,}\S")
_OPTION = re.compile(r"\s+(?:\* )?(-{1,2}[\w-]+(?:, ?-{1,2}[\w-]+)*)\s*")


def listed(apache: Apache, directory: Path) -> dict[str, set[str]]:
    """Return the options of each command, as the help of the genuine shell lists them."""
    conf = directory / "bk.conf"
    conf.write_text("metadataServiceUri=zk+hierarchical://127.0.0.1:1/ledgers\nallowLoopback=true\n")
    words = apache.command("org.apache.bookkeeper.bookie.BookieShell", "-conf", conf, "help")
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    found: dict[str, set[str]] = {}
    options: set[str] = set()
    for line in (done.stdout + done.stderr).splitlines():
        if (named := _COMMAND.match(line)) is not None:
            options = found[named[1]] = set()
        elif (spelled := _OPTION.fullmatch(line)) is not None:
            options |= set(spelled[1].replace(" ", "").split(","))
    return found


def test_every_command_and_option_of_apache_has_an_answer(apache: Apache, tmp_path: Path) -> None:
    found = listed(apache, tmp_path)
    assert len(found) > 40
    assert sum(map(len, found.values())) > 100
    assert found.keys() - command.COMMANDS.keys() == command.REFUSED_COMMANDS.keys()
    missing = {}
    for name in found.keys() & command.COMMANDS.keys():
        parser = LazyParser(prog=name, conflict_handler="resolve")
        command.fill(name, parser)
        taken = set(parser._option_string_actions)  # noqa: SLF001 - argparse has no public list
        wanted = found[name] | {f"-{option.lstrip('-')}" for option in found[name]}
        if wanted - taken:
            missing[name] = sorted(wanted - taken)
    assert missing == {}


def test_every_option_before_the_command_has_an_answer(apache: Apache, tmp_path: Path) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_text("metadataServiceUri=zk+hierarchical://127.0.0.1:1/ledgers\n")
    words = apache.command("org.apache.bookkeeper.bookie.BookieShell", "-conf", conf, "help")
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    usage = next(line for line in (done.stdout + done.stderr).splitlines() if line.startswith("Usage:"))
    assert set(re.findall(r"\[(-\w+)", usage)) == {"-conf", *command.REFUSED_OPTIONS}
