"""A real ZooKeeper restored from an older copy: bookies keep their ledgers, and a newer copy ends the finding."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.cli.main import main
from bookkeeper.client.faces.blocking import BlockingBookKeeper, BlockingWriteHandle
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.errors import NotEnoughBookies
from tests.support.cluster import FAST

pytestmark = pytest.mark.timeout(300)

PATIENCE_S = 60.0


def _cluster(directory: Path, http_port: int) -> LocalCluster:
    settings = {"gcWaitTime": "3600000", "httpServerEnabled": "true", "httpServerPort": str(http_port)}
    return LocalCluster(1, directory=directory, settings={**FAST, **settings})


def _order(bookie: LocalBookie, method: str, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", int(bookie.settings["httpServerPort"]), timeout=30)
    try:
        connection.request(method, f"/api/v1/bookie/{path}")
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def _collect(bookie: LocalBookie) -> None:
    """Force a collection and wait for its end."""
    _order(bookie, "PUT", "gc")
    while _order(bookie, "GET", "gc") != {"is_in_force_gc": "false"}:
        pass


def _held(bookie: LocalBookie) -> set[int]:
    return {int(path.stem, 16) for path in bookie.directory.rglob("*.idx")}


def _write(cluster: LocalCluster, count: int) -> list[int]:
    ledger_ids = []
    with connect(cluster.uri) as client:
        for _ in range(count):
            with _created(client) as writer:
                writer.append(b"%d" % writer.id)
                ledger_ids.append(writer.id)
    return ledger_ids


def _created(client: BlockingBookKeeper) -> BlockingWriteHandle:
    """Create a ledger as soon as the bookie is registered. It may have lost its session with ZooKeeper."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return client.create(ensemble=1, write_quorum=1, ack_quorum=1, password=b"")
        except NotEnoughBookies:
            assert time.monotonic() < deadline_s, "the bookie does not register"


def _read(cluster: LocalCluster, ledger_id: int) -> list[bytes]:
    with connect(cluster.uri) as client, client.open(ledger_id, password=b"") as reader:
        return [entry.payload for batch in reader.batches() for entry in batch]


def _delete(cluster: LocalCluster, ledger_id: int) -> None:
    with connect(cluster.uri) as client:
        client.delete(ledger_id)


def test_newer_ledgers_outlive_a_restore_of_older_metadata(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, http_port = tmp_path / "cluster", free_port()
    znodes, older, newer = directory / "zookeeper", tmp_path / "older", tmp_path / "newer"
    with _cluster(directory, http_port) as cluster:
        early = _write(cluster, 4)
        _collect(cluster.bookies[0])
    shutil.copytree(znodes, older)
    with _cluster(directory, http_port) as cluster:
        late = _write(cluster, 6)
        _delete(cluster, early[0])
        _collect(cluster.bookies[0])
        assert _held(cluster.bookies[0]) == {*early[1:], *late}
    shutil.copytree(znodes, newer)

    shutil.rmtree(znodes)
    shutil.copytree(older, znodes)
    with _cluster(directory, http_port) as cluster:
        bookie = cluster.bookies[0]
        for _ in range(3):
            _collect(bookie)
        assert _held(bookie) == {*early[1:], *late}
        assert "counter" in _order(bookie, "GET", "metadata_history")["finding"]
        assert main(["why", "space", "--conf", str(bookie.directory / "bookie.conf"), "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["healthy"] is False
        assert "gone back in time" in answer["state"]
        assert any("metadata check" in each for each in answer["do"])
        assert main(["metadata", "check", "--uri", cluster.uri, "--json"]) == 1
        (found,) = json.loads(capsys.readouterr().out)["bookies"]
        assert found["absent_ledgers"] == [[late[0], late[-1]]]
        assert "counter" in found["finding"]
        # New ledgers do not get ids that were given out before.
        again = _write(cluster, 2)
        assert min(again) > max(late)
        assert main(["metadata", "discard", str(late[1]), "--all", "--force", "--uri", cluster.uri]) == 0
        for _ in range(2):
            _collect(bookie)
        assert _held(bookie) == {*early[1:], late[0], *late[2:], *again}

    shutil.rmtree(znodes)
    shutil.copytree(newer, znodes)
    with _cluster(directory, http_port) as cluster:
        bookie = cluster.bookies[0]
        rest = [late[0], *late[2:]]
        assert [_read(cluster, each) for each in rest] == [[b"%d" % each] for each in rest]
        _delete(cluster, late[0])
        _collect(bookie)
        assert _order(bookie, "GET", "metadata_history")["finding"] == ""
        # The ledgers created after the first restore are kept: this store has not given out their ids.
        assert _held(bookie) == {*early[1:], *late[2:], *again}
        capsys.readouterr()
        assert main(["metadata", "check", "--uri", cluster.uri]) == 1
        shown = capsys.readouterr().out
        assert f"ledgers that no bookie has: {late[1]} " in shown
        assert f"keeps for an operator: {again[0]}-{again[-1]} " in shown


def test_a_running_bookie_keeps_ledgers_that_a_restore_lost(tmp_path: Path) -> None:
    """The copy is newer than the bookie's counter, so only the id generator shows the loss. No id repeats."""
    with _cluster(tmp_path / "cluster", free_port()) as cluster:
        bookie, zookeeper = cluster.bookies[0], cluster.zookeeper
        assert zookeeper is not None
        data, copy = zookeeper.data_dir / "version-2", tmp_path / "copy"
        early = _write(cluster, 3)
        zookeeper.stop()
        shutil.copytree(data, copy)
        zookeeper.start()
        late = _write(cluster, 5)
        zookeeper.stop()
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        zookeeper.start()
        # It looks before ids are given out again, which needs a connection: else nothing shows the loss.
        while not (shown := _order(bookie, "GET", "metadata_history"))["finding"] and shown["kept"] < len(late):
            _collect(bookie)
        again = _write(cluster, 2)
        assert min(again) > max(late)
        for _ in range(3):
            _collect(bookie)
        assert _held(bookie) == {*early, *late, *again}
        kept = _order(bookie, "GET", "metadata_history")
        assert kept["finding"] or kept["kept"] >= len(late)
