"""Options of commands that make ledgers."""

import pytest

from bookkeeper.cli.creation import Quorums, quorums_of
from bookkeeper.cli.main import main
from bookkeeper.cli.output import EXIT_USAGE, CommandFailed


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


@pytest.mark.parametrize(
    "words",
    [
        ["ledger", "create", "--write-quorum", "4"],
        ["ledger", "write", "--ack-quorum", "3"],
        ["shell", "simpletest", "-e", "2", "-w", "3"],
        ["shell", "simpletest", "-n", "0"],
        ["shell", "simpletest", "-n", "-5"],
        ["shell", "bookiesanity", "-e", "0", "-b", "b"],
    ],
    ids=" ".join,
)
def test_what_can_never_work_is_told_before_anything_is_connected_to(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no cluster; a command that looked for one would fail otherwise."""
    assert main(words) == EXIT_USAGE
    assert "Traceback" not in capsys.readouterr().err
