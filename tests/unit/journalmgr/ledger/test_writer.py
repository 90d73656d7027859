"""How records become entries, what a flush waits for, and that the first failure is the last word (I-82)."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.errors import AddFailed, BookKeeperError, LedgerFencedOff, WindowFull
from journalmgr.edits.frame import encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import JournalClosed, StreamFailed, TransactionTooLarge, WriterReplaced
from journalmgr.ledger.writer import LedgerSegmentWriter
from journalmgr.model import OPAQUE, Segment, TxId

BUFFER, ENTRY_MAX = 100, 400


class Ledger:
    """A WriteHandle whose acknowledgements and failure the test gives. room: entries that it takes unacknowledged."""

    ledger_id = 7

    def __init__(self, room: int = 1000) -> None:
        self.entries: list[bytes] = []
        self.acknowledged = 0
        self.room = room
        self.waiting: list[tuple[bytes, Deferred[int]]] = []
        self.on_acknowledged: Any = None
        self.on_failed: Any = None
        self.error: BookKeeperError | None = None

    def append_batch_nowait(self, payloads: list[bytes]) -> range:
        if self.error is not None:
            raise self.error
        if self.waiting or len(self.entries) - self.acknowledged >= self.room:
            raise WindowFull("full")
        self.entries += payloads
        return range(len(self.entries) - len(payloads), len(self.entries))

    def append(self, payload: bytes) -> Deferred[int]:
        done: Deferred[int] = Deferred()
        self.waiting.append((payload, done))
        return done

    def acknowledge(self, count: int) -> None:
        """The next `count` entries."""
        first = self.acknowledged
        self.acknowledged += count
        if self.waiting:
            self.entries.append(self.waiting.pop()[0])
        self.on_acknowledged(range(first, self.acknowledged))

    def fail(self, error: BookKeeperError) -> None:
        """As a handle does once."""
        self.error = error
        self.on_failed(error)


def record(txid: int, size: int = 40) -> bytes:
    """A whole record of so many bytes."""
    made = encode_record(OpCode.OPAQUE, txid, bytes(size - len(encode_record(0, 0, b""))))
    assert len(made) == size
    return made


def writer_over(ledger: Any, first: int = 1) -> LedgerSegmentWriter:
    return LedgerSegmentWriter(
        ledger,
        Segment(TxId(first), None, OPAQUE, 7, "inprogress_1"),
        "a journal",
        output_buffer_size=BUFFER,
        entry_size_max=ENTRY_MAX,
    )


def outcome(deferred: Deferred[Any]) -> list[Any]:
    heard: list[Any] = []
    deferred.addBoth(lambda result: heard.append(result.value if isinstance(result, Failure) else result))
    return heard


def test_an_entry_leaves_when_the_buffer_exceeds_its_bound_and_at_every_flush() -> None:
    """journalmgr/FORMATS.md 4.1: entries hold whole records."""
    ledger = Ledger()
    writer = writer_over(ledger)
    writer.write([record(1), record(2)])
    assert ledger.entries == []
    writer.write([record(3)])
    assert ledger.entries == [record(1) + record(2) + record(3)]
    writer.write([record(4)])
    writer.set_ready_to_flush()
    writer.set_ready_to_flush()
    assert ledger.entries[1:] == [record(4)]


def test_exactly_the_bound_does_not_leave() -> None:
    ledger = Ledger()
    writer = writer_over(ledger)
    writer.write([record(1, 50), record(2, 50)])
    assert ledger.entries == []
    writer.write([record(3, 20)])
    assert len(ledger.entries) == 1


def test_an_entry_is_never_larger_than_a_bookie_takes() -> None:
    ledger = Ledger()
    writer = writer_over(ledger)
    writer.write([record(1, 90), record(2, 400), record(3, 330), record(4, 30)])
    writer.set_ready_to_flush()
    assert ledger.entries == [record(1, 90), record(2, 400), record(3, 330), record(4, 30)]
    with pytest.raises(TransactionTooLarge, match="401 bytes"):
        writer.write([record(5, 401)])
    assert writer.last_txid == 4


def test_a_flush_waits_for_what_was_ready_and_for_no_more() -> None:
    ledger = Ledger()
    writer = writer_over(ledger)
    writer.write([record(1), record(2), record(3)])
    writer.write([record(4)])
    writer.set_ready_to_flush()
    first = outcome(writer.flush())
    writer.write([record(5)])
    writer.set_ready_to_flush()
    second = outcome(writer.flush())
    ledger.acknowledge(1)
    assert first == []
    ledger.acknowledge(1)
    assert (first, second, writer.durable_txid) == ([4], [], 4)
    ledger.acknowledge(1)
    assert (second, writer.durable_txid) == ([5], 5)
    assert outcome(writer.flush()) == [5]


@pytest.mark.parametrize("room", [1, 2, 5])
def test_what_finds_no_room_goes_in_order_once_there_is_some(room: int) -> None:
    ledger = Ledger(room)
    writer = writer_over(ledger)
    made = [record(txid, 120) for txid in range(1, 21)]
    writer.write(made)
    writer.set_ready_to_flush()
    flushed = outcome(writer.flush())
    for acknowledged in range(20):
        assert flushed == []
        assert len(ledger.entries) <= acknowledged + room
        ledger.acknowledge(1)
    assert flushed == [20]
    assert ledger.entries == made


def test_a_window_that_others_fill_is_waited_for() -> None:
    ledger = Ledger(room=0)
    writer = writer_over(ledger)
    writer.write([record(1, 120), record(2, 120)])
    assert [payload for payload, _ in ledger.waiting] == [record(1, 120)]
    ledger.room = 5
    ledger.acknowledge(1)
    assert ledger.entries == [record(1, 120), record(2, 120)]


@pytest.mark.parametrize("failing", range(6))
@pytest.mark.parametrize(
    ("cause", "expected"),
    [(AddFailed("a bookie is gone"), StreamFailed), (LedgerFencedOff("recovered"), WriterReplaced)],
)
def test_after_one_failure_nothing_is_taken_and_no_flush_succeeds(
    failing: int, cause: BookKeeperError, expected: type[Exception]
) -> None:
    ledger = Ledger()
    writer = writer_over(ledger)
    flushes = []
    for txid in range(1, 7):
        writer.write([record(txid)])
        writer.set_ready_to_flush()
        flushes.append(outcome(writer.flush()))
    for _ in range(failing):
        ledger.acknowledge(1)
    ledger.fail(cause)
    assert [heard[0] for heard in flushes[:failing]] == list(range(1, failing + 1))
    errors = [heard[0] for heard in flushes[failing:]]
    assert len({id(each) for each in errors}) == len(errors)
    [error] = {each.__cause__ for each in errors}
    assert type(error) is expected
    assert error.__cause__ is cause
    with pytest.raises(StreamFailed, match="errored stream"):
        writer.write([record(7)])
    writer.set_ready_to_flush()
    assert [each.__cause__ for each in outcome(writer.flush())] == [error]
    assert [each.__cause__ for each in outcome(writer.close())] == [error]
    assert writer.durable_txid == failing


def test_a_failure_while_sending_is_told_by_the_flush() -> None:
    ledger = Ledger()
    writer = writer_over(ledger)
    ledger.error = AddFailed("gone")
    writer.write([record(1)])
    writer.set_ready_to_flush()
    [error] = outcome(writer.flush())
    assert isinstance(error, StreamFailed)


def test_a_dropped_stream_is_closed_for_whoever_waits() -> None:
    ledger = Ledger()
    aborted: list[bool] = []
    ledger.abort = lambda: aborted.append(True)  # type: ignore[attr-defined]
    writer = writer_over(ledger)
    writer.write([record(1)])
    writer.set_ready_to_flush()
    waiting = outcome(writer.flush())
    writer.drop()
    writer.drop()
    assert aborted == [True]
    assert isinstance(waiting[0], JournalClosed)
