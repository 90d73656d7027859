"""Create, append, read, close, recover: the client over fake bookies, in simulated time."""

import pytest

from bookkeeper.config import ClientSettings
from tests.support.fake_bookie import FakeCluster

BOTH = pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])


@BOTH
def test_what_was_appended_is_read_back_after_close(use_v2: bool) -> None:
    cluster = FakeCluster(4)
    client = cluster.client(ClientSettings(use_v2=use_v2))
    payloads = [b"%d" % number * 50 for number in range(3000)]

    async def scenario() -> None:
        async with await client.create(ensemble=3, write_quorum=2, ack_quorum=2) as ledger:
            assert await ledger.append(b"first") == 0
            assert await ledger.append_many(payloads) == range(1, 3001)
            assert ledger.last_add_confirmed == 3000
        metadata = await client.metadata(ledger.id)
        assert metadata.is_closed
        assert (metadata.last_entry_id, metadata.length) == (3000, 5 + sum(map(len, payloads)))
        handle = await client.open(ledger.id)
        entries = await handle.read(0, 3000)
        assert [entry.payload for entry in entries] == [b"first", *payloads]
        assert [entry.entry_id async for entry in handle.entries(2990)] == list(range(2990, 3001))

    cluster.wait(scenario())
    assert sum(bookie.payload_count(0) for bookie in cluster.bookies) == 2 * 3001


@BOTH
def test_recovery_open_finds_everything_acknowledged(use_v2: bool) -> None:
    cluster = FakeCluster(3)
    writer, reader = cluster.client(ClientSettings(use_v2=use_v2)), cluster.client(ClientSettings(use_v2=use_v2))

    async def scenario() -> None:
        ledger = await writer.create()
        await ledger.append_many([b"entry %d" % number for number in range(500)])
        handle = await reader.open(ledger.id)
        assert handle.closed
        assert handle.last_add_confirmed == 499
        assert (await handle.read(499, 499))[0].payload == b"entry 499"

    cluster.wait(scenario())
