"""Show and check settings: every effective value with its origin; every fault of a conf file at once.

examples:
  bookkeeper config show                            a bookie's settings with all defaults
  bookkeeper config show --conf bk_server.conf      ... as this file and the environment make them
  bookkeeper config show --client --json
  bookkeeper config check --conf bk_server.conf     exit code 1 and the list of faults when something is wrong

`check` also reads the files of TLS and passwords that a bookie with these settings would read at its start, and a
client when it connects; run it as the user of the bookie. It lists ports that other machines can reach without
credentials.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import EXIT_FAILURE, EXIT_OK, counted, note, print_json, print_table
from bookkeeper.console.subcommands import SEEN_BY_OTHERS, add_verbose

if TYPE_CHECKING:
    from bookkeeper.config import ClientSettings, Loaded, ServerSettings
    from bookkeeper.config.table import Ignored


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `bookkeeper config`."""
    parser.add_argument("action", choices=["show", "check"])
    parser.add_argument("--conf", type=Path, metavar="FILE", help="conf file (default: none, only the defaults)")
    parser.add_argument("--client", action="store_true", help="the client's settings instead of the bookie's")
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
    loaded = _load(args)
    note_ignored(loaded.ignored)
    print_settings(loaded, as_json=args.json)
    return EXIT_OK


def _load(args: argparse.Namespace) -> Loaded[ClientSettings] | Loaded[ServerSettings]:
    from bookkeeper.config import load_client, load_server

    return (load_client if args.client else load_server)(args.conf, parse_settings(args.defines))


@dataclass(frozen=True, slots=True)
class Checked:
    """The meaning of settings without faults. open_ports: ports that other machines can reach without credentials."""

    ignored: Iterable[Ignored] = ()
    open_ports: Sequence[str] = ()


def _check(args: argparse.Namespace) -> Checked:
    from bookkeeper.console.config_files import check_files  # TLS is of no use to `show`

    loaded = _load(args)
    note_ignored(loaded.ignored)
    check_files(loaded, *([] if args.client else _client_of_same(args.conf, parse_settings(args.defines))))
    return Checked(loaded.ignored, _open_ports(loaded.settings))


def _open_ports(settings: ClientSettings | ServerSettings) -> list[str]:
    from bookkeeper.admin.access.surfaces import bookie_surfaces, open_surfaces
    from bookkeeper.config import ServerSettings

    return open_surfaces(bookie_surfaces(settings)) if isinstance(settings, ServerSettings) else []


def run_check(check: Callable[[], Checked], *, as_json: bool) -> int:
    """Print the outcome of `config check`: notes, or all faults. With JSON, print one document for every outcome.

    check: raises ConfigurationError with all faults.
    """
    from bookkeeper.errors import ConfigurationError

    faults: list[str] = []
    checked = Checked()
    try:
        checked = check()
    except ConfigurationError as error:
        if not as_json:
            raise
        head, *listed = str(error).split("\n  ")
        faults = listed or [head]
    if as_json:
        without_effect = [
            {"key": each.name, "origin": each.origin.place, "reason": each.reason} for each in checked.ignored
        ]
        print_json({"faults": faults, "ignored": without_effect, "openPorts": list(checked.open_ports)})
    if faults:
        note(f"{counted(len(faults), 'fault')}.")
        return EXIT_FAILURE
    for port in checked.open_ports:
        note(f"Other machines can reach this port without credentials: {port}")
    note("No faults.")
    return EXIT_OK


def note_ignored(ignored: Iterable[Ignored]) -> None:
    """Say which keys have no effect, and why."""
    for each in ignored:
        note(f"{each.name} ({each.origin.place}) is known but has no effect here: {each.reason}")


def print_settings(loaded: Loaded[Any], *, as_json: bool) -> None:
    """Every effective value with its origin."""
    rows = [(row.key.name, row.text, row.origin.place) for row in loaded.rows]
    if as_json:
        print_json([{"key": key, "value": value, "origin": origin} for key, value, origin in rows])
    else:
        print_table(("key", "value", "origin"), rows)


def _client_of_same(conf: Path | None, overrides: Mapping[str, str]) -> list[Loaded[ClientSettings]]:
    """The client that the same settings make; none if they make no client, which a bookie's need not."""
    from bookkeeper.config import load_client
    from bookkeeper.errors import ConfigurationError

    try:
        return [load_client(conf, overrides)]
    except ConfigurationError:
        return []
