"""Bounds of a server's connections, in running processes: clients are served during a flood, and reconnect."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bookkeeper.blocking
import hedwig.blocking
from bookkeeper.embedded.process import free_port
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from hedwig.embedded import LocalHub
from hedwig.model import Status, SubscriberId, Topic
from tests.support.bookie_fakes import KEY, body_of
from tests.support.cluster import STEADY, STEADY_HUB, RawClient, local_cluster, with_long_timeouts
from tests.support.hub_wire import RawHubClient

V2_ADD = struct.pack(">BBh", 2, 1, 0) + KEY + body_of(7, 0)
FLOOD = 60
"""Number of connections: several times the bounds of bookies and hubs in this file."""


@contextmanager
def flood(port: int, beginning: bytes, count: int = FLOOD) -> Iterator[list[socket.socket]]:
    """Open connections that send the beginning of a request and nothing else."""
    peers = []
    try:
        for _ in range(count):
            peers.append(socket.create_connection(("127.0.0.1", port), timeout=60))
            peers[-1].sendall(beginning)
        yield peers
    finally:
        for each in peers:
            each.close()


def is_ended(peer: socket.socket) -> bool:
    """Wait until the server closes the connection without sending a byte."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_bookie_serves_its_clients_during_a_flood(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    settings = {**STEADY, "maxConnections": "16"}
    with local_cluster(zookeeper.address, "/flooded-bookie", 1, directory=tmp_path, settings=settings) as cluster:
        [bookie] = cluster.bookies
        partial = struct.pack(">i", 10_000) + V2_ADD
        with (
            bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as bk,
            bk.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger,
        ):
            assert ledger.append(b"before") == 0
            with flood(bookie.port, b""), flood(bookie.port, partial) as peers:
                assert is_ended(peers[0])
                assert ledger.append(b"meanwhile") == 1
                with RawClient(bookie.port) as newcomer:
                    newcomer.send(struct.pack(">i", len(V2_ADD)) + V2_ADD)
                    assert newcomer.acknowledged(1) == [0]
            assert ledger.append(b"after") == 2
            assert len(ledger.metadata.fragments) == 1


def test_a_client_reconnects_after_long_silence(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    settings = {**STEADY, "idleConnectionTimeoutSecs": "5", "firstRequestTimeoutSecs": "5"}
    with (
        local_cluster(zookeeper.address, "/idle-connections", 2, directory=tmp_path, settings=settings) as cluster,
        bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as bk,
        bk.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger,
    ):
        assert ledger.append(b"before") == 0
        for _ in range(3):  # connections of `bk` end in the second round
            with contextlib.ExitStack() as stack:
                peers = []
                for bookie in cluster.bookies:
                    for request in (b"", struct.pack(">i", len(V2_ADD)) + V2_ADD):  # without a request, with one
                        peers.append(peer := stack.enter_context(RawClient(bookie.port)))
                        peer.send(request)
                        if request:
                            assert peer.acknowledged(1) == [0]
                for peer in peers:
                    assert peer.is_closed()  # closed in order: clients would log a reset
        # All connections of `bk` have been silent for longer than twice the limit.
        assert ledger.append(b"after") == 1
        assert [entry.payload for entry in ledger.read(0, 1)] == [b"before", b"after"]
        assert len(ledger.metadata.fragments) == 1, "the bookie was not replaced"


def test_a_hub_serves_its_clients_during_a_flood_and_ends_silent_connections_without_a_subscription(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    news, me = Topic(b"news"), SubscriberId(b"me")
    with local_cluster(zookeeper.address, "/flooded-hub", 1, directory=tmp_path, settings=STEADY) as cluster:
        settings = {
            **STEADY_HUB,
            "zk_prefix": "/flooded-hub-hubs",
            "max_connections": "16",
            "idle_connection_timeout_secs": "5",
        }
        hub = LocalHub.beside(cluster, 1, settings)
        cluster.start_others([hub])
        with RawHubClient(hub.port) as subscriber, hedwig.blocking.connect(f"127.0.0.1:{hub.port}") as client:
            assert subscriber.subscribe(news, me).status is Status.SUCCESS
            client.publish(news, b"before")
            with flood(hub.port, b""), flood(hub.port, struct.pack(">I", 1_000_000) + b"x" * 1000) as peers:
                assert is_ended(peers[0])
                client.publish(news, b"meanwhile")
            for _ in range(2):  # afterwards, the connection of `client` was silent for more than twice the limit
                with RawHubClient(hub.port) as other:
                    assert other.publish(news, b"other").status is Status.SUCCESS
                    assert other.socket.recv(1) == b"", "in order: a reset would be logged by clients"
            client.publish(news, b"after")
            bodies = [each.message.body for each in subscriber.deliveries(5)]
            assert bodies == [b"before", b"meanwhile", b"other", b"other", b"after"]


HEAD = b"GET /heartbeat HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("beginning", [b"", HEAD, HEAD + b"\r\n"], ids=["silent", "not whole", "kept alive"])
def test_http_probes_are_answered_during_a_flood(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path, beginning: bytes
) -> None:
    """The flood: connections that send nothing, that do not complete a request, and that stay open after one."""
    settings = {**STEADY, "httpServerEnabled": "true", "httpServerPort": str(free_port())}
    port = int(settings["httpServerPort"])
    with (
        local_cluster(zookeeper.address, f"/flooded-http-{len(beginning)}", 1, directory=tmp_path, settings=settings),
        flood(port, beginning, 300),
    ):
        for path in ("/heartbeat", "/metrics"):
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as probe:
                probe.request("GET", path)
                assert probe.getresponse().status == 200
