"""Shell commands on a bookie's own directories: bookieformat; and which directories a conf file names."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from bookkeeper.bookie.addresses import interface_address
from bookkeeper.bookie.identity import (
    DirectoryKind,
    advertised_host,
    bookie_id_of,
    directories_of,
    expected_cookie,
    lock_directories,
)
from bookkeeper.cli.output import EXIT_OK, EXIT_USAGE, CommandFailed, confirm, note
from bookkeeper.cli.shell.base import ShellCommand, add_force, server_settings, with_store
from bookkeeper.config import ServerSettings
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId


def configured_bookie_id(args: argparse.Namespace) -> str:
    """The id of the bookie whose conf file was given. Raises CommandFailed without --conf, ConfigurationError."""
    if args.conf is None:
        raise CommandFailed("which bookie? Give its conf file (--conf) before the command", EXIT_USAGE)
    settings = server_settings(args)
    host = advertised_host(settings, interface_address(settings.listening_interface))
    return bookie_id_of(settings, host, settings.bookie_port)


def current_directories(settings: ServerSettings, kind: DirectoryKind) -> list[str]:
    """`<directory>/current` of each directory used for `kind`."""
    paths = {
        DirectoryKind.JOURNAL: settings.journal_directories,
        DirectoryKind.LEDGER: settings.ledger_directories,
        DirectoryKind.INDEX: settings.index_directories,
    }[kind]
    return [os.path.join(path, "current") for path in paths]


def _bookieformat_arguments(parser: argparse.ArgumentParser) -> None:
    add_force(parser)
    parser.add_argument("-d", "-deleteCookie", "--deleteCookie", action="store_true", dest="delete_cookie",
                        help="delete its cookie in the metadata store too")  # fmt: skip


def _bookieformat(args: argparse.Namespace) -> int:
    """Empty the directories of a stopped bookie."""
    settings = server_settings(args)
    bookie_id = BookieId(configured_bookie_id(args))
    directories = directories_of(expected_cookie(settings, bookie_id, ""))
    filled = [path for path in directories if Path(path, "current").is_dir() and any(Path(path, "current").iterdir())]
    if filled and args.non_interactive and not args.force:
        raise CommandFailed(f"{filled[0]} is not empty; -nonInteractive needs -force to format it")
    if filled:
        confirm(f"Delete everything in {', '.join(filled)}?", force=args.force)
    for lock in lock_directories(RealFileSystem(), directories):
        lock.release()  # no bookie runs on them
    for path in filled:
        shutil.rmtree(Path(path, "current"))
        note(f"emptied {path}")
    if args.delete_cookie:

        async def use(store: MetadataStore) -> bool:
            stored = await store.cookies.read(bookie_id)
            if stored is not None:
                await store.cookies.delete(bookie_id, stored.version)
            return stored is not None

        gone = with_store(args, use)
        note(f"deleted the cookie of {bookie_id}" if gone else f"{bookie_id} had no cookie")
    return EXIT_OK


BOOKIEFORMAT = ShellCommand(
    "--conf bk_server.conf bookieformat -force -deleteCookie", _bookieformat_arguments, _bookieformat
)
