"""Administration with Apache's command names and flags; offline readers for the files of our and of Apache's bookies.

examples:
  bookkeeper shell --uri zk+hierarchical://127.0.0.1:2181/ledgers initnewcluster
  bookkeeper shell simpletest -e 3 -w 2 -a 2 -n 100
  bookkeeper shell listbookies -rw
  bookkeeper shell readledger -l 7 -m
  bookkeeper shell --conf bk_server.conf readjournal -m 19abc.txn      files only: no server needs to run
"""

from __future__ import annotations

import argparse
import importlib

from bookkeeper.cli.connection import add_connection_arguments
from bookkeeper.cli.shell.base import ShellCommand

COMMANDS = {
    "metaformat": "cluster:METAFORMAT",
    "initnewcluster": "cluster:INITNEWCLUSTER",
    "whatisinstanceid": "cluster:WHATISINSTANCEID",
    "listbookies": "cluster:LISTBOOKIES",
    "bookieinfo": "cluster:BOOKIEINFO",
    "listledgers": "ledgers:LISTLEDGERS",
    "ledgermetadata": "ledgers:LEDGERMETADATA",
    "readledger": "ledgers:READLEDGER",
    "deleteledger": "ledgers:DELETELEDGER",
    "simpletest": "checks:SIMPLETEST",
    "bookiesanity": "checks:BOOKIESANITY",
    "bookieformat": "local:BOOKIEFORMAT",
    "lastmark": "offline:LASTMARK",
    "readjournal": "offline:READJOURNAL",
    "readlog": "offline:READLOG",
    "readlogmetadata": "offline:READLOGMETADATA",
    "ledger": "offline:LEDGER",
    "listfilesondisc": "offline:LISTFILESONDISC",
}


def _load(name: str) -> ShellCommand:
    module, _, attribute = COMMANDS[name].partition(":")
    command: ShellCommand = getattr(importlib.import_module(f"bookkeeper.cli.shell.{module}"), attribute)
    return command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of the shell."""
    add_connection_arguments(parser)
    parser.add_argument("--json", action="store_true", help="JSON instead of text, where a command lists or describes")
    actions = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = _load(name)
        command.add_arguments(actions.add_parser(name, help=command.summary, description=command.summary))


def run(args: argparse.Namespace) -> int:
    """Run the chosen command."""
    return _load(args.action).run(args)
