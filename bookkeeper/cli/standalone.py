"""Run a ZooKeeper and one bookie whose data stays in a directory, until Ctrl-C or SIGTERM.

When one of the two ends by itself everything is stopped, since one is of no use without the other.

exit codes: 0 stopped by Ctrl-C or SIGTERM, also while it starts; 1 it did not start, or one ended by itself; 2 usage

examples:
  bookkeeper standalone                          data in ./bookkeeper-data
  bookkeeper standalone --directory /srv/bk      data elsewhere
  bookkeeper standalone --hub                    and a hub for publish-subscribe, where hedwig is installed
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bookkeeper.cli.localbookie import add_cluster_arguments, run_cluster

DEFAULT_DIRECTORY = Path("bookkeeper-data")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper standalone`."""
    add_cluster_arguments(parser, directory=DEFAULT_DIRECTORY, default=f"./{DEFAULT_DIRECTORY}, which stays")


def run(args: argparse.Namespace) -> int:
    """Serve until a signal."""
    return run_cluster(args, 1)
