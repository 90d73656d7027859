"""What a worker that has locked a ledger says of it: that it is at work, or why it waits and until when.

Locks name a host, and several processes may run there: who is asked is the one whose session owns the lock. Of a lock
whose owner nobody announced (Apache's, or a session that has just ended) the reason is unknown.

Bounds: PROCESSES_MAX processes are asked, all at once, for what they tell of all their ledgers (1000 at most each).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from twisted.internet.defer import Deferred

from bookkeeper.console.http_questions import ERRORS, all_at_once, get_json, why_out_of_reach
from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.store import Underreplication
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess
from bookkeeper.model import LedgerId
from bookkeeper.ports import Clock
from bookkeeper.replication.repair.failed_repairs import TroubleState

PROCESSES_MAX = 64

TOLD_MAX = 1000
"""Ledgers that a process tells of at most; beyond them silence says nothing."""


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """The answer of one process. error: why it could not be asked; then the rest is empty.

    passed_over: bad records that its worker or auditor passes over, path to problem.
    """

    process: RecoveryProcess
    troubles: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    error: str = ""
    passed_over: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerWords:
    """All answers, by session."""

    by_session: Mapping[int, WorkerAnswer]

    def of(self, ledger_id: int, holder: str | None, session_id: int | None) -> str:
        """Who has a ledger in hand, and what it says. holder, session_id: of its lock; None where it has none."""
        if holder is None or session_id is None:
            return "nobody is at work on it"
        answer = self.by_session.get(session_id)
        if answer is None:
            who = holder or "somebody who does not say where"
            return f"locked by {who}; whether it works or waits is unknown: no process announced itself for that lock"
        if answer.error:
            return f"locked by {answer.process}; whether it works or waits is unknown: {answer.error}"
        trouble = answer.troubles.get(ledger_id)
        if trouble is not None:
            return f"{answer.process} waits: {trouble_words(trouble)}"
        if len(answer.troubles) >= TOLD_MAX:
            return f"locked by {answer.process}, which waits with more ledgers than it tells"
        return f"{answer.process} is at work on it"


@dataclass(frozen=True, slots=True)
class KnownTroubles:
    """What workers could not repair, of all ledgers. by_ledger: the one with the most failures, where several tried.

    unasked: processes that did not answer, or not for all ledgers. passed_over: as in WorkerAnswer, of all processes.
    """

    by_ledger: Mapping[int, Mapping[str, Any]]
    unasked: int
    passed_over: Mapping[str, str]

    @property
    def unrepairable(self) -> int:
        """Of these, ledgers with an entry of which no copy could be read for several tries."""
        return sum(each.get("state") == TroubleState.UNREPAIRABLE.value for each in self.by_ledger.values())

    def of(self, ledger_id: int) -> str:
        """What is known of one ledger's trouble, in words."""
        if (trouble := self.by_ledger.get(ledger_id)) is not None:
            return f"not repaired: {trouble_words(trouble)}"
        return "no worker failed on it" + (f", as far as known: {self.unasked} did not tell" if self.unasked else "")


def known_troubles(words: WorkerWords) -> KnownTroubles:
    """All that workers told."""
    by_ledger: dict[int, Mapping[str, Any]] = {}
    for answer in words.by_session.values():
        for ledger_id, trouble in answer.troubles.items():
            if trouble.get("failures", 0) >= by_ledger.get(ledger_id, {}).get("failures", 0):
                by_ledger[ledger_id] = trouble
    unasked = sum(bool(each.error) or len(each.troubles) >= TOLD_MAX for each in words.by_session.values())
    passed_over = {path: problem for each in words.by_session.values() for path, problem in each.passed_over.items()}
    return KnownTroubles(by_ledger, unasked, passed_over)


def trouble_words(trouble: Mapping[str, Any]) -> str:
    """`REASON (3 failures); next try in 9 s`."""
    failures, seconds = trouble.get("failures"), trouble.get("secondsToNextTry")
    tries = f" ({failures} {'failure' if failures == 1 else 'failures'})" if isinstance(failures, int) else ""
    again = f"; next try in {seconds} s" if isinstance(seconds, int) and seconds > 0 else "; next try due now"
    return f"{trouble.get('reason', '')}{tries}{again}"


async def words_of_workers(tree: Underreplication, clock: Clock) -> WorkerWords:
    """Ask all announced processes. clock: the reactor's own, whose thread is not held up. Raises MetadataError."""
    processes = (await tree.processes())[:PROCESSES_MAX]
    answered: Deferred[list[WorkerAnswer]] = Deferred()
    call_from_thread = cast("Any", clock).callFromThread

    def ask() -> None:
        call_from_thread(answered.callback, ask_workers(processes))

    threading.Thread(target=ask, name="ask workers", daemon=True).start()
    return WorkerWords({answer.process.session_id: answer for answer in await answered})


async def words_of_one(tree: Underreplication, clock: Clock, ledger_id: LedgerId) -> str:
    """Who has this ledger in hand, and what it says. Raises MetadataError, but not for a lock that cannot be read."""
    session_id = await tree.lock_session(ledger_id)
    if session_id is None:
        return WorkerWords({}).of(ledger_id, None, None)
    try:
        holder = await tree.lock_holder(ledger_id)
    except MetadataCorrupt:
        holder = ""
    return (await words_of_workers(tree, clock)).of(ledger_id, holder, session_id)


def ask_workers(processes: Sequence[RecoveryProcess]) -> list[WorkerAnswer]:
    """Ask these. Thread: any; it blocks."""
    answers = all_at_once([partial(_ask, process) for process in processes])
    return [
        answer or WorkerAnswer(process, error="it gave no whole answer in time")
        for process, answer in zip(processes, answers, strict=True)
    ]


def _ask(process: RecoveryProcess) -> WorkerAnswer:
    error = why_out_of_reach(process)
    if error or process.http is None:
        return WorkerAnswer(process, error=error)
    try:
        told = get_json(process.http, "/api/v1/autorecovery/troubles")
    except ERRORS as failure:
        return WorkerAnswer(process, error=f"{process.http[0]}:{process.http[1]}: {failure!s}")
    if not isinstance(told, list):
        return WorkerAnswer(process, error="no worker runs there")
    answers = [each for each in told if isinstance(each, dict)]
    return WorkerAnswer(
        process,
        {each["ledger"]: each for each in answers if "ledger" in each},
        passed_over={str(each["record"]): str(each.get("reason", "")) for each in answers if "record" in each},
    )
