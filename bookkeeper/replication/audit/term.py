"""One auditor's term: from its election to the end of its session, whatever ends it. A new election, a new term (I-77).

    registrations change ---> LostBookies ---> an audit of lost bookies, now or when the delay is over
    lostBookieRecoveryDelay -^                       ^
    every auditorPeriodicBookieCheckInterval --------+      one at a time; a run that fails is tried again
    every auditorPeriodicCheckInterval -------> check of all ledgers ------+
    every placement / replicas interval ------> those checks --------------+  one of these at a time

While auto-recovery is turned off (U/disable) everything pauses, between two ledgers too. Nothing outlives the term:
`stop` cancels all waits and work; a change that is on its way then is a compare-and-set like any other.

Differs from Apache: the audit of lost bookies does not wait for the end of a check that may take days.

Thread: reactor. Bounds: two jobs at once, each with `at_once` ledgers under way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.errors import BookKeeperError, MetadataCorrupt
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.outcome import pause
from bookkeeper.metadata.store import MetadataStore, Watch
from bookkeeper.metadata.underreplication.format import CheckKind
from bookkeeper.model import AvailableBookies, BookieId
from bookkeeper.replication.audit.conclusions import Loss, LostBookies, first_wait_s
from bookkeeper.replication.audit.jobs import AuditJob, BookieAudit
from bookkeeper.replication.audit.progress import Job

if TYPE_CHECKING:
    from bookkeeper.config.auditor import AuditorSettings
    from bookkeeper.metrics import Counter, Summary
    from bookkeeper.ports import Clock, Timer

RETRY_S = 1.0
RETRY_MAX_S = 60.0
"""Between attempts of a job that fails."""

COUNT_INTERVAL_S = 60.0
COUNT_SHARE = 20
"""Between two counts of the marks there are: a minute, and so many times as long as the last one took."""

log = Logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class TermCounters:
    """What a term counts."""

    delayed: Counter
    called_off: Counter
    skipped: Counter
    checked: Counter
    undecided: Counter
    marked: Summary
    took: dict[Job, Summary]


@dataclass(slots=True)
class MarkCount:
    """The marks of the whole cluster as a term counted them last. counted_s: the clock's; None: not known.

    damaged: ledgers with reports of damaged copies, marked or not.
    """

    marked: int = 0
    locked: int = 0
    damaged: int = 0
    counted_s: float | None = None


@dataclass(frozen=True, slots=True)
class PeriodicCheck:
    """A check that runs every `interval_s` (0: never); `kind`: under which its end is noted in the cluster."""

    job: AuditJob
    interval_s: float
    kind: CheckKind


class Gate:
    """Open while auto-recovery is on. Waiting for it costs nothing while it is."""

    def __init__(self) -> None:
        self.open = True
        self._waiting: list[Deferred[None]] = []

    def set(self, is_open: bool, /) -> None:
        """Open or shut it."""
        self.open = is_open
        if is_open:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.callback(None)

    def __call__(self) -> Deferred[None]:
        """Fires while it is open."""
        waiting: Deferred[None] = Deferred(self._waiting.remove)
        if self.open:
            waiting.callback(None)
        else:
            self._waiting.append(waiting)
        return waiting


class AuditTerm:
    """One term. `start` it once, `stop` it once."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        settings: AuditorSettings,
        gate: Gate,
        bookie_audit: BookieAudit,
        checks: tuple[PeriodicCheck, ...],
        counters: TermCounters,
        wall_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._gate = gate
        self._bookie_audit = bookie_audit
        self._checks = checks
        self._counters = counters
        self._wall_ms = wall_ms
        self.count = MarkCount()
        self.losses: LostBookies | None = None  # None: the term has not found its feet yet
        self._looking = False  # periodically
        self._wanted = False  # an audit of lost bookies
        self._waiting: Deferred[None] | None = None  # for one to be wanted
        self._timer: Timer | None = None
        self._watches: list[Watch] = []
        self._tasks: set[Deferred[None]] = set()
        self._one_check = DeferredLock()
        self._stopped = False

    def start(self) -> None:
        """Begin."""
        self._spawn(self._begin())

    def stop(self) -> None:
        """End everything at once."""
        self._stopped = True
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        self._stop_timer()
        for task in list(self._tasks):
            task.cancel()

    def demand_audit(self) -> None:
        """Look for ledgers on lost bookies as soon as possible, whatever the delay."""
        if self.losses is not None:
            self._on_loss(self.losses.on_demand())
        else:
            self._want_audit()

    def _want_audit(self) -> None:
        self._wanted = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    # --- the beginning

    async def _begin(self) -> None:
        """Learn what the term stands on; then watch, and look periodically."""
        delay_s = RETRY_S
        while True:
            try:
                await self._learn()
                break
            except BookKeeperError as error:
                log.warn("The auditor cannot begin yet: {error}", error=error)
                await pause(self._clock, delay_s)
                delay_s = min(2 * delay_s, RETRY_MAX_S)
        underreplication = self._store.underreplication
        self._keep(underreplication.watch_recovery_delay(_AfterFirst(self._on_delay)))
        self._keep(self._store.bookies.watch(self._on_registered))
        if self._stopped:
            return
        self._spawn(self._audit_when_wanted())
        self._spawn(self._count_marks())
        for check in self._checks:
            if check.interval_s > 0:
                self._spawn(self._check_periodically(check))

    async def _learn(self) -> None:
        underreplication = self._store.underreplication
        self._gate.set(await underreplication.is_enabled())
        if not self._watches:
            self._keep(underreplication.watch_enabled(self._gate.set))
        configured_s = self._settings.lost_bookie_recovery_delay_s
        await underreplication.initialise_recovery_delay(configured_s)
        try:
            delay_s = await underreplication.recovery_delay_s()
        except MetadataCorrupt as error:
            log.error(
                "Used the configured lostBookieRecoveryDelay of {delay_s} s: {error}", delay_s=configured_s, error=error
            )
            delay_s = None
        # Those that were lost before this term have a cookie still (I-77).
        known = await self._store.cookies.all()
        self.losses = LostBookies(known, configured_s if delay_s is None else delay_s)

    def _keep(self, watch: Watch) -> None:
        self._watches.append(watch)
        if self._stopped:
            watch.cancel()

    # --- losses

    def _on_registered(self, bookies: AvailableBookies) -> None:
        self._bookie_audit.on_registered(bookies)
        if self.losses is not None:
            registered: set[BookieId] = {*bookies.writable, *bookies.read_only}
            self._on_loss(self.losses.on_registered(self._clock.seconds(), registered))
            # Not before: who has time to come back must be known.
            if not self._looking and self._settings.auditor_bookie_check_interval_s > 0:
                self._looking = True
                self._spawn(self._want_audits())

    def _on_delay(self, delay_s: int | None) -> None:
        if self.losses is not None and delay_s is not None:
            if delay_s != self.losses.delay_s:
                log.info("The recovery delay of lost bookies was set to {delay_s} s", delay_s=delay_s)
            else:
                log.info("An audit was asked for")  # setting the delay to what it is says nothing else
            self._on_loss(self.losses.on_delay(self._clock.seconds(), delay_s))

    def _on_time(self) -> None:
        self._timer = None
        if self.losses is not None:
            self._on_loss(self.losses.on_time(self._clock.seconds()))

    def _on_loss(self, loss: Loss) -> None:
        losses = self.losses
        assert losses is not None
        if loss is Loss.NOTHING:
            return
        self._stop_timer()
        if loss is Loss.AUDIT:
            if losses.audited:
                log.info(
                    "{gone}; ledgers that lack copies for that are looked for now", gone=losses.words(losses.audited)
                )
            self._want_audit()
        elif loss is Loss.CALLED_OFF:
            self._counters.called_off.add()
            log.info("The bookie that was not there has come; the audit that was due is called off")
        elif losses.due_s is not None:
            self._counters.delayed.add()
            delay_s = losses.due_s - self._clock.seconds()
            self._timer = self._clock.callLater(max(0.0, delay_s), self._on_time)
            log.info(
                "{gone}; its ledgers are looked for in {delay_s:g} s, unless it comes",
                gone=losses.words(losses.gone),
                delay_s=delay_s,
            )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- work

    async def _audit_when_wanted(self) -> None:
        delay_s = RETRY_S
        while True:
            if not self._wanted:
                self._waiting = Deferred()
                await self._waiting
            self._wanted = False
            if await self._run(self._bookie_audit):
                delay_s = RETRY_S
                self._counters.marked.observe(self._bookie_audit.progress.marked)
            else:
                self._wanted = True
                await pause(self._clock, delay_s)
                delay_s = min(2 * delay_s, RETRY_MAX_S)

    async def _count_marks(self) -> None:
        """Every now and then, also while auto-recovery is off. A count that fails leaves the last one, and its age."""
        underreplication = self._store.underreplication
        while True:
            began_s = self._clock.seconds()
            try:
                marked = damaged = 0
                strays = BadRecords()  # not reported: workers report strays
                async for batch in underreplication.ids(strays):
                    marked += len(batch)
                async for batch in underreplication.bad_copy_ids(strays):
                    damaged += len(batch)
                locked = await underreplication.locked_count()
                self.count.marked, self.count.locked, self.count.damaged = marked, locked, damaged
                self.count.counted_s = began_s
            except BookKeeperError as error:
                log.warn("The marked ledgers cannot be counted now: {error}", error=error)
            await pause(self._clock, max(COUNT_INTERVAL_S, COUNT_SHARE * (self._clock.seconds() - began_s)))

    async def _want_audits(self) -> None:
        while True:
            if self.losses is not None and self.losses.due_s is not None:
                self._counters.skipped.add()
            else:
                self._want_audit()
            await pause(self._clock, self._settings.auditor_bookie_check_interval_s)

    async def _check_periodically(self, check: PeriodicCheck) -> None:
        retry_s = RETRY_S
        wait_s = await self._first_wait_s(check)
        while True:
            await pause(self._clock, wait_s)
            check.job.progress.waits_for = "another check"
            await self._one_check.acquire()
            try:
                done = await self._run(check.job, lambda: self._note(check))
            finally:
                self._one_check.release()
            if done:
                wait_s, retry_s = check.interval_s, RETRY_S
            else:
                wait_s, retry_s = retry_s, min(2 * retry_s, RETRY_MAX_S)

    async def _first_wait_s(self, check: PeriodicCheck) -> float:
        try:
            ended_ms = await self._store.underreplication.check_time_ms(check.kind)
        except BookKeeperError as error:
            log.warn("It is not known when the last check ended; it begins now: {error}", error=error)
            ended_ms = None
        return first_wait_s(check.interval_s, ended_ms, self._wall_ms())

    async def _note(self, check: PeriodicCheck) -> None:
        await self._store.underreplication.set_check_time(check.kind, self._wall_ms())

    async def _run(self, job: AuditJob, then: Callable[[], Awaitable[None]] | None = None) -> bool:
        """One run; True when it saw all ledgers, and `then` is done."""
        progress = job.progress
        progress.waits_for = "" if self._gate.open else "auto-recovery to be turned on"
        await self._gate()
        progress.waits_for = ""
        progress.begin(self._clock.seconds())
        summary = self._counters.took[progress.job]
        try:
            await job.run()
            if then is not None:
                await then()
        except CancelledError:
            progress.fail(self._clock.seconds(), "it was not the auditor any more")
            raise
        except BookKeeperError as error:
            summary.observe_failure(progress.fail(self._clock.seconds(), error) * 1000)
            log.warn("{job}: given up for now: {error}", job=progress.job.value.capitalize(), error=error)
            return False
        except Exception as error:  # noqa: BLE001 - the edge of a background loop: a fault of ours must not end it
            summary.observe_failure(progress.fail(self._clock.seconds(), repr(error)) * 1000)
            log.failure("{job}: failed", job=progress.job.value.capitalize())
            return False
        finally:
            self._counters.undecided.add(progress.undecided)
            if progress.job is Job.LEDGERS:
                self._counters.checked.add(progress.looked_at)
        summary.observe(progress.end(self._clock.seconds()) * 1000)
        log.info(
            "{job}: {status}",
            job=progress.job.value.capitalize(),
            status=str(progress.status(self._clock.seconds())),
        )
        return True

    # --- tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = Deferred.fromCoroutine(work)
        self._tasks.add(task)
        task.addBoth(self._ended, task)
        if self._stopped:
            task.cancel()

    def _ended(self, result: object, task: Deferred[None]) -> None:
        self._tasks.discard(task)
        if isinstance(result, Failure) and not isinstance(result.value, CancelledError):
            log.failure("A part of the auditor ended", failure=result)


class _AfterFirst:
    """Passes on all calls but the first: what was there when the watch began was read already."""

    def __init__(self, call: Callable[[int | None], None]) -> None:
        self._call = call
        self._first = True

    def __call__(self, value: int | None) -> None:
        first, self._first = self._first, False
        if not first:
            self._call(value)
