"""Run a ZooKeeper and N bookies on this machine, as separate processes, until Ctrl-C or SIGTERM.

When a bookie ends by itself a warning says so, and the others go on serving. When ZooKeeper does, or the last bookie,
everything stops. After a failure the directory with all logs is kept, a temporary one too, and named.

exit codes: 0 stopped by Ctrl-C or SIGTERM, also while it starts; 1 it did not start, or nothing useful is left;
2 usage

examples:
  bookkeeper localbookie 4                            four bookies, data in a temporary directory
  bookkeeper localbookie 3 --directory ./cluster      data that stays
  bookkeeper localbookie 3 -o journalMaxSizeMB=256    a bookie setting for all of them
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from bookkeeper.cli.zookeeper import PORT_MAX, port_number, require_free
from bookkeeper.console.connection import DEFAULT_URI, parse_settings
from bookkeeper.console.output import EXIT_OK, EXIT_USAGE, CommandFailed, note
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose, at_least
from bookkeeper.console.supervision import Child, stopping_on_signals, wait_for_signal
from bookkeeper.embedded import services
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.server import LocalServer, serves_http
from bookkeeper.embedded.zookeeper import HEAP_MIB
from bookkeeper.errors import ConfigurationError

TEMPORARY = "temporary, removed at the end unless a process failed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper localbookie`."""
    parser.add_argument("count", type=at_least(1), metavar="N", help="number of bookies")
    add_cluster_arguments(parser, directory=None, default=TEMPORARY)


def add_cluster_arguments(parser: argparse.ArgumentParser, *, directory: Path | None, default: str) -> None:
    """The options `localbookie` and `standalone` share. directory: the default; `default` says it in words."""
    add_verbose(parser)
    parser.add_argument("--directory", type=Path, default=directory, metavar="DIR",
                        help=f"where all data lives (default: {default})")  # fmt: skip
    parser.add_argument("--zookeeper-port", type=port_number, default=2181, metavar="PORT",
                        help="0 picks a free one (default: %(default)s)")  # fmt: skip
    parser.add_argument("--zookeeper-heap", type=at_least(64), default=HEAP_MIB, metavar="MIB",
                        help="memory of the embedded one, for all znodes (default: %(default)s)")  # fmt: skip
    parser.add_argument("--zookeeper", metavar="HOST:PORT", help="use this ZooKeeper (default: the embedded one)")
    parser.add_argument("--port", type=port_number, default=3181, metavar="PORT",
                        help="first bookie's; 0 picks free ones (default: %(default)s)")  # fmt: skip
    parser.add_argument("-o", "-D", dest="settings", action="append", default=[], metavar="KEY=VALUE",
                        help=f"bookie setting, repeatable; {SEEN_BY_OTHERS}")  # fmt: skip
    for name in services.names():
        _add_service_arguments(parser, name)


