"""The ledger client for plain asyncio programs.

    async with await BookKeeper.connect("zk+hierarchical://127.0.0.1:2181/ledgers") as bk:
        async with await bk.create(ensemble=3, write_quorum=2, ack_quorum=2) as ledger:
            await ledger.append(b"one")
        async for entry in (await bk.open(ledger.id)).entries():
            ...

A thin layer over `client.client`: every call makes the core's Deferred and awaits it as a future of the running loop;
its exceptions pass unchanged, cancelling the future cancels the waiting (an append under way may still happen). All
calls belong to the loop in which `connect` ran.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.client.client import BookieInfo, LedgerClient
from bookkeeper.client.connecting import connect_to
from bookkeeper.client.entries import Entry, PayloadBatch
from bookkeeper.client.loop_reactor import LoopReactor
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import AvailableBookies, DigestType, EntryId, LedgerId, LedgerMetadata

if TYPE_CHECKING:
    from bookkeeper.client.advanced_writer import AdvancedWriteHandle
    from bookkeeper.client.reader import ConfirmedAndEntry, ReadHandle
    from bookkeeper.client.writer import OnDone, WriteHandle
    from bookkeeper.client.writing import LedgerWriting
    from bookkeeper.config import ClientSettings
    from bookkeeper.metadata.bad_records import BadRecords

T = TypeVar("T")
B = TypeVar("B", list[Entry], PayloadBatch)

__all__ = ["AsyncAdvancedWriteHandle", "AsyncReadHandle", "AsyncWriteHandle", "BookKeeper"]


def _future(deferred: Deferred[T]) -> asyncio.Future[T]:
    return deferred.asFuture(asyncio.get_running_loop())


class BookKeeper:
    """One client of one cluster, in one asyncio loop."""

    def __init__(self, client: LedgerClient, reactor: LoopReactor) -> None:
        self._client, self._reactor = client, reactor

    @classmethod
    async def connect(cls, uri: str, settings: ClientSettings | None = None) -> BookKeeper:
        """Connect to the cluster at a metadataServiceUri, for example zk+hierarchical://zk1:2181;zk2:2181/ledgers.
        A ';' stands between servers (in a shell it needs quotes); only the key zkServers has commas.

        settings: the defaults if None; `bookkeeper.load_client` reads them from a file and the environment, which are
        not looked at here.
        Fails with ConfigurationError, MetadataUnavailable, NotInitialised, LayoutMismatch.
        """
        loop = asyncio.get_running_loop()
        reactor = LoopReactor(loop)

        def resolve(host: str) -> Deferred[str]:
            return Deferred.fromFuture(asyncio.ensure_future(_resolve(loop, host)))

        try:
            client = await _future(Deferred.fromCoroutine(connect_to(uri, reactor, settings, resolve=resolve)))
        except BaseException:
            reactor.release()
            raise
        return cls(client, reactor)

    async def create(
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
    ) -> AsyncWriteHandle:
        """Create a ledger; see `LedgerClient.create`."""
        created = self._client.create(
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
        return AsyncWriteHandle(await _future(created))

    async def create_advanced(
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
    ) -> AsyncAdvancedWriteHandle:
        """Create a ledger whose entry ids the caller chooses."""
        created = self._client.create_advanced(
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
        return AsyncAdvancedWriteHandle(await _future(created))

    async def open(
        self, ledger_id: int, password: bytes | None = None, digest: DigestType | None = None
    ) -> AsyncReadHandle:
        """Open a ledger for reading all of it; its writer, if any, is stopped first (recovery)."""
        return AsyncReadHandle(await _future(self._client.open(ledger_id, password, digest)))

    async def open_without_recovery(
        self, ledger_id: int, password: bytes | None = None, digest: DigestType | None = None
    ) -> AsyncReadHandle:
        """Open a ledger that may still be written, without disturbing its writer."""
        return AsyncReadHandle(await _future(self._client.open_without_recovery(ledger_id, password, digest)))

    async def open_as_administrator(self, ledger_id: int, *, recover: bool) -> AsyncReadHandle:
        """Open with the digest type and password that the metadata names."""
        return AsyncReadHandle(await _future(self._client.open_as_administrator(ledger_id, recover=recover)))

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger. Fails with NoSuchLedger."""
        await _future(self._client.delete(ledger_id))

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """The ledger's metadata now."""
        return await _future(self._client.metadata(ledger_id))

    async def ids(self, bad_records: BadRecords | None = None) -> AsyncIterator[list[LedgerId]]:
        """Ids of all ledgers, ascending, in batches; bad_records: see `LedgerClient.ids`."""
        ids = self._client.ids(bad_records)

        async def following() -> list[LedgerId]:
            async for batch in ids:
                return batch
            return []

        while batch := await _future(Deferred.fromCoroutine(following())):
            yield batch

    async def available_bookies(self) -> AvailableBookies:
        """The registered bookies now."""
        return await _future(self._client.available_bookies())

    async def bookie_info(self, bookie_id: str) -> BookieInfo:
        """Disk space of one bookie."""
        return await _future(self._client.bookie_info(bookie_id))

    async def list_entries(self, ledger_id: int, bookie_id: str) -> list[range]:
        """Which entries of a ledger one bookie holds: ascending, disjoint ranges; see `LedgerClient.list_entries`.

        Fails with NoSuchLedgerOnBookie where it holds nothing of the ledger.
        """
        return await _future(self._client.list_entries(ledger_id, bookie_id))

    async def close(self) -> None:
        """End all connections; pending operations fail with ClientClosed. Ledgers being written stay open."""
        try:
            await _future(self._client.close())
        finally:
            self._reactor.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Writing:
    """What both write handles share."""

    __slots__ = ("__weakref__", "_writing")

    def __init__(self, writing: LedgerWriting) -> None:
        self._writing = writing

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

    @property
    def on_acknowledged(self) -> Callable[[range], object] | None:
        """Called with every range of entry ids newly acknowledged."""
        return self._writing.on_acknowledged

    @on_acknowledged.setter
    def on_acknowledged(self, call: Callable[[range], object] | None) -> None:
        self._writing.on_acknowledged = call

    @property
    def on_failed(self) -> Callable[[BookKeeperError], object] | None:
        """Called once when the handle fails."""
        return self._writing.on_failed

    @on_failed.setter
    def on_failed(self, call: Callable[[BookKeeperError], object] | None) -> None:
        self._writing.on_failed = call

    async def ready(self) -> None:
        """Wait until the window has room."""
        await _future(self._writing.ready())

    async def flush(self) -> EntryId:
        """Wait until everything appended so far is acknowledged; the last such entry."""
        return await _future(self._writing.flush())

    async def force(self) -> EntryId:
        """Wait until everything acknowledged is on disk; the LAC then. See `WriteHandle.force`."""
        return await _future(self._writing.force())

    async def read(self, first_entry_id: int, last_entry_id: int) -> list[Entry]:
        """Confirmed entries first..last, both included."""
        return await _future(self._writing.read(first_entry_id, last_entry_id))

    async def close(self) -> LedgerMetadata:
        """Wait for what was appended, then close the ledger; its final metadata."""
        return await _future(self._writing.close())

    async def close_now(self) -> LedgerMetadata:
        """Close the ledger at what is confirmed; pending appends fail."""
        return await _future(self._writing.close_now())

    def abort(self) -> None:
        """Drop the handle and leave the ledger open for recovery, as a crash does."""
        self._writing.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _future(Deferred.fromCoroutine(self._writing.__aexit__(kind, error, trace)))


