"""Show and check settings: every effective value with its origin; every fault of a conf file at once.

examples:
  hedwig config show                            a hub's settings with all defaults
  hedwig config show --conf hw_server.conf      ... as this file and the environment make them
  hedwig config show --client --json            those of a client
  hedwig config check --conf hw_server.conf     exit code 1 and the list of faults when something is wrong

`check` also reads the files of TLS and passwords that a hub with these settings would read; run it as the user of the
hub.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bookkeeper.cli.config import Checked, note_ignored, print_settings, run_check
from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import EXIT_OK
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose

if TYPE_CHECKING:
    from bookkeeper.config import Loaded
    from hedwig.client_config import HedwigClientSettings
    from hedwig.config.hub import HubConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig config`."""
    parser.add_argument("action", choices=["show", "check"])
    parser.add_argument("--conf", type=Path, metavar="FILE", help="conf file (default: none, only the defaults)")
    parser.add_argument("--client", action="store_true", help="a client's settings instead of a hub's")
    parser.add_argument(
        "-D",
        "-o",
        dest="defines",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"one setting, repeatable; {SEEN_BY_OTHERS}",
    )
    add_verbose(parser)
    parser.add_argument(
        "--json", action="store_true", help="JSON instead of a table; of `check` one document with all faults"
    )


def run(args: argparse.Namespace) -> int:
    """Load, and print what came out. Raises ConfigurationError listing all faults."""
    if args.action == "check":
        return run_check(lambda: _check(args), as_json=args.json)
    loaded = _load_client(args) if args.client else _load_hub(args)
    note_ignored(loaded.ignored)
    print_settings(loaded, as_json=args.json)
    return EXIT_OK


def _load_hub(args: argparse.Namespace) -> Loaded[HubConfig]:
    from hedwig.config.load import load_hub

    return load_hub(args.conf, parse_settings(args.defines))


def _load_client(args: argparse.Namespace) -> Loaded[HedwigClientSettings]:
    from hedwig.client_config import load_hedwig_client

    return load_hedwig_client(args.conf, parse_settings(args.defines))


def _check(args: argparse.Namespace) -> Checked:
    if args.client:
        client = _load_client(args)
        note_ignored(client.ignored)
        return Checked(client.ignored)
    from bookkeeper.admin.access.surfaces import open_surfaces
    from hedwig.cli.hub import hub_surfaces

    loaded = _load_hub(args)
    note_ignored(loaded.ignored)
    _check_files(loaded)
    return Checked(loaded.ignored, open_surfaces(hub_surfaces(loaded.settings)))


def _check_files(loaded: Loaded[HubConfig]) -> None:
    """Read what the settings name, as a start would. Raises ConfigurationError."""
    from bookkeeper.console.config_files import check_files
    from hedwig.hub.tls import HubCredentials
    from hedwig.hub.tuning import tls_of

    check_files(loaded)
    tls = tls_of(loaded.settings)
    if tls is not None:
        HubCredentials(tls)
