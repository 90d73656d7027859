"""`bookkeeper spark space`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from bookkeeper.cli.spark.said_as import CLUSTER, said_as
from bookkeeper.cli.spark.session import spark_session, unfinished
from bookkeeper.cli.spark.space_plot import GROUPS_MAX, draw_space
from bookkeeper.cli.spark.words import EXIT_UNKNOWN, task_options
from bookkeeper.console.connection import client_settings
from bookkeeper.console.figures import check_can_draw
from bookkeeper.console.output import EXIT_OK, counted, note, print_json, print_table
from bookkeeper.console.output import readable_size as size
from bookkeeper.spark.outputs import OutputState
from bookkeeper.spark.space.grouping import GroupSums
from bookkeeper.spark.space.report import Space, space

REASONS_MAX = 5
"""Ledgers of unknown size of which the reason is told."""

UNKNOWN = "unknown"

MORE = ("groups", "ledgers", "payload_bytes", "stored_bytes")
"""What JSON says of the groups that are left out, together."""

Rows = Sequence[dict[str, Any]]


def run_space(args: argparse.Namespace) -> int:
    """Run it, print and draw what was found."""
    settings = client_settings(args)
    if args.plot is not None:
        check_can_draw(args.plot)
    state = OutputState()
    with spark_session(args, interrupted=partial(unfinished, args.output, state)) as spark:
        found = space(
            spark,
            settings.metadata_service_uri,
            by=args.by,
            output=args.output,
            options={**said_as(CLUSTER), **task_options(args)},
            state=state,
        )
        # Of the greatest first as many as are printed or drawn; of the others the sums.
        greatest = _rows(found.groups.limit(args.groups if args.plot is None else max(args.groups, GROUPS_MAX)))
        all_groups, groups, bookies = found.group_sums(), greatest[: args.groups], _rows(found.bookies)
        thresholds = _rows(
            found.thresholds.groupBy("threshold")
            .agg({"logs": "sum", "reclaimed_bytes": "sum", "copied_bytes": "sum"})
            .selectExpr(
                "threshold",
                "`sum(logs)` AS logs",
                "`sum(reclaimed_bytes)` AS reclaimed_bytes",
                "`sum(copied_bytes)` AS copied_bytes",
            )
            .orderBy("threshold")
        )
        show_space(args, found, groups, all_groups.without(groups), bookies, thresholds)
        _say_unknown(found)
    if args.plot is not None:
        args.plot.write_bytes(draw_space(args.by, greatest, all_groups, bookies, thresholds))
        note(f"drawn: {args.plot}")
    return EXIT_OK if found.is_complete else EXIT_UNKNOWN


def _rows(frame: Any) -> Rows:
    return [row.asDict() for row in frame.collect()]


def group_name(row: dict[str, Any]) -> str:
    """A group as people read it."""
    if not row["is_readable"]:
        return "(metadata cannot be read)"
    return "(none)" if row["group_name"] is None else str(row["group_name"])


def _size(value: int | None) -> str:
    return UNKNOWN if value is None else size(value)


def show_space(
    args: argparse.Namespace, found: Space, groups: Rows, more: GroupSums, bookies: Rows, thresholds: Rows
) -> None:
    """Print what was found, as JSON where that is asked for. more: the groups that are not among `groups`."""
    if more.groups:
        note(
            f"{counted(more.groups, 'group')} more, with {counted(more.ledgers, 'ledger')} and "
            f"{size(more.stored_bytes)} with all copies; --groups prints more, --output keeps all ledgers"
        )
    if args.json:
        print_json(
            {
                "by": args.by,
                "groups": groups,
                "more_groups": {name: getattr(more, name) for name in MORE},
                "bookies": bookies,
                "thresholds": thresholds,
                "unknown_ledgers": found.unknown_ledgers,
                "unknown_bookies": found.unknown_bookies,
                "unknown_logs": found.unknown_logs,
            }
        )
        return
    header = (args.by, "ledgers", "not closed", "unknown size", "entries", "payload", "with all copies")
    print_table(
        header,
        [
            (
                group_name(row),
                row["ledgers"],
                row["open_ledgers"],
                row["unknown_ledgers"],
                UNKNOWN if row["entries"] is None else row["entries"],
                _size(row["payload_bytes"]),
                _size(row["stored_bytes"]),
            )
            for row in groups
        ],
    )
    print()
    print_table(
        ("bookie", "state", "disks", "free", "entry logs", "live", "garbage", "why unknown"),
        [
            (
                row["bookie"],
                row["state"] or UNKNOWN,
                *(_size(row[name]) for name in ("total_bytes", "free_bytes", "log_bytes", "live_bytes")),
                _size(row["garbage_bytes"]),
                row["problem"] or _unknown_logs(row),
            )
            for row in bookies
        ],
    )
    if thresholds:  # somebody told
        print()
        print_table(
            ("rewriting logs with a live share below", "logs", "gives back", "copies"),
            [
                (f"{row['threshold']:.1f}", row["logs"], size(row["reclaimed_bytes"]), size(row["copied_bytes"]))
                for row in thresholds
            ],
        )
    dead = sum(row["dead_bytes"] or 0 for row in bookies)
    if dead:
        note(f"besides, {size(dead)} are in logs without a live ledger: removed in the next round, copying nothing")


def _unknown_logs(row: dict[str, Any]) -> str:
    return f"{counted(row['unknown_logs'], 'log')} not looked into" if row["unknown_logs"] else ""


def _say_unknown(found: Space) -> None:
    if found.unknown_ledgers:
        note(f"{counted(found.unknown_ledgers, 'ledger')} of unknown size, in no sum of bytes or entries:")
        rows = found.ledgers.where("stored_bytes IS NULL").select("ledger_id", "problem").orderBy("ledger_id")
        for row in rows.limit(REASONS_MAX).collect():
            note(f"  ledger {row.ledger_id}: {row.problem}")
    if found.unknown_bookies:
        note(f"{counted(found.unknown_bookies, 'bookie')} did not tell what is in the entry logs: in no sum of these")
    if found.unknown_logs:
        note(f"{counted(found.unknown_logs, 'entry log')} not looked into yet: in no sum of live bytes and garbage")
