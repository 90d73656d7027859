"""Settings of the servers of a cluster on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.embedded.cluster import LocalBookie


def bookie(tmp_path: Path, **settings: str) -> LocalBookie:
    return LocalBookie(1, tmp_path, "zk://127.0.0.1:2181/ledgers", 3181, settings)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        *((None, "127.0.0.1:8299"), ("0.0.0.0", "127.0.0.1:8299"), ("10.0.0.1", "10.0.0.1:8299")),
        *(("::", "[::1]:8299"), ("::1", "[::1]:8299")),
    ],
)
def test_the_http_address_is_one_that_this_machine_reaches(tmp_path: Path, host: str | None, address: str) -> None:
    given = {} if host is None else {"httpServerHost": host}
    found = bookie(tmp_path, httpServerEnabled="true", httpServerPort="8299", **given)
    assert (found.http_address, found.metrics_url) == (address, f"http://{address}/metrics")


def test_without_http_there_is_no_http_address(tmp_path: Path) -> None:
    assert bookie(tmp_path).http_address is None
    assert bookie(tmp_path, httpServerEnabled="false", httpServerPort="8299").metrics_url is None


@pytest.mark.parametrize("word", ["true", "yes", "ON"])
def test_http_without_a_port_gets_a_free_one(tmp_path: Path, word: str) -> None:
    assert int(bookie(tmp_path, httpServerEnabled=word).settings["httpServerPort"]) > 0
