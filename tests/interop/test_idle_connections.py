"""Our servers close idle connections of genuine clients: the clients reconnect, and no bookie is replaced."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from bookkeeper.client.faces.blocking import connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from tests.interop.ground import SESSION_TIMEOUT
from tests.support.apache import RELEASES, ApacheClient
from tests.support.bookie_fakes import KEY, body_of
from tests.support.cluster import RawClient

V2_ADD = struct.pack(">BBh", 2, 1, 0) + KEY + body_of(7, 0)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two bookies that close a connection after three to six seconds of silence; clients do not pause for so long."""
    settings = {**SESSION_TIMEOUT, "idleConnectionTimeoutSecs": "3", "firstRequestTimeoutSecs": "3"}
    with LocalCluster(2, directory=tmp_path_factory.mktemp("impatient"), settings=settings) as cluster:
        yield cluster


def pass_idle_time(cluster: LocalCluster) -> None:
    """Return when every earlier silent connection is closed: the connections made here are newer."""
    for _ in range(2):
        with ExitStack() as connected:
            peers = [connected.enter_context(RawClient(bookie.port)) for bookie in cluster.bookies]
            for peer in peers:
                peer.send(struct.pack(">i", len(V2_ADD)) + V2_ADD)
                assert peer.acknowledged(1) == [0]
            for peer in peers:
                assert peer.is_closed()


@pytest.mark.parametrize(
    ("version", "protocol"),
    [(release.version, protocol) for release in RELEASES.values() for protocol in release.protocols],
)
def test_a_genuine_writer_continues_after_long_silence(
    impatient: LocalCluster, apache_clients: Callable[[str], ApacheClient], version: str, protocol: int
) -> None:
    theirs = apache_clients(version)
    (ledger_id,) = theirs.run("begin", impatient.uri, protocol, "CRC32", "pass-word", 1, 1, 1, 10)
    pass_idle_time(impatient)
    assert theirs.run("append", ledger_id, 5) == ["14"]
    assert theirs.run("close", ledger_id)[0].split()[0] == "14"
    with connect(impatient.uri, ClientSettings(use_v2=protocol == 2)) as ours:
        assert len(ours.metadata(int(ledger_id)).fragments) == 1, "the bookie was not replaced"
