"""Entries at the frame limit, new and of earlier releases: read, tailed, recovered, copied and audited by every client.

The bookies here close a connection at a frame above the limit, as Apache's do, and answer whatever they hold.
"""

from __future__ import annotations

from typing import Any

import pytest

from bookkeeper.client.client import LedgerClient
from bookkeeper.config import ClientSettings
from bookkeeper.errors import InvalidArgument
from bookkeeper.model import DigestType, LedgerMetadata
from bookkeeper.replication.copies.fragments import fragments_of
from bookkeeper.wire import messages
from bookkeeper.wire.digest import digest_of
from bookkeeper.wire.entry_size import V2_ADD_AROUND, entry_body_size_max
from tests.support.damaged_ledgers import Repairs, holders_missing
from tests.support.fake_bookie import HOLD, FakeCluster

LIMIT = 4096
PASSWORD = b"secret"
VERSIONS = pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
DIGESTS = pytest.mark.parametrize("digest", list(DigestType))
BODY_SIZES = pytest.mark.parametrize(
    "body_size",
    [entry_body_size_max(LIMIT) - 1, entry_body_size_max(LIMIT), LIMIT - V2_ADD_AROUND],
    ids=["below", "largest", "of an earlier release"],
)


class Scene:
    """Strict bookies, and clients with the same frame limit."""

    def __init__(self, bookie_count: int, digest: DigestType, body_size: int) -> None:
        self.cluster = FakeCluster(bookie_count, frame_size_max=LIMIT, strict_frames=True)
        self.digest = digest
        self.payload = b"x" * (body_size - digest_of(digest, PASSWORD).overhead)
        self.payloads = [b"before", self.payload, self.payload, b"behind"]

    def client(self, *, use_v2: bool) -> LedgerClient:
        return self.cluster.client(
            ClientSettings(
                use_v2=use_v2,
                frame_size_max=LIMIT,
                add_timeout_s=2.0,
                read_timeout_s=2.0,
                password=PASSWORD,
                explicit_lac_interval_s=0.0,
            )
        )

    async def write(self, count: int = 4, *, close: bool) -> Any:
        """Write a ledger to the first three bookies with a v2 client without our limit, as earlier releases did."""
        client = self.client(use_v2=True)
        client.context.encoder.body_size_max = LIMIT - V2_ADD_AROUND
        members = [bookie.bookie_id for bookie in self.cluster.bookies[:3]]
        ledger = await client.create(
            ensemble=3, write_quorum=3, ack_quorum=2, bookies=members, digest=self.digest, password=PASSWORD
        )
        for payload in self.payloads[:count]:
            await ledger.append(payload)
        if close:
            await ledger.close()
        return ledger


def test_writers_of_both_versions_refuse_the_same_size() -> None:
    scene = Scene(3, DigestType.CRC32C, entry_body_size_max(LIMIT))
    size = len(scene.payload)

    async def scenario(*, use_v2: bool) -> None:
        client = scene.client(use_v2=use_v2)
        ledger = await client.create(ensemble=3, write_quorum=3, ack_quorum=2)
        assert await ledger.append(scene.payload) == 0
        for append in (ledger.append_nowait, lambda payload: ledger.append_batch_nowait([payload])):
            with pytest.raises(InvalidArgument, match=f"of {size + 1} bytes is larger than {size}, .* raise netty"):
                append(scene.payload + b"x")
        advanced = await client.create_advanced(ensemble=3, write_quorum=3, ack_quorum=2)
        assert await advanced.append(0, scene.payload) == 0
        with pytest.raises(InvalidArgument, match=f"of {size + 1} bytes is larger than {size}, .* raise netty"):
            await advanced.append(1, scene.payload + b"x")

    for use_v2 in (True, False):
        scene.cluster.wait(scenario(use_v2=use_v2))


