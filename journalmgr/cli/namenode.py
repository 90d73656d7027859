"""Run one server of a name node on a journal until SIGTERM or SIGINT.

Servers on the same journal elect the active one; the others follow the journal and take over when it dies. Clients talk
to the HTTP interface (`journalmgr fs`, or anything that speaks WebHDFS). There are no snapshots, blocks, erasure
coding, trash or delegation tokens: requests for them are refused, and a journal with snapshots cannot be followed. It
listens on the loopback interface unless --http names another. Every client that reaches the port may read, and only
requests over loopback may change anything. With journalmgr.http.token-file, every request needs a token.

exit codes:
  0    stopped by SIGTERM or SIGINT
  1    bad configuration, a port that is taken included; a journal that was never formatted
  2    server error: the journal cannot be reached; also a command line that cannot be read
  5    the journal cannot be gone on with: a gap, damage, an operation that is not known; the log says which
  130  interrupted before it began to start

examples:
  journalmgr format 'bookkeeper://127.0.0.1:2181/names'
  journalmgr namenode 'bookkeeper://127.0.0.1:2181/names' --http 127.0.0.1:9870
  journalmgr namenode 'bookkeeper://127.0.0.1:2181/names' --http 127.0.0.1:9871       the standby
  journalmgr namenode file:///var/lib/edits --images /var/lib/images                  one that is alone
"""

from __future__ import annotations

import argparse
import gc
from typing import TYPE_CHECKING

from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import EXIT_OK, EXIT_USAGE, CommandFailed, note
from bookkeeper.console.supervision import stop_reactor_on_signals
from bookkeeper.errors import ConfigurationError
from journalmgr.cli.session import add_journal_argument, add_settings_arguments, check_uri

if TYPE_CHECKING:
    from twisted.python.failure import Failure

    from journalmgr.config import JournalSettings
    from journalmgr.namenode.server import NameNodeSettings

EXIT_BAD_CONFIGURATION = 1
EXIT_SERVER_ERROR = 2
EXIT_JOURNAL = 5

COLLECT_AFTER = 50_000
"""As of a bookie: a namespace is millions of objects without cycles."""


