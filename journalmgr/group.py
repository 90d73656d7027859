"""Servers that stand in for each other: one journal, one state, one of them active. What a metadata server calls.

    member = await join_group(reactor, "bookkeeper://zk1:2181/names", machine)
    await member.active()              it is this server's turn, and everything acknowledged before is in the state
    await member.append(b"...")        durable, and applied
    await member.leave()

On a journal in ledgers the journal's own ZooKeeper session carries the election; a server on any other journal is
active as soon as nobody else holds that journal's lock. The journal must have been formatted (`journalmgr format`):
that never happens by itself (I-87). Thread: reactor.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger

from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.clock import clock_of
from bookkeeper.errors import BookKeeperError, again
from bookkeeper.metadata.election import Election
from bookkeeper.texts import parse_json
from journalmgr.contract import JournalManager, RecordBatch
from journalmgr.edit_log import FlushObserver
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import JournalClosed, JournalUnavailable
from journalmgr.ledger.journal import LedgerJournal
from journalmgr.model import OPAQUE, NamespaceInfo, Segment, TxId
from journalmgr.plugins import open_journal
from journalmgr.replica import Candidate, Replica, ReplicaSettings, Role, StateMachine

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Timer

log = Logger()

_ENDS = (Role.FAILED, Role.STOPPED)

ELECTION_PARENT = "/hadoop-ha"
LOCK_NAME = "ActiveStandbyElectorLock"
"""Where, and as what, Hadoop's failover controllers elect."""

ALONE_PERIOD_S = 1.0
"""How often a server without an election looks whether the journal's lock is free."""


class Alone:
    """The candidate of a server without an election: its turn is when it can stop whoever wrote before.

    On a journal that is locked by its writer that is when the writer has ended; until then it is asked again, and the
    server follows the journal as a standby. Other failures are the replica's to deal with.
    """

    def __init__(
        self,
        journal: JournalManager,
        clock: Clock,
        on_elected: Callable[[int], object],
        on_lost: Callable[[], object],
        *,
        period_s: float = ALONE_PERIOD_S,
    ) -> None:
        self._journal, self._clock, self._period_s = journal, clock, period_s
        self._on_elected, self._on_lost = on_elected, on_lost
        self._turns = 0
        self._stands = self._asking = self._elected = False
        self._timer: Timer | None = None
        self._told = ""

    def join(self) -> None:
        """See Candidate."""
        if not self._stands:
            self._stands = True
            self._ask()

    def _ask(self) -> None:
        self._timer = None
        if self._stands and not self._asking:
            self._asking = True
            asking = Deferred.fromCoroutine(self._try())
            asking.addErrback(lambda failure: log.failure("An election without rivals failed", failure=failure))

    async def _try(self) -> None:
        try:
            await self._journal.recover_unfinalized()
        except JournalUnavailable as error:
            if str(error) != self._told:
                self._told = str(error)
                log.warn("Standing by: {error}", error=error)
            if self._stands:
                self._timer = self._clock.callLater(self._period_s, self._ask)
            return
        except BookKeeperError as error:
            log.warn("{error}", error=error)
        finally:
            self._asking = False
        if self._stands:
            self._turns += 1
            self._elected = True
            self._on_elected(self._turns)

    def leave(self) -> Deferred[None]:
        """See Candidate."""
        self._stands = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._elected:
            self._elected = False
            self._on_lost()
        return succeed(None)


