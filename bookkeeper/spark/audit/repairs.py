"""Bad and missing copies that an audit found, queued for a replication worker (U/badcopies).

A worker of auto-recovery reads what is queued, copy by copy, and writes anew what is bad or missing from good copies,
on the same bookie; it takes away what it mended. Queued is only what has a good copy somewhere. Genuine Apache workers
do not know the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import connect
from bookkeeper.clock import wall_ms
from bookkeeper.config import ClientSettings
from bookkeeper.metadata.underreplication.damaged_copies_format import BadRange
from bookkeeper.model import BookieId, EntryId, LedgerId
from bookkeeper.spark.audit.report import Audit

REPAIRED = ("bad", "missing")

RANGES_MAX = 1000
"""Ranges that are held and queued together."""


@dataclass(frozen=True, slots=True)
class Queued:
    """How much was queued."""

    ledgers: int
    ranges: int


def queue_repairs(found: Audit, uri: str, settings: ClientSettings | None = None) -> Queued:
    """Queue what is bad or missing and has a good copy elsewhere. Harmless when repeated. Raises MetadataError."""
    wanted = found.findings.where(f"kind IN {REPAIRED} AND good_copies > 0").orderBy("ledger_id", "first_entry_id")
    ledgers, ranges, last = 0, 0, -1
    with connect(uri, settings) as client:
        for part in batches_of(wanted.toLocalIterator(), wall_ms()):
            client.run(_queueing(part))
            ledgers += len(part) - (last in part)  # one that goes on from the part before
            ranges += sum(map(len, part.values()))
            last = next(reversed(part))
    return Queued(ledgers, ranges)


def batches_of(rows: Iterable[Any], now_ms: int) -> Iterator[dict[int, list[BadRange]]]:
    """Findings, by ledger and ascending, as ranges of each ledger, RANGES_MAX at a time."""
    part: dict[int, list[BadRange]] = {}
    count = 0
    for row in rows:
        first, last, why = EntryId(row.first_entry_id), EntryId(row.last_entry_id), f"an audit found it {row.kind}"
        part.setdefault(row.ledger_id, []).append(BadRange(BookieId(row.bookie), first, last, why, now_ms))
        count += 1
        if count >= RANGES_MAX:
            yield part
            part, count = {}, 0
    if part:
        yield part


def _queueing(part: Mapping[int, Sequence[BadRange]]) -> Callable[[LedgerClient], Deferred[None]]:
    async def queue(client: LedgerClient) -> None:
        for ledger_id, bad in part.items():
            await client.store.underreplication.report_bad_copies(LedgerId(ledger_id), bad)

    return lambda client: Deferred.fromCoroutine(queue(client))
