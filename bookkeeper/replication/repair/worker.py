"""The replication worker: finds marked ledgers and has them repaired, many at a time.

    walk the marks --> begin each that is not in hand, not waited for, and due (failed_repairs.py) --> locked_ledgers.py
         ^                                   |
         |-- LOOK_AGAIN_S after a ledger was taken: where there was one, there are more
         `-- news: of marks and bad copies, of locks that ended, of bookies that came, of what may be tried
             again; at the latest after IDLE_S

While auto-recovery is disabled nothing is begun, and what is under way stops at its next step.

Bounds: `WorkerSettings.ledgers_at_once`, FOUND_MAX.

Thread: reactor. Source: Apache 4.18 replication/ReplicationWorker.java.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.metadata_update import pause
from bookkeeper.client.parallel import Lanes
from bookkeeper.errors import BookKeeperError, ClientClosed, MetadataError
from bookkeeper.metadata.bad_records import BadRecords, ReportedRecords
from bookkeeper.metadata.outcome import within
from bookkeeper.metrics import Metrics
from bookkeeper.model import AvailableBookies, BookieId, LedgerId
from bookkeeper.replication.copies.tally import CopyTally
from bookkeeper.replication.repair.ledger_repair import RepairEnd, RepairReport
from bookkeeper.replication.repair.locked_ledgers import LockedLedgers, WorkEnded
from bookkeeper.replication.repair.read_ahead import ReadAhead

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.metadata.store import RepairLock, Watch
    from bookkeeper.ports import Timer
    from bookkeeper.replication.repair.failed_repairs import Troubles
    from bookkeeper.replication.repair.settings import WorkerSettings

log = Logger()

FOUND_MAX = 2000
"""Marked ledgers that were found and are not begun yet."""

IDLE_S = 60.0
"""Longest time without a look at the marks: not every change of them is told."""

LOOK_AGAIN_S = 0.25
"""From a ledger that was marked indeed to the next walk: news of marks come every 2 s, and nobody idles that long while
an auditor publishes them."""

WAKE_S = 1.0
"""From a bookie that came to the tries it is to help: bookies that come together wake everybody once."""

STOP_TIMEOUT_S = 5.0
"""How long `stop` waits for locks to be given up; what is left goes with the session."""


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
        self._settings = settings
        self._store, self._clock, self._rng = context.store, context.clock, context.rng
        self._tree = context.store.underreplication
        self.tally = CopyTally(metrics)
        metrics = metrics if metrics is not None else Metrics()
        self._lanes = Lanes(settings.ledgers_at_once)
        self._work: dict[LedgerId, WorkInHand] = {}
        self._marked_still: set[LedgerId] = set()  # of those in `_work`
        self._locked = LockedLedgers(
            client,
            settings,
            host,
            self.tally,
            metrics,
            check_working=self._check_working,
            on_news=self._on_news,
            on_work=self._look_soon,
            on_marked_again=self._marked_still.add,
        )
        self.bad_records = BadRecords()  # of the last complete round
        self._reported = ReportedRecords()
        self._watches: list[Watch] = []
        self._running: Deferred[None] | None = None
        self._enabled = False
        self._stopping = False
        self._news = False
        self._waiter: Deferred[None] | None = None
        self._next_look: Timer | None = None
        self._seen: tuple[frozenset[BookieId], dict[BookieId, int | None]] | None = None  # writable; epochs of all
        self._wake: Timer | None = None
        self._exceptions = metrics.counter("replication_replication_worker_exceptions")
        metrics.gauge("replication_replication_worker_LEDGERS_IN_HAND", lambda: len(self._work))
        metrics.gauge("replication_replication_worker_BAD_RECORDS", lambda: self.bad_records.count)

    # --- life

    def start(self) -> None:
        """Begin; the watches last until `stop`."""
        self._watches = [
            self._tree.watch_enabled(self._on_enabled),
            self._tree.watch_work(self._on_news),
            self._store.watch_state(lambda _: self._on_news()),
            self._store.bookies.watch(self._on_bookies),
        ]
        self._running = Deferred.fromCoroutine(self._run())
        self._running.addErrback(self._on_end)

    async def stop(self) -> None:
        """Stop work in hand at its next step, and unlock what is locked, within STOP_TIMEOUT_S. Never fails."""
        self._stopping = True
        for watch in self._watches:
            watch.cancel()
        if self._next_look is not None:
            self._next_look.cancel()
        if self._wake is not None:
            self._wake.cancel()
        self._on_news()
        self._lanes.cancel()
        if self._running is not None:
            self._running.cancel()
        await self._within(STOP_TIMEOUT_S, self._let_go(self._locked.give_up_waiting()))
        self._locked.tell_repairs()

    async def _let_go(self, locks: list[RepairLock]) -> None:
        await self._lanes.drained()
        for lock in locks:
            await self._locked.unlock(lock)

    async def _within(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        try:
            await within(self._clock, seconds, Deferred.fromCoroutine(work))
        except (CancelledError, BookKeeperError) as error:
            log.debug("the worker stopped before everything was unlocked: {error}", error=error)

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

    @property
    def troubles(self) -> Troubles:
        """Ledgers that could not be repaired."""
        return self._locked.troubles

    @property
    def ledgers_repaired(self) -> int:
        """Ledgers that got new members, since the start."""
        return self._locked.ledgers_repaired

    # --- finding work

    def _on_enabled(self, enabled: bool) -> None:
        if enabled != self._enabled:
            log.info("Re-replication {what}", what="goes on" if enabled else "pauses: auto-recovery is disabled")
        self._enabled = enabled
        self._on_news()

    def _on_bookies(self, bookies: AvailableBookies) -> None:
        """A bookie that came, came back, or turned writable may be what ledgers in trouble wait for."""
        epochs = {each: self._store.bookies.epoch(each) for each in (*bookies.writable, *bookies.read_only)}
        before, self._seen = self._seen, (frozenset(bookies.writable), epochs)
        if before is None or self._stopping:
            return
        came = any(epoch != before[1].get(each) for each, epoch in epochs.items())
        if (came or not self._seen[0] <= before[0]) and self._wake is None:
            # After the client's own view of the bookies, and once for what comes together.
            self._wake = self._clock.callLater(WAKE_S, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        self._locked.try_again()

    def _on_news(self) -> None:
        self._news = True
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)

    def _look_soon(self) -> None:
        """There was work, so there may be more."""
        if self._next_look is None and not self._stopping:
            self._next_look = self._clock.callLater(LOOK_AGAIN_S, self._on_next_look)

    def _on_next_look(self) -> None:
        self._next_look = None
        self._on_news()

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
        await self._begin_due()
        bad_records = BadRecords()
        found = ReadAhead(self._tree.candidates(self._rng, bad_records), FOUND_MAX)
        try:
            while (ledger_id := await found.next()) is not None:
                await self._begin_due()
                if self._may_begin(ledger_id):
                    await self._lanes.begin(self._guarded(ledger_id, partial(self._locked.take, ledger_id)))
        finally:
            found.stop()
        async for batch in self._tree.bad_copy_ids(bad_records):
            for ledger_id in batch:
                if self._may_begin(ledger_id):
                    await self._lanes.begin(self._guarded(ledger_id, partial(self._locked.mend, ledger_id)))
        self.bad_records = bad_records
        self._reported.report(bad_records, "the replication worker passes over it; remove the znode")

    def _may_begin(self, ledger_id: LedgerId) -> bool:
        self._check_working()
        if ledger_id in self._work:
            self._marked_still.add(ledger_id)  # perhaps marked again: looked at once more when that work is done
            return False
        return not self._locked.is_held(ledger_id) and self.troubles.may_try(ledger_id, self._clock.seconds())

    def _check_working(self) -> None:
        if self._stopping or not self._enabled:
            raise WorkEnded("the worker stops" if self._stopping else "auto-recovery is disabled")

    async def _begin_due(self) -> None:
        while (due := self._locked.next_due()) is not None:
            await self._lanes.begin(self._guarded(*due))

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
            self._locked.note_failure(ledger_id, RepairReport(RepairEnd.FAILED, str(error)))
        except Exception as error:  # noqa: BLE001 - a mistake in the repair of one ledger must not end that of the others
            self._exceptions.add()
            log.failure("repairing ledger {ledger_id}", ledger_id=ledger_id)
            self._locked.note_failure(ledger_id, RepairReport(RepairEnd.FAILED, repr(error)))
        # Not in a `finally`: a coroutine that is thrown away with its process must not stir the others of that process.
        del self._work[ledger_id]
        if ledger_id in self._marked_still:
            self._marked_still.discard(ledger_id)
            self._look_soon()
