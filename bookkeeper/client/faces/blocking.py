"""The ledger client without Deferreds, coroutines or reactors: for scripts, command lines and Spark workers.

    with bookkeeper.blocking.connect(uri) as bk, bk.create() as ledger:
        ledger.append(b"one")

A daemon thread runs a private reactor; every call crosses over, waits and returns the value or raises the error.
Crossing costs about 0.1 ms, so batches are the way: `append_many`, and iterators that fetch READ_BATCH entries per
crossing.

Any thread may call, except the client's own, which runs the functions passed to `run`: a call there would wait for
itself and raises WrongThread. Ctrl-C interrupts the waiting. After a fork the child has no such thread: its calls raise
ClientClosed, as do calls once the interpreter ends. Dropping an iterator ends it without waiting, on any thread. A
client that is dropped without `close`, together with all its handles and iterators, gives a ResourceWarning and ends
its connections.

Dropping or closing a generator that is inside a `with` block of a client or a writer waits for nothing. The ledger is
closed soon afterwards; `close` of its client waits for that, at most 10 s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.client.client import BookieInfo, LedgerClient
from bookkeeper.client.connecting import connect_to
from bookkeeper.client.faces.process_objects import BlockingFace, OfOneProcess, Pieces
from bookkeeper.client.faces.reactor_thread import ReactorThread
from bookkeeper.client.read.entries import Entry, PayloadBatch
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import AvailableBookies, DigestType, EntryId, LedgerId, LedgerMetadata

if TYPE_CHECKING:
    from bookkeeper.client.read.read_handle import ConfirmedAndEntry, ReadHandle
    from bookkeeper.client.read.stream import EntryStream, LedgerTail, PayloadStream
    from bookkeeper.client.write.chosen_ids import AdvancedWriteHandle
    from bookkeeper.client.write.write_handle import WriteHandle
    from bookkeeper.client.write.write_handle_base import LedgerWriting
    from bookkeeper.config import ClientSettings
    from bookkeeper.metadata.bad_records import BadRecords

T = TypeVar("T")

READ_BATCH = 1000
"""Entries an iterator fetches per crossing of threads, at most READ_BATCH_BYTES of them."""

READ_BATCH_BYTES = 4 * 1024 * 1024

__all__ = [
    "BlockingAdvancedWriteHandle",
    "BlockingBookKeeper",
    "BlockingReadHandle",
    "BlockingWriteHandle",
    "connect",
]


def connect(uri: str, settings: ClientSettings | None = None) -> BlockingBookKeeper:
    """Connect to the cluster at a metadataServiceUri, for example zk+hierarchical://zk1:2181;zk2:2181/ledgers.
    A ';' stands between servers (in a shell it needs quotes); only the key zkServers has commas.

    settings: the defaults if None; `bookkeeper.load_client` reads them from a file and the environment, which are
    not looked at here.
    Raises ConfigurationError, MetadataUnavailable, NotInitialised, LayoutMismatch.
    """
    crossing = ReactorThread()
    try:
        client = crossing.run(
            lambda: Deferred.fromCoroutine(connect_to(uri, crossing.reactor, settings, resolve=crossing.resolve))
        )
    except BaseException:
        crossing.stop()
        raise
    crossing.owned_by(f"BlockingBookKeeper of {uri}", client.close)
    return BlockingBookKeeper(client, crossing)


class BlockingBookKeeper(BlockingFace, OfOneProcess):
    """One client of one cluster. A context manager. Thread: any but the client's own."""

    def __init__(self, client: LedgerClient, crossing: ReactorThread) -> None:
        self._client, self._crossing = client, crossing
        self._closed = False

    def run(self, start: Callable[[LedgerClient], Deferred[T]]) -> T:
        """Run `start(client)` on the client's own thread and wait for its Deferred.

        For operations that this face lacks. `start` must not call this face: that raises WrongThread.
        """
        return self._crossing.run(lambda: start(self._client))

    def pieces(self, start: Callable[[LedgerClient], AsyncIterator[T]]) -> Iterator[T]:
        """Yield what the asynchronous iterator `start(client)` yields, one crossing each; see `run`."""
        return Pieces(self._crossing.pieces(lambda: start(self._client)))

    def create(
        self,
        *,
        ensemble: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest: DigestType | None = None,
        password: bytes | None = None,
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        metadata_version: int | None = None,
        bookies: Sequence[str] | None = None,
        deferred_sync: bool = False,
    ) -> BlockingWriteHandle:
        """Create a ledger; see `LedgerClient.create`."""
        handle = self._crossing.run(
            lambda: self._client.create(
                ensemble=ensemble,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest=digest,
                password=password,
                custom=custom,
                ledger_id=ledger_id,
                metadata_version=metadata_version,
                bookies=bookies,
                deferred_sync=deferred_sync,
            )
        )
        return BlockingWriteHandle(handle, self._crossing)

    def create_advanced(
        self,
        *,
        ensemble: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        digest: DigestType | None = None,
        password: bytes | None = None,
        custom: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        metadata_version: int | None = None,
        bookies: Sequence[str] | None = None,
        deferred_sync: bool = False,
    ) -> BlockingAdvancedWriteHandle:
        """Create a ledger whose entry ids the caller chooses."""
        handle = self._crossing.run(
            lambda: self._client.create_advanced(
                ensemble=ensemble,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest=digest,
                password=password,
                custom=custom,
                ledger_id=ledger_id,
                metadata_version=metadata_version,
                bookies=bookies,
                deferred_sync=deferred_sync,
            )
        )
        return BlockingAdvancedWriteHandle(handle, self._crossing)

    def open(
        self, ledger_id: int, password: bytes | None = None, digest: DigestType | None = None
    ) -> BlockingReadHandle:
        """Open a ledger for reading all of it; its writer, if any, is stopped first (recovery)."""
        handle = self._crossing.run(lambda: self._client.open(ledger_id, password, digest))
        return BlockingReadHandle(handle, self._crossing)

    def open_without_recovery(
        self, ledger_id: int, password: bytes | None = None, digest: DigestType | None = None
    ) -> BlockingReadHandle:
        """Open a ledger that may still be written, without disturbing its writer."""
        handle = self._crossing.run(lambda: self._client.open_without_recovery(ledger_id, password, digest))
        return BlockingReadHandle(handle, self._crossing)

    def open_as_administrator(self, ledger_id: int, *, recover: bool) -> BlockingReadHandle:
        """Open with the digest type and password that the metadata names."""
        handle = self._crossing.run(lambda: self._client.open_as_administrator(ledger_id, recover=recover))
        return BlockingReadHandle(handle, self._crossing)

    def delete(self, ledger_id: int) -> None:
        """Delete a ledger. Raises NoSuchLedger."""
        self._crossing.run(lambda: self._client.delete(ledger_id))

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        """The ledger's metadata now."""
        return self._crossing.run(lambda: self._client.metadata(ledger_id))

    def ids(self, bad_records: BadRecords | None = None) -> Iterator[list[LedgerId]]:
        """Ids of all ledgers, ascending, in batches; bad_records: see `LedgerClient.ids`."""
        return self.pieces(lambda client: client.ids(bad_records))

    def available_bookies(self) -> AvailableBookies:
        """The registered bookies now."""
        return self._crossing.run(self._client.available_bookies)

    def bookie_info(self, bookie_id: str) -> BookieInfo:
        """Disk space of one bookie."""
        return self._crossing.run(lambda: self._client.bookie_info(bookie_id))

    def list_entries(self, ledger_id: int, bookie_id: str) -> Sequence[range]:
        """Which entries of a ledger one bookie holds: ascending, disjoint ranges; see `LedgerClient.list_entries`.

        Raises NoSuchLedgerOnBookie where it holds nothing of the ledger.
        """
        return self._crossing.run(lambda: self._client.list_entries(ledger_id, bookie_id))

    def close(self) -> None:
        """End all connections and the thread. Ledgers being written stay open. Harmless when repeated."""
        if self._closed:
            return
        self._crossing.check()
        self._closed = True
        try:
            self._crossing.close_in_order(self._client.close)
        finally:
            self._crossing.stop()

    def _abandon(self) -> None:
        self._closed = True
        self._crossing.abandon()


