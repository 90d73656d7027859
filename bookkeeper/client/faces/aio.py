"""The ledger client for plain asyncio programs.

    async with await BookKeeper.connect("zk+hierarchical://127.0.0.1:2181/ledgers") as bk:
        async with await bk.create(ensemble=3, write_quorum=2, ack_quorum=2) as ledger:
            await ledger.append(b"one")
        async for entry in (await bk.open(ledger.id)).entries():
            ...

A thin layer over `client.client`: every call makes the core's Deferred and awaits it as a future of the running loop;
its exceptions pass unchanged, cancelling the future cancels the waiting (an append under way may still happen). All
calls belong to the loop in which `connect` ran, and to its thread; all others raise WrongLoop at once. A client that
was not closed gives a ResourceWarning. Its connections end with the loop, or earlier if the client is collected.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.client.client import BookieInfo, LedgerClient
from bookkeeper.client.connecting import connect_to
from bookkeeper.client.faces.loop_reactor import ClientLoop, resolve
from bookkeeper.client.faces.process_objects import AsyncPieces, OfOneProcess
from bookkeeper.client.read.entries import Entry, PayloadBatch
from bookkeeper.errors import BookKeeperError
from bookkeeper.model import AvailableBookies, DigestType, EntryId, LedgerId, LedgerMetadata

if TYPE_CHECKING:
    from bookkeeper.client.read.read_handle import ConfirmedAndEntry, ReadHandle
    from bookkeeper.client.write.chosen_ids import AdvancedWriteHandle
    from bookkeeper.client.write.write_handle import OnDone, WriteHandle
    from bookkeeper.client.write.write_handle_base import LedgerWriting
    from bookkeeper.config import ClientSettings
    from bookkeeper.metadata.bad_records import BadRecords

T = TypeVar("T")
B = TypeVar("B", list[Entry], PayloadBatch)

__all__ = ["AsyncAdvancedWriteHandle", "AsyncReadHandle", "AsyncWriteHandle", "BookKeeper"]


class BookKeeper(OfOneProcess):
    """One client of one cluster, in one asyncio loop."""

    def __init__(self, client: LedgerClient, loop: ClientLoop) -> None:
        self._client, self._loop = client, loop

    @classmethod
    async def connect(cls, uri: str, settings: ClientSettings | None = None) -> BookKeeper:
        """Connect to the cluster at a metadataServiceUri, for example zk+hierarchical://zk1:2181;zk2:2181/ledgers.
        A ';' stands between servers (in a shell it needs quotes); only the key zkServers has commas.

        settings: the defaults if None; `bookkeeper.load_client` reads them from a file and the environment, which are
        not looked at here.
        Fails with ConfigurationError, MetadataUnavailable, NotInitialised, LayoutMismatch.
        """
        loop = ClientLoop()
        try:
            client = await loop.run(
                lambda: Deferred.fromCoroutine(connect_to(uri, loop.reactor, settings, resolve=resolve))
            )
        except BaseException:
            loop.abandon()
            raise
        await loop.owned_by(f"BookKeeper of {uri}", client.close)
        return cls(client, loop)

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
        created = self._loop.run(
            self._client.create,
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
        return AsyncWriteHandle(await created, self._loop)

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
        created = self._loop.run(
            self._client.create_advanced,
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
        return AsyncAdvancedWriteHandle(await created, self._loop)

    async def open(
        self, ledger_id: int, password: bytes | None = None, digest: DigestType | None = None
    ) -> AsyncReadHandle:
        """Open a ledger for reading all of it; its writer, if any, is stopped first (recovery)."""
        return AsyncReadHandle(await self._loop.run(self._client.open, ledger_id, password, digest), self._loop)

    async def open_without_recovery(
        self, ledger_id: int, password: bytes | None = None, digest: DigestType | None = None
    ) -> AsyncReadHandle:
        """Open a ledger that may still be written, without disturbing its writer."""
        return AsyncReadHandle(
            await self._loop.run(self._client.open_without_recovery, ledger_id, password, digest), self._loop
        )

    async def open_as_administrator(self, ledger_id: int, *, recover: bool) -> AsyncReadHandle:
        """Open with the digest type and password that the metadata names."""
        return AsyncReadHandle(
            await self._loop.run(self._client.open_as_administrator, ledger_id, recover=recover), self._loop
        )

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger. Fails with NoSuchLedger."""
        await self._loop.run(self._client.delete, ledger_id)

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """The ledger's metadata now."""
        return await self._loop.run(self._client.metadata, ledger_id)

    def ids(self, bad_records: BadRecords | None = None) -> AsyncIterator[list[LedgerId]]:
        """Ids of all ledgers, ascending, in batches; bad_records: see `LedgerClient.ids`."""
        return AsyncPieces(self._ids(bad_records))

    async def _ids(self, bad_records: BadRecords | None) -> AsyncGenerator[list[LedgerId], None]:
        self._loop.check()
        ids = self._client.ids(bad_records)

        async def following() -> list[LedgerId]:
            async for batch in ids:
                return batch
            return []

        while batch := await self._loop.run(lambda: Deferred.fromCoroutine(following())):
            yield batch

    async def available_bookies(self) -> AvailableBookies:
        """The registered bookies now."""
        return await self._loop.run(self._client.available_bookies)

    async def bookie_info(self, bookie_id: str) -> BookieInfo:
        """Disk space of one bookie."""
        return await self._loop.run(self._client.bookie_info, bookie_id)

    async def list_entries(self, ledger_id: int, bookie_id: str) -> Sequence[range]:
        """Which entries of a ledger one bookie holds: ascending, disjoint ranges; see `LedgerClient.list_entries`.

        Fails with NoSuchLedgerOnBookie where it holds nothing of the ledger.
        """
        return await self._loop.run(self._client.list_entries, ledger_id, bookie_id)

    async def close(self) -> None:
        """End all connections; pending operations fail with ClientClosed. Ledgers being written stay open."""
        self._loop.check()
        try:
            await self._loop.run(self._client.close)
        finally:
            await self._loop.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Writing(OfOneProcess):
    """What both write handles share."""

    __slots__ = ("__weakref__", "_loop", "_writing")

    def __init__(self, writing: LedgerWriting, loop: ClientLoop) -> None:
        self._writing, self._loop = writing, loop

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
        await self._loop.run(self._writing.ready)

    async def flush(self) -> EntryId:
        """Wait until everything appended so far is acknowledged; the last such entry."""
        return await self._loop.run(self._writing.flush)

    async def force(self) -> EntryId:
        """Wait until everything acknowledged is on disk; the LAC then. See `WriteHandle.force`."""
        return await self._loop.run(self._writing.force)

    async def read(self, first_entry_id: int, last_entry_id: int) -> list[Entry]:
        """Confirmed entries first..last, both included."""
        return await self._loop.run(self._writing.read, first_entry_id, last_entry_id)

    async def close(self) -> LedgerMetadata:
        """Wait for what was appended, then close the ledger; its final metadata."""
        return await self._loop.run(self._writing.close)

    async def close_now(self) -> LedgerMetadata:
        """Close the ledger at what is confirmed; pending appends fail."""
        return await self._loop.run(self._writing.close_now)

    def abort(self) -> None:
        """Drop the handle and leave the ledger open for recovery, as a crash does."""
        self._loop.check()
        self._writing.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._loop.run(lambda: Deferred.fromCoroutine(self._writing.__aexit__(kind, error, trace)))


