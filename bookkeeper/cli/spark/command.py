"""Pipelines over the cluster on Spark: on this machine, or on the master that --master names.

Needs the extra `spark`. Where they run the package must be installed, or given with --py-files of spark-submit.

examples:
  bookkeeper spark audit                                  every copy of every entry of the cluster
  bookkeeper spark audit --ledgers 100-200 --repair       some ledgers; what is bad is queued for auto-recovery
  bookkeeper spark audit --output /backup/audit-1         the result as Parquet, too
  bookkeeper spark sweep --older-than 3600 --dry-run      ledgers that writes of Spark have left behind
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from bookkeeper.cli.connection import add_connection_arguments
from bookkeeper.cli.lazy import LazyParser, at_least
from bookkeeper.cli.output import EXIT_USAGE, CommandFailed

AUDIT_EPILOG = """\
Every bookie is asked for every entry that it should have; nothing is fenced or changed (but for --repair). A finding
names ledger, entries and bookie:
  bad        a copy that fails its digest, or that its bookie cannot read
  missing    a copy that its bookie certainly does not have
  divergent  good copies that differ
  unknown    a bookie that could not be asked; no finding about its copies
  lost       no good copy anywhere, and none unknown
  length     the entries do not add up to what the metadata say

exit codes: 0 every copy is good, 1 failure, 2 usage, 3 nothing is wrong as far as could be asked, 4 something is wrong
"""
EXIT_UNKNOWN, EXIT_WRONG = 3, 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Actions of `bookkeeper spark`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=LazyParser)
    audit = actions.add_parser(
        "audit", help="every copy of every entry, verified", description="Verify every copy of every entry.",
        epilog=AUDIT_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    audit.add_argument("--ledgers", default="all", metavar="IDS", help="all, or e.g. 3,7,10-20 (default: %(default)s)")
    audit.add_argument("--output", metavar="PATH", help="a new directory for the result as Parquet (default: none)")
    audit.add_argument("--repair", action="store_true",
                       help="queue what is bad or missing for auto-recovery")  # fmt: skip
    audit.add_argument("--bytes-per-second", type=at_least(0), default=0, metavar="N",
                       help="that each task reads at most, 0: no limit (default: %(default)s)")  # fmt: skip
    audit.add_argument("--findings", type=at_least(0), default=100, metavar="N",
                       help="print at most so many (default: %(default)s)")  # fmt: skip
    audit.add_argument("--master", default="local[*]", metavar="URL", help="of Spark (default: %(default)s)")
    audit.add_argument("--json", action="store_true", help="JSON instead of a table")
    add_connection_arguments(audit)
    sweep = actions.add_parser(
        "sweep", help="delete what writes of Spark left behind",
        description="Delete ledgers that tasks of Spark wrote and nothing will ever commit.",
    )  # fmt: skip
    sweep.add_argument("--older-than", type=at_least(0), default=86_400, metavar="SECONDS",
                       help="what is older and not committed never will be (default: %(default)s)")  # fmt: skip
    sweep.add_argument("--commit-path", metavar="PATH", help="option commitPath of the writes (default: theirs)")
    sweep.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    sweep.add_argument("--json", action="store_true", help="JSON instead of text")
    add_connection_arguments(sweep)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    lacking = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if lacking:
        raise CommandFailed(f"{', '.join(lacking)}: not installed; pip install 'pybookkeeper[spark]'", EXIT_USAGE)
    if args.action == "audit":
        from bookkeeper.cli.spark.audit import run_audit

        return run_audit(args, EXIT_UNKNOWN, EXIT_WRONG)
    from bookkeeper.cli.spark.sweep import run_sweep

    return run_sweep(args)
