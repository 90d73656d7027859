"""Run one bookie until SIGTERM or SIGINT.

exit codes:
  0    stopped by SIGTERM or SIGINT
  1    bad configuration, a port that is taken included
  2    server error: metadata store unreachable, or without a cluster; also a command line that cannot be read
  4    registration failed or lost for good
  5    bookie error: directories, cookie, files, disk
  130  interrupted before it began to start
Apache's 3 (ZooKeeper session expired) is not used: the bookie goes on serving, and registers again.

examples:
  bookkeeper bookie --conf conf/bk_server.conf
  bookkeeper bookie -o bookiePort=3182 -o journalDirectories=/data/journal -o ledgerDirectories=/data/ledgers
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bookkeeper.console.auto_recovery import client_settings_of
from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import CommandFailed, note
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose
from bookkeeper.console.supervision import stop_reactor_on_signals
from bookkeeper.errors import ConfigurationError

if TYPE_CHECKING:
    from bookkeeper.admin.http.whole import OperatorAccess
    from bookkeeper.bookie.server import BookieServer
    from bookkeeper.config import ClientSettings, Loaded, ServerSettings
    from bookkeeper.replication.daemon import AutoRecovery

EXIT_BAD_CONFIGURATION = 1
_UNSYNCED_KEYS = ("journalWriteData", "journalSyncData")


COLLECT_AFTER = 50_000
"""Objects that may pile up before the cycle collector looks at them. What a bookie serves makes no cycles, and what is
on its way between a request and its answer would be looked at again and again: with 20 000 ledgers that took a quarter
of the CPU, in pauses of tens of milliseconds. At most some MiB more are held meanwhile."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper bookie`."""
    parser.add_argument("--conf", "-c", type=Path, metavar="FILE", help="settings in Apache's format (default: none)")
    parser.add_argument(
        "-o",
        "-D",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"one setting; takes precedence over environment (BK_KEY) and file; repeatable; {SEEN_BY_OTHERS}",
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
    add_verbose(parser)


def run(args: argparse.Namespace) -> int:
    """Serve; returns the exit code."""
    from bookkeeper.config import load_server

    try:
        overrides = parse_settings(args.overrides)
        loaded = load_server(args.conf, overrides)
        journal_was_off = _journal_was_off(args.conf, overrides, os.environ)
    except (ConfigurationError, CommandFailed) as error:
        note(f"bookkeeper: {error}")
        return EXIT_BAD_CONFIGURATION
    return _serve(args, loaded, overrides, journal_was_off)


def _serve(
    args: argparse.Namespace, loaded: Loaded[ServerSettings], overrides: Mapping[str, str], journal_was_off: bool
) -> int:
    from bookkeeper.console.reactor import reactor_without_pyopenssl

    reactor = reactor_without_pyopenssl()
    from twisted.logger import LogLevel

    from bookkeeper.admin.access.surfaces import bookie_surfaces, log_open_surfaces
    from bookkeeper.bookie.server import BookieServer
    from bookkeeper.logs import LogFormat, start_logging

    start_logging(LogFormat(args.log_format), level=LogLevel.lookupByName(args.log_level), verbose="verbose" in args)
    note_ignored(loaded)
    log_open_surfaces(bookie_surfaces(loaded.settings))
    gc.set_threshold(COLLECT_AFTER)
    daemons: list[AutoRecovery] = []
    access = _operator_access(args.conf, overrides, loaded, daemons) if loaded.settings.http_server_enabled else None
    server = BookieServer(loaded.settings, reactor, journal_was_off=journal_was_off, access=access)
    reactor.callWhenRunning(stop_reactor_on_signals, reactor)
    reactor.callWhenRunning(server.start)
    if loaded.settings.auto_recovery_daemon_enabled:
        try:
            client_settings = client_settings_of(args.conf, overrides)
            daemons.append(_run_auto_recovery_too(loaded.settings, client_settings, reactor, server))
        except ConfigurationError as error:
            note(f"bookkeeper: {error}")
            return EXIT_BAD_CONFIGURATION
    reactor.run()
    return server.exit_code


def _run_auto_recovery_too(
    settings: ServerSettings, client_settings: ClientSettings, reactor: Any, server: BookieServer
) -> AutoRecovery:
    """Beside the bookie, with a session of its own: what goes wrong there is not the bookie's trouble."""
    from twisted.internet.defer import Deferred

    from bookkeeper.console.auto_recovery import make_auto_recovery

    daemon = make_auto_recovery(settings, client_settings, reactor, server.metrics)
    reactor.callWhenRunning(daemon.keep_starting)
    reactor.addSystemEventTrigger("before", "shutdown", lambda: Deferred.fromCoroutine(daemon.stop()))
    return daemon


def note_ignored(loaded: Loaded[ServerSettings]) -> None:
    """Log settings without effect, with the reason, and conf files with secrets that other users may use."""
    from twisted.logger import Logger

    from bookkeeper.system.secret_files import exposed_conf, warn_exposed

    log = Logger()
    for reason in dict.fromkeys(ignored.reason for ignored in loaded.ignored):
        names = ", ".join(ignored.name for ignored in loaded.ignored if ignored.reason == reason)
        is_warning = any(ignored.is_warning for ignored in loaded.ignored if ignored.reason == reason)
        write = log.warn if is_warning else log.info
        write("Settings without effect here: {names}: {reason}", names=names, reason=reason)
    warn_exposed(*exposed_conf(loaded))


def _operator_access(
    conf: Path | None, overrides: Mapping[str, str], loaded: Loaded[ServerSettings], daemons: list[AutoRecovery]
) -> OperatorAccess:
    """What the HTTP server tells of the settings, a client of the same cluster out of the same file, auto-recovery.

    daemons: the one beside the bookie, once it is made.
    """
    from bookkeeper.admin.http.whole import OperatorAccess
    from bookkeeper.config import load_client

    def client_settings(changes: Mapping[str, str]) -> ClientSettings:
        return load_client(conf, {**overrides, **changes}).settings

    recovery = None
    if loaded.settings.auto_recovery_daemon_enabled:
        from bookkeeper.cli.recovery_http import RecoveryOverHttp

        recovery = RecoveryOverHttp(lambda: daemons[0] if daemons else None, loaded.settings)
    return OperatorAccess(lambda: {row.key.name: row.text for row in loaded.rows}, client_settings, recovery, recovery)


def _journal_was_off(conf: Path | None, overrides: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """True when the settings would have had an Apache bookie acknowledge before its journal was synced (I-72)."""
    from bookkeeper.config.properties import parse_properties

    given: dict[str, str] = {}
    if conf is not None:
        given |= {found.name: found.value for found in parse_properties(conf.read_text(encoding="utf-8"))[0]}
    given |= {name: environ[f"BK_{name}"] for name in _UNSYNCED_KEYS if f"BK_{name}" in environ}
    given |= overrides
    return any(given.get(name, "true").strip().lower() == "false" for name in _UNSYNCED_KEYS)
