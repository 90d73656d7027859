"""The client that commands open."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from hedwig.cli.client import add_client_arguments, connected


def test_commands_tell_on_standard_error_what_they_wait_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[Callable[[str], object]] = []

    def connect(hubs: None, settings: Any, *, on_waiting: Callable[[str], object]) -> str:
        assert [each.port for each in settings.servers] == [4099]
        given.append(on_waiting)
        return "client"

    monkeypatch.setattr("hedwig.client.faces.blocking.connect", connect)
    parser = argparse.ArgumentParser()
    add_client_arguments(parser)
    client: object = connected(parser.parse_args(["--hub", "localhost:4099"]))
    assert client == "client"
    [tell] = given
    tell("waiting for hub localhost:4099: connected, no answer yet")
    said = capsys.readouterr()
    assert said.err == "hedwig: waiting for hub localhost:4099: connected, no answer yet\n"
    assert said.out == ""
