"""Audits that read stopped bookies in place, and audits that go on where they were interrupted."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

import bookkeeper.blocking
from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.errors import ConfigurationError
from bookkeeper.model import LedgerId
from bookkeeper.spark.audit.division import Piece
from bookkeeper.spark.audit.evidence import CHUNK_ENTRIES
from bookkeeper.spark.audit.report import Audit, AuditFailed, audit
from bookkeeper.spark.audit.stored_evidence import UNIT
from bookkeeper.spark.audit.unit_queue import PREFIX
from bookkeeper.spark.audit.work_directory import Begun, WorkDirectory
from tests.support.audit_faults import change_bytes, change_metadata, written
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(600)

SLOW_BOOKIES = {"readTimeout": 60}
"""Long enough that a bookie that pauses for seconds is not unknown."""


@pytest.fixture(scope="module")
def spark() -> Any:
    return spark_session()


@pytest.fixture
def cluster(zookeeper: Any, tmp_path: Path) -> Iterator[LocalCluster]:
    root = f"/audit-in-place-{os.getpid()}-{os.urandom(3).hex()}"
    settings = {**STEADY, "flushInterval": "200"}
    with local_cluster(zookeeper.address, root, 4, directory=tmp_path, settings=settings) as running:
        yield running


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with bookkeeper.blocking.connect(cluster.uri, with_long_timeouts()) as connected:
        yield connected


def stop(bookie: LocalBookie) -> str:
    """Its directory."""
    assert bookie.stop() == 0
    return str(bookie.ledger_directory)


def findings_of(found: Audit) -> list[tuple[Any, ...]]:
    rows = found.findings.collect()
    names = ("kind", "ledger_id", "first_entry_id", "last_entry_id", "bookie", "good_copies")
    return sorted((tuple(row[name] for name in names) for row in rows), key=str)


def test_bookies_that_do_not_run_are_audited_in_their_directories_and_the_others_through_them(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    first, second, third, spare = cluster.bookies
    three = [bookie.bookie_id for bookie in (first, second, third)]
    sound = written(client, CHUNK_ENTRIES + 500, bookies=three, write_quorum=3)
    striped = written(client, 300, bookies=three)
    secret = written(client, 50, bookies=three, password=b"another")
    orphan = written(client, 40, bookies=three, write_quorum=3)
    empty = written(client, 10, bookies=[second.bookie_id, third.bookie_id], ensemble=2)
    copies = 3 * (CHUNK_ENTRIES + 500) + 600 + 100 + 120 + 20
    places = [stop(bookie) for bookie in (second, third)]

    clean = audit(spark, cluster.uri, bookie_directories=places, options=SLOW_BOOKIES)
    assert (findings_of(clean), clean.in_place) == ([], {second.bookie_id: True, third.bookie_id: True})
    assert (clean.copies, clean.is_clean) == (copies, True)

    change_bytes(second, [b"entry 4321"], restart=False)
    change_metadata(client, striped, members={first.bookie_id: third.bookie_id, third.bookie_id: first.bookie_id})
    change_metadata(client, empty, members={second.bookie_id: spare.bookie_id, third.bookie_id: first.bookie_id})
    client.delete(orphan)
    found = audit(spark, cluster.uri, bookie_directories=places, options=SLOW_BOOKIES)
    told = findings_of(found)
    assert ("bad", sound, 4321, 4321, second.bookie_id, 2) in told
    assert {(kind, bookie) for kind, ledger, _, _, bookie, _ in told if kind == "orphan" and ledger == orphan} == {
        ("orphan", second.bookie_id),
        ("orphan", third.bookie_id),
    }
    assert ("lost", empty, 0, 9, None, 0) in told
    assert ("no_data", empty, 0, 9, None, 0) in told
    assert {each[0] for each in told if each[1] == striped} == {"missing"}
    assert {each[1] for each in told} == {sound, orphan, striped, empty}
    assert secret not in {each[1] for each in told}
    sizes = {
        row.bookie: (row.entries, row["bytes"] > 40 * 7) for row in found.findings.where("kind = 'orphan'").collect()
    }
    assert sizes == {second.bookie_id: (40, True), third.bookie_id: (40, True)}
    assert not found.is_clean


def test_a_bookie_that_runs_is_asked_and_a_directory_that_nobody_has_is_refused(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper
) -> None:
    written(client, 20)
    running = cluster.bookies[0]
    found = audit(spark, cluster.uri, bookie_directories=[str(running.ledger_directory)], options=SLOW_BOOKIES)
    assert (found.in_place, found.is_clean, found.copies) == ({}, True, 40)
    assert "in use by a bookie that runs" in found.in_place_unread[0]
    with pytest.raises(AuditFailed, match="no task found /no/such/place on its machine"):
        audit(spark, cluster.uri, bookie_directories=["/no/such/place"])
    with pytest.raises(ConfigurationError, match="'here' is not absolute"):
        audit(spark, cluster.uri, bookie_directories=["here"])


class Interrupted(Exception):
    pass


def test_an_audit_that_is_interrupted_goes_on_after_the_rounds_that_are_done(
    spark: Any, cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    second = cluster.bookies[1]
    ledgers = [
        written(client, 200, bookies=[b.bookie_id for b in cluster.bookies[:3]], write_quorum=3) for _ in range(24)
    ]
    change_bytes(second, [b"entry 77"], restart=False)  # of the first ledger in its log
    how: dict[str, Any] = {
        "output": str(tmp_path / "audit"),
        "bookie_directories": [str(second.ledger_directory)],
        "options": {"minPartitions": 24, **SLOW_BOOKIES},
    }
    said: list[str] = []

    def interrupt(line: str) -> None:
        said.append(line)
        if " rounds, " in line:
            raise Interrupted

    begun: list[Begun | None] = []
    directory = WorkDirectory(spark, how["output"])
    with pytest.raises(Interrupted):
        audit(spark, cluster.uri, **how, say=interrupt, on_begun=lambda: begun.append(directory.begun()))
    assert [each and each.rounds for each in begun] == [3]
    reading, first_round = [line for line in said if not line.startswith("planning: ")]  # only if planning is slow
    assert reading == "reading copies in place"
    assert first_round.startswith("1 of 3 rounds, ")
    for more, why in (
        ({}, "already exists"),
        ({"resume": True, "options": {"ledgers": "1-5"}}, "is of ledgers all, and not 1-5"),
        ({"resume": True, "bookie_directories": []}, "is of bookie directories /.*ledgers, and not none"),
        (
            {"resume": True, "output": str(tmp_path / "none")},
            "none is no audit that was begun, nothing to go on with: without resume one is begun there",
        ),
    ):
        with pytest.raises(AuditFailed, match=why):
            audit(spark, cluster.uri, **{**how, **more})

    # A unit that no pass brought back is read in another one.
    kept = next((tmp_path / "audit" / "_audit" / "in_place").glob("pass=0"))
    rows = spark.read.parquet(str(kept))
    lacking = rows.where(f"NOT (kind = '{UNIT}' AND said NOT LIKE '%, -1, %')")
    lacking.write.mode("overwrite").partitionBy("round").parquet(str(tmp_path / "lacking"))
    assert lacking.count() < rows.count()
    kept.rename(tmp_path / "whole")
    (tmp_path / "lacking").rename(kept)
    (tmp_path / "audit" / "_audit" / "summary").mkdir()  # as who is killed while the last line is written leaves it

    said.clear()
    found = audit(spark, cluster.uri, **how, resume=True, say=said.append)
    assert "going on: 1 of 3 rounds are done" in said
    assert (found.in_place, found.entries, found.copies) == ({second.bookie_id: True}, 24 * 200, 24 * 600)
    assert {(row.kind, row.bookie) for row in found.findings.collect()} == {("bad", second.bookie_id)}
    whole = spark.read.parquet(str(tmp_path / "audit"))
    assert sorted(row.ledger_id for row in whole.where("kind = 'chunk'").collect()) == ledgers
    assert whole.where("kind = 'bad'").count() == 1
    assert not queue_files(second)

    # From one that is complete its repairs can be queued still.
    files = set((tmp_path / "audit").rglob("*"))
    said.clear()
    again = audit(spark, cluster.uri, **how, resume=True, say=said.append)
    assert [re.sub(r"begun [-0-9]+ [:0-9]+ UTC", "begun ... UTC", line) for line in said] == [
        f"the audit in {how['output']}, begun ... UTC, is complete: told is what it found then"
    ]
    assert again.summary == found.summary
    assert again.in_place_unread == found.in_place_unread
    assert findings_of(again) == findings_of(found)
    with pytest.raises(AuditFailed, match="is of ledgers all, and not 1-5"):
        audit(spark, cluster.uri, **{**how, "options": {"ledgers": "1-5"}}, resume=True)
    words = ["--uri", cluster.uri, "--master", "local[2]", "--output", how["output"], "--resume", "--repair"]
    command = [sys.executable, "-m", "bookkeeper.cli.main", "spark", "audit", *words]
    command += ["--bookie-dir", *how["bookie_directories"]]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert (ran.returncode, "queued for auto-recovery: 1 range of 1 ledger" in ran.stderr) == (4, True), ran.stderr
    assert queued(client, ledgers) == [
        (row.ledger_id, second.bookie_id, row.first_entry_id) for row in found.findings.collect()
    ]
    assert files == set((tmp_path / "audit").rglob("*"))


def queue_files(bookie: LocalBookie) -> list[Path]:
    """Return the files that tasks left for a bookie's directories. Audits of other clusters have files there, too."""
    name = hashlib.sha256(bookie.bookie_id.encode()).hexdigest()[:16]
    return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*-{name}.*"))


