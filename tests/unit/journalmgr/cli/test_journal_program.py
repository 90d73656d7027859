"""The command tree of `journalmgr`: help for everything, names for a new namespace, what is loaded when."""

import argparse
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bookkeeper.console.output import EXIT_OK, EXIT_USAGE
from journalmgr.cli import namenode
from journalmgr.cli.main import COMMANDS, main
from journalmgr.config import JournalSettings
from journalmgr.namespace_ids import new_namespace

OWN = ("format", "segments", "dump", "tail", "verify", "recover", "purge", "copy", "config")


@pytest.mark.parametrize("words", [[], *([name] for name in OWN)], ids=" ".join)
def test_help_has_examples_and_the_default_of_every_option(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--help"]) == EXIT_OK
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {' '.join(['journalmgr', *words])} ")
    assert re.search(rf"examples:\n  .*{' '.join(['journalmgr', *words])}", text)
    body = text[re.search(r"(?m)^(positional arguments|options):", text).start() :]  # type: ignore[union-attr]
    for option in re.findall(r"(?m)^  -[^\n]*(?:\n {4,}[^\n]*)*", body):
        if re.match(r"  (-[\w-]+,? )*-[\w-]+ ([A-Z{]|K)", option):
            assert re.search(r"default|repeatable|required", option), option
    if words:
        assert "--json" in text


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_uris_in_examples_survive_a_shell_and_no_rule_is_cited(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([name, "--help"], ["--help"]):
        assert main(words) == EXIT_OK
        text = capsys.readouterr().out
        assert re.findall(r"I-\d+", text) == []
        assert re.findall(r"(?<!')bookkeeper://[^\s']*;\S*", text) == []
        for line in re.findall(r"(?m)^  journalmgr .*$", text.replace("\\\n", "")):
            shlex.split(line)  # every quote has its other one


def test_servers_on_any_free_port_are_called_by_names_of_their_own() -> None:
    parser = argparse.ArgumentParser()
    namenode.add_arguments(parser)

    def named(*words: str) -> str:
        args = parser.parse_args(["file:///j", *words])
        return namenode.namenode_settings(args, JournalSettings()).server_id

    assert named("--http", "127.0.0.1:0").endswith(f"-{os.getpid()}")
    assert named("--http", "127.0.0.1:9871").endswith(":9871")
    assert named("--http", "127.0.0.1:0", "--id", "one") == "one"


@pytest.mark.parametrize(
    "words",
    [
        ["namenode", "bookkeeper://zk1;2001:2181/j"],
        ["namenode", "file:///j", "--http", "2001:9870"],
        ["dump", "bookkeeper://2001/j"],
    ],
)
def test_a_host_that_is_a_number_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == EXIT_USAGE
    assert "'2001' is a number, which would be read as the address 0.0.7.209" in capsys.readouterr().err


def test_every_command_is_listed_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == EXIT_OK
    listed = dict(re.findall(r"(?m)^    (\w+) +(\S.*)$", capsys.readouterr().out))
    assert {name: summary for name, (_, summary) in COMMANDS.items()}.items() <= listed.items()
    assert set(OWN) <= COMMANDS.keys()


def test_wrong_usage_ends_with_2_and_the_usage_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", "--fromm", "1"]) == EXIT_USAGE
    err = capsys.readouterr().err
    assert err.startswith("usage: journalmgr dump ")
    assert "--fromm; did you mean --from?" in err


def test_help_loads_neither_reactor_nor_commands() -> None:
    program = (
        "import sys; from journalmgr.cli.main import main; main(['--help']); "
        "sys.exit(any(name.startswith(('twisted', 'google', 'journalmgr.cli.dump')) for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_file_of_edits_is_not_sent_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["dump", "edits", "--format", "edits"]) == EXIT_USAGE
    assert "no text for a terminal" in capsys.readouterr().err


# --- names of a namespace


def test_names_that_are_not_given_are_made_up_as_hadoop_does() -> None:
    made = new_namespace(random.Random(1), address="10.0.0.7", now_ms=1421135800377)
    assert re.fullmatch(r"CID-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", made.cluster_id)
    assert re.fullmatch(r"BP-\d{1,10}-10\.0\.0\.7-1421135800377", made.block_pool_id)
    assert 0 < made.namespace_id < 2**31
    assert not made.is_same(new_namespace(random.Random(2), address="10.0.0.7", now_ms=1421135800377))


def test_names_that_are_given_stand() -> None:
    made = new_namespace(
        random.Random(1), address="h", now_ms=1, cluster_id="CID-1", namespace_id=42, block_pool_id="BP-1"
    )
    assert (made.cluster_id, made.namespace_id, made.block_pool_id) == ("CID-1", 42, "BP-1")


def test_a_name_node_that_does_not_start_names_the_file_and_the_journal(tmp_path: Path) -> None:
    directory = tmp_path / "edits"
    version = directory / "current" / "VERSION"
    version.mkdir(parents=True)
    command = [sys.executable, "-m", "journalmgr.cli.main", "namenode", directory.as_uri(), "--http", "127.0.0.1:0"]
    done = subprocess.run([*command, "--images", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == namenode.EXIT_SERVER_ERROR, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "The name node did not start" in line]
    assert f"Is a directory: '{version}'" in line
    assert line.endswith(f"--images={tmp_path}; journal={directory}")


def test_a_name_node_that_ends_by_damage_names_the_file_and_the_journal(tmp_path: Path) -> None:
    directory = tmp_path / "edits"
    assert main(["format", directory.as_uri(), "--force"]) == EXIT_OK
    segment = directory / "current" / "edits_0000000000000000001-0000000000000000002"
    segment.write_bytes(b"no edits at all")
    command = [sys.executable, "-m", "journalmgr.cli.main", "namenode", directory.as_uri(), "--http", "127.0.0.1:0"]
    done = subprocess.run([*command, "--images", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == namenode.EXIT_JOURNAL, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if " FATAL " in line]
    assert f"The name node on {directory.as_uri()} ends: {segment}: " in line
