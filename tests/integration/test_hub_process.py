"""A hub as a process: it starts, serves, gives its topics back, refuses what cannot work and says what to do."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from kazoo.client import KazooClient
from twisted.internet.defer import Deferred

from bookkeeper.blocking import connect
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from bookkeeper.model import BookieId
from hedwig.embedded import LocalHub
from hedwig.hub.process import ExitCode
from hedwig.model import Event, Status, SubscriberId, Topic
from hedwig.wire.records import decode_ranges, decode_subscription
from hedwig.wire.responses import Told
from tests.support import prometheus_text
from tests.support.certificates import Authority
from tests.support.cluster import STEADY, STEADY_HUB, local_cluster
from tests.support.hub_wire import RawHubClient, wait_for_exit
from tests.support.stranger import claim

pytestmark = pytest.mark.timeout(300)

NEWS = Topic(b"news")
READER = SubscriberId(b"reader")
PASSWORD = "geheim"


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    """One bookie of its own cluster."""
    with local_cluster(zookeeper.address, ledgers_root, 1, directory=tmp_path, settings=STEADY) as cluster:
        yield cluster


def hub_of(cluster: LocalCluster, number: int = 1, **settings: str) -> LocalHub:
    """Not started; its records are not those of other tests."""
    return LocalHub.beside(cluster, number, {**STEADY_HUB, "zk_prefix": f"{cluster.root}-hubs", **settings})


@pytest.fixture
def hub(cluster: LocalCluster) -> LocalHub:
    hub = hub_of(cluster, httpServerEnabled="true")
    cluster.start_others([hub])
    return hub


@pytest.fixture
def tree(zookeeper: Any, cluster: LocalCluster) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


def region(cluster: LocalCluster, *path: str) -> str:
    return "/".join((f"{cluster.root}-hubs/standalone", *path))


def log_of(hub: LocalHub) -> str:
    return hub.log_path.read_text()


# --- serving and stopping


def test_topics_and_positions_are_given_back_at_sigterm(cluster: LocalCluster, hub: LocalHub, tree: Any) -> None:
    with RawHubClient(hub.port) as client:
        assert client.subscribe(NEWS, READER).status is Status.SUCCESS
        assert client.publish(NEWS, b"one").status is Status.SUCCESS
        [delivered] = client.deliveries(1)
        assert delivered.message.id is not None
        client.consume(NEWS, READER, delivered.message.id)
        assert client.publish(Topic(b"other"), b"x").status is Status.SUCCESS  # so the hub owns this topic, too
        assert tree.get_children(region(cluster, "hosts")) == [hub.address]
        hub.terminate()
        told = client.receive()
        assert isinstance(told, Told)
        assert told.event is Event.TOPIC_MOVED
        with pytest.raises(ConnectionError):
            client.receive()
    assert hub.wait() == ExitCode.OK
    assert f"Hub {hub.address} serves region standalone" in log_of(hub)
    assert log_of(hub).rstrip().endswith("Stopped")
    assert tree.get_children(region(cluster, "hosts")) == []
    assert tree.exists(region(cluster, "topics/news/hub")) is None
    position, _ = tree.get(region(cluster, "topics/news/subscribers/reader"))
    assert decode_subscription(position, "").consumed.local == 1  # consume_interval is 50: only the release stores it
    ranges, _ = tree.get(region(cluster, "topics/news/ledgers"))
    [ended] = decode_ranges(ranges, "")
    assert ended.last is not None
    assert ended.last.local == 1


def test_another_hub_takes_over_the_topics_of_a_killed_hub(cluster: LocalCluster) -> None:
    hub = hub_of(cluster, zk_timeout="2000")
    cluster.start_others([hub])
    with RawHubClient(hub.port) as client:
        assert client.subscribe(NEWS, READER).status is Status.SUCCESS
        assert client.publish(NEWS, b"one").status is Status.SUCCESS
    hub.kill()
    hub.start()  # the same address: the registration and the records of its other life go
    with RawHubClient(hub.port) as client:
        assert client.subscribe(NEWS, READER).status is Status.SUCCESS
        [delivered] = client.deliveries(1)
        assert delivered.message.id is not None
        assert (delivered.message.id.local, delivered.message.body) == (1, b"one")


def test_metrics_count_what_was_done(hub: LocalHub) -> None:
    with RawHubClient(hub.port) as client:
        client.subscribe(NEWS, READER)
        client.publish(NEWS, b"one")
        client.deliveries(1)
        client.publish(Topic(b"a//b"), b"no such name")
        assert hub.metrics_url is not None
        with urllib.request.urlopen(hub.metrics_url, timeout=60) as answer:
            text = answer.read().decode()
        with urllib.request.urlopen(hub.metrics_url.replace("metrics", "heartbeat"), timeout=60) as answer:
            assert answer.read() == b"OK\n"
    prometheus_text.parse(text)
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    shown = {name: lines[f"hub_{name}"] for name in ("PUBLISHED_MESSAGES", "DELIVERED_MESSAGES", "OWNED_TOPICS")}
    assert shown == {"PUBLISHED_MESSAGES": "1", "DELIVERED_MESSAGES": "1", "OWNED_TOPICS": "1"}
    assert lines["hub_CONNECTIONS"] == lines["hub_ATTACHED_SUBSCRIPTIONS"] == "1"
    assert lines["hub_REFUSED_MALFORMED_REQUEST"] == "1"
    assert int(lines["hub_CACHE_BYTES"]) > 0
    assert 0 < float(lines["process_longest_turn_seconds"]) < 60


def test_ledger_ids_that_were_claimed_are_counted(cluster: LocalCluster, hub: LocalHub) -> None:
    bookies = [BookieId(bookie.bookie_id) for bookie in cluster.bookies]
    with connect(cluster.uri) as client:
        client.run(lambda each: Deferred.fromCoroutine(claim(each.context, bookies, range(2))))
    with RawHubClient(hub.port) as publisher:
        assert publisher.publish(NEWS, b"one").status is Status.SUCCESS
    assert hub.metrics_url is not None
    with urllib.request.urlopen(hub.metrics_url, timeout=60) as answer:
        shown = answer.read().decode()
    assert "\nhub_LEDGER_IDS_PASSED_OVER 2\n" in shown


def test_a_hub_that_starts_is_stopped_as_one_that_serves(cluster: LocalCluster) -> None:
    hub = hub_of(cluster)
    hub.start(wait=False)
    assert hub.stop() in (ExitCode.OK, -15, 130)  # before it has its handlers the signal ends it at once


# --- what cannot work


def test_a_port_that_is_taken_is_told_before_anything_is_connected_to(cluster: LocalCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        hub = hub_of(cluster, server_port=taken, metadataServiceUri="zk+null://127.0.0.1:1/ledgers")
        assert wait_for_exit(hub) == ExitCode.BAD_CONFIGURATION
    assert f"port {taken} is taken" in log_of(hub)
    assert "set another server_port" in log_of(hub)


def test_a_hub_tells_what_it_has_and_who_has_the_rest(cluster: LocalCluster, hub: LocalHub) -> None:
    def get(path: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", int(hub.settings["httpServerPort"]), timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        status, said = answer.status, json.loads(answer.read())
        connection.close()
        return status, said

    with RawHubClient(hub.port) as client:
        assert client.subscribe(NEWS, READER).status is Status.SUCCESS
        assert client.publish(NEWS, b"one").status is Status.SUCCESS
    assert get("/")[1]["paths"]["/release"] == ["POST"]
    status, ledgers = get("/api/v1/ledger/list?print_metadata=true")
    assert (status, [each["state"] for each in ledgers.values()]) == (200, ["OPEN"])
    assert get("/api/v1/bookie/list_bookies") == (200, {cluster.bookies[0].bookie_id: None})
    assert get("/api/v1/config/server_config")[1]["server_port"] == str(hub.port)
    status, said = get("/api/v1/bookie/state")
    assert (status, "no bookie runs in this process" in said["error"]) == (404, True)


def test_a_taken_http_port_ends_the_hub_without_a_registration(cluster: LocalCluster, tree: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        hub = hub_of(cluster, httpServerEnabled="true", httpServerPort=str(other.getsockname()[1]))
        assert wait_for_exit(hub) == ExitCode.BAD_CONFIGURATION
    assert "ss -ltnp" in log_of(hub)
    assert "set another httpServerPort" in log_of(hub)
    assert tree.exists(region(cluster, "hosts")) is None


def test_all_faults_of_the_configuration_are_told_at_once(cluster: LocalCluster) -> None:
    hub = hub_of(cluster, consume_interval="often", servr_port="1", standalone="true")
    assert wait_for_exit(hub) == ExitCode.BAD_CONFIGURATION
    for part in ("consume_interval=often", "unknown key 'servr_port'; did you mean server_port?", "standalone --hub"):
        assert part in log_of(hub)


def test_settings_without_effect_are_told_once(cluster: LocalCluster) -> None:
    hub = hub_of(cluster, retention_secs="0", rebalance_interval_sec="300", rebalance_max_shed="50")
    cluster.start_others([hub])
    hub.stop()
    assert log_of(hub).count("WARN [hedwig.cli.hub] Settings without effect here") == 2


def test_a_zookeeper_that_is_gone_is_told(cluster: LocalCluster) -> None:
    port = free_port()
    hub = hub_of(cluster, metadataServiceUri=f"zk+null://127.0.0.1:{port}/ledgers", zk_timeout="1000")
    assert wait_for_exit(hub) == ExitCode.SERVER_ERROR
    assert f"127.0.0.1:{port}" in log_of(hub).splitlines()[-1]


def test_a_zookeeper_without_a_cluster_is_told(cluster: LocalCluster) -> None:
    hub = hub_of(cluster, metadataServiceUri=f"{cluster.uri}-nothing")
    assert wait_for_exit(hub) == ExitCode.SERVER_ERROR
    assert "The hub did not start" in log_of(hub)


def test_a_hub_stops_in_time_when_its_zookeeper_is_gone(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(data_dir=tmp_path / "zookeeper") as server:
        with local_cluster(server.address, "/ledgers", 1, directory=tmp_path) as cluster:
            hub = hub_of(cluster, shutdown_timeout_secs="2", zk_timeout="2000")
            cluster.start_others([hub])
            with RawHubClient(hub.port) as client:
                assert client.publish(NEWS, b"one").status is Status.SUCCESS
                server.kill()
                hub.terminate()
                assert hub.wait() in (ExitCode.OK, ExitCode.NOT_RELEASED)
            server.start()


# --- TLS


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


@pytest.mark.parametrize("form", ["pkcs12", "pem"])
def test_clients_are_served_with_tls_on_the_second_port(cluster: LocalCluster, tmp_path: Path, form: str) -> None:
    authority = Authority(tmp_path / "ca", "ca")
    issued = authority.issue("hub")
    settings = {"ssl_enabled": "true", "cert_path": str(issued.certificate), "cert_key_path": str(issued.key)}
    if form == "pkcs12":
        key = load_pem_private_key(issued.key.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(issued.certificate.read_bytes())
        store = tmp_path / "server.p12"
        encryption = BestAvailableEncryption(PASSWORD.encode())
        store.write_bytes(pkcs12.serialize_key_and_certificates(b"hub", key, certificate, None, encryption))  # type: ignore[arg-type] # the library's union of keys
        settings = {"ssl_enabled": "true", "cert_path": str(store), "password": PASSWORD}
    hub = hub_of(cluster, **settings)
    cluster.start_others([hub])
    assert hub.ssl_port is not None
    body = bytes(200_000)
    with RawHubClient(hub.port) as plain, RawHubClient(hub.ssl_port, trusting(authority)) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.version() == "TLSv1.2"
        assert client.subscribe(NEWS, READER).status is Status.SUCCESS
        assert plain.publish(NEWS, body).status is Status.SUCCESS
        [delivered] = client.deliveries(1)
        assert delivered.message.body == body
    with RawHubClient(hub.ssl_port) as stranger:
        stranger.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            while stranger.socket.recv(1 << 16):  # an alert, or nothing
                pass
    with RawHubClient(hub.ssl_port, trusting(authority)) as client:
        assert client.publish(NEWS, b"two").status is Status.SUCCESS
    assert hub.stop() == ExitCode.OK
    assert re.search(r"Closing the TLS connection from 127.0.0.1:\d+: it does not speak TLS", log_of(hub))


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("no.p12", {}, "cannot be read: No such file"),
        ("junk.p12", {}, "no PKCS12 file, or `password` is not its password"),
        ("hub.pem", {}, "holds no private key; name the PEM file that does in cert_key_path"),
        ("hub.pem", {"cert_key_path": "other.key"}, "the private key does not belong to the first certificate"),
        ("hub.pem", {"cert_key_path": "locked.key"}, "the private key is encrypted; set `password`"),
    ],
)
def test_files_that_cannot_work_are_told(tmp_path: Path, name: str, settings: dict[str, str], said: str) -> None:
    """`config check` reads them as a start does; one process more of each would show nothing else."""
    authority = Authority(tmp_path / "ca", "ca")
    (tmp_path / "hub.pem").write_bytes(authority.issue("hub").certificate.read_bytes())
    (tmp_path / "other.key").write_bytes(authority.issue("other").key.read_bytes())
    (tmp_path / "locked.key").write_bytes(authority.issue("locked", password=b"x").key.read_bytes())
    (tmp_path / "junk.p12").write_bytes(b"0junk")
    given = {"ssl_enabled": "true", "cert_path": name, **settings}
    words = [word for key, value in given.items() for word in ("-D", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "hedwig.cli.main", "config", "check", "--json", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    [fault] = json.loads(done.stdout)["faults"]
    assert said in fault


# --- beside a cluster


def test_standalone_starts_hubs_and_stops_them_before_the_bookie(tmp_path: Path) -> None:
    words = ("--directory", str(tmp_path), "--zookeeper-port", "0", "--port", "0", "--hub", "2", "--hub-port", "0")
    process = subprocess.Popen(
        [sys.executable, "-m", "bookkeeper.cli.main", "standalone", *words], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said: list[str] = []
    while not said or "Ctrl-C" not in said[-1]:
        line = process.stderr.readline()
        assert line, said
        said.append(line)
    hubs = [line.split()[2] for line in said if line.startswith("  hub ")]
    assert len(hubs) == 2
    with RawHubClient(int(hubs[0].split(":")[1])) as client:
        assert client.publish(NEWS, b"one").status is Status.SUCCESS
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0
    for number in (1, 2):
        assert (tmp_path / f"hub-{number}" / "hub.log").read_text().rstrip().endswith("Stopped")


def test_a_hub_setting_that_none_would_start_with_starts_nothing(tmp_path: Path) -> None:
    words = ("standalone", "--directory", str(tmp_path / "c"), "--hub", "--hub-setting", "consume_interval=x")
    done = subprocess.run(
        [sys.executable, "-m", "bookkeeper.cli.main", *words, "--zookeeper-port", "0", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "--hub-setting" in done.stderr
    assert "consume_interval=x: not a whole number" in done.stderr
    assert not (tmp_path / "c").exists()
