"""A metadata server among others that can take its place: standby, taking over, active. Whatever its state is made of.

    loading ----------------> standby --elected--> taking over --> active
       ^   checkpoint and      follows the           fence, read       logs, applies,
       |   finalised segments  journal               the rest, open    acknowledges
       +-------------- turn lost, log failed, journal in trouble ---------+

The state itself is a StateMachine: it is loaded from a checkpoint, and applies transactions in order. Only the active
replica logs; on its way there it first stops whoever wrote before (`recover_unfinalized`), then reads what that one had
made durable, and only then opens a segment (I-80, I-85). The election says whose turn it is meant to be, fencing sees
to it: an active that sleeps through the end of its turn fails with its next flush, and nothing that it did not
acknowledge is promised.

After its turn a replica loads anew: the machine may have applied what never became durable. One that finds its next
transaction purged loads anew too, as a newer checkpoint must be there by now; if there is none, it ends.

Thread: reactor.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.faces.process_objects import OfOneProcess
from bookkeeper.client.parallel import tell_all
from bookkeeper.errors import BookKeeperError, again
from journalmgr.contract import EditsTail, JournalManager, Record, RecordBatch
from journalmgr.edit_log import EditLog, FlushObserver
from journalmgr.edits.opcodes import OpCode
from journalmgr.errors import (
    EditsError,
    GapInTransactions,
    JournalClosed,
    NamespaceMismatch,
    NotApplicable,
    NotFormatted,
    WriterReplaced,
)
from journalmgr.model import OPAQUE, Segment, TxId
from journalmgr.replaying import ahead, is_confirmed, replay

if TYPE_CHECKING:
    from bookkeeper.ports import Clock, Timer

log = Logger()

T = TypeVar("T")


class Role(enum.Enum):
    """What a replica is doing."""

    LOADING = "loading"
    STANDBY = "standby"
    TAKING_OVER = "taking over"
    ACTIVE = "active"
    FAILED = "failed"
    STOPPED = "stopped"


class StateMachine(Protocol):
    """What a metadata server keeps: the sum of its transactions."""

    def load(self) -> int | Awaitable[int]:
        """Forget everything, load the newest checkpoint; the last txid it covers, 0 where there is none."""

    def apply(self, batch: RecordBatch) -> Awaitable[None] | None:
        """Apply transactions, the next ones in order; None when that is done, else it fires then.

        START_LOG_SEGMENT and END_LOG_SEGMENT are among what others logged, and not of what `Replica.append` hands over.
        """


class Candidate(Protocol):
    """Stands for the role; `bookkeeper.metadata.election.Election` is one."""

    def join(self) -> None:
        """Stand from now on."""

    def leave(self) -> Deferred[None]:
        """Stand no more, and give the role up."""


Stand = Callable[[Callable[[int], object], Callable[[], object], Callable[[BaseException], object]], Candidate]
"""Makes the candidate of a replica from (on_elected(turn), on_lost(), on_failed(error)), see Election."""


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """roll_transactions, roll_interval_s: the active ends a segment that has so many, or is so old and not empty.

    A roll_interval_s of 0 means that age ends no segment.

    retry_delay_s, retry_delay_max_s: between attempts after trouble with the journal. confirm_timeout_s: how long what
    a checkpoint covers may be missing in the segment in progress, as long as this server does not take over.
    leave_timeout_s: limit of a stopping server for ending its segment, and again for handing the role on. Its other
    work has until twice this time has passed, and at least LAST_WAIT_S.
    """

    roll_transactions: int = 1_000_000
    roll_interval_s: float = 120.0
    retry_delay_s: float = 0.1
    retry_delay_max_s: float = 10.0
    confirm_timeout_s: float = 10.0
    leave_timeout_s: float = 3.0


LAST_WAIT_S = 1.0

FATAL = (GapInTransactions, EditsError, NamespaceMismatch, NotFormatted, NotApplicable)
"""What trying again does not mend: an operator has to see it."""


async def _done(result: T | Awaitable[T]) -> T:
    """What a machine's method returned, whether at once, as a Deferred, or as a coroutine that awaits Deferreds."""
    return await result if isinstance(result, Awaitable) else result


