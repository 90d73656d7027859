"""The stream into one edits file: buffers on the reactor thread, one piece of work for the worker per flush."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from bookkeeper.errors import again
from journalmgr.edits.frame import OP_SIZE_MAX, txid_of
from journalmgr.errors import GapInTransactions, JournalClosed, JournalError, StreamFailed, TransactionTooLarge
from journalmgr.files.directory import JournalDirectory
from journalmgr.files.segment_file import AppendingFile
from journalmgr.model import TxId

T = TypeVar("T")


class RunOnWorker(Protocol):
    """Does a piece of work on the journal's worker, in order; its Deferred fails with JournalError only."""

    def __call__(self, what: str, work: Callable[[], T], /) -> Deferred[T]:
        """what: for messages, behind "cannot"."""


class FileSegmentWriter:
    """See SegmentWriter.

    first_txid - 1 <= durable_txid <= ready_txid <= last_txid. Once `error` is set nothing is taken, and nothing
    acknowledged (I-82). Thread: reactor.
    """

    record_size_max = OP_SIZE_MAX

    def __init__(
        self, directory: JournalDirectory, opened: AppendingFile, first_txid: TxId, run: RunOnWorker, name: str
    ) -> None:
        self.first_txid = first_txid
        self.last_txid = self.durable_txid = TxId(first_txid - 1)
        self.error: JournalError | None = None
        self.closed = False
        self._ready_txid = self.last_txid
        self._directory, self._opened, self._run, self._name = directory, opened, run, name
        self._buffer: list[bytes] = []
        self._ready: list[bytes] = []
        self._flushes = 0

    @property
    def known_end(self) -> int | None:
        """Where the file's records end, once the stream was closed in order."""
        return self._opened.end if self.closed and self.error is None else None

    def write(self, records: Sequence[bytes]) -> None:
        """See SegmentWriter."""
        self._check_open()
        if not records:
            return
        first, last = txid_of(records[0]), txid_of(records[-1])
        expected, end = self.last_txid + 1, TxId(self.last_txid + len(records))
        if first != expected or last != end:
            raise GapInTransactions(
                f"{self._name}: {len(records)} records of txid {first} to {last}; next are {expected} to {end}",
                expected=expected,
                found=first,
            )
        size = max(map(len, records))
        if size > self.record_size_max:
            raise TransactionTooLarge(
                f"a record of {size} bytes; an edits file takes at most {self.record_size_max}", source=self._name
            )
        self._buffer += records
        self.last_txid = end

    def set_ready_to_flush(self) -> None:
        """See SegmentWriter."""
        self._check_open()
        self._make_ready()

    def _make_ready(self) -> None:
        self._ready += self._buffer
        self._buffer = []
        self._ready_txid = self.last_txid

    def flush(self) -> Deferred[TxId]:
        """See SegmentWriter."""
        if self.error is not None:
            return fail(again(self.error))
        records, self._ready = self._ready, []
        txid = self._ready_txid
        if not records and not self._flushes:
            return succeed(txid)
        self._flushes += 1

        def append() -> None:
            if records:
                self._directory.append(self._opened, self.first_txid, records)

        return self._run(f"write to {self._name}", append).addBoth(self._flushed, txid)

    def _flushed(self, result: Failure | None, txid: TxId) -> TxId:
        self._flushes -= 1
        if self.error is None and isinstance(result, Failure):
            self._fail(result.value)
        if self.error is not None:
            raise again(self.error)
        self.durable_txid = max(self.durable_txid, txid)
        return txid

    def _fail(self, cause: BaseException | None) -> None:
        self.error = StreamFailed(f"{self._name}: {cause}; what became of txid {self.durable_txid + 1} on is open")
        self.error.__cause__ = cause
        self._buffer, self._ready = [], []

    def close(self) -> Deferred[None]:
        """See SegmentWriter."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self.error is None:
            self._make_ready()
            flushing = self.flush()
        else:
            flushing = fail(again(self.error))
        try:
            await flushing
        finally:
            await self._run(f"close {self._name}", self._opened.close)

    def abort(self) -> Deferred[None]:
        """See SegmentWriter."""
        if self.closed:
            return succeed(None)
        self.closed = True
        self.error = self.error or JournalClosed(f"{self._name} was given up by its writer")
        self._buffer, self._ready = [], []
        return self._run(f"close {self._name}", self._opened.close)

    def _check_open(self) -> None:
        if self.error is not None:
            raise again(self.error)
        if self.closed:
            raise JournalClosed(f"{self._name} was closed by its writer")
