"""List topics, one a line, as they are found: a hundred thousand take no more memory than their names.

examples:
  hedwig topics                          all topics of the region
  hedwig topics --prefix orders/         those whose name begins so
  hedwig topics --long                   with owner, messages, ledgers, subscriptions, and why the oldest ledger is kept
  hedwig topics --count                  how many there are
  hedwig topics --unowned --json         those that no hub serves now, as JSON lines
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from bookkeeper.console.output import EXIT_OK, EXIT_PARTIAL, Progress, json_line, note, print_line
from bookkeeper.printable import printable
from hedwig.cli.region import Problems, add_region_arguments, region_of, region_settings, shown
from hedwig.cli.retention_view import kept_document, kept_text, settings_text

if TYPE_CHECKING:
    from hedwig.admin.region import Found, Region
    from hedwig.config.hub import HubConfig
    from hedwig.model import LedgerRange, Topic

Row = dict[str, object]

LONG_HEADER = (
    f"{'first id':>12}  {'last id':>12}  {'ledgers':>7}  {'subscriptions':>13}  {'owner':<24}  topic  "
    "(what keeps the oldest ledger)"
)

RECORDS_MAX = 100
"""Subscriptions of a topic that are read to find the slowest; for a topic with more, `kept` is left out."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `hedwig topics`."""
    parser.add_argument("--prefix", default="", metavar="TEXT", help="only topics whose name begins so")
    parser.add_argument("--owned", action="store_true", help="only those that a hub serves now")
    parser.add_argument("--unowned", action="store_true", help="only those that no hub serves now")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--long", "-l", action="store_true", help="owner, last message, ledgers, subscriptions too")
    shape.add_argument("--count", action="store_true", help="only how many")
    parser.add_argument("--json", action="store_true", help="JSON lines; with --count one number")
    add_region_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Look, and print as it comes."""

    prefix = os.fsencode(args.prefix)
    problems = Problems()
    total = 0

    def topics(region: Region) -> AsyncGenerator[list[Found], None]:
        return region.topics(prefix)

    progress = Progress("topics") if args.count or not sys.stdout.isatty() else None
    with region_of(args) as access:
        if args.long and not args.json:
            print(LONG_HEADER)
        if args.long:
            note(f"Reasons and dates are computed from these settings: {settings_text(args.conf)}")
        config = region_settings(args)
        for piece in access.pieces(topics):
            wanted = [each for each in piece if _is_wanted(args, each)]
            total += len(wanted)
            if progress is not None:
                progress.update(total)
            if args.count:
                continue
            if args.long:
                names = [each.topic for each in wanted]
                rows = access.run(lambda region, names=names: _long_rows(region, names, config))  # type: ignore[misc]
                for row in rows:
                    _print_long(row, problems, as_json=args.json)
            elif args.json:
                for each in wanted:
                    print(json_line({"topic": shown(each.topic), "owned": each.has_owner}))
            else:
                print("".join([f"{printable(shown(each.topic))}\n" for each in wanted]), end="")
    if progress is not None:
        progress.close()
    if args.count:
        print(total)
    return EXIT_PARTIAL if problems.count else EXIT_OK


def _is_wanted(args: argparse.Namespace, found: Found) -> bool:
    if args.owned or args.unowned:
        return bool(args.owned and found.has_owner) or bool(args.unowned and not found.has_owner)
    return True


async def _long_rows(region: Region, names: list[Topic], config: HubConfig) -> list[Row]:
    from hedwig.admin.region import in_order

    async def one(topic: Topic) -> Row:
        from bookkeeper.errors import BookKeeperError

        row: Row = {"topic": shown(topic)}
        try:
            owner = (await region.metadata.look(topic)).owner
            row["owner"] = None if owner is None else str(owner.address)
            row["subscriptions"] = count = len(await region.subscribers(topic))
            row["ledgers"] = len(ranges := await region.ranges(topic))
            row["first_id"] = ranges[0].first if ranges else None
            row["last_id"] = await region.end_of(ranges[-1]) if ranges else 0
            if ranges:
                row |= await _kept(region, topic, ranges, config, known=count <= RECORDS_MAX)
        except BookKeeperError as error:
            row["problem"] = str(error)
        return row

    async with contextlib.aclosing(in_order(names, one, 50)) as found:
        return [row async for _, row in found]


async def _kept(
    region: Region, topic: Topic, ranges: list[LedgerRange], config: HubConfig, *, known: bool
) -> dict[str, object]:
    """Return the columns that say what keeps the oldest ledger."""
    from hedwig.admin.topic_retention import retention_of, topic_retention_of
    from hedwig.protocol.kept_ledgers import KeptLedger, Reason

    settings = retention_of(config.retention_of(topic))
    if len(ranges) == 1:
        only = KeptLedger(Reason.WRITTEN if ranges[0].last is None else Reason.NEWEST)
        return {**kept_document(only), "kept": kept_text(only)}
    if not known:
        return kept_document(None)
    # The date comes from the oldest ledger or the next, the topic's end from the newest; rules on sizes need all.
    some = ranges if settings.uses_sizes() or len(ranges) < 4 else [*ranges[:2], ranges[-1]]
    parts = await region.parts_of(some)
    subscribed = await region.subscriptions_of(topic, backlog=False)
    retention = await topic_retention_of(
        region, topic, parts, subscribed, settings, dated_max=1, timed=config.times(topic)
    )
    if not retention.ledgers:
        return {**kept_document(None), "kept": retention.problem}
    return {**kept_document(retention.ledgers[0]), "kept": kept_text(retention.ledgers[0])}


def _print_long(row: Row, problems: Problems, *, as_json: bool) -> None:
    if "problem" in row:
        problems.tell(f"topic {row['topic']}", str(row["problem"]))
    if as_json:
        print(json_line(row))
        return
    keys = ("first_id", "last_id", "ledgers", "subscriptions")
    first, last, ledgers, subscriptions = (row.get(key, "?") for key in keys)
    owner, kept = row.get("owner", "?") or "-", row.get("kept")
    why = f"  ({kept})" if kept else ""
    first = "-" if first is None else first
    print_line(
        f"{first!s:>12}  {last!s:>12}  {ledgers!s:>7}  {subscriptions!s:>13}  {owner!s:<24}  {row['topic']}{why}"
    )
