"""Stop whoever writes a journal, and finalise what was left open; what is in progress and empty is removed.

A metadata server does this by itself when it becomes the active one. By hand it is for a journal whose server is gone:
a server that still writes can never write to this journal again, and will end.

examples:
  journalmgr recover file:///var/lib/edits
  journalmgr recover 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal' --dry-run     what would be finalised
  journalmgr recover --force --json
"""

from __future__ import annotations

import argparse

from bookkeeper.console.output import EXIT_OK, confirm, counted, note, print_json
from journalmgr.cli.segments import print_segments
from journalmgr.cli.session import add_journal_argument, add_settings_arguments, segment_json, session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr recover`."""
    add_journal_argument(parser)
    parser.add_argument("--force", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="say what is in progress, and change nothing")
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Recover, and print what was finalised."""
    with session(args) as commands:
        journal = commands.open_to_change(commands.uri(args.journal))
        open_ones = [segment for segment in commands.call(journal.segments) if segment.in_progress]
        finalised = []
        if args.dry_run or not open_ones:
            note(f"{counted(len(open_ones), 'segment')} in progress; nothing was done.")
            shown = open_ones
        else:
            listed = ", ".join(str(segment) for segment in open_ones)
            confirm(f"{journal.description}: in progress: {listed}. Stop whoever writes there?", force=args.force)
            finalised = commands.call(journal.recover_unfinalized)
            note(f"{counted(len(finalised), 'segment')} finalised, {len(open_ones) - len(finalised)} empty or gone.")
            shown = finalised
    if args.json:
        in_progress = [segment_json(segment) for segment in open_ones]
        print_json({"in_progress": in_progress, "finalised": [segment_json(segment) for segment in finalised]})
    else:
        print_segments(shown)
    return EXIT_OK
