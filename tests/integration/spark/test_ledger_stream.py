"""The format bookkeeper as a stream, on a real cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bookkeeper.blocking
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalCluster
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

Rows = list[tuple[int, int, bytes]]


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/spark-stream-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("spark")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as connected:
        yield connected


class Query:
    """A stream into Parquet files, with a checkpoint beside them."""

    def __init__(self, spark: Any, cluster: LocalCluster, directory: Path, **options: object) -> None:
        self._spark, self._uri, self._directory, self._options = spark, cluster.uri, directory, options

    def start(self, **trigger: Any) -> Any:
        frame = self._spark.readStream.format("bookkeeper").option("uri", self._uri).options(**self._options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{self._directory}/checkpoint")
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start(f"{self._directory}/rows")

    def run_to_the_end(self) -> list[int]:
        """Run with availableNow; rows of each micro-batch that had some."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(120)
        assert query.exception() is None
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def rows(self) -> Rows:
        found = self._spark.read.parquet(f"{self._directory}/rows").collect()
        return sorted((row.ledger_id, row.entry_id, bytes(row.value)) for row in found)


def payloads(first: int, count: int) -> list[bytes]:
    return [b"entry %d" % number for number in range(first, first + count)]


def expected(ledger_id: int, values: list[bytes]) -> Rows:
    return [(ledger_id, entry_id, value) for entry_id, value in enumerate(values)]


def test_available_now_obeys_its_limit_ends_and_goes_on_from_its_checkpoint(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    with client.create() as first, client.create() as second:
        first.append_many(payloads(0, 250))
        second.append_many(payloads(0, 50))
        first.append(b"last")  # tells the bookies that those before are confirmed
        second.append(b"last")
        ids = f"{first.id},{second.id}"
        query = Query(
            spark, cluster, tmp_path, ledgers=ids, startingOffsets="earliest", maxEntriesPerTrigger=100, minPartitions=2
        )
        assert query.run_to_the_end()[:3] == [100, 100, 100]  # then, at most, the last ones, by their explicit LAC
        assert [row for row in query.rows() if row[2] != b"last"] == (
            expected(first.id, payloads(0, 250)) + expected(second.id, payloads(0, 50))
        )
        first.append_many(payloads(251, 20))
    query.run_to_the_end()  # both are closed now
    whole = expected(first.id, [*payloads(0, 250), b"last", *payloads(251, 20)])
    assert query.rows() == whole + expected(second.id, [*payloads(0, 50), b"last"])
    assert query.run_to_the_end() == []


def test_a_running_stream_follows_an_open_ledger_its_close_and_new_ledgers(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    with client.create() as old:
        old.append_many(payloads(0, 10))
    with client.create() as ledger:
        query = Query(spark, cluster, tmp_path, ledgers=f"{old.id}-{ledger.id + 1}", startingOffsets="latest")
        running = query.start()
        try:
            running.processAllAvailable()
            for value in payloads(0, 30):
                ledger.append(value)
            running.processAllAvailable()
            assert query.rows() in [expected(ledger.id, payloads(0, count)) for count in (29, 30)]  # I-42
            ledger.append_many(payloads(30, 100))  # not fenced (I-43)
            ledger.close()
            running.processAllAvailable()
            assert query.rows() == expected(ledger.id, payloads(0, 130))
        finally:
            running.stop()
    with client.create(ledger_id=None) as new:
        new.append_many(payloads(0, 5))
    assert new.id == ledger.id + 1
    query.run_to_the_end()
    assert query.rows() == expected(ledger.id, payloads(0, 130)) + expected(new.id, payloads(0, 5))


def test_a_stream_from_the_latest_loses_nothing_where_its_first_micro_batch_fails_and_entries_come_meanwhile(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    """Spark asks for the initial offset thrice: for the end, for the plan, and for the plan after the restart."""
    found: list[int] = []
    fails = True
    with client.create() as ledger:
        ledger.append_many(payloads(0, 10))
        ledger.append(b"last")
        words = {"uri": cluster.uri, "ledgers": str(ledger.id)}
        frame = spark.readStream.format("bookkeeper").options(**words).load()

        def take(rows: Any, _: int) -> None:
            if fails:
                raise RuntimeError("injected")
            found.extend(row.entry_id for row in rows.collect())

        def start() -> Any:
            writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", f"{tmp_path}/checkpoint")
            return writer.trigger(availableNow=True).start()

        with pytest.raises(Exception, match="injected"):
            start().awaitTermination(120)
        for value in payloads(11, 20):
            ledger.append(value)
    fails = False
    assert start().awaitTermination(120)
    assert found == list(range(found[0], 31))
    assert found[0] in (10, 11)  # whether `last` was confirmed when the query began


def test_a_ledger_deleted_before_it_was_read_to_its_end_is_data_loss(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    kept, lost = client.create(), client.create()
    for ledger in (kept, lost):
        ledger.append_many(payloads(0, 10))
        ledger.append(b"last")
    ids = f"{kept.id},{lost.id}"
    query = Query(spark, cluster, tmp_path, ledgers=ids, startingOffsets="earliest")
    query.run_to_the_end()
    lost.append_many(payloads(11, 10))
    for ledger in (kept, lost):
        ledger.close()
    client.delete(lost.id)
    failed = query.start(availableNow=True)
    with pytest.raises(Exception, match=f"ledger {lost.id} was deleted before the stream had read it to its end"):
        failed.awaitTermination(120)
    borne = Query(spark, cluster, tmp_path, ledgers=ids, startingOffsets="earliest", failOnDataLoss="false")
    borne.run_to_the_end()
    there = expected(kept.id, [*payloads(0, 10), b"last"]) + expected(lost.id, payloads(0, 10))
    assert [row for row in borne.rows() if row[:2] != (lost.id, 10)] == there  # its `last` may have been confirmed


def test_options_that_do_not_fit_are_refused_with_the_word(spark: Any, cluster: LocalCluster, tmp_path: Path) -> None:
    query = Query(spark, cluster, tmp_path, ledgers="all", endingOffsets="latest").start()
    with pytest.raises(Exception, match="endingOffsets belongs to a batch read"):
        query.awaitTermination(60)
    with pytest.raises(Exception, match="maxBytesPerTrigger belongs to a stream"):
        spark.read.format("bookkeeper").options(uri=cluster.uri, ledgers="all", maxBytesPerTrigger="5").load().count()
    with pytest.raises(Exception, match=r"option ledger of format bookkeeper: is unknown; did you mean ledgers\?"):
        Query(spark, cluster, tmp_path, ledger="3").start()


def test_the_checkpoint_of_another_source_is_refused(spark: Any, cluster: LocalCluster, tmp_path: Path) -> None:
    rates = spark.readStream.format("rate").load().writeStream.format("noop")
    other = rates.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(once=True).start()
    assert other.awaitTermination(60)
    query = Query(spark, cluster, tmp_path, ledgers="all").start(availableNow=True)
    with pytest.raises(Exception, match="belongs to another query: use another checkpointLocation"):
        query.awaitTermination(60)
