"""`bookkeeper spark export` and `bookkeeper spark import`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial

from bookkeeper.cli.spark.said_as import EXPORT, IMPORT, said_as
from bookkeeper.cli.spark.session import spark_session, unfinished_export
from bookkeeper.cli.spark.words import task_options
from bookkeeper.console.connection import client_settings
from bookkeeper.console.output import EXIT_OK, counted, entries, note, print_json, print_table, readable_size
from bookkeeper.spark.exports.export import Export, export_ledgers
from bookkeeper.spark.exports.importing import Import, import_ledgers
from bookkeeper.spark.exports.manifest import Manifest, Status
from bookkeeper.spark.outputs import OutputState

EXIT_LOST = 3
LISTED_MAX = 100
"""Ledgers that are not exported as they are, printed at most."""


def run_export(args: argparse.Namespace) -> int:
    """Export, and say what is in it."""
    settings = client_settings(args)
    options = {
        "ledgers": args.ledgers,
        "owner": args.owner,
        "application": args.application,
        "open": args.open,
        "asAdministrator": args.as_administrator,
        "failOnDataLoss": not args.allow_loss,
        "maxFileBytes": args.file_bytes,
        **said_as(EXPORT),
        **task_options(args),
    }
    state = OutputState()
    with spark_session(args, interrupted=partial(unfinished_export, args.output, state)) as spark:
        done = export_ledgers(
            spark, settings.metadata_service_uri, output=args.output, options=options, state=state, say=note
        )
        return _show_export(args, done)


def _show_export(args: argparse.Namespace, done: Export) -> int:
    status = done.manifest.ledgers.status
    others = done.ledgers.where(f"status <> '{Status.COMPLETE.value}'").orderBy("ledger_id").limit(LISTED_MAX).collect()
    if args.json:
        rows = [{"ledger_id": row.ledger_id, "status": row.status, "why": row.why} for row in others]
        print_json({**_summary(done.manifest), "directory": done.directory, "not_complete": rows})
    elif others:
        print_table(("ledger", "status", "why"), [[str(row.ledger_id), row.status, row.why] for row in others])
    told = sum(count for each, count in status.items() if each is not Status.COMPLETE)
    if told > len(others):
        note(f"{told - len(others):,} more; all are in {done.directory}/ledgers")
    files = done.manifest.files
    left = "".join(
        f"; {counted(count, 'ledger')} {each.value}{' (left out)' if each is Status.OPEN else ''}"
        for each, count in status.items()
        if count and each is not Status.COMPLETE
    )
    note(
        f"exported {counted(status.get(Status.COMPLETE, 0), 'ledger')} with {entries(done.manifest.ledgers.entries)} "
        f"({readable_size(done.manifest.ledgers.size)}) as {done.manifest.export_id} in "
        f"{counted(files.count, 'file')} ({readable_size(files.size)}){left}"
    )
    lost = status.get(Status.LOST, 0) + status.get(Status.INCOMPLETE, 0)
    return EXIT_LOST if lost else EXIT_OK


def _summary(manifest: Manifest) -> Mapping[str, object]:
    return {
        "export": manifest.export_id,
        "ledgers": {status.value: manifest.ledgers.status.get(status, 0) for status in Status},
        "entries": manifest.ledgers.entries,
        "bytes": manifest.ledgers.size,
        "files": manifest.files.count,
        "file_bytes": manifest.files.size,
    }


def run_import(args: argparse.Namespace) -> int:
    """Import, and say which ledger is which now."""
    settings = client_settings(args)
    given = {
        "job": args.job,
        "ensembleSize": args.ensemble,
        "writeQuorumSize": args.write_quorum,
        "ackQuorumSize": args.ack_quorum,
        "commitPath": args.commit_path,
        "failOnDataLoss": not args.allow_loss,
        **said_as(IMPORT),
        **task_options(args),
    }
    options = {name: value for name, value in given.items() if value is not None}
    goes_on = (
        "nothing was written" if args.dry_run else "what is committed stays: the same command goes on where it was"
    )
    with spark_session(args, interrupted=goes_on) as spark:
        note(f"reading {args.directory} to check it")
        done = import_ledgers(
            spark,
            settings.metadata_service_uri,
            args.directory,
            output=args.output,
            options=options,
            dry_run=args.dry_run,
            say=note,
        )
    _show_import(args, done)
    return EXIT_OK


def _show_import(args: argparse.Namespace, done: Import) -> None:
    shown = done.ledgers[: args.rows]
    if args.json:
        ledgers = [
            {"exported_id": each.exported_id, "ledger_id": each.ledger_id, "entries": each.entries, "bytes": each.size,
             "is_new": each.is_new}
            for each in shown
        ]  # fmt: skip
        left_out = {status.value: count for status, count in done.left_out.items()}
        print_json(
            {"export": done.manifest.export_id, "imported": len(done.ledgers), "to_write": done.to_write,
             "left_out": left_out, "ledgers": ledgers}
        )  # fmt: skip
    elif shown:
        rows = [
            [str(each.exported_id), str(each.ledger_id), str(each.entries), str(each.size),
             "now" if each.is_new else "before"]
            for each in shown
        ]  # fmt: skip
        print_table(("exported", "ledger", "entries", "bytes", "written"), rows)
    if len(done.ledgers) > len(shown):
        note(f"{len(done.ledgers) - len(shown):,} more; --rows prints more, --output keeps all")
    new = sum(each.is_new for each in done.ledgers)
    left = "".join(f"; {counted(count, 'ledger')} left out: {each.value}" for each, count in done.left_out.items())
    to_write = f"; {counted(done.to_write, 'ledger')} would be written" if args.dry_run else ""
    note(
        f"import {args.job} of export {done.manifest.export_id}: {counted(new, 'ledger')} written now, "
        f"{len(done.ledgers) - new:,} before{to_write}{left}"
    )
