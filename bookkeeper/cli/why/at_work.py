"""Who is at work on a ledger, by the metadata store and by what processes say of themselves. Pure.

The store knows the mark and since when, who holds the lock and since when, and who was elected. Why a repair does not
come forward only the processes know: what none of them could be asked is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bookkeeper.cli.why.explanation import Explanation, clock_time, duration
from bookkeeper.cli.why.ledger_facts import LedgerFacts
from bookkeeper.cli.why.processes import ProcessAnswer
from bookkeeper.cli.worker_words import trouble_words
from bookkeeper.console.output import counted
from bookkeeper.errors import BookKeeperError, MetadataCorrupt
from bookkeeper.metadata.underreplication.damaged_copies_format import BadCopies
from bookkeeper.metadata.underreplication.format import UnderreplicatedLedger

ERRORS_TOLD_MAX = 3

ASK = "name its HTTP server with --ask HOST:PORT"
UNANNOUNCED = "no process announced itself in the metadata store"


def holder_of_lock(facts: LedgerFacts) -> ProcessAnswer | None:
    """What the process says whose session owns the lock; None where it is not known."""
    return _of_session(facts, facts.repair.lock_session)


def say_lock(facts: LedgerFacts, found: Explanation) -> None:
    """Who has it in hand."""
    lock, since = facts.repair.lock, facts.repair.locked_ms
    if isinstance(lock, str):
        answer = holder_of_lock(facts)
        process = None if answer is None else answer.process
        who = str(process) if process is not None else lock or "a worker that does not say where it runs"
        when = f" since {clock_time(since, facts.now_ms)}" if isinstance(since, int) else ""
        found.working.append(f"locked by {who}{when}: {_what_it_does(answer)}")
    elif isinstance(lock, MetadataCorrupt) and facts.repair.lock_session is None:
        found.working.append(f"not locked: no worker has it in hand; the next one removes a stray: {lock}")
    elif isinstance(lock, BookKeeperError):
        found.working.append(f"whether a worker has it in hand is unknown: {lock}")
    elif isinstance(facts.repair.mark, UnderreplicatedLedger):
        found.working.append("not locked: no worker has it in hand")


def _what_it_does(answer: ProcessAnswer | None) -> str:
    if answer is None:
        return f"whether it works or waits is unknown: {UNANNOUNCED} for that lock (Apache's never do)"
    if answer.trouble is not None:
        return f"it waits: {trouble_words(answer.trouble)}"
    if answer.error:
        return f"whether it works or waits is unknown: {answer.error}"
    if not answer.works:
        return "whether it works or waits is unknown: its worker does not tell"
    return "it is at work on it; of an open ledger it may wait for the writer (openLedgerRereplicationGracePeriod)"


def say_workers(facts: LedgerFacts, found: Explanation) -> None:
    """Why it is not repaired yet, as far as workers could be asked."""
    for answer in facts.processes:
        if answer.trouble is not None:
            reason, failures = answer.trouble.get("reason", ""), answer.trouble.get("failures")
            times = f" {counted(failures, 'time')}" if isinstance(failures, int) else ""
            found.errors.append(f"the worker of {answer.where} failed{times}: {reason}")
    repair = facts.repair
    reports = isinstance(repair.bad_copies, BadCopies) and bool(repair.bad_copies.ranges)
    in_hand = reports or isinstance(repair.mark, UnderreplicatedLedger) or isinstance(repair.lock, str)
    if not in_hand or any(answer.trouble is not None for answer in facts.processes):
        return
    workers = [answer.where for answer in facts.processes if answer.works]
    if workers and _all_told(facts):
        found.working.append(f"{', '.join(workers)}: no worker has failed on it, of all that announced themselves")
    elif workers:
        found.working.append(
            f"{', '.join(workers)}: no worker there has failed on it; whether others have is unknown{_unasked(facts)}"
        )
    else:
        found.working.append(f"why it is not repaired yet is unknown: no worker could be asked{_unasked(facts)}")


def _all_told(facts: LedgerFacts) -> bool:
    """Whether every process that announced itself could be asked: of Apache's, which never do, nothing is known."""
    told = sum(answer.process is not None and not answer.error for answer in facts.processes)
    return told == facts.repair.announced and not any(answer.error for answer in facts.processes)


