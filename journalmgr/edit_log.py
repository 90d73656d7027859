"""The edit log as a metadata server writes it: txids, segments, one flush for many callers.

    new --recover()--> recovered --open(next)--> writing --close()--> closed
                                                  |   ^
                                                  |   +-- roll(): END, finalise, next segment, START
                                                  +--> failed: every caller hears of the first error (I-82)

    log(opcode, body)   gives the transaction its txid and buffers it          append = log + sync
    sync(txid)          fires once it is durable

Group commit: one flush is under way at a time. Whatever is logged meanwhile goes with the next, in one call of the
journal, however many callers wait for it. Those who are woken by a flush and log again at once are part of the next one
too: it begins when all have been told.

A segment begins with START_LOG_SEGMENT and, ended in order, ends with END_LOG_SEGMENT; both take a txid.
Bound: `pending_bytes_max` of records that are not durable yet. Thread: reactor.
"""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.client.parallel import tell_all
from bookkeeper.errors import BookKeeperError, InvalidArgument, again
from journalmgr.contract import JournalManager, RecordBatch, SegmentWriter
from journalmgr.edits.codec import encode_body
from journalmgr.edits.frame import check_writable, encode_record
from journalmgr.edits.opcodes import OpCode
from journalmgr.edits.ops import Op
from journalmgr.errors import (
    GapInTransactions,
    JournalClosed,
    JournalError,
    LogFull,
    StreamFailed,
    TransactionTooLarge,
)
from journalmgr.model import FIRST_TXID, OPAQUE, Segment, TxId
from journalmgr.replaying import replay

log = Logger()

PENDING_BYTES_MAX = 64 * 1024 * 1024


class LogState(enum.Enum):
    """What may be done with the log."""

    NEW = "new"
    RECOVERED = "recovered"
    WRITING = "writing"
    FAILED = "failed"
    CLOSED = "closed"


class FlushObserver(Protocol):
    """Whoever counts flushes; told once for each, never for a transaction. `journalmgr.metrics` has one."""

    def on_flush(self, transactions: int, size: int, seconds: float) -> None:
        """So many transactions, of so many bytes, became durable with one flush."""

    def on_flush_failed(self, seconds: float) -> None:
        """A flush failed, and with it the log."""


