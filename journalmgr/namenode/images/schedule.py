"""When checkpoints are taken, how many stay, and what of the journal they make superfluous.

    standby, or loaded and not standing yet    takes one when enough transactions, or enough time, have passed
    active                                     purges the journal below the oldest checkpoint that is kept

A server that is alone takes them when it starts. Trouble is logged and tried again at the next look. Thread: reactor.

Rule (I-86): a checkpoint counts once this very server has read all of it and found it whole, whoever saved it. Kept are
the newest `retained` ones that count, and what is newer than those. Older ones are removed, and transactions purged,
only when there are so many: then all up to the oldest of them, less `extra_transactions`. With two, the default, one
image that is damaged later costs nothing; with one, the only image is all that there is of what was purged.

    retained 2, extra 100      images at txid 500, 900 (damaged), 1300      kept 500, 900, 1300; purged below 401
                               images at txid 500 (damaged), 900            kept both; nothing is purged
Source: journalmgr/FORMATS.md 7.5.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import BookKeeperError
from journalmgr.contract import JournalManager
from journalmgr.errors import NamespaceMismatch
from journalmgr.model import FIRST_TXID, TxId
from journalmgr.namenode.images.checkpoints import UNREADABLE, Checkpoint
from journalmgr.namenode.machine import CheckpointGivenUp, NamespaceMachine
from journalmgr.replica import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookkeeper.ports import Clock, Timer

log = Logger()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """transactions, period_s: a checkpoint is due after so many, or after so long if there was any. check_period_s:
    how often that is looked at. retained: checkpoints kept. extra_transactions: kept in the journal below them.
    """

    transactions: int = 1_000_000
    period_s: float = 3600.0
    check_period_s: float = 60.0
    retained: int = 2
    extra_transactions: int = 1_000_000


class Checkpointing:
    """Of one server. role: what its replica is doing now."""

    def __init__(
        self,
        machine: NamespaceMachine,
        journal: JournalManager,
        clock: Clock,
        settings: CheckpointSettings,
        role: Callable[[], Role],
    ) -> None:
        self._machine, self._journal, self._clock, self._settings, self._role = machine, journal, clock, settings, role
        self._last_s = clock.seconds()
        self._timer: Timer | None = None
        self._stopped = False
        self._busy = 0
        self._stoppers: list[Deferred[None]] = []
        # Of those that are listed, which are whole, as far as they were read here.
        self._whole: dict[Checkpoint, bool] = {}

    def start(self) -> None:
        """Look now and then, from now on."""
        self._timer = self._clock.callLater(self._settings.check_period_s, self._look)

    def stop(self) -> Deferred[None]:
        """Look no more; a checkpoint under way is given up. Fires once nothing is under way; never fails."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._machine.give_up_checkpoint()
        stopped: Deferred[None] = Deferred()
        self._stoppers.append(stopped)
        self._tell_stoppers()
        return stopped

    def _run(self, work: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Work that `stop` waits for."""
        self._busy += 1

        def done(result: Any) -> Any:
            self._busy -= 1
            self._tell_stoppers()
            return result

        return Deferred.fromCoroutine(work).addBoth(done)

    def _tell_stoppers(self) -> None:
        if self._stopped and not self._busy:
            stoppers, self._stoppers = self._stoppers, []
            for stopped in stoppers:
                stopped.callback(None)

    @property
    def due(self) -> bool:
        """Enough has happened since the last checkpoint."""
        news = self._machine.namespace.last_txid - self._machine.checkpoint_txid
        old = self._clock.seconds() - self._last_s >= self._settings.period_s
        return news > 0 and (news >= self._settings.transactions or old)

    async def before_standing(self) -> None:
        """The state is loaded and nobody needs it yet: the moment for a server that will be alone."""
        if self.due:
            await self._take()

    def on_role(self, role: Role) -> None:
        """What a replica does has changed: its turn does not wait for a checkpoint."""
        if role is not Role.STANDBY:
            self._machine.give_up_checkpoint()

    def _look(self) -> None:
        looking = self._run(self._do())
        looking.addErrback(lambda failure: log.failure("Looking after checkpoints failed", failure=failure))
        looking.addCallback(lambda _: None if self._stopped else self.start())

    async def _do(self) -> None:
        role = self._role()
        if role is Role.STANDBY and self.due and not self._machine.saving:
            await self._take()
        elif role is Role.ACTIVE:
            try:
                await self.purge()
            except BookKeeperError as error:
                log.warn("The journal could not be purged now: {error}", error=error)

    async def _take(self) -> None:
        try:
            await self._save()
        except CheckpointGivenUp as error:
            log.info("{error}", error=error)
        except BookKeeperError as error:
            log.warn("No checkpoint could be saved now: {error}", error=error)

    def save(self) -> Deferred[Checkpoint]:
        """Take one now, because somebody asks. Fails as `NamespaceMachine.checkpoint` does."""
        return self._run(self._save())

    async def _save(self) -> Checkpoint:
        checkpoint = await self._machine.checkpoint()
        self._last_s = self._clock.seconds()
        self._whole[checkpoint] = True
        try:
            await self.retain()
        except BookKeeperError as error:
            log.warn("Old checkpoints could not be removed now: {error}", error=error)
        return checkpoint

    async def retain(self) -> list[Checkpoint]:
        """Remove what is older than the ones kept; what was removed."""
        store = self._machine.checkpoints
        listed = await store.all()
        kept = await self._kept(listed)
        removed = [checkpoint for checkpoint in listed if kept and checkpoint < kept[0]]
        for checkpoint in removed:
            await store.remove(checkpoint)
        return removed

    async def purge(self) -> TxId:
        """Remove what the oldest checkpoint kept makes superfluous; the first txid that is kept."""
        kept = await self._kept(await self._machine.checkpoints.all())
        if not kept:
            return FIRST_TXID
        minimum = TxId(max(FIRST_TXID, kept[0].txid + 1 - self._settings.extra_transactions))
        if minimum > FIRST_TXID:
            await self._journal.purge_older_than(minimum)
        return minimum

    async def _kept(self, listed: list[Checkpoint]) -> list[Checkpoint]:
        """The newest ones that count, the oldest first: as many as are to be kept, or none if there are fewer."""
        self._whole = {checkpoint: whole for checkpoint, whole in self._whole.items() if checkpoint in listed}
        kept: list[Checkpoint] = []
        for checkpoint in reversed(listed):
            if await self._is_whole(checkpoint):
                kept.insert(0, checkpoint)
                if len(kept) == self._settings.retained:
                    return kept
        return []

    async def _is_whole(self, checkpoint: Checkpoint) -> bool:
        if checkpoint not in self._whole:
            try:
                await self._machine.verify(checkpoint)
            except (*UNREADABLE, NamespaceMismatch) as error:
                log.error(
                    "The checkpoint {image} cannot be read; nothing is purged on account of it: {error}",
                    image=checkpoint.name,
                    error=error,
                )
                self._whole[checkpoint] = False
            else:
                self._whole[checkpoint] = True
        return self._whole[checkpoint]
