"""Shell commands on a bookie's own directories: bookieformat; and which directories a conf file names.

What of `bookieformat` is asked, refused or said only, with n ledgers that name the bookie as a holder of copies:

                              n = 0        n > 0, or unknown as the metadata store cannot be asked
    (no flag)                 asks         asks, saying n
    -force                    formats      asks, saying n; refuses where nobody can be asked
    -force -lose              formats      says n, formats
    -nonInteractive -force    formats      says n, formats: scripts written for Apache's go on working
    -nonInteractive           refuses      refuses

Differs from Apache: there -force never asks, and nobody says what is lost.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from bookkeeper.bookie.identity.identity import (
    DirectoryKind,
    advertised_host,
    bookie_id_of,
    directories_of,
    expected_cookie,
    lock_directories,
)
from bookkeeper.cli.shell.base import ShellCommand, add_force, loaded_server_settings, server_settings, with_store
from bookkeeper.config import ServerSettings, Source
from bookkeeper.console.known_bookies import count_naming
from bookkeeper.console.output import EXIT_OK, EXIT_USAGE, CommandFailed, Progress, confirm, counted, note
from bookkeeper.errors import MetadataError, NotInitialised
from bookkeeper.filesystem import RealFileSystem
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId

NAMING_MAX = 10_000
"""Ledgers that name a bookie are counted up to this."""

NO_CONF = "which bookie? Before the command, give its conf file (--conf FILE)"


def configured_bookie_id(args: argparse.Namespace) -> str:
    """The id of the bookie whose conf file was given. Raises CommandFailed without --conf, ConfigurationError."""
    if args.conf is None:
        raise CommandFailed(NO_CONF, EXIT_USAGE)
    settings = server_settings(args)
    return bookie_id_of(settings, advertised_host(settings), settings.bookie_port)


def directories(settings: ServerSettings, kind: DirectoryKind) -> list[str]:
    """Each directory used for `kind`."""
    paths = {
        DirectoryKind.JOURNAL: settings.journal_directories,
        DirectoryKind.LEDGER: settings.ledger_directories,
        DirectoryKind.INDEX: settings.index_directories,
    }[kind]
    return [str(path) for path in paths]


def filled_directories(args: argparse.Namespace, kind: DirectoryKind) -> list[str]:
    """The directories used for `kind` that a bookie has used already; one that is not such is told on standard error.

    Raises CommandFailed when nobody said where they are, since what lies at the default place is some other bookie's
    or nobody's, and when none of them was ever used. Raises ConfigurationError.
    """
    loaded = loaded_server_settings(args)
    name = kind.value
    if kind is DirectoryKind.INDEX and loaded.origin(name).source is Source.DEFAULT:
        name = DirectoryKind.LEDGER.value
    origin, named = loaded.origin(name), directories(loaded.settings, kind)
    if args.conf is None and origin.source is Source.DEFAULT:
        raise CommandFailed(f"{NO_CONF}, or its directories (-D {name}=DIR)", EXIT_USAGE)
    filled = [path for path in named if Path(path, "current").is_dir()]
    for path in named:
        if path not in filled:
            why = "is not there" if not Path(path).exists() else "was never used by a bookie: it has no `current`"
            note(f"{path} {why} ({name}, {origin.place})")
    if not filled:
        raise CommandFailed(f"nothing to read: check --conf, or name the directory (-D {name}=DIR)")
    return filled


def _bookieformat_arguments(parser: argparse.ArgumentParser) -> None:
    add_force(parser)
    parser.add_argument("-lose", "--lose", action="store_true",
                        help="with -force: also where ledgers name the bookie and lose its copy")  # fmt: skip
    parser.add_argument("-d", "-deleteCookie", "--deleteCookie", action="store_true", dest="delete_cookie",
                        help="delete its cookie in the metadata store too")  # fmt: skip


def _bookieformat(args: argparse.Namespace) -> int:
    """Empty the directories of a stopped bookie."""
    settings = server_settings(args)
    bookie_id = BookieId(configured_bookie_id(args))
    kinds = directories_of(expected_cookie(settings, bookie_id, ""))
    filled = [path for path in kinds if Path(path, "current").is_dir() and any(Path(path, "current").iterdir())]
    if filled and args.non_interactive and not args.force:
        raise CommandFailed(f"{filled[0]} is not empty; -nonInteractive needs -force to format it")
    for lock in lock_directories(RealFileSystem(private=settings.private_files), kinds):
        lock.release()  # no bookie runs on them
    if filled:
        _confirm_loss(args, bookie_id, filled)
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


def _confirm_loss(args: argparse.Namespace, bookie_id: BookieId, filled: list[str]) -> None:
    """As in the table above. Raises CommandFailed."""
    lost = _what_is_lost(args, bookie_id)
    goes_on = args.force and (not lost or args.lose or args.non_interactive)
    if goes_on and lost:
        note(f"WARNING: {lost}")
    elif lost and args.force and not sys.stdin.isatty():
        raise CommandFailed(
            f"{lost}. Move its copies first (`bookkeeper shell decommissionbookie -bookieid {bookie_id}`), or say "
            "-lose beside -force"
        )
    confirm(f"{lost + '. ' if lost else ''}Delete everything in {', '.join(filled)}?", force=goes_on)


def _what_is_lost(args: argparse.Namespace, bookie_id: BookieId) -> str:
    """Who still needs what is here, in words; "" where nobody does."""

    async def use(store: MetadataStore) -> int:
        return await count_naming(
            store, bookie_id, at_most=NAMING_MAX, on_seen=progress.update, bad_records=bad_records
        )

    bad_records = BadRecords()
    progress = Progress("ledgers looked at")
    try:
        named = with_store(args, use)
    except NotInitialised:
        return ""  # no cluster, no ledgers
    except MetadataError as error:
        return f"whether ledgers have copies on {bookie_id} only here cannot be found out: {error}"
    finally:
        progress.close()
    return lost_text(bookie_id, named, bad_records)


def lost_text(bookie_id: BookieId, named: int, bad_records: BadRecords) -> str:
    """Return what the bookie loses if it is emptied, or "". named: number of ledgers that name it."""
    stray = f"{counted(bad_records.count, 'record')} among the ledgers cannot be read" if bad_records else ""
    if not named:
        return stray and f"no ledger names {bookie_id} as a holder of copies, but {stray}: {bad_records.named[0]}"
    number = (
        f"{NAMING_MAX:,} ledgers or more name"
        if named >= NAMING_MAX
        else counted(named, "ledger names", "ledgers name")
    )
    return f"{number} {bookie_id} as a holder of copies, and would lose what it has of them{stray and f'; {stray}'}"


BOOKIEFORMAT = ShellCommand(
    "--conf bk_server.conf bookieformat -force -lose -deleteCookie", _bookieformat_arguments, _bookieformat
)
