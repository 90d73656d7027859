"""Every server ends within 10 s of SIGTERM while ZooKeeper is gone, or accepts connections without an answer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from hedwig.embedded import LocalHub
from hedwig.model import Status, SubscriberId, Topic
from journalmgr.cli.servers import LocalServer as LocalNameNode
from tests.support.auto_recovery import LocalAutoRecovery
from tests.support.hub_wire import RawHubClient

STOP_S = 15.0
"""The promise is ten seconds. Five more are for a process that pauses, or competes for a processor."""

pytestmark = pytest.mark.timeout(300)


@contextlib.contextmanager
def away(server: EmbeddedZooKeeper, how: str) -> Iterator[None]:
    """Kill ZooKeeper, or suspend it during the block."""
    if how == "gone":
        server.kill()
        yield
        return
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def name_node(directory: Path, server: EmbeddedZooKeeper, root: str) -> LocalNameNode:
    """Start the name node of a new journal, and wait until it is active."""
    uri = f"bookkeeper://{server.address}/journal"
    options = ["-D", f"dfs.namenode.bookkeeperjournal.zk.availablebookies={root}/available"]
    options += ["-D", "dfs.namenode.bookkeeperjournal.ensemble-size=1"]
    options += ["-D", "dfs.namenode.bookkeeperjournal.quorum-size=1"]
    subprocess.run([sys.executable, "-m", "journalmgr.cli.main", "format", uri, *options], check=True)
    node = LocalNameNode(1, directory, uri, options)
    node.start()
    node.wait_for("active")
    return node


@pytest.mark.parametrize("how", ["gone", "silent"])
def test_servers_end_in_time_while_zookeeper_is_away(how: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(1, directory=tmp_path / "cluster"))
        server = cluster.zookeeper
        assert server is not None
        hub = LocalHub.beside(cluster, 1, {"bk_ensemble_size": "1", "bk_quorum_size": "1"})
        cluster.start_others([hub])
        recovery = stack.enter_context(LocalAutoRecovery(tmp_path / "recovery", cluster.uri, {"zkTimeout": "10000"}))
        node = name_node(tmp_path, server, cluster.root)
        stack.callback(node.kill)
        client = stack.enter_context(RawHubClient(hub.port))
        for topic in (Topic(b"news"), Topic(b"orders")):
            assert client.publish(topic, b"one").status is Status.SUCCESS
            assert client.subscribe(topic, SubscriberId(b"reader")).status is Status.SUCCESS
        (bookie,) = cluster.bookies
        ends: dict[str, Callable[[], int]] = {
            "bookie": bookie.wait,
            "hub": hub.wait,
            "autorecovery": recovery.wait,
            "namenode": node.end,
        }
        with away(server, how):
            began = time.monotonic()
            for process in (bookie, hub, recovery):
                process.terminate()
            os.kill(node.pid, signal.SIGTERM)

            def seconds_until(ended: Callable[[], int]) -> float:
                ended()
                return time.monotonic() - began

            with ThreadPoolExecutor() as threads:
                took = dict(zip(ends, threads.map(seconds_until, ends.values()), strict=True))
        assert max(took.values()) <= STOP_S, took
