"""A bookie as a process: it starts, serves, survives SIGKILL, refuses what is not its own, and stops cleanly."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from bookkeeper.cli.perf.counters import read_metrics
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster, free_port
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from bookkeeper.model import Status
from bookkeeper.wire.codec import request_encoder
from bookkeeper.wire.messages import AddFailed, ReadBodies, ReadFailed
from tests.support.bookie_fakes import KEY, OTHER_KEY, body_of
from tests.support.cluster import FAST, SESSION_TIMEOUT_MS, STEADY, RawClient, local_cluster, wait_for_exit
from tests.support.patience import until

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    """One bookie of its own cluster."""
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path, settings=STEADY) as cluster:
        yield cluster


@pytest.fixture
def bookie(cluster: LocalCluster) -> LocalBookie:
    return cluster.bookies[0]


def adds(entry_ids: range, *, ledger_id: int = 7, version: int = 2, key: bytes = KEY, recovery: bool = False) -> bytes:
    encoder = request_encoder(3 if version == 3 else 2)
    bodies = [body_of(ledger_id, entry_id, b"z" * 100) for entry_id in entry_ids]
    return b"".join(encoder.encode_adds(ledger_id, key, list(entry_ids), bodies, recovery=recovery)[1])


def reads(entry_ids: list[int], *, ledger_id: int = 7, version: int = 2) -> bytes:
    return request_encoder(3 if version == 3 else 2).encode_reads(ledger_id, entry_ids)[1]


def read_bodies(client: RawClient, entry_ids: range, *, ledger_id: int = 7, version: int = 2) -> list[bytes]:
    client.send(reads(list(entry_ids), ledger_id=ledger_id, version=version))
    bodies: list[bytes] = []
    while len(bodies) < len(entry_ids):
        for answer in client.receive():
            assert isinstance(answer, ReadBodies), answer
            bodies += answer.bodies
    return bodies


def add_for_ever(client: RawClient, acknowledged: list[int]) -> None:
    """Add entries after `acknowledged` and note those that are; anything but an acknowledgement fails."""
    while len(acknowledged) < 1_000_000:
        client.send(adds(range(len(acknowledged), len(acknowledged) + 1000)))
        acknowledged += client.acknowledged(1000)


def log_of(bookie: LocalBookie) -> str:
    return bookie.log_path.read_text()


# --- serving ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_entries_written_over_a_socket_are_read_back(bookie: LocalBookie, version: int) -> None:
    with RawClient(bookie.port, version=version) as client:
        client.send(adds(range(1000), version=version))
        assert client.acknowledged(1000) == list(range(1000))
        expected = [body_of(7, entry_id, b"z" * 100) for entry_id in range(1000)]
        assert read_bodies(client, range(1000), version=version) == expected
        client.send(reads([5000], version=version))
        (answer,) = client.receive()
        assert isinstance(answer, ReadFailed)
        assert answer.status is Status.NO_ENTRY


def test_a_large_entry_and_one_too_large(bookie: LocalBookie) -> None:
    with RawClient(bookie.port) as client:
        large = body_of(7, 0, b"z" * (4 * 1024 * 1024))
        client.send(request_encoder(2).encode_adds(7, KEY, [0], [large])[1][0])
        assert client.acknowledged(1) == [0]
        assert read_bodies(client, range(1)) == [large]
        client.send((6 * 1024 * 1024).to_bytes(4, "big") + b"\x02\x01\x00\x00")
        assert client.is_closed()
    with RawClient(bookie.port) as other:
        other.send(adds(range(1, 2)))
        assert other.acknowledged(1) == [1]
    assert "nettyMaxFrameSizeBytes" in log_of(bookie)


def test_a_killed_bookie_has_everything_it_acknowledged(bookie: LocalBookie) -> None:
    acknowledged = 0
    for _ in range(3):
        with RawClient(bookie.port) as client:
            if acknowledged:
                expected = [body_of(7, entry_id, b"z" * 100) for entry_id in range(acknowledged)]
                assert read_bodies(client, range(acknowledged)) == expected
            client.send(adds(range(acknowledged, acknowledged + 5000)))  # held ones come again: I-69
            enough = acknowledged + 500
            while acknowledged < enough:  # the kill comes in the middle
                acknowledged += sum(len(answer.entry_ids) for answer in client.receive())
            bookie.kill()
        bookie.start()
    with RawClient(bookie.port) as client:
        client.send(adds(range(1), key=OTHER_KEY))
        (answer,) = client.receive()
        assert isinstance(answer, AddFailed)
        assert answer.status is Status.UNAUTHORIZED  # the key is back as well


def test_a_fence_survives_a_kill(bookie: LocalBookie) -> None:
    with RawClient(bookie.port) as client:
        client.send(request_encoder(2).encode_fence_reads(7, [-1], KEY)[1])
        (answer,) = client.receive()
        assert answer.status is Status.NO_ENTRY  # I-22: never seen before
    bookie.kill()  # T21: right after the answer
    bookie.start()
    with RawClient(bookie.port) as client:
        client.send(adds(range(1)))
        (refused,) = client.receive()
        assert refused.status is Status.FENCED  # I-23
        client.send(adds(range(1), recovery=True))
        assert client.acknowledged(1) == [0]  # I-27


def test_a_failed_journal_write_ends_the_bookie_and_loses_nothing_acknowledged(bookie: LocalBookie) -> None:
    """I-48 with a real error: the process may not make any file longer than its journal is now."""
    with RawClient(bookie.port) as client:
        client.send(adds(range(100)))
        acknowledged = client.acknowledged(100)
        journal_size = max(path.stat().st_size for path in (bookie.journal_directory / "current").glob("*.txn"))
        resource.prlimit(bookie.pid, resource.RLIMIT_FSIZE, (journal_size, journal_size))
        with pytest.raises(ConnectionError):
            add_for_ever(client, acknowledged)
    assert bookie.stop() == 5  # it had ended by itself
    assert "stops answering and exits" in log_of(bookie)
    bookie.start()
    with RawClient(bookie.port) as client:
        bodies = read_bodies(client, range(len(acknowledged)))
    assert bodies == [body_of(7, entry_id, b"z" * 100) for entry_id in range(len(acknowledged))]


def test_a_clean_stop_exits_with_zero_and_needs_no_replay(bookie: LocalBookie) -> None:
    with RawClient(bookie.port) as client:
        client.send(adds(range(100)))
        assert client.acknowledged(100) == list(range(100))
        assert bookie.stop() == 0
    bookie.start()
    with RawClient(bookie.port) as client:
        assert len(read_bodies(client, range(100))) == 100
    assert "Replayed 100 entries" not in log_of(bookie)


def test_a_killed_bookie_registers_again_without_waiting_for_its_old_session(
    zookeeper: Any, ledgers_root: str, tmp_path: Path
) -> None:
    """Twice: the second predecessor had removed the first one's registration. A session takes 40 s to expire."""
    slow = {"zkTimeout": "40000"}
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path, settings=slow) as cluster:
        (bookie,) = cluster.bookies
        client = KazooClient(hosts=zookeeper.address)
        client.start()
        try:
            path = f"{ledgers_root}/available/{bookie.bookie_id}"
            for _ in range(2):
                owner = client.exists(path).ephemeralOwner
                bookie.kill()
                bookie.start()
                assert client.exists(path).ephemeralOwner != owner
            assert "Waiting for an older registration" not in log_of(bookie)
        finally:
            client.stop()
            client.close()


