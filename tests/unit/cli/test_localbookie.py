"""`bookkeeper localbookie`: options that are refused before anything starts."""

from __future__ import annotations

import pytest

from bookkeeper.cli import localbookie
from bookkeeper.cli.main import main
from bookkeeper.console.output import EXIT_USAGE


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["localbookie", *words]) == EXIT_USAGE
    return capsys.readouterr().err


def test_a_zookeeper_host_that_is_a_number_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--zookeeper 2001:2181: '2001' is a number" in refusal(capsys, "1", "--zookeeper", "2001:2181")


HTTP = ("-o", "httpServerEnabled=true")
PORT = ("-o", "httpServerPort=8299")
HUB = ("--hub-setting", "httpServerEnabled=true", "--hub-setting", "httpServerPort=8299")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("2", *HTTP, *PORT), "-o"),
        (("2", "-o", "httpServerEnabled=YES", *PORT), "-o"),
        (("1", "--hub", "2", *HUB), "--hub-setting"),
        (("1", "--hub", *HTTP, *PORT, *HUB), "--hub-setting"),
    ],
)
def test_several_servers_with_one_http_port_are_refused(
    words: tuple[str, ...], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, *words, "--port", "0", "--zookeeper-port", "0")
    assert f"{option} httpServerPort=8299: several servers cannot have the same port; leave it out" in said


@pytest.mark.parametrize(
    "words",
    [
        ("1", *HTTP, *PORT),
        ("2", *PORT),
        ("2", *HTTP),
        ("2", *HTTP, "-o", "httpServerPort=0"),
        ("2", *HTTP, "--hub", *HUB),
        ("2", "--hub", "3", "--hub-setting", "httpServerEnabled=true"),
    ],
)
def test_http_ports_that_differ_are_not_refused(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []

    class Cluster:
        left_behind = None

        def __init__(self, *given: object, **_: object) -> None:
            started.append(given)

        def __enter__(self) -> Cluster:
            raise KeyboardInterrupt

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(localbookie, "LocalCluster", Cluster)
    main(["localbookie", *words, "--port", "0", "--zookeeper-port", "0", "--hub-port", "0"])
    assert len(started) == 1
