"""Ledgers that bookies have and the cluster has not: told by those that run, and whose bookies cannot tell is said.

bookies 1, 2   with HTTP            bookie 3   without            bookie 4   stopped, read in place where that is said
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import bookkeeper.blocking
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.spark.audit import report
from bookkeeper.spark.audit.ledger_ends import ids_there
from bookkeeper.spark.audit.report import Audit, audit
from tests.support.audit_faults import damage_metadata, written
from tests.support.cluster import STEADY, collected, local_cluster, with_long_timeouts
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

HTTP = {"httpServerEnabled": "true", "httpServerPort": "0"}
FAR_AWAY = {"gcWaitTime": "3600000"}
"""Milliseconds: no round of collection comes by itself."""


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture
def cluster(zookeeper: Any, tmp_path: Path) -> Iterator[LocalCluster]:
    root = f"/audit-orphans-{os.getpid()}-{os.urandom(3).hex()}"
    settings = {**STEADY, **FAR_AWAY, **HTTP}
    with local_cluster(zookeeper.address, root, 4, directory=tmp_path, settings=settings) as running:
        silent = running.bookies[2]
        assert silent.stop() == 0
        silent.settings["httpServerEnabled"] = "false"
        silent.start()
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as connected:
        yield connected


def orphans_of(found: Audit) -> set[tuple[str, int]]:
    return {(row.bookie, row.ledger_id) for row in found.findings.where("kind = 'orphan'").collect()}


def test_deleted_ledgers_that_wait_for_collection_are_orphans_of_the_bookies_that_tell(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    one, two, silent, stopped = cluster.bookies
    everywhere = [bookie.bookie_id for bookie in cluster.bookies]
    written(client, 10, ensemble=4, write_quorum=4, bookies=everywhere)
    deleted = [written(client, 10, ensemble=4, write_quorum=4, bookies=everywhere) for _ in range(2)]
    for ledger_id in deleted:
        client.delete(ledger_id)
    assert stopped.stop() == 0
    output = str(tmp_path / "audit")
    found = audit(spark, cluster.uri, output=output, bookie_directories=[str(stopped.ledger_directory)])
    expected = {(bookie.bookie_id, ledger_id) for bookie in (one, two, stopped) for ledger_id in deleted}
    assert orphans_of(found) == expected
    assert (found.is_clean, found.copies) == (True, 40), "garbage is no fault of a copy"
    assert found.held_unknown.keys() == {silent.bookie_id}
    assert "httpServerEnabled=true" in found.held_unknown[silent.bookie_id]
    sizes = {row.bookie: row.entries for row in found.findings.where(f"ledger_id = {deleted[0]}").collect()}
    assert sizes == {one.bookie_id: None, two.bookie_id: None, stopped.bookie_id: 10}


def test_ledgers_that_are_made_deleted_or_collected_during_an_audit_are_no_orphans(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happens meanwhile happens between the bookies' answer and the end, when all of it looks like an orphan."""
    one, two, *_ = (bookie.bookie_id for bookie in cluster.bookies)
    how: dict[str, Any] = {"ensemble": 2, "write_quorum": 2, "bookies": [one, two]}
    before, waits, deleted = (written(client, 10, **how) for _ in range(3))
    client.delete(waits)
    meanwhile: list[int] = []

    def listed_then(connected: BlockingBookKeeper) -> Any:
        found = ids_there(connected)
        meanwhile.append(written(client, 10, **how))
        for ledger_id in (deleted, *meanwhile):
            client.delete(ledger_id)
        return found

    monkeypatch.setattr(report, "ids_there", listed_then)
    found = audit(spark, cluster.uri)
    assert orphans_of(found) == {(one, waits), (two, waits)}
    assert meanwhile
    assert {row.ledger_id for row in found.rows.where(F.col("kind") == "chunk").collect()} == {before}

    def listed_then_collected(connected: BlockingBookKeeper) -> Any:
        found = ids_there(connected)
        collected(cluster.bookies[0])
        return found

    monkeypatch.setattr(report, "ids_there", listed_then_collected)
    found = audit(spark, cluster.uri, options={"ledgers": f"{before}-{deleted}"})
    assert orphans_of(found) == {(two, waits), (two, deleted)}, "of the ledgers that were asked about"


def test_a_ledger_whose_metadata_cannot_be_read_is_unknown_no_orphan_and_keeps_no_other_from_being_audited(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    two = [bookie.bookie_id for bookie in cluster.bookies[:2]]
    how: dict[str, Any] = {"ensemble": 2, "write_quorum": 2, "bookies": two}
    unreadable, sound = (written(client, 10, **how) for _ in range(2))
    damage_metadata(client, cluster.root, unreadable)
    found = audit(spark, cluster.uri)
    assert (found.only_unknown, found.unknown_copies, found.ledgers) == (True, 0, 1)
    for frame in (
        found.rows,
        spark.read.format("bookkeeper.audit").options(uri=cluster.uri).load(),
    ):
        rows = frame.collect()
        assert [(row.kind, row.ledger_id, row.last_entry_id) for row in rows if row.kind != "chunk"] == [
            ("unknown", unreadable, -1)
        ]
        assert [row.ledger_id for row in rows if row.kind == "chunk"] == [sound]