def test_a_killed_bookie_waits_for_a_session_that_it_has_no_record_of(
    zookeeper: Any, ledgers_root: str, tmp_path: Path
) -> None:
    slow = {"zkTimeout": "40000"}
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path, settings=slow) as cluster:
        (bookie,) = cluster.bookies
        bookie.kill()
        (record,) = tmp_path.rglob("metadata.sessions")
        record.write_bytes(b"damaged")
        bookie.start(wait=False)
        until(lambda: "Waiting for an older registration" in log_of(bookie), "it waits")
        assert "Ignoring" in log_of(bookie)
        client = KazooClient(hosts=zookeeper.address)
        client.start()
        client.delete(f"{ledgers_root}/available/{bookie.bookie_id}")  # as the end of the session does
        client.stop()
        client.close()
        bookie.wait_ready()


def test_sigint_stops_as_sigterm_does(bookie: LocalBookie) -> None:
    os.kill(bookie.pid, signal.SIGINT)
    assert bookie.stop() == 0


def test_a_second_signal_while_it_stops_changes_nothing(bookie: LocalBookie) -> None:
    """Stopped by SIGSTOP, it finds both signals at once when it goes on: the second comes while it is stopping."""
    os.kill(bookie.pid, signal.SIGSTOP)
    os.kill(bookie.pid, signal.SIGTERM)
    os.kill(bookie.pid, signal.SIGINT)
    os.kill(bookie.pid, signal.SIGCONT)
    assert bookie.stop() == 0  # and a third one
    text = log_of(bookie)
    assert text.count("Stopped\n") == 1
    assert "stopping already" in text
    assert [line for line in text.splitlines() if " INFO " not in line] == []


