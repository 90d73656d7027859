"""FileJournal: the JournalManager on edits files in a directory.

Differs from ledgers: a writer cannot be fenced, it holds a lock. `recover_unfinalized` fails while another process
holds it, naming that process; once it succeeds the earlier writer is dead (I-80).

The lock is taken by `recover_unfinalized` and `start_segment` and kept until `close`; others let go of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredLock, fail
from twisted.python.failure import Failure

from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.errors import BookKeeperError, InvalidArgument
from bookkeeper.filesystem import FileSystem
from bookkeeper.ports import Clock, Worker
from journalmgr.contract import SegmentReader, SegmentWriter
from journalmgr.edits.file import PADDING_SIZE
from journalmgr.edits.frame import check_writable
from journalmgr.errors import (
    EditsError,
    GapInTransactions,
    JournalClosed,
    JournalError,
    JournalUnavailable,
    SegmentConflict,
    SegmentExists,
)
from journalmgr.files.directory import JournalDirectory
from journalmgr.files.names import in_progress_name
from journalmgr.files.reader import DamagedSegmentReader, FileSegmentReader, FileTail
from journalmgr.files.writer import FileSegmentWriter
from journalmgr.model import NamespaceInfo, Segment, TxId

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJournalSettings:
    """preallocation_size: bytes of padding that a file is extended by at a time; 0 for none.

    tail_period_s: how often a tail looks for more.
    """

    preallocation_size: int = PADDING_SIZE
    tail_period_s: float = 1.0

    def __post_init__(self) -> None:
        if self.preallocation_size < 0:
            raise InvalidArgument(f"a preallocation of {self.preallocation_size} bytes: want 0 or more")
        if self.tail_period_s <= 0:
            raise InvalidArgument(f"a tail period of {self.tail_period_s} s: want more than 0")


class FileJournal(OfOneProcess):
    """See JournalManager. Owns the worker, which `close` stops. Thread: reactor.

    namespace: what the journal belongs to; None takes whatever is there. holder: how the lock file calls this process.
    """

    instead = "pass the journal's URI and its options instead, and open the journal where they arrive"

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        worker: Worker,
        clock: Clock,
        namespace: NamespaceInfo | None,
        *,
        holder: str,
        settings: FileJournalSettings = FileJournalSettings(),
    ) -> None:
        self.description = f"file://{path}"
        self._directory = JournalDirectory(
            fs, path, namespace, holder=holder, preallocation_size=settings.preallocation_size
        )
        self._worker, self._clock, self._settings = worker, clock, settings
        self._writer: FileSegmentWriter | None = None  # of the segment that this journal began last
        self._changing = DeferredLock()
        self._tails: list[FileTail] = []
        self._stopped = False
        self._closing: Deferred[None] | None = None

    def _run(self, what: str, work: Callable[[], T]) -> Deferred[T]:
        """See RunOnWorker."""
        if self._stopped:
            return fail(JournalClosed(f"{self.description} was closed"))
        done: Deferred[T] = Deferred()

        def failed(error: BaseException) -> None:
            if isinstance(error, OSError) or (isinstance(error, BookKeeperError) and not _is_told(error)):
                unavailable = JournalUnavailable(f"{self.description}: cannot {what}: {error}")
                unavailable.__cause__ = error
                error = unavailable
            done.errback(error)

        self._worker.submit(work, done.callback, failed)
        return done

    def _do(self, what: str, work: Callable[[], T]) -> Deferred[T]:
        """The same for what a closed journal refuses."""
        if self._closing is not None:
            return fail(JournalClosed(f"{self.description} was closed"))
        return self._run(what, work)

    def _in_turn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Deferred[T]:
        """Run what begins or ends a segment, after what was called before."""
        return self._changing.run(lambda: Deferred.fromCoroutine(work()))

    # --- format

    def has_data(self) -> Deferred[bool]:
        """See JournalManager."""
        return self._do("look into it", self._directory.has_data)

    def format(self, namespace: NamespaceInfo, *, force: bool = False) -> Deferred[None]:
        """See JournalManager. Fails with SegmentExists while this journal writes a segment."""
        writer = self._writer
        if writer is not None and not writer.closed:
            return fail(SegmentExists(f"{self.description}: segment {writer.first_txid} is being written"))
        return self._do("format it", lambda: self._directory.format(namespace, force=force))

    def namespace(self) -> Deferred[NamespaceInfo]:
        """See JournalManager."""
        return self._do("read its namespace", self._directory.namespace)

    # --- writing

    def recover_unfinalized(self) -> Deferred[list[Segment]]:
        """See JournalManager. Fails with JournalUnavailable while another process holds the lock."""
        return self._in_turn(self._recover)

    async def _recover(self) -> list[Segment]:
        writer = self._writer
        if writer is not None:
            await writer.abort()
        found = await self._do("recover it", self._directory.recover)
        if self._writer is writer:
            self._writer = None
        return found

    def start_segment(self, first_txid: TxId, layout_version: int) -> Deferred[SegmentWriter]:
        """See JournalManager. Fails with JournalUnavailable while another process holds the lock."""
        return self._in_turn(lambda: self._start(first_txid, layout_version))

    async def _start(self, first_txid: TxId, layout_version: int) -> SegmentWriter:
        check_writable(layout_version)
        opened = await self._do("start a segment", lambda: self._directory.start(first_txid, layout_version))
        name = f"{self._directory.path}/{in_progress_name(first_txid)}"
        self._writer = writer = FileSegmentWriter(self._directory, opened, first_txid, self._run, name)
        if self._closing is not None:
            await writer.abort()
            raise JournalClosed(f"{self.description} was closed")
        return writer

    def finalize_segment(self, first_txid: TxId, last_txid: TxId) -> Deferred[Segment]:
        """See JournalManager."""
        return self._in_turn(lambda: self._finalise(first_txid, last_txid))

    async def _finalise(self, first_txid: TxId, last_txid: TxId) -> Segment:
        known_end: int | None = None
        writer = self._writer
        if writer is not None and writer.first_txid == first_txid:
            await writer.close()
            known_end = writer.known_end
            if known_end is not None and writer.durable_txid != last_txid:
                raise SegmentConflict(
                    f"{self.description}: segment {first_txid} cannot be finalised as {first_txid}..{last_txid}: "
                    f"{writer.durable_txid} was its last transaction"
                )
        return await self._do("finalise a segment", lambda: self._directory.finalise(first_txid, last_txid, known_end))

    # --- reading

    def segments(self) -> Deferred[list[Segment]]:
        """See JournalManager."""
        return self._do("list its segments", self._directory.segments)

    def last_txid_seen(self) -> Deferred[TxId]:
        """See JournalManager."""
        return self._do("list its segments", self._directory.last_txid_seen)

    def select_input_streams(self, from_txid: TxId, *, in_progress_ok: bool = False) -> Deferred[list[SegmentReader]]:
        """See JournalManager. Of a segment whose header is damaged, the reader fails with SegmentUnreadable.

        Fails with EditsCorrupt where what is durable of a segment in progress is damaged, and it is the first.
        """

        def select() -> list[SegmentReader]:
            readers: list[SegmentReader] = []
            expected = from_txid
            for segment in self._directory.segments():
                last, limit = segment.last_txid, None
                if not segment.covers(expected):
                    if segment.first_txid > expected:
                        break  # a gap
                    continue
                if last is None:
                    if not in_progress_ok:
                        break
                    try:
                        found = self._directory.confirmed(segment)
                    except (EditsError, GapInTransactions) as error:
                        if not readers:
                            raise
                        readers.append(DamagedSegmentReader(segment, error))
                        break
                    if found.last_txid is None or found.last_txid < expected:
                        break
                    last, limit = found.last_txid, found.end
                readers.append(FileSegmentReader(self._directory, segment, expected, limit, self._run))
                expected = TxId(last + 1)
            return readers

        return self._do("select streams", select)

    def tail(self, from_txid: TxId) -> FileTail:
        """See JournalManager."""
        tail = FileTail(self._directory, from_txid, self._run, self._clock, self._settings.tail_period_s)
        self._tails = [*(other for other in self._tails if not other.stopped), tail]
        return tail

    # --- trimming

    def purge_older_than(self, min_txid_to_keep: TxId) -> Deferred[list[Segment]]:
        """See JournalManager."""
        return self._do("purge it", lambda: self._directory.purge(min_txid_to_keep))

    def discard_from(self, first_txid: TxId) -> Deferred[list[Segment]]:
        """See JournalManager. Fails with SegmentExists while this journal writes one of them."""
        writer = self._writer
        if writer is not None and not writer.closed and writer.last_txid >= first_txid:
            return fail(
                SegmentExists(f"{self.description}: the segment that begins at {writer.first_txid} is being written")
            )
        return self._do("discard segments", lambda: self._directory.discard(first_txid))

    def close(self) -> Deferred[None]:
        """See JournalManager."""
        waiting: Deferred[None] = Deferred()
        if self._closing is None:
            self._closing = Deferred()
            Deferred.fromCoroutine(self._close()).chainDeferred(self._closing)
        self._closing.addBoth(_pass_on, waiting)
        return waiting

    async def _close(self) -> None:
        try:
            for tail in self._tails:
                await tail.stop()
            if self._writer is not None:
                await self._writer.abort()
        finally:
            try:
                await self._run("release its lock", self._directory.release)
            finally:
                self._stopped = True
                await self._worker.stop()


def _is_told(error: BookKeeperError) -> bool:
    """Whether the contract has this error; what the disk's seam raises besides is the journal's being unavailable."""
    return isinstance(error, JournalError | InvalidArgument)


def _pass_on(result: object, waiting: Deferred[None]) -> None:
    if isinstance(result, Failure):
        waiting.errback(result)
    else:
        waiting.callback(None)
