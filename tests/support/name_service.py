"""Name nodes without disks and sockets: the real service, replica and namespace over a journal in memory.

group = Group("a:1", "b:2")       two servers on one journal; the first is elected
group.elect(1)                    the other one's turn
group.journal.answers_at_once     False: flushes wait for the test
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, succeed

from journalmgr.contract import SegmentWriter
from journalmgr.group import election_data
from journalmgr.model import HADOOP_2_7, NamespaceInfo, TxId
from journalmgr.namenode.machine import NamespaceMachine
from journalmgr.namenode.namespace.tree import Namespace
from journalmgr.namenode.service import NameService
from journalmgr.replica import Replica
from tests.support.scripted_journal import ScriptedJournal

INFO = NamespaceInfo(namespace_id=1, cluster_id="CID-1", block_pool_id="BP-1")


class _RoomyJournal(ScriptedJournal):
    def start_segment(self, first_txid: TxId, layout_version: int) -> Deferred[SegmentWriter]:
        started = super().start_segment(first_txid, layout_version)
        self.writer.record_size_max = 1024 * 1024
        return started


class _NoCheckpoints:
    description = "nowhere"

    def all(self) -> Deferred[list[Any]]:
        return succeed([])


class _Ballot:
    """A candidate, whom the group elects."""

    def __init__(self, on_elected: Callable[[int], object], on_lost: Callable[[], object], _: object) -> None:
        self.elect, self.lose = on_elected, on_lost

    def join(self) -> None:
        pass

    def leave(self) -> Deferred[None]:
        return succeed(None)


class Group:
    """Servers of one journal."""

    def __init__(self, *addresses: str, clock: Any) -> None:
        self.journal = _RoomyJournal(answers_at_once=True)
        self.services: list[NameService] = []
        self._ballots: list[_Ballot] = []
        self._clock = clock
        self._turn = 0
        self._active: int | None = None
        for address in addresses:
            self._add(address)
        self.elect(0)

    def _add(self, address: str) -> None:
        machine = NamespaceMachine(_NoCheckpoints(), INFO)  # type: ignore[arg-type] # `all` is asked for alone

        def stand(*calls: Any) -> _Ballot:
            self._ballots.append(_Ballot(*calls))
            return self._ballots[-1]

        replica = Replica(self.journal, machine, stand, self._clock, layout_version=HADOOP_2_7)
        election: Any = self
        self.services.append(
            NameService(f"nn{len(self.services)}", address, replica, machine, election, clock=self._clock)
        )
        replica.start()

    async def holder(self) -> Any:
        """See Election."""
        if self._active is None:
            return None
        service = self.services[self._active]
        return SimpleNamespace(data=election_data(service.address))

    def elect(self, index: int | None) -> None:
        """It is another server's turn, or nobody's."""
        if self._active is not None:
            self._ballots[self._active].lose()
        self._active = index
        if index is not None:
            self._turn += 1
            self._ballots[index].elect(self._turn)

    @property
    def active(self) -> NameService:
        """Whose turn it is."""
        assert self._active is not None
        return self.services[self._active]

    @property
    def namespace(self) -> Namespace:
        """The active's state."""
        return self.active.machine.namespace

    def restart(self) -> None:
        """The turn ends and begins again: everything is read from the journal anew."""
        index = self._active
        self.elect(None)
        self.elect(index)

    def stop(self) -> list[Deferred[None]]:
        """End all."""
        return [service.replica.stop() for service in self.services]
