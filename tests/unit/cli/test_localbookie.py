"""`bookkeeper localbookie`: what is refused before anything is started."""

from __future__ import annotations

import pytest

from bookkeeper.cli.main import main
from bookkeeper.cli.output import EXIT_USAGE


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["localbookie", *words]) == EXIT_USAGE
    return capsys.readouterr().err


def test_a_zookeeper_host_that_is_a_number_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--zookeeper 2001:2181: '2001' is a number" in refusal(capsys, "1", "--zookeeper", "2001:2181")
