"""Retries, and finding out what became of a change whose answer was lost (I-16).

An Errand is one caller's operation with one deadline. Reads are repeated until they are answered. A change is repeated
only when it certainly did not happen; when its answer was lost, the node is read back first:

    change                 found afterwards                          verdict
    create                 nothing                                   did not happen: once more
                           ours (token, or content and owner)        done
                           not ours                                  NodeExists
    write at version v     version v                                 did not happen: once more
                           version v + 1 with our bytes              done
                           version v + 1 with other bytes            NodeChanged
                           a later version                           MetadataOutcomeUnknown: ours may have been v + 1
    delete at version v    nothing                                   done
                           the same node at version v                did not happen: once more
                           another node, or another version          NodeChanged

Reading back is decisive because it follows a sync on a session that is usable again: a server refuses what an earlier
connection of the session sent once the session has moved on, and whatever it took before that is ahead of the sync.

Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from twisted.internet.defer import Deferred

from bookkeeper.errors import MetadataOutcomeUnknown, MetadataUnavailable
from bookkeeper.metadata.store import MetadataSettings, StoreState
from bookkeeper.metadata.tree import (
    Access,
    Create,
    NodeAbsent,
    NodeChanged,
    NodeExists,
    NodeKind,
    NotAttempted,
    OutcomeOpen,
    Stat,
    Step,
    Tree,
    WatchListener,
    Write,
)

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

T = TypeVar("T")

Transact = Callable[[Sequence[Step]], "Deferred[None]"]
"""How a transaction is attempted: `Tree.transact`, or as part of a group (`grouped_changes`)."""

Owned = Callable[[bytes, Stat], bool]
"""Whether a node that was found is the one that we tried to create."""


def pause(clock: Clock, delay_s: float) -> Deferred[None]:
    """Fires after `delay_s` seconds; cancelling it cancels the timer."""
    waiting: Deferred[None] = Deferred(lambda _: timer.cancel())
    timer = clock.callLater(delay_s, waiting.callback, None)
    return waiting


async def within(clock: Clock, seconds: float, work: Deferred[T]) -> T:
    """Await `work`, and cancel it after `seconds`. Raises CancelledError then, unless `work` ends in another way."""
    timer = clock.callLater(seconds, work.cancel)
    try:
        return await work
    finally:
        if timer.active():
            timer.cancel()


def until_connected(tree: Tree, clock: Clock, within_s: float) -> Deferred[bool]:
    """Fires with True once the tree is connected, with False after `within_s` seconds or when it is closed."""
    done: Deferred[bool] = Deferred(lambda _: end())

    def look(state: StoreState) -> None:
        if state is StoreState.CONNECTED or state is StoreState.CLOSED:
            end()
            done.callback(state is StoreState.CONNECTED)

    def late() -> None:
        end()
        done.callback(False)

    def end() -> None:
        watch.cancel()
        if timer.active():
            timer.cancel()

    timer = clock.callLater(max(0.0, within_s), late)
    watch = tree.watch_state(look)
    look(tree.state)
    return done


class Errand:
    """One operation of one caller: any number of steps, one deadline.

    one_session: changes are made in the session that there was at the start, or not at all (MetadataUnavailable): for
    what rests on something that ends with it, and that another one may have by now.
    """

    def __init__(
        self, tree: Tree, clock: Clock, settings: MetadataSettings, purpose: str, *, one_session: bool = False
    ) -> None:
        self.tree = tree
        self._session_id = tree.session_id if one_session else None
        self._clock = clock
        self._settings = settings
        self._purpose = purpose
        self._deadline_s = clock.seconds() + settings.operation_timeout_s

    # --- reads ---------------------------------------------------------------------------------------------------

    async def read(self, path: str, watch: WatchListener | None = None) -> tuple[bytes, Stat]:
        """Data and stat. Raises NodeAbsent."""
        return await self._repeat(lambda: self.tree.read(path, watch))

    async def read_if_present(self, path: str) -> tuple[bytes, Stat] | None:
        """Data and stat, or None where there is certainly no node."""
        try:
            return await self.read(path)
        except NodeAbsent:
            return None

    async def read_surely(self, path: str) -> tuple[bytes, Stat] | None:
        """As `read_if_present`, but None is said only after a sync: a server that lags knows no new nodes (I-19)."""
        found = await self.read_if_present(path)
        if found is None:
            await self.sync()
            found = await self.read_if_present(path)
        return found

    async def stat(self, path: str, watch: WatchListener | None = None) -> Stat | None:
        """Stat, or None where there is certainly no node."""
        return await self._repeat(lambda: self.tree.stat(path, watch))

    async def children(self, path: str, watch: WatchListener | None = None) -> list[str]:
        """Names of the children. Raises NodeAbsent."""
        return await self._repeat(lambda: self.tree.children(path, watch))

    async def sync(self) -> None:
        """Later reads see everything written before (I-19)."""
        await self._repeat(self.tree.sync)

    # --- changes -------------------------------------------------------------------------------------------------

    async def create(
        self,
        path: str,
        data: bytes | None,
        is_ours: Owned,
        *,
        kind: NodeKind = NodeKind.PERSISTENT,
        access: Access = Access.DEFAULT,
    ) -> None:
        """Make a node. Raises NodeExists, NodeAbsent (no parent)."""
        await self._create(path, lambda: self.tree.create(path, data, kind, access), is_ours)

    async def create_by(self, step: Create, is_ours: Owned, transact: Transact) -> None:
        """The same by a transaction of that one step."""
        await self._create(step.path, lambda: transact([step]), is_ours)

    async def _create(self, path: str, attempt: Callable[[], Deferred[T]], is_ours: Owned) -> None:
        lost: OutcomeOpen | None = None
        while True:
            try:
                await self._change(attempt)
                return
            except OutcomeOpen as error:
                lost = error
            except NodeExists:
                if lost is None:
                    raise
            found = await self._look(path, lost)
            if found is None:
                continue
            if is_ours(*found):
                return
            raise NodeExists(f"{path} exists and is not what was to be created") from lost

    async def create_sequential(
        self,
        path: str,
        access: Access = Access.DEFAULT,
        *,
        data: bytes = b"",
        find_ours: Callable[[], Awaitable[str | None]] | None = None,
    ) -> str:
        """Make an ephemeral node named `path` plus ten digits; its path.

        find_ours: after a lost answer, the path of the node if it was made all the same; None lets a lost answer cost a
        number, and leaves a node until the session ends.
        """
        while True:
            try:
                return await self._change(lambda: self.tree.create(path, data, NodeKind.EPHEMERAL_SEQUENTIAL, access))
            except OutcomeOpen as lost:
                if find_ours is None:
                    await self._connected(lost)
                    continue
                await self._look("/", lost)
                found = await find_ours()
                if found is not None:
                    return found

    async def ensure(self, path: str, data: bytes = b"", access: Access = Access.DEFAULT) -> None:
        """Make a persistent node unless it is there, with whatever data. Raises NodeAbsent (no parent)."""
        try:
            await self.create(path, data, lambda _data, _stat: True, access=access)
        except NodeExists:
            return

    async def ensure_all(self, path: str, below: str = "") -> None:
        """Make a persistent node and all that is missing below `below`. Raises NodeAbsent if that is missing itself."""
        try:
            await self.ensure(path)
        except NodeAbsent:
            parent = path.rpartition("/")[0]
            if parent == below:
                raise
            await self.ensure_all(parent, below)
            await self.ensure(path)

    async def write(self, path: str, data: bytes | None, version: int) -> Stat:
        """Replace the data that has `version`. Raises NodeAbsent, NodeChanged."""
        while True:
            try:
                return await self._change(lambda: self.tree.write(path, data, version))
            except OutcomeOpen as lost:
                found = self._written(path, data, version, await self._look(path, lost), lost)
                if found is not None:
                    return found

    async def write_with(self, write: Write, others: Sequence[Step], transact: Transact | None = None) -> None:
        """Replace data together with other steps, or do nothing; any step may be what is refused.

        Raises NodeAbsent, NodeChanged, and what the other steps are refused with.
        """
        while True:
            try:
                await self._change(lambda: (transact or self.tree.transact)([write, *others]))
                return
            except OutcomeOpen as lost:
                found = await self._look(write.path, lost)
                if self._written(write.path, write.data, write.version, found, lost) is not None:
                    return

    def _written(
        self, path: str, data: bytes | None, version: int, found: tuple[bytes, Stat] | None, lost: OutcomeOpen
    ) -> Stat | None:
        """What became of a write, by what was found afterwards; None: it did not happen."""
        if found is None:
            raise NodeAbsent(f"{path} is gone") from lost
        found_data, stat = found
        if stat.version == version:
            return None
        if stat.version == version + 1 and found_data == (data or b""):
            return stat
        if stat.version > version + 1:
            raise MetadataOutcomeUnknown(
                f"{self._purpose}: the answer to writing version {version + 1} of {path} was lost, and by now "
                f"it has version {stat.version}; read it again to see whether the change is part of it"
            ) from lost
        raise NodeChanged(f"{path} has version {stat.version} and other content") from lost

    async def delete(self, path: str, version: int, creation_id: int | None = None) -> None:
        """Remove the node that has `version`. Raises NodeAbsent, NodeChanged, NodeNotEmpty.

        creation_id: where given, a node made anew meanwhile is not taken for the old one after a lost answer.
        """
        lost: OutcomeOpen | None = None
        while True:
            try:
                await self._change(lambda: self.tree.delete(path, version))
                return
            except NodeAbsent:
                if lost is None:
                    raise
                return
            except OutcomeOpen as error:
                lost = error
            found = await self._look(path, lost)
            if found is None:
                return
            stat = found[1]
            if stat.version != version or creation_id not in (None, stat.creation_id):
                raise NodeChanged(f"{path} is there with version {stat.version}, not {version}") from lost

    async def transact(
        self, steps: Sequence[Step], is_done: Callable[[], Awaitable[bool]], transact: Transact | None = None
    ) -> None:
        """All steps or none; after a lost answer `is_done` tells which."""
        while True:
            try:
                await self._change(lambda: (transact or self.tree.transact)(steps))
                return
            except OutcomeOpen as lost:
                await self._look("/", lost)
                if await is_done():
                    return

    def check_time(self, why: str) -> None:
        """Raise MetadataUnavailable when the time is up: the bound of the caller's own repetitions."""
        if self._clock.seconds() >= self._deadline_s:
            raise MetadataUnavailable(
                f"{self._purpose}: given up after {self._settings.operation_timeout_s:g} s: {why}"
            )

    async def _change(self, attempt: Callable[[], Deferred[T]]) -> T:
        if self._session_id is None:
            return await self._repeat(attempt)

        def in_this_session() -> Deferred[T]:
            if self.tree.session_id != self._session_id:
                raise MetadataUnavailable(
                    f"{self._purpose}: not done: the session with {self.tree.description} in which it was begun has "
                    "ended"
                )
            return attempt()

        return await self._repeat(in_this_session)

    # --- waiting -------------------------------------------------------------------------------------------------

    async def _repeat(self, attempt: Callable[[], Deferred[T]]) -> T:
        delay_s = self._settings.retry_delay_s
        while True:
            try:
                return await attempt()
            except NotAttempted as error:
                await self._connected(error)
                await pause(self._clock, delay_s)
                delay_s = min(2 * delay_s, self._settings.retry_delay_max_s)

    async def _connected(self, cause: MetadataUnavailable) -> None:
        left_s = self._deadline_s - self._clock.seconds()
        if left_s > 0 and await until_connected(self.tree, self._clock, left_s):
            return
        raise self._gave_up(cause) from cause

    async def _look(self, path: str, lost: OutcomeOpen | None) -> tuple[bytes, Stat] | None:
        try:
            await self._connected(lost or OutcomeOpen(path))
            await self.sync()
            return await self.read_if_present(path)
        except MetadataUnavailable as error:
            raise MetadataOutcomeUnknown(
                f"{self._purpose}: the answer to a change of {path} was lost and {self.tree.description} could not be "
                f"asked about it within {self._settings.operation_timeout_s:g} s; it may have happened: {lost or error}"
            ) from (lost or error)

    def _gave_up(self, cause: MetadataUnavailable) -> MetadataUnavailable:
        return MetadataUnavailable(
            f"{self._purpose}: {self.tree.description} did not answer within {self._settings.operation_timeout_s:g} s "
            f"(now {self.tree.state.value}): {cause}"
        )
