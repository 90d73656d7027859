"""List the segments of a journal, by first txid. Nothing is changed, and nobody who writes is disturbed.

examples:
  journalmgr segments file:///var/lib/edits
  journalmgr segments 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal' --json      with the namespace
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bookkeeper.cli.output import EXIT_OK, counted, note, print_json, print_table
from journalmgr.cli.session import add_journal_argument, add_settings_arguments, namespace_json, segment_json, session

if TYPE_CHECKING:
    from journalmgr.model import Segment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr segments`."""
    add_journal_argument(parser)
    add_settings_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list."""
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
        return EXIT_OK
    print_segments(segments)
    note(f"{counted(len(segments), 'segment')}; {namespace or 'no namespace'}")
    return EXIT_OK


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
        rows.append([segment.first_txid, last, count, segment.layout_version, *ledger, segment.name])
    print_table(header, rows)
