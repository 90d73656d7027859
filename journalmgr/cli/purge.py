"""Delete finalised segments that end below a txid: those that a checkpoint covers.

A segment that holds the txid is kept whole, and so is everything behind it. What an earlier purge could not finish is
finished too.

examples:
  journalmgr purge file:///var/lib/edits --older-than 5000 --dry-run      what would go
  journalmgr purge file:///var/lib/edits --older-than 5000 --force
"""

from __future__ import annotations

import argparse

from bookkeeper.cli.lazy import at_least
from bookkeeper.cli.output import EXIT_OK, confirm, counted, note, print_json
from journalmgr.cli.segments import print_segments
from journalmgr.cli.session import add_journal_argument, add_settings_arguments, segment_json, session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr purge`."""
    add_journal_argument(parser)
    parser.add_argument(
        "--older-than", type=at_least(1), required=True, metavar="TXID", help="the first txid to keep (required)"
    )
    parser.add_argument("--force", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="say what would be deleted")
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Purge, and print what is gone."""
    from journalmgr.model import TxId

    first_kept = TxId(args.older_than)
    with session(args) as commands:
        journal = commands.open_to_change(commands.uri(args.journal))
        segments = commands.call(journal.segments)
        doomed = [segment for segment in segments if segment.last_txid is not None and segment.last_txid < first_kept]
        if args.dry_run:
            note(f"{counted(len(doomed), 'segment')} would be deleted.")
        else:
            if doomed:
                span = f"txids {doomed[0].first_txid}..{doomed[-1].last_txid}"
                confirm(f"{journal.description}: delete {counted(len(doomed), 'segment')}, {span}?", force=args.force)
            doomed = commands.call(lambda: journal.purge_older_than(first_kept))
            note(f"{counted(len(doomed), 'segment')} deleted.")
    if args.json:
        print_json({"dry_run": args.dry_run, "segments": [segment_json(segment) for segment in doomed]})
    else:
        print_segments(doomed)
    return EXIT_OK
