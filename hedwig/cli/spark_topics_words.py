"""`bookkeeper spark topics`: rates, lag and size of topics, as a stream."""

from __future__ import annotations

import argparse
from pathlib import Path

from bookkeeper.cli.spark.words import add_common
from bookkeeper.console.subcommands import at_least
from hedwig.cli.spark_words import add_region, add_topics

EPILOG = """\
Messages are read from their ledgers and put into windows by the time that the hub wrote into them; the column clock
says `published` then. A message without one (stored by a hub of another make) is put into the window in which it is
read, and clock says `read`: nothing is known of when it was published. With each micro-batch the subscriptions and the
topics are looked at, too: how many messages behind; how many messages, ledgers, and bytes as stored.

Where to:
  (nothing)          tables on standard output, with --json a line for each row; windows as far as they are
  --output DIR       DIR/windows, DIR/lags, DIR/sizes, partitioned by date and batch; each window once
  --to-topic NAME    a message of JSON for each row; each window once

Into files and topics a window goes once it is over: when a message of any topic is --delay later than its end. What
comes later is left out, counted, and told by the exit code; where topics are read in small steps (maxOffsetsPerTrigger)
give a delay as long as they are apart. A message without a time is of now: what is read after it, and was published
longer ago than the delay, comes too late. --emit changed tells windows as far as they are, again with each batch that
adds to them. Stopped and started again with the same --checkpoint (by default DIR/_checkpoint) it goes on where it was.

examples:
  bookkeeper spark topics --once                                       all topics of the region, in windows of a minute
  bookkeeper spark topics --topics news,sport --window 1 --once --plot rates.png
  bookkeeper spark topics --prefix app/ --output /reports/topics       until it is interrupted
  bookkeeper spark topics --to-topic rates --topics news --checkpoint /state/rates

exit codes: 0 all was read (--once), 1 failure, 2 usage, 3 some messages came too late and are in no window,
130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.description = "Messages and bytes per second, lag and size of topics."
    parser.epilog = EPILOG
    add_topics(parser)
    parser.add_argument("--window", type=at_least(1), default=60, metavar="SECONDS",
                       help="length of a window (default: %(default)s)")  # fmt: skip
    parser.add_argument("--delay", type=at_least(0), default=60, metavar="SECONDS",
                       help="how much later messages may come than others (default: %(default)s)")  # fmt: skip
    parser.add_argument("--clock", choices=("published", "read"), default="published",
                       help="read: windows of when messages are read (default: %(default)s)")  # fmt: skip
    parser.add_argument("--emit", choices=("final", "changed"),
                       help="windows when they are over, or as they change (default: see above)")  # fmt: skip
    parser.add_argument("--from", dest="start", choices=("earliest", "latest"), default="earliest",
                       help="where a new query begins (default: %(default)s)")  # fmt: skip
    parser.add_argument("--once", action="store_true", help="read what is there now, and end")
    parser.add_argument("--every", type=at_least(0), default=10, metavar="SECONDS",
                       help="how often what is new is read (default: %(default)s)")  # fmt: skip
    parser.add_argument("--output", metavar="DIR", help="write files (default: tables on standard output)")
    parser.add_argument("--format", choices=("parquet", "json"), default="parquet",
                       help="of the files (default: %(default)s)")  # fmt: skip
    parser.add_argument("--to-topic", metavar="NAME", help="publish the rows to a topic")
    parser.add_argument("--checkpoint", metavar="DIR", help="where it keeps how far it has come (default: see above)")
    parser.add_argument("--rows", type=at_least(0), default=100, metavar="N",
                       help="print at most so many of a batch and kind (default: %(default)s)")  # fmt: skip
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the rates, too; with --once (default: no)")
    add_region(parser)
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    from hedwig.cli.spark_topics import run_topics

    return run_topics(args)
