"""When checkpoints are taken, how many stay, and what of the journal they make superfluous.

    standby, or loaded and not standing yet    takes one when enough transactions, or enough time, have passed
    active                                     purges the journal below the oldest checkpoint that is kept

A server that is alone takes them when it starts. Trouble is logged and tried again at the next look; nothing is purged
on account of a checkpoint that is not listed whole (I-86). Thread: reactor.
Source: journal-manager.md 6.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import BookKeeperError
from journalmgr.contract import JournalManager
from journalmgr.model import FIRST_TXID, TxId
from journalmgr.namenode.checkpoints import Checkpoint
from journalmgr.namenode.machine import CheckpointGivenUp, NamespaceMachine
from journalmgr.replica import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookkeeper.ports import Clock, Timer

log = Logger()


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
        self._looking: Deferred[None] | None = None

    def start(self) -> None:
        """Look now and then, from now on."""
        self._timer = self._clock.callLater(self._settings.check_period_s, self._look)

    def stop(self) -> None:
        """Look no more; a checkpoint under way is given up."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._machine.give_up_checkpoint()

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
        self._looking = Deferred.fromCoroutine(self._do())
        self._looking.addErrback(lambda failure: log.failure("Looking after checkpoints failed", failure=failure))
        self._looking.addCallback(lambda _: None if self._stopped else self.start())

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
            await self._machine.checkpoint()
            self._last_s = self._clock.seconds()
            await self.retain()
        except CheckpointGivenUp as error:
            log.info("{error}", error=error)
        except BookKeeperError as error:
            log.warn("No checkpoint could be saved now: {error}", error=error)

    async def retain(self) -> list[Checkpoint]:
        """Remove all but the newest ones; what was removed."""
        store = self._machine.checkpoints
        removed = (await store.all())[: -self._settings.retained]
        for checkpoint in removed:
            await store.remove(checkpoint)
        return removed

    async def purge(self) -> TxId:
        """Remove what the oldest checkpoint kept makes superfluous; the first txid that is kept."""
        kept = (await self._machine.checkpoints.all())[-self._settings.retained :]
        if not kept:
            return FIRST_TXID
        minimum = TxId(max(FIRST_TXID, kept[0].txid + 1 - self._settings.extra_transactions))
        if minimum > FIRST_TXID:
            await self._journal.purge_older_than(minimum)
        return minimum
