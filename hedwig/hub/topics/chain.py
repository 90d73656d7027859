"""The ledgers of a topic that nobody writes any more: where they end, what is in the last one, whether they are there.

Of the one that the owner before wrote the end is found by recovery, which stops its adds (I-90). Thread: reactor.
Source: hedwig/PROTOCOL.md 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from twisted.logger import Logger

from bookkeeper.errors import BookKeeperError, NoSuchLedger
from bookkeeper.model import DigestType
from hedwig.errors import UnexpectedCondition
from hedwig.model import FIRST_ID, LedgerRange, LocalId, MessageId, Topic
from hedwig.names import shown
from hedwig.protocol.publish_time import PublishClock, time_of
from hedwig.wire.messages import stored_id
from hedwig.wire.view import MessageView

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient

log = Logger()

AHEAD_MS_MAX = 60_000
"""A topic whose newest message is from so far in the future is worth a word in the log."""


class LedgerChain:
    """See the module. where: of the list, for messages. Made when it is needed: it knows nothing itself."""

    __slots__ = ("_client", "_password", "_topic", "_where")

    def __init__(self, client: LedgerClient, topic: Topic, password: bytes, where: str) -> None:
        self._client, self._topic, self._password, self._where = client, topic, password, where

    async def ended(self, ranges: Sequence[LedgerRange]) -> tuple[list[LedgerRange], LedgerRange | None]:
        """The chain with all its ends, and an empty ledger that is dropped from it. It must have no gap (I-91)."""
        ended: list[LedgerRange] = []
        for position, each in enumerate(ranges):
            first = each.first
            if first is None:
                first = await self._first_of(each) if position == 0 else None
            previous = ended[-1].last if ended else None
            if previous is not None:
                expected = LocalId(previous.local + 1)
                first = expected if first is None else first
                if first != expected:
                    raise UnexpectedCondition(
                        f"{self._where}: ledger {each.ledger_id} begins at {first}, and the one before ends at "
                        f"{previous.local}: messages are missing, or there twice; restore the record"
                    )
            if first is None:
                first = FIRST_ID
            if each.last is not None:
                if each.last.local < first:
                    raise UnexpectedCondition(
                        f"{self._where}: ledger {each.ledger_id} is said to hold {first}..{each.last}"
                    )
                ended.append(replace(each, first=first))
                continue
            if position != len(ranges) - 1:
                raise UnexpectedCondition(f"{self._where}: ledger {each.ledger_id} has no end, and is not the last")
            last = await self.recovered_end(each.ledger_id, first)
            if last is None:
                return ended, replace(each, first=first)
            ended.append(LedgerRange(each.ledger_id, first, last))
        return ended, None

    async def _first_of(self, first_range: LedgerRange) -> LocalId | None:
        """Where the first ledger begins, of a list of a hub before 4.2."""
        if first_range.last is None:
            return None
        handle = await self._client.open_without_recovery(first_range.ledger_id, self._password, DigestType.CRC32)
        try:
            return LocalId(first_range.last.local - handle.last_add_confirmed)
        finally:
            handle.close()

    async def recovered_end(self, ledger_id: int, first: LocalId) -> MessageId | None:
        """Stop whoever writes the ledger; its last message's id, None where it is empty."""
        try:
            handle = await self._client.open(ledger_id, self._password, DigestType.CRC32)
        except NoSuchLedger as error:
            raise UnexpectedCondition(
                f"{self._where} names ledger {ledger_id}, which is gone, as the last one: "
                "restore it, or take it off the list if its messages are not needed"
            ) from error
        try:
            last_entry = handle.last_add_confirmed
            if last_entry < 0:
                return None
            last = stored_id((await handle.read_last()).payload)
        finally:
            handle.close()
        if last.local != first + last_entry:
            raise UnexpectedCondition(
                f"ledger {ledger_id} of topic {self._topic!r} begins with message {first} and has {last_entry + 1}; "
                f"its last one says that it is {last}"
            )
        return last

    async def delete_empty(self, ledger_id: int) -> None:
        """One that nobody names; where that fails it stays, which is told in the log."""
        try:
            await self._client.delete(ledger_id)
        except BookKeeperError as error:
            log.warn("Empty ledger {ledger_id} stays: {error}", ledger_id=ledger_id, error=error)

    async def is_there(self, ledger: LedgerRange) -> bool:
        """Raises BookKeeperError where that cannot be told."""
        try:
            await self._client.metadata(ledger.ledger_id)
        except NoSuchLedger:
            return False
        return True

    async def deleted(self, each: LedgerRange) -> bool:
        """Whether it is gone now; else later."""
        try:
            await self._client.delete(each.ledger_id)
        except NoSuchLedger:
            return True
        except BookKeeperError as error:
            log.warn("Ledger {ledger_id} is deleted later: {error}", ledger_id=each.ledger_id, error=error)
            return False
        return True

    async def publish_clock(self, ranges: Sequence[LedgerRange], now_ms: Callable[[], int]) -> PublishClock:
        """For the messages that follow those. Never fails."""
        clock = PublishClock(await self._newest_time_ms(ranges))
        ahead_ms = clock.ahead_ms(now_ms())
        if ahead_ms > AHEAD_MS_MAX:
            log.warn(
                "The newest message of topic {topic!r} is {ahead:.0f} s ahead of this hub's clock; until that has "
                "caught up, all messages get the same time. Set the clocks of the hubs by NTP",
                topic=shown(self._topic),
                ahead=ahead_ms / 1000,
            )
        return clock

    async def _newest_time_ms(self, ranges: Sequence[LedgerRange]) -> int:
        """What messages to come must not be before: the time of the newest one, or of its ledger. Never fails."""
        if not ranges:
            return 0
        ledger_id = ranges[-1].ledger_id
        try:
            handle = await self._client.open_without_recovery(ledger_id, self._password, DigestType.CRC32)
            try:
                newest = time_of(MessageView(bytes((await handle.read_last()).payload)).properties)
                return (handle.metadata.created_ms or 0) if newest is None else newest
            finally:
                handle.close()
        except BookKeeperError as error:
            log.warn(
                "The newest message of topic {topic!r}, in ledger {ledger_id}, cannot be read; the times of the next "
                "ones are this hub's, and before its own if its clock was ahead: {error}",
                topic=shown(self._topic),
                ledger_id=ledger_id,
                error=error,
            )
            return 0