def test_a_bookie_starts_and_idles_within_its_budget(bookie: LocalBookie) -> None:
    """Memory is measured; time is not asserted (no test judges by the clock)."""
    status = Path(f"/proc/{bookie.pid}/status").read_text()
    resident_kb = int(status.split("VmRSS:")[1].split()[0])
    assert resident_kb < 60 * 1024


def test_garbage_from_many_clients_neither_grows_nor_stops_it(bookie: LocalBookie) -> None:
    def resident_kb() -> int:
        return int(Path(f"/proc/{bookie.pid}/status").read_text().split("VmRSS:")[1].split()[0])

    def poke(data: bytes) -> None:
        with RawClient(bookie.port) as client:
            client.send(data)

    broken = [
        b"\x00\x00\x00\x00",
        b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(5000),
        adds(range(1))[:-5],
        b"\x00\x40\x00\x00" + os.urandom(100_000),
    ]
    for data in broken * 5:
        poke(data)
    before = resident_kb()
    for data in broken * 50:
        poke(data)
    with RawClient(bookie.port) as client:
        client.send(adds(range(10)))
        assert client.acknowledged(10) == list(range(10))
    assert resident_kb() - before < 8 * 1024
    descriptors = len(os.listdir(f"/proc/{bookie.pid}/fd"))
    assert descriptors < 100


def test_a_client_that_never_reads_does_not_grow_the_bookie(bookie: LocalBookie) -> None:
    with RawClient(bookie.port) as writer:
        writer.send(request_encoder(2).encode_adds(7, KEY, [0], [body_of(7, 0, b"z" * 1_000_000)])[1][0])
        assert writer.acknowledged(1) == [0]
        deaf = socket.create_connection(("127.0.0.1", bookie.port))
        deaf.setblocking(False)
        request = reads([0] * 1000)  # asks for 1 GB with 28 KB
        sent = 0
        for _ in range(200):
            try:
                sent += deaf.send(request)
            except BlockingIOError:
                break
        writer.send(adds(range(1, 11)))
        assert writer.acknowledged(10) == list(range(1, 11))
        resident_kb = int(Path(f"/proc/{bookie.pid}/status").read_text().split("VmRSS:")[1].split()[0])
        deaf.close()
    assert sent > 0
    assert resident_kb < 150 * 1024


# --- identity -----------------------------------------------------------------------------------------------------


def refused(bookie: LocalBookie, code: int, *words: str) -> None:
    """Start a bookie that must refuse; its last line says why, without a traceback."""
    assert wait_for_exit(bookie) == code
    text = log_of(bookie)
    last = text.strip().splitlines()[-1]
    assert "Traceback" not in text
    for word in words:
        assert word in text, (word, last)


@pytest.mark.parametrize("key", ["journalDirectories", "ledgerDirectories"])
def test_settings_that_the_cookie_does_not_know_are_refused_before_anything_is_made(
    bookie: LocalBookie, tmp_path: Path, key: str
) -> None:
    assert bookie.stop() == 0
    new = tmp_path / "elsewhere"
    bookie.settings[key] = str(new)
    refused(bookie, 5, "the cookie in the metadata store says", key, str(new))
    assert not new.exists()


def test_a_directory_that_lost_its_cookie_is_refused(bookie: LocalBookie) -> None:
    assert bookie.stop() == 0
    (bookie.ledger_directory / "current" / "VERSION").unlink()
    refused(bookie, 5, str(bookie.ledger_directory), "data but no cookie", "Mount or restore")


def test_a_wiped_journal_directory_is_refused(bookie: LocalBookie) -> None:
    assert bookie.stop() == 0
    for path in (bookie.journal_directory / "current").iterdir():
        path.unlink()
    refused(bookie, 5, str(bookie.journal_directory), "is empty", "must not answer")  # I-71


def test_directories_with_an_index_in_rocksdb_are_refused(bookie: LocalBookie) -> None:
    assert bookie.stop() == 0
    (bookie.ledger_directory / "current" / "locations").mkdir()
    refused(bookie, 5, str(bookie.ledger_directory), "RocksDB", "convert-to-interleaved-storage")  # I-31, I-71


