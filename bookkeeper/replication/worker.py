"""The replication worker: takes marked ledgers, one lock each, and repairs them, many at a time.

    walk the marks --> lock --> read the mark --> repair (ledger_repair.py)
                                    |-- repaired, or the ledger is gone --> remove the mark as it was read --> unlock
                                    |-- open ledger  --> keep the lock, look again after the grace period, then recover
                                    `-- failed       --> keep the lock for the back-off, then unlock and try again

Rules: a mark is removed only as it was seen when the work began (I-76). The lock is advice (I-20): it ends with its
session, and work of an earlier session stops at its next step; what it still commits, it commits by compare-and-set
(I-77). While auto-recovery is disabled nothing is begun, and what is under way stops at its next step.

Bounds: LEDGERS at once and entries and bytes in flight (`WorkerSettings`), HELD_MAX ledgers kept locked while they
wait.

Thread: reactor. Source: Apache 4.18 replication/ReplicationWorker.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.metadata_update import pause
from bookkeeper.errors import BookKeeperError, ClientClosed, MetadataError, VersionConflict
from bookkeeper.metrics import Metrics
from bookkeeper.model import LedgerId
from bookkeeper.replication.audit import Suspicion
from bookkeeper.replication.bad_copies import BadCopyRepair
from bookkeeper.replication.flow import CopyFlow
from bookkeeper.replication.fragment_check import LedgerChecker
from bookkeeper.replication.ledger_repair import LedgerRepair, RepairEnd, RepairReport
from bookkeeper.replication.moving import FragmentRestorer
from bookkeeper.replication.parallel import Lanes
from bookkeeper.replication.read_ahead import ReadAhead
from bookkeeper.replication.tally import CopyTally
from bookkeeper.replication.troubles import Trouble, Troubles, TroubleState

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.metadata.store import RepairLock, Watch
    from bookkeeper.metadata.underreplication_format import UnderreplicatedLedger
    from bookkeeper.ports import Timer

log = Logger()

HELD_MAX = 1000
"""Ledgers whose lock is kept while they wait; more are unlocked, and only this worker leaves them alone meanwhile."""

OPEN_HELD_MAX = 10_000
"""The same for open ledgers in their grace period."""

FOUND_MAX = 2000
"""Marked ledgers that were found and are not begun yet."""

IDLE_S = 60.0
"""Longest time without a look at the marks: not every change of them is told."""

STOP_TIMEOUT_S = 5.0
"""How long `stop` waits for locks to be given up; what is left goes with the session."""

SILENT_TRIES = 2
"""Failures after which copies of a registered bookie that gives no verdict are made anew all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Bounds, rates and times of a worker. Rates: 0 or less for no limit."""

    ledgers_at_once: int = 64
    batch_entries_max: int = 500
    entries_in_flight_max: int = 20_000
    checks_in_flight_max: int = 20_000
    bytes_in_flight_max: int = 64 * 1024 * 1024
    bytes_per_s: float = 0
    entries_per_s: float = 0
    verified_percentage: float = 0
    open_ledger_grace_s: float = 30.0
    failed_ledger_grace_s: float = 300.0
    error_backoff_s: float = 5.0


Losses = frozenset[Suspicion]
"""What the last fragment of an open ledger lacks."""


class WorkEnded(Exception):
    """The work on a ledger is not to go on: its session is over, auto-recovery was disabled, or the worker stops."""


@dataclass(frozen=True, slots=True)
class WorkInHand:
    """A ledger being worked on, for operators. since_s: by the worker's clock."""

    ledger_id: LedgerId
    what: str
    since_s: float


