"""`bookkeeper localbookie`, `standalone` and `zookeeper`: processes that start, tell, notice and stop; perf and demo.

Each is run as an operator runs it, as a process of its own. What they start must be gone when they are.
"""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.blocking import connect
from bookkeeper.cli.demo import ledgers as demo_ledgers
from bookkeeper.cli.demo.history import Stream
from bookkeeper.cli.perf import calibrate
from bookkeeper.cli.perf.counters import read_metrics
from bookkeeper.cli.perf.run import run_workload
from bookkeeper.cli.perf.worker import Task
from bookkeeper.config import ClientSettings
from bookkeeper.console.output import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, CommandFailed
from bookkeeper.embedded import zookeeper as embedded_zookeeper
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.model import BookieId, DigestType, LedgerState
from tests.support.cluster import FAST, STEADY, local_cluster
from tests.support.command_line import CommandLine, start

pytestmark = pytest.mark.timeout(300)

TIMEOUT_S = 100
SETTINGS = [word for key, value in {**FAST, **STEADY}.items() for word in ("-o", f"{key}={value}")]


class Service:
    """A long-running command, and what it said so far."""

    def __init__(self, *words: object) -> None:
        self.process = start(*words, stderr=subprocess.PIPE)
        self.said = ""

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read what it says until `pattern` matches; its end fails the test."""
        assert self.process.stderr is not None
        while (found := re.search(pattern, self.said)) is None:
            line = self.process.stderr.readline()
            assert line, f"it ended with code {self.process.wait()} before it said {pattern!r}:\n{self.said}"
            self.said += line
        return found

    def end(self, sign: signal.Signals) -> int:
        """Send the signal; the exit code."""
        self.process.send_signal(sign)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; the exit code."""
        _, rest = self.process.communicate(timeout=TIMEOUT_S)
        self.said += rest
        return self.process.returncode

    @property
    def children(self) -> list[int]:
        """The process ids it told."""
        return [int(pid) for pid in re.findall(r"process (\d+)", self.said)]


@pytest.fixture
def services() -> Iterator[list[Service]]:
    """Those that a test started; killed at its end if they still run."""
    started: list[Service] = []
    yield started
    for service in started:
        if service.process.poll() is None:
            service.process.kill()
            service.wait()


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def local_bookies(zookeeper: Any, count: int, *words: object) -> Service:
    return Service("localbookie", count, "--zookeeper", zookeeper.address, "--port", 0, *SETTINGS, *words)


def test_localbookie_starts_tells_how_to_reach_it_and_stops_on_ctrl_c(services: list[Service]) -> None:
    services.append(service := Service("localbookie", 2, "--zookeeper-port", 0, "--port", 0, *SETTINGS))
    uri = service.wait_for(r"Cluster is up: (\S+)\n")[1]
    service.wait_for("Ctrl-C stops everything")
    directory = Path(service.wait_for(r"log (\S+)/bookie-1/bookie.log")[1])
    assert len(service.children) == 3
    with connect(uri) as client:
        with client.create(ensemble=2) as ledger:
            ledger.append(b"one")
        assert len(client.available_bookies().writable) == 2
    assert service.end(signal.SIGINT) == EXIT_OK
    assert service.said.endswith("Stopping.\n")
    assert all(is_gone(pid) for pid in service.children)
    assert not directory.exists()


def test_standalone_keeps_its_data_and_its_bookies_identity(services: list[Service], tmp_path: Path) -> None:
    """Stopped by SIGTERM and started again in the same directory; ports are picked, the bookie's only once."""
    words = ("standalone", "--directory", tmp_path / "data", "--zookeeper-port", 0, "--port", 0, *SETTINGS)
    services.append(first := Service(*words))
    uri = first.wait_for(r"Cluster is up: (\S+)\n")[1]
    first.wait_for("Ctrl-C stops everything")
    with connect(uri) as client, client.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger:
        ledger.append_many([b"one", b"two"])
    assert first.end(signal.SIGTERM) == EXIT_OK
    assert all(is_gone(pid) for pid in first.children)

    services.append(second := Service(*words))
    uri = second.wait_for(r"Cluster is up: (\S+)\n")[1]
    second.wait_for("Ctrl-C stops everything")
    with connect(uri) as client, client.open(ledger.id) as reader:
        assert [entry.payload for entry in reader.entries()] == [b"one", b"two"]
    assert second.end(signal.SIGINT) == EXIT_OK


