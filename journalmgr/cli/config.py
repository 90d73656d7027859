"""Show and check settings: every effective value with its origin; every fault of a file at once.

examples:
  journalmgr config show                                    all defaults, and what the environment makes of them
  journalmgr config show --conf conf/journalmgr.conf --json
  journalmgr config check --conf /etc/hadoop/hdfs-site.xml  exit code 1 and the list of faults when something is wrong

`check` also reads the conf file of the ledger client, and the files of TLS and passwords that it names; run it as the
user of the server. Where a bookie's settings are meant: `bookkeeper config`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bookkeeper.cli.config import Checked, note_ignored, print_settings, run_check
from bookkeeper.console.connection import parse_settings
from bookkeeper.console.output import EXIT_OK, CommandFailed
from journalmgr.cli.session import add_settings_arguments, check_uri, note_foreign

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookkeeper.config import Loaded
    from bookkeeper.config.table import Ignored
    from journalmgr.config import JournalSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr config`."""
    parser.add_argument("action", choices=["show", "check"])
    add_settings_arguments(parser, json_text="JSON instead of a table; of `check` one document with all faults")


def run(args: argparse.Namespace) -> int:
    """Load, and print what came out. Raises ConfigurationError listing all faults."""
    if args.action == "check":
        return run_check(lambda: _check(args), as_json=args.json)
    print_settings(_load(args)[0], as_json=args.json)
    return EXIT_OK


def _load(
    args: argparse.Namespace, check_journal: Callable[[str], object] | None = None
) -> tuple[Loaded[JournalSettings], list[Ignored]]:
    """The settings, and our own keys that have no effect."""
    from journalmgr.config import FOREIGN, load_journal

    loaded = load_journal(args.conf, parse_settings(args.defines), check_journal=check_journal)
    note_foreign(args.conf, loaded)
    ignored = [each for each in loaded.ignored if each.reason != FOREIGN]
    note_ignored(ignored)
    return loaded, ignored


def _check(args: argparse.Namespace) -> Checked:
    """Check the settings, and the files that they name. Raises ConfigurationError."""
    from bookkeeper.admin.access.tokens import read_tokens
    from bookkeeper.config import load_client
    from bookkeeper.console.config_files import check_files
    from journalmgr.config import TOKEN_FILE_KEY

    def check_journal(uri: str) -> None:
        try:
            check_uri(uri)
        except CommandFailed as error:
            raise ValueError(str(error)) from error

    loaded, ignored = _load(args, check_journal)
    if loaded.settings.http_token_file:
        read_tokens(loaded.settings.http_token_file, TOKEN_FILE_KEY)
    check_files(load_client(loaded.settings.client_conf or None))
    return Checked(ignored)
