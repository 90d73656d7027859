"""Auto-recovery as a process runs it: one client, and on it a candidate for auditor and a replication worker.

    connect (and again, until it works) --> parts start --> run --> parts stop --> client closes

It runs alone (`bookkeeper autorecovery`) or beside a bookie in its process (autoRecoveryDaemonEnabled=true): then its
troubles are never the bookie's. The client's session outlives losses by itself; what the parts do about it is theirs.

Thread: reactor.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.client.metadata_update import pause
from bookkeeper.client.read.list_entries import ask_list_of_entries
from bookkeeper.clock import wall_ms
from bookkeeper.errors import BookKeeperError, MetadataUnavailable, NotInitialised
from bookkeeper.metadata.outcome import within
from bookkeeper.metadata.underreplication.recovery_process_format import RecoveryProcess
from bookkeeper.replication.audit.auditor import Auditor
from bookkeeper.replication.audit.jobs import Placement
from bookkeeper.replication.copies.access import access_of
from bookkeeper.replication.copies.fragment_check import LedgerChecker
from bookkeeper.replication.repair.settings import WorkerSettings
from bookkeeper.replication.repair.worker import ReplicationWorker
from bookkeeper.system.fatal import log_fatal

if TYPE_CHECKING:
    from bookkeeper.client.client import LedgerClient
    from bookkeeper.config import ServerSettings
    from bookkeeper.metadata.store import Announcement, Underreplication
    from bookkeeper.metrics import Metrics
    from bookkeeper.model import BookieId, LedgerId, LedgerMetadata, Versioned
    from bookkeeper.ports import Clock
    from bookkeeper.replication.copies.verdicts import FragmentVerdict

log = Logger()

RETRY_S = 5.0
"""Between two tries to connect, where the daemon is beside a bookie."""

STOP_TIMEOUT_S = 5.0
"""For all parts together. Votes, locks and announcements that are not removed by then end with the session."""

Connect = Callable[[], Awaitable["LedgerClient"]]


class Part(Protocol):
    """Something that runs on the daemon's client."""

    def start(self) -> object:
        """Begin."""

    def stop(self) -> Awaitable[None]:
        """End; never fails."""


MakeParts = Callable[["LedgerClient"], "list[Part]"]


class AutoRecovery:
    """The daemon. connect: makes its client. parts: what is to run on it, in the order of starting."""

    def __init__(self, connect: Connect, parts: MakeParts, clock: Clock) -> None:
        self._connect, self._make_parts, self._clock = connect, parts, clock
        self.client: LedgerClient | None = None
        self.parts: list[Part] = []
        self._starting: Deferred[None] | None = None
        self._stopped = False

    async def start(self) -> None:
        """Connect and start, or fail with what kept it from that: ConfigurationError, MetadataError."""
        client = await self._connect()
        try:
            await client.store.underreplication.prepare()
            self.client = client
            for part in self._make_parts(client):
                self.parts.append(part)
                part.start()
        except BaseException:
            await self.stop()
            await client.close()
            raise
        log.info("Auto-recovery runs on {store}", store=client.store.description)

    def keep_starting(self) -> None:
        """Start in the background; what may pass by itself is tried again for ever, the rest is told once."""
        self._starting = Deferred.fromCoroutine(self._keep_starting())
        self._starting.addErrback(_tell)

    async def _keep_starting(self) -> None:
        while not self._stopped:
            try:
                await self.start()
                return
            except (MetadataUnavailable, NotInitialised) as error:
                log.warn(
                    "Auto-recovery does not run yet: {error}; tried again in {delay:g} s", error=error, delay=RETRY_S
                )
                await pause(self._clock, RETRY_S)

    async def stop(self) -> None:
        """Stop all parts, last started first, and close the client, within about STOP_TIMEOUT_S. Never fails."""
        self._stopped = True
        if self._starting is not None:
            self._starting.cancel()
        parts, self.parts = self.parts, []
        deadline_s = self._clock.seconds() + STOP_TIMEOUT_S
        for part in reversed(parts):
            remaining_s = max(0.1, deadline_s - self._clock.seconds())
            try:
                await within(self._clock, remaining_s, Deferred.fromCoroutine(_stop(part)))
            except (BookKeeperError, CancelledError) as error:
                log.info("A part of auto-recovery was stopped; its znodes end with the session: {error}", error=error)
        client, self.client = self.client, None
        if client is not None:
            await client.close()


async def _stop(part: Part) -> None:
    await part.stop()


def _tell(failure: Failure) -> None:
    if isinstance(failure.value, CancelledError):
        return
    log_fatal(log, "Auto-recovery does not run", failure)


class Presence:
    """Says in the metadata store which process this is and where it serves HTTP, for whoever asks why. A Part."""

    def __init__(self, tree: Underreplication, process: RecoveryProcess) -> None:
        self._tree, self._process = tree, process
        self._announcement: Announcement | None = None

    def start(self) -> None:
        """From now on, across sessions."""
        self._announcement = self._tree.announce(self._process)

    async def stop(self) -> None:
        """No more."""
        announcement, self._announcement = self._announcement, None
        if announcement is not None:
            await announcement.withdraw()


def make_presence(client: LedgerClient, bookie_id: BookieId, http: tuple[str, int] | None) -> Presence:
    """This process's. bookie_id: what its vote names. http: where it can be asked, None where it cannot."""
    process = RecoveryProcess(socket.gethostname(), os.getpid(), wall_ms(), bookie_id, http)
    return Presence(client.store.underreplication, process)


def worker_settings(settings: ServerSettings) -> WorkerSettings:
    """The worker's part of a configuration."""
    checks = settings.replication_checks_in_flight_max
    return WorkerSettings(
        ledgers_at_once=settings.replication_ledgers_max,
        batch_entries_max=settings.replication_batch_entries_max,
        entries_in_flight_max=settings.replication_entries_in_flight_max,
        checks_in_flight_max=checks if checks > 0 else settings.replication_entries_in_flight_max,
        bytes_in_flight_max=settings.replication_bytes_in_flight_max,
        bytes_per_s=settings.replication_bytes_per_s,
        entries_per_s=settings.replication_entries_per_s,
        verified_percentage=settings.auditor_verification_percentage,
        open_ledger_grace_s=settings.open_ledger_grace_s,
        failed_ledger_grace_s=settings.failed_ledger_grace_s,
        error_backoff_s=settings.replication_error_backoff_s,
    )


def make_auditor(client: LedgerClient, settings: ServerSettings, bookie_id: BookieId, metrics: Metrics) -> Auditor:
    """A candidate for auditor as the configuration wants it; its vote names `bookie_id`."""
    context = client.context
    checks = settings.replication_checks_in_flight_max
    checker = LedgerChecker(
        context,
        entries_max=checks if checks > 0 else settings.replication_entries_in_flight_max,
        percentage=settings.auditor_verification_percentage,
    )

    async def check(ledger_id: LedgerId, metadata: Versioned[LedgerMetadata]) -> list[FragmentVerdict]:
        return await checker.check_ledger(access_of(context.settings, ledger_id, metadata.value), metadata)

    return Auditor(
        context.store,
        context.clock,
        settings,
        bookie_id,
        check=check,
        list_entries=partial(ask_list_of_entries, context),
        placement=Placement(context.rack_of, context.settings.racks_per_write_quorum_min),
        wall_ms=wall_ms,
        metrics=metrics,
    )


def make_worker(client: LedgerClient, settings: ServerSettings, metrics: Metrics) -> ReplicationWorker:
    """A worker as the configuration wants it; its locks name this host."""
    return ReplicationWorker(client, worker_settings(settings), socket.gethostname(), metrics)
