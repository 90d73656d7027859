"""The options of `bookkeeper spark export`."""

from __future__ import annotations

import argparse

from bookkeeper.cli.spark.words import add_common, ledgers
from bookkeeper.console.subcommands import at_least

EPILOG = """\
What is written: entries as Parquet below DIR/entries/date=DAY (ledger_id, entry_id, value), a line for each ledger
below DIR/ledgers, and last of all DIR/manifest: without it DIR is no export. DIR is any path that Spark can use; tasks
on other machines must reach it. Each ledger's entries and bytes are compared with its metadata, and its digest is made
of what is in the files. Ledgers that are not closed are left out, and listed, but for --open: then entries that may be
acknowledged and are left out are named in a warning and in the line of their ledger. Nothing is fenced or changed.

Passwords are not exported, nor any digest that is made with one: -D passwd=... or --as-administrator reads, and the
import writes with a password of its own.

examples:
  bookkeeper spark export --output /backup/monday                         every closed ledger
  bookkeeper spark export --ledgers 7,100-200 --open --output /backup/7   some, and what is confirmed of open ones
  bookkeeper spark export --application pulsar --as-administrator --output hdfs://nn/backup/pulsar

exit codes: 0 exported, 1 failure, 2 usage, 3 exported, but something is lost (--allow-loss),
130 interrupted: DIR is no export, unless it has its manifest
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.description = "Export ledgers to Parquet, with a manifest."
    parser.epilog = EPILOG
    parser.add_argument("--ledgers", type=ledgers, default="all", metavar="IDS",
                       help="all, or e.g. 3,7,10-20 (default: %(default)s)")  # fmt: skip
    parser.add_argument("--output", required=True, metavar="DIR", help="a new directory for the export")
    parser.add_argument("--owner", default="", metavar="NAME", help="only ledgers of this owner (default: all)")
    parser.add_argument("--application", default="", metavar="NAME",
                        help="only ledgers of this application (default: all)")  # fmt: skip
    parser.add_argument(
        "--open", action="store_true", help="open ledgers, too, up to what is confirmed now (default: closed ones)"
    )
    parser.add_argument("--as-administrator", action="store_true",
                        help="read each ledger with the password that its metadata names (default: no)")  # fmt: skip
    parser.add_argument("--allow-loss", action="store_true",
                        help="go on without what is lost, and say so in the manifest (default: fail)")  # fmt: skip
    parser.add_argument("--file-bytes", type=at_least(1 << 20), default=1 << 27, metavar="N",
                        help="payload of a file, about, at most (default: %(default)s)")  # fmt: skip
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    from bookkeeper.cli.spark.exports import run_export

    return run_export(args)
