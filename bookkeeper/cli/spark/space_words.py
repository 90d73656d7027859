"""The options of `bookkeeper spark space`."""

from __future__ import annotations

import argparse
from pathlib import Path

from bookkeeper.cli.spark.words import add_common
from bookkeeper.console.subcommands import at_least
from bookkeeper.spark.space.grouping import GROUPINGS

EPILOG = """\
Ledgers count with their payload, times their write quorum; those that are not closed with what is confirmed. What is in
entry logs the bookies tell over HTTP (httpServerEnabled=true). Who cannot be asked is listed as unknown, and in no sum.

examples:
  bookkeeper spark space                                  by owner
  bookkeeper spark space --by quorum --plot space.png     by E/Qw/Qa; a picture, too (needs the extra plot)
  bookkeeper spark space --json --output /reports/space-1 for programs; a row for each ledger, log and bookie as Parquet

exit codes: 0 everything could be asked, 1 failure, 2 usage, 3 some of it could not, 130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.description = "Where the disk space of the cluster is."
    parser.epilog = EPILOG
    parser.add_argument("--by", default="owner", choices=GROUPINGS,
                       help="what ledgers are put together by (default: %(default)s)")  # fmt: skip
    parser.add_argument("--groups", type=at_least(1), default=100, metavar="N",
                       help="print at most so many groups, of others their sums (default: %(default)s)")  # fmt: skip
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw it, too (default: no)")
    parser.add_argument("--output", metavar="PATH", help="a new directory for the rows as Parquet (default: none)")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    from bookkeeper.cli.spark.space import run_space

    return run_space(args)
