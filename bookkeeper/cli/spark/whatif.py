"""`bookkeeper spark whatif`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bookkeeper.cli.spark.said_as import CLUSTER, said_as
from bookkeeper.cli.spark.session import spark_session, unfinished
from bookkeeper.cli.spark.whatif_plot import draw_whatif
from bookkeeper.cli.spark.words import EXIT_UNKNOWN, EXIT_WRONG, task_options
from bookkeeper.console.connection import client_settings
from bookkeeper.console.figures import check_can_draw
from bookkeeper.console.output import (
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    counted,
    entries,
    note,
    print_json,
    print_line,
    print_table,
)
from bookkeeper.console.output import readable_size as size
from bookkeeper.errors import ConfigurationError
from bookkeeper.spark.outputs import OutputState
from bookkeeper.spark.whatif.question import Question, Quorums
from bookkeeper.spark.whatif.report import WhatIf, whatif

REASONS_MAX = 5
"""Reasons of one kind that are told."""

Rows = Sequence[Mapping[str, Any]]


def run_whatif(args: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    try:
        return _run(args)
    except ConfigurationError as error:  # a bookie or rack that there is not, as well
        raise CommandFailed(str(error), EXIT_USAGE) from error


def _run(args: argparse.Namespace) -> int:
    settings = client_settings(args)
    if args.plot is not None:
        check_can_draw(args.plot)
    quorums = Quorums(args.ensemble, args.write_quorum, args.ack_quorum)
    question = Question(args.lose, args.lose_rack, args.add, quorums)
    options = {**said_as(CLUSTER), **task_options(args)}
    state = OutputState()
    with spark_session(args, interrupted=partial(unfinished, args.output, state)) as spark:
        found = whatif(spark, settings.metadata_service_uri, question, output=args.output, options=options, state=state)
        bookies = [row.asDict() for row in found.bookies.collect()]
        at_risk = [row.asDict() for row in _at_risk(found).limit(args.ledgers).collect()]
        if args.json:
            _print_json(args, found, bookies, at_risk)
        else:
            show_whatif(args, found, bookies, at_risk)
        _say_what_is_not_known(found)
    if args.plot is not None:
        args.plot.write_bytes(draw_whatif(_title(question), bookies, _risks(found)))
        note(f"drawn: {args.plot}")
    totals = found.totals
    if totals.no_copy or totals.impossible_ledgers:
        return EXIT_WRONG
    return EXIT_UNKNOWN if found.unknown_ledgers or totals.no_readable_copy else EXIT_OK


def _title(question: Question) -> str:
    """What is asked, in a line."""
    lost = [*question.lose, *(f"rack {rack}" for rack in question.lose_racks)]
    asked, parts = question.quorums, [f"{', '.join(lost)} lost"] if lost else []
    if question.add:
        parts.append(f"{counted(question.add, 'bookie')} added")
    if asked:
        names = (("ensemble", asked.ensemble), ("write quorum", asked.write_quorum), ("ack quorum", asked.ack_quorum))
        parts.append(", ".join(f"{name} {value}" for name, value in names if value is not None))
    return "; ".join(parts)


def _risks(found: WhatIf) -> list[tuple[str, int]]:
    """Entries by what is left of them."""
    totals = found.totals
    risks = [("left only on bookies that do not run", totals.no_readable_copy)] if totals.no_readable_copy else []
    if not found.question.loses:
        return [("written anew", totals.affected), *risks]
    return [
        ("that lose a copy", totals.affected),
        ("below the ack quorum", totals.below_ack_quorum),
        ("left with one copy", totals.one_copy),
        *risks,
        ("left with no copy at all", totals.no_copy),
    ]


def _at_risk(found: WhatIf) -> Any:
    rows = found.ledgers.where("no_copy + no_readable_copy + below_ack_quorum + one_copy > 0 OR impossible IS NOT NULL")
    worst = ["no_copy", "no_readable_copy", "below_ack_quorum", "one_copy", "affected"]
    return rows.orderBy([*worst, "ledger_id"], ascending=[*[False for _ in worst], True])


def _print_json(args: argparse.Namespace, found: WhatIf, bookies: Rows, at_risk: Rows) -> None:
    print_json(
        {
            **dataclasses.asdict(found.totals),
            "ledgers": found.all_ledgers,
            "unknown_ledgers": found.unknown_ledgers,
            "hours": None if args.rate is None else found.hours(args.rate),
            "writable_bookies": found.takers,
            "ensembles_too_wide": {str(wide): count for wide, count in sorted(found.too_wide.items())},
            "levelling_bytes": found.levelling_bytes,
            "bookies": bookies,
            "ledgers_at_risk": at_risk,
        }
    )


def show_whatif(args: argparse.Namespace, found: WhatIf, bookies: Rows, at_risk: Rows) -> None:
    """Print the answer for people."""
    totals = found.totals
    hours = "" if args.rate is None else f"; {found.hours(args.rate):,.2f} h at {size(args.rate)}/s"
    facts = [
        ("ledgers", f"{totals.affected_ledgers:,} of {found.all_ledgers:,}, with {entries(totals.affected)}"),
        ("to move", f"{size(totals.read_bytes)} read, {size(totals.written_bytes)} written{hours}"),
    ]
    if found.question.loses:
        facts += [
            (what, f"{entries(count)} of {counted(ledgers, 'ledger')}")
            for what, count, ledgers in (
                ("left with no copy at all", totals.no_copy, totals.no_copy_ledgers),
                ("left with one copy", totals.one_copy, totals.one_copy_ledgers),
                ("below the ack quorum", totals.below_ack_quorum, totals.below_ack_quorum_ledgers),
            )
        ]
    if totals.no_readable_copy:
        left = f"{entries(totals.no_readable_copy)} of {counted(totals.no_readable_copy_ledgers, 'ledger')}"
        facts.append(("left only on bookies that do not run now", left))
    if totals.unplaced_copies:
        facts.append(("nobody takes", counted(totals.unplaced_copies, "copy", "copies")))
    facts.append(("writable bookies then", f"{found.takers:,}"))
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print_line(f"{name + ':':<{width + 1}} {value}")
    print()
    print_table(
        ("bookie", "state", "rack", "before", "gone", "received", "after", "read from it", "free now", "fits"),
        [
            (
                row["bookie"],
                "lost then" if row["is_lost"] else row["state"] or "unknown",
                row["rack"] or "unknown",
                *(size(row[f"{name}_bytes"]) for name in ("before", "gone", "received", "after", "given")),
                "unknown" if row["free_bytes"] is None else size(row["free_bytes"]),
                "-" if not row["received_bytes"] else {True: "yes", False: "NO", None: "unknown"}[row["fits"]],
            )
            for row in bookies
        ],
    )
    if at_risk:
        print()
        columns = ("ledger_id", "affected", "no_copy", "one_copy", "below_ack_quorum", "unplaced_copies")
        print_table(
            ("ledger", "entries", "no copy", "one copy", "below ack quorum", "copies nobody takes", "cannot be done"),
            [(*(row[name] for name in columns), row["impossible"] or "") for row in at_risk],
        )
    if found.question.add:
        note(
            f"BookKeeper moves nothing onto new bookies by itself; for all to hold the same afterwards, about "
            f"{size(found.levelling_bytes)} would have to be moved (a proportional model, without racks)"
        )
    if found.question.quorums:
        note("quorums of a ledger never change: this is what it takes to write anew every ledger that has others")
    if found.question.loses or found.question.quorums:
        note("who takes copies is chosen by the client's rules, with dice: one of the ways in which it may go")


def _say_what_is_not_known(found: WhatIf) -> None:
    for wide, count in sorted(found.too_wide.items()):
        note(
            f"no ledger with an ensemble of {wide} can be created then: {found.takers} bookies are writable; "
            f"{counted(count, 'ledger')} there now with such"
        )
    if found.totals.impossible_ledgers:
        note(f"of {counted(found.totals.impossible_ledgers, 'ledger')} it cannot be done:")
        reasons = found.ledgers.where("impossible IS NOT NULL").groupBy("impossible").count()
        for row in reasons.orderBy("count", ascending=False).limit(REASONS_MAX).collect():
            note(f"  {row.impossible} ({counted(row['count'], 'ledger')})")
    if found.unknown_ledgers:
        note(f"nothing can be said of {counted(found.unknown_ledgers, 'ledger')}:")
        for row in found.unknown.orderBy("ledger_id").limit(REASONS_MAX).collect():
            note(f"  ledger {row.ledger_id}: {row.problem}")
