"""What a stream over ledgers asks of a cluster, here one in memory whose ledgers are closed or gone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from bookkeeper.client.client import LedgerClient
from bookkeeper.errors import InvalidArgument, NoSuchLedger
from bookkeeper.metadata.memory.store import MemoryMetadata, MemoryMetadataStore
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerMetadata, LedgerState
from bookkeeper.spark.ledgers import stream as ledger_stream
from bookkeeper.spark.ledgers.options import WHERE, LedgerReadOptions
from bookkeeper.spark.ledgers.partition import LedgerPartition
from bookkeeper.spark.ledgers.stream import LedgerStreamReader
from bookkeeper.spark.ledgers.stream_offsets import position_of
from bookkeeper.spark.options.tables import read_options
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


def stream(cluster: Cluster, ledgers: str, monkeypatch: pytest.MonkeyPatch, **options: object) -> LedgerStreamReader:
    """What a query that is started has."""
    monkeypatch.setattr(ledger_stream, "client_of", lambda _: cluster)
    given = {"uri": "zk://zk1:2181/ledgers", "ledgers": ledgers, **{word: str(each) for word, each in options.items()}}
    return LedgerStreamReader(read_options(LedgerReadOptions, given, where=WHERE))


def test_a_query_that_ends_goes_on_after_a_ledger_that_it_has_read_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read to its end is no data loss; what is gone before that is."""
    cluster = Cluster()
    first, second, third = (cluster.closed_ledger(3) for _ in range(3))
    read = {"done": str(first), str(second): 1}
    cluster.delete(first)

    reader = stream(cluster, f"{first},{second},{third}", monkeypatch)
    reader.prepareForTriggerAvailableNow()
    assert position_of(reader.latestOffset(read, ReadAllAvailable())) == {"done": f"{first}-{third}"}

    cluster.delete(second)
    reader = stream(cluster, f"{first},{second},{third}", monkeypatch)
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(NoSuchLedger, match=f"ledger {second} was deleted before .* failOnDataLoss=false"):
        reader.latestOffset(read, ReadAllAvailable())


def slices(reader: LedgerStreamReader, start: Any, end: Any) -> list[list[tuple[int, int, int]]]:
    """Who reads what of a micro-batch."""
    found = []
    for partition in reader.partitions(start, end):
        assert isinstance(partition, LedgerPartition)
        found.append([(each.ledger_id, each.first_entry_id, each.last_entry_id) for each in partition.slices])
    return found


def test_a_first_micro_batch_that_is_planned_again_begins_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark asks for the initial offset whenever it plans that one, and the latest is another place by then."""
    cluster = Cluster()
    cluster.closed_ledger(3)
    begun = stream(cluster, "0-9", monkeypatch)
    start = begun.initialOffset()
    assert begun.latestOffset(start, ReadAllAvailable()) == start
    assert begun.partitions(begun.initialOffset(), start) == []
    assert cluster.closed_ledger(5) == 1
    monkeypatch.setattr(ledger_stream, "DISCOVERY_S", 0.0)
    end = begun.latestOffset(start, ReadAllAvailable())
    assert cluster.closed_ledger(7) == 2
    for planner in (begun, stream(cluster, "0-9", monkeypatch)):
        again = planner.initialOffset()
        assert position_of(again) == {"done": "0-2"}
        assert slices(planner, again, end) == [[(1, 0, 4)]]
    assert begun.partitions(begun.initialOffset(), start) == [], "a first one without rows has none when it comes again"
    following = begun.latestOffset(end, ReadAllAvailable())
    assert slices(begun, end, following) == [[(2, 0, 6)]]
    assert "from" not in following["/stream"]


def test_a_micro_batch_is_divided_again_as_it_was_whatever_the_options_say_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    monkeypatch.setattr(ledger_stream, "DISCOVERY_S", 0.0)
    cluster.closed_ledger(100)
    begun = stream(cluster, "0-9", monkeypatch, startingOffsets="earliest", minPartitions=2)
    start = begun.initialOffset()
    end = begun.latestOffset(start, ReadAllAvailable())
    halves = slices(begun, start, end)
    assert halves == [[(0, 0, 49)], [(0, 50, 99)]]
    restarted = stream(cluster, "0-9", monkeypatch, startingOffsets="earliest", minPartitions=5)
    assert slices(restarted, start, end) == halves
    assert restarted.latestOffset(end, ReadAllAvailable()) == end, "other options are nothing new to read"
    cluster.closed_ledger(50)
    assert len(restarted.partitions(end, restarted.latestOffset(end, ReadAllAvailable()))) == 5
    # What an earlier release has left in a checkpoint is divided as the options say.
    assert len(restarted.partitions({"done": ""}, position_of(end))) == 5


def test_a_checkpoint_of_a_cluster_that_was_made_anew_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ledgers have the same ids, and would be taken for those that were read."""
    cluster = Cluster()
    cluster.closed_ledger(3)
    begun = stream(cluster, "all", monkeypatch, startingOffsets="earliest")
    end = begun.latestOffset(begun.initialOffset(), ReadAllAvailable())
    anew = Cluster()
    anew.metadata.damage("/ledgers/INSTANCEID", b"00000000-0000-4000-8000-000000000001")
    anew.closed_ledger(4)
    restarted = stream(anew, "all", monkeypatch)
    for ask in (
        lambda: restarted.latestOffset(end, ReadAllAvailable()),
        lambda: restarted.partitions(restarted.initialOffset(), end),
    ):
        with pytest.raises(InvalidArgument, match=r"instance id 0000.*0; this one is 0000.*1: another"):
            ask()


def test_a_stream_begins_at_the_positions_that_ledgers_have_and_refuses_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a ledger that is still to come would be forgotten by then."""
    cluster = Cluster()
    assert cluster.closed_ledger(9) == 0
    for chosen in ("all", "0-9"):
        begun = stream(cluster, chosen, monkeypatch, startingOffsets='{"0": 5, "1": -2, "2": -1, "3": 0}')
        assert position_of(begun.initialOffset()) == {"done": "", "0": 5}
        early = stream(cluster, chosen, monkeypatch, startingOffsets='{"0": 5, "7": 500}')
        with pytest.raises(InvalidArgument, match=r"startingOffsets: ledger 7 is not there, .* 500 .* Leave it out"):
            early.initialOffset()


def test_a_stream_that_begins_at_the_end_of_closed_ledgers_says_once_that_it_will_read_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    ledgers = ",".join(str(cluster.closed_ledger(5)) for _ in range(2))

    def said(chosen: str, **options: object) -> list[str]:
        with capturedLogs() as events:
            reader = stream(cluster, chosen, monkeypatch, **options)
            for _ in range(2):
                reader.initialOffset()
        return [str(event["log_format"]) for event in events]

    [line] = said(ledgers)
    assert "it will read nothing. startingOffsets=earliest reads what they have" in line
    assert said(ledgers, startingOffsets="latest") == said(ledgers, startingOffsets="earliest") == []
    assert said("all") == said("0-1") == []
