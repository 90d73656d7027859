"""Run auto-recovery until SIGTERM or SIGINT: a candidate for auditor, and a worker that makes lost copies anew.

Any number of these may run in a cluster, beside Apache's, and in bookies (autoRecoveryDaemonEnabled=true): one of them
is the auditor, and all of them share the work. `bookkeeper shell autorecovery -disable` pauses all of them.

exit codes:
  0    stopped by SIGTERM or SIGINT
  1    bad configuration, a port that is taken included
  2    metadata store unreachable, or without a cluster; also a command line that cannot be read
  130  interrupted before it began to start

examples:
  bookkeeper autorecovery --conf conf/bk_server.conf
  bookkeeper autorecovery -o metadataServiceUri=zk://zk1:2181/ledgers -o replicationRateByBytes=50000000
  bookkeeper autorecovery -o zkServers=zk1:2181 -o httpServerEnabled=true -o httpServerPort=8001
"""

from __future__ import annotations

import argparse
import contextlib
import gc
from typing import TYPE_CHECKING, Any

from bookkeeper.cli.bookie import COLLECT_AFTER, EXIT_BAD_CONFIGURATION, add_arguments, note_ignored
from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import EXIT_OK, EXIT_USAGE, CommandFailed, note
from bookkeeper.console.supervision import stop_reactor_on_signals
from bookkeeper.errors import ConfigurationError

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

    from bookkeeper.config import ClientSettings, Loaded, ServerSettings

EXIT_NO_METADATA = EXIT_USAGE  # as of `bookkeeper bookie`: 2 is a server error there

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Serve; returns the exit code."""
    from bookkeeper.config import load_server
    from bookkeeper.config.load import Use
    from bookkeeper.console.auto_recovery import client_settings_of

    try:
        overrides = parse_settings(args.overrides)
        loaded = load_server(args.conf, overrides, use=Use.INSPECT)
        client_settings = client_settings_of(args.conf, overrides)
    except (ConfigurationError, CommandFailed) as error:
        note(f"bookkeeper: {error}")
        return EXIT_BAD_CONFIGURATION
    from bookkeeper.console.reactor import reactor_without_pyopenssl

    reactor = reactor_without_pyopenssl()
    from twisted.logger import LogLevel

    from bookkeeper.admin.access.surfaces import http_surfaces_of, log_open_surfaces
    from bookkeeper.logs import LogFormat, start_logging

    start_logging(LogFormat(args.log_format), level=LogLevel.lookupByName(args.log_level), verbose="verbose" in args)
    note_ignored(loaded)
    log_open_surfaces(http_surfaces_of(loaded.settings))
    gc.set_threshold(COLLECT_AFTER)
    process = Process(loaded, client_settings, reactor)
    reactor.callWhenRunning(stop_reactor_on_signals, reactor)
    reactor.callWhenRunning(process.start)
    reactor.run()
    return process.exit_code


class Process:
    """The daemon, its HTTP server, and what the process ends with."""

    def __init__(self, loaded: Loaded[ServerSettings], client_settings: ClientSettings, reactor: Any) -> None:
        from twisted.logger import Logger

        from bookkeeper.console.auto_recovery import make_auto_recovery
        from bookkeeper.metrics import LONGEST_TURN, Metrics
        from bookkeeper.runtime import watch_turns

        self.exit_code = EXIT_OK
        self._log = Logger()
        self._loaded, self._settings, self._reactor = loaded, loaded.settings, reactor
        self._metrics = Metrics()
        self._metrics.gauge(LONGEST_TURN, watch_turns(reactor))
        self._daemon = make_auto_recovery(loaded.settings, client_settings, reactor, self._metrics)
        self._http: Any = None
        self._stopping = False

    def start(self) -> None:
        """Begin; to be called when the reactor runs."""
        from twisted.internet.defer import Deferred

        self._reactor.addSystemEventTrigger("before", "shutdown", self._stop)
        Deferred.fromCoroutine(self._start()).addErrback(self._failed)

    async def _start(self) -> None:
        from bookkeeper.admin.access.tokens import check_token_file
        from bookkeeper.system.addresses import reserve_http_port

        settings, reserved = self._settings, None
        if settings.http_server_enabled:  # before anything is registered
            check_token_file(settings.http_server_token_file)
            reserved = reserve_http_port(settings.http_server_host, settings.http_server_port)
        await self._daemon.start()
        if settings.http_server_enabled:
            self._listen_http()
        if reserved is not None:
            reserved.release()
        self._tell("READY=1")

    def _listen_http(self) -> None:
        from twisted.internet.defer import succeed
        from twisted.internet.error import CannotListenError

        from bookkeeper.admin.access.gate import make_gate
        from bookkeeper.admin.http.server import listen_http
        from bookkeeper.admin.http.whole import Parts, router_of
        from bookkeeper.cli.recovery_http import RecoveryOverHttp
        from bookkeeper.system.addresses import cannot_serve_http

        settings, client = self._settings, self._daemon.client
        gate = make_gate(
            settings.http_server_host,
            token_file=settings.http_server_token_file,
            allowed_hosts=settings.http_server_allowed_hosts,
            advertised=settings.advertised_address,
        )
        assert client is not None
        recovery = RecoveryOverHttp(lambda: self._daemon, settings)
        parts = Parts(
            self._metrics.text,
            config=lambda: {row.key.name: row.text for row in self._loaded.rows},
            store=client.store,
            client=lambda: succeed(client),
            recovering=recovery,
            troubled=recovery,
            ledger_content=settings.http_server_ledger_content,
        )
        try:
            self._http = listen_http(
                self._reactor, settings.http_server_host, settings.http_server_port, router_of(parts), gate
            )
        except CannotListenError as error:
            raise ConfigurationError(
                cannot_serve_http(settings.http_server_host, settings.http_server_port, error.socketError)
            ) from error

    def _failed(self, failure: Failure) -> None:
        from twisted.internet.error import ReactorNotRunning

        from bookkeeper.system.fatal import log_fatal

        if self._stopping:
            return  # told to stop while starting
        error = failure.value
        log_fatal(self._log, "Auto-recovery did not start", failure)
        self.exit_code = EXIT_BAD_CONFIGURATION if isinstance(error, ConfigurationError) else EXIT_NO_METADATA
        with contextlib.suppress(ReactorNotRunning):
            self._reactor.stop()

    def _stop(self) -> Deferred[None]:
        from twisted.internet.defer import Deferred

        self._stopping = True
        return Deferred.fromCoroutine(self._stop_orderly())

    async def _stop_orderly(self) -> None:
        self._log.info("Stopping")
        self._tell("STOPPING=1")
        if self._http is not None:
            await self._http.stopListening()
        await self._daemon.stop()
        self._log.info("Stopped")

    def _tell(self, state: str) -> None:
        from bookkeeper.system.sd_notify import notify

        try:
            notify(state)
        except OSError as error:
            self._log.debug("Nobody listens on NOTIFY_SOCKET: {error}", error=error)