@VERSIONS
@DIGESTS
@BODY_SIZES
def test_a_closed_ledger_is_read_in_every_way(use_v2: bool, digest: DigestType, body_size: int) -> None:
    scene = Scene(3, digest, body_size)

    async def scenario() -> None:
        ledger = await scene.write(close=True)
        async with await scene.client(use_v2=use_v2).open(ledger.id, PASSWORD) as handle:
            assert [entry.payload for entry in await handle.read(0, 3)] == scene.payloads
            assert [entry.payload async for entry in handle.entries()] == scene.payloads
            assert [entry.payload for entry in await handle.read_batch(1)][:1] == [scene.payload]
            assert (await handle.read_last()).payload == b"behind"

    scene.cluster.wait(scenario())


@VERSIONS
@DIGESTS
@BODY_SIZES
def test_a_large_entry_is_tailed(use_v2: bool, digest: DigestType, body_size: int) -> None:
    scene = Scene(3, digest, body_size)
    cluster = scene.cluster
    ledger = cluster.wait(scene.write(2, close=False))
    reader = scene.client(use_v2=use_v2)
    handle = cluster.wait(reader.open_without_recovery(ledger.id, PASSWORD))
    assert cluster.wait(handle.read_last_confirmed()) == 0  # the large entry is the last one that bookies hold
    assert cluster.wait(handle.try_read_last_confirmed()) == 0
    found: list[bytes] = []

    async def follow() -> None:
        async for batch in handle.tail():
            found.extend(entry.payload for entry in batch)

    reader.context.spawn(follow(), "tail")
    cluster.run(1.0)
    for payload in scene.payloads[2:]:
        cluster.wait(ledger.append(payload))
        cluster.run(0.5)
    cluster.wait(ledger.close())
    cluster.run(5.0)
    assert found == scene.payloads
    assert any(isinstance(request, messages.LongPollRead) for bookie in cluster.bookies for request in bookie.requests)


@VERSIONS
@DIGESTS
@BODY_SIZES
def test_a_large_entry_is_recovered_and_written_back(use_v2: bool, digest: DigestType, body_size: int) -> None:
    """One bookie lacks the last entry, an acknowledged large one: the recovery writes it back (I-37)."""
    scene = Scene(3, digest, body_size)
    cluster = scene.cluster
    ledger = cluster.wait(scene.write(2, close=False))
    lacking = cluster.bookies[2]
    lacking.rule = lambda request: HOLD if isinstance(request, messages.AddBatch) and not request.recovery else None
    assert cluster.wait(ledger.append(scene.payload)) == 2
    assert 2 not in lacking.entries[ledger.id]
    handle = cluster.wait(scene.client(use_v2=use_v2).open(ledger.id, PASSWORD))
    assert handle.last_add_confirmed == 2
    assert all(2 in bookie.entries[ledger.id] for bookie in cluster.bookies)
    assert [entry.payload for entry in cluster.wait(handle.read(0, 2))] == scene.payloads[:3]


@VERSIONS
@DIGESTS
@BODY_SIZES
def test_a_large_entry_is_checked_and_copied_to_another_bookie(
    use_v2: bool, digest: DigestType, body_size: int
) -> None:
    scene = Scene(4, digest, body_size)
    cluster = scene.cluster
    lost, spare = cluster.bookies[0], cluster.bookies[3]
    repairs = Repairs(cluster, scene.client(use_v2=use_v2))

    async def scenario() -> LedgerMetadata:
        ledger = await scene.write(close=True)
        access, current = await repairs.look(ledger.id)
        assert all(verdict.good for verdict in await repairs.checker.check_ledger(access, current))
        lost.leave()
        metadata = await repairs.restore(ledger.id, lost)
        copies = spare.entries[ledger.id]
        assert digest_of(digest, PASSWORD).verify(ledger.id, range(4), [copies[n] for n in range(4)]) == scene.payloads
        assert holders_missing(cluster, ledger.id, metadata) == []
        return metadata

    metadata: LedgerMetadata = cluster.wait(scenario())
    assert spare.bookie_id in fragments_of(metadata)[0].ensemble
