"""The options by which every client command finds its cluster, and the blocking client they open."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.console.output import EXIT_USAGE, CommandFailed, note
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose
from bookkeeper.model import DigestType

if TYPE_CHECKING:
    from bookkeeper.client.faces.blocking import BlockingBookKeeper
    from bookkeeper.config import ClientSettings, Loaded

DEFAULT_URI = "zk://127.0.0.1:2181/ledgers"
DIGESTS = ("crc32c", "crc32", "mac", "dummy")


def digest_type_of(name: str) -> DigestType:
    """The digest type of one of DIGESTS."""
    return DigestType[name.upper()]


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """--uri, --conf, -D: where the cluster is and with which settings to talk to it."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--uri",
        help="metadata service URI (default: BK_metadataServiceUri from the environment, else the conf file's, "
        f"else {DEFAULT_URI})",
    )
    group.add_argument("--conf", type=Path, metavar="FILE", help="Apache-style conf file (default: none)")
    group.add_argument(
        "-D",
        dest="defines",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"one setting, repeatable; {SEEN_BY_OTHERS}",
    )
    add_verbose(parser)


def parse_settings(pairs: list[str]) -> Mapping[str, str]:
    """`KEY=VALUE` words of the command line as a mapping. Raises CommandFailed naming the word that is none."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise CommandFailed(f"setting {pair!r}: write it as KEY=VALUE", EXIT_USAGE)
        settings[key.strip()] = value.strip()
    return settings


def client_settings(args: argparse.Namespace) -> ClientSettings:
    """The effective client settings of a command line. Raises ConfigurationError listing every fault.

    With -v the session with the metadata store will say what it warns of.
    """
    from bookkeeper.config import load_client

    loaded = load_client(args.conf, _overrides(args))
    _note_exposed(loaded)
    return loaded.settings


def _note_exposed(loaded: Loaded[ClientSettings]) -> None:
    """Print warnings about files of secrets that other users may read or change. A command has no log."""
    from bookkeeper.config.security import PASSWORD_FILE
    from bookkeeper.system.secret_files import exposed, exposed_conf

    settings, found = loaded.settings, list(exposed_conf(loaded))
    if settings.auth_provider == PASSWORD_FILE:
        path = settings.auth_password_file
        found.append(exposed(f"clientPasswordFile={path}", path))
    if settings.tls_enabled:
        from bookkeeper.tls import client_options

        options = client_options(settings)
        found += [] if options is None else options.exposures()
    for text in filter(None, found):
        _note_once(text)


@functools.cache
def _note_once(text: str) -> None:
    note(text)


def given_texts(args: argparse.Namespace) -> Mapping[str, str]:
    """What is set of a client's settings, by key, as it is written, secrets included. Raises ConfigurationError."""
    from bookkeeper.config import load_client

    return load_client(args.conf, _overrides(args)).texts


def store_settings(args: argparse.Namespace) -> ClientSettings:
    """Those of a command that talks to the metadata store alone: whatever is set about bookies does not matter.

    So the file may be that of a bookie, or of a client, which lacks what the other needs for TLS.
    """
    from bookkeeper.config import ClientSettings, load_shared

    shared = load_shared(args.conf, _overrides(args)).settings
    return ClientSettings(**{field.name: getattr(shared, field.name) for field in dataclasses.fields(shared)})


def _overrides(args: argparse.Namespace) -> Mapping[str, str]:
    if "verbose" in args:
        from bookkeeper.logs import show_metadata_session

        show_metadata_session()
    overrides = dict(parse_settings(args.defines))
    if args.uri:
        overrides["metadataServiceUri"] = args.uri
    elif "metadataServiceUri" not in overrides and args.conf is None and "BK_metadataServiceUri" not in os.environ:
        overrides["metadataServiceUri"] = DEFAULT_URI
    return overrides


def connect(args: argparse.Namespace) -> BlockingBookKeeper:
    """A blocking client of the cluster the command line names; a context manager."""
    from bookkeeper.client.faces.blocking import connect as connect_blocking

    settings = client_settings(args)
    return connect_blocking(settings.metadata_service_uri, settings)
