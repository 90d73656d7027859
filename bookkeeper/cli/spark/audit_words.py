"""The options of `bookkeeper spark audit`."""

from __future__ import annotations

import argparse

from bookkeeper.cli.spark.words import add_common, ledgers
from bookkeeper.console.subcommands import at_least

EPILOG = """\
Every bookie is asked for every entry that it should have; nothing is fenced or changed (but for --repair). A finding
names ledger, entries and bookie:
  bad        a copy that fails its digest, or that its bookie cannot read
  missing    a copy that its bookie certainly does not have
  divergent  good copies that differ
  unknown    a bookie that could not be asked; no finding about its copies
  lost       no good copy anywhere, and none unknown
  length     the entries do not add up to what the metadata say
  no_data    a ledger of which no bookie has a good copy of any entry
  orphan     a bookie has a ledger that the cluster does not have: garbage that waits to be collected, no reason to
             worry. Bookies with httpServerEnabled=true tell what they have, and --bookie-dir shows it; which others
             there are is said, since of these nothing is known

--bookie-dir: a bookie that does not run (ours, or Apache's with sorted or interleaved storage) is read from its entry
logs, index files and journals, by the tasks that find the directory on their machine. Its cookie names its other
directories; where they are elsewhere now: LEDGER_DIRS|JOURNAL_DIRS|INDEX_DIRS. One that runs is asked instead.
--output keeps the result, and what it takes to go on (--resume) when the audit is interrupted: whole rounds count.

examples:
  bookkeeper spark audit --ledgers 100-200 --repair
  bookkeeper spark audit --output /backup/audit-1 --bytes-per-second 50000000
  bookkeeper spark audit --output /backup/audit-1 --resume
  bookkeeper spark audit --output /backup/audit-1 --resume --repair    what a complete audit has found
  bookkeeper spark audit --bookie-dir /data/bk/ledgers    the bookie of this machine is stopped

exit codes: 0 every copy is good, 1 failure, 2 usage, 3 nothing is wrong as far as could be asked, 4 something is wrong,
130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.description = "Verify every copy of every entry."
    parser.epilog = EPILOG
    parser.add_argument("--ledgers", type=ledgers, default="all", metavar="IDS",
                       help="all, or e.g. 3,7,10-20 (default: %(default)s)")  # fmt: skip
    parser.add_argument("--output", metavar="PATH", help="a new directory for the result as Parquet (default: none)")
    parser.add_argument("--bookie-dir", action="append", default=[], metavar="DIR",
                        help="ledger directory of a stopped bookie, read in place, "
                        "repeatable (default: none)")  # fmt: skip
    parser.add_argument("--resume", action="store_true",
                        help="go on with the audit in --output; of a complete one, tell what it found")  # fmt: skip
    parser.add_argument("--repair", action="store_true",
                       help="queue what is bad or missing for auto-recovery")  # fmt: skip
    parser.add_argument("--bytes-per-second", type=at_least(0), default=0, metavar="N",
                       help="that are read of each bookie at most, 0: no limit (default: %(default)s)")  # fmt: skip
    parser.add_argument("--findings", type=at_least(0), default=100, metavar="N",
                       help="print at most so many (default: %(default)s)")  # fmt: skip
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Run it."""
    from bookkeeper.cli.spark.audit import run_audit

    return run_audit(args)
