"""A member of a group as asyncio has it: waiting for room, and hearing why there will be none."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail

from bookkeeper.client.faces.loop_reactor import ClientLoop
from bookkeeper.errors import BookKeeperError
from journalmgr.aio import AsyncMember
from journalmgr.edit_log import EditLog
from journalmgr.errors import JournalClosed, LogFull, StreamFailed
from tests.support.scripted_journal import ScriptedJournal


async def member_on(journal: ScriptedJournal) -> AsyncMember:
    """An active one, with room for 100 bytes that are not durable."""
    log = EditLog(journal, pending_bytes_max=100)
    journal.answers_at_once = True

    async def open_log() -> None:
        await log.recover()
        await log.open(1)

    await Deferred.fromCoroutine(open_log()).asFuture(asyncio.get_running_loop())
    journal.answers_at_once = False
    member = SimpleNamespace(append=log.append, ready=log.ready)
    return AsyncMember(member, ClientLoop())  # type: ignore[arg-type]


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60.0))


async def full(member: AsyncMember) -> list[asyncio.Future[Any]]:
    """Append until it is; who waits."""
    under_way = [member.append(bytes(40)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(LogFull, match="ready"):
        await member.append(b"")
    return under_way


def test_ready_returns_once_a_full_log_takes_something_again() -> None:
    async def story() -> None:
        journal = ScriptedJournal()
        member = await member_on(journal)
        await member.ready()
        under_way = await full(member)
        ready = asyncio.create_task(member.ready())
        await asyncio.sleep(0)
        assert not ready.done()
        journal.writer.flushes[0].answer()
        await ready
        again = member.append(b"again")
        await asyncio.sleep(0)
        journal.answers_at_once = True
        journal.writer.flushes[-1].answer()
        assert await asyncio.gather(*under_way, again) == [2, 3, 4]

    run(story())


def test_ready_raises_what_the_log_failed_with() -> None:
    async def story() -> None:
        journal = ScriptedJournal()
        member = await member_on(journal)
        under_way = await full(member)
        ready = asyncio.create_task(member.ready())
        await asyncio.sleep(0)
        journal.writer.flushes[0].fail(StreamFailed("two bookies are gone"))
        with pytest.raises(StreamFailed, match="two bookies are gone"):
            await ready
        failed = await asyncio.gather(*under_way, return_exceptions=True)
        assert all(isinstance(each, BookKeeperError) for each in failed)

    run(story())


def test_whoever_gives_up_waiting_leaves_the_log_as_it_is() -> None:
    async def story() -> None:
        journal = ScriptedJournal()
        member = await member_on(journal)
        under_way = await full(member)
        given_up, patient = (asyncio.create_task(member.ready()) for _ in range(2))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        journal.answers_at_once = True
        journal.writer.flushes[0].answer()
        await patient
        assert given_up.cancelled()
        assert await asyncio.gather(*under_way) == [2, 3]

    run(story())


def test_a_server_that_is_not_active_has_no_log_to_wait_for() -> None:
    async def story() -> None:
        closed = fail(JournalClosed("this server is not the active one, it is standby"))
        member = AsyncMember(SimpleNamespace(ready=lambda: closed), ClientLoop())  # type: ignore[arg-type]
        with pytest.raises(JournalClosed, match="standby"):
            await member.ready()

    run(story())


def test_a_transaction_has_its_place_when_append_is_called() -> None:
    """Awaited or not; whoever waits for room before each is never refused."""

    async def story() -> None:
        journal = ScriptedJournal()
        member = await member_on(journal)
        journal.answers_at_once = True
        under_way = []
        for _ in range(50):
            await member.ready()
            under_way.append(member.append(bytes(40)))
        assert await asyncio.gather(*under_way) == list(range(2, 52))

    run(story())
