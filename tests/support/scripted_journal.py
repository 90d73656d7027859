"""A journal in memory whose flushes and starts the test answers: for who stands on a journal.

journal = ScriptedJournal()
writer = journal.writers[-1]          the last segment's
writer.flushes[0].answer()            the first flush that is not answered yet succeeds; .fail(error)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred, fail, succeed

from journalmgr.contract import EditsTail, JournalManager, Record, RecordBatch, SegmentReader, SegmentWriter
from journalmgr.edits.frame import RecordDecoder, txid_of
from journalmgr.errors import JournalClosed, WriterReplaced
from journalmgr.model import NamespaceInfo, Segment, TxId

_NONE = TxId(0)


@dataclass
class Flush:
    """One flush that waits for its answer."""

    writer: ScriptedWriter
    last_txid: TxId
    result: Deferred[TxId]

    def answer(self) -> None:
        """It succeeds."""
        self.writer.flushes.remove(self)
        self.writer.durable_txid = self.last_txid
        self.result.callback(self.last_txid)
        self.writer.journal.tell_tails()

    def fail(self, error: Exception) -> None:
        """It fails."""
        self.writer.flushes.remove(self)
        self.result.errback(error)


@dataclass
class ScriptedWriter:
    """See SegmentWriter."""

    journal: ScriptedJournal
    first_txid: TxId
    layout_version: int
    record_size_max: int = 1000
    records: list[bytes] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    flushes: list[Flush] = field(default_factory=list)
    durable_txid: TxId = _NONE
    ready_txid: TxId = _NONE
    closed: bool = False
    fenced: bool = False

    @property
    def last_txid(self) -> TxId:
        return TxId(self.first_txid + len(self.records) - 1)

    def write(self, records: Sequence[bytes]) -> None:
        for record in records:
            assert txid_of(record) == self.last_txid + 1
            self.records.append(record)
        self.batches.append(len(records))

    def set_ready_to_flush(self) -> None:
        self.ready_txid = self.last_txid

    def flush(self) -> Deferred[TxId]:
        if self.fenced:
            return fail(WriterReplaced("recovered by another"))
        flush = Flush(self, self.ready_txid, Deferred())
        self.flushes.append(flush)
        if self.journal.answers_at_once:
            flush.answer()
        return flush.result

    def close(self) -> Deferred[None]:
        self.closed = True
        return succeed(None)

    def abort(self) -> Deferred[None]:
        self.closed = True
        return succeed(None)


@dataclass
class ScriptedReader:
    """See SegmentReader."""

    segment: Segment
    records: list[Record]

    def next(self) -> Deferred[RecordBatch | None]:
        records, self.records = self.records[:3], self.records[3:]
        return succeed(RecordBatch(self.segment, records) if records else None)

    def close(self) -> Deferred[None]:
        return succeed(None)


class ScriptedTail:
    """See EditsTail."""

    def __init__(self, journal: ScriptedJournal, next_txid: TxId) -> None:
        self.next_txid = next_txid
        self._journal = journal
        self._waiting: Deferred[RecordBatch] | None = None
        self._stopped = False

    def next(self) -> Deferred[RecordBatch]:
        waiting: Deferred[RecordBatch] = Deferred()
        self._waiting = waiting
        self.look()
        return waiting

    def look(self) -> None:
        """Give what is durable to whoever waits."""
        if self._waiting is None:
            return
        if self._stopped or self._journal.tail_error is not None:
            waiting, self._waiting = self._waiting, None
            waiting.errback(self._journal.tail_error or JournalClosed("stopped"))
            return
        for writer in self._journal.writers:
            if writer.first_txid <= self.next_txid <= writer.durable_txid:
                durable = writer.records[: writer.durable_txid - writer.first_txid + 1]
                records = RecordDecoder(writer.layout_version, source="scripted").feed(b"".join(durable))
                records = records[self.next_txid - writer.first_txid :]
                self.next_txid = TxId(records[-1].txid + 1)
                waiting, self._waiting = self._waiting, None
                waiting.callback(RecordBatch(Segment(writer.first_txid, None, writer.layout_version), records))
                return

    def stop(self) -> Deferred[None]:
        self._stopped = True
        self.look()
        return succeed(None)


class ScriptedJournal:
    """See JournalManager. What it does not need it does not have."""

    description = "scripted://"

    def __init__(self, *, answers_at_once: bool = False) -> None:
        self.answers_at_once = answers_at_once
        self.writers: list[ScriptedWriter] = []
        self.finalised: list[Segment] = []
        self.start_error: Exception | None = None
        self.finalise_error: Exception | None = None
        self.finalise_segment_later: Deferred[Segment] | None = None
        self.tail_error: Exception | None = None
        self.recover_error: Exception | None = None
        self.purged_txid = TxId(0)
        self.tails: list[ScriptedTail] = []

    @property
    def writer(self) -> ScriptedWriter:
        """The last segment's."""
        return self.writers[-1]

    def tell_tails(self) -> None:
        """Something is durable."""
        for tail in self.tails:
            tail.look()

    def recover_unfinalized(self) -> Deferred[list[Segment]]:
        """Finalise what is in progress at what is durable; flushes that wait fail."""
        if self.recover_error is not None:
            return fail(self.recover_error)
        done = {segment.first_txid for segment in self.finalised}
        recovered = []
        for writer in self.writers:
            if writer.first_txid not in done:
                for flush in list(writer.flushes):
                    flush.fail(WriterReplaced("recovered by another"))
                del writer.records[writer.durable_txid - writer.first_txid + 1 :]
                writer.fenced = True
                recovered.append(Segment(writer.first_txid, writer.durable_txid, writer.layout_version))
        self.finalised += recovered
        self.tell_tails()
        return succeed(recovered)

    def start_segment(self, first_txid: TxId, layout_version: int) -> Deferred[SegmentWriter]:
        if self.start_error is not None:
            return fail(self.start_error)
        self.writers.append(ScriptedWriter(self, first_txid, layout_version, durable_txid=TxId(first_txid - 1)))
        return succeed(self.writer)

    def finalize_segment(self, first_txid: TxId, last_txid: TxId) -> Deferred[Segment]:
        if self.finalise_error is not None:
            return fail(self.finalise_error)
        if self.finalise_segment_later is not None:
            return self.finalise_segment_later
        writer = next(writer for writer in self.writers if writer.first_txid == first_txid)
        assert writer.durable_txid == last_txid
        segment = Segment(first_txid, last_txid, writer.layout_version)
        self.finalised.append(segment)
        return succeed(segment)

    def segments(self) -> Deferred[list[Segment]]:
        open_ones = [
            Segment(writer.first_txid, None, writer.layout_version)
            for writer in self.writers
            if writer.first_txid not in {segment.first_txid for segment in self.finalised}
        ]
        return succeed(sorted([*self.finalised, *open_ones]))

    def last_txid_seen(self) -> Deferred[TxId]:
        return succeed(max([self.purged_txid, *(segment.last_txid or TxId(0) for segment in self.finalised)]))

    def select_input_streams(self, from_txid: TxId, *, in_progress_ok: bool = False) -> Deferred[list[SegmentReader]]:
        readers: list[SegmentReader] = []
        for segment in sorted(self.finalised):
            if segment.last_txid is not None and segment.last_txid >= from_txid:
                if segment.first_txid > from_txid:
                    break
                writer = next(writer for writer in self.writers if writer.first_txid == segment.first_txid)
                records = RecordDecoder(segment.layout_version, source="scripted").feed(b"".join(writer.records))
                records = [record for record in records if record.txid <= segment.last_txid]
                readers.append(ScriptedReader(segment, [record for record in records if record.txid >= from_txid]))
                from_txid = TxId(segment.last_txid + 1)
        done = {segment.first_txid for segment in self.finalised}
        for writer in self.writers if in_progress_ok else ():
            if writer.first_txid not in done and writer.first_txid <= from_txid <= writer.durable_txid:
                segment = Segment(writer.first_txid, None, writer.layout_version)
                durable = b"".join(writer.records[: writer.durable_txid - writer.first_txid + 1])
                records = RecordDecoder(segment.layout_version, source="scripted").feed(durable)
                readers.append(ScriptedReader(segment, [record for record in records if record.txid >= from_txid]))
        return succeed(readers)

    def has_data(self) -> Deferred[bool]:
        return succeed(bool(self.writers))

    def format(self, namespace: NamespaceInfo, *, force: bool = False) -> Deferred[None]:
        raise NotImplementedError

    def namespace(self) -> Deferred[NamespaceInfo]:
        raise NotImplementedError

    def tail(self, from_txid: TxId) -> EditsTail:
        self.tails.append(ScriptedTail(self, from_txid))
        return self.tails[-1]

    def purge_older_than(self, min_txid_to_keep: TxId) -> Deferred[list[Segment]]:
        gone = [segment for segment in self.finalised if (segment.last_txid or min_txid_to_keep) < min_txid_to_keep]
        self.purged_txid = max([self.purged_txid, *(segment.last_txid or TxId(0) for segment in gone)])
        self.lose(gone)
        return succeed(gone)

    def lose(self, segments: list[Segment]) -> None:
        """They are gone."""
        firsts = {segment.first_txid for segment in segments}
        self.finalised = [segment for segment in self.finalised if segment.first_txid not in firsts]
        self.writers = [writer for writer in self.writers if writer.first_txid not in firsts]

    def discard_from(self, first_txid: TxId) -> Deferred[list[Segment]]:
        raise NotImplementedError

    def close(self) -> Deferred[None]:
        return succeed(None)


def _is_a_journal(journal: ScriptedJournal) -> JournalManager:
    return journal
