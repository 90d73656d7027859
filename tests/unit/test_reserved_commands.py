"""The command of a part that this release does not have must not look like success."""

import pytest

import hedwig.cli


def test_a_reserved_command_says_so_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert hedwig.cli.main() == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("hedwig: ")
    assert "not part of this release" in output.err
