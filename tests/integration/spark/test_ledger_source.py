"""The format bookkeeper, read by Spark from a real cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import bookkeeper.blocking
from bookkeeper.client.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalCluster
from tests.support.cluster import local_cluster
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/spark-{os.getpid()}-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, 3, directory=tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with bookkeeper.blocking.connect(cluster.uri) as connected:
        yield connected


def written(client: BlockingBookKeeper, payloads: list[bytes], **how: Any) -> int:
    with client.create(**how) as ledger:
        if payloads:
            ledger.append_many(payloads)
        return ledger.id


def load(spark: Any, cluster: LocalCluster, **options: object) -> Any:
    return spark.read.format("bookkeeper").option("uri", cluster.uri).options(**options).load()


def rows(frame: Any) -> list[tuple[int, int, bytes]]:
    return sorted((row.ledger_id, row.entry_id, bytes(row.value)) for row in frame.collect())


@pytest.mark.parametrize("how", [{}, {"write_quorum": 3}], ids=["striped", "on every bookie"])
def test_every_entry_is_read_once_however_many_tasks_read_it(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, how: dict[str, int]
) -> None:
    payloads = [b"entry %d" % number for number in range(5000)]
    ledger_id = written(client, payloads, **how)
    frame = load(spark, cluster, ledgers=ledger_id, minPartitions=5)
    assert frame.rdd.getNumPartitions() == 5
    assert rows(frame) == [(ledger_id, entry_id, payload) for entry_id, payload in enumerate(payloads)]


def test_sql_reads_chosen_ledgers_and_entries_and_obeys_filters(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    ids = [written(client, [b"%d/%d" % (ledger, entry) for entry in range(20)]) for ledger in range(3)]
    spark.sql(
        f"CREATE TEMPORARY VIEW three USING bookkeeper OPTIONS (uri '{cluster.uri}', ledgers '{ids[0]}-{ids[2]}')"
    )
    found = spark.sql(f"SELECT * FROM three WHERE ledger_id > {ids[0]} AND entry_id IN (3, 7, 99) AND value <> '1/3'")
    assert rows(found) == [(ids[1], 7, b"1/7"), (ids[2], 3, b"2/3"), (ids[2], 7, b"2/7")]
    spark.catalog.dropTempView("three")


def test_an_open_ledger_is_read_up_to_what_is_confirmed_and_its_writer_goes_on(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    with client.create() as ledger:
        for payload in (b"a", b"b", b"c"):  # each tells the bookies that the one before is confirmed
            ledger.append(payload)
        seen = rows(load(spark, cluster, ledgers=ledger.id))
        assert [value for _, _, value in seen] in ([b"a", b"b"], [b"a", b"b", b"c"])  # I-42
        ledger.append(b"d")  # nobody fenced it (I-43)
