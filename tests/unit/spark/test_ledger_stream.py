"""What a stream over ledgers asks of a cluster, here one in memory whose ledgers are closed or gone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.client.client import LedgerClient
from bookkeeper.errors import NoSuchLedger
from bookkeeper.metadata.memory import MemoryMetadata, MemoryMetadataStore
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, LedgerState
from bookkeeper.spark import ledger_stream
from bookkeeper.spark.ledger_options import WHERE, LedgerReadOptions
from bookkeeper.spark.ledger_stream import LedgerStreamReader
from bookkeeper.spark.options import read_options
from tests.support.simulated_clock import SimulatedClock


class Cluster:
    """Ledgers, and the blocking client of them."""

    def __init__(self) -> None:
        clock, rng = SimulatedClock(), random.Random(1)
        self.metadata = MemoryMetadata()
        self.store = MemoryMetadataStore(self.metadata, clock, rng)
        no_network: Any = None
        self._client = LedgerClient(self.store, no_network, clock, rng)

    def run(self, start: Callable[[LedgerClient], Deferred[Any]]) -> Any:
        outcome: list[Any] = []
        start(self._client).addBoth(outcome.append)
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        return outcome[0]

    def closed_ledger(self, entries: int) -> int:
        fragment = Fragment(EntryId(0), (BookieId("bookie-a:3181"),))
        closed = LedgerMetadata(
            1, 1, 1, (fragment,), state=LedgerState.CLOSED, last_entry_id=EntryId(entries - 1), length=100 * entries
        )
        return int(self.run(lambda client: client.store.ledgers.create(closed))[0])

    def delete(self, ledger_id: int) -> None:
        self.run(lambda client: client.delete(ledger_id))


def stream(cluster: Cluster, ledgers: str, monkeypatch: pytest.MonkeyPatch) -> LedgerStreamReader:
    """What a query that is started has."""
    monkeypatch.setattr(ledger_stream, "client_of", lambda _: cluster)
    given = {"uri": "zk://zk1:2181/ledgers", "ledgers": ledgers}
    return LedgerStreamReader(read_options(LedgerReadOptions, given, where=WHERE))


def test_a_query_that_ends_goes_on_after_a_ledger_that_it_has_read_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read to its end is no data loss; what is gone before that is."""
    cluster = Cluster()
    first, second, third = (cluster.closed_ledger(3) for _ in range(3))
    read = {"done": str(first), str(second): 1}
    cluster.delete(first)

    reader = stream(cluster, f"{first},{second},{third}", monkeypatch)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(read, ReadAllAvailable()) == {"done": f"{first}-{third}"}

    cluster.delete(second)
    reader = stream(cluster, f"{first},{second},{third}", monkeypatch)
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(NoSuchLedger, match=f"ledger {second} was deleted before .* failOnDataLoss=false"):
        reader.latestOffset(read, ReadAllAvailable())
