"""Following a journal: all transactions from a txid on, as they are confirmed, over the ends of segments (I-85).

    look --segment with next_txid--> follow its ledger by the LAC --closed and read to its end--> look again
     |                                        |
     +--none: wait until the list changes     +--gone (it was empty, or purged): look again

What comes next is kept as a txid, never as a place: after a failure the segment is read again from its beginning, and
what was given already is left out. Nothing is fenced, and nothing past the LAC is read (I-42, I-43). The list is
watched; of a lost watch it is told, and then looks again. Thread: reactor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, InvalidArgument, NoSuchLedger
from journalmgr.contract import RecordBatch
from journalmgr.errors import GapInTransactions, JournalClosed, NotFormatted
from journalmgr.ledger.end import decoder, describe, open_segment
from journalmgr.ledger.outcome import translated
from journalmgr.ledger.reader import from_txid_on
from journalmgr.ledger.znodes import NO_LIST
from journalmgr.model import UNKNOWN_LAYOUT, Segment, TxId

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.read.read_handle import ReadHandle
    from bookkeeper.client.read.stream import LedgerTail
    from bookkeeper.metadata.tree import TreeEvent
    from journalmgr.edits.frame import RecordDecoder
    from journalmgr.ledger.znodes import JournalZnodes


class _Following:
    """One segment's ledger, as far as it was read."""

    __slots__ = ("decoder", "handle", "segment", "stream")

    def __init__(self, segment: Segment, handle: ReadHandle, stream: LedgerTail, decoder: RecordDecoder) -> None:
        self.segment, self.handle, self.stream, self.decoder = segment, handle, stream, decoder