def queued(client: BlockingBookKeeper, ledger_ids: Iterable[int]) -> list[tuple[int, str, int]]:
    """Ledger, bookie and first entry of what waits to be repaired."""

    async def look(ledgers: LedgerClient) -> list[tuple[int, str, int]]:
        found = [await ledgers.store.underreplication.bad_copies(LedgerId(each)) for each in ledger_ids]
        return [(bad.ledger_id, each.bookie_id, each.first_entry_id) for bad in found if bad for each in bad.ranges]

    return client.run(lambda ledgers: Deferred.fromCoroutine(look(ledgers)))


def test_what_was_killed_before_it_was_begun_is_begun_anew_and_nothing_of_it_counts(spark: Any, tmp_path: Path) -> None:
    directory = WorkDirectory(spark, str(tmp_path / "audit"))
    begun, pieces = Begun("a cluster", "all", (), 1, 1, 0), [(Piece(0, 5, 0, 0, 9, 100, 50), 0)]
    directory.begin(begun, pieces, {7: "nobody can say how far it reaches"})
    assert directory.unknown() == {7: "nobody can say how far it reaches"}
    with pytest.raises(AuditFailed, match=r"another audit was begun in .*audit meanwhile; give another directory"):
        directory.begin(begun, pieces, {})
    # As who is killed while `begun` is written leaves it.
    shutil.rmtree(tmp_path / "audit" / "_audit" / "begun")
    (tmp_path / "audit" / "_audit" / "begun" / "_temporary").mkdir(parents=True)
    assert (directory.begun(), directory.is_empty()) == (None, True)
    directory.begin(begun, pieces, {})
    assert (directory.begun(), directory.unknown(), directory.plan().count()) == (begun, {}, 1)


