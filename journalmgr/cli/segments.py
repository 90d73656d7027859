"""List the segments of a journal, by first txid. Nothing is changed, and nobody who writes is disturbed.

A segment with an unreadable file or record is listed by its name, with layout `?` (null in JSON). It is named on
standard error, and the exit code is 3. `journalmgr verify` finds other faults.

examples:
  journalmgr segments file:///var/lib/edits
  journalmgr segments 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal' --json      with the namespace
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from bookkeeper.console.output import EXIT_OK, EXIT_PARTIAL, counted, note, print_json, print_table
from journalmgr.cli.session import add_journal_argument, add_settings_arguments, namespace_json, segment_json, session

if TYPE_CHECKING:
    from journalmgr.model import Segment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr segments`."""
    add_journal_argument(parser)
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list; return 3 if a segment in it is unreadable."""
    from journalmgr.model import UNKNOWN_LAYOUT

    with session(args) as commands:
        journal = commands.open(commands.uri(args.journal))
        namespace = commands.namespace_of(journal)
        segments = commands.call(journal.segments)
    if args.json:
        print_json(
            {
                "journal": journal.description,
                "namespace": namespace_json(namespace),
                "segments": [segment_json(segment) for segment in segments],
            }
        )
    else:
        print_segments(segments)
        note(f"{counted(len(segments), 'segment')}; {namespace or 'no namespace'}")
    if segments:
        note_beginning(segments[0].first_txid)
    unreadable = [segment for segment in segments if segment.layout_version == UNKNOWN_LAYOUT]
    for segment in unreadable:
        note(
            f"segment {segment} is unreadable, what is listed is its name: take it from another copy of the journal; "
            f"`journalmgr verify {shlex.quote(journal.description)}` tells more"
        )
    return EXIT_PARTIAL if unreadable else EXIT_OK


def note_beginning(first_txid: int) -> None:
    """Say so where a journal does not have its first transactions any more."""
    if first_txid > 1:
        note(
            f"The journal begins at txid {first_txid}: what is before is not in it (any more), so whoever loads it "
            f"needs a checkpoint that covers at least txid {first_txid - 1}."
        )


def print_segments(segments: list[Segment]) -> None:
    """A table of them; nothing where there are none."""
    if not segments:
        return
    on_ledgers = any(segment.ledger_id is not None for segment in segments)
    header = ["first", "last", "transactions", "layout", *(["ledger"] if on_ledgers else []), "name"]
    rows = []
    for segment in segments:
        last, count = "in progress", "-"
        if segment.last_txid is not None:
            last, count = str(segment.last_txid), str(segment.last_txid - segment.first_txid + 1)
        ledger = ["-" if segment.ledger_id is None else segment.ledger_id] if on_ledgers else []
        rows.append([segment.first_txid, last, count, segment.layout_version or "?", *ledger, segment.name])
    print_table(header, rows)
