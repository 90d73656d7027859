"""Shell commands on ledgers."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from bookkeeper.cli.ledger.inspect import (
    check_begin,
    end_listing,
    ends_at,
    metadata_json,
    note_unconfirmed,
    print_listed,
    print_metadata,
    print_unreadable,
)
from bookkeeper.cli.shell.base import ShellCommand, connect, with_store
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.console.output import (
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    Progress,
    confirm,
    counted,
    entries,
    note,
    print_json,
)
from bookkeeper.console.subcommands import at_least, check_range
from bookkeeper.errors import MetadataCorrupt, MetadataTooNew, NoSuchLedger
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import LedgerId, LedgerMetadata, Versioned


def _listledgers_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "-meta", "--meta", action="store_true", help="with metadata")
    parser.add_argument(
        "-bookieid", "--bookieid", metavar="BOOKIE", help="only ledgers of this bookie (default: of all)"
    )


def _listledgers(args: argparse.Namespace) -> int:
    progress = Progress("ledgers looked at")
    strays, unreadable = BadRecords(), BadRecords()
    shown = seen = 0
    with connect(args) as client:
        for batch in client.ids(strays):
            for ledger_id in batch:
                seen += 1
                try:
                    metadata = client.metadata(ledger_id) if args.meta or args.bookieid else None
                except NoSuchLedger:
                    continue  # deleted since it was listed
                except MetadataCorrupt as error:
                    print_unreadable(ledger_id, unreadable.add_unreadable(error), as_json=args.json)
                    continue
                if args.bookieid and metadata is not None and not _names(metadata, args.bookieid):
                    continue
                shown += 1
                print_listed(metadata if args.meta else None, ledger_id, as_json=args.json)
            progress.update(seen)
    progress.close()
    note(counted(shown, "ledger"))
    return end_listing(strays, unreadable, as_json=args.json)


def _names(metadata: LedgerMetadata, bookie_id: str) -> bool:
    return any(bookie_id in fragment.ensemble for fragment in metadata.fragments)


def _add_ledger_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-l", "-ledgerid", "--ledgerid", type=at_least(0), required=True, dest="ledger_id",
                        metavar="ID", help="the ledger; required")  # fmt: skip


def _ledgermetadata_arguments(parser: argparse.ArgumentParser) -> None:
    _add_ledger_id(parser)
    parser.add_argument(
        "-dumptofile", "--dumptofile", type=Path, metavar="FILE", help="write it to FILE (default: print it)"
    )
    parser.add_argument(
        "-restorefromfile",
        "--restorefromfile",
        type=Path,
        metavar="FILE",
        help="create the ledger from such a FILE (default: print what is stored)",
    )
    parser.add_argument(
        "-update", "--update", action="store_true", help="with -restorefromfile: replace an existing one"
    )
    parser.add_argument("--secrets", action="store_true", help="show the password too")


def _ledgermetadata(args: argparse.Namespace) -> int:
    from bookkeeper.metadata.ledgers.codec import format_ledger, parse_ledger

    ledger_id = LedgerId(args.ledger_id)
    if args.dumptofile and args.restorefromfile:
        raise CommandFailed("take either -dumptofile or -restorefromfile", EXIT_USAGE)
    restored = (
        parse_ledger(args.restorefromfile.read_bytes(), str(args.restorefromfile)) if args.restorefromfile else None
    )

    async def use(store: MetadataStore) -> Versioned[LedgerMetadata]:
        if restored is None:
            return await store.ledgers.read(ledger_id)
        if args.update:
            return await store.ledgers.write(ledger_id, restored, await _version(store, ledger_id))
        return (await store.ledgers.create(restored, ledger_id))[1]

    versioned = with_store(args, use)
    if args.dumptofile:
        args.dumptofile.write_bytes(format_ledger(versioned.value))
        note(f"metadata of ledger {ledger_id} written to {args.dumptofile}")
    elif args.json:
        shown = metadata_json(ledger_id, versioned.value, secrets=args.secrets)
        print_json({**shown, "version": versioned.version})
    else:
        print_metadata(ledger_id, versioned.value)
    return EXIT_OK


async def _version(store: MetadataStore, ledger_id: LedgerId) -> int:
    """Return the version of a record that is to be replaced. A record of a newer release is not replaced."""
    try:
        return (await store.ledgers.read(ledger_id)).version
    except MetadataCorrupt as error:
        if error.version is None or isinstance(error, MetadataTooNew):
            raise
        return error.version


def _readledger_arguments(parser: argparse.ArgumentParser) -> None:
    _add_ledger_id(parser)
    parser.add_argument(
        "-fe", "-firstentryid", "--firstentryid", type=at_least(0), default=0, metavar="ID", help="(default: 0)"
    )
    parser.add_argument("-le", "-lastentryid", "--lastentryid", type=at_least(-1), default=-1, metavar="ID",
                        help="(default: -1, the last one)")  # fmt: skip
    parser.add_argument("-m", "-msg", "--msg", action="store_true", help="print the payloads")
    parser.add_argument("-r", "-force-recovery", "--force-recovery", action="store_true", dest="recover",
                        help="recover first: fences the writer and closes the ledger")  # fmt: skip
    parser.add_argument("-b", "-bookie", "--bookie", metavar="BOOKIE",
                        help="read from this bookie only (default: from the ledger's)")  # fmt: skip


def _readledger(args: argparse.Namespace) -> int:
    if args.lastentryid >= 0:
        check_range(args.firstentryid, args.lastentryid, f"-fe {args.firstentryid} -le {args.lastentryid}")
    with connect(args) as client:
        if args.bookie:
            from bookkeeper.cli.shell.onecopy import read_copy

            said = read_copy(args, client, partial(_print_entry, args.ledger_id, payload_too=args.msg))
        else:
            said = entries(_read(args, client))
    note(said)
    return EXIT_OK


def _read(args: argparse.Namespace, client: BlockingBookKeeper) -> int:
    count = 0
    with client.open_as_administrator(args.ledger_id, recover=args.recover) as handle:
        last = end = handle.last_add_confirmed
        check_begin(args.ledger_id, args.firstentryid, end)
        if args.lastentryid >= 0:
            last = min(end, args.lastentryid)
        batches = handle.batches(args.firstentryid, last) if last >= args.firstentryid else ()
        for batch in batches:
            for entry in batch:
                _print_entry(args.ledger_id, entry.entry_id, entry.payload, payload_too=args.msg)
            count += len(batch)
        note_unconfirmed(args.ledger_id, handle.report_unconfirmed(end) if last == end else None)
    if args.lastentryid > end:
        note(f"{ends_at(args.ledger_id, end)}, before -le {args.lastentryid}")
    return count


def _print_entry(ledger_id: int, entry_id: int, payload: bytes, *, payload_too: bool) -> None:
    print(f"--------- Lid={ledger_id}, Eid={entry_id}, EntrySize={len(payload)} ---------")
    if payload_too:
        sys.stdout.flush()
        sys.stdout.buffer.write(payload + b"\n")
        sys.stdout.buffer.flush()


def _deleteledger_arguments(parser: argparse.ArgumentParser) -> None:
    _add_ledger_id(parser)
    parser.add_argument("-f", "-force", "--force", action="store_true", help="do not ask")


def _deleteledger(args: argparse.Namespace) -> int:
    with connect(args) as client:
        metadata = client.metadata(args.ledger_id)
        confirm(f"Delete ledger {args.ledger_id} ({metadata.state.name})?", force=args.force)
        client.delete(args.ledger_id)
    note(f"deleted ledger {args.ledger_id}")
    return EXIT_OK


LISTLEDGERS = ShellCommand("listledgers -m -bookieid 127.0.0.1:3181", _listledgers_arguments, _listledgers)
LEDGERMETADATA = ShellCommand(
    "ledgermetadata -l 7 -dumptofile ledger-7.metadata", _ledgermetadata_arguments, _ledgermetadata
)
READLEDGER = ShellCommand("readledger -l 7 -fe 0 -le 99 -m", _readledger_arguments, _readledger)
DELETELEDGER = ShellCommand("deleteledger -l 7 -force", _deleteledger_arguments, _deleteledger)
