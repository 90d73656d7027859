"""Administration with Apache's command names and flags; offline readers for the files of our and of Apache's bookies.

examples:
  bookkeeper shell --uri zk+hierarchical://127.0.0.1:2181/ledgers initnewcluster
  bookkeeper shell simpletest -e 3 -w 2 -a 2 -n 100
  bookkeeper shell listbookies -rw
  bookkeeper shell readledger -l 7 -m
  bookkeeper shell --conf bk_server.conf readjournal -m 19abc.txn      files only: no server needs to run

All options of Apache's shell are accepted with one dash or two (-conf FILE, listfilesondisc -journal). Unsupported
commands and options are refused by name, with the reason.
"""

from __future__ import annotations

import argparse
import importlib
from functools import partial

from bookkeeper.cli.shell.base import ShellCommand
from bookkeeper.console.connection import add_connection_arguments
from bookkeeper.console.output import EXIT_USAGE, CommandFailed
from bookkeeper.console.subcommands import LazyParser, Refusing, add_json_again, add_o, add_verbose, take_single_dashes

COMMANDS = {
    "metaformat": ("cluster:METAFORMAT", "format the metadata: every ledger is forgotten"),
    "initnewcluster": ("cluster:INITNEWCLUSTER", "make the metadata of a new cluster"),
    "whatisinstanceid": ("cluster:WHATISINSTANCEID", "print the cluster's instance id"),
    "listbookies": ("cluster:LISTBOOKIES", "list the bookies"),
    "bookieinfo": ("cluster:BOOKIEINFO", "free and total disk space of every bookie"),
    "clusterinfo": ("cluster:CLUSTERINFO", "the cluster's id, its bookies and its auto-recovery at a glance"),
    "cookie_create": ("cookies:COOKIE_CREATE", "store a bookie's cookie"),
    "cookie_delete": ("cookies:COOKIE_DELETE", "delete a bookie's cookie"),
    "cookie_generate": ("cookies:COOKIE_GENERATE", "write a cookie to a file"),
    "cookie_get": ("cookies:COOKIE_GET", "print a bookie's cookie"),
    "cookie_update": ("cookies:COOKIE_UPDATE", "replace a bookie's cookie"),
    "updatecookie": ("updatecookie:UPDATECOOKIE", "change, list or delete a stopped bookie's cookie everywhere"),
    "updateledgers": ("ledgernames:UPDATELEDGERS", "have ledgers name a bookie by its host name or address"),
    "updateBookieInLedger": ("ledgernames:UPDATEBOOKIEINLEDGER", "have ledgers name a bookie by another id"),
    "listledgers": ("ledgers:LISTLEDGERS", "list the ledgers of the cluster"),
    "ledgermetadata": ("ledgers:LEDGERMETADATA", "print, dump or restore a ledger's metadata"),
    "readledger": ("ledgers:READLEDGER", "read a ledger's entries"),
    "deleteledger": ("ledgers:DELETELEDGER", "delete a ledger"),
    "listunderreplicated": ("autorecovery:LISTUNDERREPLICATED", "list the ledgers that lack copies"),
    "whoisauditor": ("autorecovery:WHOISAUDITOR", "print who the auditor is"),
    "triggeraudit": ("autorecovery:TRIGGERAUDIT", "have the auditor look for lost bookies now"),
    "autorecovery": ("autorecovery:AUTORECOVERY", "turn auto-recovery of the cluster on or off"),
    "queryautorecoverystatus": ("autorecovery:QUERYAUTORECOVERYSTATUS", "who is at work on which ledger"),
    "lostbookierecoverydelay": (
        "autorecovery:LOSTBOOKIERECOVERYDELAY",
        "how long the auditor waits for a lost bookie",
    ),
    "recover": ("recover:RECOVER", "copy everything that bookies have to others"),
    "decommissionbookie": (
        "recover:DECOMMISSIONBOOKIE",
        "have auto-recovery empty a bookie that is down, and forget it",
    ),
    "simpletest": ("checks:SIMPLETEST", "write and read back a ledger"),
    "bookiesanity": ("checks:BOOKIESANITY", "write and read back a ledger on one bookie"),
    "bookieformat": ("local:BOOKIEFORMAT", "empty the directories of a stopped bookie"),
    "localconsistencycheck": ("diskcheck:LOCALCONSISTENCYCHECK", "check every file of a stopped bookie"),
    "regenerate-interleaved-storage-index-file": (
        "regenerate:REGENERATE",
        "make index files of a stopped bookie anew, from its entry logs and journals",
    ),
    "activeledgers": ("activeledgers:ACTIVELEDGERS", "print which ledgers of an entry log still exist"),
    "lastmark": ("offline:LASTMARK", "print the journal position up to which everything is stored"),
    "readjournal": ("offline:READJOURNAL", "print the records of journal files"),
    "readlog": ("offline:READLOG", "print the entries of an entry log"),
    "readlogmetadata": ("offline:READLOGMETADATA", "print which ledgers an entry log holds"),
    "ledger": ("offline:LEDGER", "print a ledger's index file"),
    "listfilesondisc": ("offline:LISTFILESONDISC", "list a bookie's files"),
}

