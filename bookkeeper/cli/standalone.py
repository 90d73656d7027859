"""Run a ZooKeeper and one bookie whose data stays in a directory, until Ctrl-C or SIGTERM.

examples:
  bookkeeper standalone                          data in ./bookkeeper-data
  bookkeeper standalone --directory /srv/bk      data elsewhere
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bookkeeper.cli.localbookie import add_cluster_arguments, run_cluster

DEFAULT_DIRECTORY = Path("bookkeeper-data")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper standalone`."""
    add_cluster_arguments(parser)
    parser.set_defaults(directory=DEFAULT_DIRECTORY)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    return run_cluster(args, 1)
