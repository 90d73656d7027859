"""Locks on ledgers under repair: U/locks/urL%010d, ephemeral. Source: reference, 4.8.

A lock only saves work that another worker does already (I-20): what two holders do to a ledger is kept right by
compare-and-set. It ends with its session; the holder is told, and what it then still does is of an old epoch (I-77).

Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from bookkeeper.errors import MetadataUnavailable
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings, RepairLock, StoreState
from bookkeeper.metadata.tree import NodeAbsent, NodeChanged, NodeExists, NodeKind, Tree
from bookkeeper.metadata.underreplication_format import format_lock, leaf_name, parse_lock
from bookkeeper.metadata.watches import call_listener
from bookkeeper.model import LedgerId

if TYPE_CHECKING:
    from bookkeeper.ports import Clock


class RepairLocks:
    """The locks of one connection. make_directory(errand): makes U/locks where it is missing."""

    def __init__(
        self,
        tree: Tree,
        clock: Clock,
        settings: MetadataSettings,
        base: str,
        make_directory: Callable[[Errand, str], Deferred[None]],
    ) -> None:
        self._tree = tree
        self._clock = clock
        self._settings = settings
        self._base = base
        self._make_directory = make_directory
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
        """Who says to hold the lock ("": does not say); None while nobody does."""
        path = f"{self._base}/{leaf_name(ledger_id)}"
        found = await self._errand(f"see who repairs ledger {ledger_id}").read_surely(path)
        return None if found is None else parse_lock(found[0], path)

    async def _create(self, errand: Errand, path: str, data: bytes, session_id: int) -> bool:
        while True:
            try:
                await errand.create(path, data, lambda _, stat: stat.owner == session_id, kind=NodeKind.EPHEMERAL)
                return True
            except NodeAbsent:
                errand.check_time(f"{self._base} vanishes as fast as it is made")
                await self._make_directory(errand, self._base)
            except NodeExists:
                # Ours: one that could not be given up when we had done with it.
                stat = await errand.stat(path)
                return stat is not None and stat.owner == session_id

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
        lock.held = False
        if self._held.get(lock.ledger_id) is lock:
            del self._held[lock.ledger_id]

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

    def release(self) -> Deferred[None]:
        """See RepairLock."""
        self.held = False
        return Deferred.fromCoroutine(self._locks.give_up(self))

    def lose(self) -> None:
        """The session is over."""
        was_held, self.held = self.held, False
        if was_held:
            call_listener(self._on_lost)


if TYPE_CHECKING:

    def _is_a_lock(lock: HeldLock) -> RepairLock:
        return lock
