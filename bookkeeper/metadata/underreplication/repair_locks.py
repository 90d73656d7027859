"""Locks on ledgers under repair: U/locks/urL%010d, ephemeral. Source: bookkeeper/wire/FORMATS.md 4.8.

A lock only saves work that another worker does already (I-20): what two holders do to a ledger is kept right by
compare-and-set. It ends with its session; the holder is told, and what it then still does is of an old epoch (I-77).

A znode without a session in the place of a lock is a stray: locks are ephemeral, so no worker holds it. The next worker
that locks the ledger removes the stray and logs it. An ephemeral lock is held, whatever its content is. Between the
check of a stray and its removal, another worker may remove it and take the lock. Then that lock is removed instead, and
two workers repair one ledger (I-20).

The mark of a ledger is read under its lock once, and watched from then on (`MarkSight`): a repair ends in one
transaction that removes mark, its directory and the lock, without another look at the mark, as long as no change of it
was heard of. Where many ledgers are locked or finished at a time, their transactions are grouped (`grouped_changes`).

Thread: reactor. Bound: MARKS_WATCHED_MAX watches on marks; beyond it the end of a repair looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import MetadataCorrupt, MetadataUnavailable
from bookkeeper.metadata.grouped_changes import GroupedChanges
from bookkeeper.metadata.outcome import Errand, Transact
from bookkeeper.metadata.store import MetadataSettings, RepairLock, StoreState
from bookkeeper.metadata.tree import (
    Check,
    Create,
    Delete,
    NodeAbsent,
    NodeChanged,
    NodeExists,
    NodeKind,
    NodeNotEmpty,
    Stat,
    Step,
    Tree,
    TreeEvent,
)
from bookkeeper.metadata.underreplication.format import (
    UnderreplicatedLedger,
    format_lock,
    leaf_name,
    mark_path,
    parse_lock,
)
from bookkeeper.metadata.watches import call_listener
from bookkeeper.model import LedgerId

if TYPE_CHECKING:
    from bookkeeper.ports import Clock

log = Logger()

STRAY = "belongs to no session, so no worker holds it"
"""Problem of a stray in the place of a lock."""

MARKS_WATCHED_MAX = 4096
"""Watches on marks that may be set on the server: those of ledgers being repaired, or kept locked."""


class MarkSight:
    """The mark of a locked ledger, as it was read; it hears of the first change. The watch on it."""

    __slots__ = ("_on_end", "intact", "path", "seen")

    def __init__(self, path: str, on_end: Callable[[MarkSight], object]) -> None:
        self.path = path
        self.intact = True  # nothing was heard of a change, and the watch is set
        self.seen: tuple[int, int] | None = None  # creation id, version
        self._on_end = on_end

    def __call__(self, _event: TreeEvent) -> None:
        self.intact = False
        self._on_end(self)


@dataclass(frozen=True, slots=True)
class Ending:
    """Steps of a transaction that end a repair, and how it is attempted."""

    steps: list[Step]
    transact: Transact


class RepairLocks:
    """The locks of one connection. marks: U/ledgers. make_directory(errand): makes U/locks where it is missing."""

    def __init__(
        self,
        tree: Tree,
        clock: Clock,
        settings: MetadataSettings,
        base: str,
        marks: str,
        make_directory: Callable[[Errand, str], Deferred[None]],
    ) -> None:
        self._tree = tree
        self.at_once: Transact = tree.transact
        self._clock = clock
        self._settings = settings
        self._base = base
        self._marks = marks
        self._sights: dict[str, MarkSight] = {}  # by path: watches that the server may still have set
        self._make_directory = make_directory
        self._taken_together = GroupedChanges(tree)
        self.ended_together = GroupedChanges(tree)
        self._held: dict[LedgerId, HeldLock | None] = {}  # None: being taken
        tree.watch_state(self._on_state)

    async def take(self, ledger_id: LedgerId, host: str, on_lost: Callable[[], object]) -> HeldLock | None:
        """The lock, or None where somebody has it, this process included."""
        path = f"{self._base}/{leaf_name(ledger_id)}"
        if ledger_id in self._held:
            return None
        self._held[ledger_id] = None
        lock = None
        try:
            errand = self._errand(f"lock ledger {ledger_id}", one_session=True)
            session_id = self._tree.session_id
            if await self._create(errand, path, format_lock(host), session_id):
                if self._tree.session_id != session_id or self._tree.state is StoreState.CLOSED:
                    raise MetadataUnavailable(f"the session ended in which the lock of ledger {ledger_id} was taken")
                lock = HeldLock(self, ledger_id, path, session_id, on_lost)
        finally:
            if lock is None:
                del self._held[ledger_id]
            else:
                self._held[ledger_id] = lock
        return lock

    async def holder(self, ledger_id: LedgerId) -> str | None:
        """Return the holder that the lock names, "" for none; None without a lock. Raises MetadataCorrupt."""
        path = f"{self._base}/{leaf_name(ledger_id)}"
        found = await self._errand(f"see who repairs ledger {ledger_id}").read_surely(path)
        if found is not None and not found[1].owner:
            raise MetadataCorrupt(f"{path}: {STRAY}")
        return None if found is None else parse_lock(found[0], path)

    async def taken_ms(self, ledger_id: LedgerId) -> int | None:
        """Since when the lock is held, by the store's clock."""
        path = f"{self._base}/{leaf_name(ledger_id)}"
        found = await self._errand(f"see since when ledger {ledger_id} is locked").read_surely(path)
        return found[1].created_ms if found is not None and found[1].owner else None

    async def session(self, ledger_id: LedgerId) -> int | None:
        """Whose the lock is; None while nobody holds it."""
        path = f"{self._base}/{leaf_name(ledger_id)}"
        found = await self._errand(f"see whose session locks ledger {ledger_id}").read_surely(path)
        return found[1].owner if found is not None and found[1].owner else None

    async def _create(self, errand: Errand, path: str, data: bytes, session_id: int) -> bool:
        while True:
            try:
                node = Create(path, data, NodeKind.EPHEMERAL)
                await errand.create_by(node, lambda _, stat: stat.owner == session_id, self._taken_together.transact)
                return True
            except NodeAbsent:
                errand.check_time(f"{self._base} vanishes as fast as it is made")
                await self._make_directory(errand, self._base)
            except NodeExists:
                stat = await errand.stat(path)
                if stat is None or stat.owner:
                    # Ours: one that could not be given up when we had done with it.
                    return stat is not None and stat.owner == session_id
                await self._remove_stray(errand, path, stat)

    async def _remove_stray(self, errand: Errand, path: str, stat: Stat) -> None:
        try:
            await errand.delete(path, stat.version, stat.creation_id)
        except NodeNotEmpty as error:
            raise MetadataCorrupt(f"{path}: {STRAY}, and it has children; remove it with them") from error
        except (NodeAbsent, NodeChanged):
            errand.check_time(f"{path} keeps changing")
        else:
            log.error("{path}: {stray}; it was removed, and the ledger is locked again", path=path, stray=STRAY)

    async def give_up(self, lock: HeldLock) -> None:
        """Remove the node, if its session is not over."""
        if self._held.get(lock.ledger_id) is lock:
            # Not before the node is gone: a lock taken anew must not be the old one's node.
            try:
                await self._remove(lock)
            finally:
                if self._held.get(lock.ledger_id) is lock:
                    del self._held[lock.ledger_id]

    def forget(self, lock: HeldLock) -> None:
        """Its node is gone: it was given up together with something else."""
        if self._held.get(lock.ledger_id) is lock:
            del self._held[lock.ledger_id]

    async def read_mark(self, errand: Errand, lock: HeldLock) -> tuple[bytes, Stat] | None:
        """The mark of a locked ledger, watched from now on where there is room for a watch."""
        path = self.mark_of(lock.ledger_id)
        lock.sight = None
        old = self._sights.pop(path, None)  # of a lock before this one; on the server it is the same watch
        if old is not None:
            self._tree.forget(path, old)
        if len(self._sights) >= MARKS_WATCHED_MAX:
            return await errand.read_surely(path)
        sight = self._sights[path] = MarkSight(path, self._on_sight_end)
        try:
            found = await errand.read(path, sight)
        except NodeAbsent:
            self._on_sight_end(sight)
            return await errand.read_surely(path)
        except BaseException:
            self._on_sight_end(sight)
            raise
        sight.seen = found[1].creation_id, found[1].version
        lock.sight = sight
        return found

    def mark_of(self, ledger_id: LedgerId) -> str:
        """The path of a ledger's mark."""
        return self._marks + mark_path(ledger_id)

    def _on_sight_end(self, sight: MarkSight) -> None:
        if self._sights.get(sight.path) is sight:
            del self._sights[sight.path]

    async def _remove(self, lock: HeldLock) -> None:
        errand = self._errand(f"unlock ledger {lock.ledger_id}", one_session=True)
        if self._tree.session_id != lock.session_id:
            return
        while (stat := await errand.stat(lock.path)) is not None and stat.owner == lock.session_id:
            try:
                await errand.delete(lock.path, stat.version, stat.creation_id)
            except NodeAbsent:
                return
            except NodeChanged:
                errand.check_time(f"{lock.path} keeps changing")

    def _on_state(self, state: StoreState) -> None:
        ended = state in (StoreState.LOST, StoreState.CLOSED)
        for ledger_id, lock in list(self._held.items()):
            if lock is not None and (ended or lock.session_id != self._tree.session_id):
                self._held.pop(ledger_id, None)
                lock.lose()

    def _errand(self, purpose: str, *, one_session: bool = False) -> Errand:
        return Errand(self._tree, self._clock, self._settings, purpose, one_session=one_session)


