"""The options of `bookkeeper spark whatif`."""

from __future__ import annotations

import argparse
from pathlib import Path

from bookkeeper.cli.spark.words import add_common, names
from bookkeeper.console.subcommands import at_least

EPILOG = """\
Reads metadata, asks the bookies of open ledgers what is confirmed, and changes nothing. Entries count with the mean
size of their ledger. Who would take copies is chosen by the client's own rules (networkTopologyFile, by -D or --conf,
says which bookie is in which rack), with dice: one of the ways in which it may go.
--add alone moves nothing: BookKeeper leaves complete ledgers where they are. What levelling would move is told by a
proportional model. Quorums of a ledger never change: those options tell what it takes to write every ledger anew that
has others, be it the ack quorum alone.
--lose, --lose-rack and --add go together, as do --add and the quorums.

examples:
  bookkeeper spark whatif --lose bk1:3181,bk2:3181 --rate 50000000
  bookkeeper spark whatif --lose bk1:3181 --plot loss.png          a picture, too (needs the extra plot)
  bookkeeper spark whatif --lose-rack /rack-1 -D networkTopologyFile=/etc/bookkeeper/racks
  bookkeeper spark whatif --ensemble 3 --write-quorum 3 --ack-quorum 2

exit codes: 0 everything keeps a copy and finds its place, 1 failure, 2 usage, 3 the same as far as is known, 4 entries
are left without a copy, or what should be done cannot be, 130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.description = "What happens when bookies are lost or added, or ledgers have other quorums."
    parser.epilog = EPILOG
    parser.add_argument(
        "--lose", type=names, default=(), metavar="BOOKIE[,BOOKIE]", help="bookies that are lost (default: none)"
    )
    parser.add_argument(
        "--lose-rack", type=names, default=(), metavar="RACK[,RACK]", help="racks that are lost (default: none)"
    )
    parser.add_argument(
        "--add", type=at_least(1), default=0, metavar="N", help="so many bookies more (default: %(default)s)"
    )
    parser.add_argument("--ensemble", type=at_least(1), metavar="E", help="of all ledgers (default: their own)")
    parser.add_argument("--write-quorum", type=at_least(1), metavar="QW", help="likewise")
    parser.add_argument("--ack-quorum", type=at_least(1), metavar="QA", help="likewise")
    parser.add_argument("--rate", type=at_least(1), metavar="BYTES_PER_S",
                        help="at which the cluster writes copies: says how many hours (default: none)")  # fmt: skip
    parser.add_argument("--ledgers", type=at_least(0), default=20, metavar="N",
                        help="print at most so many ledgers at risk, the worst (default: %(default)s)")  # fmt: skip
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw it, too (default: no)")
    parser.add_argument("--output", metavar="PATH", help="a new directory for the rows as Parquet (default: none)")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    from bookkeeper.cli.spark.whatif import run_whatif

    return run_whatif(args)
