"""The bookie process put together: settings in, a registered and serving bookie, an exit code out.

    reserve port -> metadata store -> locks -> cookies -> replay, flush, mark -> journals -> listen -> register ->
    READY=1

A bookie that is registered serves; one that may lack acknowledged data never gets there. SIGTERM and SIGINT:
unregister, take no more, answer what is in flight, checkpoint, exit 0. A failed write or sync: stop answering at once,
exit 5 (I-48). While the metadata store is unreachable a running bookie goes on serving; registration is renewed by the
store's client.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger
from twisted.python.failure import Failure

from bookkeeper.addresses import PortReservation, cannot_listen, interface_address
from bookkeeper.bookie import startup, tuning
from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.collection_view import CollectorView, collection_status
from bookkeeper.bookie.damage_reports import DamageReports
from bookkeeper.bookie.exits import ExitCode, exit_code_of
from bookkeeper.bookie.garbage_collector import GarbageCollector
from bookkeeper.bookie.identity import (
    Verdict,
    advertised_host,
    bookie_id_of,
    check_known,
    directories_of,
    establish,
    expected_cookie,
    lock_directories,
    other_ids,
)
from bookkeeper.bookie.journal.writer import Journal
from bookkeeper.bookie.mode import ModeSwitch, ReadOnlyReason
from bookkeeper.bookie.scrubber import Scrubber
from bookkeeper.bookie.security import BookieSecurity
from bookkeeper.bookie.service import BookieService
from bookkeeper.bookie.sessions import SessionFile
from bookkeeper.bookie.status import BookieChronicle
from bookkeeper.bookie.storage.checkpoint import Checkpointer
from bookkeeper.bookie.storage.disks import DiskMonitor, DiskVerdict, LedgerDirectories, current, measure
from bookkeeper.bookie.storage.ledger_storage import LedgerStorage
from bookkeeper.bookie.worker_calls import on_worker
from bookkeeper.config import ServerSettings
from bookkeeper.errors import (
    BookKeeperError,
    ConfigurationError,
    MetadataError,
    NoWritableDisk,
)
from bookkeeper.filesystem import DiskUsage, FileSystem, Lock, RealFileSystem
from bookkeeper.metadata.store import MetadataStore, RegistrationEvent
from bookkeeper.metrics import Metrics
from bookkeeper.model import BookieId, BookieMode, BookieServiceInfo, Endpoint, LogMark
from bookkeeper.notify import notify
from bookkeeper.ports import Listener, Worker
from bookkeeper.runtime import ThreadWorker, TwistedNetwork

if TYPE_CHECKING:
    from bookkeeper.admin.http.whole import OperatorAccess
    from bookkeeper.bookie.http_side import HttpSide
    from bookkeeper.metadata.cookie import Cookie

log = Logger()

STOP_TIMEOUT_S = 20.0
"""How long requests in flight and the last checkpoint may take after SIGTERM; the journal has everything anyway."""

FAREWELL_TIMEOUT_S = 1.0
"""How long a failed bookie may take to end its session, so that clients need not wait for it to expire."""


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
        self._fs: FileSystem = RealFileSystem()
        self._metrics = Metrics()
        self._sessions_lost = self._metrics.counter("bookie_METADATA_SESSIONS_LOST")
        self._mode = ModeSwitch()
        self._exit_code: ExitCode | None = None
        self._stopping: Deferred[None] | None = None
        self._directories = LedgerDirectories(
            [str(path) for path in settings.ledger_directories], [str(path) for path in settings.index_directories]
        )
        self._journal_dirs = [str(path) for path in settings.journal_directories]
        self._locks: list[Lock] = []
        self._workers: list[Worker] = []
        self._auth: Worker | None = None
        self._port: PortReservation | None = None
        self._store: MetadataStore | None = None
        self._storage: LedgerStorage | None = None
        self._journals: list[Journal] = []
        self._checkpointer: Checkpointer | None = None
        self._disks: DiskMonitor | None = None
        self._garbage: GarbageCollector | None = None
        self._damage_reports: DamageReports | None = None
        self._scrubber: Scrubber | None = None
        self._bookie: Bookie | None = None
        self._service: BookieService | None = None
        self._security: BookieSecurity | None = None
        self._listener: Listener | None = None
        self._http: HttpSide | None = None
        self._chronicle: BookieChronicle | None = None
        self._serving = False
        self.bookie_id = BookieId("")

    @property
    def exit_code(self) -> int:
        """What the process should exit with, once the reactor has stopped."""
        return int(ExitCode.OK if self._exit_code is None else self._exit_code)

    @property
    def metrics(self) -> Metrics:
        """Of this process; what runs beside the bookie counts there too."""
        return self._metrics

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
        if isinstance(error, BookKeeperError | OSError):
            log.critical("The bookie did not start: {error}", error=error)
        else:
            log.failure("The bookie did not start", failure=failure)
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
        settings = self._settings
        self._security = self._load_security()
        address = interface_address(settings.listening_interface)
        host = advertised_host(settings, address)
        listen_host = address if settings.listening_interface is not None else ""
        self._port = PortReservation(listen_host, settings.bookie_port)
        self.bookie_id = bookie_id_of(settings, host, self._port.port)
        log.info("Starting bookie {bookie_id}", bookie_id=self.bookie_id)
        self._store = await self._connect()
        instance_id = await self._store.admin.instance_id()
        expected = expected_cookie(settings, self.bookie_id, instance_id)
        expansion_allowed = settings.allow_storage_expansion
        cluster_uri = settings.metadata_service_uri
        await check_known(self._store.cookies, expected, expansion_allowed=expansion_allowed, cluster_uri=cluster_uri)
        self._locks = lock_directories(self._fs, directories_of(expected))
        verdict = await establish(
            self._fs,
            self._store.cookies,
            expected,
            other_ids(settings, self.bookie_id, address, self._port.port),
            expansion_allowed=expansion_allowed,
            cluster_uri=cluster_uri,
        )
        if verdict is Verdict.NEW:
            log.info(
                "New bookie of cluster {instance_id}: its cookie is in the metadata store and in every directory",
                instance_id=instance_id,
            )
        elif verdict is Verdict.EXPAND:
            log.info("Storage expanded to {directories}", directories=list(directories_of(expected)))
        self._start_chronicle(instance_id)
        await self._start_storage(instance_id)
        await self._listen(listen_host, expected)
        await self._register(host)
        log.info(
            "Bookie {bookie_id} serves on port {port}, {mode}",
            bookie_id=self.bookie_id,
            port=self._port.port,
            mode=self._mode.mode.value,
        )
        self._serving = True
        self._note_phase("serving")
        self._notify("READY=1")

    def _load_security(self) -> BookieSecurity | None:
        """What connections are asked for. Raises ConfigurationError for files and providers that cannot be used."""
        settings = self._settings
        tls, provider = None, None
        if settings.tls_enabled:
            from bookkeeper.tls import TlsCredentials, bookie_options  # OpenSSL only for those who use it

            options = bookie_options(settings)
            assert options is not None
            tls = TlsCredentials(options, self._reactor.seconds)
        if settings.auth_provider:
            from bookkeeper.auth.selection import bookie_provider

            provider = bookie_provider(settings, lambda work: on_worker(self._auth_worker(), work))
        if tls is None and provider is None:
            return None
        return BookieSecurity(tls, settings.tls_required, provider, settings.start_tls_timeout_s)

    def _auth_worker(self) -> Worker:
        """A thread for passwords, whose checks are slow by design; made at first need."""
        if self._auth is None:
            self._auth = self._worker("auth")
        return self._auth

    async def _connect(self) -> MetadataStore:
        from bookkeeper.metadata.zookeeper import connect  # kazoo costs 0.1 s; not before the port is known to be free

        settings = self._settings
        return await connect(
            settings.metadata_service_uri,
            clock=self._reactor,
            call_from_thread=self._reactor.callFromThread,
            random=random.Random(),
            settings=tuning.metadata_settings(settings),
        )

    def _worker(self, name: str) -> Worker:
        worker = ThreadWorker(self._reactor, name)
        self._workers.append(worker)
        return worker

    def _start_chronicle(self, instance_id: str) -> None:
        """From now on the directories are ours, and say what becomes of this process."""
        self._read_worker = self._worker("read")
        self._chronicle = BookieChronicle(
            self._fs,
            self._journal_dirs[0],
            self._read_worker,
            self._reactor,
            lambda: time.time_ns() // 1_000_000,
            bookie_id=self.bookie_id,
            metadata_service_uri=self._settings.metadata_service_uri,
            instance_id=instance_id,
            mode=self._mode,
        )
        self._mode.on_reasons = self._chronicle.on_reasons
        self._chronicle.changed()

    def _note_phase(self, phase: str) -> None:
        if self._chronicle is not None:
            self._chronicle.on_phase(phase)

    def _note_error(self, subject: str, error: object) -> None:
        if self._chronicle is not None:
            self._chronicle.on_error(subject, error)

    async def _start_storage(self, instance_id: str) -> None:
        settings, fs = self._settings, self._fs
        storage_worker, read_worker = self._worker("storage"), self._read_worker
        chronicle = self._chronicle
        assert chronicle is not None
        storage = self._storage = LedgerStorage(fs, self._directories, tuning.storage_settings(settings))
        ledger_dirs = self._directories.ledger_dirs
        startup.check_unsynced_leftovers(fs, ledger_dirs, journal_was_off=self._journal_was_off)
        ends = await on_worker(storage_worker, partial(startup.recover, fs, storage, self._journal_dirs, ledger_dirs))
        await self._start_journals(ends)
        mark_dirs = [current(directory) for directory in ledger_dirs]
        disk_settings = tuning.disk_settings(settings)
        self._disks = DiskMonitor(
            fs,
            self._directories,
            disk_settings,
            self._reactor,
            read_worker,
            self._on_disks,
            self._fail,
        )
        self._checkpointer = Checkpointer(
            storage,
            self._journals,
            partial(startup.persist_marks, fs, mark_dirs),
            storage_worker,
            self._reactor,
            tuning.storage_settings(settings),
            on_failure=self._fail,
            on_disks_full=self._on_no_room,
            on_room=partial(self._mode.allow, ReadOnlyReason.NO_ROOM),
        )
        chronicle.watch_disks(self._disks, disk_settings, tuning.directory_uses(settings))
        chronicle.watch_storage(self._checkpointer, list(zip(self._journal_dirs, self._journals, strict=True)))
        if settings.force_read_only:
            self._mode.forbid(ReadOnlyReason.CONFIGURED)
        self._disks.start()
        await on_worker(read_worker, lambda: None)  # the monitor's first look is done: we know whether we are read-only
        self._bookie = Bookie(
            storage,
            self._journals,
            read_worker,
            self._mode,
            self._reactor,
            exit=self._exit_failed,
            bounds=tuning.bookie_bounds(settings),
            after_add=self._checkpointer.after_add,
            metrics=self._metrics,
        )
        self._checkpointer.start()
        self._start_collector(storage, storage_worker, instance_id)
        self._start_scrub(storage)

    def _start_scrub(self, storage: LedgerStorage) -> None:
        assert self._chronicle is not None
        self._scrubber = Scrubber(
            storage.scrub(),
            storage.damage,
            self._reactor,
            self._worker("scrub"),
            tuning.scrub_settings(self._settings),
            lambda: time.time_ns() // 1_000_000,
            metrics=self._metrics,
        )
        self._chronicle.scrub = self._scrubber.status
        self._scrubber.start()

    def _start_collector(self, storage: LedgerStorage, storage_worker: Worker, instance_id: str) -> None:
        settings, store, bookie, checkpointer = self._settings, self._store, self._bookie, self._checkpointer
        chronicle = self._chronicle
        assert chronicle is not None
        assert store is not None
        assert bookie is not None
        assert checkpointer is not None
        self._garbage = GarbageCollector(
            self._fs,
            self._directories,
            storage,
            bookie.removal(storage_worker),
            checkpointer,
            store,
            self._reactor,
            worker=self._worker("garbage"),
            storage_worker=storage_worker,
            settings=tuning.garbage_settings(settings),
            instance_id=instance_id,
            bookie_id=self.bookie_id,
            wall_s=time.time,
            on_failure=self._fail,
            on_round=chronicle.changed,
            metrics=self._metrics,
        )
        status = self._garbage.status
        chronicle.collection = lambda: collection_status(status)
        self._garbage.start()
        self._damage_reports = DamageReports(
            storage.damage, store.underreplication, self._reactor, self.bookie_id, lambda: time.time_ns() // 1_000_000
        )
        self._damage_reports.start()

    async def _start_journals(self, ends: Sequence[LogMark]) -> None:
        journal_settings = tuning.journal_settings(self._settings)
        for index, (directory, end) in enumerate(zip(self._journal_dirs, ends, strict=True)):
            worker = self._worker(f"journal-{index}")
            journal = Journal(
                self._fs,
                current(directory),
                worker,
                self._reactor,
                journal_settings,
                index=index,
                metrics=self._metrics,
            )
            journal.on_failed = self._fail
            self._journals.append(journal)
            await journal.start(end)

    async def _listen(self, host: str, cookie: Cookie) -> None:
        settings, port = self._settings, self._port
        assert self._bookie is not None
        assert port is not None
        self._service = BookieService(
            self._bookie,
            self._reactor,
            self._usage,
            tuning.connection_bounds(settings),
            frame_size_max=settings.frame_size_max,
            metrics=self._metrics,
            security=self._security,
        )
        try:
            self._listener = await TwistedNetwork(self._reactor, tuning.tcp_options(settings)).listen(
                host, port.port, self._service.accept
            )
        except OSError as error:
            raise ConfigurationError(cannot_listen(host, port.port, error)) from error
        port.release()
        if settings.http_server_enabled:
            self._listen_http(cookie)

    def _listen_http(self, cookie: Cookie) -> None:
        from bookkeeper.bookie.http_side import BookieView, HttpSide  # memory that most bookies need not spend

        assert self._store is not None
        assert self._garbage is not None
        assert self._chronicle is not None
        self._show_values()
        view = BookieView(
            cookie,
            self._settings,
            self._fs,
            self._store,
            self._mode,
            self._worker("http"),
            phase=self._phase,
            usage=self._usage,
        )
        collecting = CollectorView(self._garbage, self._chronicle.changed)
        self._http = HttpSide(
            self._reactor, self._settings, self._metrics.text, view, self._store, self._access, collecting=collecting
        )

    def _phase(self) -> str:
        if self._stopping is not None:
            return "stopping"
        return "serving" if self._serving else "starting"

    def _show_values(self) -> None:
        service, storage, mode, directories = self._service, self._storage, self._mode, self._directories
        assert service is not None
        assert storage is not None
        show = self._metrics.gauge
        show("bookkeeper_server_CONNECTIONS", lambda: service.connection_count)
        show("bookkeeper_server_LONG_POLLS_WAITING", lambda: service.bookie.waiting_polls)
        show("bookie_SERVER_STATUS", lambda: (0 if mode.read_only else 1) if self._serving else -1)
        show("bookie_JOURNAL_DIRS", lambda: len(self._journal_dirs))
        show("bookie_ledger_num_dirs", lambda: len(directories.ledger_dirs))
        show("bookie_ledger_writable_dirs", lambda: len(directories.writable_ledger_dirs()))
        show("bookie_SKIP_LIST_BYTES", lambda: storage.memory_bytes)
        show("bookie_WRITE_FILE_INFO_CACHE_SIZE", lambda: storage.open_file_count)
        self._metrics.counter("bookie_COLD_READS", lambda: storage.counters.cold_reads)

    async def _register(self, host: str) -> None:
        assert self._store is not None
        assert self._port is not None
        extensions = ("tls",) if self._settings.tls_enabled else ()
        endpoints = [Endpoint("bookie", host, self._port.port, "bookie-rpc", extensions=extensions)]
        if self._http is not None:
            endpoints.append(Endpoint("httpserver", host, self._http.port, "http"))
        self._info = BookieServiceInfo(tuple(endpoints))
        registration = self._store.registration
        # The lock of this directory is held: whoever noted a session there is dead, and need not be waited for.
        registration.keep_sessions(SessionFile(self._fs, current(self._journal_dirs[0]), self._read_worker))
        registered = self._mode.mode
        await registration.register(self.bookie_id, self._info, registered)
        self._note_registration("registered")
        registration.watch(self._on_registration)
        self._mode.on_change = self._on_mode
        if self._mode.mode is not registered:  # a disk filled up meanwhile
            self._on_mode(self._mode.mode)

    # --- while it runs ------------------------------------------------------------------------------------------------

    def _usage(self) -> DiskUsage:
        """Sum over the disks of the ledger directories, each file system once."""
        usages = measure(self._fs, self._directories.ledger_dirs)
        devices = {os.stat(directory).st_dev: usage for directory, usage in usages.items()}
        return DiskUsage(
            total=sum(usage.total for usage in devices.values()), free=sum(usage.free for usage in devices.values())
        )

    def _on_no_room(self) -> None:
        """A flush found no space although the disks did not look full, or not yet."""
        assert self._disks is not None
        self._note_error("flush", "no space in any ledger directory; it is tried again every second")
        if self._settings.read_only_mode_enabled:
            self._mode.forbid(ReadOnlyReason.NO_ROOM)
        self._disks.check_now()

    def _on_disks(self, verdict: DiskVerdict) -> None:
        settings = self._settings
        try:
            free = max(usage.free for usage in measure(self._fs, self._directories.ledger_dirs).values())
        except OSError as error:
            self._fail(error)
            return
        self._mode.priority_writes_allowed = free >= settings.high_priority_free_bytes_min
        if self._chronicle is not None:
            self._chronicle.changed()
        if not verdict.read_only:
            self._mode.allow(ReadOnlyReason.DISK_FULL)
        elif settings.read_only_mode_enabled:
            self._mode.forbid(ReadOnlyReason.DISK_FULL)
        else:
            log.critical("The disks are full and readOnlyModeEnabled=false: stopping")
            self._end(ExitCode.BOOKIE_ERROR)

    def _on_mode(self, mode: BookieMode) -> None:
        log.info("The bookie is {mode} now", mode=mode.value)
        assert self._store is not None
        changed = self._store.registration.register(self.bookie_id, self._info, mode)
        changed.addCallbacks(lambda _: self._note_registration("registered"), self._registration_lagging)

    def _note_registration(self, state: str, error: object = "") -> None:
        if self._chronicle is not None:
            self._chronicle.on_registration(state, error)

    def _registration_lagging(self, failure: Failure) -> None:
        self._note_registration("lagging", failure.value)
        log.error(
            "The registration could not follow the change of mode: {error}. Adds are refused or taken all the same.",
            error=failure.value,
        )

    def _on_registration(self, event: RegistrationEvent, error: MetadataError | None) -> None:
        if event is RegistrationEvent.LOST:
            self._sessions_lost.add()
            self._note_registration("lost", "the session with the metadata store ended; a new one is being made")
            log.warn("The metadata session is lost, and the registration with it; the bookie goes on serving")
        elif event is RegistrationEvent.RENEWED:
            self._note_registration("registered")
            log.info("Registered again")
        elif self._stopping is None:
            self._note_registration("lost for good", error)
            log.critical("The registration is lost for good: {error}", error=error)
            self._end(ExitCode.REGISTRATION_FAILED)

    def _fail(self, error: BaseException) -> None:
        if self._bookie is not None:
            self._bookie.fail(error)
        else:
            log.critical("The bookie fails: {error}", error=error)
            self._exit_failed(error)

    def _exit_failed(self, error: BaseException) -> None:
        """End the process without another write to what it stores; only the metadata session gets a moment to end.

        The status file is written, if the thread that does so still runs: nobody's data depends on it.
        """
        self._exit_code = ExitCode.BOOKIE_ERROR
        if self._chronicle is not None:
            self._chronicle.on_error("storage", error, fatal=True)
            self._chronicle.on_phase("failed")
            self._chronicle.write_last()
        if self._service is not None:
            self._service.abort()
        self._reactor.callLater(FAREWELL_TIMEOUT_S, _exit_now)
        if self._store is not None:
            self._store.close().addBoth(lambda _: _exit_now())

    # --- stop ---------------------------------------------------------------------------------------------------------

    def _stop(self) -> Deferred[None]:
        if self._bookie is not None and self._bookie.failure is not None:
            return Deferred()  # `_exit_failed` ends the process
        if self._stopping is None:
            self._stopping = Deferred.fromCoroutine(self._stop_orderly() if self._serving else self._stop_starting())
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
        log.failure("The bookie did not stop cleanly; the next start replays its journal", failure=failure)
        if self._exit_code is None:
            self._exit_code = ExitCode.BOOKIE_ERROR

    async def _stop_orderly(self) -> None:
        log.info("Stopping")
        self._note_phase("stopping")
        self._notify("STOPPING=1")
        deadline = self._reactor.callLater(STOP_TIMEOUT_S, self._stop_overdue)
        store, service, bookie, storage = self._store, self._service, self._bookie, self._storage
        assert store is not None
        assert service is not None
        assert bookie is not None
        assert storage is not None
        assert self._listener is not None
        assert self._disks is not None
        assert self._checkpointer is not None
        try:
            await store.registration.unregister(self.bookie_id)
        except MetadataError as error:
            log.warn("Could not unregister, the registration ends with the session: {error}", error=error)
        await self._listener.stop()
        if self._garbage is not None:
            await self._garbage.stop()
        if self._damage_reports is not None:
            self._damage_reports.stop()
        if self._scrubber is not None:
            await self._scrubber.stop()
        service.stop()
        idle: Deferred[None] = Deferred()
        bookie.on_idle = partial(idle.callback, None)
        bookie.stop()
        await idle
        service.close()
        self._disks.stop()
        try:
            await self._checkpointer.stop()
        except NoWritableDisk as error:
            log.warn("No checkpoint at the end, the next start replays the journal: {error}", error=error)
        for journal in self._journals:
            await journal.stop()
        if self._chronicle is not None:
            self._chronicle.on_registration("none")
            self._chronicle.on_phase("stopped")
            await self._chronicle.write_last()
        if self._http is not None:
            await self._http.close()
        for worker in self._workers:
            await worker.stop()
        storage.close()
        await store.close()
        for lock in self._locks:
            lock.release()
        deadline.cancel()
        log.info("Stopped")

    def _stop_overdue(self) -> None:
        log.critical(
            "The bookie did not stop within {seconds:g} s; ending it. The next start replays its journal",
            seconds=STOP_TIMEOUT_S,
        )
        self._exit_code = ExitCode.BOOKIE_ERROR
        _exit_now()

    def _notify(self, state: str) -> None:
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