def test_another_bookies_directories_are_refused(cluster: LocalCluster) -> None:
    first, second = cluster.bookies[0], cluster.add_bookie()
    assert (first.stop(), second.stop()) == (0, 0)
    second.settings["ledgerDirectories"] = str(first.ledger_directory)
    refused(second, 5, f"{first.ledger_directory} says bookie id", str(first.bookie_id), str(second.bookie_id))


def test_a_cookie_missing_from_the_store_is_refused(zookeeper: Any, ledgers_root: str, bookie: LocalBookie) -> None:
    assert bookie.stop() == 0
    client = KazooClient(zookeeper.address)
    client.start()
    client.delete(f"{ledgers_root}/cookies/{bookie.bookie_id}")
    client.stop()
    client.close()
    refused(bookie, 5, "no cookie in the metadata store", "cookie_create")


def test_directories_of_another_cluster_are_refused(
    zookeeper: Any, ledgers_root: str, bookie: LocalBookie, tmp_path: Path
) -> None:
    assert bookie.stop() == 0
    with local_cluster(zookeeper.address, ledgers_root + "-other", 0, directory=tmp_path / "other") as other:
        bookie.settings["metadataServiceUri"] = other.uri
        refused(bookie, 5, "cluster instance id", "metadataServiceUri")


def test_two_processes_cannot_share_directories(cluster: LocalCluster) -> None:
    first = cluster.bookies[0]
    second = LocalBookie(9, cluster.directory / "second", cluster.uri, free_port(), dict(first.settings))
    second.settings |= {"bookiePort": str(second.port)}
    refused(second, 5, "locked by another process")  # I-52


def test_a_directory_that_cannot_be_made_is_named_with_its_setting(bookie: LocalBookie, tmp_path: Path) -> None:
    assert bookie.stop() == 0
    (tmp_path / "file").write_text("no directory")
    bookie.settings |= {"ledgerDirectories": str(tmp_path / "file"), "bookieId": "new"}  # no cookie to compare with yet
    refused(
        bookie, 5, "ledgerDirectories", str(tmp_path / "file"), "Not a directory", "set ledgerDirectories to another"
    )


