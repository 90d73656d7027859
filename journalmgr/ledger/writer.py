"""Writing one segment into its ledger: records -> entries, flush, the first failure is the last word.

    write -> buffer --(more than output_buffer_size, or set_ready_to_flush)--> entry n --> ledger
                                                                      acknowledged 0..m <--

An entry holds whole records and nothing else, and no more of them than a genuine bookie takes. Entries are counted when
they are cut, before they are sent: entry ids are that count, for the ledger's ids begin at 0 and nobody else writes it.
A flush waits for the entries that were cut when it was made ready; the ledger acknowledges in order, so that is one
number. What finds no room in the ledger's window waits here; whoever writes bounds that by awaiting his flushes.

Thread: reactor. Source: journalmgr/FORMATS.md 3.5, 4.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.parallel import tell_all
from bookkeeper.errors import BookKeeperError, LedgerClosed, LedgerFencedOff, MetadataUnavailable, WindowFull, again
from journalmgr.edits.frame import FRAME_SIZE, txid_of
from journalmgr.errors import (
    GapInTransactions,
    JournalClosed,
    JournalError,
    JournalUnavailable,
    StreamFailed,
    TransactionTooLarge,
)
from journalmgr.ledger.outcome import write_failure
from journalmgr.model import Segment, TxId

if TYPE_CHECKING:
    from bookkeeper.client.write.write_handle import WriteHandle

log = Logger()


class LedgerSegmentWriter:
    """A SegmentWriter. Made by LedgerJournal.start_segment; owns the handle."""

    def __init__(
        self, handle: WriteHandle, segment: Segment, journal: str, *, output_buffer_size: int, entry_size_max: int
    ) -> None:
        self.segment = segment
        self._what = f"{journal}: segment {segment} in ledger {handle.ledger_id}"
        self._handle = handle
        self._buffer_size_max, self._entry_size_max = output_buffer_size, entry_size_max
        # durable <= ready <= last
        self._last_txid = self._ready_txid = self._durable_txid = TxId(segment.first_txid - 1)
        self._buffer: list[bytes] = []
        self._buffer_size = 0
        # acknowledged <= ready <= cut, numbers of entries; `_unsent` are the last of those that were cut
        self._cut = self._ready = self._acknowledged = 0
        self._unsent: deque[bytes] = deque()
        self._flushes: deque[tuple[int, TxId, Deferred[TxId]]] = deque()
        self._error: JournalError | None = None
        self._ended = self._aborted = False
        self._closing: list[Deferred[None]] | None = None
        self._closed = False
        handle.on_acknowledged = self._on_acknowledged
        handle.on_failed = self._on_failed

    # --- what is known

    @property
    def ledger_id(self) -> int:
        """Where it writes."""
        return self._handle.ledger_id

    @property
    def first_txid(self) -> TxId:
        """The first txid that the segment takes."""
        return self.segment.first_txid

    @property
    def last_txid(self) -> TxId:
        """The last txid written."""
        return self._last_txid

    @property
    def durable_txid(self) -> TxId:
        """The last txid that a flush acknowledged."""
        return self._durable_txid

    @property
    def record_size_max(self) -> int:
        """Bytes of the largest record."""
        return self._entry_size_max

    @property
    def closed(self) -> bool:
        """The ledger is closed and ends with `last_txid`."""
        return self._closed

    # --- writing

    def write(self, records: Sequence[bytes]) -> None:
        """See SegmentWriter."""
        if self._error is not None:
            raise StreamFailed(f"{self._what}: Trying to write to an errored stream") from self._error
        if self._ended:
            raise JournalClosed(f"{self._what}: the stream is closed; start another segment")
        if not records:
            return
        sizes = list(map(len, records))
        self._check(records, sizes)
        self._last_txid = TxId(self._last_txid + len(records))
        size = sum(sizes)
        if self._buffer_size + size <= self._buffer_size_max:
            self._buffer += records
            self._buffer_size += size
            return
        for record, size in zip(records, sizes, strict=True):
            if self._buffer_size + size > self._entry_size_max:
                self._cut_entry()
            self._buffer.append(record)
            self._buffer_size += size
            if self._buffer_size > self._buffer_size_max:
                self._cut_entry()
        self._send()

    def _check(self, records: Sequence[bytes], sizes: list[int]) -> None:
        if max(sizes) > self._entry_size_max:
            raise TransactionTooLarge(
                f"a transaction of {max(sizes)} bytes does not fit into an entry, which takes {self._entry_size_max}: "
                "split it",
                source=self._what,
            )
        if min(sizes) < FRAME_SIZE:
            raise GapInTransactions(
                f"{self._what}: {min(sizes)} bytes are no whole record", expected=self._last_txid + 1, found=None
            )
        expected = self._last_txid + 1
        for record, txid in ((records[0], expected), (records[-1], expected + len(records) - 1)):
            if txid_of(record) != txid:
                raise GapInTransactions(
                    f"{self._what}: txid {txid_of(record)} was written where {txid} comes next: txids are consecutive",
                    expected=txid,
                    found=txid_of(record),
                )

    def set_ready_to_flush(self) -> None:
        """See SegmentWriter."""
        if self._buffer and self._error is None:
            self._cut_entry()
            self._send()
        self._ready, self._ready_txid = self._cut, self._last_txid

    def flush(self) -> Deferred[TxId]:
        """See SegmentWriter."""
        if self._error is not None:
            return fail(again(self._error))
        if self._acknowledged >= self._ready:
            self._durable_txid = self._ready_txid
            return succeed(self._durable_txid)
        flushed: Deferred[TxId] = Deferred()
        self._flushes.append((self._ready, self._ready_txid, flushed))
        return flushed

    def _cut_entry(self) -> None:
        if self._buffer:
            self._cut += 1
            self._unsent.append(self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer))
            self._buffer.clear()
            self._buffer_size = 0

    def _send(self) -> None:
        """Give the ledger what has room there. What has not goes on when entries are acknowledged."""
        unsent, handle = self._unsent, self._handle
        try:
            while unsent:
                handle.append_batch_nowait([unsent[0]])
                unsent.popleft()
        except WindowFull:
            if self._acknowledged + len(unsent) >= self._cut:
                # None of ours is on its way, so no acknowledgement will wake us: this one waits in the ledger's queue.
                handle.append(unsent.popleft()).addErrback(self._append_failed)
        except BookKeeperError as error:
            self._on_failed(error)

    def _append_failed(self, failure: Failure) -> None:
        if isinstance(failure.value, BookKeeperError):
            self._on_failed(failure.value)
        else:
            log.failure("{what}: an entry could not be added", failure=failure, what=self._what)
            self._fail(StreamFailed(f"{self._what}: {failure.value!r}"))

    def _on_acknowledged(self, entry_ids: range) -> None:
        self._acknowledged = acknowledged = entry_ids.stop
        if self._unsent:
            self._send()
        flushes = self._flushes
        while flushes and flushes[0][0] <= acknowledged:
            _, txid, flushed = flushes.popleft()
            self._durable_txid = txid
            flushed.callback(txid)

    def _on_failed(self, error: BookKeeperError) -> None:
        self._fail(write_failure(self._what, error), error)

    def _fail(self, error: JournalError, cause: BaseException | None = None) -> None:
        """The first error is every flush's from now on (I-82)."""
        if self._error is None:
            error.__cause__ = cause
            self._error = error
        self._buffer.clear()
        self._buffer_size = 0
        self._unsent.clear()
        flushes, self._flushes = self._flushes, deque()
        for _, _, flushed in flushes:
            flushed.errback(again(self._error))

    # --- the end

    def close(self) -> Deferred[None]:
        """See SegmentWriter. The ledger is closed too. Fails as `flush` does, or with JournalUnavailable."""
        if self._closed:
            return succeed(None)
        done: Deferred[None] = Deferred()
        if self._closing is not None:
            self._closing.append(done)
            return done
        self._closing = [done]
        Deferred.fromCoroutine(self._close()).addBoth(self._on_closed)
        return done

    def _on_closed(self, result: Failure | None) -> None:
        waiting, self._closing = self._closing or [], None
        tell_all(waiting, result)

    async def _close(self) -> None:
        self._ended = True
        self.set_ready_to_flush()
        await self.flush()
        try:
            metadata = await self._handle.close()
        except MetadataUnavailable as error:
            raise JournalUnavailable(f"{self._what}: BookKeeper error during close: {error}; try again") from error
        except BookKeeperError as error:
            self._on_failed(error)
            assert self._error is not None
            raise again(self._error) from self._error
        if metadata.last_entry_id != self._cut - 1:
            self._on_failed(
                LedgerFencedOff(f"the ledger ends with entry {metadata.last_entry_id}, not {self._cut - 1}")
            )
            assert self._error is not None
            raise again(self._error)
        self._closed = True

    def abort(self) -> Deferred[None]:
        """See SegmentWriter. Closes the ledger at what is acknowledged, if that can be done, so that it can be read."""
        if self._closed or self._aborted:
            return succeed(None)
        self._ended = self._aborted = True
        self._fail(JournalClosed(f"{self._what}: the stream was aborted; recover the journal"))
        closing = self._handle.close_now()
        return closing.addCallbacks(lambda _: None, self._close_after_abort_failed)

    def _close_after_abort_failed(self, failure: Failure) -> None:
        if not isinstance(failure.value, LedgerFencedOff | LedgerClosed):
            log.info(
                "{what}: its ledger stays open after the stream was aborted, and recovery will close it: {error}",
                what=self._what,
                error=failure.value,
            )

    def drop(self) -> None:
        """Forget the ledger as it is, as a process does that ends."""
        if not self._closed and not self._aborted:
            self._ended = self._aborted = True
            self._fail(JournalClosed(f"{self._what}: the journal was closed"))
            self._handle.abort()
