"""Compare the metadata store with the bookies after a restore of ZooKeeper; decide about ledgers that it lacks.

A bookie that finds that the store went back in time deletes nothing until the store shows its former state again, or
until an operator decides. A decision is stored for each bookie, and the bookie applies it at its next collection
(gcWaitTime). To apply it at once, run on the bookie's machine: curl -X PUT http://127.0.0.1:8080/api/v1/bookie/gc; add
-H "Authorization: Bearer TOKEN" if httpServerTokenFile is set. A later decision replaces one that the bookie has not
applied yet; a note on standard error names the bookie.

examples:
  bookkeeper metadata check                          show the ledgers that only the store or only bookies have
  bookkeeper metadata check --json
  bookkeeper metadata keep --all                     accept the store, and keep the ledgers that it lacks now
  bookkeeper metadata discard 17,20-25 --all         let bookies delete these ledgers unless the store has them
  bookkeeper metadata discard 17 --bookie bk1:3181 --force

exit codes of check: 0 nothing to decide; 1 something to decide; 3 nothing to decide as far as is known now: a bookie or
a record could not be read, or bookies have not compared the store with what they have seen yet
exit codes of keep and discard: 0 stored for all bookies; 1 not stored for some, which are named; 2 usage
"""

from __future__ import annotations

import argparse

from bookkeeper.console.connection import add_connection_arguments
from bookkeeper.console.output import (
    EXIT_FAILURE,
    EXIT_OK,
    EXIT_PARTIAL,
    CommandFailed,
    confirm,
    end_partial,
    note,
    print_line,
)
from bookkeeper.console.subcommands import LazyParser, add_json_again, add_o, add_verbose
from bookkeeper.metadata.cluster.history_format import RANGES_MAX, Decision, Ranges, Verdict, joined_ranges
from bookkeeper.metadata.ledgers.paths import LEDGER_ID_MAX

_CHECK = "compare the metadata store with what bookies hold"
_KEEP = "accept the store as it is, keep the ledgers that it lacks now, and collect other ledgers again"
_DISCARD = "let bookies delete these ledgers unless the store has them"

_CHECK_MORE = """\
Exit codes: 0 nothing to decide; 1 something to decide; 3 nothing to decide as far as is known now: a bookie or a record
could not be read, or bookies have not compared the store with what they have seen yet."""
_DECISION_MORE = """\
The decision is stored for each bookie, and the bookie applies it at its next collection (gcWaitTime). To apply it at
once, run on the bookie's machine: curl -X PUT http://127.0.0.1:8080/api/v1/bookie/gc; add -H "Authorization: Bearer
TOKEN" if httpServerTokenFile is set. The decision replaces an earlier one that the bookie has not applied yet; a note
on standard error says so. Exit codes: 0 stored for all bookies; 1 not stored for some, which are named; 2 usage.
"""
_KEEP_MORE = """\
Kept until they are discarded: ledgers that the store lacks, ledgers that it assigns to other bookies, and ledgers with
ids that it may have given to other ledgers since.

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `bookkeeper metadata`."""
    add_connection_arguments(parser)
    add_o(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=LazyParser)
    check = actions.add_parser(
        "check", help=_CHECK, description=f"{_CHECK.capitalize()}.", epilog=_CHECK_MORE, fill=None, outer=parser
    )
    _again(check)
    keep = actions.add_parser(
        "keep",
        help=_KEEP,
        description=f"{_KEEP.capitalize()}.",
        epilog=_KEEP_MORE + _DECISION_MORE,
        fill=None,
        outer=parser,
    )
    _again(keep)
    _add_bookies(keep)
    discard = actions.add_parser(
        "discard",
        help=_DISCARD,
        description=f"{_DISCARD.capitalize()}.",
        epilog=_DECISION_MORE,
        fill=None,
        outer=parser,
    )
    discard.add_argument("ledgers", type=_ranges, metavar="LEDGERS", help="ids and ranges of ids, such as 17,20-25")
    _again(discard)
    _add_bookies(discard)


def _again(parser: argparse.ArgumentParser) -> None:
    from pathlib import Path

    parser.add_argument("--uri", default=argparse.SUPPRESS, help="metadata service URI")
    parser.add_argument("--conf", type=Path, metavar="FILE", default=argparse.SUPPRESS, help="Apache-style conf file")
    add_json_again(parser, text="one JSON document instead of text")
    add_verbose(parser)


