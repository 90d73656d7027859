"""`bookkeeper spark export-topics`: topics to Parquet, with a manifest."""

from __future__ import annotations

import argparse

from bookkeeper.cli.spark.words import add_common
from bookkeeper.console.subcommands import at_least
from hedwig.cli.spark_words import add_region, add_topics

EPILOG = """\
What is written: messages as Parquet below DIR/messages/topic=NAME/date=DAY (seq, timestamp, value, headers), a line for
each topic below DIR/topics, and last of all DIR/manifest: without it DIR is no export. DIR is any path that Spark can
use; tasks on other machines must reach it. Of each topic that is what it keeps, and bookies know to be confirmed, when
the export begins; -D startingOffsets=..., endingOffsets, startingTimestamp, endingTimestamp choose less, as they do for
the format hedwig. Number, ids and digest of the messages are made of what is in the files. No subscription moves. If
bookies do not know the end of a topic, its hub is asked; a warning names messages that are left out.

Not exported: subscriptions, types of messages, and the region that a message came from.

examples:
  bookkeeper spark export-topics --output /backup/topics-monday                  all topics of the region
  bookkeeper spark export-topics --topics news,sport --output hdfs://nn/backup/news
  bookkeeper spark export-topics --prefix app/ -D startingTimestamp=1700000000000 --output /backup/app

exit codes: 0 exported, 1 failure, 2 usage, 130 interrupted: DIR is no export, unless it has its manifest
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.description = "Export the messages of topics to Parquet, with a manifest."
    parser.epilog = EPILOG
    add_topics(parser)
    parser.add_argument("--output", required=True, metavar="DIR", help="a new directory for the export")
    parser.add_argument("--file-bytes", type=at_least(1 << 20), default=1 << 27, metavar="N",
                       help="what a task reads, and writes to a file of a topic and day, about, at most "
                       "(default: %(default)s)")  # fmt: skip
    parser.add_argument("--rows", type=at_least(0), default=100, metavar="N",
                       help="print at most so many topics (default: %(default)s)")  # fmt: skip
    add_region(parser)
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    from hedwig.cli.spark_exports import run_export

    return run_export(args)
