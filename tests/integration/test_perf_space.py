"""`bookkeeper perf collect`, as an operator runs it, with little of everything: no figure is looked at, only facts."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from bookkeeper.cli.output import EXIT_INTERRUPTED, EXIT_USAGE
from bookkeeper.cli.perf import calibrate
from tests.support.cluster import FAST
from tests.support.command_line import CommandLine, start

SETTINGS = [word for key, value in FAST.items() for word in ("-o", f"{key}={value}")]


@pytest.fixture(autouse=True)
def _short_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ECHO_SECONDS", "SYNC_SECONDS", "APPEND_SECONDS"):
        monkeypatch.setattr(calibrate, name, 0.05)


def test_space_comes_back_under_load_and_everything_is_read_as_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CommandLine(capfd, monkeypatch)
    words = ("--fill", 48, "--log-size", 8, "-time", 1, "--rate", 6000, "--compaction-rate", 0, "--json")
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
    process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED
    assert list(tmp_path.iterdir()) == []
