"""`bookkeeper spark sweep`: what it says of ledgers that cannot be judged, and its exit code."""

from __future__ import annotations

import json

import pytest

from bookkeeper.cli.main import main
from bookkeeper.cli.spark import sweep as command
from bookkeeper.spark.sink.commit_format import Kind, Owner
from bookkeeper.spark.sink.purpose import REMEDIES, Fate, Purpose
from bookkeeper.spark.sink.sweep import Orphan, Swept, Unknown

JOB = Owner(Kind.JOB, "j")
ORPHAN = Orphan(3, Purpose(JOB, "w", 0, 0, 0, 1000, "/spark"), Fate.ABORTED)
LOST = Unknown(7, JOB, Fate.NO_HEAD, "/spark/jobs/j")


def swept(monkeypatch: pytest.MonkeyPatch, *unknown: Unknown, words: tuple[str, ...] = ()) -> int:
    found = Swept((ORPHAN,), {each.fate: 1 for each in unknown}, unknown, dry_run=False)
    monkeypatch.setattr(command, "sweep", lambda *_, **__: found)
    return main(["spark", "sweep", "--commit-path", "/spark", *words])


def test_the_exit_code_says_whether_all_ledgers_could_be_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swept(monkeypatch) == 0
    assert swept(monkeypatch, LOST) == 3
    said = capsys.readouterr()
    assert said.out.count("ledger 3 (job j, batch 0, partition 0, attempt 0): its write was given up") == 2
    assert f"/spark/jobs/j: 1 ledger of job j (7): {Fate.NO_HEAD.value}: {LOST.remedy}" in said.err


def test_json_names_each_ledger_that_could_not_be_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swept(monkeypatch, LOST, words=("--json",)) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["orphans"] == [{"ledger_id": 3, "why": "its write was given up"}]
    assert found["unknown"] == [
        {
            "ledger_id": 7,
            "owner": "job j",
            "where": "/spark/jobs/j",
            "why": Fate.NO_HEAD.value,
            "remedy": REMEDIES[Fate.NO_HEAD],
        }
    ]
    assert swept(monkeypatch, words=("--json",)) == 0
