"""Reading one segment out of its ledger: entries in batches with read-ahead -> records, checked on the way.

Every record's checksum is verified and its txid is the one before plus one (I-81). A finalised segment that ends before
its recorded end, or goes on behind it, is an error where that shows. Thread: reactor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, fail, succeed

from bookkeeper.errors import BookKeeperError, again
from journalmgr.contract import Record, RecordBatch
from journalmgr.errors import EditsCorrupt, GapInTransactions, JournalClosed, SegmentUnreadable
from journalmgr.ledger.end import decoder, describe
from journalmgr.ledger.outcome import translated
from journalmgr.model import Segment, TxId

if TYPE_CHECKING:
    from bookkeeper.client.read.read_handle import ReadHandle


def from_txid_on(records: list[Record], txid: int) -> list[Record]:
    """Those of consecutive records that have this txid or a later one."""
    return records[max(0, txid - records[0].txid) :] if records else records


class UnreadableSegment:
    """A SegmentReader of a segment with an unreadable record: `next` fails with the reason."""

    def __init__(self, segment: Segment, error: SegmentUnreadable) -> None:
        self._segment, self._error = segment, error

    @property
    def segment(self) -> Segment:
        """The segment, from its name alone."""
        return self._segment

    def next(self) -> Deferred[RecordBatch | None]:
        """See SegmentReader."""
        return fail(again(self._error))

    def close(self) -> Deferred[None]:
        """See SegmentReader."""
        return succeed(None)


class LedgerSegmentReader:
    """A SegmentReader. Owns the handle.

    from_txid: records before it are checked and left out. last_txid: where the segment ends by its record, or as it was
    found when it was selected. last_entry_id: what is read, at most.
    """

    def __init__(
        self, handle: ReadHandle, segment: Segment, from_txid: TxId, last_txid: TxId, last_entry_id: int
    ) -> None:
        self._handle, self._segment = handle, segment
        self._from, self._last = from_txid, last_txid
        self._what = describe(segment)
        self._decoder = decoder(segment, self._what, segment.first_txid)
        self._stream = handle.stream(0, last_entry_id)
        self._error: BookKeeperError | None = None
        self._ended = self._closed = False

    @property
    def segment(self) -> Segment:
        """As listed when the stream was selected."""
        return self._segment

    @property
    def first_txid(self) -> TxId:
        """The first txid that it gives."""
        return self._from

    @property
    def last_txid(self) -> TxId:
        """The last txid that it gives."""
        return self._last

    def next(self) -> Deferred[RecordBatch | None]:
        """See SegmentReader. After a failure every call fails alike."""
        if self._error is not None:
            return fail(again(self._error))
        if self._closed:
            return fail(JournalClosed(f"{self._what}: the stream was closed"))
        if self._ended:
            return succeed(None)
        return Deferred.fromCoroutine(self._next())

    async def _next(self) -> RecordBatch | None:
        try:
            while entries := await self._stream.next():
                records = self._decoder.feed(b"".join([entry.payload for entry in entries]))
                if records and records[-1].txid > self._last:
                    records = records[: max(0, self._last + 1 - records[0].txid)]
                    self._error = EditsCorrupt(
                        f"the segment is recorded to end with txid {self._last}, and its ledger goes on: the record or "
                        "the ledger is wrong; what lies behind was not read",
                        source=self._what,
                        txid=self._last + 1,
                    )
                    if not records:
                        raise again(self._error)
                if records := from_txid_on(records, self._from):
                    return RecordBatch(self._segment, records)
            self._decoder.finish()
            expected = self._decoder.expected_txid
            if expected is not None and expected <= self._last:
                raise GapInTransactions(
                    f"{self._what} ends before txid {expected}, and the segment is recorded to end with {self._last}: "
                    "transactions are missing; read them from another copy of the journal",
                    expected=expected,
                    found=None,
                )
        except BookKeeperError as error:
            self._error = translated(f"{self._what}: Error reading entries from bookkeeper", error)
            if self._error is not error:
                self._error.__cause__ = error
            raise again(self._error) from self._error
        self._ended = True
        return None

    def close(self) -> Deferred[None]:
        """See SegmentReader."""
        if self._closed:
            return succeed(None)
        self._closed = True
        self._stream.stop()
        return self._handle.close()