class LedgerEditsTail:
    """An EditsTail. Made by LedgerJournal.tail."""

    def __init__(
        self,
        znodes: JournalZnodes,
        client: LedgerClient,
        password: bytes,
        from_txid: TxId,
        on_stop: Callable[[LedgerEditsTail], object],
    ) -> None:
        self._znodes, self._client, self._password = znodes, client, password
        self._next_txid = from_txid
        self._on_stop = on_stop
        self._following: _Following | None = None
        self._finished: set[int | None] = set()  # ledgers that were read to their end
        self._waiting: Deferred[RecordBatch] | None = None
        self._changed: Deferred[None] | None = None
        self._news = False
        self._stopped = False

    @property
    def next_txid(self) -> TxId:
        """The txid that comes next."""
        return self._next_txid

    def next(self) -> Deferred[RecordBatch]:
        """See EditsTail. One call at a time; after a failure the next call tries again from `next_txid`."""
        if self._stopped:
            return fail(self._stopped_error())
        if self._waiting is not None:
            return fail(InvalidArgument(f"{self._what}: next() is waiting already; one call at a time"))
        waiting: Deferred[RecordBatch] = Deferred()
        self._waiting = waiting
        Deferred.fromCoroutine(self._next()).addBoth(self._answer)
        return waiting

    def _answer(self, result: RecordBatch | Failure) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return  # it was stopped
        if not isinstance(result, Failure):
            waiting.callback(result)
            return
        self._let_go()
        error = result.value
        waiting.errback(translated(self._what, error) if isinstance(error, BookKeeperError) else result)

    @property
    def _what(self) -> str:
        return f"tail of journal {self._znodes.root} at txid {self._next_txid}"

    async def _next(self) -> RecordBatch:
        while not self._stopped:
            if self._following is None:
                segment = await self._find()
                if segment is None:
                    await self._until_changed()
                    continue
                await self._follow(segment)
            batch = await self._read_on()
            if batch is not None:
                return batch
        raise self._stopped_error()

    # --- which segment

    async def _find(self) -> Segment | None:
        """The segment that has the next txid, or may come to have it; None: not there yet. Raises GapInTransactions."""
        self._news = False
        self._znodes.forget(self._znodes.list_path, self._on_list_changed)
        await self._znodes.sync()
        segments = await self._znodes.named_segments(watch=self._on_list_changed)
        if segments is None:
            raise NotFormatted(f"journal {self._znodes.root} at {self._znodes.description} {NO_LIST}")
        known = {segment.ledger_id for segment in segments}
        self._finished &= known
        txid = self._next_txid
        for segment in segments:
            if not segment.in_progress and segment.covers(txid):
                return segment
        finalised = {segment.ledger_id for segment in segments if not segment.in_progress} - {None}
        candidates = [
            segment
            for segment in segments
            if segment.in_progress
            and segment.first_txid <= txid
            and segment.ledger_id not in self._finished
            and segment.ledger_id not in finalised
        ]
        if candidates:
            return candidates[-1]
        later = next((segment for segment in segments if segment.first_txid > txid), None)
        if later is not None:
            raise GapInTransactions(
                f"{self._what}: the next transaction in the journal is {later.first_txid}; what lies between was "
                "purged or is lost: start from a checkpoint that covers it",
                expected=txid,
                found=later.first_txid,
            )
        return None

    def _on_list_changed(self, event: TreeEvent) -> None:
        self._news = True
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.callback(None)

    def _until_changed(self) -> Deferred[None]:
        if self._news or self._stopped:
            return succeed(None)
        self._changed = Deferred()
        return self._changed

    # --- its ledger

    async def _follow(self, segment: Segment) -> None:
        if segment.layout_version == UNKNOWN_LAYOUT:
            listed = await self._znodes.read_segment(segment.name)  # raises the reason, unless it was repaired
            if listed is None:
                return
            segment = listed.segment
        try:
            handle = await open_segment(self._client, segment, self._password)
        except BookKeeperError as error:
            await self._unless_removed(segment, error)
            return
        if self._stopped:
            await handle.close()
            return
        decoding = decoder(segment, describe(segment), segment.first_txid)
        self._following = _Following(segment, handle, handle.follow(), decoding)

    async def _read_on(self) -> RecordBatch | None:
        """The next records of the ledger that is followed; None when there are none and another look is due."""
        following = self._following
        if following is None:
            return None
        try:
            entries = await following.stream.next()
        except BookKeeperError as error:
            if self._stopped:
                raise self._stopped_error() from error
            self._let_go()
            await self._unless_removed(following.segment, error)
            return None
        if not entries:
            following.decoder.finish()
            self._let_go()
            self._at_the_end(following)
            return None
        records = following.decoder.feed(b"".join([entry.payload for entry in entries]))
        records = from_txid_on(records, self._next_txid)
        if not records:
            return None
        self._next_txid = TxId(records[-1].txid + 1)
        return RecordBatch(following.segment, records)

    def _at_the_end(self, following: _Following) -> None:
        segment = following.segment
        if segment.last_txid is not None and self._next_txid <= segment.last_txid:
            raise GapInTransactions(
                f"{describe(segment)} ends before txid {self._next_txid}, and the segment is recorded to end with "
                f"{segment.last_txid}: transactions are missing; read them from another copy of the journal",
                expected=self._next_txid,
                found=None,
            )
        self._finished.add(segment.ledger_id)

    async def _unless_removed(self, segment: Segment, error: BookKeeperError) -> None:
        """Raise the error unless the segment is not in the list any more: it was empty, or purged."""
        cause = error.__cause__ if isinstance(error.__cause__, NoSuchLedger) else error
        if isinstance(cause, NoSuchLedger):
            segments = await self._znodes.named_segments()
            if all(each.ledger_id != segment.ledger_id for each in segments or ()):
                return
        raise error

    def _let_go(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.stream.stop()
            following.handle.close()

    # --- the end

    def stop(self) -> Deferred[None]:
        """See EditsTail. Harmless when repeated."""
        if not self._stopped:
            self._stopped = True
            self._znodes.forget(self._znodes.list_path, self._on_list_changed)
            waiting, self._waiting = self._waiting, None
            changed, self._changed = self._changed, None
            self._let_go()
            if changed is not None:
                changed.callback(None)
            self._on_stop(self)
            if waiting is not None:
                waiting.errback(self._stopped_error())
        return succeed(None)

    def _stopped_error(self) -> JournalClosed:
        return JournalClosed(f"{self._what} was stopped")
