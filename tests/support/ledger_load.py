"""Writing a ledger under load while things are killed, and checking afterwards that nothing acknowledged is missing.

Every payload can be told from its ledger and entry id, so that a reader finds an entry that is missing, twice, moved or
of another ledger. What was acknowledged is counted from the ranges that the writer's callback got, not from what it
sent.
"""

from __future__ import annotations

import asyncio
import contextlib

from bookkeeper import BookKeeper
from bookkeeper.client.faces.aio import AsyncReadHandle, AsyncWriteHandle
from bookkeeper.errors import BookKeeperError, LedgerClosed, WindowFull

BATCH = 50


def payload_of(ledger_id: int, entry_id: int) -> bytes:
    """20 to 220 bytes."""
    return b"%d/%d " % (ledger_id, entry_id) * (1 + entry_id % 20)


class Load:
    """Appends to one ledger as fast as its window allows, until `stop` or until the handle fails."""

    def __init__(self, ledger: AsyncWriteHandle, batch: int = BATCH) -> None:
        self.ledger, self._batch = ledger, batch
        self.acknowledged = 0
        """Entries 0..acknowledged-1 were acknowledged."""
        self.failure: BookKeeperError | None = None
        self._stopped = False
        self._news = asyncio.Event()
        ledger.on_acknowledged = self._on_acknowledged
        ledger.on_failed = self._on_failed
        self._task = asyncio.ensure_future(self._append())

    def _on_acknowledged(self, entry_ids: range) -> None:
        assert entry_ids.start == self.acknowledged, f"{entry_ids} acknowledged after {self.acknowledged} entries"
        self.acknowledged = entry_ids.stop
        self._news.set()

    def _on_failed(self, error: BookKeeperError) -> None:
        self.failure = error
        self._news.set()

    async def _append(self) -> None:
        ledger_id = self.ledger.id
        while not self._stopped and self.failure is None:
            first = self.ledger.last_add_pushed + 1
            try:
                self.ledger.append_batch_nowait(
                    [payload_of(ledger_id, entry_id) for entry_id in range(first, first + self._batch)]
                )
            except WindowFull:
                # An acknowledgement is no sign of room: that comes with the last answer to an entry.
                with contextlib.suppress(BookKeeperError):  # `failure` tells
                    await self.ledger.ready()
            await asyncio.sleep(0)  # let the loop turn; no time passes

    async def reached(self, count: int) -> None:
        """Return once `count` entries are acknowledged. Raises what the handle failed with."""
        while self.acknowledged < count:
            if self.failure is not None:
                raise self.failure
            self._news.clear()
            await self._news.wait()

    async def failed(self) -> BookKeeperError:
        """Return what the handle fails with."""
        while self.failure is None:
            self._news.clear()
            await self._news.wait()
        return self.failure

    async def stop(self) -> None:
        """Append no more. What is in flight may still be acknowledged."""
        self._stopped = True
        self._news.set()
        try:
            await self._task
        except LedgerClosed:
            assert self.ledger.closed

    async def abandon(self) -> None:
        """Drop the ledger as a crash of the writer would."""
        self._stopped = True
        self.ledger.abort()
        self._news.set()
        await self.stop()


async def check_entries(reader: AsyncReadHandle, acknowledged: int) -> int:
    """Read all of a ledger that was opened with recovery; every acknowledged entry must be there. Its entry count."""
    assert reader.closed
    count = 0
    async for batch in reader.batches():
        for entry in batch:
            assert entry.entry_id == count
            assert entry.payload == payload_of(reader.id, count)
            count += 1
    assert count == reader.last_add_confirmed + 1
    assert count >= acknowledged, f"ledger {reader.id} ends after {count} of {acknowledged} acknowledged entries"
    return count


async def check_ledger(uri: str, ledger_id: int, acknowledged: int) -> int:
    """The same by a client of its own, which recovers the ledger first if it was not closed."""
    async with await BookKeeper.connect(uri) as bk:
        async with await bk.open(ledger_id) as reader:
            return await check_entries(reader, acknowledged)