_NO_ROCKSDB = "there is no RocksDB index here (DbLedgerStorage): a bookie finds entries by index files and entry logs"

_REGENERATE = "`regenerate-interleaved-storage-index-file` makes index files again"

REFUSED_COMMANDS = {
    "help": "see `bookkeeper shell --help` and `bookkeeper shell COMMAND --help`",
    "initbookie": "a bookie initialises itself at its first start; check its cookie with `cookie_get BOOKIE-ID`",
    "nukeexistingcluster": "use `metaformat`, which removes every ledger and initialises the cluster again; to remove "
    "a cluster, delete the znode of its ledgers with ZooKeeper's own client",
    "endpointinfo": "`listbookies --json` and `clusterinfo` show the address of every bookie",
    "forceauditchecks": "an auditor checks at each `triggeraudit`; `bookkeeper spark audit` checks every copy",
    "check-db-ledgers-index": f"{_NO_ROCKSDB}; `localconsistencycheck` checks these",
    "rebuild-db-ledgers-index": f"{_NO_ROCKSDB}; {_REGENERATE}",
    "rebuild-db-ledger-locations-index": f"{_NO_ROCKSDB}; {_REGENERATE}",
    "convert-to-db-storage": _NO_ROCKSDB,
    "convert-to-interleaved-storage": f"{_NO_ROCKSDB}; run it with Apache's shell before this bookie takes the files",
}
"""Apache shell commands that this shell does not have, and what to use instead."""

REFUSED_OPTIONS: dict[str, tuple[int | str, str]] = {
    "-ledgeridformat": (1, "ledger ids are decimal here; convert a hexadecimal id with `printf '%d' 0x2a`"),
    "-entryformat": (
        1,
        "payloads are shown as they are; `bookkeeper ledger read -f '%o %x'` shows them in hexadecimal",
    ),
    "-localbookie": ("?", "name the cluster by --uri, the bookie by --conf or by the options of the command"),
}
"""Options of Apache's shell before the command -> number of their values, and the reason for the refusal."""

JSON_MEANING = "JSON instead of text, where the command lists or describes"


def _load(name: str) -> ShellCommand:
    module, _, attribute = COMMANDS[name][0].partition(":")
    command: ShellCommand = getattr(importlib.import_module(f"bookkeeper.cli.shell.{module}"), attribute)
    return command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of the shell."""
    add_connection_arguments(parser)
    add_o(parser)
    parser.add_argument("--json", action="store_true", help=f"{JSON_MEANING}; after the command too")
    for option, (count, reason) in REFUSED_OPTIONS.items():
        parser.add_argument(option, action=Refusing, nargs=count, const=reason, help=argparse.SUPPRESS)
    take_single_dashes(parser)
    actions = parser.add_subparsers(dest="action", metavar="COMMAND", required=True, parser_class=LazyParser)
    for name, (_, summary) in COMMANDS.items():
        # Apache gives -h another meaning in one command: what a command defines wins, --help stays.
        actions.add_parser(
            name,
            help=summary,
            description=summary,
            fill=partial(fill, name),
            outer=parser,
            conflict_handler="resolve",
        )
    for name, reason in REFUSED_COMMANDS.items():
        actions.add_parser(name, fill=partial(_refuse, name, reason))


def _refuse(name: str, reason: str, _: argparse.ArgumentParser) -> None:
    raise CommandFailed(f"bookkeeper shell has no {name}: {reason}", EXIT_USAGE)


def fill(name: str, parser: argparse.ArgumentParser) -> None:
    """Add the options of a command to its parser."""
    command = _load(name)
    parser.epilog = f"example:\n  bookkeeper shell {command.example}"
    command.add_arguments(parser)
    add_json_again(parser, text=JSON_MEANING)
    add_verbose(parser)
    take_single_dashes(parser)


def run(args: argparse.Namespace) -> int:
    """Run the chosen command."""
    return _load(args.action).run(args)
