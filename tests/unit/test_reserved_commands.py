"""The commands of parts that this release does not have must not look like success."""

from collections.abc import Callable

import pytest

import hedwig.cli
import journalmgr.cli


@pytest.mark.parametrize(("command", "name"), [(journalmgr.cli.main, "journalmgr"), (hedwig.cli.main, "hedwig")])
def test_a_reserved_command_says_so_and_fails(
    command: Callable[[], int], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command() == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"{name}: ")
    assert "not part of this release" in output.err
