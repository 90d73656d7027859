"""The bookie process put together: settings in, a registered and serving bookie, an exit code out.

    reserve port -> metadata store -> locks -> cookies -> replay, flush, mark -> journals -> listen -> register ->
    READY=1

    this file                   the order of start and stop, signals, exit codes
    process.process_context     what every part is given
    identity.claim              locks and cookies of the directories
    process.storage             storage, journals, disks
    connections.listeners       ports, connections, HTTP
    identity.registration       the registration in the metadata store, in the present mode
    process.background          collection, damage reports, scrub

A bookie that is registered serves; one that may lack acknowledged data never gets there. SIGTERM and SIGINT:
unregister, take no more, answer what is in flight, checkpoint, exit 0. A failed write or sync: stop answering at once,
exit 5 (I-48). While the metadata store is unreachable a running bookie goes on serving; registration is renewed by the
store's client.
Thread: reactor.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.bookie.connections.listeners import Listening
from bookkeeper.bookie.gc.view import CollectorView
from bookkeeper.bookie.identity.claim import Claim
from bookkeeper.bookie.identity.identity import bookie_id_of
from bookkeeper.bookie.identity.registration import Registered
from bookkeeper.bookie.identity.sessions import SessionFile
from bookkeeper.bookie.process import part_settings
from bookkeeper.bookie.process.background import Background
from bookkeeper.bookie.process.exit_codes import ExitCode, exit_code_of
from bookkeeper.bookie.process.process_context import surroundings_of
from bookkeeper.bookie.process.status import BookieChronicle
from bookkeeper.bookie.process.storage import StorageSide
from bookkeeper.bookie.storage.disks import current
from bookkeeper.clock import wall_ms
from bookkeeper.config import ServerSettings
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.metrics import Metrics
from bookkeeper.model import BookieId
from bookkeeper.system.fatal import fatal_text, log_fatal
from bookkeeper.system.sd_notify import notify

if TYPE_CHECKING:
    from bookkeeper.admin.http.whole import OperatorAccess
    from bookkeeper.metadata.bookies.cookie import Cookie
    from bookkeeper.ports import Worker

log = Logger()

STOP_TIMEOUT_S = 20.0
"""How long requests in flight and the last checkpoint may take after SIGTERM; the journal has everything anyway."""

FAREWELL_TIMEOUT_S = 1.0
"""How long a failed bookie may take to end its session, so that clients need not wait for it to expire."""


@dataclass(frozen=True, slots=True)
class _Served:
    """Everything that a bookie which serves consists of, for its stop."""

    store: MetadataStore
    claim: Claim
    listening: Listening
    keeping: StorageSide
    background: Background
    registered: Registered
    chronicle: BookieChronicle


class BookieServer:
    """One bookie process. Thread: reactor.

    reactor: a Twisted reactor that the caller runs; `run` stops it at the end.
    journal_was_off: the configuration says that an Apache bookie ran here without a synced journal.
    access: what the configuration says for those who come over HTTP; None: the bookie answers for itself alone.
    """

    def __init__(
        self,
        settings: ServerSettings,
        reactor: Any,
        *,
        journal_was_off: bool = False,
        access: OperatorAccess | None = None,
    ) -> None:
        self._settings = settings
        self._access = access
        self._reactor = reactor
        self._journal_was_off = journal_was_off
        self._surroundings = surroundings_of(settings, reactor, RealFileSystem(private=settings.private_files))
        self._exit_code: ExitCode | None = None
        self._stopping: Deferred[None] | None = None
        # What may have to go while the bookie starts, too; the rest is in `_served` once it does.
        self._claim = Claim(settings, self._surroundings.fs)
        self._store: MetadataStore | None = None
        self._listening: Listening | None = None
        self._chronicle: BookieChronicle | None = None
        self._keeping: StorageSide | None = None
        self._registered: Registered | None = None
        self._served: _Served | None = None
        self.bookie_id = BookieId("")

    @property
    def exit_code(self) -> int:
        """What the process should exit with, once the reactor has stopped."""
        return int(ExitCode.OK if self._exit_code is None else self._exit_code)

    @property
    def metrics(self) -> Metrics:
        """Of this process; what runs beside the bookie counts there too."""
        return self._surroundings.metrics

    def start(self) -> None:
        """Begin; to be called when the reactor runs. Whoever stops the reactor (a signal, say) stops the bookie."""
        self._reactor.addSystemEventTrigger("before", "shutdown", self._stop)
        started = Deferred.fromCoroutine(self._start())
        started.addErrback(self._start_failed)

    def _start_failed(self, failure: Failure) -> None:
        if self._stopping is not None:
            return  # told to stop while starting; what was under way fails, and nobody cares
        error = failure.value
        assert error is not None
        log_fatal(log, "The bookie did not start", failure, self._settings.directories)
        if self._chronicle is not None:
            self._chronicle.on_error("start", error, fatal=True)
        self._end(exit_code_of(error))

    def _end(self, code: ExitCode) -> None:
        """Stop the reactor, which stops the bookie; `code` stands also where it is stopping already."""
        self._exit_code = code
        with contextlib.suppress(ReactorNotRunning):
            self._reactor.stop()

    # --- start --------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        around = self._surroundings
        listening = self._listening = Listening(around)
        bookie_id = self.bookie_id = bookie_id_of(self._settings, listening.host, listening.port)
        log.info("Starting bookie {bookie_id}", bookie_id=bookie_id)
        store = self._store = await self._connect()
        instance_id = await store.admin.instance_id()
        cookie = await self._claim.establish(store, bookie_id, instance_id, listening.port)
        read_worker = around.threads.start("read")
        chronicle = self._start_chronicle(read_worker, instance_id)
        keeping = self._keeping = StorageSide(
            around,
            chronicle,
            read_worker,
            on_failed=self._exit_failed,
            on_unwritable=lambda: self._end(ExitCode.BOOKIE_ERROR),
        )
        bookie = await keeping.start(journal_was_off=self._journal_was_off)
        background = Background(around, keeping, store, chronicle, bookie_id=bookie_id, instance_id=instance_id)
        background.start()
        await listening.open(keeping, bookie)
        if self._settings.http_server_enabled:
            self._open_http(cookie, listening, keeping, store, background)
        registered = self._registered = Registered(
            around,
            store,
            cookie,
            bookie_id,
            listening.advertised(),
            chronicle,
            background.collector.wait_history_checked,
            lambda: self._end(ExitCode.REGISTRATION_FAILED),
        )
        # The lock of this directory is held, so nobody else writes that file.
        await registered.register(SessionFile(around.fs, current(around.journal_dirs[0]), read_worker))
        log.info(
            "Bookie {bookie_id} serves on port {port}, {mode}",
            bookie_id=bookie_id,
            port=listening.port,
            mode=around.mode.mode.value,
        )
        self._served = _Served(store, self._claim, listening, keeping, background, registered, chronicle)
        chronicle.on_phase("serving")
        _notify("READY=1")

    async def _connect(self) -> MetadataStore:
        from bookkeeper.metadata.zookeeper import connect  # kazoo costs 0.1 s; not before the port is known to be free

        settings = self._settings
        return await connect(
            settings.metadata_service_uri,
            clock=self._reactor,
            call_from_thread=self._reactor.callFromThread,
            random=random.Random(),
            settings=part_settings.metadata_settings(settings),
        )

    def _start_chronicle(self, read_worker: Worker, instance_id: str) -> BookieChronicle:
        """From now on the directories are ours, and say what becomes of this process."""
        around = self._surroundings
        chronicle = self._chronicle = BookieChronicle(
            around.fs,
            around.journal_dirs[0],
            read_worker,
            self._reactor,
            wall_ms,
            bookie_id=self.bookie_id,
            metadata_service_uri=self._settings.metadata_service_uri,
            instance_id=instance_id,
            mode=around.mode,
        )
        around.mode.on_reasons = chronicle.on_reasons
        chronicle.changed()
        return chronicle

    def _open_http(
        self,
        cookie: Cookie,
        listening: Listening,
        keeping: StorageSide,
        store: MetadataStore,
        background: Background,
    ) -> None:
        assert self._chronicle is not None
        collecting = CollectorView(background.collector, self._chronicle.changed)
        mode = self._surroundings.mode
        self._surroundings.metrics.gauge(
            "bookie_SERVER_STATUS", lambda: (0 if mode.read_only else 1) if self._served is not None else -1
        )
        listening.open_http(cookie, keeping, store, collecting, self._access, self._phase, background.unmended_pages)

    def _phase(self) -> str:
        if self._stopping is not None:
            return "stopping"
        return "serving" if self._served is not None else "starting"

    # --- a failure ----------------------------------------------------------------------------------------------------

    def _exit_failed(self, error: BaseException) -> None:
        """End the process without another write to what it stores; only the metadata session gets a moment to end.

        The status file is written, if the thread that does so still runs: nobody's data depends on it.
        """
        self._exit_code = ExitCode.BOOKIE_ERROR
        why = fatal_text(error, self._settings.directories)
        log.critical("The bookie stops answering and exits: {error}", error=why)
        if self._chronicle is not None:
            self._chronicle.on_error("storage", error, fatal=True)
            self._chronicle.on_phase("failed")
            self._chronicle.write_last()
        if self._listening is not None:
            self._listening.abort()
        self._reactor.callLater(FAREWELL_TIMEOUT_S, _exit_now)
        if self._store is not None:
            self._store.close().addBoth(lambda _: _exit_now())

    # --- stop ---------------------------------------------------------------------------------------------------------

    def _stop(self) -> Deferred[None]:
        if self._keeping is not None and self._keeping.failed:
            return Deferred()  # `_exit_failed` ends the process
        if self._stopping is None:
            if self._registered is not None:
                self._registered.expect_end()
            stop = self._stop_starting() if self._served is None else self._stop_orderly(self._served)
            self._stopping = Deferred.fromCoroutine(stop)
            self._stopping.addErrback(self._stop_failed)
        return self._stopping

    async def _stop_starting(self) -> None:
        """Nothing was acknowledged yet, and a start may be cut short anywhere: only the session needs an end."""
        if self._chronicle is not None:
            self._chronicle.on_phase("stopped" if self._exit_code is None else "failed")
            await self._chronicle.write_last()
        if self._store is not None:
            await self._store.close()

    def _stop_failed(self, failure: Failure) -> None:
        what = "The bookie did not stop cleanly; the next start replays its journal"
        log_fatal(log, what, failure, self._settings.directories)
        if self._exit_code is None:
            self._exit_code = ExitCode.BOOKIE_ERROR

    async def _stop_orderly(self, served: _Served) -> None:
        log.info("Stopping")
        served.chronicle.on_phase("stopping")
        _notify("STOPPING=1")
        deadline = self._reactor.callLater(STOP_TIMEOUT_S, self._stop_overdue)
        await served.registered.unregister()
        await served.listening.shut()
        await served.background.stop()
        served.listening.hold()
        await served.keeping.answer_the_last()
        served.listening.end()
        await served.keeping.stop()
        served.chronicle.on_registration("none")
        served.chronicle.on_phase("stopped")
        await served.chronicle.write_last()
        await served.listening.end_http()
        await self._surroundings.threads.stop()
        served.keeping.close()
        await served.store.close()
        served.claim.release()
        deadline.cancel()
        log.info("Stopped")

    def _stop_overdue(self) -> None:
        log.critical(
            "The bookie did not stop within {seconds:g} s; ending it. The next start replays its journal",
            seconds=STOP_TIMEOUT_S,
        )
        self._exit_code = ExitCode.BOOKIE_ERROR
        _exit_now()


def _notify(state: str) -> None:
    try:
        notify(state)
    except OSError as error:
        log.debug(
            "Nobody listens on NOTIFY_SOCKET={address}: {error}",
            address=os.environ.get("NOTIFY_SOCKET"),
            error=error,
        )


def _exit_now() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ExitCode.BOOKIE_ERROR)
