"""Spark shows no secret of an option: not in EXPLAIN, on the pages of a query or in its event log.

The event log and the pages of SQL are written from the executions that the session's status store keeps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import bookkeeper.blocking
from bookkeeper.embedded.cluster import LocalCluster
from tests.support.cluster import STEADY, local_cluster
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

PASSWORD, IDENTITY = "S3CRETPW", "joe:S3CRETZK"
SECRETS = {"password": PASSWORD, "zkDigestAuthPassword": IDENTITY}


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/spark-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("spark")
    with local_cluster(zookeeper.address, root, 1, directory=directory, settings=STEADY) as running:
        yield running


def executions(spark: Any) -> str:
    """Return all that the session keeps of its executions: plans, their details and properties."""
    store = spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001 - Spark has no public way to it
    found, count = [], store.executionsCount()
    listed = store.executionsList()
    for number in range(count):
        each = listed.apply(number)
        graph = store.planGraph(each.executionId()).allNodes()
        nodes = [graph.apply(at).desc() for at in range(graph.size())]
        properties = each.modifiedConfigs().toString()
        found.append("\n".join([each.physicalPlanDescription(), each.details(), properties, *nodes]))
    return "\n".join(found)


def assert_hidden(text: str) -> None:
    assert "S3CRET" not in text


def test_no_plan_of_a_read_or_a_write_shows_a_secret(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> None:
    spark = spark_session()
    with bookkeeper.blocking.connect(cluster.uri) as client:
        one = {"ensemble": 1, "write_quorum": 1, "ack_quorum": 1}
        with client.create(**one, password=PASSWORD.encode()) as ledger:
            ledger.append(b"x")
    options = {"uri": cluster.uri, "ledgers": ledger.id, **SECRETS}
    frame = spark.read.format("bookkeeper").options(**options).load()
    assert [bytes(row.value) for row in frame.collect()] == [b"x"]
    frame.explain(True)
    written = ", ".join(f"{name} '{value}'" for name, value in options.items())
    view = f"CREATE TEMPORARY VIEW with_secrets USING bookkeeper OPTIONS ({written})"
    plan = spark.sql(f"EXPLAIN EXTENDED {view}").collect()[0][0]
    assert plan.count("(redacted)") >= len(SECRETS), plan
    assert_hidden(plan)
    spark.sql(view)
    spark.sql("EXPLAIN EXTENDED SELECT * FROM with_secrets").show(truncate=False)
    sink = {"uri": cluster.uri, "ensembleSize": 1, **SECRETS}
    frame.select("value").write.format("bookkeeper").options(**sink).mode("append").save()
    shown = capfd.readouterr()
    assert "bookkeeper" in shown.out
    assert_hidden(shown.out + shown.err)
    kept = executions(spark)
    assert "bookkeeper" in kept
    assert_hidden(kept)


@pytest.mark.parametrize("name", ["passwd", "zkDigestAuth"])
def test_a_name_that_spark_shows_is_refused_before_there_is_a_plan(cluster: LocalCluster, name: str) -> None:
    spark = spark_session()
    with pytest.raises(Exception, match="whose value Spark hides") as caught:
        spark.read.format("bookkeeper").options(uri=cluster.uri, ledgers=0, **{name: IDENTITY}).load()
    assert_hidden(str(caught.value))
    assert_hidden(executions(spark))
