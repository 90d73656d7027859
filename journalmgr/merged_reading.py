"""Reading several copies of one edit log as if there were one: which copy is read where, and going over to another.

Who begins a segment knows where the log ended. So a copy is read no further than to where any later segment begins,
finalised or, being the last of all, in progress: what it has beyond was never acknowledged, another writer went on
without it. Such a tail comes back nowhere, neither behind the later segment nor where the copies of that one fail.

Of what is left the best copy at a txid is a finalised one, of those the longest, and of those one that ends there by
itself before one that is cut there. Going over is to copies as good as the best only: a shorter one cannot bring the
segment to its end, and may be another writer's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, again
from bookkeeper.ports import Clock
from journalmgr.contract import EditsTail, JournalManager, RecordBatch, SegmentReader
from journalmgr.errors import GapInTransactions, JournalClosed
from journalmgr.model import UNKNOWN_LAYOUT, Segment, TxId

log = Logger()


@dataclass(frozen=True, slots=True)
class Copy:
    """One journal's copy of a segment. is_cut: it goes on behind the segment's end, and that is not read."""

    journal: JournalManager
    segment: Segment
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Stretch:
    """Transactions first..last from any of these copies, which are as good; last is None in progress."""

    segment: Segment
    first: TxId
    last: TxId | None
    copies: tuple[Copy, ...]


class MergedLog:
    """The copies by where they begin, cut where a later segment begins."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        newest = max((copy.segment.first_txid for copy in copies), default=TxId(0))
        self._starts = sorted({copy.segment.first_txid for copy in copies if not copy.segment.in_progress} | {newest})
        self._copies: dict[TxId, list[Copy]] = {start: [] for start in self._starts}  # no two starts cover one txid
        for copy in copies:
            segment = copy.segment
            if segment.in_progress and segment.first_txid != newest:
                continue  # others have begun to write since
            later = bisect_right(self._starts, segment.first_txid)
            if segment.last_txid is not None and later < len(self._starts) and segment.last_txid >= self._starts[later]:
                copy = Copy(copy.journal, replace(segment, last_txid=TxId(self._starts[later] - 1)), is_cut=True)
            self._copies[segment.first_txid].append(copy)

    def stretch_at(self, txid: int, *, in_progress_ok: bool) -> Stretch | None:
        """What is to be read from this txid on; None where no copy has it."""
        start = bisect_right(self._starts, txid) - 1
        if start < 0:
            return None
        covering = [copy for copy in self._copies[self._starts[start]] if copy.segment.covers(txid)]
        finalised = [copy for copy in covering if not copy.segment.in_progress]
        candidates = finalised or (covering if in_progress_ok else [])
        if not candidates:
            return None
        best = min(candidates, key=_rank)
        segment = best.segment
        equals = tuple(copy for copy in candidates if _rank(copy) == _rank(best))
        return Stretch(segment, TxId(txid), segment.last_txid, equals)

    def segments(self) -> list[Segment]:
        """The segments as they are read, gaps included."""
        merged: list[Segment] = []
        for start in self._starts:
            txid: int = start
            while (stretch := self.stretch_at(txid, in_progress_ok=True)) is not None:
                merged.append(replace(stretch.segment, first_txid=stretch.first))
                if stretch.last is None:
                    break
                txid = stretch.last + 1
                if txid in self._copies:
                    break
        return merged


def _rank(copy: Copy) -> tuple[bool, int, bool]:
    """Of copies of the same state that begin together, the best one least; one that is known to be unreadable last."""
    return copy.segment.layout_version == UNKNOWN_LAYOUT, -(copy.segment.last_txid or 0), copy.is_cut


def merged_readers(copies: Sequence[Copy], from_txid: TxId, *, in_progress_ok: bool) -> list[SegmentReader]:
    """Readers to the end or to the first gap. Nothing is opened before it is read."""
    merged = MergedLog(copies)
    stretches: list[Stretch] = []
    txid: int = from_txid
    while (stretch := merged.stretch_at(txid, in_progress_ok=in_progress_ok)) is not None:
        stretches.append(stretch)
        if stretch.last is None:
            break
        txid = stretch.last + 1
    streams = _Streams(len(stretches), in_progress_ok=in_progress_ok)
    return [MergedReader(stretch, streams) for stretch in stretches]


