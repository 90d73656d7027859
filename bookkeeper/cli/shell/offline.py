"""Shell commands that read a bookie's files, ours or Apache's; no server needs to run and nothing is changed."""

from __future__ import annotations

import argparse
import os
import struct
import sys
from collections.abc import Iterator

from bookkeeper.bookie.identity.identity import DirectoryKind
from bookkeeper.bookie.journal import format as journal_format
from bookkeeper.bookie.journal.mark import NO_MARK, mark_name, read_marks
from bookkeeper.bookie.journal.replay import list_journals, scan_file
from bookkeeper.bookie.journal.torn_tails import place_of, read_set_aside
from bookkeeper.bookie.offline import inspection
from bookkeeper.bookie.storage.entry_log.format import HEADER_SIZE, log_name, parse_log_name, split_location
from bookkeeper.bookie.storage.index.format import index_name
from bookkeeper.cli.shell.base import ShellCommand, no_arguments, server_settings
from bookkeeper.cli.shell.local import directories, filled_directories
from bookkeeper.console.output import (
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    counted,
    entries,
    note,
    print_json,
    print_json_line,
    print_line,
    print_table,
)
from bookkeeper.console.subcommands import at_least
from bookkeeper.errors import CorruptRecord
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.model import ENTRY_HEADER_SIZE

_BODY_HEAD = struct.Struct(">qqqq")


def _print_body(body: bytes, where: str, *, payload_too: bool) -> None:
    if len(body) < ENTRY_HEADER_SIZE:
        print(f"{where} {len(body)} bytes: {body.hex()}")
        return
    ledger_id, entry_id, lac, length = _BODY_HEAD.unpack_from(body)
    print(f"{where} ledger {ledger_id} entry {entry_id} lac {lac} length {length} size {len(body)}")
    if payload_too:
        print(f"  digest and payload: {body[ENTRY_HEADER_SIZE:].hex()}")


# --- lastmark -------------------------------------------------------------------------------------------------------


def _lastmark(args: argparse.Namespace) -> int:
    marked = [os.path.join(path, "current") for path in filled_directories(args, DirectoryKind.LEDGER)]
    journals = directories(server_settings(args), DirectoryKind.JOURNAL)
    rows: list[tuple[str, int | None, str | None, int | None]] = []
    for index, journal in enumerate(journals):
        name = mark_name(index, len(journals))
        mark = read_marks(RealFileSystem(), marked, name)
        if mark == NO_MARK:
            note(f"{journal} has no mark: its bookie has stored nothing yet; looked for {name} in {', '.join(marked)}")
            rows.append((journal, None, None, None))
        else:
            rows.append((journal, mark.journal_id, journal_format.file_name(mark.journal_id), mark.offset))
    header = ("journal directory", "journal id", "file", "offset")
    if args.json:
        print_json([dict(zip(("directory", "journal_id", "file", "offset"), row, strict=True)) for row in rows])
    else:
        print_table(header, [["-" if cell is None else cell for cell in row] for row in rows])
    return EXIT_OK


# --- readjournal ----------------------------------------------------------------------------------------------------


class _Printer:
    """Prints what a journal holds, also what a bookie could not take."""

    entry_id_max = sys.maxsize

    def __init__(self, *, payload_too: bool) -> None:
        self._payload_too = payload_too
        self.records = 0

    def entries(self, ledger_id: int, entry_ids: list[int], bodies: list[bytes]) -> None:
        del ledger_id
        self.records += len(entry_ids)
        for body in bodies:
            _print_body(body, "entry:", payload_too=self._payload_too)

    def master_key(self, ledger_id: int, key: bytes) -> None:
        self.records += 1
        print(f"master key: ledger {ledger_id} key {key.hex() if self._payload_too else '(-m shows it)'}")

    def fence(self, ledger_id: int) -> None:
        self.records += 1
        print(f"fence: ledger {ledger_id}")

    def explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        self.records += 1
        print(f"explicit lac: ledger {ledger_id} packet {packet.hex()}")


def _readjournal_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "-msg", "--msg", action="store_true", help="print keys, digests and payloads too")
    parser.add_argument("-d", "-dir", "--dir", metavar="DIR", help="journal directory (default: the conf file's first)")
    parser.add_argument("journal", nargs="?", metavar="FILE|ID",
                        help="a path, a file name or a hexadecimal journal id (default: every file); also a .torn "
                             "file, which a start set aside")  # fmt: skip


