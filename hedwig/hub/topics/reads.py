"""Reading a topic's messages from its ledgers: the ended ones, and the one being written as far as it is acknowledged.

Each ledger is opened once and stays open while it is read; at most `HANDLES_MAX` of a topic. Nothing is fenced: this
hub owns the topic, and knows what is acknowledged. Bound: of one read about `size_max` bytes, by the mean of the
ledger's messages and of those read last. Thread: reactor. Source: hedwig/PROTOCOL.md 3.3, 3.4.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from bookkeeper.errors import BookKeeperError, NoSuchLedger
from bookkeeper.model import DigestType
from hedwig.errors import NotResponsible, UnexpectedCondition
from hedwig.hub.topics.read_retry import ReadRetry
from hedwig.model import LedgerRange, LocalId
from hedwig.protocol.retention import LedgerFacts

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.client.read.read_handle import ReadHandle
    from hedwig.hub.topics.log import TopicLog

HANDLES_MAX = 2

READ_SIZE_MAX = 4 * 1024 * 1024


class TopicReader:
    """Of one topic's log. size_max: bytes of one read, about; but one message in any case."""

    __slots__ = (
        "_client",
        "_closed",
        "_handles",
        "_log",
        "_mean_size",
        "_size_max",
        "retry",
    )

    def __init__(self, client: LedgerClient, log: TopicLog, size_max: int = READ_SIZE_MAX) -> None:
        self._client, self._log, self._size_max = client, log, size_max
        self._handles: OrderedDict[int, ReadHandle] = OrderedDict()
        self._mean_size = 0.0  # of the messages read last
        self._closed = False
        self.retry = ReadRetry(log)

    async def read(self, first: LocalId, count: int) -> list[bytes]:
        """Stored messages from `first` on, at most so many, of one ledger; empty behind what is acknowledged.

        Raises UnexpectedCondition where `first` is before all that is kept, or a ledger is gone; NotResponsible once
        it is closed; BookKeeperError.
        """
        found = self._log.range_of(first)
        if found is None:
            return []
        assert found.first is not None
        end = self._log.durable_id if found.last is None else found.last.local
        last = min(first + count - 1, end, self._log.durable_id)
        if last < first:
            return []
        try:
            handle = await self._handle(found.ledger_id)
            last = min(last, first + self._fitting(found, handle) - 1)
            entries = await handle.read_unconfirmed(first - found.first, last - found.first)
        except NoSuchLedger as error:
            await self._log.on_missing(found)
            raise UnexpectedCondition(
                f"ledger {found.ledger_id} of topic {self._log.topic!r}, with messages from {found.first} on, is gone"
            ) from error
        except BookKeeperError:
            # The handle of an ended ledger does not notice that the ledger is deleted: the next read opens it again.
            self._drop(found.ledger_id)
            raise
        messages = [bytes(entry.payload) for entry in entries]
        self._mean_size = sum(map(len, messages)) / len(messages)
        return messages

    def _fitting(self, ledger: LedgerRange, handle: ReadHandle) -> int:
        """How many messages are read at once."""
        size = max(self._mean_size, handle.mean_entry_size or 0.0)
        if ledger.last is None:
            written = self._log.last_id.local + 1 - (ledger.first or 1)
            size = max(size, self._log.ledger_bytes / max(1, written))
        return max(1, int(self._size_max / max(1.0, size)))

    async def facts(self) -> list[LedgerFacts]:
        """What is known of each ledger: its size once it is ended, and when it was made. Raises BookKeeperError."""
        return [await self.facts_of(each) for each in self._log.ranges]

    async def facts_of(self, ledger: LedgerRange) -> LedgerFacts:
        """The same of one; of one that is gone, just that. Raises BookKeeperError."""
        try:
            metadata = await self._client.metadata(ledger.ledger_id)
        except NoSuchLedger:
            return LedgerFacts(ledger, gone=True)
        return LedgerFacts(ledger, metadata.length, metadata.created_ms, stored_ms=metadata.stored_ms)

    async def _handle(self, ledger_id: int) -> ReadHandle:
        found = self._handles.get(ledger_id)
        if found is not None:
            self._handles.move_to_end(ledger_id)
            return found
        handle = await self._client.open_without_recovery(ledger_id, self._log.password, DigestType.CRC32)
        if self._closed:
            handle.close()
            raise NotResponsible(f"topic {self._log.topic!r} is not read here any more")
        other = self._handles.setdefault(ledger_id, handle)
        if other is not handle:
            handle.close()
        while len(self._handles) > HANDLES_MAX:
            self._handles.popitem(last=False)[1].close()
        return other

    def _drop(self, ledger_id: int) -> None:
        handle = self._handles.pop(ledger_id, None)
        if handle is not None:
            handle.close()

    def close(self) -> None:
        """Let go of the ledgers; nothing is read any more."""
        self._closed = True
        while self._handles:
            self._handles.popitem()[1].close()
