"""`bookkeeper spark import-topics`: topics of an export, published again."""

from __future__ import annotations

import argparse

from bookkeeper.cli.spark.words import add_common
from bookkeeper.console.subcommands import at_least
from hedwig.cli.spark_words import add_region

EPILOG = """\
Before anything is published the whole export is read: a manifest that is missing or of another version, files that are
missing or have changed are refused. Then each topic is published in order, by a producer that the export and --job
name, and read back from its ledgers: number, order and digests are compared. The same command again goes on where it
was, and publishes nothing that was published. A message has a new id and time in its topic; messages of other
publishers may come in between.

Topics without a subscription keep nothing for long: make theirs first, or give --subscription, which is made in each of
them before its first message. Without it one keeps the messages until they are verified.

examples:
  bookkeeper spark import-topics /backup/topics-monday --dry-run      is the export whole, and what would be published?
  bookkeeper spark import-topics /backup/topics-monday --subscription audit
  bookkeeper spark import-topics /backup/topics-monday --into restored/ --job second

exit codes: 0 imported, 1 failure, 2 usage, 3 published, but not all of it is kept any more, to be verified,
130 interrupted: the same command goes on where it was
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.description = "Publish the messages of an export of topics again, each once."
    parser.epilog = EPILOG
    parser.add_argument("directory", metavar="DIR", help="of the export")
    parser.add_argument("--job", default="", metavar="NAME",
                       help="of this import: under another one all is published again (default: none)")  # fmt: skip
    parser.add_argument(
        "--into", default="", metavar="PREFIX", help="put before the name of each topic (default: nothing)"
    )
    parser.add_argument(
        "--subscription",
        metavar="NAME",
        help="make it in each topic, and leave it there (default: one that is taken away in the end)",
    )
    parser.add_argument("--hubs", metavar="HOST:PORT,...", help="hubs to ask (default: those of the region)")
    parser.add_argument("--dry-run", action="store_true", help="check everything, and publish nothing")
    parser.add_argument("--rows", type=at_least(0), default=100, metavar="N",
                       help="print at most so many topics (default: %(default)s)")  # fmt: skip
    add_region(parser)
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    from hedwig.cli.spark_exports import run_import

    return run_import(args)
