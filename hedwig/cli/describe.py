"""Everything that is recorded of a topic: who serves it, its ledgers, its subscriptions. No hub is asked.

examples:
  hedwig describe news
  hedwig describe news --json
"""

from __future__ import annotations

import argparse
import datetime
from typing import TYPE_CHECKING

from bookkeeper.cli.output import EXIT_OK, EXIT_PARTIAL, counted, print_json, print_table, readable_size
from hedwig.cli.region import Problems, add_region_arguments, region_of, shown, topic_of
from hedwig.cli.subscriptions import described, note_stored, preferences_text, tell_problem

if TYPE_CHECKING:
    from hedwig.admin.region import LedgerPart, Region, Subscribed
    from hedwig.model import HubAddress, Topic

    Described = tuple[HubAddress | None, list[LedgerPart], list[Subscribed]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig describe`."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    add_region_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Look it up, and print."""
    topic = topic_of(args.topic)

    async def ask(region: Region) -> Described:
        owner = await region.owner(topic)
        return owner, await region.parts(topic), await region.subscriptions_of(topic)

    with region_of(args) as access:
        owner, parts, subscribed = access.run(ask)
    if args.json:
        print_json(_document(topic, owner, parts, subscribed))
    else:
        _print(topic, owner, parts, subscribed)
        if any(each.backlog for each in subscribed):
            note_stored()
    problems = Problems()
    for part in parts:
        if part.problem:
            problems.tell(f"ledger {part.ledger_id}", part.problem)
    for each in subscribed:
        if not each.is_readable:
            tell_problem(problems, each)
    return EXIT_PARTIAL if problems.count else EXIT_OK


def _entries(part: LedgerPart) -> int | None:
    return None if part.last is None else max(0, part.last - part.first + 1)


def _created(part: LedgerPart) -> str | None:
    if part.created_ms is None:
        return None
    return datetime.datetime.fromtimestamp(part.created_ms / 1000, datetime.UTC).isoformat(timespec="seconds")


def _document(
    topic: Topic, owner: HubAddress | None, parts: list[LedgerPart], subscribed: list[Subscribed]
) -> dict[str, object]:
    return {
        "topic": shown(topic),
        "owner": None if owner is None else str(owner),
        "first_id": parts[0].first if parts else None,
        "last_id": parts[-1].last if parts else 0,
        "ledgers": [
            {
                "ledger_id": each.ledger_id,
                "first_id": each.first,
                "last_id": each.last,
                "messages": _entries(each),
                "size": each.size,
                "open": each.is_open,
                "created": _created(each),
                "problem": each.problem,
            }
            for each in parts
        ],
        "subscriptions": [described(each) for each in subscribed],
    }


def _print(topic: Topic, owner: HubAddress | None, parts: list[LedgerPart], subscribed: list[Subscribed]) -> None:
    print(f"topic {shown(topic)}")
    print(f"served by {owner}" if owner is not None else "served by nobody now; the next request for it chooses a hub")
    print()
    if not parts:
        print("no ledgers: nothing was published, or all of it is consumed and deleted")
    else:
        print_table(
            ("ledger", "first id", "last id", "messages", "size", "state", "created"),
            [
                (
                    each.ledger_id,
                    each.first,
                    "-" if each.last is None else each.last,
                    "-" if (entries := _entries(each)) is None else entries,
                    "-" if each.size is None else readable_size(each.size),
                    "written" if each.is_open else "ended",
                    _created(each) or "-",
                )
                for each in parts
            ],
        )
    print()
    print(counted(len(subscribed), "subscription"))
    if subscribed:
        print_table(
            ("subscriber", "consumed", "backlog", "preferences"),
            [
                (
                    shown(each.subscriber),
                    each.record.consumed.local if each.is_readable else "-",
                    "-" if each.backlog is None else each.backlog,
                    preferences_text(each.record.preferences) or "-",
                )
                for each in subscribed
            ],
        )
