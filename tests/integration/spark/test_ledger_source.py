"""The format bookkeeper, read by Spark from a real cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import bookkeeper.blocking
import bookkeeper.spark
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.patience import until
from tests.support.spark import spark_session

FREQUENT_LAC = with_long_timeouts(ClientSettings(explicit_lac_interval_s=0.02))

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/spark-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("spark")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as connected:
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
    assert spark.sql("SELECT * FROM three").count() == 60  # what one query filters, the next one has all the same
    spark.catalog.dropTempView("three")


def test_filters_choose_what_is_read_where_that_was_asked_for(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    """A ledger that no filter lets pass need not even be there."""
    ledger_id = written(client, [b"%d" % entry for entry in range(20)])
    bookkeeper.spark.register(spark, push_filters=True)
    try:
        frame = load(spark, cluster, ledgers=f"{ledger_id},999999")
        assert [entry for _, entry, _ in rows(frame.where("ledger_id < 999999 AND entry_id IN (3, 7, 99)"))] == [3, 7]
    finally:
        bookkeeper.spark.register(spark)
    with pytest.raises(Exception, match="ledger 999999 was to be read and is not there"):
        load(spark, cluster, ledgers=f"{ledger_id},999999").where("ledger_id < 999999").count()


def test_an_open_ledger_is_read_up_to_what_is_confirmed_and_its_writer_goes_on(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    with client.create() as ledger:
        for payload in (b"a", b"b", b"c"):  # each tells the bookies that the one before is confirmed
            ledger.append(payload)
        seen = rows(load(spark, cluster, ledgers=ledger.id))
        assert [value for _, _, value in seen] in ([b"a", b"b"], [b"a", b"b", b"c"])  # I-42
        ledger.append(b"d")  # nobody fenced it (I-43)
    with bookkeeper.blocking.connect(cluster.uri, FREQUENT_LAC) as pausing, pausing.create() as ledger:
        ledger.append_many([b"%d" % number for number in range(50)])  # at once: none tells that another is confirmed
        last = (ledger.id, 49, b"49")
        until(
            lambda: rows(load(spark, cluster, ledgers=ledger.id))[-1:] == [last],
            "entries that a paused writer confirmed are read",
        )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ledgers": "999999"}, "ledger 999999 was to be read and is not there"),
        ({"ledger": "1"}, r"option ledger of format bookkeeper: is unknown; did you mean ledgers\?"),
        ({"ledgers": "1", "minPartitions": "none"}, "minPartitions=none: not a whole number"),
        ({"ledgers": "all", "uri": "zk://127.0.0.1:1/ledgers", "zkTimeout": "1000"}, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_remedy(
    spark: Any, cluster: LocalCluster, options: dict[str, str], why: str
) -> None:
    with pytest.raises(Exception, match=why):
        load(spark, cluster, **options).count()


def test_a_wrong_password_is_refused_and_an_administrator_needs_none(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    ledger_id = written(client, [b"secret"], password=b"open sesame")
    with pytest.raises(Exception, match=f"ledger {ledger_id}: the password is not .*asAdministrator=true"):
        load(spark, cluster, ledgers=ledger_id).count()
    assert rows(load(spark, cluster, ledgers=ledger_id, password="open sesame")) == [(ledger_id, 0, b"secret")]
    assert rows(load(spark, cluster, ledgers=ledger_id, asAdministrator="true")) == [(ledger_id, 0, b"secret")]


def test_rows_of_another_shape_are_refused(spark: Any, cluster: LocalCluster) -> None:
    reader = spark.read.format("bookkeeper").options(uri=cluster.uri, ledgers="all").schema("id bigint, text string")
    with pytest.raises(Exception, match=r"leave .schema\(...\) out and select or cast afterwards"):
        reader.load().count()


def test_a_missing_ledger_is_left_out_where_data_loss_is_borne(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    ledger_id = written(client, [b"a"])
    frame = load(spark, cluster, ledgers=f"{ledger_id},999999", failOnDataLoss="false")
    assert rows(frame) == [(ledger_id, 0, b"a")]


def test_positions_bound_what_is_read_of_each_ledger(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    first, second = (written(client, [b"%d" % entry for entry in range(10)]) for _ in range(2))
    frame = load(
        spark,
        cluster,
        ledgers=f"{first},{second}",
        startingOffsets=f'{{"{first}": 7}}',
        endingOffsets=f'{{"{first}": -1, "{second}": 2}}',
    )
    wanted = [(first, entry) for entry in (7, 8, 9)] + [(second, entry) for entry in (0, 1)]
    assert rows(frame) == [(ledger, entry, b"%d" % entry) for ledger, entry in wanted]
    with pytest.raises(Exception, match=f"ledger {first} has entries 0..9 so far; 11 is beyond"):
        load(spark, cluster, ledgers=first, startingOffsets=f'{{"{first}": 11}}').count()


def test_a_bookie_that_dies_while_a_query_reads_is_passed_over(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    """The first task has read some when the bookie is killed: the rest comes from the other copies."""
    payloads = [b"%d" % entry * 50 for entry in range(20_000)]
    ledger_id = written(client, payloads)
    frame = load(spark, cluster, ledgers=ledger_id, minPartitions=8)
    it = frame.toLocalIterator()  # a job for each partition, one after the other
    found = [next(it) for _ in range(10)]
    cluster.bookies[0].kill()
    try:
        found += list(it)
    finally:
        cluster.bookies[0].start()
    assert sorted((row.entry_id, bytes(row.value)) for row in found) == list(enumerate(payloads))


@pytest.mark.parametrize("borne", [False, True])
def test_a_ledger_that_is_deleted_while_a_query_reads_it_is_data_loss(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, borne: bool
) -> None:
    ledger_id = written(client, [b"%d" % entry for entry in range(1000)])
    frame = load(spark, cluster, ledgers=ledger_id, minPartitions=4, failOnDataLoss=str(not borne))
    it = frame.toLocalIterator()  # a job for each partition, one after the other
    next(it)
    client.delete(ledger_id)
    if borne:
        assert len(list(it)) < 999
    else:
        with pytest.raises(Exception, match=f"ledger {ledger_id} was deleted while entries 250 to 499 of it were"):
            list(it)
