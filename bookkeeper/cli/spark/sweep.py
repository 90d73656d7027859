"""`bookkeeper spark sweep`."""

from __future__ import annotations

import argparse

from bookkeeper.cli.connection import client_settings
from bookkeeper.cli.output import EXIT_OK, counted, note, print_json
from bookkeeper.spark.sink_options import COMMIT_PATH
from bookkeeper.spark.sink_sweep import sweep


def run_sweep(args: argparse.Namespace) -> int:
    """Sweep, and say what was deleted and what was left alone."""
    settings = client_settings(args)
    swept = sweep(
        settings.metadata_service_uri,
        settings,
        commit_path=args.commit_path or COMMIT_PATH,
        older_than_s=args.older_than,
        dry_run=args.dry_run,
    )
    left = {fate.value: count for fate, count in swept.left.items()}
    if args.json:
        print_json(
            {
                "dry_run": swept.dry_run,
                "orphans": [{"ledger_id": each.ledger_id, "why": each.fate.value} for each in swept.orphans],
                "left": left,
            }
        )
        return EXIT_OK
    for each in swept.orphans:
        print(each)
    deleted = "would be deleted" if swept.dry_run else "deleted"
    others = "".join(f"; {counted(count, 'ledger')} left: {why}" for why, count in sorted(left.items()))
    note(f"{counted(len(swept.orphans), 'ledger')} {deleted}{others}")
    return EXIT_OK
