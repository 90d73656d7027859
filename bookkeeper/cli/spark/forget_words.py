"""The options of `bookkeeper spark forget`."""

from __future__ import annotations

import argparse

from bookkeeper.console.connection import add_connection_arguments
from bookkeeper.console.subcommands import at_least

EPILOG = """\
What is forgotten is deleted: the ledgers of those batches, and the records of them below --commit-path. The last batch
stays, however old. If it fails, run it again: it goes on.

examples:
  bookkeeper spark forget --query 5f0c8f2e-... --older-than 2592000 --dry-run   what was committed 30 days ago
  bookkeeper spark forget --job copy --older-than 86400                         of a job that foreachBatch runs

exit codes: 0 done, 1 failure, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.description = "Delete the oldest batches that a stream has committed to ledgers, with their ledgers."
    parser.epilog = EPILOG
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("--query", metavar="ID", default="", help="id of the stream, which its checkpoint gives it")
    whose.add_argument("--job", metavar="NAME", default="", help="option job of a write in foreachBatch of a stream")
    parser.add_argument("--older-than", type=at_least(0), required=True, metavar="SECONDS",
                       help="since they were committed, by the clock of the metadata store")  # fmt: skip
    parser.add_argument("--commit-path", metavar="PATH", help="option commitPath of the writes (default: theirs)")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    from bookkeeper.cli.spark.forget import run_forget

    return run_forget(args)
