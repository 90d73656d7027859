"""A topic's stored messages, read from its ledgers without fencing, up to the topic's end when the reading begins.

Of a ledger that is being written, the acknowledged messages are read, or on request all stored ones. A ledger that the
hub deletes during the reading, or that cannot be read, raises UnexpectedCondition, which names its messages. Thread:
reactor.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from bookkeeper.errors import BookKeeperError, NoSuchLedger
from hedwig.admin.region import Region
from hedwig.admin.topic_ends import TopicEnds, end_of_topic
from hedwig.errors import UnexpectedCondition
from hedwig.model import FIRST_ID, LedgerRange, LocalId, Topic
from hedwig.names import shown
from hedwig.wire.view import MessageView

if TYPE_CHECKING:
    from bookkeeper.client.read.read_handle import ReadHandle

UNCONFIRMED_AT_ONCE = 100
"""Entries behind the last confirmed one that are read in one piece."""


class Stored:
    """A topic as it was when `of` was called. first, last: ids of the messages that are kept; last < first: none.

    unconfirmed: text that names the messages behind `last` that may be acknowledged too; None if there are none.
    """

    def __init__(
        self, region: Region, topic: Topic, ranges: list[LedgerRange], last: LocalId, unconfirmed: str | None
    ) -> None:
        self._region, self.topic, self._ranges, self.last = region, topic, ranges, last
        self.unconfirmed = unconfirmed
        self.first = (ranges[0].first or FIRST_ID) if ranges else LocalId(last + 1)

    @classmethod
    async def of(cls, region: Region, topic: Topic, ends: TopicEnds | None) -> Stored:
        """Look the topic up. Raises InvalidArgument if it does not exist; BookKeeperError.

        ends: asks hubs for the last acknowledged message; None: include all stored messages, acknowledged or not.
        """
        await region.owner(topic)
        ranges = await region.ranges(topic)
        if not ranges:
            return cls(region, topic, ranges, LocalId(0), None)
        newest = ranges[-1]
        if ends is None or newest.last is not None:
            return cls(region, topic, ranges, await region.end_of(newest), None)
        handle = await region.open(newest.ledger_id)
        try:
            return cls(region, topic, ranges, *await end_of_topic(region, topic, newest, handle, ends))
        finally:
            await handle.close()

    async def messages(self, first: int, last: int) -> AsyncGenerator[list[tuple[LocalId, MessageView]], None]:
        """Those with ids first..last that are kept, in order, in pieces. Raises UnexpectedCondition."""
        first, last = max(first, self.first), min(last, self.last)
        for each in self._ranges:
            assert each.first is not None
            end = min(last, self.last if each.last is None else each.last.local)
            begin = max(first, each.first)
            if begin > end:
                continue
            try:
                handle = await self._region.open(each.ledger_id)
            except NoSuchLedger as error:
                raise UnexpectedCondition(
                    f"ledger {each.ledger_id}, with messages {each.first} to {end} of topic "
                    f"{self.topic.decode(errors='replace')!r}, is gone; where they were consumed meanwhile, read from "
                    f"{end + 1} on"
                ) from error
            except BookKeeperError as error:
                raise self._unreadable(each.ledger_id, begin, end, error) from error
            base, reached = each.first, begin
            try:
                async with contextlib.aclosing(_payloads(handle, begin - base, end - base)) as pieces:
                    async for entry_id, payloads in pieces:
                        reached = base + entry_id
                        yield [
                            (LocalId(reached + index), MessageView(payload)) for index, payload in enumerate(payloads)
                        ]
                        reached += len(payloads)
            except BookKeeperError as error:
                raise self._unreadable(each.ledger_id, reached, end, error) from error
            finally:
                await handle.close()

    def _unreadable(self, ledger_id: int, first: int, end: int, error: BookKeeperError) -> UnexpectedCondition:
        name = shown(self.topic)
        return UnexpectedCondition(
            f"topic {name!r} cannot be read from message {first} on, in ledger {ledger_id}, which ends with message "
            f"{end}: {error}; `bookkeeper why topic {shlex.quote(name)}` says what is lost and what can be done; to "
            f"skip the ledger, read from {end + 1} on"
        )


async def _payloads(handle: ReadHandle, first: int, last: int) -> AsyncGenerator[tuple[int, list[bytes]], None]:
    confirmed = min(last, handle.last_add_confirmed)
    if first <= confirmed:
        stream = handle.stream(first, confirmed)
        try:
            while batch := await stream.next():
                yield first, [bytes(entry.payload) for entry in batch]
                first += len(batch)
        finally:
            stream.stop()
    while first <= last:
        end = min(last, first + UNCONFIRMED_AT_ONCE - 1)
        entries = await handle.read_unconfirmed(first, end)
        yield first, [bytes(entry.payload) for entry in entries]
        first = end + 1
