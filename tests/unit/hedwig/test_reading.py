"""Reading a topic straight from its ledgers, which are stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.errors import BookKeeperError, NoSuchEntry
from hedwig.admin.reading import Stored
from hedwig.errors import UnexpectedCondition
from hedwig.model import LedgerRange, LocalId, MessageId, Topic
from hedwig.wire.messages import Message, encode_message

PAYLOAD = encode_message(Message(b"x"))


class Ledger:
    """A ledger of ten entries. good: entries that are delivered before one is lost."""

    last_add_confirmed = 9

    def __init__(self, good: int) -> None:
        self.good, self.closed = good, False

    def stream(self, first: int, last: int) -> Ledger:
        return self

    async def next(self) -> list[SimpleNamespace]:
        if not self.good:
            raise NoSuchEntry("entry 0 of ledger 7: no bookie has it")
        count, self.good = self.good, 0
        return [SimpleNamespace(payload=PAYLOAD)] * count

    def stop(self) -> None:
        """Nothing is under way."""

    async def close(self) -> None:
        self.closed = True


def reading(opened: Ledger | BookKeeperError) -> str:
    async def open_ledger(ledger_id: int) -> Ledger:
        if isinstance(opened, BookKeeperError):
            raise opened
        return opened

    async def read() -> None:
        region: Any = SimpleNamespace(open=open_ledger)
        ranges = [LedgerRange(7, LocalId(11), MessageId(LocalId(20)))]
        stored = Stored(region, Topic(b"a roll"), ranges, LocalId(20), None)
        async for _ in stored.messages(1, 20):
            pass

    failed: list[Any] = []
    Deferred.fromCoroutine(read()).addErrback(failed.append)
    with pytest.raises(UnexpectedCondition) as raised:
        failed[0].raiseException()
    return str(raised.value)


@pytest.mark.parametrize("good", [0, 4])
def test_a_lost_entry_is_reported_with_topic_and_remedy(good: int) -> None:
    ledger = Ledger(good)
    assert reading(ledger) == (
        f"topic 'a roll' cannot be read from message {11 + good} on, in ledger 7, which ends with message 20: entry 0 "
        "of ledger 7: no bookie has it; `bookkeeper why topic 'a roll'` says what is lost and what can be done; to "
        "skip the ledger, read from 21 on"
    )
    assert ledger.closed


def test_a_ledger_that_cannot_be_opened_is_reported_with_topic_and_remedy() -> None:
    text = reading(BookKeeperError("no bookie answers"))
    assert text.startswith("topic 'a roll' cannot be read from message 11 on, in ledger 7")
    assert "bookkeeper why topic" in text