class ReplicationWorker:
    """One worker. host: what its locks say to people. metrics: where its figures are shown."""

    def __init__(
        self, client: LedgerClient, settings: WorkerSettings, host: str, metrics: Metrics | None = None
    ) -> None:
        context = client.context
        self._client, self._settings, self._host = client, settings, host
        self._store, self._clock, self._rng = context.store, context.clock, context.rng
        self._tree = context.store.underreplication
        self.tally = CopyTally(metrics)
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
        restorer = FragmentRestorer(context, flow, self.tally, settings.batch_entries_max)
        self._repair = LedgerRepair(client, checker, restorer)
        self._bad_copies = BadCopyRepair(client, checker, restorer)
        self.troubles = Troubles(settings.failed_ledger_grace_s)
        self._lanes = Lanes(settings.ledgers_at_once)
        self._work: dict[LedgerId, WorkInHand] = {}
        self._marked_still: set[LedgerId] = set()  # of those in `_work`
        self._held: dict[LedgerId, tuple[RepairLock, Timer]] = {}  # locked, and waiting
        self._again: deque[tuple[RepairLock, Losses]] = deque()  # open ledgers whose grace period is over
        self._watches: list[Watch] = []
        self._running: Deferred[None] | None = None
        self._enabled = False
        self._stopping = False
        self._news = False
        self._waiter: Deferred[None] | None = None
        self.ledgers_repaired = 0
        metrics = metrics if metrics is not None else Metrics()
        self._repairs = metrics.summary("replication_replication_worker_rereplicate")
        self._deferred = metrics.counter(
            "replication_replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER"
        )
        self._exceptions = metrics.counter("replication_replication_worker_exceptions")
        metrics.counter(
            "replication_replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", lambda: self.ledgers_repaired
        )
        metrics.gauge("replication_replication_worker_LEDGERS_IN_HAND", lambda: len(self._work))
        metrics.gauge("replication_replication_worker_LEDGERS_IN_TROUBLE", lambda: len(self.troubles))
        metrics.gauge("replication_replication_worker_LEDGERS_UNREPAIRABLE", lambda: self.troubles.unrepairable)

    # --- life

    def start(self) -> None:
        """Begin; the watches last until `stop`."""
        self._watches = [
            self._tree.watch_enabled(self._on_enabled),
            self._tree.watch_work(self._on_news),
            self._store.watch_state(lambda _: self._on_news()),
        ]
        self._running = Deferred.fromCoroutine(self._run())
        self._running.addErrback(self._on_end)

    async def stop(self) -> None:
        """Stop work in hand at its next step, and unlock what is locked, within STOP_TIMEOUT_S. Never fails."""
        self._stopping = True
        for watch in self._watches:
            watch.cancel()
        self._on_news()
        self._lanes.cancel()
        if self._running is not None:
            self._running.cancel()
        held = [lock for lock, _ in (*self._held.values(), *self._again)]
        for _, timer in self._held.values():
            if timer.active():
                timer.cancel()
        self._held.clear()
        self._again.clear()
        await self._within(STOP_TIMEOUT_S, self._let_go(held))

    async def _let_go(self, locks: list[RepairLock]) -> None:
        await self._lanes.drained()
        for lock in locks:
            await self._unlock(lock)

    async def _within(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        task = Deferred.fromCoroutine(work)
        timer = self._clock.callLater(seconds, task.cancel)
        try:
            await task
        except (CancelledError, BookKeeperError) as error:
            log.debug("the worker stopped before everything was unlocked: {error}", error=error)
        finally:
            if timer.active():
                timer.cancel()

    def _on_end(self, failure: Failure) -> None:
        if not self._stopping:
            log.failure("The replication worker ended", failure=failure)

    @property
    def enabled(self) -> bool:
        """Whether auto-recovery is on, as last told."""
        return self._enabled

    @property
    def in_hand(self) -> list[WorkInHand]:
        """What is worked on now."""
        return list(self._work.values())

    # --- finding work

    def _on_enabled(self, enabled: bool) -> None:
        if enabled != self._enabled:
            log.info("Re-replication {what}", what="goes on" if enabled else "pauses: auto-recovery is disabled")
        self._enabled = enabled
        self._on_news()

    def _on_news(self) -> None:
        self._news = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)

    async def _run(self) -> None:
        while not self._stopping:
            self._news = False
            if self._enabled:
                try:
                    await self._round()
                except WorkEnded:
                    continue
                except MetadataError as error:
                    log.info("Looking for under-replicated ledgers: {error}", error=error)
                    self._exceptions.add()
                    await pause(self._clock, self._settings.error_backoff_s)
                    continue
                except (CancelledError, ClientClosed):
                    raise
                except Exception:  # noqa: BLE001 - a mistake in finding work must not end the repair of all ledgers (I-77)
                    log.failure("looking for under-replicated ledgers")
                    self._exceptions.add()
                    await pause(self._clock, self._settings.error_backoff_s)
                    continue
            await self._wait(self._idle_s())

    def _idle_s(self) -> float:
        next_try = self.troubles.next_try_s()
        if next_try is None:
            return IDLE_S
        return min(IDLE_S, max(self._settings.error_backoff_s, next_try - self._clock.seconds()))

    async def _wait(self, seconds: float) -> None:
        """Until there is news, or so many seconds have passed."""
        if self._news or self._stopping:
            return
        self._waiter = Deferred(lambda _: None)
        timer = self._clock.callLater(seconds, self._on_news)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer.active():
                timer.cancel()

    async def _round(self) -> None:
        """Begin the repair of every marked ledger that nobody works on; ends when the last of them was begun."""
        await self._begin_again()
        found = ReadAhead(self._tree.candidates(self._rng), FOUND_MAX)
        try:
            while (ledger_id := await found.next()) is not None:
                await self._begin_again()
                if self._may_begin(ledger_id):
                    await self._lanes.begin(self._guarded(ledger_id, partial(self._take, ledger_id)))
        finally:
            found.stop()
        async for batch in self._tree.bad_copy_ids():
            for ledger_id in batch:
                if self._may_begin(ledger_id):
                    await self._lanes.begin(self._guarded(ledger_id, partial(self._mend, ledger_id)))

    def _may_begin(self, ledger_id: LedgerId) -> bool:
        self._check_working()
        if ledger_id in self._work:
            self._marked_still.add(ledger_id)  # perhaps marked again: looked at once more when that work is done
            return False
        return ledger_id not in self._held and self.troubles.may_try(ledger_id, self._clock.seconds())

    def _check_working(self) -> None:
        if self._stopping or not self._enabled:
            raise WorkEnded("the worker stops" if self._stopping else "auto-recovery is disabled")

    async def _begin_again(self) -> None:
        while self._again:
            lock, losses = self._again.popleft()
            await self._lanes.begin(self._guarded(lock.ledger_id, partial(self._finish, lock, losses)))

    async def _guarded(self, ledger_id: LedgerId, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """One piece of work: whatever goes wrong is told, and the ledger stays marked."""
        self._work[ledger_id] = WorkInHand(ledger_id, "repair", self._clock.seconds())
        try:
            await work()
        except WorkEnded as end:
            log.debug("ledger {ledger_id}: {end}", ledger_id=ledger_id, end=end)
        except (CancelledError, ClientClosed):
            pass
        except BookKeeperError as error:
            self._exceptions.add()
            self._note_failure(ledger_id, RepairReport(RepairEnd.FAILED, str(error)))
        except Exception as error:  # noqa: BLE001 - a mistake in the repair of one ledger must not end that of the others
            self._exceptions.add()
            log.failure("repairing ledger {ledger_id}", ledger_id=ledger_id)
            self._note_failure(ledger_id, RepairReport(RepairEnd.FAILED, repr(error)))
        # Not in a `finally`: a coroutine that is thrown away with its process must not stir the others of that process.
        del self._work[ledger_id]
        if ledger_id in self._marked_still:
            self._marked_still.discard(ledger_id)
            self._on_news()

    # --- one ledger

    async def _take(self, ledger_id: LedgerId) -> None:
        lock = await self._tree.lock(ledger_id, self._host, partial(self._on_lock_lost, ledger_id))
        if lock is not None:
            await self._finish(lock, None)

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
            await self._unlock(lock)
            raise
        if not kept:
            await self._unlock(lock)

    async def _work_on(self, lock: RepairLock, lost_before: Losses | None) -> bool:
        """True: the lock is kept."""
        ledger_id = lock.ledger_id
        mark = await self._tree.read(ledger_id)
        if mark is None:
            self.troubles.on_success(ledger_id)
            return False  # somebody else repaired it
        began = self._clock.seconds()
        trouble = self.troubles.of(ledger_id)
        report = await self._repair.repair(
            ledger_id,
            mark.missing,
            lost_before=lost_before or frozenset(),
            silent_too=trouble is not None and trouble.failures >= SILENT_TRIES,
            go_on=partial(self._check_lock, lock),
        )
        self._check_lock(lock)
        if report.moved and report.end is not RepairEnd.DELETED:
            self.ledgers_repaired += 1
        took_ms = (self._clock.seconds() - began) * 1000
        if report.end in (RepairEnd.REPAIRED, RepairEnd.DELETED):
            self._repairs.observe(took_ms)
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
        trouble = self._note_failure(ledger_id, report)
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
            self._marked_still.add(mark.ledger_id)
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

    def _check_lock(self, lock: RepairLock) -> None:
        """Raise WorkEnded unless the work may go on."""
        self._check_working()
        if not lock.held:
            raise WorkEnded("the session in which the ledger was locked is over")

    def _note_failure(self, ledger_id: LedgerId, report: RepairReport) -> Trouble:
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
        return True

    def _on_held_over(self, lock: RepairLock, again: Losses | None) -> None:
        self._held.pop(lock.ledger_id, None)
        if again is not None and lock.held:
            self._again.append((lock, again))
            self._on_news()
        else:
            released = Deferred.fromCoroutine(self._unlock(lock))
            released.addBoth(lambda _: self._on_news())

    def _on_lock_lost(self, ledger_id: LedgerId) -> None:
        held = self._held.pop(ledger_id, None)
        if held is not None and held[1].active():
            held[1].cancel()
        self._on_news()

    async def _unlock(self, lock: RepairLock) -> None:
        try:
            await lock.release()
        except MetadataError as error:
            log.debug("ledger {ledger_id} could not be unlocked: {error}", ledger_id=lock.ledger_id, error=error)

    # --- bad copies

    async def _mend(self, ledger_id: LedgerId) -> None:
        lock = await self._tree.lock(ledger_id, self._host, partial(self._on_lock_lost, ledger_id))
        if lock is None:
            return
        await self._under(lock, self._mend_under(lock))

    async def _mend_under(self, lock: RepairLock) -> bool:
        report = await self._bad_copies.mend(lock.ledger_id, partial(self._check_lock, lock))
        if report.end is RepairEnd.REPAIRED:
            self.troubles.on_success(lock.ledger_id)
            return False
        trouble = self._note_failure(lock.ledger_id, report)
        return self._hold(lock, trouble.next_try_s - self._clock.seconds())
