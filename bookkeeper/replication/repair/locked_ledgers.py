"""Ledgers that this worker has locked: what is done under the lock, and how long it is kept.

    lock --> read the mark --> repair (ledger_repair.py)
                 |-- repaired, or the ledger is gone --> remove the mark as it was read, and the lock with it
                 |-- open ledger  --> keep the lock, look again after the grace period, then recover
                 `-- failed       --> keep the lock for the back-off, then unlock; then anybody tries again;
                                      a bookie that comes ends the back-off (`try_again`)

Rules: a mark is removed only as it was seen when the work began (I-76). The lock is advice (I-20): it ends with its
session, and work of an earlier session stops at its next step (I-77).

Bounds: HELD_MAX ledgers kept locked while they wait, and OPEN_HELD_MAX open ones.

Thread: reactor. Source: Apache 4.18 replication/ReplicationWorker.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.errors import MetadataError, PortableError, VersionConflict
from bookkeeper.model import LedgerId
from bookkeeper.replication.audit.conclusions import Suspicion
from bookkeeper.replication.copies.flow import CopyFlow
from bookkeeper.replication.copies.fragment_check import LedgerChecker
from bookkeeper.replication.copies.move import FragmentRestorer
from bookkeeper.replication.copies.tally import CopyTally
from bookkeeper.replication.repair.damaged_copies import BadCopyRepair
from bookkeeper.replication.repair.failed_repairs import Trouble, Troubles, TroubleState
from bookkeeper.replication.repair.ledger_repair import LedgerRepair, RepairEnd, RepairReport
from bookkeeper.replication.repair.repair_log import RepairsTold

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.metadata.store import RepairLock
    from bookkeeper.metadata.underreplication.format import UnderreplicatedLedger
    from bookkeeper.metrics import Metrics
    from bookkeeper.ports import Timer
    from bookkeeper.replication.repair.settings import WorkerSettings

log = Logger()

HELD_MAX = 1000
"""Ledgers whose lock is kept while they wait; more are unlocked, and only this worker leaves them alone meanwhile."""

OPEN_HELD_MAX = 10_000
"""The same for open ledgers in their grace period."""

SILENT_TRIES = 2
"""Failures after which copies of a registered bookie that gives no verdict are made anew all the same."""


Losses = frozenset[Suspicion]
"""What the last fragment of an open ledger lacks."""


class WorkEnded(PortableError):
    """The work on a ledger is not to go on: its session is over, auto-recovery was disabled, or the worker stops."""


class LockedLedgers:
    """The locked ledgers of one worker.

    check_working: raises WorkEnded when no work is to go on. on_news: called when there may be something to begin.
    on_work: called when a ledger was locked that is marked indeed.
    on_marked_again: called with a ledger under repair that has to be looked at once more. host, tally, metrics: the
    worker's.
    """

    def __init__(
        self,
        client: LedgerClient,
        settings: WorkerSettings,
        host: str,
        tally: CopyTally,
        metrics: Metrics,
        *,
        check_working: Callable[[], None],
        on_news: Callable[[], None],
        on_work: Callable[[], None],
        on_marked_again: Callable[[LedgerId], object],
    ) -> None:
        context = client.context
        self._settings, self._host = settings, host
        self._clock, self._tree = context.clock, context.store.underreplication
        self._check_working, self._on_marked_again = check_working, on_marked_again
        self._on_news, self._on_work = on_news, on_work
        flow = CopyFlow(
            self._clock,
            entries_max=settings.entries_in_flight_max,
            bytes_max=settings.bytes_in_flight_max,
            entries_per_s=settings.entries_per_s,
            bytes_per_s=settings.bytes_per_s,
        )
        checker = LedgerChecker(
            context, entries_max=settings.checks_in_flight_max, percentage=settings.verified_percentage
        )
        restorer = FragmentRestorer(context, flow, tally, settings.batch_entries_max)
        self._repair = LedgerRepair(client, checker, restorer)
        self._bad_copies = BadCopyRepair(client, checker, restorer)
        self.troubles = Troubles(settings.failed_ledger_grace_s)
        self._held: dict[LedgerId, tuple[RepairLock, Timer]] = {}  # locked, and waiting
        self._backing_off: set[LedgerId] = set()  # of these, those that nothing but a back-off keeps
        self._again: deque[tuple[RepairLock, Losses]] = deque()  # open ledgers whose grace period is over
        self.ledgers_repaired = 0
        self._tally = tally
        self._told = RepairsTold()
        self._telling: Timer | None = None
        self._repairs = metrics.summary("replication_replication_worker_rereplicate")
        self._deferred = metrics.counter(
            "replication_replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER"
        )
        metrics.counter(
            "replication_replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", lambda: self.ledgers_repaired
        )
        metrics.gauge("replication_replication_worker_LEDGERS_IN_TROUBLE", lambda: len(self.troubles))
        metrics.gauge("replication_replication_worker_LEDGERS_UNREPAIRABLE", lambda: self.troubles.unrepairable)

    def is_held(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger is locked, and waits."""
        return ledger_id in self._held

    def next_due(self) -> tuple[LedgerId, Callable[[], Coroutine[Any, Any, None]]] | None:
        """An open ledger whose grace period is over, and the work on it."""
        if not self._again:
            return None
        lock, losses = self._again.popleft()
        return lock.ledger_id, partial(self._finish, lock, losses)

    def try_again(self) -> None:
        """Wait for no back-off any more. Open ledgers in their grace period are left alone: it is their writers'."""
        waited = self.troubles.try_all(self._clock.seconds())
        again = [(lock, timer) for lock, timer in self._held.values() if lock.ledger_id in self._backing_off]
        if waited:
            log.info("A bookie came: {waited} ledgers that could not be repaired are tried again", waited=waited)
        for lock, timer in again:
            if timer.active():
                timer.cancel()
            self._on_held_over(lock, None)
        if waited:
            self._on_news()

    def give_up_waiting(self) -> list[RepairLock]:
        """Wait for no ledger any more; the locks, which are still to be given up."""
        held = [lock for lock, _ in (*self._held.values(), *self._again)]
        for _, timer in self._held.values():
            if timer.active():
                timer.cancel()
        self._held.clear()
        self._backing_off.clear()
        self._again.clear()
        return held

    # --- one ledger

    async def take(self, ledger_id: LedgerId) -> None:
        """Lock a ledger and repair it, unless somebody has it; it is unlocked then, or waits."""
        lock = await self._lock(ledger_id)
        if lock is not None:
            await self._finish(lock, None)

    async def mend(self, ledger_id: LedgerId) -> None:
        """The same for the bad copies that are noted of it."""
        lock = await self._lock(ledger_id)
        if lock is not None:
            await self._under(lock, self._mend_under(lock))

    async def _lock(self, ledger_id: LedgerId) -> RepairLock | None:
        return await self._tree.lock(ledger_id, self._host, partial(self._on_lock_lost, ledger_id))

    async def _finish(self, lock: RepairLock, lost_before: Losses | None) -> None:
        """Repair a ledger that is locked; unlocks it, or keeps it for later. lost_before: None for a first look."""
        await self._under(lock, self._work_on(lock, lost_before))

    async def _under(self, lock: RepairLock, work: Coroutine[Any, Any, bool]) -> None:
        """Unlock when the work ends, however it does, unless it returns that the lock is kept."""
        try:
            kept = await work
        except GeneratorExit:
            raise  # thrown away with its process, whose session ends
        except BaseException:
            await self.unlock(lock)
            raise
        if not kept:
            await self.unlock(lock)

    async def _work_on(self, lock: RepairLock, lost_before: Losses | None) -> bool:
        """True: the lock is kept."""
        ledger_id = lock.ledger_id
        mark = await self._tree.read(ledger_id, lock)
        if mark is None:
            self.troubles.on_success(ledger_id)
            return False  # somebody else repaired it
        self._on_work()
        began = self._clock.seconds()
        trouble = self.troubles.of(ledger_id)
        report = await self._repair.repair(
            lock,
            mark,
            lost_before=lost_before or frozenset(),
            silent_too=trouble is not None and trouble.failures >= SILENT_TRIES,
            go_on=partial(self._check_lock, lock),
        )
        if not lock.mark_removed:
            self._check_lock(lock)
        if report.moved and report.end is not RepairEnd.DELETED:
            self.ledgers_repaired += 1
        took_ms = (self._clock.seconds() - began) * 1000
        if report.end in (RepairEnd.REPAIRED, RepairEnd.DELETED):
            self._repairs.observe(took_ms)
            if report.moved and report.end is RepairEnd.REPAIRED:
                self._told.on_repaired(ledger_id, began, self._clock.seconds())
                self._tell_when_due()
            await self._remove_mark(mark, lock, report)
            return False
        if report.end is RepairEnd.OPEN and (lost_before is None or report.undecided - lost_before):
            log.info(
                "Open ledger {ledger_id}: {reason}; looked at again in {grace:g} s, then recovered",
                ledger_id=ledger_id,
                reason=report.reason,
                grace=self._settings.open_ledger_grace_s,
            )
            return self._hold(lock, self._settings.open_ledger_grace_s, again=report.undecided)
        self._repairs.observe_failure(took_ms)
        trouble = self.note_failure(ledger_id, report)
        self._deferred.add()
        delay_s = trouble.next_try_s - self._clock.seconds()
        if report.undecided:  # what cannot be restored must not keep the open end from being recovered
            return self._hold(lock, max(delay_s, self._settings.open_ledger_grace_s), again=report.undecided)
        return self._hold(lock, delay_s)

    async def _remove_mark(self, mark: UnderreplicatedLedger, lock: RepairLock, report: RepairReport) -> None:
        try:
            await self._tree.finish(mark, lock)
        except VersionConflict as conflict:
            log.info("Ledger {ledger_id}: {conflict}; once more", ledger_id=mark.ledger_id, conflict=conflict)
            self._on_marked_again(mark.ledger_id)
            return
        before = self.troubles.on_success(mark.ledger_id)
        if before is not None:
            log.info(
                "Ledger {ledger_id} is repaired after {failures} failures",
                ledger_id=mark.ledger_id,
                failures=before.failures,
            )
        elif report.end is RepairEnd.DELETED:
            log.debug("ledger {ledger_id} was deleted", ledger_id=mark.ledger_id)

    def _tell_when_due(self) -> None:
        if self._telling is None and self._told.due_s is not None:
            self._telling = self._clock.callLater(max(0.0, self._told.due_s - self._clock.seconds()), self._on_telling)

    def _on_telling(self) -> None:
        self._telling = None
        if self._told.due_s is not None and self._told.due_s > self._clock.seconds():
            self._tell_when_due()
        else:
            self.tell_repairs()

    def tell_repairs(self) -> None:
        """Tell the log what was repaired since the last time."""
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        repairs = self._told.take(self._tally.entries_written, self._tally.bytes_written)
        if repairs is not None:
            log.info("{repairs}", repairs=str(repairs))

    def _check_lock(self, lock: RepairLock) -> None:
        """Raise WorkEnded unless the work may go on."""
        self._check_working()
        if not lock.held:
            raise WorkEnded("the session in which the ledger was locked is over")

    def note_failure(self, ledger_id: LedgerId, report: RepairReport) -> Trouble:
        """A repair failed: why, and when it is tried again."""
        before = self.troubles.of(ledger_id)
        trouble = self.troubles.on_failure(
            ledger_id, report.reason, self._clock.seconds(), unreadable=report.unreadable, denied=report.denied
        )
        state_before = before.state if before else TroubleState.WAITING
        if trouble.state is TroubleState.UNREPAIRABLE and state_before is not TroubleState.UNREPAIRABLE:
            log.error(
                "Ledger {ledger_id} cannot be repaired: {reason}; it stays marked and is tried again every {every:g} s",
                ledger_id=ledger_id,
                reason=report.reason,
                every=self._settings.failed_ledger_grace_s,
            )
        elif before is None or before.reason != trouble.reason:
            log.warn(
                "Ledger {ledger_id} is not repaired yet: {reason}; tried again in {delay:.3g} s",
                ledger_id=ledger_id,
                reason=report.reason,
                delay=trouble.next_try_s - self._clock.seconds(),
            )
        return trouble

    # --- locks

    def _hold(self, lock: RepairLock, seconds: float, *, again: Losses | None = None) -> bool:
        """Keep the lock for a time; then look `again` for these losses, or unlock. False where too many are kept."""
        if len(self._held) >= (HELD_MAX if again is None else OPEN_HELD_MAX):
            return False
        timer = self._clock.callLater(seconds, self._on_held_over, lock, again)
        self._held[lock.ledger_id] = lock, timer
        if again is None:
            self._backing_off.add(lock.ledger_id)
        return True

    def _on_held_over(self, lock: RepairLock, again: Losses | None) -> None:
        self._held.pop(lock.ledger_id, None)
        self._backing_off.discard(lock.ledger_id)
        if again is not None and lock.held:
            self._again.append((lock, again))
            self._on_news()
        else:
            released = Deferred.fromCoroutine(self.unlock(lock))
            released.addBoth(lambda _: self._on_news())

    def _on_lock_lost(self, ledger_id: LedgerId) -> None:
        held = self._held.pop(ledger_id, None)
        self._backing_off.discard(ledger_id)
        if held is not None and held[1].active():
            held[1].cancel()
        self._on_news()

    async def unlock(self, lock: RepairLock) -> None:
        """Give up a lock; never fails."""
        try:
            await lock.release()
        except MetadataError as error:
            log.debug("ledger {ledger_id} could not be unlocked: {error}", ledger_id=lock.ledger_id, error=error)

    async def _mend_under(self, lock: RepairLock) -> bool:
        began, copied = self._clock.seconds(), self._tally.entries_written
        report = await self._bad_copies.mend(lock, partial(self._check_lock, lock))
        if report.end is RepairEnd.REPAIRED:
            if self._tally.entries_written > copied:  # a report may be of copies that are nobody's any more
                self._told.on_repaired(lock.ledger_id, began, self._clock.seconds())
                self._tell_when_due()
            self.troubles.on_success(lock.ledger_id)
            return False
        trouble = self.note_failure(lock.ledger_id, report)
        return self._hold(lock, trouble.next_try_s - self._clock.seconds())