class Member(OfOneProcess):
    """One server of a group: its journal, its election, its replica. `start` begins, `leave` ends it.

    An async context manager that leaves. machine: the state, see StateMachine. address: where this server is, for
    whoever asks who is active. namespace: whose journal it is. settings, on_loaded, on_role, on_turn, on_failed,
    observer: as of Replica. Owns the journal.
    """

    instead = "pass the journal's URI and the arguments of join_group instead, and join the group where they arrive"

    def __init__(
        self,
        clock: Clock,
        journal: JournalManager,
        machine: StateMachine,
        *,
        address: str = "",
        namespace: NamespaceInfo | None = None,
        layout_version: int = OPAQUE,
        election_parent: str = ELECTION_PARENT,
        settings: ReplicaSettings | None = None,
        on_loaded: Callable[[], Awaitable[object]] | None = None,
        on_role: Callable[[Role], object] = lambda role: None,
        on_turn: Callable[[], object] = lambda: None,
        on_failed: Callable[[BaseException], object] = lambda error: None,
        observer: FlushObserver | None = None,
    ) -> None:
        self.journal = journal
        self.address = address
        self.namespace = namespace
        self.election: Election | None = None
        self._on_role = on_role
        self._waiting: list[Deferred[None]] = []

        def stand(
            on_elected: Callable[[int], object],
            on_lost: Callable[[], object],
            on_end: Callable[[BaseException], object],
        ) -> Candidate:
            if not isinstance(journal, LedgerJournal):
                return Alone(journal, clock, on_elected, on_lost)
            self.election = Election(
                journal.tree,
                clock,
                journal.metadata_settings,
                f"{election_parent}{journal.root}/{LOCK_NAME}",
                election_data(address),
                on_elected=on_elected,
                on_lost=on_lost,
                on_failed=on_end,
            )
            return self.election

        self.replica = Replica(
            journal,
            machine,
            stand,
            clock,
            layout_version=layout_version,
            settings=settings or ReplicaSettings(),
            on_loaded=on_loaded,
            on_role=self._role_changed,
            on_turn=on_turn,
            on_failed=on_failed,
            observer=observer,
        )

    @property
    def role(self) -> Role:
        """What it is doing."""
        return self.replica.role

    def start(self) -> None:
        """Load, and stand for the role."""
        self.replica.start()

    def active(self) -> Deferred[None]:
        """Fires when it is this server's turn, at once if it is. Fails once the member has left or failed."""
        if self.role is Role.ACTIVE:
            return succeed(None)
        if self.role in _ENDS:
            return fail(self._why_not())
        waiting: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        return waiting

    def append(self, payload: bytes) -> Deferred[TxId]:
        """Log a transaction; fires with its txid once it is durable and applied. See `Replica.append`."""
        return self.replica.append(payload)

    def ready(self) -> Deferred[None]:
        """Fires when `append` takes something again; at once unless too much waits to be durable. See `EditLog.ready`.

        Fails with JournalClosed where this server is not the active one.
        """
        try:
            return self.replica.log.ready()
        except BookKeeperError as error:
            return fail(error)

    def purge_older_than(self, min_txid_to_keep: int) -> Deferred[list[Segment]]:
        """Delete the finalised segments that end below this txid; fires with what was deleted.

        The active server's to call, once the checkpoints of *all* servers cover what is below: whoever loads an older
        one finds a gap, and ends. Fails with JournalClosed where this server is not the active one, and as
        `JournalManager.purge_older_than` does; what was left is deleted by the next call.
        """
        if self.role is not Role.ACTIVE:
            return fail(JournalClosed(f"this server is not the active one, it is {self.role.value}: that one purges"))
        return self.journal.purge_older_than(TxId(min_txid_to_keep))

    def active_address(self) -> Deferred[str]:
        """Where the active server says that it is; empty where nobody is active, or it does not say."""
        return Deferred.fromCoroutine(self._active_address())

    async def _active_address(self) -> str:
        if self.election is None:
            return self.address if self.role is Role.ACTIVE else ""
        holder = await self.election.holder()
        return "" if holder is None else address_in(holder.data)

    def leave(self) -> Deferred[None]:
        """End in order: the active closes its segment and hands the role on. Never fails; harmless when repeated."""
        return Deferred.fromCoroutine(self._leave())

    async def _leave(self) -> None:
        await self.replica.stop()
        self._tell(self.role)
        try:
            await self.journal.close()
        except BookKeeperError as error:
            log.warn("Closing {journal}: {error}", journal=self.journal.description, error=error)

    def _role_changed(self, role: Role) -> None:
        self._on_role(role)
        self._tell(role)

    def _tell(self, role: Role) -> None:
        """Whoever waits for the turn hears of it, or that it will not come."""
        if role is not Role.ACTIVE and role not in _ENDS:
            return
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            if role is Role.ACTIVE:
                deferred.callback(None)
            else:
                deferred.errback(self._why_not())

    def _why_not(self) -> BaseException:
        if self.replica.error is not None:
            return again(self.replica.error)
        return JournalClosed(f"this member of {self.journal.description} has left its group")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()


def election_data(address: str) -> bytes:
    """What a server's election node says."""
    return json.dumps({"address": address}).encode()


def address_in(data: bytes) -> str:
    """Where the server of an election node says that it is; empty where it does not say.

    It may be another's candidate, a failover controller of Hadoop's for example.
    """
    try:
        address = parse_json(data)["address"]
    except (ValueError, KeyError, TypeError):
        return ""
    return address if isinstance(address, str) else ""


def open_own_journal(
    reactor: Any, uri: str, options: Mapping[str, Any] | None = None
) -> Deferred[tuple[JournalManager, NamespaceInfo]]:
    """Open a journal as one of the namespace that it says it belongs to: to write it, and not to another's by mistake.

    Should it be formatted anew meanwhile, for another namespace, it is refused from then on. Fails with NotFormatted,
    InvalidArgument, JournalError; nothing is left open then.
    """
    return Deferred.fromCoroutine(_open_own(reactor, uri, options))


async def _open_own(reactor: Any, uri: str, options: Mapping[str, Any] | None) -> tuple[JournalManager, NamespaceInfo]:
    journal = await open_journal(uri, reactor, None, options)
    try:
        namespace = await journal.namespace()
    finally:
        await journal.close()
    return await open_journal(uri, reactor, namespace, options), namespace


def join_group(
    reactor: Any,
    uri: str,
    machine: StateMachine,
    *,
    options: Mapping[str, Any] | None = None,
    on_opened: Callable[[NamespaceInfo], object] = lambda namespace: None,
    **named: Any,
) -> Deferred[Member]:
    """Open a journal and stand for its group; fires once loading has begun.

    options: for whoever opens the journal (`journalmgr.plugins`). on_opened: told whose journal it is before the
    machine is loaded: a checkpoint of another journal would be taken where its txid happens to fit. The other
    arguments are those of Member. Fails with NotFormatted, InvalidArgument, JournalError; nothing is left open then.
    """
    return Deferred.fromCoroutine(_join(reactor, uri, machine, options, on_opened, named))


async def _join(
    reactor: Any,
    uri: str,
    machine: StateMachine,
    options: Mapping[str, Any] | None,
    on_opened: Callable[[NamespaceInfo], object],
    named: Mapping[str, Any],
) -> Member:
    journal, namespace = await open_own_journal(reactor, uri, options)
    try:
        on_opened(namespace)
        member = Member(clock_of(reactor), journal, machine, namespace=namespace, **named)
    except BaseException:
        await journal.close()
        raise
    member.start()
    return member


def payloads(batch: RecordBatch) -> Iterator[bytes]:
    """The opaque transactions of a batch, without the marks of segments between them."""
    return (record.body for record in batch.records if record.opcode == OpCode.OPAQUE)
