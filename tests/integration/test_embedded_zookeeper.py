"""The embedded ZooKeeper: a real server that starts, serves, restarts with its data, and dies with its launcher."""

import importlib.machinery
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import bookkeeper.embedded.zookeeper as zookeeper_module
from bookkeeper.embedded.process import free_port
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper, ZooKeeperUnavailable, find_jars, four_letter_word

DEADLINE_S = 60.0


def _write(address: str, path: str, value: bytes) -> None:
    client = KazooClient(hosts=address)
    client.start(timeout=DEADLINE_S)
    try:
        client.create(path, value)
    finally:
        client.stop()
        client.close()


def _read(address: str, path: str) -> bytes:
    client = KazooClient(hosts=address)
    client.start(timeout=DEADLINE_S)
    try:
        value: bytes = client.get(path)[0]
        return value
    finally:
        client.stop()
        client.close()


def _wait_for_end(pid: int) -> bool:
    """True once a process that is not our child has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], DEADLINE_S)[0])
    finally:
        os.close(handle)


def test_data_survives_an_outage_on_the_same_port(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(data_dir=tmp_path) as server:
        address, first_pid = server.address, server.pid
        _write(address, "/before", b"kept")
        server.kill()
        assert not server.running
        with pytest.raises(ConnectionRefusedError):
            four_letter_word("127.0.0.1", server.port, "srvr")
        server.restart()
        assert server.address == address
        assert server.pid != first_pid
        assert _read(address, "/before") == b"kept"
        server.restart()
        assert _read(address, "/before") == b"kept"
    assert (tmp_path / "version-2").is_dir()


def test_a_temporary_server_leaves_nothing_behind() -> None:
    server = EmbeddedZooKeeper()
    with server:
        pid, data_dir = server.pid, server.data_dir
        assert four_letter_word("127.0.0.1", server.port, "ruok") == "imok"
        assert server.log_path.exists()
    assert not data_dir.exists()
    assert _wait_for_end(pid)
    assert not server.running


def test_the_server_has_a_session_of_its_own_and_dies_with_its_launcher(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper\n"
        "server = EmbeddedZooKeeper(data_dir=pathlib.Path(sys.argv[1])).start()\n"
        "print(server.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as launcher:
        assert launcher.stdout is not None
        server_pid = int(launcher.stdout.readline())
        assert os.getsid(server_pid) == server_pid
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    assert _wait_for_end(server_pid)


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ZooKeeperUnavailable, match=f"port {port} is in use"):
            EmbeddedZooKeeper(data_dir=tmp_path, port=port).start()


def test_a_server_that_cannot_start_shows_its_log_and_is_gone(tmp_path: Path) -> None:
    (tmp_path / "version-2").write_text("a file where ZooKeeper wants its directory")
    server = EmbeddedZooKeeper(data_dir=tmp_path, port=free_port())
    with pytest.raises(ZooKeeperUnavailable, match="ended with code") as failure:
        server.start()
    assert str(server.log_path) in str(failure.value)
    assert "version-2" in str(failure.value)
    assert not server.running


def test_a_server_that_does_not_serve_in_time_is_killed(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(data_dir=tmp_path, start_timeout_s=0.0)
    with pytest.raises(ZooKeeperUnavailable, match="did not serve within 0 s"):
        server.start()
    assert not server.running


def test_without_the_jars_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(zookeeper_module, "find_spec", lambda name: None)
    with pytest.raises(ZooKeeperUnavailable, match=r"pip install 'pybookkeeper\[spark\]'"):
        EmbeddedZooKeeper(data_dir=tmp_path).start()


def test_a_missing_jar_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    for name in ("zookeeper-3.9.5", "zookeeper-jute-3.9.5", "slf4j-api-2.0.17", "metrics-core-4.2.37"):
        (tmp_path / "jars" / f"{name}.jar").touch()
    spec = importlib.machinery.ModuleSpec("pyspark", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(zookeeper_module, "find_spec", lambda name: spec)
    with pytest.raises(ZooKeeperUnavailable, match=r"lacks snappy-java-\*\.jar"):
        find_jars()


def test_the_shared_server_serves(zookeeper: EmbeddedZooKeeper, ledgers_root: str) -> None:
    _write(zookeeper.address, ledgers_root, b"here")
    assert _read(zookeeper.address, ledgers_root) == b"here"
