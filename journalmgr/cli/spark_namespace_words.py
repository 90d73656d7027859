"""`bookkeeper spark namespace`: an edit log as its namespace, and who uses how much."""

from __future__ import annotations

import argparse
from pathlib import Path

from bookkeeper.cli.spark.words import add_spark_arguments
from bookkeeper.console.subcommands import at_least
from journalmgr.cli.session import add_journal_argument, add_settings_arguments

EPILOG = """\
Every transaction of the journal is folded, in order, into the tree of directories and files; nobody who writes is
fenced or disturbed, and of the segment in progress what is confirmed is read. A gap, a damaged record, an operation
that does not fit or whose meaning is not known ends it with an error that names the transaction: an edit that is left
out makes another namespace.
A journal whose first transactions were purged cannot be folded from its beginning: give --base, a snapshot that an
earlier run wrote with --output; only what came behind it is read then.
-D takes keys of the journal (zk.availablebookies and digestPw of dfs.namenode.bookkeeperjournal) and options of the
format editlog (minPartitions, readTimeout, tlsTrustStore, ...).

examples:
  bookkeeper spark namespace 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal'
  bookkeeper spark namespace --conf hdfs-site.xml --depth 2 --by hour --plot growth.png
  bookkeeper spark namespace --conf hdfs-site.xml --at-txid 1000000 --output /snapshots/1000000
  bookkeeper spark namespace --conf hdfs-site.xml --base /snapshots/1000000 --output /snapshots/latest --json

exit codes: 0 folded, 1 failure, 2 usage, 3 folded, but operations of unknown meaning were passed over (--skip-unknown),
130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.description = "The namespace that an edit log makes: every inode, usage by owner and directory, growth."
    parser.epilog = EPILOG
    add_journal_argument(parser)
    parser.add_argument("--at-txid", type=at_least(1), metavar="TXID",
                       help="the last transaction to fold (default: the last that is confirmed)")  # fmt: skip
    parser.add_argument(
        "--base", metavar="DIR", help="a snapshot of an earlier run (--output) to go on from (default: none)"
    )
    parser.add_argument("--depth", type=at_least(0), default=2, metavar="N",
                       help="usage of directories down to this depth (default: %(default)s)")  # fmt: skip
    parser.add_argument("--by", choices=("day", "hour"), default="day", help="steps of growth (default: %(default)s)")
    parser.add_argument("--rows", type=at_least(1), default=20, metavar="N",
                       help="print at most so many of each table (default: %(default)s)")  # fmt: skip
    parser.add_argument("--skip-unknown", action="store_true",
                       help="pass over operations of unknown meaning, and count them (default: fail)")  # fmt: skip
    parser.add_argument("--output", metavar="DIR", help="a new directory for all tables as Parquet (default: none)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw growth (default: no)")
    add_spark_arguments(parser)
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    from journalmgr.cli.spark_namespace import run_namespace

    return run_namespace(args)
