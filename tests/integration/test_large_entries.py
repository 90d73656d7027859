"""Real bookies: entries at the frame limit, new and as earlier releases wrote them, from the write to the repair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import succeed

from bookkeeper.client.client import LedgerClient
from bookkeeper.client.faces.blocking import BlockingBookKeeper, BlockingWriteHandle, connect
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.model import ENTRY_HEADER_SIZE, FRAME_SIZE_MAX_DEFAULT, DigestType
from bookkeeper.wire.entry_size import V2_ADD_AROUND, entry_body_size_max
from tests.support.auto_recovery import LocalAutoRecovery, await_no_marks, await_unregistered, mark
from tests.support.cluster import local_cluster, with_long_timeouts

pytestmark = pytest.mark.timeout(300)

PASSWORD = b"pass-word"
DIGEST_SIZES = {DigestType.CRC32C: 4, DigestType.MAC: 20}


@pytest.fixture(params=[64 * 1024, FRAME_SIZE_MAX_DEFAULT], ids=["64 KiB", "default"])
def limit(request: pytest.FixtureRequest) -> int:
    value: int = request.param
    return value


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path, limit: int) -> Iterator[LocalCluster]:
    # There is only one spare bookie, so a bookie that pauses must not count as dead.
    settings = {"nettyMaxFrameSizeBytes": str(limit), "zkTimeout": "5000"}
    with local_cluster(
        zookeeper.address, ledgers_root, 4, directory=tmp_path / "cluster", settings=settings
    ) as cluster:
        yield cluster


def settings_of(limit: int, *, use_v2: bool) -> ClientSettings:
    return with_long_timeouts(
        ClientSettings(use_v2=use_v2, frame_size_max=limit, password=PASSWORD, explicit_lac_interval_s=0.05)
    )


def as_before(client: BlockingBookKeeper, limit: int) -> None:
    """Let the v2 client write entries as large as earlier releases did."""

    def allow(ledgers: LedgerClient) -> Any:
        ledgers.context.encoder.body_size_max = limit - V2_ADD_AROUND
        return succeed(None)

    client.run(allow)


def payloads_of(limit: int, digest: DigestType, *, older: bool) -> list[bytes]:
    around = ENTRY_HEADER_SIZE + DIGEST_SIZES[digest]
    largest = (limit - V2_ADD_AROUND if older else entry_body_size_max(limit)) - around
    return [b"before", b"x" * largest, b"y" * largest, b"z" * (largest - 1), b"behind"]


@pytest.mark.parametrize("worker_v2", [True, False], ids=["v2 worker", "v3 worker"])
def test_large_entries_are_read_tailed_recovered_and_copied_by_both_versions(
    cluster: LocalCluster, limit: int, worker_v2: bool, tmp_path: Path
) -> None:
    *kept, dead, spare = cluster.bookies
    members = [bookie.bookie_id for bookie in (dead, *kept)]
    written: dict[int, list[bytes]] = {}
    with connect(cluster.uri, settings_of(limit, use_v2=True)) as writer:
        as_before(writer, limit)
        for digest in DIGEST_SIZES:
            for older in (False, True):
                payloads = payloads_of(limit, digest, older=older)
                ledger = writer.create(ensemble=3, write_quorum=3, ack_quorum=2, bookies=members, digest=digest)
                _append_and_tail(cluster, ledger, payloads, limit)
                written[int(ledger.id)] = payloads
        # Each version recovers one of each digest: the writer's handles are still open.
        for number, (ledger_id, payloads) in enumerate(written.items()):
            with connect(cluster.uri, settings_of(limit, use_v2=number in (0, 3))) as reader:
                with reader.open(ledger_id) as handle:
                    assert [entry.payload for entry in handle.entries()] == payloads
    dead.kill()
    await_unregistered(cluster.uri, dead.bookie_id)
    mark(cluster.uri, list(written), [dead.bookie_id])
    recovery = {"nettyMaxFrameSizeBytes": str(limit), "useV2WireProtocol": str(worker_v2).lower()}
    with LocalAutoRecovery(tmp_path / "recovery", cluster.uri, recovery):
        await_no_marks(cluster.uri)
    for bookie in kept:
        bookie.kill()
    assert spare.running
    for use_v2 in (True, False):
        with connect(cluster.uri, settings_of(limit, use_v2=use_v2)) as reader:
            for ledger_id, payloads in written.items():
                with reader.open(ledger_id) as handle:
                    assert [entry.payload for entry in handle.read(0, len(payloads) - 1)] == payloads


def _append_and_tail(cluster: LocalCluster, ledger: BlockingWriteHandle, payloads: list[bytes], limit: int) -> None:
    """Append while tails of both versions follow; each sees every entry."""
    clients = [connect(cluster.uri, settings_of(limit, use_v2=use_v2)) for use_v2 in (True, False)]
    try:
        tails = []
        for client in clients:
            handle = client.open_without_recovery(ledger.id)
            tails.append(iter(handle.tail()))
        for payload in payloads:
            ledger.append(payload)
        for tail in tails:
            found: list[bytes] = []
            while len(found) < len(payloads):
                found += [entry.payload for entry in next(tail)]
            assert found == payloads
    finally:
        for client in clients:
            client.close()