class AsyncWriteHandle(_Writing):
    """The writer of one ledger; see `WriteHandle`."""

    __slots__ = ("_handle",)

    def __init__(self, handle: WriteHandle, loop: ClientLoop) -> None:
        super().__init__(handle, loop)
        self._handle = handle

    async def append(self, payload: bytes) -> EntryId:
        """Add one entry; its id, once it is acknowledged."""
        return await self._loop.run(self._handle.append, payload)

    async def append_many(self, payloads: Sequence[bytes]) -> range:
        """Add entries; their ids, once all are acknowledged."""
        return await self._loop.run(self._handle.append_many, payloads)

    def append_nowait(self, payload: bytes, on_done: OnDone | None = None) -> EntryId:
        """Add one entry without waiting; raises WindowFull when there is no room."""
        self._loop.check()
        return self._handle.append_nowait(payload, on_done)

    def append_batch_nowait(self, payloads: list[bytes]) -> range:
        """Add entries without waiting; completion through `on_acknowledged`. Raises WindowFull."""
        self._loop.check()
        return self._handle.append_batch_nowait(payloads)


class AsyncAdvancedWriteHandle(_Writing):
    """The writer of one ledger whose entry ids the caller chooses; see `AdvancedWriteHandle`."""

    __slots__ = ("_handle",)

    def __init__(self, handle: AdvancedWriteHandle, loop: ClientLoop) -> None:
        super().__init__(handle, loop)
        self._handle = handle

    async def append(self, entry_id: int, payload: bytes) -> EntryId:
        """Add one entry under `entry_id`; returns once it and all ids below it are acknowledged."""
        return await self._loop.run(self._handle.append, entry_id, payload)

    async def append_many(self, first_entry_id: int, payloads: Sequence[bytes]) -> range:
        """Add entries under consecutive ids."""
        return await self._loop.run(self._handle.append_many, first_entry_id, payloads)


