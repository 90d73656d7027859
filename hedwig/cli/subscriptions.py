"""Subscriptions: how far each has consumed, and how many messages wait for it.

What a subscriber consumed is stored now and then (every consume_interval messages, and when its topic is released):
while a hub serves the topic a backlog may be shown that is greater than the true one by that much. What was deleted
because of its age or size, or is given up by the bounds of all subscriptions, waits for nobody.

examples:
  hedwig subscriptions news                      those of one topic
  hedwig subscriptions --subscriber billing      those that are called so, on all topics
  hedwig subscriptions --min-backlog 1000        where somebody lags
  hedwig subscriptions --no-backlog --json       of all topics, as JSON lines, without asking bookies
"""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING

from bookkeeper.console.output import EXIT_OK, EXIT_PARTIAL, EXIT_USAGE, CommandFailed, json_line, note, print_line
from bookkeeper.console.subcommands import at_least
from hedwig.cli.region import Problems, add_region_arguments, region_of, shown, subscriber_of, topic_of

if TYPE_CHECKING:
    from hedwig.admin.region import Region, Subscribed
    from hedwig.model import Preferences

HEADER = f"{'consumed':>12}  {'last id':>12}  {'backlog':>12}  subscription"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig subscriptions`."""
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="only of this topic (default: of all)")
    parser.add_argument("--prefix", metavar="TEXT", help="only of topics whose name begins so")
    parser.add_argument("--subscriber", "-s", metavar="NAME", help="only of this name")
    parser.add_argument("--min-backlog", type=at_least(1), metavar="N", help="only where so many messages wait")
    parser.add_argument("--no-backlog", action="store_true", help="do not look for the end of each topic")
    parser.add_argument("--json", action="store_true", help="JSON lines, with preferences")
    add_region_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Look, and print as it comes."""
    if args.topic is not None and args.prefix is not None:
        raise CommandFailed("give a TOPIC or --prefix, not both", EXIT_USAGE)
    if args.min_backlog is not None and args.no_backlog:
        raise CommandFailed("--min-backlog needs the backlog: leave --no-backlog out", EXIT_USAGE)
    topic = None if args.topic is None else topic_of(args.topic)
    subscriber = None if args.subscriber is None else subscriber_of(args.subscriber)
    prefix = os.fsencode(args.prefix or "")
    backlog = not args.no_backlog

    async def of_topic(region: Region) -> AsyncGenerator[list[Subscribed], None]:
        assert topic is not None
        await region.owner(topic)
        found = await region.subscriptions_of(topic, backlog=backlog)
        yield [each for each in found if subscriber in (None, each.subscriber)]

    problems = Problems()
    behind = False
    with region_of(args) as access:
        if not args.json:
            print(HEADER)
        for piece in access.pieces(
            of_topic if topic is not None else lambda region: region.subscriptions(prefix, subscriber, backlog=backlog)
        ):
            for each in piece:
                tell_problem(problems, each)
                if args.min_backlog is None or (each.backlog or 0) >= args.min_backlog:
                    _print(each, as_json=args.json)
                    behind = behind or bool(each.backlog)
    if behind and not args.json:
        note_stored()
    return EXIT_PARTIAL if problems.count else EXIT_OK


def note_stored() -> None:
    """Why somebody who has read everything may be shown with a backlog."""
    note(
        "These are the positions that are stored: of a topic that a hub serves, every consume_interval messages (50 "
        "unless set). Who has read everything may be shown with a backlog of as many."
    )


def tell_problem(problems: Problems, each: Subscribed) -> None:
    """Note what is wrong with one, if anything is."""
    if each.problem is None:
        return
    what = f"topic {shown(each.topic)}: its end could not be found"
    if not each.is_readable:
        what = f"subscriber {shown(each.subscriber)} of topic {shown(each.topic)}: its record cannot be read"
    problems.tell(what, each.problem)


def _print(each: Subscribed, *, as_json: bool) -> None:
    consumed = each.record.consumed.local if each.is_readable else "-"
    if as_json:
        print(json_line(described(each)))
        return
    last, backlog = ("-" if value is None else str(value) for value in (each.last, each.backlog))
    words = preferences_text(each.record.preferences)
    name = f"{shown(each.topic)} {shown(each.subscriber)}" + (f"  ({words})" if words else "")
    print_line(f"{consumed:>12}  {last:>12}  {backlog:>12}  {name}")


def described(each: Subscribed) -> Mapping[str, object]:
    """For JSON."""
    preferences = each.record.preferences
    return {
        "topic": shown(each.topic),
        "subscriber": shown(each.subscriber),
        "consumed_id": each.record.consumed.local if each.is_readable else None,
        "last_id": each.last,
        "backlog": each.backlog,
        "window": preferences.window_size,
        "bound": preferences.message_bound,
        "filter": preferences.message_filter,
        "options": {key: shown(value) for key, value in preferences.options.items()},
    }


def preferences_text(preferences: Preferences) -> str:
    """What is said, in one line."""
    words = []
    if preferences.window_size is not None:
        words.append(f"window {preferences.window_size}")
    if preferences.message_bound is not None:
        words.append(f"bound {preferences.message_bound}")
    if preferences.message_filter is not None:
        words.append(f"filter {preferences.message_filter}")
    words += [f"{key}={shown(value)}" for key, value in sorted(preferences.options.items())]
    return ", ".join(words)
