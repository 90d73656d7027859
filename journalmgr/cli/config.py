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

from bookkeeper.cli.config import note_ignored, print_settings
from bookkeeper.cli.connection import parse_settings
from bookkeeper.cli.output import EXIT_OK, CommandFailed, note
from journalmgr.cli.session import add_settings_arguments, check_uri, note_foreign

if TYPE_CHECKING:
    from journalmgr.config import JournalSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `journalmgr config`."""
    parser.add_argument("action", choices=["show", "check"])
    add_settings_arguments(parser, json_text="JSON instead of a table")


def run(args: argparse.Namespace) -> int:
    """Load, and print what came out. Raises ConfigurationError listing all faults."""
    from journalmgr.config import FOREIGN, load_journal

    loaded = load_journal(args.conf, parse_settings(args.defines))
    note_foreign(args.conf, loaded)
    note_ignored(ignored for ignored in loaded.ignored if ignored.reason != FOREIGN)
    if args.action == "check":
        _check(loaded.settings)
        note("No faults.")
    else:
        print_settings(loaded, as_json=args.json)
    return EXIT_OK


def _check(settings: JournalSettings) -> None:
    """What only shows once it is used. Raises ConfigurationError, CommandFailed."""
    from bookkeeper.cli.config_files import check_files
    from bookkeeper.config import load_client
    from journalmgr.config import SHARED_EDITS

    if settings.shared_edits_dir:
        try:
            check_uri(settings.shared_edits_dir)
        except CommandFailed as error:
            raise CommandFailed(f"{SHARED_EDITS}: {error}") from error
    check_files(load_client(settings.client_conf or None))
