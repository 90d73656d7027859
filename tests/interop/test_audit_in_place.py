"""The directory of a genuine bookie, audited in place: twelve faults of six kinds among a thousand ledgers.

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
from pathlib import Path

import pytest

import bookkeeper.blocking
from bookkeeper.client.blocking import BlockingBookKeeper
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.spark.audit.repairs import queue_repairs
from bookkeeper.spark.audit.report import audit
from tests.interop.conftest import SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheBookie
from tests.support.audit_faults import change_metadata, give, ledgers_by_kind, until_mended
from tests.support.spark import spark_session

pytestmark = pytest.mark.timeout(400)

LEDGERS, ENTRIES = 1000, 20
KINDS = ("bad", "missing", "divergent", "unknown", "lost", "length")
SOON_S = 60.0
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
        with bookkeeper.blocking.connect(cluster.uri) as client:
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
