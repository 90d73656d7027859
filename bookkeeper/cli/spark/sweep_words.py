"""The options of `bookkeeper spark sweep`."""

from __future__ import annotations

import argparse

from bookkeeper.cli.spark.words import commit_path
from bookkeeper.console.connection import add_connection_arguments
from bookkeeper.console.subcommands import at_least

EPILOG = """\
What a commit names is never deleted, nor what may still be in flight: what is younger than --older-than, by the clock
of the metadata store. Nor is anything deleted because something is missing: where the znodes of a job, query or import
below --commit-path were removed, or are another cluster's, its ledgers are left, and told with what helps.

examples:
  bookkeeper spark sweep --dry-run                        what is older than a day and nothing will ever commit
  bookkeeper spark sweep --older-than 3600

exit codes: 0 done, 1 failure, 2 usage, 3 done, and some ledgers cannot be judged, 130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.description = "Delete ledgers that tasks of Spark wrote and nothing will ever commit."
    parser.epilog = EPILOG
    parser.add_argument("--older-than", type=at_least(0), default=86_400, metavar="SECONDS",
                       help="what is older and not committed never will be (default: %(default)s)")  # fmt: skip
    parser.add_argument("--commit-path", type=commit_path, metavar="PATH",
                       help="znode of the commits: option commitPath of the writes (default: theirs)")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    from bookkeeper.cli.spark.sweep import run_sweep

    return run_sweep(args)
