"""Joining a group from a plain asyncio program.

    async with await join_group("bookkeeper://127.0.0.1:2181/names", machine) as member:
        await member.active()
        await member.append(b"...")

`append` gives a transaction its place in the log when it is called, awaited or not. Whoever has many under way at once
waits for room before each: `await member.ready()`, then `append`; without that its future fails with LogFull once too
much waits to be durable, and nothing was taken.

A thin layer over `journalmgr.group`: its Deferreds as futures of the running loop. All calls must be made in the event
loop and on the thread of `join_group`; others raise WrongLoop. Exceptions pass unchanged; cancelling a future cancels
the waiting (an append under way may still happen). A member that has not left gives a ResourceWarning; it leaves when
it is collected, or with the loop.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self, TypeVar

from bookkeeper.client.faces.loop_reactor import ClientLoop
from bookkeeper.client.faces.process_objects import OfOneProcess
from journalmgr.group import Member
from journalmgr.group import join_group as join_group_on_reactor
from journalmgr.model import NamespaceInfo, Segment, TxId
from journalmgr.replica import Role, StateMachine

T = TypeVar("T")


class AsyncMember(OfOneProcess):
    """See `journalmgr.group.Member`, which is `member`."""

    instead = Member.instead

    def __init__(self, member: Member, loop: ClientLoop) -> None:
        self.member, self._loop = member, loop

    @property
    def role(self) -> Role:
        """What it is doing."""
        return self.member.role

    @property
    def namespace(self) -> NamespaceInfo | None:
        """Whose journal it is."""
        return self.member.namespace

    async def active(self) -> None:
        """Wait until it is this server's turn. Raises once the member has left or failed."""
        await self._loop.run(self.member.active)

    def append(self, payload: bytes) -> asyncio.Future[TxId]:
        """Log a transaction now; the future has its txid once it is durable and applied. See `Member.append`."""
        return self._loop.run(self.member.append, payload)

    async def ready(self) -> None:
        """Wait until `append` takes something again; at once unless so much waits to be durable that it would not.

        Others that wait too may fill the log again before this one's turn. Raises JournalClosed where this server is
        not the active one, and the error that the log failed with.
        """
        await self._loop.run(self.member.ready)

    async def purge_older_than(self, min_txid_to_keep: int) -> list[Segment]:
        """Delete what is below this txid. See `Member.purge_older_than`."""
        return await self._loop.run(self.member.purge_older_than, min_txid_to_keep)

    async def active_address(self) -> str:
        """Where the active server says that it is."""
        return await self._loop.run(self.member.active_address)

    async def leave(self) -> None:
        """End in order: the active closes its segment and hands the role on."""
        self._loop.check()
        try:
            await self._loop.run(self.member.leave)
        finally:
            await self._loop.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()


async def join_group(uri: str, machine: StateMachine, **named: Any) -> AsyncMember:
    """Open a journal and stand for its group. The arguments are those of `journalmgr.group.join_group`."""
    loop = ClientLoop()
    try:
        member = await loop.run(join_group_on_reactor, loop.reactor, uri, machine, **named)
    except BaseException:
        loop.abandon()
        raise
    await loop.owned_by(f"AsyncMember of {uri}", member.leave)
    return AsyncMember(member, loop)
