"""An audit of a real cluster with planted faults: all are found, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bookkeeper.blocking
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.model import LedgerId
from bookkeeper.spark.audit.evidence import CHUNK_ENTRIES
from tests.support.audit_faults import change_metadata, written
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.damaged_disks import change_a_byte
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

Found = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture
def cluster(zookeeper: Any, tmp_path: Any) -> Iterator[LocalCluster]:
    root = f"/audit-{os.getpid()}-{os.urandom(3).hex()}"
    settings = {**STEADY, "flushInterval": "200"}
    with local_cluster(zookeeper.address, root, 4, directory=tmp_path, settings=settings) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as connected:
        yield connected


def audit(spark: Any, cluster: LocalCluster, **options: object) -> tuple[Found, Found]:
    """Findings, and what was audited: ledger, entries, copies, bytes."""
    reader = spark.read.format("bookkeeper.audit").options(uri=cluster.uri, readTimeout=60, **options)
    frame = reader.load().collect()
    findings = [
        (row.kind, row.ledger_id, row.first_entry_id, row.last_entry_id, row.bookie, row.good_copies)
        for row in frame
        if row.kind != "chunk"
    ]
    chunks = [(row.ledger_id, row.entries, row.copies, row.bytes) for row in frame if row.kind == "chunk"]
    return sorted(findings, key=str), sorted(chunks)


def test_planted_faults_are_found_with_their_bookie_and_nothing_else_is(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    first, second, third, spare = cluster.bookies
    three = [bookie.bookie_id for bookie in (first, second, third)]
    sound = written(client, CHUNK_ENTRIES + 500, bookies=three, write_quorum=3)
    striped = written(client, 300, bookies=three)
    secret = written(client, 50, bookies=three, password=b"another")
    empty = written(client, 0)
    findings, chunks = audit(spark, cluster, minPartitions=3)
    assert findings == []
    assert [(ledger, entries, copies) for ledger, entries, copies, _ in chunks] == [
        (sound, 500, 1500),
        (sound, CHUNK_ENTRIES, 3 * CHUNK_ENTRIES),
        (striped, 300, 600),
        (secret, 50, 100),
    ]
    assert sum(size for ledger, _, _, size in chunks if ledger == sound) == client.metadata(sound).length
    assert empty not in {ledger for ledger, *_ in chunks}

    change_a_byte(second, b"entry 4321")  # of the sound ledger alone: it has no other of that number
    change_metadata(client, striped, members={third.bookie_id: spare.bookie_id})
    findings, chunks = audit(spark, cluster)
    (kind, ledger_id, low, high, bookie, good), missing = findings
    assert (kind, ledger_id, bookie, good) == ("bad", sound, second.bookie_id, 2)
    assert low <= 4321 <= high < low + 100  # the bookie refuses the page of its log as a whole
    assert missing == ("missing", striped, 1, 299, spare.bookie_id, 1)
    assert {ledger: size for ledger, *_, size in chunks}[striped] == client.metadata(striped).length

    first.kill()
    unknown, _ = audit(spark, cluster, ledgers=secret)
    assert {(kind, bookie, good) for kind, _, _, _, bookie, good in unknown} == {("unknown", first.bookie_id, 1)}


def test_an_open_ledger_is_audited_up_to_what_is_confirmed_and_its_writer_goes_on(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    with client.create() as ledger:
        for number in range(20):
            ledger.append(b"%d" % number)
        findings, [(ledger_id, entries, copies, _)] = audit(spark, cluster)
        assert findings == []
        assert (ledger_id, copies) == (ledger.id, 2 * entries)
        assert entries in (19, 20)
        ledger.append(b"more")


def command(*words: str) -> tuple[int, Any, str]:
    """Exit code, JSON and notes of `bookkeeper spark audit`."""
    run = [sys.executable, "-m", "bookkeeper.cli.main", "spark", "audit", "--json", "--master", "local[2]"]
    run += ["-D", "readTimeout=60", *words]
    done = subprocess.run(run, capture_output=True, text=True, timeout=280, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_what_an_audit_queues_auto_recovery_mends_and_the_next_audit_is_clean(zookeeper: Any, tmp_path: Path) -> None:
    """The auditor's own checks are off: only the audit finds that a bookie lacks what it should have."""
    settings = {
        **STEADY,
        "autoRecoveryDaemonEnabled": "true",
        "auditorPeriodicCheckInterval": "0",
        "auditorPeriodicPlacementPolicyCheckInterval": "0",
    }
    root = f"/audit-repair-{os.getpid()}-{os.urandom(3).hex()}"
    with (
        local_cluster(zookeeper.address, root, 4, directory=tmp_path, settings=settings) as cluster,
        bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as client,
    ):
        three, spare = [bookie.bookie_id for bookie in cluster.bookies[:3]], cluster.bookies[3].bookie_id
        ledger_id = written(client, 300, bookies=three, write_quorum=3)
        change_metadata(client, ledger_id, members={three[1]: spare})
        output = tmp_path / "audit"
        code, told, notes = command("--uri", cluster.uri, "--repair", "--output", str(output))
        assert (code, told["found"], told["entries"], told["copies"]) == (4, {"missing": 1}, 300, 900), notes
        assert [(each["ledger_id"], each["bookie"]) for each in told["findings"]] == [(ledger_id, spare)]
        assert "queued for auto-recovery: 1 range of 1 ledger" in notes
        assert "by itself" not in notes  # a process of its bookies mends it
        deadline = time.monotonic() + 120
        while client.run(lambda ledgers: ledgers.store.underreplication.bad_copies(LedgerId(ledger_id))) is not None:
            assert time.monotonic() < deadline, "the worker has not taken the report away"
            client.metadata(ledger_id)  # paces the looks
        assert client.list_entries(ledger_id, spare) == [range(300)]
        code, told, notes = command("--uri", cluster.uri)
        assert (code, told["found"]) == (0, {}), notes
        code, _, notes = command("--uri", cluster.uri, "--output", str(output))
        assert code == 1
        assert "already exists" in notes


def test_a_word_that_no_audit_knows_is_refused(spark: Any, cluster: LocalCluster) -> None:
    with pytest.raises(Exception, match=r"bookkeeper\.audit: is unknown; did you mean bytesPerSecond\?"):
        audit(spark, cluster, bytesPerSec=5)
