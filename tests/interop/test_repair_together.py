"""Our auto-recovery and Apache's in one cluster: the same damage, marks and locks of either, read by both clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.client.faces.blocking import BlockingBookKeeper, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.embedded.process import free_port
from bookkeeper.model import DigestType
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache, ApacheBookie, ApacheClient
from tests.support.apache_admin import ApacheAutoRecovery
from tests.support.auto_recovery import LocalAutoRecovery, await_no_marks, mark, marked, names
from tests.support.damaged_disks import change_a_byte, stored
from tests.support.zookeeper_sessions import end_dead_session

PASSWORD = b"pass-word"
COUNT = 40
LEDGERS = 24
REPAIR_TIMEOUT_S = 90.0
CLIENT = ClientSettings(password=PASSWORD, read_timeout_base_s=REQUEST_TIMEOUT_S)
DIGESTS = (DigestType.CRC32C, DigestType.CRC32, DigestType.MAC, DigestType.DUMMY)


def entries(count: int) -> list[bytes]:
    return [b"entry-%d" % number for number in range(count)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(4, directory=tmp_path / "cluster", settings=SESSION_TIMEOUT) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[BlockingBookKeeper]:
    with connect(cluster.uri, CLIENT) as client:
        yield client


def write_ledgers(client: BlockingBookKeeper, members: list[str]) -> dict[int, DigestType]:
    """Whole ledgers of every digest type, in every format of the metadata that names it."""
    digests: dict[int, DigestType] = {}
    for number in range(LEDGERS):
        digest = DIGESTS[number % len(DIGESTS)]
        # The genuine client reads the text of version 2 with the older digests only from old releases; 3 is today's.
        with client.create(ensemble=3, write_quorum=3, ack_quorum=2, bookies=members, digest=digest) as ledger:
            ledger.append_many(entries(COUNT))
        digests[int(ledger.id)] = digest
    return digests


def assert_read_by_both(
    cluster: LocalCluster, apache_client: ApacheClient, digests: dict[int, DigestType], alone: str
) -> None:
    """With nobody left but the bookie that got the copies."""
    for bookie in cluster.bookies:
        if bookie.bookie_id != alone and bookie.running:
            bookie.kill()
    with connect(cluster.uri, CLIENT) as reader:
        for ledger_id, digest in digests.items():
            with reader.open(ledger_id) as ledger:
                assert [entry.payload for entry in ledger.entries()] == entries(COUNT)
            lines = apache_client.run("read", cluster.uri, 3, digest.name, PASSWORD.decode(), ledger_id)
            assert [line.encode() for line in lines] == entries(COUNT)


def test_what_our_worker_copied_is_read_by_the_genuine_client(
    apache_client: ApacheClient, cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    """Our auditor and worker alone, from the loss of a bookie on."""
    *kept, dead, spare = cluster.bookies
    digests = write_ledgers(client, [bookie.bookie_id for bookie in (dead, *kept)])
    theirs = int(apache_client.run("write", cluster.uri, 3, "CRC32", PASSWORD.decode(), 3, 3, 2, COUNT)[0])
    digests[theirs] = DigestType.CRC32
    settings = {
        **SESSION_TIMEOUT,
        "auditorPeriodicBookieCheckInterval": "2",
        "openLedgerRereplicationGracePeriod": "500",
    }
    dead.kill()
    end_dead_session(cluster.uri, dead.bookie_id)
    mark(cluster.uri, digests, [dead.bookie_id])  # the auditor finds them too: the same marks
    with LocalAutoRecovery(tmp_path / "ours", cluster.uri, settings):
        await_no_marks(cluster.uri)
    assert not any(names(client.metadata(ledger_id), dead.bookie_id) for ledger_id in digests)
    on_spare = {each: kind for each, kind in digests.items() if names(client.metadata(each), spare.bookie_id)}
    assert len(on_spare) >= LEDGERS
    assert_read_by_both(cluster, apache_client, on_spare, spare.bookie_id)


@pytest.mark.parametrize("use_v2", ["true", "false"], ids=["v2", "v3"])
def test_our_worker_copies_from_and_to_genuine_bookies(
    apache: Apache, apache_client: ApacheClient, tmp_path: Path, use_v2: str
) -> None:
    """A genuine bookie is lost, and another genuine one takes its place; an open ledger is recovered on the way."""
    with LocalCluster(2, directory=tmp_path / "cluster", settings=SESSION_TIMEOUT) as cluster:
        genuine = [ApacheBookie(apache, tmp_path / f"genuine-{n}", cluster.uri, free_port()) for n in (1, 2)]
        try:
            for bookie in genuine:
                bookie.start()
            dead, spare = genuine
            members = [dead.bookie_id, *(bookie.bookie_id for bookie in cluster.bookies)]
            with connect(cluster.uri, CLIENT) as client:
                digests = write_ledgers(client, members)
                still_open = client.create(
                    ensemble=3, write_quorum=3, ack_quorum=3, bookies=members, digest=DigestType.CRC32C
                )
                still_open.append_many(entries(COUNT))
                digests[int(still_open.id)] = DigestType.CRC32C
                dead.kill()
                end_dead_session(cluster.uri, dead.bookie_id)
                mark(cluster.uri, digests, [dead.bookie_id])
                settings = {**SESSION_TIMEOUT, "openLedgerRereplicationGracePeriod": "500", "useV2WireProtocol": use_v2}
                with LocalAutoRecovery(tmp_path / "ours", cluster.uri, settings):
                    await_no_marks(cluster.uri)
                assert all(names(client.metadata(ledger_id), spare.bookie_id) for ledger_id in digests)
            assert_read_by_both(cluster, apache_client, digests, spare.bookie_id)
        finally:
            for bookie in genuine:
                bookie.kill()


def test_both_workers_repair_the_same_damage_together(
    apache: Apache, apache_client: ApacheClient, cluster: LocalCluster, client: BlockingBookKeeper, tmp_path: Path
) -> None:
    """Two auditors stand for election, two workers take marks: each ledger is repaired once, by one of them."""
    *kept, dead, spare = cluster.bookies
    digests = write_ledgers(client, [bookie.bookie_id for bookie in (dead, *kept)])
    settings = {**SESSION_TIMEOUT, "auditorPeriodicBookieCheckInterval": "2", "replicationLedgersMax": "2"}
    with (
        ApacheAutoRecovery(apache, tmp_path, cluster.uri, "theirs") as theirs,
        LocalAutoRecovery(tmp_path / "ours", cluster.uri, settings) as ours,
    ):
        dead.kill()
        end_dead_session(cluster.uri, dead.bookie_id)

        def repaired() -> bool:
            return not any(names(client.metadata(each), dead.bookie_id) for each in digests) and not marked(cluster.uri)

        theirs.await_condition(repaired, "every ledger is whole again", timeout_s=REPAIR_TIMEOUT_S)
        assert ours.stop() == 0
    for ledger_id in digests:
        (fragment,) = client.metadata(ledger_id).fragments
        assert set(fragment.ensemble) == {bookie.bookie_id for bookie in (*kept, spare)}
    assert_read_by_both(cluster, apache_client, digests, spare.bookie_id)


def test_a_damaged_copy_is_repaired_beside_a_genuine_auditor_and_worker(
    apache: Apache, apache_client: ApacheClient, tmp_path: Path
) -> None:
    """Theirs see no note of bad copies. Their auditor reads every entry and marks the ledger; their worker locks it,
    and finds nobody to take the copies. Ours writes the copy anew in place all the same, and every mark goes."""
    settings = {**SESSION_TIMEOUT, "autoRecoveryDaemonEnabled": "true", "flushInterval": "200"}
    reading = {"auditorPeriodicCheckInterval": "2", "auditorLedgerVerificationPercentage": "100"}
    with LocalCluster(3, directory=tmp_path / "cluster", settings=settings) as cluster:
        victim, *_ = cluster.bookies
        with connect(cluster.uri, CLIENT) as client:
            with client.create(ensemble=3, write_quorum=3, ack_quorum=3) as ledger:
                ledger.append_many(entries(COUNT))
            assert all(stored(victim, ledger.id, each) is not None for each in range(COUNT))
            change_a_byte(victim, b"entr")  # of the first payload; its page is in doubt then
            assert any(stored(victim, ledger.id, each) is None for each in range(COUNT))
            with ApacheAutoRecovery(apache, tmp_path, cluster.uri, "theirs", reading) as theirs:

                def repaired() -> bool:
                    """All entries of the page: the first may be whole before the bookie has reported the others."""
                    whole = all(stored(victim, ledger.id, each) is not None for each in range(COUNT))
                    return whole and not marked(cluster.uri)

                theirs.await_condition(repaired, "the copies are whole again", timeout_s=REPAIR_TIMEOUT_S)
            (fragment,) = client.metadata(ledger.id).fragments
            assert set(fragment.ensemble) == {bookie.bookie_id for bookie in cluster.bookies}
        assert_read_by_both(cluster, apache_client, {int(ledger.id): DigestType.CRC32C}, victim.bookie_id)
