"""Real processes: a bookie is killed, its ledgers are whole again on others, and everything reads back."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster, LocalProcessFailed
from bookkeeper.errors import LedgerClosed, LedgerFencedOff
from bookkeeper.model import DigestType
from tests.support.auto_recovery import (
    LocalAutoRecovery,
    await_no_marks,
    await_unregistered,
    mark,
    marked,
    names,
)
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.zookeeper_sessions import end_dead_session

pytestmark = pytest.mark.timeout(300)

COUNT = 40
LEDGERS = 60
PASSWORD = b"pass-word"


def entries(count: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(count)]


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(zookeeper.address, ledgers_root, 4, directory=tmp_path / "cluster", settings=STEADY) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with connect(cluster.uri, with_long_timeouts(ClientSettings(password=PASSWORD))) as client:
        yield client


def write(client: BlockingBookKeeper, members: list[str], count: int = COUNT, **options: Any) -> int:
    with client.create(ensemble=3, write_quorum=3, ack_quorum=2, bookies=members, **options) as ledger:
        ledger.append_many(entries(count))
    return int(ledger.id)


def assert_whole_on(cluster: LocalCluster, ids: list[int], alone: str) -> None:
    """Every entry reads back with nobody else left."""
    for bookie in cluster.bookies:
        if bookie.bookie_id != alone and bookie.running:
            bookie.kill()
    with connect(cluster.uri, with_long_timeouts(ClientSettings(password=PASSWORD))) as reader:
        for ledger_id in ids:
            with reader.open(ledger_id) as ledger:
                assert [entry.payload for entry in ledger.entries()] == entries(COUNT)


def test_a_killed_bookies_ledgers_are_whole_again_on_the_others(
    cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    """Closed ones at once, an open one after its grace period; figures are shown; SIGTERM ends with 0."""
    *kept, dead, spare = cluster.bookies
    members = [bookie.bookie_id for bookie in (dead, *kept)]
    ids = [write(client, members, digest=digest) for digest in list(DigestType) * (LEDGERS // 4)]
    empty = write(client, members, 0)
    # Acknowledged by all three: its writer has no reason to replace the dead one by itself.
    still_open = client.create(ensemble=3, write_quorum=3, ack_quorum=3, bookies=members)
    still_open.append_many(entries(COUNT))
    dead.kill()
    end_dead_session(cluster.uri, dead.bookie_id)
    await_unregistered(cluster.uri, dead.bookie_id)
    mark(cluster.uri, [*ids, empty, still_open.id], [dead.bookie_id])
    settings = {**STEADY, "openLedgerRereplicationGracePeriod": "1000", "httpServerEnabled": "true"}
    with LocalAutoRecovery(tmp_path / "recovery", cluster.uri, settings) as recovery:
        await_no_marks(cluster.uri)
        assert recovery.metrics_url is not None
        with urllib.request.urlopen(recovery.metrics_url) as answer:
            shown = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
        # The recovery of the open one puts another bookie in the dead one's place as far as it writes entries back.
        repaired = int(shown["replication_replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED"])
        assert LEDGERS + 1 <= repaired <= LEDGERS + 2
        written = int(shown["replication_replication_worker_NUM_ENTRIES_WRITTEN"])
        assert LEDGERS * COUNT <= written <= (LEDGERS + 1) * COUNT
        assert recovery.stop() == 0
    for ledger_id in (*ids, empty, still_open.id):
        metadata = client.metadata(ledger_id)
        assert not names(metadata, dead.bookie_id)
        assert metadata.is_closed
    assert names(client.metadata(empty), spare.bookie_id)
    with pytest.raises((LedgerFencedOff, LedgerClosed)):
        still_open.append(b"too late")
    assert_whole_on(cluster, [*ids, int(still_open.id)], spare.bookie_id)


def test_auto_recovery_runs_beside_a_bookie(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> None:
    """autoRecoveryDaemonEnabled=true: each bookie has a worker, and a clean end."""
    settings = {**STEADY, "autoRecoveryDaemonEnabled": "true"}
    with local_cluster(zookeeper.address, ledgers_root, 4, directory=tmp_path, settings=settings) as cluster:
        with connect(cluster.uri, with_long_timeouts(ClientSettings(password=PASSWORD))) as client:
            *kept, dead, spare = cluster.bookies
            ids = [write(client, [bookie.bookie_id for bookie in (*kept, dead)]) for _ in range(10)]
            dead.kill()
            end_dead_session(cluster.uri, dead.bookie_id)
            await_unregistered(cluster.uri, dead.bookie_id)
            mark(cluster.uri, ids, [dead.bookie_id])
            await_no_marks(cluster.uri)
            assert all(names(client.metadata(ledger_id), spare.bookie_id) for ledger_id in ids)
        assert kept[0].stop() == 0
        assert_whole_on(cluster, ids, spare.bookie_id)


def test_a_worker_that_is_killed_leaves_the_rest_to_another(
    cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    """kill -9 in the middle: locks end with the session, marks stay, nothing is lost."""
    *kept, dead, spare = cluster.bookies
    members = [bookie.bookie_id for bookie in (dead, *kept)]
    ids = [write(client, members) for _ in range(LEDGERS)]
    dead.kill()
    end_dead_session(cluster.uri, dead.bookie_id)
    await_unregistered(cluster.uri, dead.bookie_id)
    mark(cluster.uri, ids, [dead.bookie_id])
    slow = {"replicationRateByEntries": str(COUNT * LEDGERS // 8), "replicationLedgersMax": "2"}
    first = LocalAutoRecovery(tmp_path / "first", cluster.uri, slow, "first")
    first.start()
    first.kill()
    with LocalAutoRecovery(tmp_path / "second", cluster.uri, STEADY, "second"):
        await_no_marks(cluster.uri)
    assert marked(cluster.uri) == []
    assert_whole_on(cluster, ids, spare.bookie_id)


def test_without_a_cluster_it_says_so_and_ends(zookeeper: Any, tmp_path: Path) -> None:
    nowhere = LocalAutoRecovery(tmp_path, f"zk+hierarchical://{zookeeper.address}/nowhere")
    with pytest.raises(LocalProcessFailed, match="ended with code 2"):
        nowhere.start()
    assert "Auto-recovery did not start" in nowhere.log_path.read_text()
