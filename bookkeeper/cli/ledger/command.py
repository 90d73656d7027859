"""Ledgers from the command line: data to standard output, notes to standard error.

examples:
  seq 1000 | bookkeeper ledger write                 one entry per line; prints the new ledger's id
  bookkeeper ledger read 7                           all entries, one per line
  bookkeeper ledger read 7 -o -10 -f '%o: %s\\n'      the last ten, with their ids
  bookkeeper ledger tail 7                           follow an open ledger; never disturbs its writer
  bookkeeper ledger list --long --json               metadata of every ledger as JSON lines
  bookkeeper ledger show 7
  bookkeeper ledger delete 7 --force

exit codes: 0 ok, 1 failure, 2 usage, 3 partial (a list omits records that cannot be read and names them on standard
error), 130 interrupted, 141 the output is no longer read (`| head`)
"""

from __future__ import annotations

import argparse
import importlib

from bookkeeper.console.connection import DIGESTS, add_connection_arguments
from bookkeeper.console.ledger_options import ACK_QUORUM_DEFAULT, ENSEMBLE, QUORUM_DEFAULT, add_password_arguments
from bookkeeper.console.subcommands import add_json_again, add_o, at_least

EXAMPLES = {
    "create": """\
  bookkeeper ledger create                               an empty, closed ledger
  bookkeeper ledger create --open --ensemble 1           one that waits for a recovering opener, on one bookie
""",
    "write": """\
  seq 1000 | bookkeeper ledger write                     one entry per line; prints the new ledger's id
  tail -f app.log | bookkeeper ledger write --custom app=web > ledger.id
                                                         the id is there at once: others may `tail` the ledger

standard output: the ledger's id as soon as the ledger exists, also if writing fails later. With --json: one
document at the end, and the id on standard error at once. Ctrl-C and SIGTERM close the ledger and say how much it
holds. Input whose first entry is of no use (too large, cut off) leaves no ledger.
""",
    "read": """\
  bookkeeper ledger read 7                               all entries, one per line
  bookkeeper ledger read 7 -o -10 -f '%o: %s\\n'          the last ten, with their ids
""",
    "tail": """\
  bookkeeper ledger tail 7                               everything, then what comes, until the ledger is closed
  bookkeeper ledger tail 7 -o end --json                 only what comes, as JSON lines
""",
    "list": """\
  bookkeeper ledger list
  bookkeeper ledger list --long --json                   metadata of every ledger as JSON lines
""",
    "show": """\
  bookkeeper ledger show 7
  bookkeeper ledger show 7 --json --secrets              with the password
""",
    "delete": """\
  bookkeeper ledger delete 7 8 --dry-run
  bookkeeper ledger delete 7 8 --force
""",
    "close-empty": """\
  bookkeeper ledger close-empty 7

For a ledger that cannot be recovered because bookies hold another key for its id: another client claimed the id before
the first entry. The topic or journal of the ledger can then continue. A ledger that can be recovered is recovered
instead. A ledger with an entry on any bookie is not changed.
""",
}
"""What the help of an action shows at its end."""

