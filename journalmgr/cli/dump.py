"""Print the transactions of a journal, or of one file of edits. Nothing is changed, and nobody who writes is disturbed.

A segment in progress is printed as far as it is confirmed. Damage ends the output, unless --resync goes on behind it:
every range that was skipped is told on standard error, and the exit code is 1.

examples:
  journalmgr dump file:///var/lib/edits                                        JSON lines
  journalmgr dump 'bookkeeper://zk1:2181;zk2:2181/hdfsjournal' --from 100 --to 200 --format xml
  journalmgr dump edits_0000000000000000001-0000000000000000091 --format xml   as `hdfs oev -p xml`
  journalmgr dump --format edits > edits                                       a file that name nodes read
  journalmgr dump edits_inprogress_0000000000000000092 --resync                what can still be read
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.console.output import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, CommandFailed, Progress, counted, note
from bookkeeper.console.subcommands import at_least
from journalmgr.cli.damage import remedy, remedy_of_file, telling
from journalmgr.cli.session import add_settings_arguments, session

if TYPE_CHECKING:
    from journalmgr.cli.session import Session
    from journalmgr.contract import JournalManager
    from journalmgr.errors import EditsError
    from journalmgr.reading import Found

FORMATS = ("json", "xml", "hex", "edits")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr dump`."""
    parser.add_argument(
        "journal",
        nargs="?",
        metavar="JOURNAL|FILE",
        help="a journal's URI, or the path of a file of edits (default: the setting dfs.namenode.shared.edits.dir)",
    )
    parser.add_argument("--from", type=_txid, dest="first", metavar="TXID", help="the first (default: the first)")
    parser.add_argument("--to", type=at_least(0), dest="last", metavar="TXID", help="the last (default: the last)")
    parser.add_argument("--format", choices=FORMATS, default="json", help="how (default: %(default)s, one per line)")
    parser.add_argument("--resync", action="store_true", help="go on behind damage, and say what was skipped")
    add_settings_arguments(parser, json_text="the same as --format json")


def _txid(text: str) -> int:
    try:
        return at_least(1)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}: txids begin at 1") from error


def run(args: argparse.Namespace) -> int:
    """Print the transactions."""
    if args.json and args.format != "json":
        raise CommandFailed(f"--json and --format {args.format}: choose one of them", EXIT_USAGE)
    if args.first is not None and args.last is not None and args.last < args.first:
        raise CommandFailed(f"--from {args.first} --to {args.last}: the last is before the first", EXIT_USAGE)
    if args.format == "edits" and sys.stdout.isatty():
        raise CommandFailed("a file of edits is no text for a terminal: send standard output to a file", EXIT_USAGE)
    if args.journal is not None and "://" not in args.journal and not args.journal.startswith("file:"):
        path = Path(args.journal)
        if path.is_dir():
            raise CommandFailed(_instead_of(path), EXIT_USAGE)
        with telling(remedy_of_file(args.journal)):
            return _print(args, _from_file(args, path))
    with session(args) as commands:
        uri = commands.uri(args.journal)
        with telling(remedy(uri)):
            return _print(args, _from_journal(args, commands, uri))


def _instead_of(directory: Path) -> str:
    """What may have been meant by a directory."""
    from journalmgr.files.names import CURRENT

    whole = directory.resolve()
    if not (whole / CURRENT).is_dir() and whole.name == CURRENT:
        whole = whole.parent
    if (whole / CURRENT).is_dir():
        return f"{directory} is a directory: write {whole.as_uri()} for the journal in it, or name one of its files"
    return f"{directory} is a directory, and no journal: name a file of edits, or a journal by its URI"


def _from_file(args: argparse.Namespace, path: Path) -> Iterator[Found]:
    from journalmgr.reading import read_file, salvage_file

    return salvage_file(path) if args.resync else read_file(path)


def _from_journal(args: argparse.Namespace, commands: Session, uri: str) -> Iterator[Found]:
    from journalmgr.reading import read_journal, salvage_ledgers, salvage_segment

    journal = commands.open(uri)
    if not args.resync:
        _note_end(args, commands, journal)
        end = (args.first or 1) - 1
        for batch in commands.each(read_journal(journal, args.first, args.last)):
            yield batch
            end = batch.records[-1].txid
        if args.last is None or end < args.last:
            commands.note_left_out(uri, journal, end)
        return
    segments = [
        segment
        for segment in commands.call(journal.segments)
        if (args.last is None or segment.first_txid <= args.last)
        and (args.first is None or segment.last_txid is None or segment.last_txid >= args.first)
    ]
    if not segments:
        _note_end(args, commands, journal)
    audit = commands.open_audit(uri)
    if audit is not None:
        yield from commands.each(salvage_ledgers(audit, segments))
        return
    directory = _directory(uri)
    for segment in segments:
        yield from salvage_segment(directory / segment.name, in_progress=segment.in_progress)


def _note_end(args: argparse.Namespace, commands: Session, journal: JournalManager) -> None:
    """Say where the journal ends, if that is before what is asked for."""
    from journalmgr.reading import where_it_ends

    if args.first is not None and (ends := commands.run(lambda: where_it_ends(journal, args.first))) is not None:
        note(f"--from {args.first}: {ends}")


def _directory(uri: str) -> Path:
    """Where a journal on files has its files. Raises CommandFailed for a journal of another kind."""
    from journalmgr.files.names import CURRENT
    from journalmgr.uri import parse_uri

    parsed = parse_uri(uri)
    if parsed.scheme != "file":
        raise CommandFailed(f"{uri}: --resync does not know how journals of the scheme {parsed.scheme!r} are kept")
    return Path(parsed.path) / CURRENT


def _print(args: argparse.Namespace, found: Iterator[Found]) -> int:
    """Print what comes; 1 where anything was skipped."""
    from journalmgr.cli.records import printer_of
    from journalmgr.reading import Jumps
    from journalmgr.salvage import Skipped

    skipped = 0

    def tell(error: EditsError) -> None:
        nonlocal skipped
        if not args.resync:
            raise error
        skipped += 1
        note(f"skipped: {error}")

    printer = printer_of(args.format, tell)
    jumps = Jumps(args.first)
    progress = Progress("transactions printed") if not sys.stdout.isatty() else None
    out = sys.stdout.buffer
    printed = 0
    end: int | None = None
    for each in found:
        if isinstance(each, Skipped):
            skipped += 1
            note(str(each))
            continue
        end = each.records[-1].txid
        records = [
            record
            for record in each.records
            if (args.first is None or record.txid >= args.first) and (args.last is None or record.txid <= args.last)
        ]
        if not records:
            continue
        for jump in jumps.look(records) if args.resync else ():
            skipped += 1
            note(f"{each.source}: {jump}")
        out.write(printer.records(records, each.layout_version, each.source))
        printed += len(records)
        if progress is not None:
            progress.update(printed)
    out.write(printer.end())
    out.flush()
    if progress is not None:
        progress.close()
    if args.first is not None and end is not None and end < args.first:
        note(f"--from {args.first}: what is there ends at txid {end}")
    note(counted(printed, "transaction"))
    return EXIT_FAILURE if skipped else EXIT_OK