def _readjournal(args: argparse.Namespace) -> int:
    fs = RealFileSystem()
    if args.journal and os.path.sep in args.journal:
        directory, name = os.path.split(args.journal)
    else:
        directory, name = args.dir or filled_directories(args, DirectoryKind.JOURNAL)[0], args.journal or ""
        if fs.is_dir(os.path.join(directory, "current")):
            directory = os.path.join(directory, "current")
    if not fs.is_dir(directory):
        raise CommandFailed(f"{directory} is no directory; name a journal file or its directory (-d)")
    if place_of(name) is not None:
        return _read_set_aside(fs, os.path.join(directory, name), payload_too=args.msg)
    ids = [_journal_id(name)] if name else list_journals(fs, directory)
    if not ids:
        raise CommandFailed(f"{directory} holds no journal file")
    for journal_id in ids:
        path = os.path.join(directory, journal_format.file_name(journal_id))
        if not fs.exists(path):
            raise CommandFailed(f"there is no journal file {path}")
        printer = _Printer(payload_too=args.msg)
        scan = scan_file(fs, directory, journal_id, 0, printer)
        kind = "group commits with checksums" if scan.ours else "records without checksums"
        end = f", ends in a torn group: {scan.torn}" if scan.torn else ""
        note(
            f"{journal_format.file_name(journal_id)}: format {scan.version}, {kind}, "
            f"{counted(printer.records, 'record')}, {counted(scan.end, 'byte')}{end}"
        )
    return EXIT_OK


def _read_set_aside(fs: RealFileSystem, path: str, *, payload_too: bool) -> int:
    if not fs.exists(path):
        raise CommandFailed(f"there is no file {path}")
    printer = _Printer(payload_too=payload_too)
    found = read_set_aside(fs, path, printer)
    looked = "" if found.read_size == found.size else f" (the first {found.read_size:,} were looked at)"
    checked = "no group in them has a right checksum: any record may be damaged"
    if found.intact:
        checked = f"{counted(found.intact, 'group')} of them right by the checksum, any record of others may be damaged"
    note(
        f"{os.path.basename(path)}: {counted(found.size, 'byte')}{looked} that stood at offset {found.offset} of "
        f"{journal_format.file_name(found.journal_id)} and were taken for no whole group; "
        f"{counted(printer.records, 'record')} can be made out; {checked}. None was replayed; torn by a crash nobody "
        "was told that they are durable, damaged later they may have been acknowledged: `bookkeeper why ledger N` says "
        "which bookies have copies"
    )
    return EXIT_OK


def _journal_id(name: str) -> int:
    journal_id = journal_format.journal_id_of(name)
    if journal_id is not None:
        return journal_id
    try:
        return int(name, 16)
    except ValueError:
        raise CommandFailed(f"{name!r} is no journal file name and no hexadecimal journal id", EXIT_USAGE) from None


# --- readlog, readlogmetadata ---------------------------------------------------------------------------------------


def _log_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="FILE|ID", help="a path, a file name or an entry log id (decimal)")


def _readlog_arguments(parser: argparse.ArgumentParser) -> None:
    _log_arguments(parser)
    parser.add_argument("-m", "-msg", "--msg", action="store_true", help="print digests and payloads too")
    parser.add_argument("-l", "-ledgerid", "--ledgerid", type=int, metavar="ID", help="only this ledger (default: all)")
    parser.add_argument("-e", "-entryid", "--entryid", type=int, metavar="ID", help="only this entry (default: all)")
    parser.add_argument("-sp", "-startpos", "--startpos", type=int, default=HEADER_SIZE, metavar="OFFSET",
                        help="where a record begins (default: %(default)s)")  # fmt: skip
    parser.add_argument("-ep", "-endpos", "--endpos", type=int, metavar="OFFSET", help="stop there (default: the end)")


def _find_log(args: argparse.Namespace) -> tuple[int, str]:
    """(log id, path) of the log that the arguments name."""
    name: str = args.log
    if os.path.sep in name or os.path.exists(name):
        if not os.path.isfile(name):
            raise CommandFailed(f"there is no entry log {name}")
        log_id = parse_log_name(os.path.basename(name))
        return (0 if log_id is None else log_id), name
    log_id = parse_log_name(name)
    if log_id is None:
        try:
            log_id = int(name)
        except ValueError:
            raise CommandFailed(f"{name!r} is no entry log file name and no entry log id", EXIT_USAGE) from None
    current = [os.path.join(path, "current") for path in filled_directories(args, DirectoryKind.LEDGER)]
    for directory in current:
        path = os.path.join(directory, log_name(log_id))
        if os.path.exists(path):
            return log_id, path
    raise CommandFailed(f"no entry log {log_id} ({log_name(log_id)}) in {', '.join(current)}")


def _is_empty(path: str) -> bool:
    """True, with a note, for a log without even a header: Apache's bookie creates the next log ahead of its need."""
    if os.path.getsize(path):
        return False
    note(f"{path}: empty, created ahead and not written yet")
    return True