class Replica(OfOneProcess):
    """One server of a group. Owns neither the journal nor what the machine loads from.

    on_loaded: awaited before the replica stands for the role. on_role: told every change of role. on_turn: told
    that its turn has come, while a batch may still be applied: what holds that up is to be given up. on_failed: told
    once, when the replica has ended because of what trying again does not mend. observer: counts flushes.
    """

    instead = "pass the journal's URI and the arguments of join_group instead, and join the group where they arrive"

    def __init__(
        self,
        journal: JournalManager,
        machine: StateMachine,
        stand: Stand,
        clock: Clock,
        *,
        layout_version: int = OPAQUE,
        settings: ReplicaSettings = ReplicaSettings(),
        on_loaded: Callable[[], Awaitable[object]] | None = None,
        on_role: Callable[[Role], object] = lambda role: None,
        on_turn: Callable[[], object] = lambda: None,
        on_failed: Callable[[BaseException], object] = lambda error: None,
        observer: FlushObserver | None = None,
    ) -> None:
        self.journal = journal
        self.machine = machine
        self.role = Role.LOADING
        self.error: BaseException | None = None
        self.applied_txid = TxId(0)
        self.turns = 0
        self._checkpoint_txid = TxId(0)  # what the machine loaded
        self._purged_behind: TxId | None = None  # the checkpoint behind which a gap was found
        self._clock = clock
        self._layout_version = layout_version
        self._settings = settings
        self._on_loaded = on_loaded
        self._observer = observer
        self._on_role = on_role
        self._on_turn = on_turn
        self._on_failed = on_failed
        self._candidate = stand(self._elected, self._lost, self._fail)
        self._turn: int | None = None
        self._log: EditLog | None = None
        self._tail: EditsTail | None = None
        self._turn_over: Deferred[None] | None = None
        self._pausing: Deferred[None] | None = None
        self._roll_timer: Timer | None = None
        self._running: Deferred[None] | None = None
        self._stopping = self._stopped = False
        self._stoppers: list[Deferred[None]] = []

    @property
    def log(self) -> EditLog:
        """The log of the active replica. Raises JournalClosed for any other: it may not acknowledge anything."""
        if self._log is None or self.role is not Role.ACTIVE:
            raise JournalClosed(f"this server is not the active one, it is {self.role.value}")
        return self._log

    def append(self, payload: bytes) -> Deferred[TxId]:
        """Log an opaque transaction on the active replica; fires with its txid once it is durable and applied.

        Transactions are applied in the order of their txids, so the state never shows what could still be lost. Fails
        with JournalClosed where this is not the active one, and as the log does; the outcome is then open.
        """
        try:
            edit_log = self.log
            txid = edit_log.log(OpCode.OPAQUE, payload)
        except BookKeeperError as error:
            return fail(error)
        return edit_log.sync(txid).addCallback(self._applied, edit_log, payload)

    def _applied(self, txid: TxId, edit_log: EditLog, payload: bytes) -> Any:
        segment = Segment(txid, None, self._layout_version, name=self.journal.description)
        try:
            applying = self.machine.apply(
                RecordBatch(segment, [Record(txid, OpCode.OPAQUE, payload, -1, len(payload))])
            )
        except BaseException:
            edit_log.abort()  # the state is not what the journal says any more
            raise
        self.applied_txid = max(self.applied_txid, txid)
        self.logged()
        if applying is None:
            return txid

        async def applied() -> TxId:
            await applying
            return txid

        return Deferred.fromCoroutine(applied())

    def start(self) -> None:
        """Load, then stand for the role."""
        if self._running is None:
            self._running = Deferred.fromCoroutine(self._run())
            self._running.addErrback(lambda failure: self._fail(failure.value or RuntimeError("no error")))

    def stop(self) -> Deferred[None]:
        """End in order: the active closes its segment and hands the role on. Harmless when repeated."""
        done: Deferred[None] = Deferred()
        if self._stopped:
            done.callback(None)
            return done
        self._stoppers.append(done)
        if not self._stopping:
            Deferred.fromCoroutine(self._stop()).addBoth(self._tell_stoppers)
        return done

    async def _within_limit(self, work: Deferred[None], what: str, limit_s: float) -> None:
        """Await work that needs servers that may be gone, for at most `limit_s`. what: for the log, an infinitive."""
        over: Deferred[None] = Deferred()

        def done(result: Any) -> None:
            if isinstance(result, Failure):
                log.warn("This server could not {what}: {error}", what=what, error=result.value)
            if not over.called:
                over.callback(None)

        def late() -> None:
            log.warn("This server did not {what} in time", what=what)
            over.callback(None)

        timer = self._clock.callLater(limit_s, late)
        work.addBoth(done)
        await over
        if timer.active():
            timer.cancel()

    def _tell_stoppers(self, result: Any) -> None:
        self._stopped = True
        stoppers, self._stoppers = self._stoppers, []
        tell_all(stoppers, result)

    async def _stop(self) -> None:
        self._stopping = True
        limit_s = self._settings.leave_timeout_s
        deadline_s = self._clock.seconds() + 2 * limit_s
        if self._log is not None and self.role is Role.ACTIVE:
            self._become(Role.LOADING)  # it takes nothing any more, and callers are to look for the next one
            await self._within_limit(
                self._log.close(), "end the segment in order (the next server will end it)", limit_s
            )
        self._wake()
        await self._within_limit(self._candidate.leave(), "hand the role on (it ends with the session)", limit_s)
        if self._running is not None:
            remaining_s = max(LAST_WAIT_S, deadline_s - self._clock.seconds())
            await self._within_limit(_finished(self._running), "end its other work", remaining_s)
        if self.role is not Role.FAILED:
            self._become(Role.STOPPED)

    # --- life

    async def _run(self) -> None:
        delay_s = self._settings.retry_delay_s
        while not self._ends():
            try:
                self._become(Role.LOADING)
                await self._load()
                if self._ends():
                    break  # who has left already must not stand again
                self._candidate.join()
                self._become(Role.STANDBY)
                loaded_txid, turns = self.applied_txid, self.turns
                try:
                    await self._stand_by()
                finally:
                    if self.applied_txid > loaded_txid:
                        delay_s = self._settings.retry_delay_s
                turn = self._turn
                if turn is not None and self._has(turn):
                    try:
                        await self._serve(turn)
                    finally:
                        # A turn that comes is no sign that the trouble is over; one that was taken is.
                        if self.turns > turns:
                            delay_s = self._settings.retry_delay_s
            except FATAL as error:
                if self._may_be_mended(error):
                    log.warn("Loading anew, perhaps there is a newer checkpoint: {error}", error=error)
                    self.error = error
                    self._become(Role.LOADING)
                    await self._leave()
                else:
                    self._fail(error)
            except BookKeeperError as error:
                if not self._stopping:
                    log.warn(
                        "In trouble while {role}, and trying again in {delay:.1f} s: {error}",
                        role=self.role.value,
                        delay=delay_s,
                        error=error,
                    )
                    self.error = error
                    self._become(Role.LOADING)
                    await self._drop_log()
                    await self._leave()
                    await self._pause(delay_s)
                    delay_s = min(2 * delay_s, self._settings.retry_delay_max_s)
            if not self._stopping:
                self._become(Role.LOADING)  # giving up the segment takes time, and another may be active meanwhile
            await self._drop_log()

    def _may_be_mended(self, error: BookKeeperError) -> bool:
        """Whether it is a gap, of which a checkpoint could be there that was not when this one was loaded."""
        if not isinstance(error, GapInTransactions) or error.expected <= self._checkpoint_txid or self._ends():
            return False
        before, self._purged_behind = self._purged_behind, self._checkpoint_txid
        return before != self._checkpoint_txid

    async def _leave(self) -> None:
        """Give the role up, for now or for good."""
        try:
            await self._candidate.leave()
        except BookKeeperError as error:
            log.warn("The role could not be handed on, it ends with the session: {error}", error=error)

    async def _load(self) -> None:
        """Checkpoint, then all that is finalised: whoever stands for the role is nearly up to date."""
        self.applied_txid = self._checkpoint_txid = TxId(await _done(self.machine.load()))
        async for batch in replay(self.journal, TxId(self.applied_txid + 1)):
            await self._apply(batch)
            if self._ends():
                return
        if self._on_loaded is not None:
            await self._on_loaded()

    async def _stand_by(self) -> None:
        """Follow the journal until the turn comes."""
        await self._until_confirmed()
        if not self._waits():
            return
        tail = self._tail = self.journal.tail(TxId(self.applied_txid + 1))
        try:
            while self._waits():
                await self._apply(await tail.next())
                self.error = None
        except JournalClosed:
            if self._waits():
                raise
        finally:
            self._tail = None
            tail.stop()

    async def _until_confirmed(self) -> None:
        """Until the journal shows all that the checkpoint covers, which another server may have read a moment before.

        Where this one takes over instead, `EditLog.open` knows.
        """
        begun_s, told = self._clock.seconds(), False
        while self._waits() and not await is_confirmed(self.journal, self.applied_txid):
            if not told:
                told = True
                log.warn(
                    "{journal} does not show txid {txid} yet, which the checkpoint covers; this server ends if that "
                    "does not change within {seconds:g} s",
                    journal=self.journal.description,
                    txid=self.applied_txid,
                    seconds=self._settings.confirm_timeout_s,
                )
            if self._clock.seconds() - begun_s > self._settings.confirm_timeout_s:
                raise ahead(self.journal, self.applied_txid, await self.journal.last_txid_seen())
            if self._waits():
                await self._pause(self._settings.retry_delay_s)

    def _waits(self) -> bool:
        return self._turn is None and not self._ends()

    def _ends(self) -> bool:
        return self._stopping or self.role is Role.FAILED

    async def _serve(self, turn: int) -> None:
        """Take over, and be active until the turn ends or the log fails."""
        self._become(Role.TAKING_OVER)
        begun_s = self._clock.seconds()
        edit_log = self._log = EditLog(
            self.journal, self._layout_version, on_failed=lambda error: self._wake(), observer=self._observer
        )
        await edit_log.recover()
        async for batch in edit_log.replay(self.applied_txid + 1):
            await self._apply(batch)
        if not self._has(turn):
            return
        try:
            await edit_log.open(self.applied_txid + 1)
        except GapInTransactions as error:
            if error.expected <= self._checkpoint_txid:
                raise ahead(self.journal, self._checkpoint_txid, TxId(error.expected - 1)) from error
            if error.expected <= self.applied_txid + 1:
                raise
            raise WriterReplaced(
                f"{self.journal.description}: it has grown up to txid {error.expected - 1} since this server read it "
                f"up to {self.applied_txid}: another server became the writer meanwhile"
            ) from error
        self.applied_txid = TxId(edit_log.next_txid - 1)
        if not self._has(turn):
            return
        self._turn_over = Deferred()
        self.turns += 1
        self.error = None
        log.info(
            "Active from txid {txid} on, {seconds:.3f} s after the turn began",
            txid=edit_log.next_txid,
            seconds=self._clock.seconds() - begun_s,
        )
        self._set_roll_timer()
        self._become(Role.ACTIVE)
        await self._turn_over
        if edit_log.error is not None and not self._stopping:
            raise again(edit_log.error)

    def _has(self, turn: int) -> bool:
        return self._turn == turn and not self._ends()

    async def _drop_log(self) -> None:
        edit_log, self._log = self._log, None
        self._turn_over = None
        if self._roll_timer is not None and self._roll_timer.active():
            self._roll_timer.cancel()
        self._roll_timer = None
        if edit_log is not None:
            try:
                await edit_log.abort()
            except BookKeeperError as error:
                log.info("Giving up the segment: {error}", error=error)

    async def _apply(self, batch: RecordBatch) -> None:
        first = batch.records[0].txid
        if first != self.applied_txid + 1:
            raise GapInTransactions(
                f"{self.journal.description}: txid {self.applied_txid + 1} comes next, and {first} came",
                expected=self.applied_txid + 1,
                found=first,
            )
        last = batch.records[-1].txid
        if (batch.segment.layout_version == OPAQUE) != (self._layout_version == OPAQUE):
            raise NotApplicable(
                f"{self.journal.description}: segment {batch.segment} has transactions of layout version "
                f"{batch.segment.layout_version}, and this server is one for {self._layout_version}: it is another "
                "server's journal; check the URI"
            )
        try:
            await _done(self.machine.apply(batch))
        except BookKeeperError as error:
            raise NotApplicable(str(error)) from error
        except Exception as error:
            raise NotApplicable(
                f"{self.journal.description}: the state machine failed at the transactions {first}..{last}: {error!r}"
            ) from error
        self.applied_txid = last

    # --- events

    def _elected(self, turn: int) -> None:
        self._turn = turn
        self._on_turn()
        if self._pausing is not None and not self._pausing.called:
            self._pausing.callback(None)
        if self._tail is not None:
            self._tail.stop()

    def _lost(self) -> None:
        self._turn = None
        self._wake()

    def _wake(self) -> None:
        """Something has ended: whoever waits looks at what."""
        for waiting in (self._turn_over, self._pausing):
            if waiting is not None and not waiting.called:
                waiting.callback(None)
        if self._tail is not None and self._ends():
            self._tail.stop()

    def _fail(self, error: BaseException) -> None:
        if self.role in (Role.FAILED, Role.STOPPED):
            return
        log.error("The replica has ended while {role}: {error}", role=self.role.value, error=error)
        self.error = error
        self._become(Role.FAILED)
        self._wake()
        if self._log is not None:
            self._log.abort().addErrback(
                lambda failure: log.info("Giving up the segment: {error}", error=failure.value)
            )
        self._candidate.leave().addErrback(lambda failure: log.warn("{error}", error=failure.value))
        self._on_failed(error)

    def _become(self, role: Role) -> None:
        if role is not self.role and self.role is not Role.FAILED:
            self.role = role
            self._on_role(role)

    async def _pause(self, delay_s: float) -> None:
        if self._stopping:
            return
        pausing = self._pausing = Deferred()
        timer = self._clock.callLater(delay_s, pausing.callback, None)
        try:
            await pausing
        finally:
            self._pausing = None
            if timer.active():
                timer.cancel()

    # --- rolling

    def _set_roll_timer(self) -> None:
        if self._settings.roll_interval_s:
            self._roll_timer = self._clock.callLater(self._settings.roll_interval_s, self._roll)

    def _roll(self) -> None:
        edit_log = self._log
        if edit_log is None or self.role is not Role.ACTIVE:
            return
        first = edit_log.segment_first_txid
        # A segment that holds nothing but its START stays.
        due = first is not None and edit_log.next_txid > first + 1 and not edit_log.rolling
        rolling = edit_log.roll() if due else succeed(TxId(0))
        rolling.addErrback(lambda failure: log.warn("Rolling: {error}", error=failure.value))
        rolling.addCallback(lambda _: self._set_roll_timer() if self._log is edit_log else None)

    def logged(self) -> None:
        """The active has logged something: ends the segment once it is long enough. Cheap; call it now and then."""
        edit_log = self._log
        if edit_log is None or edit_log.rolling or edit_log.segment_first_txid is None:
            return
        if edit_log.next_txid - edit_log.segment_first_txid > self._settings.roll_transactions:
            edit_log.roll().addErrback(lambda failure: log.warn("Rolling: {error}", error=failure.value))


def _finished(deferred: Deferred[None]) -> Deferred[None]:
    waiting: Deferred[None] = Deferred()
    deferred.addCallback(waiting.callback)
    return waiting