class AsyncWriteHandle(_Writing):
    """The writer of one ledger; see `WriteHandle`."""

    __slots__ = ("_handle",)

    def __init__(self, handle: WriteHandle) -> None:
        super().__init__(handle)
        self._handle = handle

    async def append(self, payload: bytes) -> EntryId:
        """Add one entry; its id, once it is acknowledged."""
        return await _future(self._handle.append(payload))

    async def append_many(self, payloads: Sequence[bytes]) -> range:
        """Add entries; their ids, once all are acknowledged."""
        return await _future(self._handle.append_many(payloads))

    def append_nowait(self, payload: bytes, on_done: OnDone | None = None) -> EntryId:
        """Add one entry without waiting; raises WindowFull when there is no room."""
        return self._handle.append_nowait(payload, on_done)

    def append_batch_nowait(self, payloads: list[bytes]) -> range:
        """Add entries without waiting; completion through `on_acknowledged`. Raises WindowFull."""
        return self._handle.append_batch_nowait(payloads)


class AsyncAdvancedWriteHandle(_Writing):
    """The writer of one ledger whose entry ids the caller chooses; see `AdvancedWriteHandle`."""

    __slots__ = ("_handle",)

    def __init__(self, handle: AdvancedWriteHandle) -> None:
        super().__init__(handle)
        self._handle = handle

    async def append(self, entry_id: int, payload: bytes) -> EntryId:
        """Add one entry under `entry_id`; returns once it and all ids below it are acknowledged."""
        return await _future(self._handle.append(entry_id, payload))

    async def append_many(self, first_entry_id: int, payloads: Sequence[bytes]) -> range:
        """Add entries under consecutive ids."""
        return await _future(self._handle.append_many(first_entry_id, payloads))


