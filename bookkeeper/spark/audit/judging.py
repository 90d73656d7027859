"""Chunks judged by tasks: what was read in place, beside what their bookies answer. Thread: a task's.

a task's rows, sorted     ledger_id  chunk  kind      ...
                          7          0      chunk     end: to be judged
                          7          0      copies    of a bookie, from its directories
                          7          0      said      likewise
                          7          1      chunk
                          8          3      copies    without `chunk`: not planned; left out
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.config import ClientSettings
from bookkeeper.errors import NoSuchLedger
from bookkeeper.spark.arrow_map import ArrowMap
from bookkeeper.spark.audit.bookie_copies import BookiePaces
from bookkeeper.spark.audit.chunk_audit import audit_chunk
from bookkeeper.spark.audit.evidence import Evidence
from bookkeeper.spark.audit.rows import CHUNK, batch_of, chunk_rows
from bookkeeper.spark.audit.stored_evidence import StoredBookie, take_row
from bookkeeper.spark.process_client import client_of

ROWS = 1000
"""Rows that are handed over at once, or a few more."""


@dataclass(frozen=True, slots=True)
class JudgeWork:
    """What every task is told. bytes_per_s: of each bookie, by this task. stored: bookies that were read in place."""

    client: ClientSettings
    bytes_per_s: float
    stored: Mapping[str, StoredBookie]


def judging(work: JudgeWork) -> ArrowMap:
    """For `map_in_arrow` on rows as drawn: rows of `rows.AUDIT_SCHEMA`.

    Raises MetadataError. Ledgers that are gone have no rows.
    """

    def judge(batches: Iterator[Any]) -> Iterator[Any]:
        client, paces, gone = client_of(work.client), BookiePaces(work.bytes_per_s), None
        waiting: list[dict[str, object]] = []
        for (ledger_id, chunk), group in groupby(_rows_of(batches), lambda row: (row["ledger_id"], row["chunk"])):
            planned, *evidence = group
            if planned["kind"] != CHUNK or ledger_id == gone:
                continue
            end, stored = planned["last_entry_id"], _stored(work.stored, ledger_id, chunk, evidence)

            def audit(
                ledgers: LedgerClient, at: tuple[int, int, int] = (ledger_id, end, chunk), stored: Any = stored
            ) -> Any:
                return Deferred.fromCoroutine(audit_chunk(ledgers, *at, paces=paces, stored=stored))

            try:
                verdict = client.run(audit)
            except NoSuchLedger:
                gone = ledger_id  # deleted since: nothing of it is to be kept any more
                continue
            waiting += chunk_rows(ledger_id, chunk, end, verdict)
            if len(waiting) >= ROWS:
                yield batch_of(waiting)
                waiting = []
        if waiting:
            yield batch_of(waiting)

    return judge


def _rows_of(batches: Iterator[Any]) -> Iterator[Mapping[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _stored(
    bookies: Mapping[str, StoredBookie], ledger_id: int, chunk: int, rows: Sequence[Mapping[str, Any]]
) -> dict[str, Evidence]:
    """The evidence of each bookie that was read in place, also where it has nothing."""
    found = {name: Evidence(ledger_id, chunk, name) for name in bookies}
    for row in rows:
        if row["bookie"] in found:
            take_row(found[row["bookie"]], row)
    for name, bookie in bookies.items():
        bookie.finish(found[name])
    return found
