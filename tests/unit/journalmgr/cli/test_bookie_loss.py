"""`journalmgr perf writers`: lost, duplicate and renumbered records are found, and each writer has rates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.console.output import CommandFailed
from journalmgr.cli import bookie_loss
from journalmgr.cli.bookie_loss import Loss, Writer, audit, write_through
from journalmgr.edit_log import EditLog
from journalmgr.model import TxId
from tests.support.scripted_journal import ScriptedJournal
from tests.support.stalled_log import StalledLog

LABELS = [bytes([number]) * 12 for number in range(3)]


def audited(payloads: list[bytes], acknowledged: list[tuple[int, bytes]]) -> list[Any]:
    """What `audit` comes to for a journal of these payloads, from txid 2 on."""
    journal = ScriptedJournal(answers_at_once=True)
    log = EditLog(journal)
    log.recover()
    log.open(1)
    for payload in payloads:
        log.append(payload)
    log.close()
    writer = Writer(cast(Any, journal), log, [(TxId(txid), label) for txid, label in acknowledged])
    results: list[Any] = []
    auditing = Deferred.fromCoroutine(audit([writer], [journal]))
    auditing.addCallbacks(results.append, lambda failure: results.append(failure.value))
    return results


def test_what_was_acknowledged_is_there_once_and_more_may_be() -> None:
    acknowledged = [(2, LABELS[0]), (3, LABELS[1])]
    assert audited([label + b"padding" for label in LABELS], acknowledged) == [None]


@pytest.mark.parametrize(
    ("payloads", "acknowledged"),
    [
        ([LABELS[0]], [(2, LABELS[0]), (3, LABELS[1])]),
        ([LABELS[0], LABELS[0]], [(2, LABELS[0])]),
        ([LABELS[1], LABELS[0]], [(2, LABELS[0]), (3, LABELS[1])]),
    ],
    ids=["lost", "doubled", "another txid"],
)
def test_what_is_wrong_is_found(payloads: list[bytes], acknowledged: list[tuple[int, bytes]]) -> None:
    (error,) = audited(payloads, acknowledged)
    assert isinstance(error, CommandFailed)
    assert "writer 1: txid" in str(error)


def test_writers_that_stand_still_over_the_middle_and_the_end_have_rates_before_the_kill_and_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    monkeypatch.setattr(bookie_loss, "time", SimpleNamespace(perf_counter=lambda: now_s))
    logs = [StalledLog(), StalledLog()]
    writers = [Writer(cast(Any, None), cast(Any, log)) for log in logs]
    kills: list[float] = []
    found: list[list[Loss]] = []
    Deferred.fromCoroutine(write_through(writers, 1, 64, 1.0, lambda: kills.append(now_s))).addCallback(found.append)
    logs[0].acknowledge()
    now_s = 5.0
    logs[0].acknowledge()
    assert not kills, "the second writer has nothing yet"
    logs[1].acknowledge()
    assert kills == [5.0]
    now_s = 6.0
    for log in logs:
        log.acknowledge()
    assert [(loss.before_per_s, loss.after_per_s) for loss in found[0]] == [(0.4, 1.0), (0.2, 1.0)]
    assert kills == [5.0]
