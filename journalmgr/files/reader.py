"""The streams out of edits files: one segment, or all that come (I-85).

What a tail promises of a segment in progress: where its writer leaves a mark (ours does), exactly what was durable.
Hadoop's name node leaves none: then whole transactions with right checksums, which a power cut of that machine may take
back; that is found out when the segment is finalised, and fails the tail. Bytes without a mark that are not whole yet
are waited for: they are judged when the segment is finalised.

Thread: reactor; files are read and decoded on the worker, READ_SIZE bytes at a time.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from bookkeeper.errors import again
from bookkeeper.filesystem import File
from bookkeeper.ports import Clock, Timer
from journalmgr.contract import Record, RecordBatch
from journalmgr.edits.frame import RecordDecoder
from journalmgr.errors import (
    EditsCorrupt,
    EditsError,
    GapInTransactions,
    JournalClosed,
    JournalError,
    UnsupportedLayout,
)
from journalmgr.files.directory import JournalDirectory
from journalmgr.files.segment_file import READ_SIZE, decoder_of
from journalmgr.files.writer import RunOnWorker
from journalmgr.model import Segment, TxId


class SegmentCursor:
    """Where reading in one segment's file has got to. Thread: worker.

    limit: offset at which it ends, of a segment in progress; None is the end of the file.
    """

    def __init__(self, directory: JournalDirectory, segment: Segment, from_txid: TxId, limit: int | None) -> None:
        self.segment = segment
        self.limit = limit
        self.next_txid = from_txid
        self._directory = directory
        self._file: File | None = None
        self._decoder: RecordDecoder | None = None
        self._layout_version = segment.layout_version
        self._position = 0
        self._end = 0  # behind the last record that was delivered

    def read(self) -> list[Record]:
        """The next records from `next_txid` on; none at the end.

        Raises EditsError, GapInTransactions, SegmentUnreadable, OSError.
        """
        if self._file is None:
            self._file = self._directory.open_segment(self.segment)
        if self._decoder is None:
            self._layout_version, self._position = self._directory.check_header(self.segment, self._file)
            self._decoder = self._decoder_from_here(self.segment.first_txid)
        while True:
            size = READ_SIZE if self.limit is None else min(READ_SIZE, self.limit - self._position)
            data = self._file.pread(size, self._position) if size > 0 else b""
            if not data:
                if self.limit is not None:
                    self._decoder.finish()  # it is the end of a record; a fault is told when all before it was read
                return []
            self._position += len(data)
            records = self._decoder.feed(data)
            if records and records[0].txid < self.next_txid:
                records = records[self.next_txid - records[0].txid :]
            if records:
                self._check_end(records[-1].txid)
                self.next_txid = TxId(records[-1].txid + 1)
                self._end = records[-1].offset + records[-1].size
                return records

    def batch(self, records: list[Record]) -> RecordBatch:
        """Records that were read, with the layout that they have indeed: a listing may have known none."""
        segment = self.segment
        if segment.layout_version != self._layout_version:
            segment = replace(segment, layout_version=self._layout_version)
        return RecordBatch(segment, records)

    def go_back(self) -> None:
        """Behind the last whole record: what is there was read too early, and may be written anew."""
        if self._end:
            self._position = self._end
            self._decoder = self._decoder_from_here(self.next_txid)

    def _decoder_from_here(self, expected_txid: TxId) -> RecordDecoder:
        assert self._file is not None
        return decoder_of(self._layout_version, self._file.path, offset=self._position, expected_txid=expected_txid)

    def _check_end(self, txid: int) -> None:
        last = self.segment.last_txid
        if last is not None and txid > last:
            raise EditsCorrupt(
                f"it goes on to txid {txid} at least, and by its name it ends at {last}", source=self.segment.name
            )

    def finish(self) -> None:
        """The end was reached: raises where a finalised segment ends too early."""
        assert self._decoder is not None
        self._decoder.finish()
        last = self.segment.last_txid
        if last is not None and self.next_txid <= last:
            raise GapInTransactions(
                f"{self.segment.name} ends before txid {self.next_txid}, and by its name it goes to {last}",
                expected=self.next_txid,
                found=None,
            )

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()


class FileSegmentReader:
    """See SegmentReader. limit: as of SegmentCursor."""

    def __init__(
        self, directory: JournalDirectory, segment: Segment, from_txid: TxId, limit: int | None, run: RunOnWorker
    ) -> None:
        self.segment = segment
        self._cursor = SegmentCursor(directory, segment, from_txid, limit)
        self._run = run
        self._closed = False

    def next(self) -> Deferred[RecordBatch | None]:
        """See SegmentReader."""
        if self._closed:
            return fail(JournalClosed(f"the reader of {self.segment.name} was closed"))

        def read() -> RecordBatch | None:
            if records := self._cursor.read():
                return self._cursor.batch(records)
            self._cursor.finish()
            return None

        return self._run(f"read {self.segment.name}", read)

    def close(self) -> Deferred[None]:
        """See SegmentReader."""
        if self._closed:
            return succeed(None)
        self._closed = True
        return self._run(f"close {self.segment.name}", self._cursor.close).addErrback(self._close_here)

    def _close_here(self, failure: Failure) -> None:
        if not isinstance(failure.value, JournalClosed):
            failure.raiseException()
        # The journal and its worker are gone already.
        self._cursor.close()


class DamagedSegmentReader:
    """Of a segment in progress that is known to be damaged: whoever gets to it is told, and nobody before."""

    def __init__(self, segment: Segment, error: JournalError) -> None:
        self.segment = segment
        self._error = error

    def next(self) -> Deferred[RecordBatch | None]:
        """See SegmentReader."""
        return fail(again(self._error))

    def close(self) -> Deferred[None]:
        """See SegmentReader."""
        return succeed(None)


class FileTail:
    """See EditsTail. Looks again every `period_s` seconds when there was nothing."""

    def __init__(
        self, directory: JournalDirectory, from_txid: TxId, run: RunOnWorker, clock: Clock, period_s: float
    ) -> None:
        self.next_txid = from_txid
        self._directory, self._run, self._clock, self._period_s = directory, run, clock, period_s
        self._cursor: SegmentCursor | None = None
        self._gap_seen = False
        self._unsure: TxId | None = None  # first txid of the segment in progress that was read last
        self.stopped = False
        self._waiting: Deferred[RecordBatch] | None = None
        self._timer: Timer | None = None

    def next(self) -> Deferred[RecordBatch]:
        """See EditsTail. One call at a time."""
        if self.stopped:
            return fail(self._closed_error())
        assert self._waiting is None, "a tail has one reader"
        waiting: Deferred[RecordBatch] = Deferred()
        self._waiting = waiting
        self._look()
        return waiting

    def _look(self) -> None:
        self._timer = None
        self._run("look for new transactions", self._poll).addCallbacks(self._looked, self._failed)

    def _looked(self, batch: RecordBatch | None) -> None:
        if self._waiting is None:
            return  # stopped meanwhile
        if batch is None:
            self._timer = self._clock.callLater(self._period_s, self._look)
            return
        waiting, self._waiting = self._waiting, None
        self.next_txid = TxId(batch.records[-1].txid + 1)
        waiting.callback(batch)

    def _failed(self, failure: Failure) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.errback(failure)

    def stop(self) -> Deferred[None]:
        """See EditsTail."""
        if self.stopped:
            return succeed(None)
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, None
        stopping = self._run("stop following", self._let_go)
        if waiting is not None:
            waiting.errback(self._closed_error())
        return stopping

    def _closed_error(self) -> JournalClosed:
        return JournalClosed(f"the tail of {self._directory.path} was stopped at txid {self.next_txid}")

    # --- worker

    def _let_go(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            cursor.close()

    def _poll(self) -> RecordBatch | None:
        """The next records, if there are any. Thread: worker."""
        cursor = self._cursor
        if cursor is not None and cursor.segment.last_txid is not None and cursor.next_txid <= cursor.segment.last_txid:
            return self._read_finalised(cursor)
        segments = self._directory.segments()
        self._check_taken_back(segments)
        covering = [segment for segment in segments if segment.covers(self.next_txid)]
        if not covering:
            self._check_gap(segments)
            return None
        self._gap_seen = False
        segment = covering[-1]
        self._unsure = segment.first_txid if segment.in_progress else None
        if cursor is not None and cursor.segment.first_txid == segment.first_txid:
            cursor.segment, cursor.limit = segment, None  # it may have been finalised; what was read of it stays so
        else:
            self._let_go()
            cursor = self._cursor = SegmentCursor(self._directory, segment, self.next_txid, None)
        return self._read_finalised(cursor) if segment.last_txid is not None else self._read_in_progress(cursor)

    def _read_finalised(self, cursor: SegmentCursor) -> RecordBatch:
        records = cursor.read()
        if not records:
            cursor.finish()
            raise AssertionError("a segment that is finished is not read on")
        return cursor.batch(records)

    def _read_in_progress(self, cursor: SegmentCursor) -> RecordBatch | None:
        cursor.limit = self._directory.mark(cursor.segment)
        if cursor.limit == 0:
            return None  # nothing is durable, perhaps not even the header
        try:
            records = cursor.read()
        except (EditsError, GapInTransactions) as error:
            if cursor.limit is not None or isinstance(error, UnsupportedLayout):
                raise
            # Perhaps it is being written at this moment: begin anew next time, behind what was delivered.
            records = []
        if cursor.limit is None:
            # Padding ends a decoder, and is overwritten later; perhaps the file itself is replaced by another.
            if records:
                cursor.go_back()
            else:
                self._let_go()
        return cursor.batch(records) if records else None

    def _check_gap(self, segments: list[Segment]) -> None:
        later = next((segment for segment in segments if segment.first_txid > self.next_txid), None)
        # A listing is no single moment: a file that is being renamed may be in none of its names. Twice is a gap.
        if later is not None and self._gap_seen:
            raise GapInTransactions(
                f"{self._directory.path}: expected txid {self.next_txid}, and the next one there is "
                f"{later.first_txid}; what lies between was purged or is lost: start from a checkpoint that covers it",
                expected=self.next_txid,
                found=later.first_txid,
            )
        self._gap_seen = later is not None

    def _check_taken_back(self, segments: list[Segment]) -> None:
        """Raise where transactions were delivered that recovery did not find: only without a mark (see the module)."""
        now = next((segment for segment in segments if segment.first_txid == self._unsure), None)
        if now is not None and now.last_txid is not None and now.last_txid + 1 < self.next_txid:
            raise GapInTransactions(
                f"{now.name} ends at txid {now.last_txid}, but transactions up to {self.next_txid - 1} were read from "
                "it before: a power cut took them back, and what was made of them must be undone",
                expected=self.next_txid,
                found=now.last_txid + 1,
            )
