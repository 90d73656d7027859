"""Options of commands that make ledgers."""

import argparse
import re
from pathlib import Path

import pytest

from bookkeeper.cli.main import main
from bookkeeper.console.ledger_options import (
    PASSWORD_FILE_SIZE_MAX,
    Quorums,
    add_password_arguments,
    password_of,
    quorums_of,
)
from bookkeeper.console.output import EXIT_USAGE, CommandFailed


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ((3, None, None), Quorums(3, 2, 2)),
        ((5, None, None), Quorums(5, 2, 2)),
        ((2, None, None), Quorums(2, 2, 2)),
        ((1, None, None), Quorums(1, 1, 1)),
        ((3, 1, None), Quorums(3, 1, 1)),
        ((3, 3, None), Quorums(3, 3, 2)),
        ((3, None, 1), Quorums(3, 2, 1)),
        ((3, 3, 3), Quorums(3, 3, 3)),
    ],
)
def test_quorums_that_are_not_given_fit_those_that_are(
    given: tuple[int, int | None, int | None], meant: Quorums
) -> None:
    assert quorums_of(*given) == meant


@pytest.mark.parametrize(
    "given", [(0, None, None), (2, 3, None), (3, None, 3), (3, 2, 0), (-1, None, None), (3, 0, None)]
)
def test_quorums_that_cannot_work_are_a_usage_error(given: tuple[int, int | None, int | None]) -> None:
    with pytest.raises(CommandFailed, match="need ensemble >= write quorum >= ack quorum >= 1") as failed:
        quorums_of(*given)
    assert failed.value.exit_code == EXIT_USAGE


def words_of_password(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_password_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("data", "password"),
    [
        (b"s3cret\n", b"s3cret"),
        (b"s3cret\r\n", b"s3cret"),
        (b" with blanks \n\n", b" with blanks \n"),
        (b"\xff", b"\xff"),
    ],
)
def test_a_password_is_a_files_content_without_its_line_end(tmp_path: Path, data: bytes, password: bytes) -> None:
    path = tmp_path / "password"
    path.write_bytes(data)
    assert password_of(words_of_password("--password-file", str(path))) == password


def test_a_password_that_is_not_given_is_left_to_the_settings() -> None:
    assert password_of(words_of_password()) is None
    assert password_of(words_of_password("--password", "")) == b""


def test_a_file_that_holds_no_password_is_named(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * (PASSWORD_FILE_SIZE_MAX + 1))
    for path, why in ((tmp_path / "absent", "No such file"), (tmp_path, "Is a directory"), (large, "larger than")):
        with pytest.raises(CommandFailed, match=f"--password-file {re.escape(str(path))}: .*{why}"):
            password_of(words_of_password("--password-file", str(path)))


@pytest.mark.parametrize("action", ["create", "write", "read", "tail"])
def test_help_says_what_a_password_is_good_for(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", action, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "keeps others from writing to the ledger and from fencing it. It does not encrypt anything" in text


@pytest.mark.parametrize(
    "words",
    [
        ["ledger", "create", "--write-quorum", "4"],
        ["ledger", "write", "--ack-quorum", "3"],
        ["shell", "simpletest", "-e", "2", "-w", "3"],
        ["shell", "simpletest", "-n", "0"],
        ["shell", "simpletest", "-n", "-5"],
        ["shell", "bookiesanity", "-e", "0", "-b", "b"],
        ["ledger", "list", "--limit", "0"],
        ["ledger", "list", "--limit", "-5"],
        ["ledger", "show", "--", "-4"],
        ["ledger", "read", "7", "--last", "-2"],
        ["ledger", "read", "7", "-c", "-1"],
        ["shell", "readledger", "-l", "7", "-fe", "5", "-le", "2"],
        ["shell", "readledger", "-l", "7", "-fe", "-5"],
        ["shell", "readledger", "-l", "-7"],
    ],
    ids=" ".join,
)
def test_what_can_never_work_is_told_before_anything_is_connected_to(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no cluster; a command that looked for one would fail otherwise."""
    assert main(words) == EXIT_USAGE
    assert "Traceback" not in capsys.readouterr().err