class AsyncReadHandle:
    """One ledger, for reading; see `ReadHandle`."""

    def __init__(self, handle: ReadHandle) -> None:
        self._handle = handle

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

    async def read(self, first_entry_id: int, last_entry_id: int) -> list[Entry]:
        """Entries first..last, both included."""
        return await _future(self._handle.read(first_entry_id, last_entry_id))

    async def read_batch(self, first_entry_id: int, count_max: int = 0, size_max: int = 0) -> list[Entry]:
        """Entries from `first` on, as many as come in one go; see `ReadHandle.read_batch`."""
        return await _future(self._handle.read_batch(first_entry_id, count_max, size_max))

    async def read_unconfirmed(self, first_entry_id: int, last_entry_id: int) -> list[Entry]:
        """The same without regard to what is confirmed."""
        return await _future(self._handle.read_unconfirmed(first_entry_id, last_entry_id))

    async def read_last(self) -> Entry:
        """The last entry confirmed."""
        return await _future(self._handle.read_last())

    async def read_last_confirmed(self) -> EntryId:
        """Ask the bookies for the last add confirmed."""
        return await _future(self._handle.read_last_confirmed())

    async def last_stored(self) -> EntryId:
        """The last entry that the bookies hold, confirmed or not; see `ReadHandle.last_stored`."""
        return await _future(self._handle.last_stored())

    async def report_unconfirmed(self) -> str | None:
        """A sentence on entries behind the last add confirmed that may be acknowledged; None where there are none."""
        return await _future(self._handle.report_unconfirmed())

    async def try_read_last_confirmed(self) -> EntryId:
        """The same, content with the first news."""
        return await _future(self._handle.try_read_last_confirmed())

    async def read_last_confirmed_and_entry(
        self, entry_id: int, timeout_s: float, *, parallel: bool = False
    ) -> ConfirmedAndEntry:
        """Wait at most `timeout_s` until an entry is confirmed; the last add confirmed, and the entry if it is."""
        return await _future(self._handle.read_last_confirmed_and_entry(entry_id, timeout_s, parallel=parallel))

    async def batches(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> AsyncIterator[list[Entry]]:
        """Batches of entries, read ahead."""
        async for batch in _batches(self._handle.stream(first_entry_id, last_entry_id)):
            yield batch

    async def payload_batches(
        self, first_entry_id: int = 0, last_entry_id: int | None = None
    ) -> AsyncIterator[PayloadBatch]:
        """Batches of consecutive payloads, without an object for each entry; see `ReadHandle.payload_stream`."""
        async for batch in _batches(self._handle.payload_stream(first_entry_id, last_entry_id)):
            yield batch

    async def entries(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> AsyncIterator[Entry]:
        """Entry by entry, read ahead in batches."""
        async for batch in _batches(self._handle.stream(first_entry_id, last_entry_id)):
            for entry in batch:
                yield entry

    async def tail(self, first_entry_id: int = 0) -> AsyncIterator[list[Entry]]:
        """Batches of entries as they are confirmed, until the ledger is closed and read to its end."""
        async for batch in _batches(self._handle.follow(first_entry_id)):
            yield batch

    async def close(self) -> None:
        """Let go of the ledger."""
        await _future(self._handle.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Stream(Protocol[B]):
    def next(self) -> Deferred[B]: ...

    def stop(self) -> None: ...


async def _batches(stream: _Stream[B]) -> AsyncIterator[B]:
    try:
        while batch := await _future(stream.next()):
            yield batch
    finally:
        stream.stop()


async def _resolve(loop: asyncio.AbstractEventLoop, host: str) -> str:
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(found[0][4][0])
