"""Delete finalised segments that end below a txid: those that a checkpoint covers.

A segment that holds the txid is kept whole, and so is everything behind it. What an earlier purge could not finish is
finished too.

A name node needs what its newest checkpoint does not cover. Of a journal with its operations the images are looked at,
those beside a journal on ledgers or those of --images, and what none covers is not deleted unless --without-checkpoint
says that it may go. Of a journal with another server's transactions no images are known: only what goes is said.

examples:
  journalmgr purge file:///var/lib/edits --older-than 5000 --dry-run      what would go
  journalmgr purge file:///var/lib/edits --older-than 5000 --force
  journalmgr purge file:///var/lib/edits --older-than 5000 --images /var/lib/images       of a name node
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.console.output import EXIT_OK, CommandFailed, confirm, counted, note, print_json
from bookkeeper.console.subcommands import at_least
from journalmgr.cli.segments import print_segments
from journalmgr.cli.session import add_journal_argument, add_settings_arguments, segment_json, session

if TYPE_CHECKING:
    from journalmgr.cli.session import Session
    from journalmgr.contract import JournalManager
    from journalmgr.model import Segment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr purge`."""
    add_journal_argument(parser)
    parser.add_argument(
        "--older-than", type=at_least(1), required=True, metavar="TXID", help="the first txid to keep (required)"
    )
    parser.add_argument("--force", action="store_true", help="do not ask")
    parser.add_argument(
        "--images",
        type=Path,
        metavar="DIR",
        help="where the name node keeps its checkpoints (default: beside the journal, if that is on ledgers)",
    )
    parser.add_argument(
        "--without-checkpoint",
        action="store_true",
        help="delete what no known checkpoint covers too: it can never be replayed again",
    )
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
        uncovered = "" if args.without_checkpoint else _uncovered(commands, journal, doomed, args.images)
        if args.dry_run:
            if uncovered:
                note(uncovered)
            note(f"{counted(len(doomed), 'segment')} would be deleted.")
        else:
            if uncovered:
                raise CommandFailed(f"{uncovered}. Nothing was deleted.")
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


def _uncovered(commands: Session, journal: JournalManager, doomed: list[Segment], images: Path | None) -> str:
    """Why these segments are needed still; empty where they are not, or where it cannot be told."""
    from journalmgr.model import OPAQUE

    if not doomed:
        return ""
    last = doomed[-1].last_txid
    where, covered = _newest_image(commands, journal, images)
    advice = "--without-checkpoint deletes them all the same"
    if covered is not None:
        if last is None or covered >= last:
            return ""
        first = covered + 1
        return (
            f"{journal.description}: the newest checkpoint in {where} covers the transactions up to {covered}, and "
            f"{first}..{last} would be deleted, which nothing else holds: name --older-than {first} at most, or let a "
            f"standby save a checkpoint first; {advice}"
        )
    if where or any(segment.layout_version != OPAQUE for segment in doomed):
        place = f"in {where}" if where else "that is known here (--images says where they are)"
        return f"{journal.description} has operations of a name node, and no checkpoint {place} covers them; {advice}"
    note("What a checkpoint of this server covers is not known here: its own must cover what is deleted.")
    return ""


def _newest_image(commands: Session, journal: JournalManager, images: Path | None) -> tuple[str, int | None]:
    """Where images were looked for, empty where there is none; and the last txid that the newest one covers."""
    from journalmgr.ledger.journal import LedgerJournal
    from journalmgr.ledger.znodes import JournalZnodes
    from journalmgr.namenode.images.checkpoints import txid_of_image

    if images is not None:
        where, names = str(images), [path.name for path in images.iterdir()]
    elif isinstance(journal, LedgerJournal):
        where = f"{journal.root}/images"
        znodes = JournalZnodes(journal.tree, commands.reactor, journal.metadata_settings, journal.root)
        listed: list[str] | None = commands.run(lambda: znodes.children(where))
        names = listed or []
    else:
        where, names = "", []
    newest = max((txid for name in names if (txid := txid_of_image(name)) is not None), default=None)
    return where if images is not None or newest is not None else "", newest
