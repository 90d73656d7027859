"""The check behind `journalmgr perf writers` finds what was lost, doubled or given another txid."""

from __future__ import annotations

from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.cli.output import CommandFailed
from journalmgr.cli.bookie_loss import Writer, audit
from journalmgr.edit_log import EditLog
from journalmgr.model import TxId
from tests.support.scripted_journal import ScriptedJournal

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
