"""The edit log at its ends: closing, giving up and rolling while something else is under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.errors import BookKeeperError
from journalmgr.contract import SegmentWriter
from journalmgr.edit_log import EditLog, LogState
from journalmgr.edits.ops import Mkdir
from journalmgr.errors import JournalClosed, LogFull, StreamFailed, TransactionTooLarge, WriterReplaced
from journalmgr.model import HADOOP_2_7, OPAQUE, Segment, TxId
from tests.support.scripted_journal import ScriptedJournal


def told(deferred: Deferred[Any]) -> list[Any]:
    """Fills with the result, an error as its type."""
    results: list[Any] = []
    deferred.addCallbacks(results.append, lambda failure: results.append(failure.type))
    return results


def opened(journal: ScriptedJournal, **options: Any) -> EditLog:
    """A log that writes, with its START durable."""
    log = EditLog(journal, **options)
    log.recover()
    log.open(1)
    if not journal.answers_at_once:
        journal.writer.flushes[0].answer()
    assert log.state is LogState.WRITING
    return log


class SlowJournal(ScriptedJournal):
    """`hold` is a start, a list or a finalising that does not come to its end until the test says so."""

    def __init__(self, *, answers_at_once: bool = False) -> None:
        super().__init__(answers_at_once=answers_at_once)
        self.holds: dict[str, Deferred[None]] = {}

    def _later(self, what: str, do: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        held = self.holds.get(what)
        return do() if held is None else held.addCallback(lambda _: do())

    def start_segment(self, first_txid: TxId, layout_version: int) -> Deferred[SegmentWriter]:
        return self._later("start", lambda: ScriptedJournal.start_segment(self, first_txid, layout_version))

    def finalize_segment(self, first_txid: TxId, last_txid: TxId) -> Deferred[Segment]:
        return self._later("finalise", lambda: ScriptedJournal.finalize_segment(self, first_txid, last_txid))

    def segments(self) -> Deferred[list[Segment]]:
        return self._later("list", lambda: ScriptedJournal.segments(self))


def test_closing_twice_while_the_first_is_under_way_ends_both_and_every_caller() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    appended = told(log.append(b"x"))
    closed = [told(log.close()), told(log.close())]
    while journal.writer.flushes:
        journal.writer.flushes[0].answer()
    assert appended == [2]
    assert closed == [[None], [None]]
    assert log.state is LogState.CLOSED
    assert journal.finalised == [Segment(TxId(1), TxId(3), OPAQUE)]


def test_closing_twice_during_a_roll_ends_both() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    rolled = told(log.roll())
    closed = [told(log.close()), told(log.close())]
    for writer in (journal.writers[0], None):
        flushes = (writer or journal.writer).flushes
        while flushes:
            flushes[0].answer()
    assert rolled == [3]
    assert closed == [[None], [None]]
    assert log.state is LogState.CLOSED


def test_the_second_of_two_closes_fails_as_the_first_does() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    closed = [told(log.close()), told(log.close())]
    journal.writer.flushes[0].fail(WriterReplaced("recovered by another"))
    assert closed == [[WriterReplaced], [WriterReplaced]]
    assert told(log.close()) == [None]


@pytest.mark.parametrize("room", range(0, 120, 5))
def test_a_log_that_is_full_is_rolled_and_closed_all_the_same(room: int) -> None:
    """END and START are the log's own: what callers have pending is no reason to be stuck between two segments."""
    journal = ScriptedJournal()
    log = opened(journal, pending_bytes_max=room)
    waiting: list[list[Any]] = []
    while not waiting or waiting[-1] != [LogFull]:
        waiting.append(told(log.append(b"0123456789")))
    waiting.pop()
    rolled, ready = told(log.roll()), told(log.ready())
    while journal.writers[0].flushes:
        journal.writers[0].flushes[0].answer()
    while journal.writer.flushes:
        journal.writer.flushes[0].answer()
    assert rolled == [len(waiting) + 3]
    assert ready == [None]
    assert all(waiting)
    appended = told(log.append(b"after"))
    closed = told(log.close())
    while journal.writer.flushes:
        journal.writer.flushes[0].answer()
    assert appended == [len(waiting) + 4]
    assert closed == [None]


@pytest.mark.parametrize("step", ["list", "start"])
def test_a_log_that_was_given_up_while_it_was_opened_writes_nothing(step: str) -> None:
    """I-80: who gave up because another may be the writer does not become one after that."""
    journal = SlowJournal(answers_at_once=True)
    failures: list[BookKeeperError] = []
    log = EditLog(journal, on_failed=failures.append)
    log.recover()
    held = journal.holds[step] = Deferred()
    opening = told(log.open(1))
    log.abort()
    del journal.holds[step]
    held.callback(None)
    assert opening == [JournalClosed]
    assert log.state is LogState.FAILED
    assert len(failures) == 1
    assert all(writer.closed and not writer.records for writer in journal.writers)


@pytest.mark.parametrize("step", ["finalise", "start"])
def test_a_log_that_was_given_up_while_it_rolled_begins_no_segment(step: str) -> None:
    journal = SlowJournal(answers_at_once=True)
    log = opened(journal)
    held = journal.holds[step] = Deferred()
    rolled = told(log.roll())
    log.abort()
    del journal.holds[step]
    held.callback(None)
    assert rolled == [JournalClosed]
    assert [writer.closed for writer in journal.writers[1:]] == ([] if step == "finalise" else [True])
    assert log.segment_first_txid is None


@pytest.mark.parametrize("close", [False, True])
def test_an_error_that_is_not_the_journals_ends_the_log_instead_of_leaving_it_between_segments(*, close: bool) -> None:
    journal = ScriptedJournal(answers_at_once=True)
    failures: list[BookKeeperError] = []
    log = opened(journal, on_failed=failures.append)
    journal.finalise_error = RuntimeError("a fault")
    ended = told(log.close() if close else log.roll())
    assert ended == [RuntimeError]
    assert [type(error) for error in failures] == [StreamFailed]
    assert told(log.append(b"x")) == [StreamFailed]


def test_operations_of_one_request_are_taken_together_or_not_at_all() -> None:
    journal = ScriptedJournal()
    log = opened(journal, layout_version=HADOOP_2_7, pending_bytes_max=10)
    before = log.next_txid
    with pytest.raises(TransactionTooLarge):
        log.log_ops([Mkdir(path="/a"), Mkdir(path="/" + "x" * 2000)])
    assert log.next_txid == before
    ops = [Mkdir(path="/a"), Mkdir(path="/b")]
    assert log.log_ops(ops) == before + 1  # the second is taken although the first filled the log
    assert [op.txid for op in ops] == [before, before + 1]
    with pytest.raises(LogFull):
        log.log_ops([Mkdir(path="/c")])
    assert log.next_txid == before + 2
