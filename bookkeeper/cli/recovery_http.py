"""What a process with auto-recovery does for those who come over HTTP: recovering bookies, telling its troubles.

The work runs on the daemon's client, beside its worker, with the worker's bounds. Imported only where HTTP is on.
Thread: reactor.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from twisted.internet.defer import Deferred

from bookkeeper.admin.http.routing import unavailable
from bookkeeper.cli.worker_words import words_of_one
from bookkeeper.client.client import LedgerClient
from bookkeeper.config import ServerSettings
from bookkeeper.console.auto_recovery import auditor_of, worker_of
from bookkeeper.console.known_bookies import nobody_names, strangers
from bookkeeper.errors import InvalidArgument, ReplicationFailed
from bookkeeper.model import BookieId
from bookkeeper.replication.bookie_recovery import BookieRecovery, RecoveryProgress
from bookkeeper.replication.daemon import AutoRecovery, worker_settings

TROUBLES_SHOWN_MAX = 1000
FAILURES_SHOWN_MAX = 20


class RecoveryOverHttp:
    """As `admin.http.autorecovery.Recovering` and `Troubled`. daemon: None while it is not made yet."""

    def __init__(self, daemon: Callable[[], AutoRecovery | None], settings: ServerSettings) -> None:
        self._daemon, self._settings = daemon, settings

    def recover(
        self, sources: Sequence[BookieId], *, delete_cookies: bool
    ) -> tuple[Deferred[str], Callable[[], object]]:
        """See Recovering."""
        client, recovery = self._begin()

        async def run() -> str:
            unknown = await strangers(client.store, sources)
            progress = await recovery.recover(sources)
            _raise_failures(progress)
            if unknown and not progress.ledgers_found:
                raise await nobody_names(client.store, unknown)
            deleted = await _delete_cookies(client, sources) if delete_cookies else ""
            return f"{progress.ledgers_done} ledgers moved, {progress.entries} entries copied{deleted}"

        return Deferred.fromCoroutine(run()), lambda: _shown(recovery.progress)

    def decommission(self, source: BookieId, *, delete_cookie: bool) -> tuple[Deferred[str], Callable[[], object]]:
        """See Recovering."""
        client, recovery = self._begin()

        async def run() -> str:
            unknown = await strangers(client.store, [source])
            progress = await recovery.decommission(source)
            if unknown and not progress.ledgers_found:
                raise await nobody_names(client.store, unknown)
            deleted = await _delete_cookies(client, [source]) if delete_cookie else ""
            return f"no ledger names {source} any more; {progress.ledgers_found} did{deleted}"

        return Deferred.fromCoroutine(run()), lambda: _shown(recovery.progress)

    def _begin(self) -> tuple[LedgerClient, BookieRecovery]:
        daemon = self._daemon()
        if daemon is None or daemon.client is None:
            raise unavailable("auto-recovery is not connected yet, or stops")
        client = daemon.client
        ask = partial(words_of_one, client.store.underreplication, client.context.clock)
        return client, BookieRecovery(client, worker_settings(self._settings), socket.gethostname(), ask=ask)

    def troubles(self, ledger_id: int | None) -> Sequence[Mapping[str, object]]:
        """See Troubled."""
        daemon = self._daemon()
        worker = None if daemon is None else worker_of(daemon)
        if daemon is None or worker is None or daemon.client is None:
            raise unavailable("the replication worker does not run yet, or stops")
        now_s = daemon.client.context.clock.seconds()
        auditor = auditor_of(daemon)
        passed_over = dict.fromkeys(worker.bad_records.named)
        if auditor is not None:
            passed_over |= dict.fromkeys(record for job in auditor.status().jobs for record in job.passed_over)
        found: list[Mapping[str, object]] = []
        found += [
            {
                "ledger": trouble.ledger_id,
                "state": trouble.state.value,
                "reason": trouble.reason,
                "failures": trouble.failures,
                "secondsInTrouble": round(now_s - trouble.since_s),
                "secondsToNextTry": max(0, round(trouble.next_try_s - now_s)),
            }
            for trouble in worker.troubles
            if ledger_id in (None, trouble.ledger_id)
        ][:TROUBLES_SHOWN_MAX]
        if ledger_id is None:
            found += [{"record": each.path, "state": "passed over", "reason": each.problem} for each in passed_over]
        return found

    def auditor(self) -> Mapping[str, object]:
        """See Troubled."""
        daemon = self._daemon()
        auditor = None if daemon is None else auditor_of(daemon)
        if daemon is None or auditor is None or daemon.client is None:
            raise unavailable("the auditor does not run yet, or stops")
        status, now_s = auditor.status(), daemon.client.context.clock.seconds()

        def ago(moment_s: float | None) -> int | None:
            return None if moment_s is None else round(now_s - moment_s)

        return {
            "elected": status.elected,
            "secondsElected": ago(status.elected_since_s),
            "enabled": status.enabled,
            "recoveryDelaySeconds": status.recovery_delay_s,
            "bookiesGone": list(status.gone),
            "secondsToAudit": None if status.due_s is None else max(0, round(status.due_s - now_s)),
            "lastError": status.last_error,
            "jobs": [
                {
                    "job": job.job.value,
                    "said": str(job),
                    "running": job.running_since_s is not None,
                    "lastEndedSecondsAgo": ago(job.last_ended_s),
                    "lookedAt": job.looked_at,
                    "marked": job.marked,
                    "undecided": job.undecided,
                    "doubts": list(job.doubts),
                    "badRecords": job.bad_records,
                    "passedOver": [str(record) for record in job.passed_over],
                    "lastError": job.last_error,
                }
                for job in status.jobs
            ],
        }


def _shown(progress: RecoveryProgress) -> dict[str, object]:
    return {
        "ledgersSeen": progress.ledgers_seen,
        "ledgersFound": progress.ledgers_found,
        "ledgersDone": progress.ledgers_done,
        "ledgersFailed": progress.ledgers_failed,
        "ledgersLeft": progress.ledgers_left,
        "entriesCopied": progress.entries,
        "bytesCopied": progress.bytes,
        "waitsFor": progress.waits_for,
        "failures": dict(list(progress.failures.items())[:FAILURES_SHOWN_MAX]),
    }


def _raise_failures(progress: RecoveryProgress) -> None:
    if progress.ledgers_failed or progress.ledgers_skipped:
        ledger_id, reason = next(iter(progress.failures.items()), (None, "skipped"))
        raise ReplicationFailed(
            f"{progress.ledgers_done} ledgers moved, {progress.ledgers_failed} were not, ledger {ledger_id} among "
            f"them: {reason}; no cookie was deleted"
        )


async def _delete_cookies(client: LedgerClient, bookies: Sequence[BookieId]) -> str:
    """What became of the cookies, in words. Raises InvalidArgument for a bookie that is registered."""
    available = await client.available_bookies()
    told = []
    for bookie_id in bookies:
        if bookie_id in available.writable or bookie_id in available.read_only:
            raise InvalidArgument(
                f"its ledgers were moved, but {bookie_id} is registered, so its cookie stays: stop it first"
            )
        stored = await client.store.cookies.read(bookie_id)
        if stored is not None:
            await client.store.cookies.delete(bookie_id, stored.version)
        told.append(f"; cookie of {bookie_id} deleted" if stored is not None else f"; {bookie_id} had no cookie")
    return "".join(told)
