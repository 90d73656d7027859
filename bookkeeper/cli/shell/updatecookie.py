"""Shell command updatecookie: a stopped bookie's cookie in its directories and in the metadata store, both at once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace

from bookkeeper.bookie.identity.cookie_rules import VERSION_FILE, Verdict, directories_of, owner
from bookkeeper.bookie.identity.id_change import rename
from bookkeeper.bookie.identity.identity import (
    advertised_host,
    bookie_id_of,
    establish,
    expected_cookie,
    lock_directories,
)
from bookkeeper.bookie.identity.moved_directories import move
from bookkeeper.cli.shell.base import ShellCommand, server_settings, with_store
from bookkeeper.cli.shell.diskcheck import cookie_of_settings, stopped_bookie
from bookkeeper.config import ServerSettings
from bookkeeper.console.connection import store_settings
from bookkeeper.console.output import EXIT_OK, EXIT_USAGE, CommandFailed, confirm, note, print_json, print_table
from bookkeeper.errors import MetadataError
from bookkeeper.filesystem import FileSystem, RealFileSystem, read_whole, remove_durable
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId

COOKIE_SIZE_MAX = 1024 * 1024
HOSTNAME, IP = "hostname", "ip"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = """\
Change, list or delete the cookie of the bookie of --conf, which must not run.

  -bookieId hostname|ip   the bookie goes on under its host name, or its address; the conf file must say
                          useHostNameAsBookieID=true, or false, already. Afterwards: updateledgers -bookieId ...
  -expandstorage          take directories that were appended to the conf file into the cookie
  -moved                  directories have other names in the conf file than in the cookie, because they were moved or
                          renamed with all of their files; that they are this bookie's is checked (not in Apache)
  -list                   where cookies of this bookie are, whose they are, and which directories they name
  -delete                 delete it in the directories and in the metadata store"""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-b", "-bookieId", "--bookieId", choices=(HOSTNAME, IP), dest="form",
                      help="the form of the id from now on (default: it stays)")  # fmt: skip
    what.add_argument("-e", "-expandstorage", "--expandstorage", action="store_true", dest="expand",
                      help="take in new empty directories")  # fmt: skip
    what.add_argument("-m", "-moved", "--moved", action="store_true", dest="moved",
                      help="take the conf file's names of directories that were moved")  # fmt: skip
    what.add_argument("-l", "-list", "--list", action="store_true", dest="list", help="list the cookies")
    what.add_argument("-d", "-delete", "--delete", nargs="?", const="", choices=("", "force"), metavar="force",
                      dest="delete", help="delete them; with `force` do not ask (default: ask)")  # fmt: skip
    parser.add_argument("-f", "-force", "--force", action="store_true", dest="force", help="do not ask")


def _updatecookie(args: argparse.Namespace) -> int:
    fs = RealFileSystem(private=server_settings(args).private_files)
    cookie = cookie_of_settings(args)
    if args.form:
        return _rename(args, fs, cookie)
    if args.expand:
        return _expand(args, fs, cookie)
    if args.moved:
        return _move(args, fs, cookie)
    if args.list:
        return _list(args, fs, cookie)
    return _delete(args, fs, cookie)


def id_in_form(settings: ServerSettings, form: str) -> BookieId:
    """The id of the bookie with these settings, were it named by its host name, or by its address.

    Raises CommandFailed where settings fix the id: neither form has a meaning then.
    """
    for key, value in (("bookieId", settings.bookie_id), ("advertisedAddress", settings.advertised_address)):
        if value:
            raise CommandFailed(
                f"{key}={value} fixes this bookie's id, whatever its host name or address is", EXIT_USAGE
            )
    named = replace(settings, use_host_name_as_bookie_id=form == HOSTNAME)
    return bookie_id_of(named, advertised_host(named), settings.bookie_port)


def forms(args: argparse.Namespace) -> tuple[BookieId, BookieId]:
    """(old id, new id) for `-bookieId hostname|ip`. Raises CommandFailed where the conf file says the other form."""
    settings = server_settings(args)
    if settings.use_host_name_as_bookie_id != (args.form == HOSTNAME):
        raise CommandFailed(
            f"-bookieId {args.form} needs useHostNameAsBookieID={'true' if args.form == HOSTNAME else 'false'} in the "
            "bookie's conf file: its next start goes by that",
            EXIT_USAGE,
        )
    old_id, new_id = id_in_form(settings, IP if args.form == HOSTNAME else HOSTNAME), id_in_form(settings, args.form)
    if old_id == new_id:
        raise CommandFailed(f"{old_id} is this bookie's id in either form: its host name is its address")
    return old_id, new_id


def _rename(args: argparse.Namespace, fs: FileSystem, cookie: Cookie) -> int:
    old_id, new_id = forms(args)

    async def use(store: MetadataStore) -> bool:
        for bookie_id in (old_id, new_id):
            if await store.registration.is_registered(bookie_id):
                raise CommandFailed(f"bookie {bookie_id} is registered: stop it first")
        return await rename(fs, store.cookies, old_id, new_id)

    with stopped_bookie(fs, cookie):
        done = with_store(args, use)
    note(f"bookie {old_id} is {new_id} now" if done else f"the metadata store knows this bookie as {new_id} already")
    note(f"its ledgers name {old_id} until `updateledgers -bookieId {args.form}` has run; then start it")
    return EXIT_OK


def _expand(args: argparse.Namespace, fs: FileSystem, cookie: Cookie) -> int:
    settings = server_settings(args)

    async def use(store: MetadataStore) -> Verdict:
        instance_id = await store.admin.instance_id()
        expected = expected_cookie(settings, cookie.bookie_id, instance_id)
        if await store.cookies.read(expected.bookie_id) is None:
            raise CommandFailed(
                f"{owner(expected)} ({settings.metadata_service_uri}) has no cookie: only a known bookie can grow; a "
                "new one takes all of its directories when it starts"
            )
        locks = lock_directories(fs, directories_of(expected))
        try:
            return await establish(
                fs, store.cookies, expected, (), expansion_allowed=True, cluster_uri=settings.metadata_service_uri
            )
        finally:
            for lock in locks:
                lock.release()

    verdict = with_store(args, use)
    grown = f"its cookie names {', '.join(directories_of(cookie))} now"
    note(f"bookie {cookie.bookie_id}: {grown if verdict is Verdict.EXPAND else 'its cookie names all of them already'}")
    return EXIT_OK


def _move(args: argparse.Namespace, fs: FileSystem, cookie: Cookie) -> int:
    async def use(store: MetadataStore) -> bool:
        if await store.registration.is_registered(cookie.bookie_id):
            raise CommandFailed(f"bookie {cookie.bookie_id} is registered: stop it first")
        return await move(fs, store.cookies, replace(cookie, instance_id=await store.admin.instance_id()))

    with stopped_bookie(fs, cookie):
        done = with_store(args, use)
    names = ", ".join(directories_of(cookie))
    note(f"bookie {cookie.bookie_id}: its cookie names {names} {'now' if done else 'already'}")
    return EXIT_OK


def _local(fs: FileSystem, cookie: Cookie) -> Iterator[tuple[str, Cookie | str]]:
    """Path and cookie wherever there is one in the directories; a reason where it cannot be read."""
    for directory in directories_of(cookie):
        path = os.path.join(directory, "current", VERSION_FILE)
        if not fs.exists(path):
            continue
        try:
            yield path, parse_cookie(read_whole(fs, path, size_max=COOKIE_SIZE_MAX), path)
        except MetadataError as error:
            yield path, str(error)


def _list(args: argparse.Namespace, fs: FileSystem, cookie: Cookie) -> int:
    uri = store_settings(args).metadata_service_uri

    async def use(store: MetadataStore) -> Cookie | None:
        stored = await store.cookies.read(cookie.bookie_id)
        return None if stored is None else parse_cookie(stored.value, f"cookie of {cookie.bookie_id}")

    rows = list(_local(fs, cookie))
    stored = with_store(args, use)
    if stored is not None:
        rows.append((uri, stored))
    if args.json:
        print_json([_described(place, found) for place, found in rows])
    else:
        print_table(
            ("place", "owner", "journal directories", "ledger directories", "index directories"),
            [_cells(place, found) for place, found in rows],
        )
    if len(rows) == (stored is not None):
        note(f"no directory of bookie {cookie.bookie_id} has a cookie")
    if stored is None:
        note(f"bookie {cookie.bookie_id} has no cookie in the metadata store ({uri})")
    return EXIT_OK


def _described(place: str, found: Cookie | str) -> dict[str, object]:
    if isinstance(found, str):
        return {"place": place, "owner": found}
    return {
        "place": place,
        "owner": owner(found),
        "journal_dirs": found.journal_dirs,
        "ledger_dirs": found.ledger_dirs,
        "index_dirs": found.index_dirs,
    }


def _cells(place: str, found: Cookie | str) -> tuple[str, str, str, str, str]:
    if isinstance(found, str):
        return place, found, "", "", ""
    index_dirs = "" if found.index_dirs is None else ",".join(found.index_dirs)
    return place, owner(found), ",".join(found.journal_dirs), ",".join(found.ledger_dirs), index_dirs


def _delete(args: argparse.Namespace, fs: FileSystem, cookie: Cookie) -> int:
    uri = store_settings(args).metadata_service_uri
    question = (
        f"Delete the cookie of bookie {cookie.bookie_id} in its directories and at {uri}? It starts again only when it "
        "is empty, or when the cookie is restored."
    )
    confirm(question, force=args.force or args.delete == "force")

    async def use(store: MetadataStore) -> bool:
        if await store.registration.is_registered(cookie.bookie_id):
            raise CommandFailed(f"bookie {cookie.bookie_id} is registered: stop it first")
        stored = await store.cookies.read(cookie.bookie_id)
        for path, _ in list(_local(fs, cookie)):
            remove_durable(fs, path)
            note(f"deleted {path}")
        if stored is not None:
            await store.cookies.delete(cookie.bookie_id, stored.version)
        return stored is not None

    with stopped_bookie(fs, cookie):
        gone = with_store(args, use)
    note(f"deleted the cookie at {uri}" if gone else f"bookie {cookie.bookie_id} had no cookie at {uri}")
    return EXIT_OK


UPDATECOOKIE = ShellCommand("--conf bk_server.conf updatecookie -bookieId hostname", _arguments, _updatecookie)
