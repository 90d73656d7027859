"""Run one hub until SIGTERM or SIGINT.

A hub serves topics that are kept in ledgers; hubs of the same ZooKeeper and region share the topics and take over from
each other. On SIGTERM it stores what its subscribers consumed, ends its ledgers and gives its topics back.

exit codes:
  0    stopped by SIGTERM or SIGINT
  1    bad configuration, a port that is taken included
  2    server error: ZooKeeper unreachable, or without a cluster; also a command line that cannot be read
  4    registration failed: another hub has the same address
  5    stopped, but not everything could be given back in time; other hubs take over as after a crash
  130  interrupted before it began to start

examples:
  hedwig hub --conf conf/hw_server.conf
  hedwig hub -D zk_host=zk1:2181,zk2:2181 -D server_port=4081
  hedwig hub -D bk_ensemble_size=1 -D bk_quorum_size=1        with a single bookie (`bookkeeper standalone`)
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import CommandFailed, note
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose
from bookkeeper.console.supervision import stop_reactor_on_signals
from bookkeeper.errors import ConfigurationError

if TYPE_CHECKING:
    from bookkeeper.admin.access.surfaces import Surface
    from bookkeeper.config import Loaded
    from hedwig.config.hub import HubConfig

EXIT_BAD_CONFIGURATION = 1

COLLECT_AFTER = 50_000
"""As of a bookie: what a hub serves makes no cycles, and a hundred thousand topics would be looked at all the time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig hub`."""
    parser.add_argument("--conf", "-c", type=Path, metavar="FILE", help="settings in Apache's format (default: none)")
    parser.add_argument(
        "-D",
        "-o",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"one setting; takes precedence over environment (HW_KEY) and file; repeatable; {SEEN_BY_OTHERS}",
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
    from hedwig.config.load import load_hub

    try:
        loaded = load_hub(args.conf, parse_settings(args.overrides))
    except (ConfigurationError, CommandFailed) as error:
        note(f"hedwig: {error}")
        return EXIT_BAD_CONFIGURATION
    return _serve(args, loaded)


def _serve(args: argparse.Namespace, loaded: Loaded[HubConfig]) -> int:
    gc.set_threshold(COLLECT_AFTER)  # before the imports, a tenth of whose time the collector would take
    from bookkeeper.console.reactor import reactor_without_pyopenssl

    reactor = reactor_without_pyopenssl()
    from twisted.logger import Logger, LogLevel

    from bookkeeper.admin.access.surfaces import log_open_surfaces
    from bookkeeper.logs import LogFormat, start_logging
    from bookkeeper.system.secret_files import exposed_conf, warn_exposed
    from hedwig.hub.process import HubProcess

    start_logging(LogFormat(args.log_format), level=LogLevel.lookupByName(args.log_level), verbose="verbose" in args)
    log = Logger()
    for reason in dict.fromkeys(ignored.reason for ignored in loaded.ignored):
        names = ", ".join(ignored.name for ignored in loaded.ignored if ignored.reason == reason)
        log.warn("Settings without effect here: {names}: {reason}", names=names, reason=reason)
    warn_exposed(*exposed_conf(loaded))
    log_open_surfaces(hub_surfaces(loaded.settings))
    hub = HubProcess(loaded.settings, reactor, lambda: {row.key.name: row.text for row in loaded.rows})
    reactor.callWhenRunning(stop_reactor_on_signals, reactor)
    reactor.callWhenRunning(hub.start)
    reactor.run()
    return hub.exit_code


def hub_surfaces(config: HubConfig) -> list[Surface]:
    """Return the ports of a hub that need no credentials: all of its ports, since hubs have no authentication."""
    from bookkeeper.admin.access.surfaces import Surface, http_surfaces

    remedy = "publish and subscribe; hubs have no authentication: restrict it with listeningInterface or a firewall"
    ports = [("hub", config.server_port)]
    if config.ssl_enabled:
        ports.append(("hub TLS", config.ssl_server_port))
    return [
        *(Surface(what, config.listening_interface or "", port, remedy) for what, port in ports),
        *http_surfaces(
            enabled=config.http_server_enabled,
            host=config.http_server_host,
            port=config.http_server_port,
            token_file=config.http_server_token_file,
            ledger_content=config.http_server_ledger_content,
        ),
    ]
