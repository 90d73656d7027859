"""The ports of a bookie: reserved first, opened when there is a bookie to ask, shut in the order of a clean stop.

    reserve (settings and port are good, nothing is written yet) -> open -> open HTTP -> ... ->
    shut (no new connections) -> hold (nothing more is read) -> end (connections) -> end HTTP

A port that is taken shows before anything is written. HTTP stays until all else has stopped, to tell how far that is.
Thread: reactor; checks of passwords, slow by design, run on "auth", listings of directories on "http".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bookkeeper.admin.access.tokens import check_token_file
from bookkeeper.bookie.connections.handshake_rules import BookieSecurity
from bookkeeper.bookie.connections.service import BookieService
from bookkeeper.bookie.identity.identity import advertised_host
from bookkeeper.bookie.process import part_settings
from bookkeeper.bookie.process.process_context import Surroundings
from bookkeeper.bookie.process.worker_calls import on_worker
from bookkeeper.errors import ConfigurationError
from bookkeeper.model import BookieServiceInfo, Endpoint
from bookkeeper.ports import Listener, Worker
from bookkeeper.runtime import TwistedNetwork
from bookkeeper.system.addresses import PortReservation, cannot_listen, listen_host, reserve_http_port

if TYPE_CHECKING:
    from bookkeeper.admin.http.whole import OperatorAccess
    from bookkeeper.bookie.bookie import Bookie
    from bookkeeper.bookie.gc.view import CollectorView
    from bookkeeper.bookie.integrity.scrub.page_repair import BadPage
    from bookkeeper.bookie.process.http import HttpSide
    from bookkeeper.bookie.process.storage import StorageSide
    from bookkeeper.metadata.bookies.cookie import Cookie
    from bookkeeper.metadata.store import MetadataStore


class Listening:
    """The ports of one bookie. host: the host that clients connect to. port: the port in use, also if 0 was set."""

    def __init__(self, surroundings: Surroundings) -> None:
        """Reserve the ports. Raises ConfigurationError for a port, host, file or provider that cannot be used."""
        self._surroundings = surroundings
        self._auth: Worker | None = None
        self._security = self._load_security()
        settings = surroundings.settings
        if settings.http_server_enabled:
            check_token_file(settings.http_server_token_file)
        self.host = advertised_host(settings)
        self._listen_host = listen_host(settings.listening_interface, self.host)
        self._reservation = PortReservation(self._listen_host, settings.bookie_port)
        self.port = self._reservation.port
        self._http_reservation: PortReservation | None = None
        if settings.http_server_enabled:
            self._http_reservation = reserve_http_port(settings.http_server_host, settings.http_server_port)
        self._service: BookieService | None = None
        self._listener: Listener | None = None
        self._http: HttpSide | None = None

    def _load_security(self) -> BookieSecurity | None:
        """What connections are asked for."""
        settings = self._surroundings.settings
        tls, provider = None, None
        if settings.tls_enabled:
            from bookkeeper.tls import TlsCredentials, bookie_options  # OpenSSL only for those who use it

            options = bookie_options(settings)
            assert options is not None
            tls = TlsCredentials(options, self._surroundings.reactor.seconds)
        if settings.auth_provider:
            from bookkeeper.auth.selection import bookie_provider

            provider = bookie_provider(settings, lambda work: on_worker(self._auth_worker(), work))
        if tls is None and provider is None:
            return None
        return BookieSecurity(tls, settings.tls_required, provider, settings.start_tls_timeout_s)

    def _auth_worker(self) -> Worker:
        """Made at first need."""
        if self._auth is None:
            self._auth = self._surroundings.threads.start("auth")
        return self._auth

    # --- open

    async def open(self, keeping: StorageSide, bookie: Bookie) -> None:
        """Take connections. Raises ConfigurationError."""
        around = self._surroundings
        settings, reactor = around.settings, around.reactor
        self._service = BookieService(
            bookie,
            reactor,
            keeping.usage,
            part_settings.connection_bounds(settings),
            frame_size_max=settings.frame_size_max,
            metrics=around.metrics,
            security=self._security,
        )
        try:
            self._listener = await TwistedNetwork(reactor, part_settings.tcp_options(settings)).listen(
                self._listen_host, self.port, self._service.accept
            )
        except OSError as error:
            raise ConfigurationError(cannot_listen(self._listen_host, self.port, error)) from error
        self._reservation.release()

    def open_http(
        self,
        cookie: Cookie,
        keeping: StorageSide,
        store: MetadataStore,
        collecting: CollectorView,
        access: OperatorAccess | None,
        phase: Callable[[], str],
        unmended: Callable[[], Sequence[tuple[BadPage, str]]],
    ) -> None:
        """Answer operators, the metrics of an open bookie included. Raises ConfigurationError.

        phase: of the process, as in the status file. unmended: damaged index pages that stay so for now, and why.
        """
        from bookkeeper.bookie.process.http import BookieView, HttpSide  # memory that most bookies need not spend

        around = self._surroundings
        self._show_values(keeping)
        view = BookieView(
            cookie,
            around.settings,
            around.fs,
            store,
            around.mode,
            around.threads.start("http"),
            phase=phase,
            usage=keeping.usage,
            unmended=unmended,
        )
        self._http = HttpSide(
            around.reactor,
            around.settings,
            around.metrics.text,
            view,
            store,
            access,
            advertised=self.host,
            collecting=collecting,
        )
        if self._http_reservation is not None:
            self._http_reservation.release()

    def _show_values(self, keeping: StorageSide) -> None:
        around, service = self._surroundings, self._service
        assert service is not None
        directories, storage = around.directories, keeping.storage
        show = around.metrics.gauge
        show("bookkeeper_server_CONNECTIONS", lambda: len(service.admission))
        show("bookkeeper_server_LONG_POLLS_WAITING", lambda: service.bookie.waiting_polls)
        show("bookie_JOURNAL_DIRS", lambda: len(around.journal_dirs))
        show("bookie_ledger_num_dirs", lambda: len(directories.ledger_dirs))
        show("bookie_ledger_writable_dirs", lambda: len(directories.writable_ledger_dirs()))
        show("bookie_SKIP_LIST_BYTES", lambda: storage.memory_bytes)
        show("bookie_WRITE_FILE_INFO_CACHE_SIZE", lambda: storage.open_file_count)
        closed = "bookkeeper_server_CONNECTIONS_CLOSED_BY_BOUNDS"
        around.metrics.counter(closed, lambda: service.admission.closed_count)
        around.metrics.counter("bookie_COLD_READS", lambda: storage.counters.cold_reads)

    def advertised(self) -> BookieServiceInfo:
        """What clients are told of the ports that are open."""
        extensions = ("tls",) if self._surroundings.settings.tls_enabled else ()
        endpoints = [Endpoint("bookie", self.host, self.port, "bookie-rpc", extensions=extensions)]
        if self._http is not None:
            endpoints.append(Endpoint("httpserver", self.host, self._http.port, "http"))
        return BookieServiceInfo(tuple(endpoints))

    # --- shut

    async def shut(self) -> None:
        """Take no more connections."""
        assert self._listener is not None
        await self._listener.stop()

    def hold(self) -> None:
        """Read no more requests; answers still leave."""
        assert self._service is not None
        self._service.stop()

    def end(self) -> None:
        """End the connections once their answers have left."""
        assert self._service is not None
        self._service.close()

    def abort(self) -> None:
        """End the connections at once, whatever waits: none of it may be answered any more."""
        if self._service is not None:
            self._service.abort()

    async def end_http(self) -> None:
        """The last of all."""
        if self._http is not None:
            await self._http.close()
