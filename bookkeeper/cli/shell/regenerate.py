"""Shell command that makes index files of a stopped bookie anew: regenerate-interleaved-storage-index-file."""

from __future__ import annotations

import argparse
import base64
import binascii
import dataclasses
from collections.abc import Mapping
from pathlib import Path

from bookkeeper.bookie.gc import tombstones
from bookkeeper.bookie.gc.tombstone_file import FILE_SIZE_MAX
from bookkeeper.bookie.journal.content import JournalContent, Journals
from bookkeeper.bookie.offline.index_rebuild import IndexRebuild, Journaled, Rebuilt
from bookkeeper.bookie.storage.disks import refuse_rocksdb
from bookkeeper.cli.shell.base import ShellCommand, server_settings
from bookkeeper.cli.shell.diskcheck import cookie_of_settings, stopped_bookie
from bookkeeper.console.ledger_options import read_password
from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_OK,
    CommandFailed,
    Progress,
    entries,
    note,
    print_json_line,
)
from bookkeeper.console.subcommands import SEEN_BY_OTHERS
from bookkeeper.filesystem import FileSystem, RealFileSystem, read_whole
from bookkeeper.metadata.bookies.cookie import Cookie
from bookkeeper.wire.digest import master_key


def _ledger_ids(text: str) -> list[int]:
    try:
        ledger_ids = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of ledger ids, as in 7,12") from None
    if ledger_ids[0] < 0:
        raise argparse.ArgumentTypeError(f"{ledger_ids[0]} is no ledger id")
    return ledger_ids


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise argparse.ArgumentTypeError(f"{text!r} is not base64") from None


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Make the index files of these ledgers anew, from the bookie's entry logs, its journals and what is left of the old
files. The bookie must not run. Key and fence come from the old file or the journals; a ledger whose fence cannot be
known is made fenced, and one whose key cannot be known needs its password."""
    parser.add_argument("-l", "-ledgerIds", "--ledgerIds", type=_ledger_ids, required=True, metavar="L1,...,LN",
                        help="ledgers whose index files to make (required)", dest="ledger_ids")  # fmt: skip
    parser.add_argument("-dryRun", "-dryrun", "--dryRun", action="store_true", dest="dry_run", help="write nothing")
    password = parser.add_mutually_exclusive_group()
    password.add_argument(
        "-password",
        "--password",
        type=str.encode,
        metavar="TEXT",
        help=f"the ledgers' password; {SEEN_BY_OTHERS} (default: the key is known)",
    )
    password.add_argument("--password-file", type=Path, metavar="FILE",
                          help="file with the password and a final line end (default: see -password)")  # fmt: skip
    password.add_argument("-b64password", "--b64password", type=_base64, metavar="BASE64", dest="password",
                          help="the password as base64 (default: see -password)")  # fmt: skip


def _regenerate(args: argparse.Namespace) -> int:
    fs, expected = RealFileSystem(private=server_settings(args).private_files), cookie_of_settings(args)
    index_dirs = expected.index_dirs or expected.ledger_dirs
    for directory in (*expected.ledger_dirs, *index_dirs):
        if not fs.is_dir(f"{directory}/current"):
            raise CommandFailed(f"{directory} is not there or was never used: with a part of the logs no index is made")
    refuse_rocksdb(fs, (*expected.ledger_dirs, *index_dirs))
    refused = 0
    with stopped_bookie(fs, expected):
        password = args.password if args.password_file is None else read_password(args.password_file)
        key = None if password is None else master_key(password)
        journaled = read_journals(fs, expected, args.ledger_ids)
        rebuild = IndexRebuild(fs, expected.ledger_dirs, index_dirs, args.ledger_ids, journaled, lambda _: key)
        progress = Progress("entry logs read", rebuild.log_count)
        rebuild.scan(progress.update)
        progress.close()
        for ledger_id in args.ledger_ids:
            done = rebuild.result(ledger_id) if args.dry_run else rebuild.write(ledger_id)
            refused += done.refused is not None
            if args.json:
                print_json_line(dataclasses.asdict(done))
            else:
                print(_told(done, dry_run=args.dry_run))
        rebuild.close()
        _tell_of_tombstones(fs, expected, args.ledger_ids)
    return EXIT_FAILURE if refused else EXIT_OK


def _tell_of_tombstones(fs: FileSystem, expected: Cookie, ledger_ids: list[int]) -> None:
    """Ledgers that this bookie has deleted: they can be read again, and nothing else for a while (I-04)."""
    kept_days = tombstones.KEPT_S // 86400
    for directory in expected.ledger_dirs:
        path = f"{directory}/current/{tombstones.FILE_NAME}"
        if not fs.exists(path):
            continue
        found, _ = tombstones.decode_all(read_whole(fs, path, size_max=FILE_SIZE_MAX))
        for each in found:
            if each.ledger_id in ledger_ids:
                note(
                    f"ledger {each.ledger_id} was deleted here ({path}); it can be read again, but {kept_days} days "
                    "after that nobody can fence it or write to it. It is deleted again unless the cluster has it"
                )


def read_journals(fs: FileSystem, expected: Cookie, ledger_ids: list[int]) -> Journaled:
    """What the journals of a stopped bookie say of these ledgers. Raises OSError."""
    journals = Journals(settled=JournalContent(wanted=ledger_ids), replayed=JournalContent(wanted=ledger_ids))
    for fault in journals.read(fs, expected.journal_dirs, expected.ledger_dirs):
        note(str(fault))
    settled, replayed = journals.settled, journals.replayed
    return Journaled(
        keys={**replayed.keys, **settled.keys},
        fenced=settled.fenced | replayed.fenced,
        lacs=_highest(settled.lacs, replayed.lacs),
        earlier=settled.entry_ids,
        later=replayed.entry_ids,
    )


def _highest(one: Mapping[int, bytes], other: Mapping[int, bytes]) -> Mapping[int, bytes]:
    both = {**one, **other}
    return {ledger_id: max(one.get(ledger_id, b""), other.get(ledger_id, b""), key=_lac_of) for ledger_id in both}


def _lac_of(packet: bytes) -> int:
    return int.from_bytes(packet[8:16], "big", signed=True) if packet else -(1 << 63)


def _told(done: Rebuilt, *, dry_run: bool) -> str:
    held = entries(done.entry_count)
    if done.first_entry_id is not None:
        held += f", from {done.first_entry_id} to {done.last_entry_id}"
    if done.refused is not None:
        return f"ledger {done.ledger_id}: not made: {done.refused}"
    fence = f"{'fenced' if done.fenced else 'not fenced'}: {done.fence}"
    lost = (
        f"; {entries(done.only_journaled)} in old journal files only: without an entry log they are not found any more"
        if done.only_journaled
        else ""
    )
    made = "would be made" if dry_run else "made"
    return f"ledger {done.ledger_id}: {done.path} {made}: {held}; {fence}{lost}"


REGENERATE = ShellCommand(
    "--conf bk_server.conf regenerate-interleaved-storage-index-file -l 7,12", _arguments, _regenerate
)
