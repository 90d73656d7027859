"""Search for ledger records that cannot be read."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bookkeeper.cli.shell.base import with_store
from bookkeeper.client.parallel import in_parallel
from bookkeeper.errors import MetadataCorrupt, NoSuchLedger
from bookkeeper.metadata.bad_records import BadRecords
from bookkeeper.metadata.store import MetadataStore
from bookkeeper.model import LedgerId

RECORDS_MAX = 100_000
"""Maximum number of records that a check reads; `bookkeeper ledger list --long` reads all."""

READS_MAX = 64


def read_all(args: argparse.Namespace, bad_records: BadRecords, ledger_ids: Sequence[int]) -> int:
    """Read the records of ledgers, see `read_records`."""
    return with_store(args, lambda store: read_records(store, ledger_ids, bad_records))


async def read_records(store: MetadataStore, ledger_ids: Sequence[int], bad_records: BadRecords) -> int:
    """Read the records of at most RECORDS_MAX ledgers; return the number of ledgers that were left out.

    bad_records: receives the records that cannot be read.
    """

    async def read(ledger_id: LedgerId) -> None:
        try:
            await store.ledgers.read(ledger_id)
        except NoSuchLedger:
            pass  # deleted since it was listed
        except MetadataCorrupt as error:
            bad_records.add_unreadable(error, ledger_id)

    await in_parallel((read(LedgerId(each)) for each in ledger_ids[:RECORDS_MAX]), READS_MAX)
    return max(0, len(ledger_ids) - RECORDS_MAX)
