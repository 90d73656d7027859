"""Run a ZooKeeper and N bookies on this machine, as separate processes, until Ctrl-C or SIGTERM.

examples:
  bookkeeper localbookie 4                            four bookies, data in a temporary directory
  bookkeeper localbookie 3 --directory ./cluster      data that stays
  bookkeeper localbookie 3 -o journalMaxSizeMB=256    a bookie setting for all of them
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bookkeeper.cli.connection import parse_settings
from bookkeeper.cli.lazy import add_verbose
from bookkeeper.cli.output import note
from bookkeeper.cli.supervise import Child, stop_on_sigterm, wait_for_signal
from bookkeeper.embedded.cluster import LocalCluster


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper localbookie`."""
    parser.add_argument("count", type=_positive, metavar="N", help="number of bookies")
    add_cluster_arguments(parser)


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """The options `localbookie` and `standalone` share."""
    add_verbose(parser)
    parser.add_argument(
        "--directory",
        type=Path,
        help="where all data lives (default: temporary, removed at the end unless a process failed)",
    )
    parser.add_argument("--zookeeper-port", type=int, default=2181, help="0 picks a free one (default: %(default)s)")
    parser.add_argument("--zookeeper", metavar="HOST:PORT", help="use this ZooKeeper (default: the embedded one)")
    parser.add_argument(
        "--port", type=int, default=3181, help="first bookie's; 0 picks free ones (default: %(default)s)"
    )
    parser.add_argument("-o", dest="settings", action="append", default=[], metavar="KEY=VALUE",
                        help="bookie setting, repeatable")  # fmt: skip


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} bookies: need at least 1")
    return number


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; print how to reach the cluster."""
    return run_cluster(args, args.count)


def run_cluster(args: argparse.Namespace, count: int) -> int:
    """Start `count` bookies, wait, stop everything."""
    stop_on_sigterm()
    ports = range(args.port, args.port + count) if args.port else ()
    cluster = LocalCluster(
        count,
        directory=args.directory,
        zookeeper=args.zookeeper,
        zookeeper_port=args.zookeeper_port,
        ports=ports,
        settings=parse_settings(args.settings),
    )
    with cluster:
        note(f"Cluster is up: {cluster.uri}")
        children = []
        if cluster.zookeeper is not None:
            note(f"  ZooKeeper  {cluster.zookeeper.address}  process {cluster.zookeeper.pid}")
            children.append(Child("ZooKeeper", cluster.zookeeper.pid, cluster.zookeeper.log_path))
        for bookie in cluster.bookies:
            note(f"  bookie {bookie.number}   {bookie.bookie_id}  process {bookie.pid}  log {bookie.log_path}")
            children.append(Child(f"bookie {bookie.number}", bookie.pid, bookie.log_path))
        note(f"Try:  seq 1000 | bookkeeper ledger write --uri '{cluster.uri}'{_small(count)}")
        note("Ctrl-C stops everything.")
        wait_for_signal(children)
        note("Stopping.")
    return 0


def _small(count: int) -> str:
    return "" if count >= 3 else f" --ensemble {count} --write-quorum {min(count, 2)} --ack-quorum {min(count, 2)}"