ACTIONS = {
    "create": ("bookkeeper.cli.ledger.inspect", "create"),
    "write": ("bookkeeper.cli.ledger.transfer", "write"),
    "read": ("bookkeeper.cli.ledger.transfer", "read"),
    "tail": ("bookkeeper.cli.ledger.transfer", "tail"),
    "list": ("bookkeeper.cli.ledger.inspect", "list_ledgers"),
    "show": ("bookkeeper.cli.ledger.inspect", "show"),
    "delete": ("bookkeeper.cli.ledger.inspect", "delete"),
    "close-empty": ("bookkeeper.cli.ledger.emptied", "close_empty"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The sub-commands of `bookkeeper ledger`."""
    parser.add_argument("--json", "-J", action="store_true", help="JSON instead of text; after the action too")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = _action(actions, "create", "make an empty ledger and print its id")
    _add_creation(create)
    create.add_argument("--open", action="store_true", help="leave it open instead of closing it")

    write = _action(actions, "write", "standard input into a new ledger; prints its id")
    _add_creation(write)
    write.add_argument(
        "--length-prefixed", action="store_true", help="input is u32 big-endian length + bytes, repeated"
    )

    read = _action(actions, "read", "entries of a ledger to standard output")
    _add_output(read)
    read.add_argument("--last", type=at_least(0), metavar="ID",
                      help="last entry id; a ledger that ends before it is read to its end, and that is told "
                      "(default: the last confirmed one)")  # fmt: skip
    read.add_argument("--recover", action="store_true", help="recover first: fences the writer and closes the ledger")

    tail = _action(actions, "tail", "follow a ledger until it is closed")
    _add_output(tail)
    tail.add_argument("-e", dest="exit_at_end", action="store_true", help="stop at the last confirmed entry")

    listing = _action(actions, "list", "ledger ids")
    add_o(listing)
    listing.add_argument("--long", action="store_true", help="with metadata")
    listing.add_argument("--limit", type=at_least(1), metavar="N", help="at most N (default: all)")

    show = _action(actions, "show", "metadata of a ledger")
    add_o(show)
    show.add_argument("ledger_id", type=at_least(0), metavar="LEDGER")
    show.add_argument("--secrets", action="store_true", help="show the password too")

    delete = _action(actions, "delete", "delete ledgers")
    add_o(delete)
    delete.add_argument("ledger_ids", type=at_least(0), nargs="+", metavar="LEDGER")
    delete.add_argument("--force", action="store_true", help="do not ask")
    delete.add_argument("--dry-run", action="store_true", help="say what would be deleted")

    close_empty = _action(actions, "close-empty", "close as empty a ledger that its bookies refuse to recover")
    add_o(close_empty)
    close_empty.add_argument("ledger_id", type=at_least(0), metavar="LEDGER")
    close_empty.add_argument("--force", action="store_true", help="do not ask")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=summary, description=summary, epilog=f"examples:\n{EXAMPLES[name]}")
    add_connection_arguments(parser)
    add_json_again(parser, "-J")
    return parser


def _add_creation(parser: argparse.ArgumentParser) -> None:
    add_o(parser)
    group = parser.add_argument_group("ledger")
    group.add_argument("--ensemble", type=int, default=ENSEMBLE, metavar="E", help="bookies (default: %(default)s)")
    group.add_argument("--write-quorum", type=int, metavar="QW", help=f"copies (default: {QUORUM_DEFAULT})")
    group.add_argument(
        "--ack-quorum", type=int, metavar="QA", help=f"copies to wait for (default: {ACK_QUORUM_DEFAULT})"
    )
    group.add_argument(
        "--digest",
        choices=DIGESTS,
        help="checksum of entries (default: the setting digestType, which is crc32c unless set)",
    )
    group.add_argument("--custom", action="append", default=[], metavar="KEY=VALUE", help="custom metadata, repeatable")
    group.add_argument("--ledger-id", type=at_least(0), metavar="ID", help="choose the id (default: the next free one)")
    add_password_arguments(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ledger_id", type=at_least(0), metavar="LEDGER")
    add_password_arguments(parser)
    parser.add_argument(
        "-o",
        dest="offset",
        default="beginning",
        metavar="WHERE",
        help="beginning, end, -N or an entry id that is no more than one beyond the end (default: %(default)s)",
    )
    parser.add_argument("-c", dest="count", type=at_least(0), metavar="N", help="stop after N entries (default: all)")
    parser.add_argument(
        "-f",
        dest="format",
        metavar="FORMAT",
        help="%%o id, %%s payload, %%S size, %%l ledger, %%x hex, \\n \\t \\0 (default: %%s\\n)",
    )
    parser.add_argument("--length-prefixed", action="store_true", help="u32 big-endian length + bytes per entry")


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    module, name = ACTIONS[args.action]
    return int(getattr(importlib.import_module(module), name)(args))
