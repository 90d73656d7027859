"""`journalmgr perf` on clusters of its own: it measures, and checks what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bookkeeper.console.output import EXIT_USAGE
from journalmgr.cli.main import main
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(capfd, monkeypatch, main)


def test_writers_go_on_when_a_bookie_is_killed_and_everything_acknowledged_is_there(run: CommandLine) -> None:
    outcome = run("perf", "writers", "--writers", "2", "--writer-callers", "4", "--seconds", "1", "--json")
    assert "SIGKILL of bookie 127.0.0.1:" in outcome.err
    found = json.loads(outcome.out)["writers"]
    assert [each["writer"] for each in found] == [1, 2]
    for each in found:
        assert each["edits_per_s_before"] > 0
        assert each["edits_per_s_after"] > 0
        assert (each["missing"], each["doubled"]) == (0, 0)


def test_synced_edits_are_measured_by_callers_on_a_journal_that_is_empty(run: CommandLine, tmp_path: Path) -> None:
    words = ("perf", "sync", f"file://{tmp_path}/journal", "--callers", "1,4", "--seconds", "0.5", "--json")
    one, four = json.loads(run(*words).out)["sync"]
    assert (one["callers"], one["edits_per_flush"]) == (1, 1.0)
    assert four["callers"] == 4
    assert 0 < four["edits_per_flush"] <= 4
    assert "--force" in run(*words, code=EXIT_USAGE).err