def test_a_bookie_that_dies_is_told_and_the_others_go_on(
    services: list[Service], zookeeper: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    services.append(service := local_bookies(zookeeper, 2))
    uri = service.wait_for(r"Cluster is up: (\S+)\n")[1]
    service.wait_for("Ctrl-C stops everything")
    first, second = service.children
    log = service.wait_for(r"log (\S+/bookie-2/bookie.log)")[1]
    os.kill(second, signal.SIGKILL)
    service.wait_for(rf"warning: bookie 2, process {second}, was killed by SIGKILL; its log: {log}; the others go on\n")
    with connect(uri) as client:
        with client.create(ensemble=1, write_quorum=1, ack_quorum=1) as ledger:
            assert ledger.append(b"one") == 0
    assert not is_gone(first)
    assert service.end(signal.SIGTERM) == EXIT_OK
    assert service.said.endswith(f"Stopping.\nKept, with all logs: {Path(log).parent.parent}\n")
    assert "serves on port" in Path(log).read_text()
    assert is_gone(first)


def test_the_end_of_the_last_bookie_is_the_end(services: list[Service], zookeeper: Any, tmp_path: Path) -> None:
    services.append(service := local_bookies(zookeeper, 2, "--directory", tmp_path))
    service.wait_for("Ctrl-C stops everything")
    first, second = service.children
    os.kill(second, signal.SIGKILL)
    service.wait_for("the others go on\n")
    os.kill(first, signal.SIGTERM)
    assert service.wait() == EXIT_FAILURE
    log = f"{tmp_path}/bookie-1/bookie.log"
    assert f"bookie 1, process {first}, ended with code 0; the end of its log {log}:" in service.said
    assert "serves on port" in service.said  # a line of that log
    assert "Nothing useful is left to run" in service.said
    assert "Kept" not in service.said  # what was asked for stays anyway


def test_nothing_runs_without_zookeeper(services: list[Service], tmp_path: Path) -> None:
    words = ("--zookeeper-port", 0, "--port", 0, "--directory", tmp_path)
    services.append(service := Service("localbookie", 1, *words, *SETTINGS))
    service.wait_for("Ctrl-C stops everything")
    server, bookie = service.children
    os.kill(server, signal.SIGKILL)
    assert service.wait() == EXIT_FAILURE
    assert f"ZooKeeper, process {server}, was killed by SIGKILL; the end of its log" in service.said
    assert is_gone(bookie)


def test_the_log_of_what_died_outlives_a_temporary_cluster(
    services: list[Service], zookeeper: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    services.append(service := local_bookies(zookeeper, 1))
    service.wait_for("Ctrl-C stops everything")
    (pid,) = service.children
    os.kill(pid, signal.SIGTERM)
    assert service.wait() == EXIT_FAILURE
    (log,) = tmp_path.rglob("bookie.log")
    assert f"bookie 1, process {pid}, ended with code 0; the end of its log {log}:" in service.said
    assert f"Kept, with all logs: {log.parent.parent}\n" in service.said


def test_a_zookeeper_that_did_not_start_leaves_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message points to the log, so a temporary directory is kept. What holds nothing is not."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(embedded_zookeeper, "_JAVA_OPTIONS", ("-XX:NoSuchOption",))
    cluster = LocalCluster(1)
    with pytest.raises(embedded_zookeeper.ZooKeeperUnavailable) as told, cluster:
        pass
    assert cluster.left_behind == cluster.directory
    log = cluster.directory / "zookeeper" / "zookeeper.log"
    assert str(log) in str(told.value)
    assert "NoSuchOption" in log.read_text()

    monkeypatch.setattr(embedded_zookeeper, "find_jars", _no_jars)
    empty = LocalCluster(1)
    with pytest.raises(embedded_zookeeper.ZooKeeperUnavailable), empty:
        pass
    assert empty.left_behind is None


def _no_jars() -> list[Path]:
    raise embedded_zookeeper.ZooKeeperUnavailable("there are none")


def test_a_bookie_that_cannot_start_is_shown_with_the_end_of_its_log(
    services: list[Service], zookeeper: Any, tmp_path: Path
) -> None:
    (tmp_path / "bookie-1").mkdir()
    (tmp_path / "bookie-1" / "journal").write_text("not a directory")
    services.append(service := local_bookies(zookeeper, 1, "--directory", tmp_path))
    assert service.wait() == EXIT_FAILURE
    assert re.search(
        r"bookie 1, process \d+, ended with code [1-5] before it served; the end of its log \S+:", service.said
    )
    assert "bookie-1/journal" in service.said
    assert "Traceback" not in service.said


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=lambda sign: sign.name)
@pytest.mark.parametrize("command", [("localbookie", 1), ("standalone",)], ids=lambda words: words[0])
def test_stopping_it_while_it_starts_is_a_clean_stop_too(
    services: list[Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[object, ...], sign: Any
) -> None:
    """Its ZooKeeper takes the connection and never answers, so it starts for as long as we like."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(TIMEOUT_S)
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        services.append(service := Service(*command, "--zookeeper", address, "--port", 0))
        connection, _ = mute.accept()
        with connection:
            assert service.end(sign) == EXIT_OK
    assert service.said == ""
    assert list(tmp_path.iterdir()) == []


def test_a_zookeeper_that_is_down_is_told_in_one_line(
    services: list[Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, and through a cluster that wants to use it. With -v its client says every attempt."""
    monkeypatch.setenv("BK_zkTimeout", "500")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    address = f"127.0.0.1:{free_port()}"
    listing = ("ledger", "list", "--uri", f"zk://{address}/ledgers")
    for words in (listing, ("localbookie", 1, "--zookeeper", address, "--port", 0)):
        services.append(service := Service(*words))
        assert service.wait() == EXIT_FAILURE
        assert f"no answer from ZooKeeper at {address} within 0.5 s" in service.said
        assert service.said.count("\n") == 1
        assert "(-v" not in service.said
    services.append(verbose := Service(*listing, "-v"))
    assert verbose.wait() == EXIT_FAILURE
    assert "Connection dropped: socket connection error: Connection refused\n" in verbose.said


def test_a_taken_port_is_named(services: list[Service], tmp_path: Path) -> None:
    port = free_port()
    services.append(first := Service("zookeeper", "--port", port, "--directory", tmp_path / "first"))
    told = first.wait_for(r"ZooKeeper serves on 127.0.0.1:(\d+), process (\d+), log (\S+)\.")
    assert int(told[1]) == port
    services.append(second := Service("zookeeper", "--port", port, "--directory", tmp_path / "second"))
    assert second.wait() == EXIT_FAILURE
    assert f"port {port} is in use: stop the process that listens on it, or choose another with --port" in second.said
    for option in ("--zookeeper-port", "--port"):
        words = ("--zookeeper-port", 0, "--port", 0, "--directory", tmp_path / "third", option, port)
        services.append(third := Service("localbookie", 1, *words))
        assert third.wait() == EXIT_FAILURE
        assert (
            f"port {port} is in use: stop the process that listens on it, or choose another with {option} ("
            in third.said
        )
    assert not (tmp_path / "third").exists()
    assert first.end(signal.SIGTERM) == EXIT_OK
    assert all(is_gone(pid) for pid in first.children)
    assert (tmp_path / "first").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["localbookie"], "N"),
        (["localbookie", "0"], "0 is not a whole number from 1 on"),
        (["localbookie", "2", "-o", "nonsense"], "setting 'nonsense': write it as KEY=VALUE"),
        (
            ["localbookie", "2", "-o", "journalMaxSizeMb=5"],
            "-o: 1 fault in the configuration:\n  command line: unknown",
        ),
        (["localbookie", "2", "-o", "zkTimeout=soon"], "zkTimeout=soon"),
        (["localbookie", "2", "--port", "99999"], "argument --port: '99999' is no port"),
        (["localbookie", "2", "--port", "65535"], "--port 65535: the port of bookie 2 would be 65536"),
        (["localbookie", "2", "--zookeeper-port", "-1"], "argument --zookeeper-port: '-1' is no port"),
        (["zookeeper", "--port", "http"], "argument --port: 'http' is no port"),
    ],
)
def test_wrong_usage_starts_nothing_and_names_the_option(
    words: list[str],
    told: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    outcome = CommandLine(capfd, monkeypatch)(*words, code=EXIT_USAGE)
    assert outcome.out == ""
    assert told in outcome.err
    assert "bookie.conf" not in outcome.err
    assert list(tmp_path.iterdir()) == []


# --- perf and demo


def test_auto_recovery_says_who_has_its_http_port_before_it_looks_for_its_cluster() -> None:
    uri = f"metadataServiceUri=zk://127.0.0.1:{free_port()}/ledgers"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = ["autorecovery", "-o", uri, "-o", "httpServerEnabled=true", "-o", f"httpServerPort={port}"]
        command = [sys.executable, "-m", "bookkeeper.cli.main", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == EXIT_FAILURE
    assert f"port {port} is taken" in done.stdout + done.stderr
    assert f"`ss -ltnp 'sport = :{port}'` shows by whom" in done.stdout + done.stderr
    assert "another httpServerPort" in done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four bookies; the demo's test kills one of them."""
    root = f"/cli-services-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("cluster")
    with local_cluster(zookeeper.address, root, 4, directory=directory, settings=STEADY) as cluster:
        yield cluster


def test_a_bookie_tells_its_heartbeat_and_its_metrics_over_http(cluster: LocalCluster) -> None:
    port = free_port()
    settings = {**FAST, "httpServerEnabled": "true", "httpServerPort": str(port)}
    bookie = LocalBookie(9, cluster.directory / "bookie-9", cluster.uri, free_port(), settings)
    bookie.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/heartbeat", timeout=TIMEOUT_S) as answer:
            assert answer.read() == b"OK\n"
        assert bookie.metrics_url is not None
        shown = read_metrics(bookie.metrics_url)
        assert shown["bookie_journal_JOURNAL_SYNC_count"] >= 0
        assert (shown["bookie_SERVER_STATUS"], shown["bookie_COLD_READS"]) == (1, 0)
        assert shown["bookkeeper_server_LONG_POLLS_WAITING"] == 0
        assert 0 < shown["process_longest_turn_seconds"] < 60
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/nonsense", timeout=TIMEOUT_S)
    finally:
        assert bookie.stop() == EXIT_OK


@pytest.fixture
def short_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its figures are not looked at here."""
    for name in ("ECHO_SECONDS", "SYNC_SECONDS", "APPEND_SECONDS"):
        monkeypatch.setattr(calibrate, name, 0.1)


@pytest.mark.usefixtures("short_calibration")
def test_perf_writes_then_reads_what_it_wrote(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CommandLine(capfd, monkeypatch)
    shared = ("--uri", cluster.uri, "-time", 4, "-throttle", 50, "--json")
    (write,) = json.loads(run("perf", "write", *shared, "--clients", 2, "-ledgers", 2, "-useV2", "false").out)
    assert (write["protocol"], write["clients"], write["outstanding"], len(write["ledger_ids"])) == (3, 2, 100, 4)
    assert write["operations_per_s"] > 0
    assert 0 < write["latency_ms"]["p50"] <= write["latency_ms"]["max"]
    assert write["copies_per_echo"] > 0
    assert write["client_writes_per_operation"] > 0
    (read,) = json.loads(run("perf", "read", *shared, "-ledger", write["ledger_ids"][0]).out)
    assert (read["workload"], read["protocol"]) == ("read", 2)
    assert read["operations_per_s"] > 0


@pytest.mark.usefixtures("short_calibration")
def test_perf_reads_an_open_ledger_without_disturbing_its_writer(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And reports what it read: sizes and quorums are the ledger's, not defaults of the command."""
    run = CommandLine(capfd, monkeypatch)
    settings = ClientSettings(explicit_lac_interval_s=0.0)  # otherwise a pause confirms the last entry, too
    with connect(cluster.uri, settings) as client:
        with client.create(ensemble=2, write_quorum=2, ack_quorum=1, digest=DigestType.MAC) as ledger:
            ledger.append_many([b"seven b"] * 50)
            ledger.append(b"seven b")  # tells the bookies that those before are confirmed
            outcome = run("perf", "read", "--uri", cluster.uri, "-time", 4, "-ledger", ledger.id, "--json")
            assert f"ledger {ledger.id} is still open: reading what is confirmed, up to entry 49 now" in outcome.err
            assert client.metadata(ledger.id).state is LedgerState.OPEN
            assert ledger.append(b"goes on") == 51
        assert client.metadata(ledger.id).last_entry_id == 51
    (read,) = json.loads(outcome.out)
    assert (read["entry_size"], read["ensemble"], read["write_quorum"], read["ack_quorum"]) == (7, 2, 2, 1)
    assert read["digest"] == "MAC"
    assert read["megabytes_per_s"] == pytest.approx(read["operations_per_s"] * 7 / 1e6)


def test_ordinary_mistakes_with_perf_are_told_in_one_line(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CommandLine(capfd, monkeypatch)
    empty = run("ledger", "create", "--uri", cluster.uri).out.strip()
    with connect(cluster.uri) as client, client.create() as unconfirmed, client.create(password=b"secret") as locked:
        for words, told in (
            (("read", "-ledger", 99999), "99999"),
            (("read", "-ledger", empty), "is empty: nothing to read"),
            (("read", "-ledger", unconfirmed.id), "nothing of it is confirmed yet"),
            (("read", "-ledger", locked.id, "-password", "wrong"), "the password is not the one"),
            (("write", "-ensemble", 9), "-ensemble 9: the cluster has"),
            (("write", "--uri", f"zk://127.0.0.1:{free_port()}/ledgers", "-D", "zkTimeout=500"), "no answer from"),
        ):
            said = run("perf", words[0], "--uri", cluster.uri, *words[1:], code=EXIT_FAILURE).err
            assert told in said
            assert "Traceback" not in said
            assert said.count("\n") == 1


def test_what_goes_wrong_in_a_client_process_is_told_in_one_line(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """Here the ledger, in practice a bookie, is gone after the checks were passed."""
    task = Task(uri=cluster.uri, outstanding=10, seconds=1.0, use_v2=True, ledger_ids=(99999,))
    with pytest.raises(CommandFailed, match="99999"):
        run_workload(task, clients=2)
    assert capfd.readouterr().err == ""


def test_a_calibration_that_is_stopped_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def stopped(connection: socket.socket) -> float:
        connection.sendall((60).to_bytes(4, "big") + bytes(60))
        select.select([connection], [], [], TIMEOUT_S)  # closed with an answer in it: the other side gets a reset
        raise SystemExit(EXIT_INTERRUPTED)

    monkeypatch.setattr(calibrate, "_echo_client", stopped)
    with pytest.raises(SystemExit):
        calibrate.echo_frames_per_s()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda sign: sign.name)
def test_client_processes_end_with_perf(cluster: LocalCluster, services: list[Service], sign: signal.Signals) -> None:
    words = ("--uri", cluster.uri, "-time", 3600, "--clients", 2, "-throttle", 10)
    services.append(service := Service("perf", "write", *words))
    service.wait_for("measuring for 3600 s")
    clients = [os.pidfd_open(pid) for pid in service.children]
    assert len(clients) == 2
    code = service.end(sign)
    assert code == (EXIT_INTERRUPTED if sign is not signal.SIGKILL else -signal.SIGKILL)
    assert service.said.count("\n") == 1
    for client in clients:
        ended, _, _ = select.select([client], [], [], TIMEOUT_S)
        assert ended
        os.close(client)


@pytest.mark.usefixtures("short_calibration")
def test_perf_bench_runs_a_cluster_of_its_own_and_reads_its_bookies_counters(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CommandLine(capfd, monkeypatch)
    words = ("--sizes", 100, "--windows", 20, "--versions", 2, "-time", 4, "-ledgers", 30)  # above the window
    outcome = run("perf", "bench", *words, *SETTINGS)
    legend, calibration, header, write, read, *_ = outcome.lines
    assert "E=3 Qw=2 Qa=2 digest CRC32C" in legend
    assert "30 ledgers each" in legend
    assert re.search(r"echo [\d,]+ frames/s, fdatasync p50 [\d.]+ ms", calibration)
    columns = header.split()
    assert columns[:5] == ["what", "bytes", "window", "v", "ops/s"]
    assert write.split()[:4] == ["write", "100", "20", "2"]
    assert read.split()[:4] == ["read", "100", "20", "2"]
    assert "-" not in write.split()


def test_the_demo_loses_nothing_when_a_bookie_is_killed(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = [Stream(f"package-{n}", [b"%d-%d" % (n, i) for i in range(20 + n)]) for n in range(10)]
    with connect(cluster.uri) as client:
        written = demo_ledgers.write(cluster, client, packages)
        assert written.entries == sum(len(stream.entries) for stream in packages)
        assert not next(b for b in cluster.bookies if b.bookie_id == written.killed).running
        assert demo_ledgers.verify(client, written) >= 1
        fragments = client.metadata(written.ledgers["package-5"].ledger_id).fragments
        assert BookieId(written.killed) in fragments[0].ensemble
        assert BookieId(written.killed) not in fragments[-1].ensemble
    assert "all equal to what was acknowledged, 0 missing" in capsys.readouterr().out


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=lambda sign: sign.name)
def test_a_stopped_demo_leaves_nothing_behind(
    tmp_path: Path, sign: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with start("demo", "ledgers", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        try:
            assert demo.stdout is not None
            while not (line := demo.stdout.readline()).startswith("Cluster: "):
                assert line, "it ended before its cluster was up"
            demo.send_signal(sign)
            _, said = demo.communicate(timeout=TIMEOUT_S)
            assert demo.returncode == EXIT_INTERRUPTED
            assert said == ""
        finally:
            demo.kill()
    assert list(tmp_path.iterdir()) == []


def test_the_demo_would_notice_a_lost_or_changed_entry(cluster: LocalCluster) -> None:
    with connect(cluster.uri) as client:
        with client.create() as ledger:
            ledger.append_many([b"one", b"two"])
        for entries in ([b"one"], [b"one", b"tow"], [b"one", b"two", b"three"]):
            written = demo_ledgers.Written()
            written.note("package", ledger.id, entries)
            with pytest.raises(CommandFailed, match=rf"ledger {ledger.id} \(package\)"):
                demo_ledgers.verify(client, written)
