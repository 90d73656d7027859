"""The auditor: of all processes that stand for it, ours and Apache's, the elected one finds what lacks copies.

    Auditor.start -> candidate --elected--> AuditTerm --session lost, vote gone--> candidate again
                                                  |
    conclusions   pure: what follows              +-- BookieAudit, LedgerAudit, PlacementAudit, ReplicaAudit
    jobs          examination of all ledgers
    progress      how far a job is
    term          when which job runs

It marks ledgers in the under-replication tree and does nothing else; workers repair them. Two auditors at once, which
an election cannot rule out (I-20), mark the same ledgers twice, and that is one mark.

Thread: reactor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bookkeeper.metadata.bad_records import ReportedRecords
from bookkeeper.metadata.store import AuditorCandidate, MetadataStore
from bookkeeper.metadata.underreplication.format import CheckKind
from bookkeeper.model import BookieId
from bookkeeper.replication.audit.jobs import (
    AuditGround,
    BookieAudit,
    CopyCheck,
    LedgerAudit,
    ListEntries,
    Placement,
    PlacementAudit,
    ReplicaAudit,
)
from bookkeeper.replication.audit.progress import Job, JobProgress, JobStatus
from bookkeeper.replication.audit.replica_counts import Shortage
from bookkeeper.replication.audit.term import AuditTerm, Gate, MarkCount, PeriodicCheck, TermCounters

if TYPE_CHECKING:
    from bookkeeper.config.auditor import AuditorSettings
    from bookkeeper.metrics import Metrics
    from bookkeeper.ports import Clock, Timer

REJOIN_S = 60.0
"""After access was refused, until this process stands for auditor again."""

_TIMES = {
    Job.BOOKIES: "replication_auditor_AUDIT_BOOKIES_TIME",
    Job.LEDGERS: "replication_auditor_CHECK_ALL_LEDGERS_TIME",
    Job.PLACEMENT: "replication_auditor_PLACEMENT_POLICY_CHECK_TIME",
    Job.REPLICAS: "replication_auditor_REPLICAS_CHECK_TIME",
}

_SHORTAGES = {
    Shortage.NO_COPY: "replication_auditor_NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY",
    Shortage.BELOW_ACK_QUORUM: "replication_auditor_NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY",
    Shortage.BELOW_WRITE_QUORUM: "replication_auditor_NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY",
}

log = Logger()


@dataclass(frozen=True, slots=True)
class AuditorStatus:
    """A picture for operators. Moments are seconds of the process's clock.

    elected: this process is the auditor. enabled: auto-recovery is on, as far as the auditor knows. recovery_delay_s:
    None while it is not the auditor. gone: bookies whose audit is due later, at `due_s`. jobs: of this process.
    """

    elected: bool
    elected_since_s: float | None
    enabled: bool
    recovery_delay_s: float | None
    gone: tuple[BookieId, ...]
    due_s: float | None
    jobs: tuple[JobStatus, ...]
    last_error: str


class Auditor:
    """This process's part in it. `start` once; `stop` once.

    bookie_id: what its vote says. check, list_entries: how bookies are asked. wall_ms: milliseconds since 1970.
    """

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        settings: AuditorSettings,
        bookie_id: BookieId,
        *,
        check: CopyCheck,
        list_entries: ListEntries,
        placement: Placement,
        wall_ms: Callable[[], int],
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._wall_ms = wall_ms
        self._gate = Gate()
        reported = ReportedRecords()
        self._progress = {job: JobProgress(job, reported) for job in Job}
        self._term: AuditTerm | None = None
        self._since_s: float | None = None
        self._error = ""
        self._rejoin: Timer | None = None
        self._attempts = metrics.counter("replication_auditor_election_attempts")
        metrics.gauge("replication_auditor_ELECTED", lambda: float(self._term is not None))
        metrics.gauge("replication_auditor_BAD_RECORDS", self._bad_records)
        for name, read in (
            ("UNDERREPLICATED_LEDGERS_MARKED", lambda count, _: count.marked),
            ("UNDERREPLICATED_LEDGERS_LOCKED", lambda count, _: count.locked),
            ("LEDGERS_WITH_REPORTED_DAMAGE", lambda count, _: count.damaged),
            ("UNDERREPLICATED_LEDGERS_AGE_SECONDS", lambda _, age_s: age_s),
        ):
            metrics.gauge(f"replication_auditor_{name}", partial(self._counted, read))
        self._counters = TermCounters(
            delayed=metrics.counter("replication_auditor_NUM_BOOKIE_AUDITS_DELAYED"),
            called_off=metrics.counter("replication_auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED"),
            skipped=metrics.counter("replication_auditor_NUM_SKIPPING_CHECK_TASK_TIMES"),
            checked=metrics.counter("replication_auditor_NUM_LEDGERS_CHECKED"),
            undecided=metrics.counter("replication_auditor_NUM_LEDGERS_UNDECIDED"),
            marked=metrics.summary("replication_auditor_NUM_UNDER_REPLICATED_LEDGERS"),
            took={job: metrics.summary(name) for job, name in _TIMES.items()},
        )
        ground = AuditGround(
            store=store,
            clock=clock,
            at_once=settings.auditor_ledgers_in_flight_max,
            gate=self._gate,
            patience=self._gone,
            wall_ms=wall_ms,
            marks_note_time=settings.store_mark_time,
            publishing=metrics.summary("replication_auditor_URL_PUBLISH_TIME_FOR_LOST_BOOKIE"),
        )
        self._bookie_audit = BookieAudit(
            ground,
            self._progress[Job.BOOKIES],
            grace_s=settings.underreplicated_grace_s,
            overdue=metrics.gauge("replication_auditor_NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD"),
        )
        ledgers = LedgerAudit(
            ground,
            self._progress[Job.LEDGERS],
            check,
            fragments=metrics.summary("replication_auditor_NUM_FRAGMENTS_PER_LEDGER"),
            bookies=metrics.summary("replication_auditor_NUM_BOOKIES_PER_LEDGER"),
        )
        racks = PlacementAudit(
            ground,
            self._progress[Job.PLACEMENT],
            placement,
            failing=metrics.gauge("replication_auditor_NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY"),
            soft=metrics.gauge("replication_auditor_NUM_LEDGERS_SOFTLY_ADHERING_TO_PLACEMENT_POLICY"),
        )
        shown = {shortage: metrics.gauge(name) for shortage, name in _SHORTAGES.items()}
        replicas = ReplicaAudit(ground, self._progress[Job.REPLICAS], list_entries, shown)
        self._checks = (
            PeriodicCheck(ledgers, settings.auditor_ledger_check_interval_s, CheckKind.ALL_LEDGERS),
            PeriodicCheck(racks, settings.auditor_placement_check_interval_s, CheckKind.PLACEMENT),
            PeriodicCheck(replicas, settings.auditor_replicas_check_interval_s, CheckKind.REPLICAS),
        )
        self._candidate: AuditorCandidate = store.underreplication.candidate(
            bookie_id, on_elected=self._on_elected, on_lost=self._on_lost, on_failed=self._on_failed
        )

    def start(self) -> None:
        """Stand for auditor from now on."""
        self._attempts.add()
        self._candidate.join()

    def stop(self) -> Deferred[None]:
        """End all work at once and stand no more; fires once the vote is gone.

        Fails with MetadataUnavailable where it could not be removed: it then goes with the session.
        """
        if self._rejoin is not None:
            self._rejoin.cancel()
            self._rejoin = None
        self._on_lost()
        return self._candidate.leave()

    @property
    def elected(self) -> bool:
        """Whether this process is the auditor, as far as it knows."""
        return self._term is not None

    def audit_now(self) -> bool:
        """Look for ledgers on lost bookies soon, whatever the delay; False where this process is not the auditor."""
        if self._term is None:
            return False
        self._term.demand_audit()
        return True

    def status(self) -> AuditorStatus:
        """How things are."""
        now_s = self._clock.seconds()
        losses = None if self._term is None else self._term.losses
        return AuditorStatus(
            self.elected,
            self._since_s,
            self._gate.open,
            None if losses is None else losses.delay_s,
            tuple(sorted(self._gone())),
            None if losses is None else losses.due_s,
            tuple(progress.status(now_s) for progress in self._progress.values()),
            self._error,
        )

    def _bad_records(self) -> float:
        """Return the highest number of bad records of any job, NaN if this process is not the auditor."""
        return math.nan if self._term is None else max(each.bad_records for each in self._progress.values())

    def _counted(self, read: Callable[[MarkCount, float], float]) -> float:
        """NaN where this process is not the auditor, or has not counted yet."""
        count = None if self._term is None else self._term.count
        if count is None or count.counted_s is None:
            return math.nan
        return read(count, self._clock.seconds() - count.counted_s)

    def _gone(self) -> frozenset[BookieId]:
        losses = None if self._term is None else self._term.losses
        return frozenset() if losses is None else frozenset(losses.gone)

    def _on_elected(self) -> None:
        self._on_lost()
        self._error = ""
        self._since_s = self._clock.seconds()
        self._gate.set(True)
        self._term = AuditTerm(
            self._store,
            self._clock,
            self._settings,
            self._gate,
            self._bookie_audit,
            self._checks,
            self._counters,
            self._wall_ms,
        )
        log.info("This process is the auditor now")
        self._term.start()

    def _on_lost(self) -> None:
        term, self._term = self._term, None
        self._since_s = None
        if term is not None:
            log.info("This process is not the auditor any more")
            term.stop()

    def _on_failed(self, error: BaseException) -> None:
        self._error = str(error)
        log.error("Standing for auditor failed; tried again in {pause_s:g} s: {error}", pause_s=REJOIN_S, error=error)
        if self._rejoin is None:
            self._rejoin = self._clock.callLater(REJOIN_S, self._join_again)

    def _join_again(self) -> None:
        self._rejoin = None
        self.start()