# --- configuration and surroundings -------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_named_and_nothing_was_touched(
    zookeeper: Any, ledgers_root: str, tmp_path: Path
) -> None:
    with (
        local_cluster(zookeeper.address, ledgers_root, 0, directory=tmp_path) as cluster,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        port = server.getsockname()[1]
        bookie = LocalBookie(1, tmp_path / "bookie", cluster.uri, port, FAST)
        refused(bookie, 1, f"port {port} is taken", "ss -ltnp", "bookiePort")
        assert not bookie.ledger_directory.exists()
        bookie = LocalBookie(1, tmp_path / "bookie", cluster.uri, free_port(), FAST)
        bookie.settings |= {"httpServerEnabled": "true", "httpServerPort": str(port)}
        refused(bookie, 1, f"port {port} is taken", "ss -ltnp", "httpServerPort")
        assert not bookie.ledger_directory.exists()


def test_zookeeper_down_at_start_is_named(tmp_path: Path) -> None:
    port = free_port()
    uri = f"zk+hierarchical://127.0.0.1:{port}/ledgers"
    bookie = LocalBookie(1, tmp_path / "bookie", uri, free_port(), FAST)
    refused(bookie, 2, f"127.0.0.1:{port}")
    assert not bookie.ledger_directory.exists()


def test_a_cluster_that_was_never_initialised_is_named(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> None:
    uri = f"zk+hierarchical://{zookeeper.address}{ledgers_root}"
    bookie = LocalBookie(1, tmp_path / "bookie", uri, free_port(), FAST)
    refused(bookie, 2, ledgers_root)


def test_all_faults_of_a_configuration_are_told_at_once(tmp_path: Path) -> None:
    conf = tmp_path / "bk.conf"
    conf.write_text("bookiePort=99999\njournalDirectorys=/x\n")
    command = [sys.executable, "-m", "bookkeeper.cli.main", "bookie", "--conf", str(conf), "-o", "diskUsageThreshold=7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "3 faults" in done.stderr
    assert "did you mean journalDirectory" in done.stderr
    assert f"{conf}:1" in done.stderr


def test_loopback_must_be_allowed(cluster: LocalCluster, tmp_path: Path) -> None:
    bookie = LocalBookie(5, tmp_path / "five", cluster.uri, free_port(), {**FAST, "allowLoopback": "false"})
    refused(bookie, 1, "allowLoopback")


def test_an_ephemeral_port_with_a_bookie_id_of_its_own(cluster: LocalCluster, tmp_path: Path) -> None:
    settings = {**FAST, "bookieId": "b-5", "allowEphemeralPorts": "true", "bookiePort": "0"}
    bookie = LocalBookie(5, tmp_path / "five", cluster.uri, 0, settings)
    for _ in range(2):
        bookie.start()
        assert "Bookie b-5 serves on port" in log_of(bookie)
        assert bookie.stop() == 0


def test_a_bookie_serves_on_while_zookeeper_is_away(tmp_path: Path) -> None:
    with (
        EmbeddedZooKeeper(data_dir=tmp_path / "zookeeper") as server,
        local_cluster(server.address, "/ledgers", 1, directory=tmp_path / "cluster") as cluster,
    ):
        with RawClient(cluster.bookies[0].port) as client:
            client.send(adds(range(1)))
            assert client.acknowledged(1) == [0]
            server.kill()
            client.send(adds(range(1, 100)))
            assert client.acknowledged(99) == list(range(1, 100))
            server.restart()
        assert cluster.bookies[0].stop() == 0


class WatchedNode:
    """A znode whose coming and going can be waited for."""

    def __init__(self, address: str, path: str) -> None:
        self._client = KazooClient(address)
        self._client.start()
        self._path = path

    def wait(self, *, present: bool) -> None:
        """Return once the node is there, or is gone."""
        while True:
            changed = threading.Event()
            exists = self._client.exists(self._path, watch=lambda _, changed=changed: changed.set()) is not None
            if exists is present:
                return
            assert changed.wait(60)

    def close(self) -> None:
        self._client.stop()
        self._client.close()


def test_a_bookie_whose_session_expired_registers_again_and_never_stopped_serving(
    zookeeper: Any, ledgers_root: str, bookie: LocalBookie
) -> None:
    assert bookie.stop() == 0
    bookie.settings |= {"httpServerEnabled": "true", "httpServerPort": str(free_port())}
    bookie.settings["zkTimeout"] = str(SESSION_TIMEOUT_MS)
    bookie.start()
    node = WatchedNode(zookeeper.address, f"{ledgers_root}/available/{bookie.bookie_id}")
    node.wait(present=True)
    with RawClient(bookie.port) as client:
        os.kill(bookie.pid, signal.SIGSTOP)  # for longer than its session lasts
        node.wait(present=False)
        client.send(adds(range(10)))
        os.kill(bookie.pid, signal.SIGCONT)
        assert client.acknowledged(10) == list(range(10))
        node.wait(present=True)
        client.send(adds(range(10, 20)))
        assert client.acknowledged(10) == list(range(10, 20))
    node.close()
    assert "the registration with it; the bookie goes on serving" in log_of(bookie)
    assert bookie.metrics_url is not None
    assert read_metrics(bookie.metrics_url)["bookie_METADATA_SESSIONS_LOST"] >= 1  # more after a pause
    assert bookie.stop() == 0


def test_a_read_only_bookie_is_registered_as_such_reads_fences_and_refuses_adds(
    zookeeper: Any, ledgers_root: str, bookie: LocalBookie
) -> None:
    with RawClient(bookie.port) as client:
        client.send(adds(range(10)))
        assert client.acknowledged(10) == list(range(10))
    assert bookie.stop() == 0
    bookie.settings["forceReadOnlyBookie"] = "true"
    bookie.start()
    node = WatchedNode(zookeeper.address, f"{ledgers_root}/available/readonly/{bookie.bookie_id}")
    node.wait(present=True)
    node.close()
    with RawClient(bookie.port) as client:
        assert len(read_bodies(client, range(10))) == 10
        client.send(adds(range(10, 11)))
        (refused_add,) = client.receive()
        assert refused_add.status is Status.READ_ONLY
        client.send(request_encoder(2).encode_fence_reads(7, [-1], KEY)[1])
        (answer,) = client.receive()
        assert answer.bodies == [body_of(7, 9, b"z" * 100)]  # I-22


def test_logs_can_be_json(cluster: LocalCluster) -> None:
    bookie = cluster.bookies[0]
    assert bookie.stop() == 0
    command = [
        sys.executable, "-m", "bookkeeper.cli.main", "bookie", "--conf", str(bookie.conf_path), "--log-format", "json"
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    events = []
    for line in process.stderr:
        events.append(json.loads(line))
        if "serves on port" in events[-1]["Body"]:
            process.terminate()
    assert process.wait(60) == 0
    process.stderr.close()
    assert {event["SeverityText"] for event in events} == {"INFO"}