def test_the_limit_of_a_bookie_is_kept(spark: Any, cluster: LocalCluster, client: BlockingBookKeeper) -> None:
    """What is over the limit is waited for: the time that the audit takes says so, and nothing else does."""
    written(
        client, 2000, word=b"x" * 1000, bookies=[cluster.bookies[0].bookie_id], write_quorum=1, ensemble=1, ack_quorum=1
    )
    start = os.times().elapsed
    found = audit(spark, cluster.uri, options={"bytesPerSecond": 1_000_000, "minPartitions": 2})
    assert found.is_clean
    assert os.times().elapsed - start > 1.0  # 2 MB, of which half a second may be had at once


def test_an_interrupted_command_says_how_to_go_on_and_shows_no_stack(
    cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    first, second = cluster.bookies[:2]
    ledger = written(client, 2000, word=b"x" * 1000, bookies=[first.bookie_id, second.bookie_id], ensemble=2)
    output, told = tmp_path / "audit", tmp_path / "stderr"
    words = ["--uri", cluster.uri, "--master", "local[2]", "--output", str(output), "--bytes-per-second", "20000"]
    words += ["--bookie-dir", stop(second)]
    command = [sys.executable, "-m", "bookkeeper.cli.main", "spark", "audit", *words]
    with told.open("wb") as stderr:
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        deadline = time.monotonic() + 120
        while "reading copies in place" not in told.read_text():  # the first that is said of one that was begun
            assert running.poll() is None, told.read_text()
            assert time.monotonic() < deadline
            client.metadata(ledger)  # paces the looks
        running.send_signal(signal.SIGINT)
        running.wait(120)
    finally:
        running.kill()
        running.wait()
    said = told.read_text()
    assert running.returncode == 130, said
    assert f"what is done is kept: the same command with --resume goes on in {output}" in said
    assert "Traceback" not in said
    assert "\tat " not in said