class EditLog(OfOneProcess):
    """One metadata server's log over a journal. Does not own the journal.

    layout_version: how transactions are encoded; opaque ones unless told otherwise. on_failed: called once when the log
    fails: the server must stop serving, because another may be the writer by now.
    """

    instead = "pass the journal's URI and its options instead, and open the journal where they arrive"

    def __init__(
        self,
        journal: JournalManager,
        layout_version: int = OPAQUE,
        *,
        pending_bytes_max: int = PENDING_BYTES_MAX,
        on_failed: Callable[[BookKeeperError], object] | None = None,
        observer: FlushObserver | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        check_writable(layout_version)
        self.journal = journal
        self.layout_version = layout_version
        self.state = LogState.NEW
        self.error: BookKeeperError | None = None
        self.flushes = 0
        self._on_failed = on_failed
        self._observer, self._clock = observer, clock
        self._flush_begun_s = 0.0
        self._flushing_count = 0
        self._pending_bytes_max = pending_bytes_max
        # durable <= flushing <= next - 1; `_records` are the last ones before `_next_txid`.
        self._next_txid = FIRST_TXID
        self._durable_txid = TxId(0)
        self._writer: SegmentWriter | None = None
        self._record_size_max = 0
        self._records: list[bytes] = []
        self._pending_bytes = 0  # of `_records` and of what is being flushed
        self._flushing_bytes = 0
        self._flushing = False
        self._rolling = False  # a segment is ending: `_ending` is the rest of it, `_records` belong to the next
        self._ending: list[bytes] = []
        self._closing = False
        self._rolled: list[Deferred[None]] = []  # who waits for the roll to be over
        self._closers: list[Deferred[None]] = []  # who waits for the end
        self._waiters: deque[tuple[TxId, Deferred[TxId]]] = deque()  # by txid, ascending
        self._ready: list[Deferred[None]] = []

    # --- what is known

    @property
    def next_txid(self) -> TxId:
        """The txid that the next transaction gets."""
        return self._next_txid

    @property
    def durable_txid(self) -> TxId:
        """The last txid that is durable; all before it are."""
        return self._durable_txid

    @property
    def segment_first_txid(self) -> TxId | None:
        """Where the segment that is being written begins; None between segments."""
        return None if self._writer is None else self._writer.first_txid

    @property
    def rolling(self) -> bool:
        """A segment is being ended."""
        return self._rolling

    # --- becoming the writer

    def recover(self) -> Deferred[list[Segment]]:
        """Stop whoever wrote before and finalise what was left open (I-80). Read the rest, then `open`."""
        return Deferred.fromCoroutine(self._recover())

    async def _recover(self) -> list[Segment]:
        self._check_state(LogState.NEW, LogState.RECOVERED)
        finalised = await self.journal.recover_unfinalized()
        self._check_state(LogState.NEW, LogState.RECOVERED)  # it may have been given up meanwhile
        self.state = LogState.RECOVERED
        return finalised

    async def replay(self, from_txid: int = FIRST_TXID) -> AsyncIterator[RecordBatch]:
        """All transactions from a txid to the end of the finalised segments, in order. Raises GapInTransactions."""
        async for batch in replay(self.journal, TxId(from_txid)):
            yield batch

    def open(self, next_txid: int) -> Deferred[TxId]:
        """Begin to write at a txid, which must be one more than the last in the journal; fires with the first free one.

        next_txid - 1 is what the server has applied: a journal that ends elsewhere is refused, for its transactions
        would be lost, or a gap made (I-81); also one of which nothing is left. Fails with GapInTransactions, and as
        `start_segment` does.
        """
        return Deferred.fromCoroutine(self._open(TxId(next_txid)))

    async def _open(self, next_txid: TxId) -> TxId:
        self._check_state(LogState.RECOVERED)
        segments = await self.journal.segments()
        if segments and segments[-1].in_progress:
            raise JournalError(
                f"{self.journal.description}: segment {segments[-1]} came into being after recovery: another server "
                "became the writer; recover again if it is this one's turn"
            )
        seen = await self.journal.last_txid_seen()
        if seen + 1 != next_txid:
            raise GapInTransactions(
                f"{self.journal.description}: cannot start writing at txid {next_txid}: the journal ends at {seen}; "
                + ("read the rest first" if seen >= next_txid else "what lies between is missing"),
                expected=seen + 1,
                found=next_txid,
            )
        self._next_txid, self._durable_txid = next_txid, TxId(next_txid - 1)
        await self._start_segment()
        self.state = LogState.WRITING
        await self.sync(self._mark(OpCode.START_LOG_SEGMENT))
        return self._next_txid

    async def _start_segment(self) -> None:
        # During a roll transactions have been logged already; the segment begins with the first that is not durable.
        first = TxId(self._durable_txid + 1)
        self._check_state(LogState.RECOVERED, LogState.WRITING)
        writer = await self.journal.start_segment(first, self.layout_version)
        if self.state in (LogState.FAILED, LogState.CLOSED):  # given up meanwhile; nobody else knows of this stream
            await writer.abort()
            raise self._why_not()
        self._writer, self._record_size_max = writer, writer.record_size_max

    # --- writing

    def log(self, opcode: int, body: bytes) -> TxId:
        """Give a transaction its txid and buffer it; durable once `sync` says so.

        Raises LogFull, TransactionTooLarge, the error that the log failed with, JournalClosed; nothing is taken then.
        """
        if self.state is not LogState.WRITING or self._closing:
            raise self._why_not()
        if self._pending_bytes > self._pending_bytes_max:
            raise self._full()
        txid = self._next_txid
        record = encode_record(opcode, txid, body)
        size = len(record)
        if size > self._record_size_max:
            raise self._too_large(size)
        self._next_txid = TxId(txid + 1)
        self._records.append(record)
        self._pending_bytes += size
        return txid

    def _full(self) -> LogFull:
        return LogFull(
            f"{self.journal.description}: {self._pending_bytes} bytes of transactions wait to be durable, and at "
            f"most {self._pending_bytes_max} may; await ready()"
        )

    def _too_large(self, size: int) -> TransactionTooLarge:
        return TransactionTooLarge(
            f"a transaction of {size} bytes; {self.journal.description} takes at most {self._record_size_max}: split it"
        )

    def _mark(self, opcode: int) -> TxId:
        """Log the begin or the end of a segment. A full log takes it too: without it nothing would make room."""
        txid = self._next_txid
        record = encode_record(opcode, txid, b"")
        self._next_txid = TxId(txid + 1)
        self._records.append(record)
        self._pending_bytes += len(record)
        return txid

    def log_op(self, op: Op) -> TxId:
        """The same for an operation of HDFS's edit log; sets its txid."""
        op.txid = self.log(op.opcode, encode_body(op, self.layout_version))
        return TxId(op.txid)

    def log_ops(self, ops: Sequence[Op]) -> TxId:
        """The same for the operations of one request, all of them or none; the last txid."""
        if self.state is not LogState.WRITING or self._closing:
            raise self._why_not()
        if self._pending_bytes > self._pending_bytes_max:
            raise self._full()
        first = self._next_txid
        records = [
            encode_record(op.opcode, first + index, encode_body(op, self.layout_version))
            for index, op in enumerate(ops)
        ]
        size = max(map(len, records), default=0)
        if size > self._record_size_max:
            raise self._too_large(size)
        for index, op in enumerate(ops):
            op.txid = first + index
        self._next_txid = TxId(first + len(records))
        self._records += records
        self._pending_bytes += sum(map(len, records))
        return TxId(self._next_txid - 1)

    def sync(self, txid: int | None = None) -> Deferred[TxId]:
        """Fires with the txid once it is durable; without one, with the last logged."""
        wanted = TxId(self._next_txid - 1 if txid is None else txid)
        if wanted <= self._durable_txid:
            return succeed(wanted)
        if wanted >= self._next_txid:
            return fail(InvalidArgument(f"txid {wanted} was never logged; the last is {self._next_txid - 1}"))
        if self.state is not LogState.WRITING:
            return fail(self._why_not())
        waiting: Deferred[TxId] = Deferred()
        waiters = self._waiters
        if not waiters or waiters[-1][0] <= wanted:
            waiters.append((wanted, waiting))
        else:
            position = next(index for index, (waited, _) in enumerate(waiters) if waited > wanted)
            waiters.insert(position, (wanted, waiting))
        self._flush_if_idle()
        return waiting

    def append(self, payload: bytes) -> Deferred[TxId]:
        """Log an opaque transaction; fires with its txid once it is durable. Fails as `log` raises."""
        try:
            txid = self.log(OpCode.OPAQUE, payload)
        except BookKeeperError as error:
            return fail(error)
        return self.sync(txid)

    def append_op(self, op: Op) -> Deferred[TxId]:
        """The same for an operation of HDFS's edit log."""
        try:
            txid = self.log_op(op)
        except BookKeeperError as error:
            return fail(error)
        return self.sync(txid)

    def ready(self) -> Deferred[None]:
        """Fires when `log` takes something again."""
        if self.state is not LogState.WRITING:
            return fail(self._why_not())
        if self._pending_bytes <= self._pending_bytes_max:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._ready.append(waiting)
        self._flush_if_idle()
        return waiting

    def _flush_if_idle(self) -> None:
        if not self._flushing and (not self._rolling or self._ending):
            self._flush()

    def _flush(self) -> None:
        assert self._writer is not None
        if self._rolling:
            records, self._ending = self._ending, []
        else:
            records, self._records = self._records, []
        self._flushing = True
        self._flushing_bytes, self._flushing_count = sum(map(len, records)), len(records)
        if self._observer is not None:
            self._flush_begun_s = self._clock()
        self.flushes += 1
        try:
            if records:
                self._writer.write(records)
            self._writer.set_ready_to_flush()
            flushed = self._writer.flush()
        except BookKeeperError as error:
            self._fail(error)
            return
        flushed.addCallbacks(self._flushed, self._flush_failed).addErrback(self._broken)

    def _flushed(self, durable: TxId) -> None:
        if self.state is not LogState.WRITING:
            return
        if self._observer is not None:
            self._observer.on_flush(self._flushing_count, self._flushing_bytes, self._clock() - self._flush_begun_s)
        self._durable_txid = durable
        self._pending_bytes -= self._flushing_bytes
        self._flushing_bytes = 0
        while self._waiters and self._waiters[0][0] <= durable:
            txid, waiting = self._waiters.popleft()  # whom it wakes may end the log: that tells the others
            waiting.callback(txid)
        if self._pending_bytes <= self._pending_bytes_max and self._ready:
            ready, self._ready = self._ready, []
            for waiting_for_room in ready:
                waiting_for_room.callback(None)
        self._flushing = False
        if self._waiters or self._ready:
            self._flush_if_idle()

    def _flush_failed(self, failure: Failure) -> None:
        error = failure.value
        self._fail(error if isinstance(error, BookKeeperError) else self._broken(failure))

    def _broken(self, failure: Failure) -> StreamFailed:
        log.failure("the edit log of {journal} failed", failure=failure, journal=self.journal.description)
        broken = StreamFailed(f"{self.journal.description}: {failure.value!r}")
        self._fail(broken)
        return broken

    def _fail_with(self, error: BaseException) -> None:
        """As `_fail`; what is no error of a journal is a fault, and the log does not go on after it either."""
        if not isinstance(error, BookKeeperError):
            error = StreamFailed(f"{self.journal.description}: {error!r}")
        self._fail(error)

    def _fail(self, error: BookKeeperError) -> None:
        if self.state in (LogState.FAILED, LogState.CLOSED):
            return
        if self._observer is not None and self._flushing and not isinstance(error, JournalClosed):
            self._observer.on_flush_failed(self._clock() - self._flush_begun_s)
        self.state, self.error = LogState.FAILED, error
        self._records.clear()
        waiters, self._waiters = self._waiters, deque()
        others = self._ready + self._rolled
        self._ready, self._rolled = [], []
        for _, waiting in waiters:
            waiting.errback(again(error))
        for waiting_for_it in others:
            waiting_for_it.errback(again(error))
        if self._on_failed is not None:
            self._on_failed(error)

    # --- segments

    def roll(self) -> Deferred[TxId]:
        """End the segment and begin the next; fires with the txid that it begins with.

        Others may log meanwhile: their transactions are in the new segment.
        """
        return Deferred.fromCoroutine(self._roll())

    async def _roll(self) -> TxId:
        if self.state is not LogState.WRITING or self._closing:
            raise self._why_not()
        last = self._end_segment()
        first = self._mark(OpCode.START_LOG_SEGMENT)
        await self.sync(last)
        try:
            await self._finalise(last)
            await self._start_segment()
        except BaseException as error:
            self._fail_with(error)
            raise
        self._rolling = False
        rolled, self._rolled = self._rolled, []
        for waiting in rolled:
            waiting.callback(None)
        await self.sync(first)
        return first

    def close(self) -> Deferred[None]:
        """End the segment in order; nothing is taken from now on. Harmless when repeated, or after a failure.

        Whoever calls it while it is under way hears of the same end.
        """
        done: Deferred[None] = Deferred()
        self._closers.append(done)
        if len(self._closers) == 1:
            Deferred.fromCoroutine(self._close()).addBoth(self._closed)
        return done

    def _closed(self, result: Failure | None) -> None:
        closers, self._closers = self._closers, []
        tell_all(closers, result)

    async def _close(self) -> None:
        if self.state is not LogState.WRITING:
            if self.state is not LogState.FAILED:
                self.state = LogState.CLOSED
            return
        if self._rolling:
            waiting: Deferred[None] = Deferred()
            self._rolled.append(waiting)
            await waiting
        last = self._end_segment()
        self._closing = True
        await self.sync(last)
        try:
            await self._finalise(last)
        except BaseException as error:
            self._fail_with(error)
            raise
        self.state = LogState.CLOSED

    def abort(self) -> Deferred[None]:
        """Stop at once, as a server does that may not be the writer any more: the segment stays in progress."""
        self._fail(JournalClosed(f"the edit log in {self.journal.description} was given up"))
        writer, self._writer = self._writer, None
        return succeed(None) if writer is None else writer.abort()

    def _end_segment(self) -> TxId:
        """Log the end; what is logged from now on waits for the next segment."""
        if self._rolling:
            raise InvalidArgument(f"a segment of {self.journal.description} is being ended already; await that")
        last = self._mark(OpCode.END_LOG_SEGMENT)
        self._ending, self._records = self._records, []
        self._rolling = True
        return last

    async def _finalise(self, last: TxId) -> None:
        assert self._writer is not None
        writer, self._writer = self._writer, None
        await writer.close()
        await self.journal.finalize_segment(writer.first_txid, last)

    # --- errors

    def _check_state(self, *allowed: LogState) -> None:
        if self.state in (LogState.FAILED, LogState.CLOSED):
            raise self._why_not()
        if self.state not in allowed:
            wanted = " or ".join(state.value for state in allowed)
            raise InvalidArgument(f"the edit log is {self.state.value}; this needs it {wanted}")

    def _why_not(self) -> BookKeeperError:
        if self.error is not None:
            return again(self.error)
        if self.state is LogState.CLOSED or self._closing:
            return JournalClosed(f"the edit log in {self.journal.description} was closed")
        return InvalidArgument(f"the edit log is {self.state.value}: recover, read what is there, then open it")
