"""Pipelines over the cluster on Spark: on this machine, or on the master that --master names.

Needs the extra `spark`. Where they run the package must be installed, or given with --py-files of spark-submit.

examples:
  bookkeeper spark audit                                  every copy of every entry of the cluster
  bookkeeper spark audit --ledgers 100-200 --repair       some ledgers; what is bad is queued for auto-recovery
  bookkeeper spark audit --output /backup/audit-1         the result as Parquet, too
  bookkeeper spark space --by application                 whose ledgers take the space, and what is garbage
  bookkeeper spark whatif --lose-rack /rack-1 --add 3     what a loss means, and where the copies would go
  bookkeeper spark export --output /backup/monday         every closed ledger as Parquet, with a manifest
  bookkeeper spark import /backup/monday --job restore-1  the same ledgers written anew; again: goes on where it was
  bookkeeper spark sweep --older-than 3600 --dry-run      ledgers that writes of Spark have left behind
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from bookkeeper.cli.connection import add_connection_arguments
from bookkeeper.cli.lazy import LazyParser, at_least
from bookkeeper.cli.output import EXIT_USAGE, CommandFailed
from bookkeeper.cli.spark.export_words import add_export, add_import
from bookkeeper.spark.space.grouping import GROUPINGS

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
SPACE_EPILOG = """\
Ledgers count with their payload, times their write quorum; those that are not closed with what is confirmed. What is in
entry logs the bookies tell over HTTP (httpServerEnabled=true). Who cannot be asked is listed as unknown, and in no sum.

examples:
  bookkeeper spark space                                  by owner
  bookkeeper spark space --by quorum --plot space.png     by E/Qw/Qa; a picture, too (needs the extra plot)
  bookkeeper spark space --json --output /reports/space-1 for programs; a row for each ledger, log and bookie as Parquet

exit codes: 0 everything could be asked, 1 failure, 2 usage, 3 some of it could not
"""
WHATIF_EPILOG = """\
Reads metadata, asks the bookies of open ledgers what is confirmed, and changes nothing. Entries count with the mean
size of their ledger. Who would take copies is chosen by the client's own rules (networkTopologyFile, by -D or --conf,
says which bookie is in which rack), with dice: one of the ways in which it may go.
--add alone moves nothing: BookKeeper leaves complete ledgers where they are. What levelling would move is told by a
proportional model. Quorums of a ledger never change: those options tell what it takes to write all ledgers anew.
--lose, --lose-rack and --add go together, as do --add and the quorums.

examples:
  bookkeeper spark whatif --lose bk1:3181,bk2:3181 --rate 50000000
  bookkeeper spark whatif --lose-rack /rack-1 -D networkTopologyFile=/etc/bookkeeper/racks
  bookkeeper spark whatif --ensemble 3 --write-quorum 3 --ack-quorum 2

exit codes: 0 everything keeps a copy and finds its place, 1 failure, 2 usage, 3 the same as far as is known, 4 entries
are left without a copy, or what should be done cannot be
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
    _add_common(audit)
    space = actions.add_parser(
        "space", help="where the disk space is", description="Where the disk space of the cluster is.",
        epilog=SPACE_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    space.add_argument("--by", default="owner", choices=GROUPINGS,
                       help="what ledgers are put together by (default: %(default)s)")  # fmt: skip
    space.add_argument("--groups", type=at_least(1), default=100, metavar="N",
                       help="print at most so many groups (default: %(default)s)")  # fmt: skip
    space.add_argument("--plot", type=Path, metavar="FILE.png", help="draw it, too (default: no)")
    space.add_argument("--output", metavar="PATH", help="a new directory for the rows as Parquet (default: none)")
    _add_common(space)
    whatif = actions.add_parser(
        "whatif", help="bookies lost or added, other quorums",
        description="What happens when bookies are lost or added, or ledgers have other quorums.",
        epilog=WHATIF_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    whatif.add_argument("--lose", type=_names, default=(), metavar="BOOKIE[,BOOKIE]", help="bookies that are lost")
    whatif.add_argument("--lose-rack", type=_names, default=(), metavar="RACK[,RACK]", help="racks that are lost")
    whatif.add_argument("--add", type=at_least(1), default=0, metavar="N", help="so many bookies more")
    whatif.add_argument("--ensemble", type=at_least(1), metavar="E", help="of all ledgers (default: their own)")
    whatif.add_argument("--write-quorum", type=at_least(1), metavar="QW", help="likewise")
    whatif.add_argument("--ack-quorum", type=at_least(1), metavar="QA", help="likewise")
    whatif.add_argument("--rate", type=at_least(1), metavar="BYTES_PER_S",
                        help="at which the whole cluster writes copies: says how many hours it takes")  # fmt: skip
    whatif.add_argument("--ledgers", type=at_least(0), default=20, metavar="N",
                        help="print at most so many ledgers at risk, the worst (default: %(default)s)")  # fmt: skip
    whatif.add_argument("--output", metavar="PATH", help="a new directory for the rows as Parquet (default: none)")
    _add_common(whatif)
    add_export(actions)
    add_import(actions)
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


def _names(text: str) -> tuple[str, ...]:
    found = tuple(each for part in text.split(",") if (each := part.strip()))
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nobody")
    return found


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", default="local[*]", metavar="URL", help="of Spark (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    add_connection_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    lacking = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if lacking:
        raise CommandFailed(f"{', '.join(lacking)}: not installed; pip install 'pybookkeeper[spark]'", EXIT_USAGE)
    if args.action == "audit":
        from bookkeeper.cli.spark.audit import run_audit

        return run_audit(args, EXIT_UNKNOWN, EXIT_WRONG)
    if args.action == "space":
        from bookkeeper.cli.spark.space import run_space

        return run_space(args, EXIT_UNKNOWN)
    if args.action == "whatif":
        from bookkeeper.cli.spark.whatif import run_whatif

        return run_whatif(args, EXIT_UNKNOWN, EXIT_WRONG)
    if args.action == "export":
        from bookkeeper.cli.spark.exports import run_export

        return run_export(args)
    if args.action == "import":
        from bookkeeper.cli.spark.exports import run_import

        return run_import(args)
    from bookkeeper.cli.spark.sweep import run_sweep

    return run_sweep(args)
