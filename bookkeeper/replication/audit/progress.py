"""Progress of the auditor's work, for operators and the log.

One `JobProgress` per kind of job, for as long as the process lives; `status` is a picture of it to show.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from bookkeeper.metadata.bad_records import BadRecord, BadRecords, ReportedRecords

ERRORS_KEPT_MAX = 10
"""Maximum number of undecided ledgers, and of bad records, that a run names with the reason; all are counted."""

TOLD_EVERY_S = 30.0
"""How often a run that goes on for long is told in the log."""


class Job(enum.Enum):
    """What the auditor does. The values are for people."""

    BOOKIES = "look for ledgers on lost bookies"
    LEDGERS = "check the copies of all ledgers"
    PLACEMENT = "look at the racks of all ledgers"
    REPLICAS = "compare what bookies hold with what they should"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A picture of a job. Moments are seconds of the process's clock, None: never, or not now.

    looked_at, marked, undecided: ledgers of the present run, else of the last one: seen; marked under-replicated; of
    which nothing could be learnt. rate: ledgers per second. doubts: some of the undecided, each with the reason.
    last_error: why the last run failed; "" where it did not. ledgers_known: how many there were in the last whole run.
    bad_records: number of znodes among ledgers and marks that the last whole run passed over. passed_over: some.
    """

    job: Job
    running_since_s: float | None
    looked_at: int
    marked: int
    undecided: int
    rate: float
    ledgers_known: int | None
    last_ended_s: float | None
    last_took_s: float | None
    last_error: str
    doubts: tuple[str, ...]
    waits_for: str
    bad_records: int
    passed_over: tuple[BadRecord, ...]

    def __str__(self) -> str:
        if self.running_since_s is not None:
            of = f" of about {self.ledgers_known}" if self.ledgers_known is not None else ""
            text = f"{self.looked_at}{of} ledgers looked at ({self.rate:.0f}/s), {self.marked} marked"
        elif self.last_ended_s is not None:
            text = f"done: {self.looked_at} ledgers looked at in {self.last_took_s or 0.0:.1f} s, {self.marked} marked"
        else:
            text = "not done yet"
        if self.undecided:
            text += f", {self.undecided} undecided"
        if self.bad_records:
            records = "1 bad record" if self.bad_records == 1 else f"{self.bad_records} bad records"
            text += f", {records} passed over"
        if self.waits_for:
            text += f"; waits for {self.waits_for}"
        return text + (f"; the last attempt failed: {self.last_error}" if self.last_error else "")


class JobProgress:
    """The counts of one job. waits_for: what it waits for now, in words, or "".

    reported: shared by all jobs, so that a bad record is logged only by the first job that finds it.
    """

    def __init__(self, job: Job, reported: ReportedRecords | None = None) -> None:
        self.job = job
        self.looked_at = self.marked = self.undecided = 0
        self.waits_for = ""
        self._doubts: list[str] = []
        self._bad_records = BadRecords()
        self._reported = ReportedRecords() if reported is None else reported
        self._since_s: float | None = None
        self._told_s = 0.0
        self._ended_s: float | None = None
        self._took_s: float | None = None
        self._known: int | None = None
        self._error = ""

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self._since_s is not None

    def begin(self, now_s: float) -> None:
        """A run begins."""
        self.looked_at = self.marked = self.undecided = 0
        self._doubts.clear()
        self._since_s = self._told_s = now_s

    def doubt(self, ledger_id: int, reason: object) -> None:
        """Nothing could be learnt of this ledger: it is neither well nor lost."""
        self.undecided += 1
        if len(self._doubts) < ERRORS_KEPT_MAX:
            self._doubts.append(f"ledger {ledger_id}: {reason}")

    def pass_over(self, found: BadRecords) -> None:
        """Keep the bad records that a complete run passed over, and log the new ones."""
        self._bad_records = found
        self._reported.report(
            found, "the auditor passes over it and checks all other ledgers; remove the znode", self.job.name
        )

    @property
    def bad_records(self) -> int:
        """Number of bad records that the last whole run passed over."""
        return self._bad_records.count

    def end(self, now_s: float) -> float:
        """The run saw all ledgers; how long it took."""
        took_s = self._stop(now_s)
        self._ended_s, self._took_s, self._known, self._error = now_s, took_s, self.looked_at, ""
        return took_s

    def fail(self, now_s: float, error: object) -> float:
        """The run could not go on; how long it took."""
        self._error = str(error)
        return self._stop(now_s)

    def _stop(self, now_s: float) -> float:
        took_s = 0.0 if self._since_s is None else now_s - self._since_s
        self._since_s = None
        self.waits_for = ""
        return took_s

    def is_telling(self, now_s: float) -> bool:
        """Whether it is time for a line in the log; True at most every TOLD_EVERY_S."""
        if self._since_s is None or now_s - self._told_s < TOLD_EVERY_S:
            return False
        self._told_s = now_s
        return True

    def status(self, now_s: float) -> JobStatus:
        """The picture."""
        elapsed_s = 0.0 if self._since_s is None else now_s - self._since_s
        took_s = elapsed_s if self._since_s is not None else self._took_s or 0.0
        return JobStatus(
            self.job,
            self._since_s,
            self.looked_at,
            self.marked,
            self.undecided,
            self.looked_at / took_s if took_s > 0 else 0.0,
            self._known,
            self._ended_s,
            self._took_s,
            self._error,
            tuple(self._doubts),
            self.waits_for,
            self._bad_records.count,
            tuple(self._bad_records.named[:ERRORS_KEPT_MAX]),
        )
