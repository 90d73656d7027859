"""The ledger of one task attempt: made at the first rows, fed by the task, closed or deleted at its end.

    task's thread       take the next Arrow batch, make payloads of it, hand over a piece
    reactor's thread    append the piece as soon as the ledger's window has room for it

The task goes on as soon as its piece has its entry ids, so the next one is made while the last ones are on their way.
What is in flight is bounded by the window of the client's settings (windowEntriesMax, windowBytesMax), and what waits
for room by one piece: PIECE_ENTRIES_MAX entries of about PIECE_BYTES.

Nothing here is done per entry but to make its payload.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.errors import BookKeeperError, InvalidArgument, WindowFull
from bookkeeper.model import DigestType, LedgerMetadata
from bookkeeper.spark.sink.commit_format import WrittenLedger
from bookkeeper.spark.sink.options import LedgerSinkOptions
from bookkeeper.spark.sink.purpose import Purpose

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.write.write_handle import WriteHandle

log = Logger()

PIECE_ENTRIES_MAX = 1000
PIECE_BYTES = 1 << 20

VALUE = "value"


@dataclass(frozen=True, slots=True)
class NewLedger:
    """How a ledger is made. digest: the client's settings' unless given."""

    ensemble: int
    write_quorum: int
    ack_quorum: int
    custom: Mapping[str, bytes]
    digest: DigestType | None = None


def write_ledger(
    client: BlockingBookKeeper, options: LedgerSinkOptions, purpose: Purpose, batches: Iterable[Any]
) -> WrittenLedger | None:
    """Write the rows of Arrow batches, whose column is `value`, to a new ledger, and close it; None without any row.

    On return all its entries are durable (acknowledged by the ack quorum). Whatever goes wrong, the ledger is deleted
    where that can be done.
    Raises InvalidArgument for a row that is null or too large, LedgerError, MetadataError, and what `batches` raises.
    """
    ledger: TaskLedger | None = None
    entries = size = crc = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            values = _values(batch, entries, purpose)
            if ledger is None:
                new = NewLedger(options.ensemble, options.write_quorum, options.ack_quorum, purpose.custom())
                ledger = TaskLedger(client, new)
            data = data_of(values)
            crc = zlib.crc32(data, crc)
            for piece in pieces_of(values, len(data)):
                ledger.append(piece)
            entries, size = entries + len(values), size + len(data)
        if ledger is None:
            return None
        metadata = ledger.close()
    except BaseException:
        if ledger is not None:
            ledger.discard()
        raise
    assert (metadata.last_entry_id, metadata.length) == (entries - 1, size), "closed where the last row is"
    return WrittenLedger(ledger.ledger_id, entries, size, crc, purpose.partition, purpose.attempt)


def _values(batch: Any, rows_before: int, purpose: Purpose) -> Any:
    """The column `value` as binary. Raises InvalidArgument for a null."""
    values = batch.column(0)
    if values.null_count:
        row = rows_before + values.is_null().index(True).as_py()
        raise InvalidArgument(
            f"format bookkeeper: row {row} (from 0) of partition {purpose.partition} has a null as value, and an entry "
            "is bytes; leave such rows out (where value is not null), or give them a value (coalesce)"
        )
    kind = values.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return values
    return values.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())


def data_of(values: Any) -> memoryview:
    """All payloads of a binary column as one."""
    _, offsets, data = values.buffers()
    if data is None:
        return memoryview(b"")
    ends = memoryview(offsets).cast("q" if pa.types.is_large_binary(values.type) else "i")
    return memoryview(data)[ends[values.offset] : ends[values.offset + len(values)]]


def pieces_of(values: Any, size: int) -> Iterator[list[bytes]]:
    """The payloads in lists of at most PIECE_ENTRIES_MAX; of PIECE_BYTES, if all were of one size."""
    count = len(values)
    step = max(1, min(PIECE_ENTRIES_MAX, PIECE_BYTES * count // max(1, size)))
    for first in range(0, count, step):
        yield values.slice(first, step).to_pylist()


class TaskLedger:
    """The ledger, from the task's thread. Made at once."""

    def __init__(self, client: BlockingBookKeeper, new: NewLedger) -> None:
        self._client = client
        self._feed = client.run(lambda ledgers: Deferred.fromCoroutine(_Feed.create(ledgers, new)))
        self.ledger_id = self._feed.handle.ledger_id

    def append(self, payloads: list[bytes]) -> None:
        """Add entries; returns once they have their ids. Raises why the ledger cannot be written any more."""
        self._client.run(lambda _: Deferred.fromCoroutine(self._feed.put(payloads)))

    def close(self) -> LedgerMetadata:
        """Wait until all is acknowledged, and close the ledger."""
        return self._client.run(lambda _: self._feed.handle.close())

    def discard(self) -> None:
        """Delete it; where that fails it is left for the sweep."""
        try:
            self._client.run(lambda ledgers: Deferred.fromCoroutine(self._delete(ledgers)))
        except BookKeeperError as error:
            log.warn(
                "ledger {ledger_id} of a task that failed could not be deleted and is left for the sweep: {error}",
                ledger_id=self.ledger_id,
                error=error,
            )

    async def _delete(self, client: LedgerClient) -> None:
        self._feed.handle.abort()
        await client.delete(self.ledger_id)


class _Feed:
    """Appends pieces as the window has room. Thread: reactor."""

    def __init__(self, handle: WriteHandle) -> None:
        self.handle = handle
        self._acknowledged = -1
        self._news: Deferred[None] | None = None
        handle.on_acknowledged = self._on_acknowledged
        handle.on_failed = lambda _: self._tell()

    @classmethod
    async def create(cls, client: LedgerClient, new: NewLedger) -> _Feed:
        """Make the ledger."""
        return cls(
            await client.create(
                ensemble=new.ensemble,
                write_quorum=new.write_quorum,
                ack_quorum=new.ack_quorum,
                digest=new.digest,
                custom=new.custom,
            )
        )

    async def put(self, payloads: list[bytes]) -> None:
        """Append all of them, in pieces where the window is smaller than they are."""
        start, step = 0, len(payloads)
        while start < len(payloads):
            piece = payloads[start : start + step] if step < len(payloads) else payloads
            try:
                self.handle.append_batch_nowait(piece)
                start += len(piece)
            except WindowFull:
                if self._acknowledged < self.handle.last_add_pushed:
                    self._news = Deferred()
                    await self._news  # then there is more room, or the handle has failed
                elif len(piece) > 1:
                    step = len(piece) // 2  # more than the window ever holds
                else:
                    await self.handle.ready()  # other ledgers fill the connection

    def _on_acknowledged(self, entry_ids: range) -> None:
        self._acknowledged = entry_ids[-1]
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.called:
            news.callback(None)