def _readlog(args: argparse.Namespace) -> int:
    log_id, path = _find_log(args)
    if _is_empty(path):
        return EXIT_OK
    wanted_body = args.msg
    count = 0
    for record in inspection.iter_records(RealFileSystem(), path, log_id=log_id, start=args.startpos):
        if args.endpos is not None and record.offset >= args.endpos:
            break
        if args.ledgerid not in (None, record.ledger_id) or args.entryid not in (None, record.entry_id):
            continue
        count += 1
        _print_body(record.body or b"", f"{record.offset}:", payload_too=wanted_body)
    note(f"{path}: {entries(count)}")
    return EXIT_OK


def _readlogmetadata(args: argparse.Namespace) -> int:
    _, path = _find_log(args)
    if _is_empty(path):
        return EXIT_OK
    fs = RealFileSystem()
    header = inspection.read_log_header(fs, path)
    why = "the log has no ledgers map"
    try:
        ledgers = inspection.read_ledgers_map(fs, path)
    except CorruptRecord as error:  # Apache's bookies leave such maps; a scan tells as well
        ledgers, why = None, str(error)
    source = "ledgers map"
    if ledgers is None:
        ledgers, source = inspection.scan_ledgers(fs, path), f"scan: {why}"
    if args.json:
        print_json({"path": path, "version": header.version, "source": source, "ledgers": ledgers})
    else:
        print_table(("ledger", "bytes"), sorted(ledgers.items()))
    size = counted(sum(ledgers.values()), "byte")
    note(f"{path}: version {header.version}, {counted(len(ledgers), 'ledger')}, {size} ({source})")
    return EXIT_OK


# --- ledger, listfilesondisc ----------------------------------------------------------------------------------------


def _ledger_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "-meta", "--meta", action="store_true", help="the header only")
    parser.add_argument("ledger_id", type=at_least(0), metavar="LEDGER")


def _ledger(args: argparse.Namespace) -> int:
    fs = RealFileSystem()
    filled = filled_directories(args, DirectoryKind.INDEX)
    paths = [os.path.join(directory, "current", index_name(args.ledger_id)) for directory in filled]
    path = next((path for path in paths if fs.exists(path)), None)
    if path is None:
        raise CommandFailed(f"ledger {args.ledger_id} has no index file: looked for {', '.join(paths)}")
    header = inspection.read_index_header(fs, path)
    lac = header.explicit_lac.hex() if header.explicit_lac else "none"
    print(f"{path}: version {header.version}, fenced {'yes' if header.fenced else 'no'}, explicit lac {lac}")
    if args.meta:
        return EXIT_OK
    for entry_id, location in inspection.iter_index(fs, path):
        log_id, offset = split_location(location)
        print(f"entry {entry_id}: (log {log_id}, {log_name(log_id)}, pos {offset})")
    return EXIT_OK


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-txn", "--journal", action="store_true", dest="txn", help="journal files")
    parser.add_argument("-log", "--entrylog", action="store_true", dest="log", help="entry logs")
    parser.add_argument("-idx", "--index", action="store_true", dest="idx", help="index files")


def _files(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    fs = RealFileSystem()
    everything = not (args.txn or args.log or args.idx)
    if args.txn or everything:
        for directory in filled_directories(args, DirectoryKind.JOURNAL):
            current = os.path.join(directory, "current")
            for journal_id in list_journals(fs, current):
                yield "journal", os.path.join(current, journal_format.file_name(journal_id))
    if args.log or everything:
        for _, path in inspection.list_entry_logs(fs, filled_directories(args, DirectoryKind.LEDGER)):
            yield "entry log", path
    if args.idx or everything:
        for _, path in inspection.list_index_files(fs, filled_directories(args, DirectoryKind.INDEX)):
            yield "index", path


def _listfilesondisc(args: argparse.Namespace) -> int:
    count = 0
    for kind, path in _files(args):
        count += 1
        if args.json:
            print_json_line({"kind": kind, "path": path})
        else:
            print_line(f"{kind:<9}  {path}")
    note(counted(count, "file"))
    return EXIT_OK


LASTMARK = ShellCommand("--conf bk_server.conf lastmark", no_arguments, _lastmark)
READJOURNAL = ShellCommand("--conf bk_server.conf readjournal -m 19abc.txn", _readjournal_arguments, _readjournal)
READLOG = ShellCommand("--conf bk_server.conf readlog -l 7 0.log", _readlog_arguments, _readlog)
READLOGMETADATA = ShellCommand("--conf bk_server.conf readlogmetadata 0", _log_arguments, _readlogmetadata)
LEDGER = ShellCommand("--conf bk_server.conf ledger -m 7", _ledger_arguments, _ledger)
LISTFILESONDISC = ShellCommand("--conf bk_server.conf listfilesondisc -txn", _list_arguments, _listfilesondisc)
