"""`bookkeeper perf rereplicate` as an operator runs it, with a few ledgers; no figure is judged."""

import json

import pytest

from bookkeeper.cli.perf import calibrate
from bookkeeper.console.output import EXIT_USAGE
from tests.support.cluster import FAST
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.timeout(300)

# After the loss there is no spare bookie, so a bookie that pauses must stay registered.
SETTINGS = [word for key, value in {**FAST, "zkTimeout": "6000"}.items() for word in ("-o", f"{key}={value}")]


def test_every_copy_of_a_lost_bookie_is_there_again_and_was_verified(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ECHO_SECONDS", "SYNC_SECONDS", "APPEND_SECONDS"):
        monkeypatch.setattr(calibrate, name, 0.05)
    run = CommandLine(capfd, monkeypatch)
    out = run("perf", "rereplicate", "--ledgers", 20, "--entries", 5, "-time", 5, "--json", *SETTINGS).out
    told = json.loads(out)
    assert (told["error_count"], told["errors"]) == (0, [])
    assert told["verified_entries"] == 100
    assert told["lost_copies"] == 67  # two of three members have an entry: 4, 3 and 3 of five on each place
    assert told["healed_s"] > told["marked_s"] > 0
    assert told["load_adds"] > 0
    assert told["copies_per_s"] > 0


def test_quorums_that_cannot_be_are_told_before_anything_starts(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CommandLine(capfd, monkeypatch)
    assert "write quorum 4" in run("perf", "rereplicate", "-quorum", 4, code=EXIT_USAGE).err