class _Streams:
    """Open streams of each journal: one selection serves many segments. Closed with the last of its readers."""

    def __init__(self, reader_count: int, *, in_progress_ok: bool) -> None:
        self._in_progress_ok = in_progress_ok
        self._reader_count = reader_count
        self._open: dict[int, list[tuple[TxId, SegmentReader]]] = {}  # by journal: where each begins

    async def take(self, journal: JournalManager, txid: TxId) -> SegmentReader | None:
        """The journal's stream that begins at this txid."""
        waiting = self._open.get(id(journal), [])
        if not waiting or waiting[0][0] != txid:
            await _close_all(self._open.pop(id(journal), []))
            selected = await journal.select_input_streams(txid, in_progress_ok=self._in_progress_ok)
            starts = [max(txid, reader.segment.first_txid) for reader in selected]
            waiting = list(zip(starts, selected, strict=True))
            if self._reader_count == 0:  # closed meanwhile
                await _close_all(waiting)
                return None
            await _close_all(self._open.pop(id(journal), []))  # of another reader, which asked at the same time
            self._open[id(journal)] = waiting
        return waiting.pop(0)[1] if waiting and waiting[0][0] == txid else None

    async def reader_closed(self) -> None:
        self._reader_count -= 1
        if self._reader_count == 0:
            left, self._open = self._open, {}
            for waiting in left.values():
                await _close_all(waiting)


async def _close_all(waiting: list[tuple[TxId, SegmentReader]]) -> None:
    while waiting:
        await _close(waiting.pop()[1])


async def _close(reader: SegmentReader) -> None:
    """Let go of a stream. That it cannot be closed is told in the log: what was read of it is none the worse."""
    try:
        await reader.close()
    except BookKeeperError as error:
        log.warn("cannot close the stream of segment {segment}: {error}", segment=str(reader.segment), error=str(error))