class _Writing(OfOneProcess):
    """The operations of both write handles. Thread: any but the client's own."""

    def __init__(self, writing: LedgerWriting, crossing: ReactorThread) -> None:
        self._writing, self._crossing = writing, crossing

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self._writing.ledger_id

    ledger_id = id

    @property
    def metadata(self) -> LedgerMetadata:
        """As last read or written by this handle."""
        return self._writing.metadata

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry confirmed: acknowledged, and with deferred sync also forced."""
        return self._writing.last_add_confirmed

    @property
    def last_add_pushed(self) -> EntryId:
        """The last entry id given out."""
        return self._writing.last_add_pushed

    @property
    def length(self) -> int:
        """Payload bytes up to the last add confirmed."""
        return self._writing.length

    @property
    def closed(self) -> bool:
        """The handle takes no more entries."""
        return self._writing.closed

    def flush(self) -> EntryId:
        """Wait until everything appended so far is acknowledged; the last such entry."""
        return self._crossing.run(self._writing.flush)

    def force(self) -> EntryId:
        """Wait until everything acknowledged is on disk; the LAC then. See `WriteHandle.force`."""
        return self._crossing.run(self._writing.force)

    def read(self, first_entry_id: int, last_entry_id: int) -> list[Entry]:
        """Confirmed entries first..last, both included."""
        return self._crossing.run(lambda: self._writing.read(first_entry_id, last_entry_id))

    def close(self) -> LedgerMetadata:
        """Wait for what was appended, then close the ledger; its final metadata."""
        return self._crossing.run(self._writing.close)

    def close_now(self) -> LedgerMetadata:
        """Close the ledger at what is confirmed; pending appends fail."""
        return self._crossing.run(self._writing.close_now)

    def abort(self) -> None:
        """Drop the handle and leave the ledger open for recovery, as a crash does."""
        self._crossing.call(self._writing.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crossing.leave(kind, lambda: Deferred.fromCoroutine(self._writing.__aexit__(kind, error, trace)))


class BlockingWriteHandle(_Writing):
    """The writer of one ledger; see `WriteHandle`."""

    def __init__(self, handle: WriteHandle, crossing: ReactorThread) -> None:
        super().__init__(handle, crossing)
        self._handle = handle

    def append(self, payload: bytes) -> EntryId:
        """Add one entry; its id, once it is acknowledged."""
        return self._crossing.run(lambda: self._handle.append(payload))

    def append_many(self, payloads: Sequence[bytes]) -> range:
        """Add entries; their ids, once all are acknowledged."""
        return self._crossing.run(lambda: self._handle.append_many(payloads))


class BlockingAdvancedWriteHandle(_Writing):
    """The writer of one ledger whose entry ids the caller chooses; see `AdvancedWriteHandle`."""

    def __init__(self, handle: AdvancedWriteHandle, crossing: ReactorThread) -> None:
        super().__init__(handle, crossing)
        self._handle = handle

    def append(self, entry_id: int, payload: bytes) -> EntryId:
        """Add one entry under `entry_id`; returns once it and all ids below it are acknowledged."""
        return self._crossing.run(lambda: self._handle.append(entry_id, payload))

    def append_many(self, first_entry_id: int, payloads: Sequence[bytes]) -> range:
        """Add entries under consecutive ids."""
        return self._crossing.run(lambda: self._handle.append_many(first_entry_id, payloads))


class BlockingReadHandle(OfOneProcess):
    """One ledger, for reading; see `ReadHandle`. Thread: any but the client's own; an iterator: one at a time."""

    def __init__(self, handle: ReadHandle, crossing: ReactorThread) -> None:
        self._handle, self._crossing = handle, crossing

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self._handle.ledger_id

    ledger_id = id

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest metadata seen."""
        return self._handle.metadata

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry that may be read, as far as is known."""
        return self._handle.last_add_confirmed

    @property
    def length(self) -> int:
        """Payload bytes, as far as is known."""
        return self._handle.length

    @property
    def closed(self) -> bool:
        """The ledger's end is final."""
        return self._handle.closed

    def read(self, first_entry_id: int, last_entry_id: int) -> list[Entry]:
        """Entries first..last, both included."""
        return self._crossing.run(lambda: self._handle.read(first_entry_id, last_entry_id))

    def read_batch(self, first_entry_id: int, count_max: int = 0, size_max: int = 0) -> list[Entry]:
        """Entries from `first` on, as many as come in one go; see `ReadHandle.read_batch`."""
        return self._crossing.run(lambda: self._handle.read_batch(first_entry_id, count_max, size_max))

    def read_unconfirmed(self, first_entry_id: int, last_entry_id: int) -> list[Entry]:
        """The same without regard to what is confirmed."""
        return self._crossing.run(lambda: self._handle.read_unconfirmed(first_entry_id, last_entry_id))

    def read_last(self) -> Entry:
        """The last entry confirmed."""
        return self._crossing.run(self._handle.read_last)

    def read_last_confirmed(self) -> EntryId:
        """Ask the bookies for the last add confirmed."""
        return self._crossing.run(self._handle.read_last_confirmed)

    def last_stored(self) -> EntryId:
        """Return the id of the last entry that bookies hold, confirmed or not; see `ReadHandle.last_stored`."""
        return self._crossing.run(self._handle.last_stored)

    def report_unconfirmed(self, end: int | None = None) -> str | None:
        """Describe entries after `end` that may be acknowledged; see `ReadHandle.report_unconfirmed`."""
        return self._crossing.run(lambda: self._handle.report_unconfirmed(end))

    def try_read_last_confirmed(self) -> EntryId:
        """The same, content with the first news."""
        return self._crossing.run(self._handle.try_read_last_confirmed)

    def note_confirmed(self, entry_id: int) -> None:
        """Another reader has seen the ledger confirmed up to `entry_id`."""
        self._crossing.call(lambda: self._handle.note_confirmed(entry_id))

    def read_last_confirmed_and_entry(
        self, entry_id: int, timeout_s: float, *, parallel: bool = False
    ) -> ConfirmedAndEntry:
        """Wait at most `timeout_s` until an entry is confirmed; the last add confirmed, and the entry if it is."""
        return self._crossing.run(
            lambda: self._handle.read_last_confirmed_and_entry(entry_id, timeout_s, parallel=parallel)
        )

    def batches(
        self, first_entry_id: int = 0, last_entry_id: int | None = None, *, entries_max: int = READ_BATCH
    ) -> Iterator[list[Entry]]:
        """Batches of about `entries_max` entries or READ_BATCH_BYTES, whichever is less, read ahead."""
        stream = self._crossing.call(lambda: self._handle.stream(first_entry_id, last_entry_id))
        return Pieces(self._iterate(stream, lambda: Deferred.fromCoroutine(_collect(stream, entries_max))))

    def payload_batches(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> Iterator[PayloadBatch]:
        """Batches of consecutive payloads, without an object for each entry: for who reads very many of them.

        While the caller works with a batch the next ones are on their way, at most `readAheadEntriesMax` entries and
        about `readAheadBytesMax` bytes, and the next one is handed over. Every entry is verified, as by `read`.
        """
        stream = self._crossing.call(lambda: self._handle.payload_stream(first_entry_id, last_entry_id))
        return Pieces(self._ahead(stream))

    def _ahead(self, stream: PayloadStream) -> Generator[PayloadBatch, None, None]:
        following = self._crossing.begin(stream.next)
        try:
            while batch := following.wait():
                following = self._crossing.begin(stream.next)
                yield batch
        finally:  # the garbage collector may run this, on any thread
            self._crossing.post(stream.stop)
            following.cancel()

    def entries(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> Iterator[Entry]:
        """Entry by entry, read ahead in batches."""
        return Pieces(self._entries(first_entry_id, last_entry_id))

    def _entries(self, first_entry_id: int, last_entry_id: int | None) -> Generator[Entry, None, None]:
        for batch in self.batches(first_entry_id, last_entry_id):
            yield from batch

    def tail(self, first_entry_id: int = 0) -> Iterator[list[Entry]]:
        """Batches of entries as they are confirmed, until the ledger is closed and read to its end."""
        tail = self._crossing.call(lambda: self._handle.follow(first_entry_id))
        return Pieces(self._iterate(tail, tail.next))

    def _iterate(
        self, stream: EntryStream | LedgerTail, following: Callable[[], Deferred[list[Entry]]]
    ) -> Generator[list[Entry], None, None]:
        try:
            while batch := self._crossing.run(following):
                yield batch
        finally:  # the garbage collector may run this, on any thread
            self._crossing.post(stream.stop)

    def close(self) -> None:
        """Let go of the ledger. Waits for nothing. Thread: any."""
        self._crossing.post(self._handle.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _collect(stream: EntryStream, entries_max: int) -> list[Entry]:
    """Several batches of a stream, so that crossing threads is worth it."""
    collected: list[Entry] = []
    size = 0
    while len(collected) < entries_max and size < READ_BATCH_BYTES:
        try:
            batch = await stream.next()
        except BookKeeperError:
            if collected:
                return collected  # the error comes again with the next call
            raise
        if not batch:
            break
        collected += batch
        size += sum(len(entry.payload) for entry in batch)
    return collected
