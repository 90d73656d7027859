"""`bookkeeper spark audit`."""

from __future__ import annotations

import argparse

import bookkeeper.spark
from bookkeeper.cli.connection import client_settings, parse_settings
from bookkeeper.cli.output import EXIT_OK, counted, entries, note, print_json, print_table
from bookkeeper.spark.audit.repairs import queue_repairs
from bookkeeper.spark.audit.report import Audit, audit


def run_audit(args: argparse.Namespace, exit_unknown: int, exit_wrong: int) -> int:
    """Run it, print what was found, queue repairs where that is asked for."""
    settings = client_settings(args)
    options = {"ledgers": args.ledgers, "bytesPerSecond": args.bytes_per_second, **parse_settings(args.defines)}
    spark = bookkeeper.spark.local_session(args.master, config={"spark.ui.showConsoleProgress": "true"})
    try:
        found = audit(spark, settings.metadata_service_uri, output=args.output, options=options)
        _show(args, found)
        if args.repair:
            queued = queue_repairs(found, settings.metadata_service_uri, settings)
            note(f"queued for auto-recovery: {counted(queued.ranges, 'range')} of {counted(queued.ledgers, 'ledger')}")
    finally:
        spark.stop()
    return EXIT_OK if found.is_clean else exit_unknown if found.only_unknown else exit_wrong


def _show(args: argparse.Namespace, found: Audit) -> None:
    columns = ("kind", "ledger_id", "first_entry_id", "last_entry_id", "bookie", "good_copies", "detail")
    rows = found.findings.orderBy("ledger_id", "first_entry_id", "kind").limit(args.findings).collect()
    if args.json:
        print_json(
            {
                "ledgers": found.ledgers,
                "entries": found.entries,
                "copies": found.copies,
                "found": dict(found.found),
                "findings": [{name: row[name] for name in columns} for row in rows],
            }
        )
        return
    if rows:
        header = ("finding", "ledger", "first entry", "last entry", "bookie", "good copies", "why")
        print_table(header, [["" if row[name] is None else str(row[name]) for name in columns] for row in rows])
    told = sum(found.found.values())
    if told > len(rows):
        note(f"{told - len(rows):,} more findings; --findings prints more, --output keeps all")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.found.items())) or "none"
    note(
        f"audited {counted(found.copies, 'copy', 'copies')} of {entries(found.entries)} in "
        f"{counted(found.ledgers, 'ledger')}; findings: {kinds}"
    )
