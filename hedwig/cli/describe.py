"""Everything that is recorded of a topic: who serves it, its ledgers, its subscriptions. No hub is asked.

Column `kept`: what keeps a ledger, and until when. The reason is a subscription that has consumed up to a message, a
setting, or nothing. Settings are read from the hubs' file (--conf); without it the defaults are assumed. Line
`settings` names the source. Ledgers are deleted whole, oldest first, never the newest, and only while a hub serves
the topic.

examples:
  hedwig describe news
  hedwig describe news --conf hw_server.conf
  hedwig describe news --json
"""

from __future__ import annotations

import argparse
import datetime
from dataclasses import fields
from typing import TYPE_CHECKING

from bookkeeper.console.output import EXIT_OK, EXIT_PARTIAL, counted, print_json, print_line, print_table, readable_size
from hedwig.cli.region import Problems, add_region_arguments, region_of, region_settings, shown, topic_of
from hedwig.cli.retention_view import kept_document, kept_text, retention_text, settings_text
from hedwig.cli.subscriptions import described, note_stored, preferences_text, tell_problem

if TYPE_CHECKING:
    from pathlib import Path

    from hedwig.admin.region import LedgerPart, Region
    from hedwig.admin.topic_retention import TopicRecords
    from hedwig.model import Topic


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig describe`."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    add_region_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Look it up, and print."""
    topic = topic_of(args.topic)

    config = region_settings(args)
    settings, timed = config.retention_of(topic), config.times(topic)

    async def ask(region: Region) -> TopicRecords:
        from hedwig.admin.topic_retention import look, retention_of

        return await look(region, topic, retention_of(settings), timed=timed)

    with region_of(args) as access:
        found = access.run(ask)
    if args.json:
        print_json(document(topic, found, args.conf))
    else:
        _print(topic, found, args.conf)
        if any(each.backlog for each in found.subscribed):
            note_stored()
    problems = Problems()
    if found.retention.problem is not None and all(each.is_readable for each in found.subscribed):
        problems.tell("retention of the topic is unknown", found.retention.problem)
    for part in found.parts:
        if part.problem:
            problems.tell(f"ledger {part.ledger_id}", part.problem)
    for each in found.subscribed:
        if not each.is_readable:
            tell_problem(problems, each)
    return EXIT_PARTIAL if problems.count else EXIT_OK


def _entries(part: LedgerPart) -> int | None:
    return None if part.last is None else max(0, part.last - part.first + 1)


def _created(part: LedgerPart) -> str | None:
    if part.created_ms is None:
        return None
    return datetime.datetime.fromtimestamp(part.created_ms / 1000, datetime.UTC).isoformat(timespec="seconds")


def document(topic: Topic, found: TopicRecords, conf: Path | None) -> dict[str, object]:
    """Return the JSON document of a topic. conf: the file with the hubs' settings."""
    owner, parts, retention = found.owner, found.parts, found.retention
    kept = [kept_document(each) for each in retention.ledgers] or [kept_document(None)] * len(parts)
    return {
        "topic": shown(topic),
        "owner": None if owner is None else str(owner),
        "first_id": parts[0].first if parts else None,
        "last_id": parts[-1].last if parts else 0,
        "retention": {
            "conf": None if conf is None else str(conf),
            "problem": retention.problem,
            "named_ms": retention.named_ms,
            **{
                field.name: getattr(retention.rules, field.name) if retention.is_record_readable else None
                for field in fields(retention.rules)
            },
        },
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
                **why,
            }
            for each, why in zip(parts, kept, strict=True)
        ],
        "subscriptions": [described(each) for each in found.subscribed],
    }


def _print(topic: Topic, found: TopicRecords, conf: Path | None) -> None:
    owner, parts, subscribed, retention = found.owner, found.parts, found.subscribed, found.retention
    print_line(f"topic {shown(topic)}")
    print_line(f"served by {owner}" if owner is not None else "not served now; the next request for it chooses a hub")
    print_line(f"kept: {retention_text(retention, subscribed=bool(subscribed))}")
    print(f"settings: {settings_text(conf)}")
    if parts and parts[0].first > 1:
        print(f"messages 1 to {parts[0].first - 1} are deleted")
    print()
    if not parts:
        print("no ledgers: nothing was published, or all of it is consumed and deleted")
    else:
        print_table(
            ("ledger", "first id", "last id", "messages", "size", "state", "created", "kept"),
            [
                (
                    each.ledger_id,
                    each.first,
                    "-" if each.last is None else each.last,
                    "-" if (entries := _entries(each)) is None else entries,
                    "-" if each.size is None else readable_size(each.size),
                    "written" if each.is_open else "ended",
                    _created(each) or "-",
                    kept_text(retention.ledgers[at]) if retention.ledgers else "unknown",
                )
                for at, each in enumerate(parts)
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
