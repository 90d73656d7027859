"""The name node as its clients see it: requests on the active, looks at the state, and who is active if not this one.

    change(request)    check, log and apply in one turn; fires once the log says that it is durable
    look(question)     the state as it is now

A standby refuses both with NotActive: what it shows would be late. The answer names the active, if anybody is.
Thread: reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import ref

from twisted.internet.defer import Deferred

from bookkeeper.errors import BookKeeperError
from journalmgr.errors import JournalError
from journalmgr.group import address_in
from journalmgr.model import TxId
from journalmgr.namenode.images.format import fingerprint_steps
from journalmgr.namenode.machine import NamespaceMachine
from journalmgr.namenode.namespace.operations import Operations, Requests
from journalmgr.namenode.namespace.slices import Slices
from journalmgr.namenode.namespace.tree import Namespace
from journalmgr.replica import Replica, Role

if TYPE_CHECKING:
    from bookkeeper.metadata.election import Election
    from bookkeeper.ports import Clock

T = TypeVar("T")

FINGERPRINT_S: Final = 5.0
"""Time in which a fingerprint is computed again because the state has changed."""


class NotActive(JournalError):
    """This server does not serve requests now. active: address of the one that does, as far as is known."""

    retriable = True
    hadoop_name = "org.apache.hadoop.ipc.StandbyException"

    def __init__(self, message: str, active: str = "") -> None:
        super().__init__(message + (f"; the active one is {active}" if active else ""))
        self.active = active


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What operators ask. applied_txid: of the state; durable_txid: of the log, on the active. error: of the last
    trouble, empty if there is none.
    """

    server_id: str
    address: str
    role: str
    active: str
    applied_txid: int
    durable_txid: int
    checkpoint_txid: int
    inodes: int
    turns: int
    journal: str
    error: str


class NameService:
    """One server's requests.

    address: host:port of its HTTP interface, for others. election: None for a server that is alone. slices: for long
    looks at the state.
    """

    def __init__(
        self,
        server_id: str,
        address: str,
        replica: Replica,
        machine: NamespaceMachine,
        election: Election | None,
        clock: Clock,
    ) -> None:
        self.server_id, self.address = server_id, address
        self.replica, self.machine = replica, machine
        self.slices = Slices(clock)
        self._election = election
        self._clock = clock
        self._fingerprint: tuple[ref[Namespace], int, str] | None = None  # the last one, of a state that may be gone

    def change(self, request: Callable[[Requests], Operations]) -> Deferred[TxId]:
        """Carry out a request; fires with the txid that it is durable with (nothing to do: the last one of the state).

        Fails with RequestRefused, NotActive, and with what the log failed with: the outcome is then open.
        """
        return Deferred.fromCoroutine(self._change(request))

    async def _change(self, request: Callable[[Requests], Operations]) -> TxId:
        self._check_active(await self._active_address() if self.replica.role is not Role.ACTIVE else "")
        edit_log = self.replica.log
        operations = request(Requests(self.machine.namespace))
        txid = self.machine.execute(edit_log, operations)
        # Where there is nothing to do, what the request found may be somebody's who waits for the very next flush.
        durable = await edit_log.sync(txid)
        self.replica.logged()
        return durable

    def look(self, question: Callable[[Namespace], T]) -> Deferred[T]:
        """What a question finds in the state of the active. Fails with NotActive, RequestRefused."""
        return Deferred.fromCoroutine(self._look(question))

    async def _look(self, question: Callable[[Namespace], T]) -> T:
        self._check_active(await self._active_address() if self.replica.role is not Role.ACTIVE else "")
        return question(self.machine.namespace)

    async def status(self) -> ServerStatus:
        """How this server is; any role."""
        replica = self.replica
        self._keep_up()
        active = self.address if replica.role is Role.ACTIVE else await self._active_address()
        return ServerStatus(
            server_id=self.server_id,
            address=self.address,
            role=replica.role.value,
            active=active,
            applied_txid=self.machine.namespace.last_txid,
            durable_txid=replica.log.durable_txid if replica.role is Role.ACTIVE else 0,
            checkpoint_txid=self.machine.checkpoint_txid,
            inodes=len(self.machine.namespace.inodes),
            turns=replica.turns,
            journal=replica.journal.description,
            error="" if replica.error is None else str(replica.error),
        )

    async def fingerprint(self) -> tuple[int, str] | None:
        """Txid and fingerprint of the state: equal on all servers that have applied as much.

        Computed in slices, and again from the start if a transaction was applied in between. None if that still
        happened after FINGERPRINT_S. Raises Overloaded.
        """
        until_s = self._clock.seconds() + FINGERPRINT_S
        while True:
            self._keep_up()
            namespace = self.machine.namespace
            txid = namespace.last_txid
            known = self._fingerprint
            if known is not None and known[0]() is namespace and known[1] == txid:
                return txid, known[2]
            found = await self.slices.run(fingerprint_steps(namespace))
            if found is not None:
                self._fingerprint = ref(namespace), txid, found
                return txid, found
            if self._clock.seconds() >= until_s:
                return None

    async def roll(self) -> TxId:
        """End the segment and begin the next; its first txid. Fails with NotActive."""
        self._check_active("")
        return await self.replica.log.roll()

    def _keep_up(self) -> None:
        if self.replica.role is Role.ACTIVE:
            self.machine.keep_up(self.replica.log)

    def _check_active(self, active: str) -> None:
        if self.replica.role is not Role.ACTIVE:
            raise NotActive(f"server {self.server_id} is {self.replica.role.value}", active)

    async def _active_address(self) -> str:
        if self._election is None:
            return ""
        try:
            holder = await self._election.holder()
        except BookKeeperError:
            return ""  # only a hint; whoever asked hears that this server is not the one
        address = "" if holder is None else address_in(holder.data)
        return address if address != self.address else ""
