"""`bookkeeper spark forget`."""

from __future__ import annotations

import argparse

from bookkeeper.console.connection import client_settings
from bookkeeper.console.output import EXIT_OK, counted, print_json, print_line
from bookkeeper.spark.sink.options import COMMIT_PATH
from bookkeeper.spark.sink.retention import forget


def run_forget(args: argparse.Namespace) -> int:
    """Forget, and say what was deleted."""
    settings = client_settings(args)
    found = forget(
        settings.metadata_service_uri,
        settings,
        older_than_s=args.older_than,
        query=args.query,
        job=args.job,
        commit_path=args.commit_path or COMMIT_PATH,
        dry_run=args.dry_run,
    )
    if args.json:
        print_json(
            {
                "owner": str(found.owner),
                "batches": found.batches,
                "ledgers": found.ledgers,
                "first_kept": found.first_kept,
                "dry_run": found.dry_run,
            }
        )
        return EXIT_OK
    deleted = "would be deleted" if found.dry_run else "deleted"
    batches, ledgers = counted(found.batches, "batch", "batches"), counted(found.ledgers, "ledger")
    print_line(f"{found.owner}: {batches} with {ledgers} {deleted}; batch {found.first_kept} is the oldest now")
    return EXIT_OK
