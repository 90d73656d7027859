"""The format hedwig written by Spark: each row once, with tasks, workers, hubs and commits that fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import hedwig.admin.blocking
import hedwig.blocking
import hedwig.spark
from bookkeeper.embedded.cluster import LocalCluster
from hedwig.client.blocking import BlockingClient
from hedwig.embedded import LocalHub
from hedwig.wire.receiving import Received
from tests.support.cluster import local_cluster
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def spark() -> Any:
    session = spark_session()
    hedwig.spark.register(session)
    return session


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/spark-sink-{os.getpid()}-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, 3, directory=tmp_path_factory.mktemp("sink")) as running:
        yield running


@pytest.fixture(scope="module")
def hubs(cluster: LocalCluster) -> list[LocalHub]:
    settings = {"zk_prefix": f"{cluster.root}-hubs", "zk_timeout": "2000", "explicitLacInterval": "20"}
    hubs = [LocalHub.beside(cluster, number, settings) for number in (1, 2)]
    cluster.start_others(hubs)
    return hubs


@pytest.fixture(scope="module")
def client(hubs: list[LocalHub]) -> Iterator[BlockingClient]:
    with hedwig.blocking.connect([hub.address for hub in hubs]) as connected:
        yield connected


@pytest.fixture
def words(hubs: list[LocalHub]) -> dict[str, str]:
    return {"hubs": ",".join(hub.address for hub in hubs)}


def stored(client: BlockingClient, topic: str) -> list[Received]:
    """All messages of a topic."""
    end = client.publish(topic, b"end").local
    found: list[Received] = []
    with client.subscribe(topic, "check", start=1) as messages:
        while len(found) < end:
            found += messages.receive()
    client.unsubscribe(topic, "check")
    return [each for each in found if each.body != b"end"]


def numbers(spark: Any, count: int, partitions: int) -> Any:
    return spark.range(0, count, 1, partitions).selectExpr("concat('row ', id) AS value")


def test_rows_go_to_the_topics_that_they_name_with_keys_and_headers_in_their_order(
    spark: Any, client: BlockingClient, words: dict[str, str]
) -> None:
    frame = spark.range(0, 400, 1, 1).selectExpr(
        "concat('out ', id % 2) AS topic",
        "CAST(concat('row ', id) AS binary) AS value",
        "concat('k', id) AS key",
        "array(named_struct('key', 'color', 'value', CAST('red' AS binary)), "
        "named_struct('key', 'hw.seq', 'value', CAST('7' AS binary))) AS headers",
        "id AS other",
    )
    frame.write.format("hedwig").options(**words).mode("append").save()
    for topic, first in (("out 0", 0), ("out 1", 1)):
        found = stored(client, topic)
        assert [each.body for each in found] == [b"row %d" % number for number in range(first, 400, 2)]
        properties = dict(found[3].properties)
        assert (properties["key"], properties["color"]) == (b"k%d" % (first + 6), b"red")
        assert properties["hw.seq"] == b"4"  # the sink's own, in this topic


def test_rows_that_are_no_messages_are_refused_with_the_column(spark: Any, words: dict[str, str]) -> None:
    good = numbers(spark, 3, 1)
    for frame, options, text in (
        (good, {}, "neither option topic nor a column topic"),
        (good.selectExpr("value AS body"), {"topic": "bad"}, "there is no column value, only body"),
        (good.selectExpr("1 AS value"), {"topic": "bad"}, "column value is int, and must be string or binary"),
        (good.selectExpr("value", "5 AS topic"), {}, "column topic is int"),
        (good.selectExpr("value", "value AS headers"), {"topic": "bad"}, "column headers is string"),
        (good.selectExpr("CAST(NULL AS string) AS value"), {"topic": "bad"}, "column value is null in a row"),
        (good.selectExpr("value", "'a//b' AS topic"), {}, "between slashes"),
        (good, {"topik": "bad"}, r"did you mean topic\?"),
    ):
        with pytest.raises(Exception, match=text):
            frame.write.format("hedwig").options(**words, **options).mode("append").save()
    with pytest.raises(Exception, match="cannot be overwritten"):
        good.write.format("hedwig").options(**words, topic="bad").mode("overwrite").save()
