"""Copy a journal into another one, of whatever kind, segment by segment; every segment is read back and compared.

The target is formatted with the source's namespace if it never was. One that has transactions must be a copy of the
source, and is continued behind its last one: so a copy that failed is repeated, and one that was made is brought up to
date, with the same command. Segments that the source still writes are left for the next time.

examples:
  journalmgr copy file:///var/lib/edits 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal'
  journalmgr copy 'bookkeeper://zk1:2181/hdfsjournal' file:///backup/edits --json
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bookkeeper.cli.output import EXIT_OK, EXIT_USAGE, CommandFailed, Progress, confirm, counted, note, print_json
from journalmgr.cli.segments import print_segments
from journalmgr.cli.session import add_settings_arguments, check_uri, segment_json, session

if TYPE_CHECKING:
    from journalmgr.cli.session import Session
    from journalmgr.contract import JournalManager
    from journalmgr.model import NamespaceInfo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr copy`."""
    parser.add_argument("source", metavar="SOURCE", help="the journal to be copied; nothing in it is changed")
    parser.add_argument("target", metavar="TARGET", help="the journal to be made or continued")
    parser.add_argument(
        "--force",
        action="store_true",
        help="do not ask about a target with a segment in progress, whose writer would be stopped",
    )
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Copy, and print what was copied."""
    from journalmgr.copying import copy, unfinished

    if args.source == args.target:
        raise CommandFailed(f"{args.source} is source and target", EXIT_USAGE)
    for uri in (args.source, args.target):
        check_uri(uri)
    with session(args) as commands:
        source = commands.open(args.source)
        target = _open_target(commands, args.target, commands.namespace_of(source))
        in_progress = commands.run(lambda: unfinished(target))
        if in_progress:
            confirm(
                f"{target.description} has a segment in progress, {in_progress[0]}: what an earlier copy left, or "
                "somebody's who writes there now and would be stopped. Finalise it?",
                force=args.force,
            )
        progress = Progress("transactions copied")
        try:
            copied = commands.run(lambda: copy(source, target, on_progress=progress.update))
        finally:
            progress.close()
    if args.json:
        print_json(
            {
                "transactions": copied.transactions,
                "size": copied.size,
                "segments": [segment_json(segment) for segment in copied.segments],
                "left_in_progress": [segment_json(segment) for segment in copied.left],
            }
        )
    else:
        print_segments(copied.segments)
    if copied.segments:
        note(f"{counted(copied.transactions, 'transaction')} copied, and read back alike.")
    else:
        note("Nothing was copied: the target has all that is finalised.")
    if copied.left:
        note(f"Left, as the source still writes it: {', '.join(map(str, copied.left))}.")
    return EXIT_OK


def _open_target(commands: Session, uri: str, namespace: NamespaceInfo | None) -> JournalManager:
    """The target, formatted if it has to be. Raises NamespaceMismatch.

    namespace: the source's; None for one that does not say: then the target must have been formatted.
    """
    from journalmgr.errors import NamespaceMismatch, NotFormatted

    if namespace is None:
        return commands.open_to_change(uri)
    target = commands.open(uri, namespace)
    try:
        found = commands.call(target.namespace)
    except NotFormatted:
        commands.call(lambda: target.format(namespace))
        note(f"Formatted {target.description} for {namespace}.")
        return target
    if not found.is_same(namespace):
        raise NamespaceMismatch(
            f"{target.description} belongs to {found}, and the source to {namespace}: copy into a journal of its own"
        )
    return target