class HeldLock:
    """A RepairLock."""

    def __init__(
        self, locks: RepairLocks, ledger_id: LedgerId, path: str, session_id: int, on_lost: Callable[[], object]
    ) -> None:
        self.ledger_id = ledger_id
        self.path = path
        self.session_id = session_id
        self._locks = locks
        self._on_lost = on_lost
        self.held = True
        self.mark_removed = False
        self.sight: MarkSight | None = None

    def release(self) -> Deferred[None]:
        """See RepairLock."""
        self.held = False
        return Deferred.fromCoroutine(self._locks.give_up(self))

    def check(self) -> None:
        """Raise MetadataUnavailable unless it is held."""
        if not self.held:
            raise MetadataUnavailable(f"nothing is done on ledger {self.ledger_id}: the lock on it was lost")

    def still_there(self) -> Step:
        """Part of a transaction of the lock's session: its node is there."""
        return Check(self.path, 0)

    def ending(self, seen: UnderreplicatedLedger) -> Ending | None:
        """What ends the repair: the mark goes as it was seen, alone in its directory, and so does the lock. None where
        the mark has to be looked at first (I-76).

        Versions begin anew with every node, and the store compares only them: a mark that was removed and made again
        while we worked is told apart by the watch on it. The moment in which its news are on their way stays open.
        """
        sight = self.sight
        if sight is None or not sight.intact or sight.seen != (seen.creation_id, seen.version):
            return None
        together = self._locks.ended_together
        return Ending(self._last_steps(seen), partial(together.transact, still=lambda: sight.intact))

    def ending_unwatched(self, seen: UnderreplicatedLedger) -> Ending:
        """The same for who has looked at the mark a moment ago: at once, so not as part of a group, and only once.

        After an answer that was lost, mark and lock may be those of somebody else, with the same versions.
        """
        attempts = [self._locks.at_once]

        def transact(steps: Sequence[Step]) -> Deferred[None]:
            if attempts:
                return attempts.pop()(steps)
            return defer.fail(NodeChanged(f"the mark of ledger {self.ledger_id} has to be looked at once more"))

        return Ending(self._last_steps(seen), transact)

    def _last_steps(self, seen: UnderreplicatedLedger) -> list[Step]:
        path = self._locks.mark_of(self.ledger_id)
        # Directories and locks are never written: they have version 0.
        return [Delete(path, seen.version), Delete(path.rpartition("/")[0], 0), Delete(self.path, 0)]

    def removed_with_mark(self) -> None:
        """Those steps were done."""
        self.held = False
        self.mark_removed = True
        self._locks.forget(self)

    def lose(self) -> None:
        """The session is over."""
        was_held, self.held = self.held, False
        if was_held:
            call_listener(self._on_lost)


if TYPE_CHECKING:

    def _is_a_lock(lock: HeldLock) -> RepairLock:
        return lock
