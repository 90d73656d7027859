"""What a shell command is, and what several of them need."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bookkeeper.cli.connection import client_settings, parse_settings

if TYPE_CHECKING:
    from bookkeeper.config import ServerSettings


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command of the shell."""

    example: str
    """How it is typed after `bookkeeper shell`; shown by --help."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """For commands without any."""
    del parser


def metadata_uri(args: argparse.Namespace) -> str:
    """The metadata service URI: --uri, else that of the conf file, which may be a bookie's."""
    if args.uri or args.conf is None:
        return client_settings(args).metadata_service_uri
    return server_settings(args).metadata_service_uri


def server_settings(args: argparse.Namespace) -> ServerSettings:
    """The bookie settings of --conf and -D; where directories and identity come from."""
    from bookkeeper.config import load_server

    overrides = dict(parse_settings(args.defines))
    if args.uri:
        overrides["metadataServiceUri"] = args.uri
    return load_server(args.conf, overrides).settings


def add_force(parser: argparse.ArgumentParser) -> None:
    """Apache's pair of flags: -nonInteractive never asks, -force answers yes."""
    parser.add_argument("-n", "-nonInteractive", "--nonInteractive", action="store_true", dest="non_interactive",
                        help="never ask; refuse unless -force")  # fmt: skip
    parser.add_argument("-f", "-force", "--force", action="store_true", dest="force", help="do not ask")
