"""`bookkeeper spark sweep`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from bookkeeper.cli.spark.said_as import SWEEP
from bookkeeper.cli.spark.words import EXIT_UNKNOWN
from bookkeeper.console.connection import client_settings
from bookkeeper.console.output import EXIT_OK, counted, note, print_json
from bookkeeper.spark.process_client import show_warnings
from bookkeeper.spark.sink.options import COMMIT_PATH, check_commit_path
from bookkeeper.spark.sink.purpose import Fate
from bookkeeper.spark.sink.sweep import Swept, Unknown, sweep

TOLD_MAX = 10
"""Owners that are told of, and ledgers of each; --json has all of them."""


def run_sweep(args: argparse.Namespace) -> int:
    """Sweep, and say what was deleted and what was left alone."""
    settings = client_settings(args)
    commit_path = args.commit_path or COMMIT_PATH
    check_commit_path(commit_path, settings.metadata_service_uri, SWEEP)
    show_warnings()
    swept = sweep(
        settings.metadata_service_uri,
        settings,
        commit_path=commit_path,
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
                "unknown": [
                    {
                        "ledger_id": each.ledger_id,
                        "owner": None if each.owner is None else str(each.owner),
                        "where": each.where,
                        "why": each.fate.value,
                        "remedy": each.remedy,
                    }
                    for each in swept.unknown
                ],
            }
        )
        return _exit_code(swept)
    for each in swept.orphans:
        print(each)
    deleted = "would be deleted" if swept.dry_run else "deleted"
    others = "".join(f"; {counted(count, 'ledger')} left: {why}" for why, count in sorted(left.items()))
    note(f"{counted(len(swept.orphans), 'ledger')} {deleted}{others}")
    for line in unknown_lines(swept.unknown):
        note(line)
    return _exit_code(swept)


def unknown_lines(unknown: Sequence[Unknown]) -> Iterator[str]:
    """A line for each owner of ledgers that cannot be judged, and why, with what helps."""
    groups: dict[tuple[str, Fate], list[Unknown]] = {}
    for each in unknown:
        groups.setdefault((each.where, each.fate), []).append(each)
    for (where, fate), found in list(groups.items())[:TOLD_MAX]:
        ids = ", ".join(str(each.ledger_id) for each in found[:TOLD_MAX])
        more = f" and {len(found) - TOLD_MAX} more" if len(found) > TOLD_MAX else ""
        owner = "" if found[0].owner is None else f" of {found[0].owner}"
        yield f"{where}: {counted(len(found), 'ledger')}{owner} ({ids}{more}): {fate.value}: {found[0].remedy}"
    if len(groups) > TOLD_MAX:
        yield f"and {len(groups) - TOLD_MAX} more such; --json tells all"


def _exit_code(swept: Swept) -> int:
    return EXIT_UNKNOWN if swept.unknown else EXIT_OK
