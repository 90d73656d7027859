"""Run the embedded ZooKeeper: a real one, from the jars inside the pyspark package, on 127.0.0.1.

example:
  bookkeeper zookeeper --port 2181 --directory /var/lib/zookeeper
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bookkeeper.cli.lazy import add_verbose
from bookkeeper.cli.output import note
from bookkeeper.cli.supervise import Child, stop_on_sigterm, wait_for_signal
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper zookeeper`."""
    add_verbose(parser)
    parser.add_argument("--port", type=int, default=2181, help="client port; 0 picks a free one (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where the data lives (default: a temporary directory)")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    stop_on_sigterm()
    with EmbeddedZooKeeper(data_dir=args.directory, port=args.port) as server:
        note(f"ZooKeeper serves on {server.address}, process {server.pid}, log {server.log_path}. Ctrl-C stops it.")
        wait_for_signal([Child("ZooKeeper", server.pid, server.log_path)])
        note("Stopping.")
    return 0
