"""Copy a journal into another one, of whatever kind, segment by segment; every segment is read back and compared.

The target is formatted with the source's namespace if it never was. One that has transactions must be a copy of the
source, and is continued behind its last one: so a copy that failed is repeated, and one that was made is brought up to
date, with the same command. Segments that the source still writes are left for the next time.

A journal whose beginning was purged is copied from where it begins, which is told. Whoever loads such a copy needs a
checkpoint that covers what is before; the checkpoints of a name node are no part of its journal, and not copied.

Everything is read once before anything is written, the target's format included: damage, and a transaction that is too
large for the target, are told then. Ctrl-C
ends a copy in order, and the same command goes on behind it; a second Ctrl-C, or kill -9, leaves a segment in progress
in the target, which --force finalises.

examples:
  journalmgr copy file:///var/lib/edits 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal'
  journalmgr copy 'bookkeeper://zk1:2181/hdfsjournal' file:///backup/edits --json
"""

from __future__ import annotations

import argparse
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from bookkeeper.console.output import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    Progress,
    confirm,
    counted,
    note,
    print_json,
)
from journalmgr.cli.damage import remedy, telling
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
        namespace = commands.namespace_of(source)
        target, is_formatted = _open_target(commands, args.target, namespace)
        in_progress = commands.run(lambda: unfinished(target)) if is_formatted else []
        if in_progress:
            confirm(
                f"{target.description} has a segment in progress, {in_progress[0]}: what a copy that was killed "
                "left, or somebody's who writes there now and would be stopped. Finalise it, and go on with the copy?",
                force=args.force,
            )
        checked, progress = Progress("transactions checked"), Progress("transactions copied")
        with _stopping_in_order() as stop, telling(remedy("JOURNAL")):
            try:
                copied = commands.run(
                    lambda: copy(
                        source,
                        target,
                        on_checked=checked.update,
                        on_progress=progress.update,
                        stop=stop.is_set,
                        namespace=namespace,
                    )
                )
            finally:
                checked.close()
                progress.close()
        there = commands.call(target.segments)
    if copied.formatted:
        note(f"Formatted {target.description} for {namespace}.")
    begins = there[0].first_txid if there else None
    if args.json:
        print_json(
            {
                "transactions": copied.transactions,
                "size": copied.size,
                "segments": [segment_json(segment) for segment in copied.segments],
                "left_in_progress": [segment_json(segment) for segment in copied.left],
                "stopped": copied.stopped,
                "begins_at": begins,
            }
        )
    else:
        print_segments(copied.segments)
    if copied.segments:
        note(f"{counted(copied.transactions, 'transaction')} copied, and read back alike.")
    elif not copied.stopped:
        note("Nothing was copied: the target has all that is finalised.")
    if begins is not None and begins > 1:
        note(
            f"The copy begins at txid {begins}, as the source does not have what is before: whoever loads it needs a "
            f"checkpoint that covers at least txid {begins - 1}. Checkpoints of a name node are not copied."
        )
    if copied.stopped:
        note(f"Stopped. To go on: {_same_command(args)}")
        return EXIT_INTERRUPTED
    if copied.left:
        note(f"Left, as the source still writes it: {', '.join(map(str, copied.left))}.")
    return EXIT_OK


@contextmanager
def _stopping_in_order() -> Iterator[threading.Event]:
    """Within, the first Ctrl-C sets the event and says so; the second one interrupts as always."""
    stop = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)
        note("Ending the copy in order; Ctrl-C again ends it at once, and leaves a segment in progress.")

    if before is not signal.SIG_IGN:  # a job in the background of a shell stays deaf to it
        signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _same_command(args: argparse.Namespace) -> str:
    words = ["journalmgr", "copy", args.source, args.target]
    words += [] if args.conf is None else ["--conf", str(args.conf)]
    words += [word for define in args.defines for word in ("-D", define)]
    return shlex.join(words)


def _open_target(commands: Session, uri: str, namespace: NamespaceInfo | None) -> tuple[JournalManager, bool]:
    """The target, and whether it was formatted before. Raises NamespaceMismatch.

    namespace: the source's; None for one that does not say: then the target must have been formatted.
    """
    from journalmgr.errors import NamespaceMismatch, NotFormatted

    if namespace is None:
        return commands.open_to_change(uri), True
    target = commands.open(uri, namespace)
    try:
        found = commands.call(target.namespace)
    except NotFormatted:
        return target, False
    if not found.is_same(namespace):
        raise NamespaceMismatch(
            f"{target.description} belongs to {found}, and the source to {namespace}: copy into a journal of its own"
        )
    return target, True
