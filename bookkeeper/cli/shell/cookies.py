"""Shell commands on the cookies of the metadata store: cookie_create, cookie_update, cookie_get, cookie_delete, and
cookie_generate, which writes a file only.

Differs from Apache: a cookie is taken only for the bookie and the cluster that it names; with any other the bookie's
next start would be refused.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from bookkeeper.bookie.identity.cookie_rules import VERSION_FILE, directories_of, owner
from bookkeeper.cli.shell.base import ShellCommand, with_store
from bookkeeper.console.connection import store_settings
from bookkeeper.console.output import EXIT_OK, CommandFailed, note, print_json
from bookkeeper.errors import MetadataError, VersionConflict
from bookkeeper.metadata.bookies.cookie import Cookie, parse_cookie
from bookkeeper.metadata.bookies.service_info import check_bookie_id
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import BookieId, Versioned

COOKIE_SIZE_MAX = 1024 * 1024


def _add_bookie_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bookie_id", metavar="BOOKIE-ID", type=BookieId, help="as `listbookies -a` has it")


def _file_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-cf", "-cookie-file", "--cookie-file", type=Path, required=True, metavar="FILE",
                        dest="cookie_file", help="the cookie, as a VERSION file has it (required)")  # fmt: skip
    _add_bookie_id(parser)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(COOKIE_SIZE_MAX)
    except OSError as error:
        raise CommandFailed(f"--cookie-file {path}: cannot be read: {error.strerror}") from error


async def _check_owner(store: MetadataStore, args: argparse.Namespace, cookie: Cookie, uri: str) -> None:
    """Raise CommandFailed unless the cookie is that of the bookie that was named, in this cluster."""
    cluster = await store.admin.instance_id()
    if cookie.bookie_id != args.bookie_id or cookie.instance_id not in (None, cluster):
        raise CommandFailed(
            f"{args.cookie_file} is the cookie of {owner(cookie)}, not of bookie {args.bookie_id} of cluster {cluster} "
            f"({uri})"
        )


def _create(args: argparse.Namespace) -> int:
    uri = store_settings(args).metadata_service_uri
    data = _read_file(args.cookie_file)
    cookie = parse_cookie(data, str(args.cookie_file))

    async def use(store: MetadataStore) -> None:
        await _check_owner(store, args, cookie, uri)
        try:
            await store.cookies.write(args.bookie_id, data, None)
        except VersionConflict as error:
            raise CommandFailed(f"{error}; cookie_update replaces it") from error

    with_store(args, use)
    note(f"created the cookie of {owner(cookie)} ({uri})")
    return EXIT_OK


def _update(args: argparse.Namespace) -> int:
    uri = store_settings(args).metadata_service_uri
    data = _read_file(args.cookie_file)
    cookie = parse_cookie(data, str(args.cookie_file))

    async def use(store: MetadataStore) -> None:
        await _check_owner(store, args, cookie, uri)
        stored = await _stored(store, args.bookie_id, uri)
        await store.cookies.write(args.bookie_id, data, stored.version)

    with_store(args, use)
    note(f"replaced the cookie of {owner(cookie)} ({uri})")
    return EXIT_OK


async def _stored(store: MetadataStore, bookie_id: BookieId, uri: str) -> Versioned[bytes]:
    stored = await store.cookies.read(bookie_id)
    if stored is None:
        cluster = await store.admin.instance_id()
        raise CommandFailed(
            f"bookie {bookie_id} has no cookie in cluster {cluster} ({uri}); `listbookies -a` lists those that have"
        )
    return stored


def _get(args: argparse.Namespace) -> int:
    uri = store_settings(args).metadata_service_uri

    async def use(store: MetadataStore) -> Versioned[bytes]:
        return await _stored(store, args.bookie_id, uri)

    stored = with_store(args, use)
    cookie = parse_cookie(stored.value, f"cookie of {args.bookie_id}")
    if args.json:
        print_json({**dataclasses.asdict(cookie), "version": stored.version})
    else:
        print(stored.value.decode("utf-8", "replace"), end="")
    return EXIT_OK


def _delete(args: argparse.Namespace) -> int:
    uri = store_settings(args).metadata_service_uri

    async def use(store: MetadataStore) -> tuple[bool, bytes]:
        stored = await _stored(store, args.bookie_id, uri)
        registered = await store.registration.is_registered(args.bookie_id)
        await store.cookies.delete(args.bookie_id, stored.version)
        return registered, stored.value

    registered, data = with_store(args, use)
    note(f"deleted the cookie of bookie {args.bookie_id} ({uri})")
    if registered:
        note(f"bookie {args.bookie_id} is running: it goes on, and its next start is refused unless it is emptied")
        note(f"to undo that, on its host: cookie_create -cookie-file {_copy_of(data, args.bookie_id)} {args.bookie_id}")
    return EXIT_OK


def _copy_of(data: bytes, bookie_id: BookieId) -> str:
    """Where the bookie itself has the same cookie."""
    try:
        directory = next(iter(directories_of(parse_cookie(data, f"cookie of {bookie_id}"))), "DIRECTORY")
    except MetadataError:
        directory = "DIRECTORY"
    return f"{directory}/current/{VERSION_FILE}"


# --- cookie_generate --------------------------------------------------------------------------------------------------


def _directories(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _generate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-j", "-journal-dirs", "--journal-dirs", type=_directories, required=True, metavar="DIR,...",
                        dest="journal_dirs", help="journal directories (required)")  # fmt: skip
    parser.add_argument("-l", "-ledger-dirs", "--ledger-dirs", type=_directories, required=True, metavar="DIR,...",
                        dest="ledger_dirs", help="ledger directories (required)")  # fmt: skip
    parser.add_argument("-ix", "-index-dirs", "--index-dirs", type=_directories, metavar="DIR,...",
                        dest="index_dirs", help="index directories (default: the ledger directories)")  # fmt: skip
    parser.add_argument("-i", "-instance-id", "--instance-id", metavar="ID", dest="instance_id",
                        help="the cluster's (default: that of the cluster that --uri names)")  # fmt: skip
    parser.add_argument("-o", "-output-file", "--output-file", type=Path, metavar="FILE", dest="output_file",
                        help="where to write it (default: standard output)")  # fmt: skip
    _add_bookie_id(parser)


def _generate(args: argparse.Namespace) -> int:
    async def instance_id(store: MetadataStore) -> str:
        return await store.admin.instance_id()

    check_bookie_id(args.bookie_id)
    cluster = args.instance_id or with_store(args, instance_id)
    cookie = Cookie(args.bookie_id, args.journal_dirs, args.ledger_dirs, cluster, args.index_dirs or args.ledger_dirs)
    data = cookie.format()
    if args.output_file is None:
        print(data.decode(), end="")
        return EXIT_OK
    try:
        args.output_file.write_bytes(data)
    except OSError as error:
        raise CommandFailed(f"--output-file {args.output_file}: cannot be written: {error.strerror}") from error
    note(f"wrote the cookie of {owner(cookie)} to {args.output_file}")
    return EXIT_OK


COOKIE_CREATE = ShellCommand("cookie_create -cf VERSION 10.0.0.1:3181", _file_arguments, _create)
COOKIE_UPDATE = ShellCommand("cookie_update -cf VERSION 10.0.0.1:3181", _file_arguments, _update)
COOKIE_GET = ShellCommand("cookie_get 10.0.0.1:3181", _add_bookie_id, _get)
COOKIE_DELETE = ShellCommand("cookie_delete 10.0.0.1:3181", _add_bookie_id, _delete)
COOKIE_GENERATE = ShellCommand(
    "cookie_generate -j /j -l /l1,/l2 -o VERSION 10.0.0.1:3181", _generate_arguments, _generate
)
