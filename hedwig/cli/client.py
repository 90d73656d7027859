"""The options by which commands find hubs, and the blocking client they open."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import EXIT_INTERRUPTED, EXIT_USAGE, CommandFailed, note
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose

if TYPE_CHECKING:
    from hedwig.client.faces.blocking import BlockingClient
    from hedwig.client_config import HedwigClientSettings


def add_client_arguments(parser: argparse.ArgumentParser) -> None:
    """--hub, --conf, -D."""
    group = parser.add_argument_group("hubs")
    group.add_argument(
        "--hub",
        "-b",
        metavar="HOST:PORT",
        help="a hub, or several with commas; host:port:sslport for TLS (default: default_server_host of the settings, "
        "else localhost:4080)",
    )
    group.add_argument("--conf", "-F", type=Path, metavar="FILE", help="a client's conf file (default: none)")
    group.add_argument(
        "-D",
        "-o",
        dest="defines",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"one setting, repeatable; {SEEN_BY_OTHERS}",
    )
    add_verbose(parser)


def client_settings(args: argparse.Namespace) -> HedwigClientSettings:
    """The effective settings. Raises ConfigurationError listing every fault."""
    from hedwig.client_config import load_hedwig_client

    overrides = dict(parse_settings(args.defines))
    if args.hub:
        overrides["default_server_host"] = args.hub
    return load_hedwig_client(args.conf, overrides).settings


def connected(args: argparse.Namespace) -> BlockingClient:
    """A client of the hubs that the command line names; a context manager. What it waits for is told after seconds."""
    from hedwig.client.faces.blocking import connect

    return connect(None, client_settings(args), on_waiting=lambda text: note(f"hedwig: {text}"))


def pairs_of(words: list[str], option: str) -> Mapping[str, bytes]:
    """KEY=VALUE words as header properties or options. Raises CommandFailed naming the word that is none."""
    found: dict[str, bytes] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise CommandFailed(f"{option} {word!r}: write it as KEY=VALUE", EXIT_USAGE)
        found[key] = value.encode("utf-8", "surrogateescape")
    return found


def seconds(text: str) -> float:
    """Return a duration that an option names. Raises ArgumentTypeError."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 86_400 * 365:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0, such as 2.5")
    return found


def end_on_sigterm() -> None:
    """SIGTERM unwinds as Ctrl-C does, each time that it comes: the second one ends the waiting of the first."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(EXIT_INTERRUPTED)

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, end)
