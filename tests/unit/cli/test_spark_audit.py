"""`bookkeeper spark audit`: what is printed of findings, and of who mends what was queued."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import NoReturn, Self

import pytest

import bookkeeper.spark
from bookkeeper.cli.spark import audit, command
from bookkeeper.cli.spark.words import EXIT_WRONG
from bookkeeper.cli.why.menders import Menders
from bookkeeper.config import ClientSettings
from bookkeeper.console.output import EXIT_OK
from bookkeeper.errors import BookKeeperError, MetadataUnavailable
from bookkeeper.model import BookieId
from bookkeeper.spark.audit.repairs import Queued

pytestmark = pytest.mark.usefixtures("no_log")

NOBODY = "nothing by itself: no process with auto-recovery runs that mends reported copies"
RUN_IT = "do: run auto-recovery: bookkeeper autorecovery, or autoRecoveryDaemonEnabled=true on bookies"


class Findings:
    """Rows of one finding: 94 entries of a bookie among 7669..7809."""

    def orderBy(self, *_: str) -> Self:
        return self

    def limit(self, count: int) -> Self:
        del count
        return self

    def collect(self) -> list[dict[str, object]]:
        return [
            {
                "ledger_id": 7,
                "kind": "missing",
                "first_entry_id": 7669,
                "last_entry_id": 7809,
                "bookie": "b1:3181",
                "good_copies": 2,
                "detail": None,
                "entries": 94,
                "copies": None,
                "bytes": None,
            }
        ]


def found_by(
    monkeypatch: pytest.MonkeyPatch, queued: Queued | BookKeeperError, answer: Menders | BookKeeperError, *words: str
) -> int:
    """The exit code of an audit that finds that."""
    made = SimpleNamespace(
        findings=Findings(),
        ledgers=1,
        entries=10_000,
        copies=30_000,
        found={"missing": 1},
        unknown_copies=0,
        in_place={},
        in_place_unread=(),
        held_unknown={},
        is_clean=False,
        only_unknown=False,
    )

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[None]:
        yield None

    def queue_repairs(*_: object) -> Queued:
        if isinstance(queued, BookKeeperError):
            raise queued
        return queued

    def find_menders(uri: str, settings: ClientSettings) -> Menders:
        assert uri == settings.metadata_service_uri == "zk://zk1:2181/ledgers"
        if isinstance(answer, BookKeeperError):
            raise answer
        return answer

    monkeypatch.setattr(audit, "spark_session", session)
    monkeypatch.setattr(audit, "audit", lambda *_, **__: made)
    monkeypatch.setattr(audit, "queue_repairs", queue_repairs)
    monkeypatch.setattr(audit, "find_menders", find_menders)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return audit.run_audit(parser.parse_args(["audit", "--uri", "zk://zk1:2181/ledgers", *words]))


B = BookieId("b9:3181")
AT_WORK = Menders(True, B, 2)


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (AT_WORK, []),
        (Menders(True, None, 0, works=True), []),
        (Menders(True, None, 0), [NOBODY, RUN_IT]),
        (
            Menders(True, B, 0),
            [f"{NOBODY}: the auditor is none of ours, and Apache's know no such reports", RUN_IT],
        ),
        (
            Menders(False, B, 2),
            ["nothing by itself: auto-recovery is disabled", "do: bookkeeper shell autorecovery -enable"],
        ),
        (
            Menders(True, None, MetadataUnavailable("zk1 is away")),
            ["whether a process with auto-recovery runs is unknown: zk1 is away"],
        ),
        (
            Menders(MetadataUnavailable("zk1 is away"), None, 1),
            ["whether auto-recovery is on is unknown: zk1 is away"],
        ),
        (
            MetadataUnavailable("zk1 is away"),
            ["whether a process with auto-recovery runs is unknown: zk1 is away"],
        ),
    ],
)
def test_repairs_that_wait_for_nobody_are_told_as_why_tells_them(
    answer: Menders | BookKeeperError,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert found_by(monkeypatch, Queued(1, 1), answer, "--repair", "--json") == EXIT_WRONG
    said = capsys.readouterr().err.splitlines()
    assert said == ["queued for auto-recovery: 1 range of 1 ledger", *lines]


def test_where_nothing_is_queued_nobody_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert found_by(monkeypatch, Queued(0, 0), Menders(True, None, 0), "--repair", "--json") != EXIT_OK
    assert NOBODY not in capsys.readouterr().err


def test_repairs_that_could_not_be_queued_can_be_queued_from_the_audit_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = MetadataUnavailable("zk1 is away")
    with pytest.raises(MetadataUnavailable):
        found_by(monkeypatch, away, AT_WORK, "--repair", "--json", "--output", "/backup/1")
    said = capsys.readouterr().err.splitlines()
    assert said == ["the audit is kept in /backup/1: the same command with --resume queues what is to be repaired"]
    with pytest.raises(MetadataUnavailable):
        found_by(monkeypatch, away, AT_WORK, "--repair", "--json")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "begun", "says"),
    [
        ((), False, "nothing of it is kept; with --output an audit can go on where it was"),
        (
            ("--output", "/backup/1"),
            False,
            "nothing is begun in /backup/1 yet: the same command, without --resume, begins it",
        ),
        (
            ("--output", "/backup/1"),
            True,
            "what is done is kept: the same command with --resume goes on in /backup/1",
        ),
        (
            ("--output", "/backup/1", "--resume"),
            False,
            "what is done is kept: the same command with --resume goes on in /backup/1",
        ),
    ],
)
def test_only_an_audit_that_was_begun_is_said_to_go_on_when_it_is_interrupted(
    words: tuple[str, ...],
    begun: bool,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object, on_begun: Callable[[], None], **__: object) -> NoReturn:
        if begun:
            on_begun()
        raise KeyboardInterrupt

    monkeypatch.setattr(bookkeeper.spark, "local_session", lambda *_, **__: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(audit, "audit", interrupted)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(KeyboardInterrupt):
        audit.run_audit(parser.parse_args(["audit", "--uri", "zk://zk1:2181/ledgers", *words]))
    assert capsys.readouterr().err.splitlines() == [f"interrupted; {says}"]


def test_a_finding_says_how_many_entries_of_its_range_it_is_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found_by(monkeypatch, Queued(0, 0), AT_WORK)
    header, row = capsys.readouterr().out.splitlines()[:2]
    assert header.split("  ")[0] == "finding"
    at = header.index(" entries ") + 1
    assert row[at:].split()[0] == "94"
    assert row.split()[:4] == ["missing", "7", "7669", "7809"]