def _add_bookies(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--bookie", action="append", metavar="ID", help="one bookie, repeatable")
    which.add_argument("--all", action="store_true", help="all bookies that have a note in the store")
    parser.add_argument("-f", "--force", action="store_true", help="do not ask")


def _ranges(text: str) -> Ranges:
    found: list[tuple[int, int]] = []
    for part in text.split(","):
        first, separator, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit() and (not separator or (last.isascii() and last.isdigit()))):
            raise argparse.ArgumentTypeError(f"{part!r} is neither a ledger id nor a range such as 20-25")
        low, high = int(first), int(last if separator else first)
        if not low <= high <= LEDGER_ID_MAX:
            raise argparse.ArgumentTypeError(f"{part!r}: the last id is below the first, or above {LEDGER_ID_MAX}")
        found.append((low, high))
    joined = joined_ranges(found)
    if len(joined) > RANGES_MAX:
        raise argparse.ArgumentTypeError(f"{len(joined)} ranges of ledgers; at most {RANGES_MAX} at a time")
    return joined


def run(args: argparse.Namespace) -> int:
    """Run the check, or store a decision."""
    if args.action == "check":
        return _check(args)
    decision = Decision(Verdict.KEEP) if args.action == "keep" else Decision(Verdict.DISCARD, args.ledgers)
    return _decide(args, decision)


def _check(args: argparse.Namespace) -> int:
    from bookkeeper.cli.metadata import facts, records
    from bookkeeper.cli.metadata.comparison import compare
    from bookkeeper.console.output import counted, print_json
    from bookkeeper.metadata.bad_records import BadRecords

    bad_records = BadRecords()
    found = compare(facts.find_out(args, bad_records))
    unread_count = records.read_all(args, bad_records, found.facts.ledgers)
    if args.json:
        unreadable = [record.json() for record in bad_records.named]
        print_json({**found.json(), "unreadable": unreadable, "records_not_read": unread_count})
    else:
        for line in found.lines():
            print_line(line)
    if unread_count:
        note(f"records of {counted(unread_count, 'ledger')} were not read: bookkeeper ledger list --long reads all")
    partial = end_partial(bad_records)
    if found.has_findings:
        return EXIT_FAILURE
    return EXIT_PARTIAL if found.is_partial else partial


def _decide(args: argparse.Namespace, decision: Decision) -> int:
    from bookkeeper.cli.metadata.comparison import ranges_text
    from bookkeeper.cli.metadata.facts import bookies_with_notes
    from bookkeeper.cli.shell.base import with_store
    from bookkeeper.console.output import print_json
    from bookkeeper.metadata.store import MetadataStore
    from bookkeeper.metadata.tree import NodeAbsent
    from bookkeeper.model import BookieId

    known = with_store(args, bookies_with_notes)
    chosen = known if args.all else [BookieId(each) for each in args.bookie]
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        raise CommandFailed(
            f"{', '.join(unknown)}: no note of such a bookie is in the store; bookies with a note: "
            f"{', '.join(known) or 'none'}"
        )
    if not chosen:
        raise CommandFailed("no bookie has a note in the store yet, so there is nothing to decide")
    which = f"{len(chosen)} bookies" if len(chosen) > 1 else chosen[0]
    if decision.verdict is Verdict.KEEP:
        question = f"Accept the metadata store as it is, and keep on {which} the ledgers that it lacks now?"
    else:
        question = f"Let {which} delete {ranges_text(decision.ledgers)} unless the store has them?"
    confirm(question, force=args.force)
    refused: dict[str, str] = {}
    replaced: list[BookieId] = []

    async def decide(store: MetadataStore) -> None:
        for bookie_id in chosen:
            try:
                if await store.history.decide(bookie_id, decision):
                    replaced.append(bookie_id)
            except NodeAbsent:
                refused[bookie_id] = "the bookie's note is gone; decide again after its next collection"

    with_store(args, decide)
    if args.json:
        print_json(
            {"decision": decision.verdict.value, "bookies": chosen, "refused": refused, "replaced": replaced},
        )
    for bookie_id, why in refused.items():
        note(f"{bookie_id}: {why}")
    if replaced:
        note(f"{', '.join(replaced)}: this replaced an earlier decision that the bookie had not applied yet")
    note(f"{len(chosen) - len(refused)} of {len(chosen)} decisions stored; bookies apply them at their next collection")
    return EXIT_FAILURE if refused else EXIT_OK
