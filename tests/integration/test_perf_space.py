"""`bookkeeper perf collect` and `soak` as an operator runs them, with little of everything; no figure is judged."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.cli.perf import calibrate
from bookkeeper.cli.perf.soak_record import LOAD, processes, read_soak
from bookkeeper.console.output import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_USAGE
from tests.support.cluster import FAST, STEADY, local_cluster
from tests.support.command_line import CommandLine, start

pytestmark = pytest.mark.timeout(300)

SETTINGS = [word for key, value in {**FAST, **STEADY}.items() for word in ("-o", f"{key}={value}")]


@pytest.fixture(autouse=True)
def _short_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ECHO_SECONDS", "SYNC_SECONDS", "APPEND_SECONDS"):
        monkeypatch.setattr(calibrate, name, 0.05)


def test_space_comes_back_under_load_and_everything_is_read_as_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CommandLine(capfd, monkeypatch)
    words = ("--fill", 48, "--log-size", 8, "-time", 5, "--rate", 6000, "--compaction-rate", 0, "--json")
    out = run("perf", "collect", *words, "--directory", tmp_path / "data", *SETTINGS).out
    told = json.loads(out)
    assert told["error_count"] == 0
    assert told["errors"] == []
    assert told["removed_bytes"] + told["rewritten_bytes"] > 0
    assert told["verified_entries"] * 1024 < told["added_bytes"]  # the rest was deleted
    assert told["written_bytes"] > told["added_bytes"] * told["replication"]["write_quorum"]
    assert [phase["phase"] for phase in told["phases"]] == [
        "undisturbed", "delete", "collect", "after", "undisturbed, both",
    ]  # fmt: skip
    assert all(phase["adds"] for phase in told["phases"] if phase["phase"] != "delete")
    assert told["rate_ratio"] > 0


def test_a_cluster_that_runs_is_told_to_collect_over_http(
    zookeeper: Any,
    ledgers_root: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its bookies are other people's: what only their machine knows is not told, nor made up."""
    run = CommandLine(capfd, monkeypatch)
    small = {"nettyMaxFrameSizeBytes": "1048576", "logSizeLimit": "2097152", "skipListSizeLimit": "2097152"}
    settings = {**STEADY, **small, "httpServerEnabled": "true", "httpServerPort": "0"}
    words = ("-ensemble", 2, "--fill", 12, "-time", 5, "--rate", 4000)
    with local_cluster(zookeeper.address, ledgers_root, 2, directory=tmp_path, settings=settings) as cluster:
        addresses = [
            (bookie.metrics_url or "").removeprefix("http://").removesuffix("/metrics") for bookie in cluster.bookies
        ]
        https = [word for address in addresses for word in ("--http", address)]
        told = run("perf", "collect", "--uri", cluster.uri, *https, *words).out
        assert "errors: 0" in told
        assert "closed, at the last round" in told
        assert "what bookies wrote is not known here" in told
        assert "beyond that" not in told
        assert "given back 0B" not in told
        refused = run("perf", "collect", "--uri", cluster.uri, "--http", "127.0.0.1:1", *words, code=EXIT_FAILURE)
        assert "bookie 127.0.0.1:1 at http://127.0.0.1:1 does not tell its metrics" in refused.err


def test_what_cannot_be_collected_is_told_before_anything_starts(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CommandLine(capfd, monkeypatch)
    for words, told in (
        (("--uri", "zk://127.0.0.1:1/ledgers"), "--http HOST:PORT of every bookie"),
        (("--http", "127.0.0.1:1"), "give its --uri"),
        (("-ensemble", 4), "--bookies is 3"),
        (("-o", "logSizeLimit=lots"), "logSizeLimit"),
        (("--delete", "1.5"), "must be above 0 and below 1"),
    ):
        assert told in run("perf", "collect", *words, code=EXIT_USAGE).err


def test_a_measurement_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    process = start(
        "perf", "collect", "--fill", 4096, "--rate", 100, *SETTINGS,
        stderr=subprocess.PIPE, environment={"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stderr is not None
    assert "filling" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == EXIT_INTERRUPTED
    assert list(tmp_path.iterdir()) == []


def test_a_soak_records_every_process_and_its_record_can_be_told_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CommandLine(capfd, monkeypatch)
    record = tmp_path / "soak.csv"
    words = ("--minutes", 0.3, "--every", 1, "--rate", 3000, "--keep", 1, "--log-size", 8, "--gc-wait", 1)
    out = run("perf", "soak", *words, "--csv", record, "--directory", tmp_path / "data", *SETTINGS).out
    with record.open(newline="") as file:
        lines = read_soak(file)
    assert processes(lines) == [LOAD, "bookie 1", "bookie 2", "bookie 3"]
    assert len(lines) >= 4 * 8
    assert all(line.figures["resident_bytes"] > 1e6 and line.figures["open_files"] > 3 for line in lines)
    last = {line.process: line.figures for line in lines[-4:]}
    assert last[LOAD]["errors"] == 0
    assert last["bookie 1"]["ledger_bytes"] > 0
    assert last["bookie 1"]["gc_ledgers_deleted"] > 0  # collected by itself, by proof
    told = [line for line in out.splitlines() if line.startswith(("resident_bytes", "adds_per_s"))]
    assert len(told) == 5
    assert "errors: 0" in out
    again = run("perf", "soak", "--plot", record).out
    assert told == [line for line in again.splitlines() if line.startswith(("resident_bytes", "adds_per_s"))]
    assert "is there already" in run("perf", "soak", "--csv", record, code=EXIT_USAGE).err
    assert "not that of a soak" in run("perf", "soak", "--plot", __file__, code=EXIT_FAILURE).err
