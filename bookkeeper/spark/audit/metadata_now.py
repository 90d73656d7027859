"""What the metadata store says now of some ledgers, after a sync (I-19); asked by tasks and by the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.parallel import in_parallel
from bookkeeper.config import ClientSettings
from bookkeeper.errors import MetadataCorrupt, MetadataTooNew, NoSuchLedger
from bookkeeper.model import LedgerId
from bookkeeper.spark.arrow_map import ArrowMap, map_in_arrow
from bookkeeper.spark.process_client import client_of

AT_ONCE = 64

NOW_COLUMNS = "ledger_id LONG, last_entry_id LONG, length LONG"

Now = dict[str, int | None]


def metadata_now(ledgers: DataFrame, settings: ClientSettings) -> DataFrame:
    """Rows of NOW_COLUMNS of those ledgers that are there; null: it is not closed, or cannot be read.

    ledgers: rows with `ledger_id`, each asked about once. Tasks raise MetadataError where that cannot be told: a ledger
    that is left out is certainly not there.
    """
    return map_in_arrow(ledgers.select("ledger_id").distinct(), _asking(settings), NOW_COLUMNS)


def _asking(settings: ClientSettings) -> ArrowMap:
    def ask(batches: Iterator[Any]) -> Iterator[Any]:
        schema = pa.schema([(name, pa.int64()) for name in ("ledger_id", "last_entry_id", "length")])
        for batch in batches:
            if batch.num_rows:
                found = client_of(settings).run(looking(batch.column(0).to_pylist()))
                yield pa.RecordBatch.from_pylist(found, schema=schema)

    return ask


def looking(ledger_ids: Sequence[int]) -> Callable[[LedgerClient], Deferred[list[Now]]]:
    """Ask for some ledgers, AT_ONCE at a time: those that are there, as NOW_COLUMNS. Fails as `metadata_now` does."""

    async def look(client: LedgerClient) -> list[Now]:
        found: list[Now] = []
        await client.store.sync()

        async def look_at(ledger_id: int) -> None:
            last = length = None
            try:
                metadata = await client.metadata(LedgerId(ledger_id))
                last, length = metadata.last_entry_id, metadata.length
            except NoSuchLedger:
                return
            except (MetadataCorrupt, MetadataTooNew):
                pass  # it is there, whatever it says
            found.append({"ledger_id": ledger_id, "last_entry_id": last, "length": length})

        await in_parallel((look_at(each) for each in ledger_ids), AT_ONCE)
        return found

    return lambda client: Deferred.fromCoroutine(look(client))