LAC_INTERVAL_S = 0.1
"""A standby is about so far behind an active that pauses (0 in the client's settings: by the last transaction)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr namenode`."""
    add_journal_argument(parser)
    parser.add_argument(
        "--id",
        help="what logs and `journalmgr fs status` call this server; give each one of a journal its own (default: host "
        "name and port)",
    )
    parser.add_argument(
        "--http",
        default="127.0.0.1:9870",
        metavar="HOST:PORT",
        help="where it serves HTTP; port 0 takes one that is free and logs it (default: %(default)s)",
    )
    parser.add_argument(
        "--images", default="", metavar="DIR", help="keep checkpoints here (default: in ledgers, beside the journal)"
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="form of the log lines (default: %(default)s)"
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warn", "error"),
        default="info",
        help="least severity that is logged (default: %(default)s)",
    )
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serve; returns the exit code."""
    from journalmgr.config import load_journal

    try:
        settings = namenode_settings(args, load_journal(args.conf, parse_settings(args.defines)).settings)
    except (ConfigurationError, CommandFailed) as error:
        note(f"journalmgr: {error}")
        return EXIT_USAGE if isinstance(error, CommandFailed) else EXIT_BAD_CONFIGURATION
    return _serve(args, settings)


def namenode_settings(args: argparse.Namespace, settings: JournalSettings) -> NameNodeSettings:
    """What a command line and the settings make. Raises CommandFailed, ConfigurationError."""
    import dataclasses
    import os
    import socket

    from bookkeeper.system.hosts import check_no_number
    from journalmgr.namenode.images.schedule import CheckpointSettings
    from journalmgr.namenode.server import NameNodeSettings
    from journalmgr.replica import ReplicaSettings

    journal = args.journal or settings.shared_edits_dir
    if not journal:
        raise CommandFailed("no journal is named: give its URI, or set dfs.namenode.shared.edits.dir", EXIT_USAGE)
    scheme = check_uri(journal)
    host, separator, port = args.http.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise CommandFailed(f"--http {args.http!r}: want HOST:PORT, as 127.0.0.1:9870", EXIT_USAGE)
    try:
        check_no_number(host)
    except ValueError as error:
        raise CommandFailed(f"--http {args.http!r}: {error}", EXIT_USAGE) from error
    options = dict(settings.options(scheme))
    if "client_settings" in options:
        # One session carries the journal and the election: how long a dead server stays the active one is its timeout.
        client = options["client_settings"]
        options["client_settings"] = dataclasses.replace(
            client,
            zk_session_timeout_s=settings.ha_session_timeout_s,
            explicit_lac_interval_s=min(client.explicit_lac_interval_s, LAC_INTERVAL_S),
        )
    return NameNodeSettings(
        journal=journal,
        # Port 0 stands for another one in each server, so it does not tell them apart.
        server_id=args.id or socket.gethostname() + (f":{port}" if int(port) else f"-{os.getpid()}"),
        http_host=host.strip("[]"),
        http_port=int(port),
        token_file=settings.http_token_file,
        allowed_hosts=settings.http_allowed_hosts,
        election_parent=settings.ha_parent_znode,
        images=args.images,
        private_files=settings.private_files,
        replica=ReplicaSettings(roll_interval_s=settings.log_roll_period_s),
        checkpoints=CheckpointSettings(
            transactions=settings.checkpoint_txns,
            period_s=settings.checkpoint_period_s,
            check_period_s=settings.checkpoint_check_period_s,
            retained=settings.checkpoints_retained,
            extra_transactions=settings.extra_edits_retained,
        ),
        journal_options=options,
    )


def named_directories(settings: NameNodeSettings) -> list[tuple[str, list[str]]]:
    """Return the names of options and settings with their directories, for the log line of a fatal error."""
    import os

    from journalmgr.uri import parse_uri

    named = [("--images", [os.path.abspath(settings.images)])] if settings.images else []
    journal = parse_uri(settings.journal)
    return [*named, ("journal", [journal.path.rstrip("/")])] if journal.scheme == "file" else named


def _serve(args: argparse.Namespace, settings: NameNodeSettings) -> int:
    from bookkeeper.console.reactor import reactor_without_pyopenssl

    reactor = reactor_without_pyopenssl()
    from twisted.internet.defer import Deferred
    from twisted.internet.error import ReactorNotRunning
    from twisted.logger import Logger, LogLevel

    from bookkeeper.admin.access.surfaces import http_surfaces, log_open_surfaces
    from bookkeeper.logs import LogFormat, start_logging
    from bookkeeper.system.fatal import fatal_text, log_fatal
    from journalmgr.config import TOKEN_FILE_KEY
    from journalmgr.errors import NotFormatted
    from journalmgr.namenode.server import NameNode

    start_logging(LogFormat(args.log_format), level=LogLevel.lookupByName(args.log_level), verbose="verbose" in args)
    log = Logger()
    log_open_surfaces(
        http_surfaces(
            enabled=True,
            host=settings.http_host,
            port=settings.http_port,
            token_file=settings.token_file,
            what="name node",
            key=TOKEN_FILE_KEY,
        )
    )
    gc.set_threshold(COLLECT_AFTER)
    exit_code = EXIT_OK

    def end(code: int) -> None:
        nonlocal exit_code
        exit_code = exit_code or code
        try:
            reactor.stop()
        except ReactorNotRunning:
            return

    named = named_directories(settings)

    def not_started(failure: Failure) -> None:
        log_fatal(log, "The name node did not start", failure, named)
        bad = isinstance(failure.value, ConfigurationError | NotFormatted)
        end(EXIT_BAD_CONFIGURATION if bad else EXIT_SERVER_ERROR)

    def failed(error: BaseException) -> None:
        why = fatal_text(error, named)
        log.critical("The name node on {journal} ends: {error}", journal=settings.journal, error=why)
        end(EXIT_JOURNAL)

    server = NameNode(reactor, settings, on_failed=failed)

    def start() -> None:
        starting: Deferred[None] = server.start()
        starting.addCallback(lambda _: log.info("Serving HTTP on {address}", address=server.address))
        starting.addErrback(not_started)

    reactor.callWhenRunning(stop_reactor_on_signals, reactor)
    reactor.callWhenRunning(start)
    reactor.addSystemEventTrigger("before", "shutdown", server.stop)
    reactor.run()
    return exit_code
