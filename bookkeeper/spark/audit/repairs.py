"""Bad and missing copies that an audit found, queued for a replication worker (U/badcopies).

A worker of auto-recovery reads what is queued, copy by copy, and writes anew what is bad or missing from good copies,
on the same bookie; it takes away what it mended. Queued is only what has a good copy somewhere. Genuine Apache workers
do not know the queue.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.client.blocking import connect
from bookkeeper.client.client import LedgerClient
from bookkeeper.config import ClientSettings
from bookkeeper.metadata.bad_copies_format import BadRange
from bookkeeper.model import BookieId, EntryId, LedgerId
from bookkeeper.spark.audit.report import Audit

REPAIRED = ("bad", "missing")


@dataclass(frozen=True, slots=True)
class Queued:
    """How much was queued."""

    ledgers: int
    ranges: int


def queue_repairs(found: Audit, uri: str, settings: ClientSettings | None = None) -> Queued:
    """Queue what is bad or missing and has a good copy elsewhere. Harmless when repeated. Raises MetadataError."""
    wanted = found.findings.where(f"kind IN {REPAIRED} AND good_copies > 0").orderBy("ledger_id", "first_entry_id")
    with connect(uri, settings) as client:
        rows = wanted.toLocalIterator()
        return client.run(lambda ledgers: Deferred.fromCoroutine(_queue(ledgers, list(rows))))


async def _queue(client: LedgerClient, rows: Iterable[Any]) -> Queued:
    now_ms, ledgers, ranges = int(time.time() * 1000), 0, 0
    for ledger_id, findings in groupby(rows, lambda row: row.ledger_id):
        bad = [
            BadRange(
                BookieId(row.bookie),
                EntryId(row.first_entry_id),
                EntryId(row.last_entry_id),
                f"an audit found it {row.kind}",
                now_ms,
            )
            for row in findings
        ]
        await client.store.underreplication.report_bad_copies(LedgerId(ledger_id), bad)
        ledgers, ranges = ledgers + 1, ranges + len(bad)
    return Queued(ledgers, ranges)
