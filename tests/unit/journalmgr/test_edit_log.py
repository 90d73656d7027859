"""The edit log: txids, group commit, rolling, and what everybody hears when it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, InvalidArgument
from journalmgr.contract import Record, RecordBatch
from journalmgr.edit_log import EditLog, LogState
from journalmgr.edits.codec import decode
from journalmgr.edits.frame import FRAME_SIZE, RecordDecoder
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import Mkdir
from journalmgr.errors import (
    GapInTransactions,
    JournalClosed,
    JournalError,
    LogFull,
    StreamFailed,
    TransactionTooLarge,
    WriterReplaced,
)
from journalmgr.model import HADOOP_2_7, OPAQUE, Segment, TxId
from journalmgr.replaying import replay
from tests.support.scripted_journal import ScriptedJournal

T = TypeVar("T")


def now(deferred: Deferred[T]) -> T:
    """The result of a Deferred that has fired."""
    results: list[Any] = []
    deferred.addBoth(results.append)
    assert results, "not fired yet"
    if isinstance(results[0], Failure):
        raise results[0].value  # type: ignore[misc]
    result: T = results[0]
    return result


def outcomes(*deferreds: Deferred[Any]) -> list[list[Any]]:
    """Lists that fill with the results (errors as their types) of Deferreds once they fire."""
    found: list[list[Any]] = []
    for deferred in deferreds:
        results: list[Any] = []
        deferred.addCallbacks(results.append, lambda failure, into=results: into.append(failure.type))
        found.append(results)
    return found


def opened(journal: ScriptedJournal, next_txid: int = 1, **options: Any) -> EditLog:
    """A log that writes; its first START is durable."""
    log = EditLog(journal, **options)
    now(log.recover())
    opening = log.open(next_txid)
    if not journal.answers_at_once:
        journal.writer.flushes[0].answer()
    assert now(opening) == next_txid + 1
    return log


def records_of(journal: ScriptedJournal, layout_version: int = OPAQUE) -> list[Record]:
    """All records of all segments."""
    data = b"".join(b"".join(writer.records) for writer in journal.writers)
    return RecordDecoder(layout_version, source="test").feed(data)


def collected(batches: AsyncIterator[RecordBatch]) -> list[Record]:
    """All records of an iterator that never waits."""

    async def collect() -> list[Record]:
        return [record async for batch in batches for record in batch.records]

    return now(Deferred.fromCoroutine(collect()))


def test_a_segment_begins_with_a_start_record_that_is_durable_before_anything_is_taken() -> None:
    journal = ScriptedJournal()
    log = EditLog(journal)
    now(log.recover())
    opening = log.open(1)
    with pytest.raises(AssertionError):
        now(opening)
    journal.writer.flushes[0].answer()
    assert [record.opcode for record in records_of(journal)] == [OpCode.START_LOG_SEGMENT]


def test_what_is_logged_during_a_flush_leaves_in_one_next_flush() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    first = outcomes(log.append(b"one"))
    others = outcomes(*[log.append(b"%d" % number) for number in range(20)])
    assert journal.writer.batches == [1, 1]
    journal.writer.flushes[0].answer()
    assert first == [[2]]
    assert others == [[]] * 20
    assert journal.writer.batches == [1, 1, 20]
    journal.writer.flushes[0].answer()
    assert others == [[number] for number in range(3, 23)]
    assert log.durable_txid == 22


def test_callers_that_are_woken_and_append_again_share_the_next_flush() -> None:
    journal = ScriptedJournal()
    log = opened(journal)

    async def caller() -> None:
        for _ in range(3):
            await log.append(b"x")

    for _ in range(16):
        Deferred.fromCoroutine(caller())
    for _ in range(4):
        journal.writer.flushes[0].answer()
    assert journal.writer.batches == [1, 1, 15 + 1, 15 + 1, 15]
    assert log.durable_txid == 49


def test_acknowledgements_come_in_the_order_of_txids_also_to_who_asks_late_for_an_early_one() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    told: list[int] = []
    for txid in (log.log(OpCode.OPAQUE, b"a"), log.log(OpCode.OPAQUE, b"b")):
        log.sync(txid).addCallback(told.append)
    log.sync(2).addCallback(told.append)
    journal.writer.flushes[0].answer()
    journal.writer.flushes and journal.writer.flushes[0].answer()
    assert sorted(told) == [2, 2, 3]
    assert told[-1] == 3


def test_sync_of_what_is_durable_fires_at_once_and_of_what_was_never_logged_fails() -> None:
    log = opened(ScriptedJournal(answers_at_once=True))
    txid = now(log.append(b"x"))
    assert now(log.sync(txid)) == txid
    assert now(log.sync()) == txid
    with pytest.raises(InvalidArgument, match="never logged"):
        now(log.sync(txid + 1))


def test_a_failed_flush_is_told_to_all_and_for_ever() -> None:
    """I-82."""
    journal = ScriptedJournal()
    failures: list[BookKeeperError] = []
    log = opened(journal, on_failed=failures.append)
    waiting = outcomes(log.append(b"a"), log.append(b"b"))
    error = WriterReplaced("somebody else")
    journal.writer.flushes[0].fail(error)
    assert waiting == [[WriterReplaced], [WriterReplaced]]
    assert failures == [error]
    assert log.state is LogState.FAILED
    with pytest.raises(WriterReplaced):
        log.log(OpCode.OPAQUE, b"c")
    with pytest.raises(WriterReplaced):
        now(log.append(b"d"))
    with pytest.raises(WriterReplaced):
        now(log.roll())
    assert not journal.writer.flushes


def test_who_is_woken_may_give_the_log_up() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    first = log.append(b"a")
    first.addCallback(lambda _: log.abort())
    others = outcomes(log.append(b"b"), log.append(b"c"))
    journal.writer.flushes[0].answer()
    assert others == [[JournalClosed], [JournalClosed]]
    assert journal.writer.closed


def test_an_unexpected_error_of_a_journal_fails_the_log_and_is_not_lost() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    waiting = outcomes(log.append(b"a"))
    journal.writer.flushes[0].fail(ZeroDivisionError("a bug"))
    assert waiting == [[StreamFailed]]
    assert "a bug" in str(log.error)


def test_a_transaction_too_large_for_the_journal_takes_no_txid() -> None:
    journal = ScriptedJournal(answers_at_once=True)
    log = opened(journal)
    with pytest.raises(TransactionTooLarge, match="split it"):
        log.log(OpCode.OPAQUE, bytes(journal.writer.record_size_max - FRAME_SIZE + 1))
    assert now(log.append(bytes(journal.writer.record_size_max - FRAME_SIZE))) == 2


def test_more_than_may_wait_is_refused_until_there_is_room() -> None:
    journal = ScriptedJournal()
    log = opened(journal, pending_bytes_max=100)
    waiting = outcomes(*[log.append(bytes(40)) for _ in range(2)])
    with pytest.raises(LogFull, match="ready"):
        log.log(OpCode.OPAQUE, b"")
    ready = outcomes(log.ready())
    journal.writer.flushes[0].answer()
    assert waiting[0] == [2]
    assert ready == [[None]]
    assert log.log(OpCode.OPAQUE, b"") == 4


def test_a_roll_ends_one_segment_and_begins_the_next_without_losing_a_txid() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    before = outcomes(log.append(b"before"))
    rolled = outcomes(log.roll())
    during = outcomes(log.append(b"during"), log.append(b"during too"))
    journal.writers[0].flushes[0].answer()
    assert before == [[2]]
    journal.writers[0].flushes[0].answer()
    assert journal.finalised == [Segment(TxId(1), TxId(3), OPAQUE)]
    assert rolled == [[]]
    journal.writer.flushes[0].answer()
    assert rolled == [[4]]
    assert during == [[5], [6]]
    opcodes = [record.opcode for record in records_of(journal)]
    start, end = OpCode.START_LOG_SEGMENT, OpCode.END_LOG_SEGMENT
    assert opcodes == [start, OpCode.OPAQUE, end, start, OpCode.OPAQUE, OpCode.OPAQUE]


def test_nothing_is_written_between_the_end_of_a_segment_and_the_start_of_the_next() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    log.roll()
    after = outcomes(log.append(b"after"))
    first = journal.writers[0]
    first.flushes[0].answer()
    assert [record.opcode for record in RecordDecoder(OPAQUE, source="").feed(b"".join(first.records))] == [
        OpCode.START_LOG_SEGMENT,
        OpCode.END_LOG_SEGMENT,
    ]
    journal.writer.flushes[0].answer()
    assert after == [[4]]


@pytest.mark.parametrize("step", ["start_error", "finalise_error"])
def test_a_roll_that_fails_fails_the_log(step: str) -> None:
    journal = ScriptedJournal(answers_at_once=True)
    log = opened(journal)
    setattr(journal, step, JournalError("no"))
    rolled = outcomes(log.roll())
    assert rolled == [[JournalError]]
    assert log.state is LogState.FAILED
    with pytest.raises(JournalError, match="no"):
        log.log(OpCode.OPAQUE, b"")


def test_only_one_roll_at_a_time() -> None:
    log = opened(ScriptedJournal())
    log.roll()
    with pytest.raises(InvalidArgument, match="being ended"):
        now(log.roll())


def test_close_ends_the_segment_in_order_and_takes_nothing_more() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    last = outcomes(log.append(b"last"))
    closed = outcomes(log.close())
    with pytest.raises(JournalClosed):
        log.log(OpCode.OPAQUE, b"late")
    journal.writer.flushes[0].answer()
    journal.writer.flushes[0].answer()
    assert last == [[2]]
    assert closed == [[None]]
    assert journal.finalised == [Segment(TxId(1), TxId(3), OPAQUE)]
    assert now(log.close()) is None
    with pytest.raises(JournalClosed):
        now(log.append(b"later"))


def test_close_during_a_roll_waits_for_it_and_ends_the_new_segment() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    log.roll()
    closed = outcomes(log.close())
    for _ in range(2):  # the first segment's end; the whole of the second
        journal.writer.flushes[0].answer()
    assert closed == [[None]]
    assert journal.finalised == [Segment(TxId(1), TxId(2), OPAQUE), Segment(TxId(3), TxId(4), OPAQUE)]


def test_close_during_a_roll_that_fails_fails() -> None:
    journal = ScriptedJournal()
    log = opened(journal)
    log.roll().addErrback(lambda failure: None)
    closed = outcomes(log.close())
    journal.start_error = JournalError("no")
    journal.writer.flushes[0].answer()
    assert closed == [[JournalError]]


def test_a_log_is_recovered_before_it_is_opened() -> None:
    """I-80: nobody writes who has not stopped whoever wrote before."""
    log = EditLog(ScriptedJournal())
    with pytest.raises(InvalidArgument, match="recovered"):
        now(log.open(1))
    with pytest.raises(InvalidArgument, match="recover, read what is there"):
        log.log(OpCode.OPAQUE, b"")


@pytest.mark.parametrize("next_txid", [1, 2, 3, 5])
def test_writing_begins_one_behind_the_end_of_the_journal_and_nowhere_else(next_txid: int) -> None:
    """I-81."""
    journal = ScriptedJournal(answers_at_once=True)
    now(opened(journal).append(b"x"))
    first = EditLog(journal)
    journal.finalised.append(Segment(TxId(1), TxId(3), OPAQUE))
    now(first.recover())
    with pytest.raises(GapInTransactions, match="ends at 3"):
        now(first.open(next_txid))
    assert now(first.open(4)) == 5


def test_a_segment_that_appears_after_recovery_is_somebody_elses() -> None:
    """I-80."""
    journal = ScriptedJournal(answers_at_once=True)
    second = EditLog(journal)
    now(second.recover())
    opened(journal)
    with pytest.raises(JournalError, match="another server became the writer"):
        now(second.open(1))


def test_operations_of_hdfs_are_encoded_in_the_layout_of_the_log() -> None:
    journal = ScriptedJournal(answers_at_once=True)
    log = opened(journal, layout_version=HADOOP_2_7)
    op = Mkdir(inode_id=16386, path="/a")
    assert now(log.append_op(op)) == 2
    assert decode(records_of(journal, HADOOP_2_7)[1], HADOOP_2_7) == op


def test_an_operation_that_cannot_be_encoded_takes_no_txid() -> None:
    log = opened(ScriptedJournal(answers_at_once=True), layout_version=HADOOP_2_7)
    with pytest.raises(InvalidArgument):
        now(log.append_op(Mkdir(path="/" + "x" * 70_000)))
    assert now(log.append_op(Mkdir(path="/x"))) == 2


def test_replay_gives_every_transaction_over_segments_from_any_txid() -> None:
    journal = ScriptedJournal(answers_at_once=True)
    log = opened(journal)
    for _ in range(5):
        now(log.append(b"x"))
    now(log.roll())
    for _ in range(4):
        now(log.append(b"y"))
    now(log.close())
    for first in range(1, 15):
        assert [record.txid for record in collected(replay(journal, TxId(first)))] == list(range(first, 14))


def test_replay_stops_with_an_error_at_a_gap() -> None:
    """I-81: never skipped."""
    journal = ScriptedJournal(answers_at_once=True)
    log = opened(journal)
    for _ in range(2):
        now(log.append(b"x"))
        now(log.roll())
    now(log.close())
    journal.lose([journal.finalised[1]])
    with pytest.raises(GapInTransactions) as caught:
        collected(replay(journal, TxId(1)))
    assert (caught.value.expected, caught.value.found) == (4, 7)
    with pytest.raises(GapInTransactions, match="expected txid 4"):
        collected(replay(journal, TxId(4)))
    assert [record.txid for record in collected(replay(journal, TxId(7)))] == [7, 8]


def test_a_journal_of_which_nothing_is_left_still_says_where_it_ended() -> None:
    """I-81: neither read as if it were new nor written with txids that were used."""
    journal = ScriptedJournal(answers_at_once=True)
    log = opened(journal)
    now(log.append(b"x"))
    now(log.close())
    assert len(now(journal.purge_older_than(TxId(4)))) == 1
    assert now(journal.segments()) == []
    with pytest.raises(GapInTransactions, match=r"transactions up to 3, and they were purged") as caught:
        collected(replay(journal, TxId(1)))
    assert (caught.value.expected, caught.value.found) == (1, None)
    assert collected(replay(journal, TxId(4))) == []
    for wrong, match in ((1, "read the rest first"), (3, "read the rest first"), (5, "what lies between is missing")):
        log = EditLog(journal)
        now(log.recover())
        with pytest.raises(GapInTransactions, match=match):
            now(log.open(wrong))
    log = EditLog(journal)
    now(log.recover())
    assert now(log.open(4)) == 5


class Counted:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.flushes: list[tuple[int, int, float]] = []
        self.failed: list[float] = []

    def on_flush(self, transactions: int, size: int, seconds: float) -> None:
        self.flushes.append((transactions, size, seconds))

    def on_flush_failed(self, seconds: float) -> None:
        self.failed.append(seconds)


def test_flushes_are_counted_once_each_with_how_many_shared_them_and_how_long_they_took() -> None:
    journal, counted, now_s = ScriptedJournal(), Counted(), [0.0]
    log = opened(journal, observer=counted, clock=lambda: now_s[0])
    log.append(b"abc")
    now_s[0] = 0.5
    outcomes(log.append(b"d"), log.append(b"e"))
    journal.writer.flushes[0].answer()
    now_s[0] = 2.0
    journal.writer.flushes[0].fail(WriterReplaced("another"))
    assert counted.flushes == [(1, FRAME_SIZE, 0.0), (1, FRAME_SIZE + 3, 0.5)]
    assert counted.failed == [1.5]


def test_a_log_that_is_given_up_has_no_failed_flush() -> None:
    journal, counted = ScriptedJournal(), Counted()
    log = opened(journal, observer=counted)
    outcomes(log.append(b"abc"))
    log.abort()
    assert counted.failed == []
