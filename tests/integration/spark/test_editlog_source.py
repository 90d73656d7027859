"""The format editlog, read by Spark from the ledgers of a real journal."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from typing import Any

import pytest

import journalmgr.spark
from bookkeeper.embedded.cluster import LocalCluster
from journalmgr.edits.fields import Block, Permission, RpcIds
from journalmgr.edits.ops import Add, Close, Delete, EndLogSegment, Mkdir, Rename, SetOwner, StartLogSegment
from tests.support.cluster import local_cluster
from tests.support.edit_journals import EditJournal, encoded
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def spark() -> Any:
    session = spark_session()
    journalmgr.spark.register(session)
    return session


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/editlog-{os.getpid()}-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, 3, directory=tmp_path_factory.mktemp("editlog")) as running:
        yield running


@pytest.fixture
def journal(cluster: LocalCluster, zookeeper: Any) -> Iterator[EditJournal]:
    with EditJournal(zookeeper.address, "/" + cluster.uri.rpartition("/")[2]) as made:
        yield made


def load(spark: Any, journal: EditJournal, **options: object) -> Any:
    return spark.read.format("editlog").options(**journal.options, **options).load()


def txids(frame: Any) -> list[int]:
    return sorted(row.txid for row in frame.select("txid").collect())


def test_sql_reads_finalised_segments_and_the_one_in_progress(spark: Any, journal: EditJournal) -> None:
    owned = Permission("alice", "staff", 0o644)
    rpc = RpcIds(bytes(range(16)), 7)
    journal.finalised(
        1,
        encoded(
            [
                StartLogSegment(),
                Mkdir(inode_id=2, path="/a", mtime=1_700_000_000_123, permission=owned),
                Add(path="/a/f", replication=3, block_size=1 << 27, permission=owned, overwrite=True, rpc=rpc),
                Close(path="/a/f", blocks=(Block(9, 100, 1001), Block(10, 5, 1002)), permission=owned),
                EndLogSegment(),
            ],
            1,
        ),
    )
    writer = journal.begun(6, encoded([StartLogSegment(), Rename(src="/a/f", dst="/a/g", options=(1,))], 6))
    for op in (SetOwner(src="/a", user="bob"), Delete(path="/a/g", timestamp=1_700_000_009_000), StartLogSegment()):
        journal.write(writer, encoded([op], writer.last_txid + 1))
    load(spark, journal, endingTxid=9).createOrReplaceTempView("edits")
    found = spark.sql("SELECT txid, op, path, dst, owner, `group`, mode, mtime FROM edits ORDER BY txid").collect()
    assert [(row.txid, row.op) for row in found] == [
        (1, "OP_START_LOG_SEGMENT"), (2, "OP_MKDIR"), (3, "OP_ADD"), (4, "OP_CLOSE"), (5, "OP_END_LOG_SEGMENT"),
        (6, "OP_START_LOG_SEGMENT"), (7, "OP_RENAME"), (8, "OP_SET_OWNER"), (9, "OP_DELETE"),
    ]  # fmt: skip
    assert found[1].path == "/a"
    assert (found[1].owner, found[1].group, found[1].mode) == ("alice", "staff", 0o644)
    assert found[1].mtime.astimezone(datetime.UTC) == datetime.datetime.fromtimestamp(1_700_000_000.123, datetime.UTC)
    assert (found[7].owner, found[7].group) == ("bob", None)
    one = spark.sql(
        "SELECT sum(b.num_bytes) AS size, count(*) AS n FROM edits LATERAL VIEW explode(blocks) AS b"
    ).collect()
    assert [(row["size"], row.n) for row in one] == [(105, 2)]
    assert [row.rpc_call_id for row in spark.sql("SELECT rpc_call_id FROM edits WHERE overwrite").collect()] == [7]
    places = spark.sql("SELECT DISTINCT segment_first_txid, ledger_id, layout_version FROM edits ORDER BY 1").collect()
    assert [tuple(row) for row in places] == [(s.first_txid, s.ledger_id, -63) for s in journal.segments()]
    # Nobody was fenced: the writer goes on.
    journal.write(writer, encoded([EndLogSegment()], writer.last_txid + 1))
    spark.catalog.dropTempView("edits")
