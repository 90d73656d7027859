"""Directories of genuine bookies, audited in place: twelve faults of six kinds among a thousand ledgers, and ledgers of
which each bookie has some entries only.

kind        two ledgers each; planted by
bad         a byte changed in the genuine bookie's entry logs
missing     metadata that name the genuine bookie, which never had anything of the ledger
divergent   metadata that name it, and it was given another entry with a good digest
unknown     one of our bookies is killed
lost        metadata that name the genuine bookie and others, none of which has it
length      metadata that say another length
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import bookkeeper.blocking
from bookkeeper.client.faces.blocking import BlockingBookKeeper
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.spark.audit.repairs import queue_repairs
from bookkeeper.spark.audit.report import audit
from bookkeeper.wire.digest import digest_of
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheBookie
from tests.support.audit_faults import change_metadata, give, ledgers_by_kind, until_mended, written
from tests.support.spark import spark_session
from tests.support.zookeeper_sessions import end_dead_session

pytestmark = pytest.mark.timeout(400)

LEDGERS, ENTRIES = 1000, 20
KINDS = ("bad", "missing", "divergent", "unknown", "lost", "length")
SOON_S = 60.0
CLIENT = ClientSettings(read_timeout_base_s=REQUEST_TIMEOUT_S)
INTERLEAVED = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
    "sortedLedgerStorageEnabled": "false",
    "flushInterval": "200",
}
SETTINGS = {
    **SESSION_TIMEOUT,
    "autoRecoveryDaemonEnabled": "true",
    "auditorPeriodicCheckInterval": "0",
    "auditorPeriodicPlacementPolicyCheckInterval": "0",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(5, directory=tmp_path / "cluster", settings=SETTINGS) as cluster:
        yield cluster


def payloads_of(number: int) -> list[bytes]:
    return [b"%d of the %d." % (entry, number) for entry in range(ENTRIES)]


def test_twelve_faults_of_six_kinds_are_found_with_a_genuine_bookie_read_in_place(
    apache: Apache, cluster: LocalCluster, tmp_path: Path
) -> None:
    genuine = ApacheBookie(apache, tmp_path / "genuine", cluster.uri, free_port(), INTERLEAVED)
    genuine.start()
    try:
        with bookkeeper.blocking.connect(cluster.uri, CLIENT) as client:
            client.run(lambda ledgers: ledgers.store.underreplication.disable())
            audited(client, cluster, genuine, tmp_path / "genuine" / "ledgers")
    finally:
        genuine.kill()


def audited(client: BlockingBookKeeper, cluster: LocalCluster, genuine: ApacheBookie, directory: Path) -> None:
    one, two, mortal, spare, other = (bookie.bookie_id for bookie in cluster.bookies)
    members = {
        "missing": [one, two, spare],
        "divergent": [one, two, spare],
        "unknown": [one, mortal, genuine.bookie_id],
        "lost": [one, two, mortal],
    }
    step = LEDGERS // (2 * len(KINDS))
    ledger_ids: list[int] = []
    faulty: dict[str, set[int]] = {kind: set() for kind in KINDS}
    for number in range(LEDGERS):
        kind = KINDS[number // step % len(KINDS)] if number % step == 0 and number // step < 2 * len(KINDS) else ""
        on = members.get(kind, [one, two, genuine.bookie_id])
        with client.create(ensemble=3, write_quorum=3, ack_quorum=3, bookies=on) as ledger:
            ledger.append_many(payloads_of(number))
            ledger_ids.append(ledger.id)
        if kind:
            faulty[kind].add(ledger.id)

    for ledger_id in faulty["missing"]:
        change_metadata(client, ledger_id, members={spare: genuine.bookie_id})
    for ledger_id in faulty["divergent"]:
        payloads = payloads_of(ledger_ids.index(ledger_id))
        give(genuine.port, client, ledger_id, [*payloads[:7], b"another one", *payloads[8:]])
        change_metadata(client, ledger_id, members={spare: genuine.bookie_id})
    for ledger_id in faulty["lost"]:
        change_metadata(client, ledger_id, members=[spare, other, genuine.bookie_id])
    for ledger_id in faulty["length"]:
        change_metadata(client, ledger_id, length=(client.metadata(ledger_id).length or 0) + 1)
    cluster.bookies[2].kill()
    end_dead_session(cluster.uri, mortal)
    bad = [b"5 of the %d." % ledger_ids.index(ledger_id) for ledger_id in faulty["bad"]]
    until_logged(client, directory, bad)
    genuine.stop()
    for payload in bad:
        change(directory, payload)
    files = {path: path.read_bytes() for path in directory.rglob("current/**/*") if path.is_file()}
    until_gone(client, genuine.bookie_id)

    spark = spark_session()
    first = audit(spark, cluster.uri, bookie_directories=[str(directory)])
    assert (first.in_place, first.in_place_unread) == ({genuine.bookie_id: True}, ())
    assert (first.ledgers, first.copies) == (LEDGERS, LEDGERS * ENTRIES * 3)
    assert ledgers_by_kind(first) == {
        **faulty,
        "missing": faulty["missing"] | faulty["lost"],
        "no_data": faulty["lost"],
    }
    found = first.findings.where(f"kind IN ('bad', 'missing') AND bookie <> '{genuine.bookie_id}'").collect()
    assert {row.ledger_id for row in found} <= faulty["lost"]
    for kind, first_entry_id, last_entry_id in (("bad", 5, 5), ("divergent", 7, 7), ("missing", 0, ENTRIES - 1)):
        rows = first.findings.where(f"kind = '{kind}'").collect()
        assert {(row.first_entry_id, row.last_entry_id) for row in rows} == {(first_entry_id, last_entry_id)}
    assert files == {path: path.read_bytes() for path in directory.rglob("current/**/*") if path.is_file()}

    genuine.start()
    queue_repairs(first, cluster.uri)
    client.run(lambda ledgers: ledgers.store.underreplication.enable())
    wanted = sorted(faulty["bad"] | faulty["missing"])
    until_mended(client, wanted)
    second = audit(spark, cluster.uri, options={"ledgers": ",".join(map(str, wanted))})
    assert ledgers_by_kind(second) == {}, "what has a good copy was written anew"


def test_what_genuine_bookies_lack_of_entries_that_are_spread_over_them_is_missing_and_what_they_have_is_counted(
    apache: Apache, tmp_path: Path
) -> None:
    """E=3, Qw=2: every index has holes, beside places in entry log 0. Two bookies change places in the metadata."""
    with LocalCluster(0, directory=tmp_path / "cluster", settings=SESSION_TIMEOUT) as cluster, ExitStack() as ending:
        genuine = {
            name: ApacheBookie(apache, tmp_path / name, cluster.uri, free_port(), INTERLEAVED)
            for name in ("one", "two", "three")
        }
        for bookie in genuine.values():
            ending.callback(bookie.kill)
            bookie.start(wait=False)
        for bookie in genuine.values():
            bookie.wait_ready()
        one, two, three = (bookie.bookie_id for bookie in genuine.values())
        with bookkeeper.blocking.connect(cluster.uri, CLIENT) as client:
            how: dict[str, Any] = {"bookies": [one, two, three], "ensemble": 3, "write_quorum": 2, "ack_quorum": 2}
            written(client, 1500, **how)  # nothing is wrong with it
            swapped, orphan = written(client, 300, **how), written(client, 90, **how)
            digest_type = client.metadata(orphan).digest_type
            assert digest_type is not None
            for bookie in genuine.values():
                bookie.stop()
                until_gone(client, bookie.bookie_id)
            change_metadata(client, swapped, members={one: three, three: one})
            client.delete(orphan)
        places = [tmp_path / name / "ledgers" for name in genuine]
        assert all((place / "current" / "0.log").exists() for place in places)

        found = audit(spark_session(), cluster.uri, bookie_directories=list(map(str, places)))
    assert (found.in_place, found.in_place_unread) == (dict.fromkeys((one, two, three), True), ())
    assert (found.ledgers, found.copies) == (2, 2 * (1500 + 300))
    rows = found.findings.collect()
    lacking = [row for row in rows if row.kind != "orphan"]
    assert {(row.kind, row.ledger_id, row.good_copies) for row in lacking} == {("missing", swapped, 1)}
    ranges = [(row.bookie, range(row.first_entry_id, row.last_entry_id + 1)) for row in lacking]
    missing = sorted((bookie, entry_id) for bookie, entry_ids in ranges for entry_id in entry_ids)
    assert missing == sorted((bookie, at) for bookie, first in ((three, 0), (one, 1)) for at in range(first, 300, 3))
    orphans = {(row.ledger_id, row.bookie): (row.entries, row["bytes"]) for row in rows if row.kind == "orphan"}
    overhead = digest_of(digest_type, b"").overhead
    sizes = [overhead + len(b"entry %d" % number) for number in range(90)]
    without = {one: 1, two: 2, three: 0}
    assert orphans == {(orphan, bookie): (60, sum(sizes) - sum(sizes[first::3])) for bookie, first in without.items()}


def logs_with(directory: Path, payload: bytes) -> list[Path]:
    return [path for path in directory.glob("current/*.log") if payload in path.read_bytes()]


def until_logged(client: BlockingBookKeeper, directory: Path, payloads: list[bytes]) -> None:
    """Return when they are in the entry logs."""
    deadline = time.monotonic() + SOON_S
    while not all(logs_with(directory, payload) for payload in payloads):
        assert time.monotonic() < deadline, "they are in the journal only"
        client.run(lambda ledgers: ledgers.store.bookies.current())  # paces the looks


def change(directory: Path, payload: bytes) -> None:
    """Change the first byte of the payload, where it is."""
    for path in logs_with(directory, payload):
        at = path.read_bytes().index(payload)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([payload[0] ^ 1]))


def until_gone(client: BlockingBookKeeper, bookie_id: str) -> None:
    """Return when a bookie is not registered any more: its process ended, its session may last a little."""
    deadline = time.monotonic() + SOON_S
    while True:
        available = client.run(lambda ledgers: ledgers.store.bookies.current())
        if bookie_id not in {*available.writable, *available.read_only}:
            return
        assert time.monotonic() < deadline, f"{bookie_id} is still registered"
