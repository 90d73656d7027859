"""`listunderreplicated -damaged`: ledgers of which bookies reported copies of their own as damaged (U/badcopies).

They are no marks: no bookie is lost, and Apache's programs do not know them. A worker of ours takes a report away when
the copies are good again; what stays is in trouble, and nobody else tells of it cluster-wide.
"""

from __future__ import annotations

import argparse

from bookkeeper.cli.ledger.inspect import print_unreadable
from bookkeeper.cli.shell.base import end_listing, with_store_and_clock
from bookkeeper.cli.why.damaged import which_entries
from bookkeeper.cli.worker_words import KnownTroubles, WorkerWords, known_troubles, words_of_workers
from bookkeeper.console.output import Progress, counted, print_json_line, print_line
from bookkeeper.errors import MetadataCorrupt
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.metadata.underreplication.damaged_copies_format import BadCopies
from bookkeeper.ports import Clock


def list_damaged(args: argparse.Namespace) -> int:
    """The command."""

    async def use(store: MetadataStore, clock: Clock) -> int:
        tree, progress, count, seen = store.underreplication, Progress("reports read"), 0, 0
        troubles = known_troubles(WorkerWords({}) if args.count_only else await words_of_workers(tree, clock))
        async for batch in tree.bad_copy_ids(bad_records):
            for ledger_id in batch:
                seen += 1
                progress.update(seen)
                try:
                    reported = await tree.bad_copies(ledger_id)
                except MetadataCorrupt as error:
                    record = bad_records.add_unreadable(error)
                    if not args.count_only:
                        print_unreadable(ledger_id, record, as_json=args.json)
                    continue
                if reported is None or not _is_wanted(args, reported):
                    continue  # None: it was repaired meanwhile
                count += 1
                if not args.count_only:
                    progress.close()
                    _print_reported(args, reported, troubles)
        progress.close()
        return count

    bad_records = BadRecords()
    count = with_store_and_clock(args, use)
    return end_listing(args, count, f"{counted(count, 'ledger')} with reported damage", bad_records)


def _is_wanted(args: argparse.Namespace, reported: BadCopies) -> bool:
    by = {each.bookie_id for each in reported.ranges}
    return (args.missing is None or args.missing in by) and (args.excluded is None or args.excluded not in by)


def _print_reported(args: argparse.Namespace, reported: BadCopies, troubles: KnownTroubles) -> None:
    if args.json:
        ranges = [
            {
                "bookie_id": each.bookie_id,
                "first_entry_id": each.first_entry_id,
                "last_entry_id": each.last_entry_id,
                "reported_ms": each.reported_ms,
                "reason": each.reason,
            }
            for each in reported.ranges
        ]
        trouble = troubles.by_ledger.get(reported.ledger_id)
        print_json_line({"ledger_id": reported.ledger_id, "reports": ranges, "trouble": trouble})
        return
    bookies = dict.fromkeys(each.bookie_id for each in reported.ranges)
    words = [
        f"{bookie} reported {which_entries(bookie, [each for each in reported.ranges if each.bookie_id == bookie])}"
        for bookie in bookies
    ]
    print_line("  ".join([str(reported.ledger_id), "; ".join(words), troubles.of(reported.ledger_id)]))