def say_auditor(facts: LedgerFacts, found: Explanation) -> None:
    """Who it is, and what it says."""
    auditor, delay = facts.repair.auditor, facts.repair.delay_s
    if isinstance(auditor, BookKeeperError):
        found.working.append(f"who the auditor is, is unknown: {auditor}")
        return
    if auditor is None:
        found.working.append("no auditor is elected: no process with auto-recovery runs")
        return
    known = "" if isinstance(delay, BookKeeperError) or delay is None else f", lostBookieRecoveryDelay {delay} s"
    answer = _of_session(facts, facts.repair.auditor_session)
    process = "" if answer is None or answer.process is None else f" ({answer.process})"
    found.working.append(f"the auditor is {auditor}{process}{known}")
    said = auditor_said(facts)
    if said is None:
        found.working.append(f"what the auditor does is unknown: {_why_silent(facts, auditor)}")
        return
    _say_its_words(said, found)


def auditor_said(facts: LedgerFacts) -> Mapping[str, Any] | None:
    """What the elected auditor says of itself; None where it could not be asked."""
    return next((answer.auditor for answer in facts.processes if answer.audits), None)


def _say_its_words(said: Mapping[str, Any], found: Explanation) -> None:
    if gone := said.get("bookiesGone"):
        due = said.get("secondsToAudit")
        when = f"due in {duration(due)}" if isinstance(due, int | float) else "when it is due it does not say"
        found.working.append(f"the auditor says: the audit for {', '.join(map(str, gone))} is {when}")
    for job in said.get("jobs", ()):
        if isinstance(job, dict) and (job.get("running") or job.get("lastEndedSecondsAgo") is not None):
            found.working.append(f"the auditor says: {job.get('job')}: {job.get('said')}")
            found.errors += [f"the auditor passes over {each}" for each in job.get("passedOver", ())]
        if isinstance(job, dict) and job.get("lastError"):
            found.errors.append(f"the auditor's last run ({job.get('job')}) failed: {job['lastError']}")
    if said.get("lastError"):
        found.errors.append(f"the auditor says: {said['lastError']}")


def _why_silent(facts: LedgerFacts, auditor: str) -> str:
    own = _of_session(facts, facts.repair.auditor_session) or next(
        (answer for answer in facts.processes if answer.where == f"bookie {auditor}"), None
    )
    if own is not None and own.error:
        return f"{own.where} did not tell: {own.error}"
    if own is not None:
        return f"{own.where} says that it does not audit: the election moved on, or another one stands for {auditor}"
    if auditor in facts.registered:
        return f"bookie {auditor} publishes no HTTP server (httpServerEnabled); if another process audits: {ASK}"
    return f"it runs beside no registered bookie, and {UNANNOUNCED} for its vote: {ASK}"


def _of_session(facts: LedgerFacts, session_id: object) -> ProcessAnswer | None:
    if not isinstance(session_id, int):
        return None
    return next(
        (
            answer
            for answer in facts.processes
            if answer.process is not None and answer.process.session_id == session_id
        ),
        None,
    )


def _unasked(facts: LedgerFacts) -> str:
    failed = [f"{answer.where}: {answer.error}" for answer in facts.processes if answer.error]
    told = failed[:ERRORS_TOLD_MAX]
    if len(failed) > ERRORS_TOLD_MAX:
        told.append(f"{len(failed) - ERRORS_TOLD_MAX} more did not answer")
    if facts.bookies_unasked:
        told.append(f"{counted(facts.bookies_unasked, 'bookie')} could not be asked over HTTP (httpServerEnabled)")
    told.append(f"of others, as Apache's, nothing is recorded: {ASK}")
    return f" ({'; '.join(told)})"