def _add_service_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    """Options of servers of another package."""
    parser.add_argument(f"--{name}", dest=f"{name}_count", type=at_least(1), nargs="?", const=1, default=0, metavar="N",
                        help=f"start a {name} too, or N of them (default: none)")  # fmt: skip
    parser.add_argument(f"--{name}-port", dest=f"{name}_port", type=port_number, metavar="PORT",
                        help=f"the first {name}'s; 0 picks free ones (default: its usual one)")  # fmt: skip
    parser.add_argument(f"--{name}-setting", dest=f"{name}_settings", action="append", default=[], metavar="KEY=VALUE",
                        help=f"{name} setting, repeatable; {SEEN_BY_OTHERS}")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; print how to reach the cluster."""
    return run_cluster(args, args.count)


def run_cluster(args: argparse.Namespace, count: int) -> int:
    """Start `count` bookies, wait, stop everything."""
    settings = parse_settings(args.settings)
    ports = range(args.port, args.port + count) if args.port else range(0)
    _check(args, settings, ports)
    _check_http_ports(args, count, settings)
    others = [_Others(args, name) for name in services.names() if getattr(args, f"{name}_count", 0)]
    with stopping_on_signals(EXIT_OK):
        cluster = LocalCluster(
            count,
            directory=args.directory,
            zookeeper=args.zookeeper,
            zookeeper_port=args.zookeeper_port,
            ports=ports,
            settings=settings,
            zookeeper_heap_mib=args.zookeeper_heap,
        )
        try:
            with cluster:
                for other in others:
                    cluster.start_others(other.make(cluster))
                _serve(cluster)
        finally:
            if cluster.left_behind is not None:
                note(f"Kept, with all logs: {cluster.left_behind}")
    return EXIT_OK


class _Others:
    """Servers of one kind that the command line asks for. Raises CommandFailed for what cannot work."""

    def __init__(self, args: argparse.Namespace, name: str) -> None:
        self._name, self._service = name, services.load(name)
        self._count, port = getattr(args, f"{name}_count"), getattr(args, f"{name}_port")
        self._settings = parse_settings(getattr(args, f"{name}_settings"))
        first = self._service.port if port is None else port
        self._ports = [first + position if first else 0 for position in range(self._count)]
        try:
            self._service.check(self._settings)
        except ConfigurationError as error:
            raise CommandFailed(f"--{name}-setting: {error}", EXIT_USAGE) from error
        if self._ports[-1] > PORT_MAX:
            raise CommandFailed(f"--{name}-port {port}: the last port would be {self._ports[-1]}", EXIT_USAGE)
        for each in self._ports:
            require_free(each, f"--{name}-port")

    def make(self, cluster: LocalCluster) -> list[LocalServer]:
        """Those of a cluster that runs."""
        make, count = self._service.make, len(cluster.bookies)
        return [
            make(number, cluster.directory / f"{self._name}-{number}", cluster.uri, port, count, self._settings)
            for number, port in enumerate(self._ports, 1)
        ]


def check_bookie_settings(settings: Mapping[str, str]) -> None:
    """Refuse -o settings that no bookie would start with, before any is started. Raises CommandFailed."""
    from bookkeeper.config import load_server

    try:
        load_server(None, {"metadataServiceUri": DEFAULT_URI, **settings})
    except ConfigurationError as error:
        raise CommandFailed(f"-o: {error}", EXIT_USAGE) from error


def _check(args: argparse.Namespace, settings: Mapping[str, str], ports: range) -> None:
    """Refuse what cannot work, in the words of this command line. Raises CommandFailed."""
    if ports and ports[-1] > PORT_MAX:
        raise CommandFailed(f"--port {args.port}: the port of bookie {len(ports)} would be {ports[-1]}", EXIT_USAGE)
    check_bookie_settings(settings)
    if args.zookeeper is None:
        require_free(args.zookeeper_port, "--zookeeper-port")
    else:
        _check_zookeeper(args.zookeeper)
    for port in ports:
        require_free(port, "--port")


def _check_http_ports(args: argparse.Namespace, count: int, settings: Mapping[str, str]) -> None:
    """Refuse an HTTP port that several servers would use. Raises CommandFailed."""
    taken: set[str] = set()
    kinds = [("-o", count, settings)]
    for name in services.names():
        given = parse_settings(getattr(args, f"{name}_settings"))
        kinds.append((f"--{name}-setting", getattr(args, f"{name}_count"), given))
    for option, servers, given in kinds:
        port = given.get("httpServerPort", "0")
        if not servers or port == "0" or not serves_http(given):
            continue
        if servers > 1 or port in taken:
            raise CommandFailed(
                f"{option} httpServerPort={port}: several servers cannot have the same port; leave it out, and each "
                "gets a free one, which is shown when the cluster is up",
                EXIT_USAGE,
            )
        taken.add(port)


def _check_zookeeper(servers: str) -> None:
    """Refuse a --zookeeper that is no list of servers. Raises CommandFailed."""
    from bookkeeper.config.shared import check_servers

    try:
        check_servers(servers)
    except ValueError as error:
        raise CommandFailed(f"--zookeeper {servers}: {error}", EXIT_USAGE) from error


def _serve(cluster: LocalCluster) -> None:
    """Tell how to reach the cluster, then wait for the end."""
    note(f"Cluster is up: {cluster.uri}")
    children = []
    if cluster.zookeeper is not None:
        note(f"  ZooKeeper  {cluster.zookeeper.address}  process {cluster.zookeeper.pid}")
        children.append(Child("ZooKeeper", cluster.zookeeper.pid, cluster.zookeeper.log_path, vital=True))
    for bookie in cluster.bookies:
        note(
            f"  bookie {bookie.number}   {bookie.bookie_id}{_http(bookie)}  process {bookie.pid}  log {bookie.log_path}"
        )
        children.append(Child(bookie.name, bookie.pid, bookie.log_path))
    for server in cluster.others:
        note(f"  {server.name:<9}  {server.shown_address}{_http(server)}  process {server.pid}  log {server.log_path}")
        children.append(Child(server.name, server.pid, server.log_path, dependent=True))
    note(f"Try:  seq 1000 | bookkeeper ledger write --uri '{cluster.uri}'{_small(len(cluster.bookies))}")
    note("Ctrl-C stops everything.")
    wait_for_signal(children)
    note("Stopping.")


def _http(server: LocalServer) -> str:
    return "" if server.http_address is None else f"  HTTP {server.http_address}"


def _small(count: int) -> str:
    return "" if count >= 3 else f" --ensemble {count}"