class AsyncReadHandle(OfOneProcess):
    """One ledger, for reading; see `ReadHandle`."""

    def __init__(self, handle: ReadHandle, loop: ClientLoop) -> None:
        self._handle, self._loop = handle, loop

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
        return await self._loop.run(self._handle.read, first_entry_id, last_entry_id)

    async def read_batch(self, first_entry_id: int, count_max: int = 0, size_max: int = 0) -> list[Entry]:
        """Entries from `first` on, as many as come in one go; see `ReadHandle.read_batch`."""
        return await self._loop.run(self._handle.read_batch, first_entry_id, count_max, size_max)

    async def read_unconfirmed(self, first_entry_id: int, last_entry_id: int) -> list[Entry]:
        """The same without regard to what is confirmed."""
        return await self._loop.run(self._handle.read_unconfirmed, first_entry_id, last_entry_id)

    async def read_last(self) -> Entry:
        """The last entry confirmed."""
        return await self._loop.run(self._handle.read_last)

    async def read_last_confirmed(self) -> EntryId:
        """Ask the bookies for the last add confirmed."""
        return await self._loop.run(self._handle.read_last_confirmed)

    async def last_stored(self) -> EntryId:
        """Return the id of the last entry that bookies hold, confirmed or not; see `ReadHandle.last_stored`."""
        return await self._loop.run(self._handle.last_stored)

    async def report_unconfirmed(self, end: int | None = None) -> str | None:
        """Describe entries after `end` that may be acknowledged; see `ReadHandle.report_unconfirmed`."""
        return await self._loop.run(self._handle.report_unconfirmed, end)

    async def try_read_last_confirmed(self) -> EntryId:
        """The same, content with the first news."""
        return await self._loop.run(self._handle.try_read_last_confirmed)

    async def read_last_confirmed_and_entry(
        self, entry_id: int, timeout_s: float, *, parallel: bool = False
    ) -> ConfirmedAndEntry:
        """Wait at most `timeout_s` until an entry is confirmed; the last add confirmed, and the entry if it is."""
        return await self._loop.run(self._handle.read_last_confirmed_and_entry, entry_id, timeout_s, parallel=parallel)

    def batches(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> AsyncIterator[list[Entry]]:
        """Batches of entries, read ahead."""
        return AsyncPieces(_batches(self._loop, lambda: self._handle.stream(first_entry_id, last_entry_id)))

    def payload_batches(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> AsyncIterator[PayloadBatch]:
        """Batches of consecutive payloads, without an object for each entry; see `ReadHandle.payload_stream`."""
        return AsyncPieces(_batches(self._loop, lambda: self._handle.payload_stream(first_entry_id, last_entry_id)))

    def entries(self, first_entry_id: int = 0, last_entry_id: int | None = None) -> AsyncIterator[Entry]:
        """Entry by entry, read ahead in batches."""
        return AsyncPieces(self._entries(first_entry_id, last_entry_id))

    async def _entries(self, first_entry_id: int, last_entry_id: int | None) -> AsyncGenerator[Entry, None]:
        async for batch in _batches(self._loop, lambda: self._handle.stream(first_entry_id, last_entry_id)):
            for entry in batch:
                yield entry

    def tail(self, first_entry_id: int = 0) -> AsyncIterator[list[Entry]]:
        """Batches of entries as they are confirmed, until the ledger is closed and read to its end."""
        return AsyncPieces(_batches(self._loop, lambda: self._handle.follow(first_entry_id)))

    async def close(self) -> None:
        """Let go of the ledger."""
        await self._loop.run(self._handle.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Stream(Protocol[B]):
    def next(self) -> Deferred[B]: ...

    def stop(self) -> None: ...


async def _batches(loop: ClientLoop, start: Callable[[], _Stream[B]]) -> AsyncGenerator[B, None]:
    loop.check()
    stream = start()
    try:
        while batch := await loop.run(stream.next):
            yield batch
    finally:
        loop.post(stream.stop)
