"""`bookkeeper spark audit`."""

from __future__ import annotations

import argparse

from bookkeeper.cli.spark.said_as import AUDIT, said_as
from bookkeeper.cli.spark.session import spark_session
from bookkeeper.cli.spark.words import EXIT_UNKNOWN, EXIT_WRONG, task_options
from bookkeeper.cli.why.menders_facts import find_menders
from bookkeeper.config import ClientSettings
from bookkeeper.console.connection import client_settings
from bookkeeper.console.output import (
    EXIT_OK,
    EXIT_USAGE,
    CommandFailed,
    counted,
    entries,
    note,
    print_json,
    print_table,
)
from bookkeeper.errors import BookKeeperError
from bookkeeper.spark.audit.repairs import queue_repairs
from bookkeeper.spark.audit.report import Audit, audit

BOOKIES_MAX = 5
"""Bookies that cannot tell what they hold, of which the reason is told."""


def run_audit(args: argparse.Namespace) -> int:
    """Run it, print what was found, queue repairs where that is asked for."""
    if args.resume and args.output is None:
        raise CommandFailed("--resume: --output names the audit to go on with", EXIT_USAGE)
    settings = client_settings(args)
    options = {"ledgers": args.ledgers, "bytesPerSecond": args.bytes_per_second}
    options |= {**said_as(AUDIT), **task_options(args)}
    begun = bool(args.resume)

    def on_begun() -> None:
        nonlocal begun
        begun = True

    with spark_session(args, interrupted=lambda: _goes_on(args.output, begun=begun)) as spark:
        found = audit(
            spark,
            settings.metadata_service_uri,
            output=args.output,
            options=options,
            bookie_directories=args.bookie_dir,
            resume=args.resume,
            say=note,
            on_begun=on_begun,
        )
        _show(args, found)
        if args.repair:
            _repair(found, args.output, settings)
    return EXIT_OK if found.is_clean else EXIT_UNKNOWN if found.only_unknown else EXIT_WRONG


def _goes_on(output: str | None, *, begun: bool) -> str:
    """What becomes of an audit that is interrupted, and how to go on."""
    if output is None:
        return "nothing of it is kept; with --output an audit can go on where it was"
    if not begun:
        return f"nothing is begun in {output} yet: the same command, without --resume, begins it"
    return f"what is done is kept: the same command with --resume goes on in {output}"


def _repair(found: Audit, output: str | None, settings: ClientSettings) -> None:
    try:
        queued = queue_repairs(found, settings.metadata_service_uri, settings)
    except BookKeeperError:
        if output is not None:
            note(f"the audit is kept in {output}: the same command with --resume queues what is to be repaired")
        raise
    note(f"queued for auto-recovery: {counted(queued.ranges, 'range')} of {counted(queued.ledgers, 'ledger')}")
    if queued.ranges:
        _say_who_mends(settings)


def _say_who_mends(settings: ClientSettings) -> None:
    """What `bookkeeper why ledger` says of a ledger that waits so; queued it is, whatever the answer."""
    try:
        lines = list(find_menders(settings.metadata_service_uri, settings).said())
    except BookKeeperError as error:
        lines = [f"whether a process with auto-recovery runs is unknown: {error}"]
    for line in lines:
        note(line)


def _show(args: argparse.Namespace, found: Audit) -> None:
    columns = ("kind", "ledger_id", "first_entry_id", "last_entry_id", "entries", "bookie", "good_copies", "detail")
    rows = found.findings.orderBy("ledger_id", "first_entry_id", "kind").limit(args.findings).collect()
    if args.json:
        print_json(
            {
                "ledgers": found.ledgers,
                "entries": found.entries,
                "copies": found.copies,
                "found": dict(found.found),
                "unknown_copies": found.unknown_copies,
                "in_place": dict(found.in_place),
                "in_place_unread": list(found.in_place_unread),
                "held_unknown": dict(found.held_unknown),
                "findings": [{name: row[name] for name in columns} for row in rows],
            }
        )
        return
    if rows:
        header = ("finding", "ledger", "first entry", "last entry", "entries", "bookie", "good copies", "why")
        print_table(header, [["" if row[name] is None else str(row[name]) for name in columns] for row in rows])
    told = sum(found.found.values())
    if told > len(rows):
        note(f"{told - len(rows):,} more findings; --findings prints more, --output keeps all")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.found.items())) or "none"
    if found.in_place:
        note(f"read in place: {', '.join(sorted(found.in_place))}")
    read = counted(found.copies - found.unknown_copies, "copy", "copies")
    of = f"{read} of {entries(found.entries)} in {counted(found.ledgers, 'ledger')}"
    note(f"audited {of}; findings: {kinds}")
    if found.held_unknown:
        note(f"orphans: not known of {counted(len(found.held_unknown), 'bookie')}, which cannot tell what they hold:")
        for bookie, why in list(found.held_unknown.items())[:BOOKIES_MAX]:
            note(f"  {bookie}: {why}")
        if len(found.held_unknown) > BOOKIES_MAX:
            note(f"  and {len(found.held_unknown) - BOOKIES_MAX:,} more; --json names all")
    if found.unknown_copies:
        note(
            f"not audited: {counted(found.unknown_copies, 'copy', 'copies')} (unknown), of bookies that could not be "
            "asked or could not tell; start them, or read their directories with --bookie-dir"
        )
