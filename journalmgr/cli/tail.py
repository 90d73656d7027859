"""Follow a journal: its transactions, and those that come, over the ends of segments. Nobody who writes is disturbed.

examples:
  journalmgr tail file:///var/lib/edits                                         everything, then what comes
  journalmgr tail 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal' -o end           only what comes
  journalmgr tail -o 5000 -c 10 --format hex
  journalmgr tail -e                                                            everything, and no waiting
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from bookkeeper.cli.ledger.listener import watching_listener
from bookkeeper.console.output import EXIT_OK, EXIT_USAGE, CommandFailed, note
from bookkeeper.console.subcommands import at_least
from journalmgr.cli.damage import remedy, telling
from journalmgr.cli.session import add_journal_argument, add_settings_arguments, session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from journalmgr.cli.session import Session
    from journalmgr.contract import JournalManager, Record
    from journalmgr.model import TxId

FORMATS = ("json", "hex")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr tail`."""
    add_journal_argument(parser)
    parser.add_argument(
        "-o",
        dest="offset",
        default="beginning",
        metavar="WHERE",
        help="beginning, end or a txid (default: %(default)s)",
    )
    parser.add_argument("-c", dest="count", type=at_least(0), metavar="N", help="stop after N (default: never)")
    parser.add_argument("-e", dest="exit_at_end", action="store_true", help="stop at the end of what is confirmed")
    parser.add_argument("--format", choices=FORMATS, default="json", help="how (default: %(default)s, one per line)")
    add_settings_arguments(parser, json_text="the same as --format json")


def run(args: argparse.Namespace) -> int:
    """Print until told to stop."""
    if args.json and args.format != "json":
        raise CommandFailed(f"--json and --format {args.format}: choose one of them", EXIT_USAGE)
    if args.offset not in ("beginning", "end") and not args.offset.isdecimal():
        raise CommandFailed(f"-o {args.offset!r}: use beginning, end or a txid", EXIT_USAGE)
    if args.offset.isdecimal() and int(args.offset) == 0:
        raise CommandFailed("-o 0: txids begin at 1", EXIT_USAGE)
    with session(args) as commands:
        uri = commands.uri(args.journal)
        with telling(remedy(uri)):
            return _print_from(args, commands, uri)


def _print_from(args: argparse.Namespace, commands: Session, uri: str) -> int:
    from journalmgr.reading import where_it_ends

    journal = commands.open(uri)
    first = _first(commands, journal, args.offset)
    printing = _Printing(args.format, args.count)
    if printing.done:
        return EXIT_OK
    if args.offset.isdecimal() and (ends := commands.run(lambda: where_it_ends(journal, first))) is not None:
        note(f"-o {first}: {ends}" + ("" if args.exit_at_end else f"; waiting for txid {first}"))
    if args.exit_at_end:
        end = _print_stored(commands, journal, first, printing)
        if not printing.done:
            commands.note_left_out(uri, journal, end)
    else:
        _follow(commands, journal, first, printing)
    return EXIT_OK


class _Printing:
    """To standard output, at once, until there were enough."""

    def __init__(self, form: str, count: int | None) -> None:
        from journalmgr.cli.records import printer_of

        self._printer, self._left = printer_of(form), count

    @property
    def done(self) -> bool:
        """Nothing more is wanted."""
        return self._left == 0

    def __call__(self, records: Sequence[Record], layout_version: int, source: str) -> None:
        wanted = records if self._left is None else records[: self._left]
        if self._left is not None:
            self._left -= len(wanted)
        sys.stdout.buffer.write(self._printer.records(wanted, layout_version, source))
        sys.stdout.buffer.flush()


def _first(commands: Session, journal: JournalManager, offset: str) -> TxId:
    """The txid to begin with; the first transaction there is or will be, the one behind the last, or a txid."""
    from journalmgr.model import FIRST_TXID, TxId
    from journalmgr.reading import end_of

    if offset not in ("beginning", "end"):
        return TxId(int(offset))
    segments = commands.call(journal.segments)
    if not segments:
        return FIRST_TXID
    if offset == "beginning":
        return segments[0].first_txid
    last = segments[-1]
    if last.last_txid is not None:
        return TxId(last.last_txid + 1)
    return TxId(commands.run(lambda: end_of(journal)) + 1)


def _print_stored(commands: Session, journal: JournalManager, first: TxId, printing: _Printing) -> int:
    """Print what is stored from `first` on; return the last txid printed, or first - 1."""
    from journalmgr.reading import read_journal

    end = first - 1
    for batch in commands.each(read_journal(journal, first, None)):
        printing(batch.records, batch.layout_version, batch.source)
        end = batch.records[-1].txid
        if printing.done:
            break
    return end


def _follow(commands: Session, journal: JournalManager, first: TxId, printing: _Printing) -> None:
    """Raises BrokenPipeError when nobody reads the output any more, though the next transaction may never come."""
    from journalmgr.errors import JournalClosed

    tail = commands.on_reactor(lambda: journal.tail(first))

    def stop() -> None:
        commands.call(tail.stop)

    with watching_listener(sys.stdout.fileno(), stop) as listener:
        try:
            while not printing.done:
                batch = commands.call(tail.next)
                printing(batch.records, batch.segment.layout_version, str(batch.segment))
        except JournalClosed as error:  # what the waiting ends with when the tail is stopped
            if not listener.gone:
                raise
            raise BrokenPipeError from error
    stop()