class MergedReader:
    """See SegmentReader: every txid of the stretch once, in order, whichever copy it comes from."""

    def __init__(self, stretch: Stretch, streams: _Streams) -> None:
        self.segment = stretch.segment
        self._next_txid, self._last = stretch.first, stretch.last
        self._copies = list(stretch.copies)  # not tried yet, or being read (the first)
        self._streams = streams
        self._reader: SegmentReader | None = None
        self._error: BookKeeperError | None = None
        self._closed = False

    def next(self) -> Deferred[RecordBatch | None]:
        """See SegmentReader."""
        return Deferred.fromCoroutine(self._next())

    async def _next(self) -> RecordBatch | None:
        while self._last is None or self._next_txid <= self._last:
            if self._closed:
                raise self._closed_error()
            if not self._copies:
                if self._error is not None:
                    raise again(self._error)
                return None  # of a segment in progress: no copy has more
            try:
                batch = await self._read()
            except BookKeeperError as error:
                if self._closed:
                    raise self._closed_error() from error
                await self._give_up(error)
                continue
            if batch is not None:
                self._error = None  # another copy had what the failed one had not
                return batch
            await self._let_go()
            self._copies.pop(0)  # of a segment in progress; another copy may have more
        return None

    async def _read(self) -> RecordBatch | None:
        """The next records of the first copy; None at the end of one in progress."""
        if self._reader is None:
            reader = await self._streams.take(self._copies[0].journal, self._next_txid)
            if self._closed:
                if reader is not None:
                    await _close(reader)
                raise self._closed_error()
            self._reader = reader
        batch = None if self._reader is None else await self._reader.next()
        if batch is None:
            if self._last is None:
                return None
            raise GapInTransactions(
                f"{self._copies[0].journal.description}: segment {self._copies[0].segment} ends before txid "
                f"{self._next_txid}",
                expected=self._next_txid,
                found=None,
            )
        records = batch.records
        if records[0].txid != self._next_txid:
            raise GapInTransactions(
                f"{self._copies[0].journal.description}: expected txid {self._next_txid}, but got {records[0].txid}",
                expected=self._next_txid,
                found=records[0].txid,
            )
        if self._last is not None and records[-1].txid > self._last:
            records = records[: self._last - records[0].txid + 1]
        self._next_txid = TxId(records[-1].txid + 1)
        segment = self.segment
        if segment.layout_version != batch.segment.layout_version:
            segment = replace(segment, layout_version=batch.segment.layout_version)
        return RecordBatch(segment, records)

    async def _give_up(self, error: BookKeeperError) -> None:
        copy = self._copies.pop(0)
        self._error = self._error or error
        log.warn(
            "cannot read segment {segment} of {journal} from txid {txid} on; {others} other copies: {error}",
            segment=str(copy.segment),
            journal=copy.journal.description,
            txid=self._next_txid,
            others=len(self._copies),
            error=str(error),
        )
        await self._let_go()

    async def _let_go(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await _close(reader)

    def _closed_error(self) -> JournalClosed:
        return JournalClosed(f"the reader of {self.segment} was closed")

    def close(self) -> Deferred[None]:
        """See SegmentReader."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._let_go()
        await self._streams.reader_closed()


class MergedTail:
    """See EditsTail: follows one journal; where its tail fails the next one's, from the same txid.

    leading: so many of the first journals have everything as soon as it is acknowledged. The first of them is not left
    for being quiet, and returned to after each batch of another one. Any other may be quiet because its writer has
    given it up: after `patience_s` the next one is asked. `next` fails when all have been asked and the leading ones
    have failed (all of them where none leads): what the others wait for may be told nowhere.
    """

    def __init__(
        self,
        journals: Sequence[JournalManager],
        from_txid: TxId,
        description: str,
        clock: Clock,
        *,
        leading: int,
        patience_s: float,
    ) -> None:
        self.next_txid = from_txid
        self._journals = journals
        self._description = description
        self._clock, self._patience_s = clock, patience_s
        self._leading = leading
        self._current = 0
        self._tail: EditsTail | None = None
        self._stopped = False
        self._waiting: Deferred[RecordBatch] | None = None

    def next(self) -> Deferred[RecordBatch]:
        """See EditsTail. One call at a time; fails when no journal can go on, and may be called again then."""
        if self._stopped:
            return fail(self._closed_error())
        assert self._waiting is None, "a tail has one reader"
        waiting: Deferred[RecordBatch] = Deferred()
        self._waiting = waiting
        Deferred.fromCoroutine(self._next()).addCallbacks(self._done, self._failed)
        return waiting

    def _done(self, batch: RecordBatch) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(batch)

    def _failed(self, failure: Failure) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.errback(failure)

    async def _next(self) -> RecordBatch:
        errors: dict[int, BookKeeperError] = {}  # of this round, by journal
        asked = 0  # journals of this round
        while not self._ended():
            try:
                batch = await self._next_of_current()
            except BookKeeperError as error:
                if self._ended():
                    break
                errors[self._current] = error
                log.warn(
                    "cannot follow {journal} from txid {txid} on: {error}",
                    journal=self._journals[self._current].description,
                    txid=self.next_txid,
                    error=str(error),
                )
                batch = None
            if batch is not None:
                if not self._ended():
                    self.next_txid = TxId(batch.records[-1].txid + 1)
                    if self._leading and self._current != 0:
                        self._go_to(0)
                return batch
            self._go_to((self._current + 1) % len(self._journals))
            asked += 1
            if asked == len(self._journals):
                if all(index in errors for index in range(self._leading or asked)):
                    raise errors[0]
                errors.clear()
                asked = 0
        raise self._closed_error()

    async def _next_of_current(self) -> RecordBatch | None:
        """None when it was quiet for too long."""
        if self._tail is None:
            self._tail = self._journals[self._current].tail(self.next_txid)
        quiet = _Quiet(self._tail)
        may_wait = len(self._journals) == 1 or (self._leading > 0 and self._current == 0)
        timer = None if may_wait else self._clock.callLater(self._patience_s, quiet.end)
        try:
            return await self._tail.next()
        except BookKeeperError:
            if quiet.ended:
                return None
            raise
        finally:
            if timer is not None and timer.active():
                timer.cancel()

    def _ended(self) -> bool:
        return self._stopped

    def _go_to(self, index: int) -> None:
        self._current = index
        tail, self._tail = self._tail, None
        if tail is not None:
            _stop(tail)  # not awaited: what failed may not answer

    def stop(self) -> Deferred[None]:
        """See EditsTail."""
        if self._stopped:
            return succeed(None)
        self._stopped = True
        tail, self._tail = self._tail, None
        waiting, self._waiting = self._waiting, None
        stopping = succeed(None) if tail is None else tail.stop()
        if waiting is not None:
            waiting.errback(self._closed_error())
        return stopping

    def _closed_error(self) -> JournalClosed:
        return JournalClosed(f"the tail of {self._description} was stopped at txid {self.next_txid}")


class _Quiet:
    """Ends a tail that has had nothing for too long."""

    def __init__(self, tail: EditsTail) -> None:
        self.ended = False
        self._tail = tail

    def end(self) -> None:
        self.ended = True
        _stop(self._tail)


def _stop(tail: EditsTail) -> None:
    tail.stop().addErrback(lambda failure: log.warn("cannot stop a tail: {error}", error=failure.getErrorMessage()))
