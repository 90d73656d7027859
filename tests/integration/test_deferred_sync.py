"""Deferred sync with real bookies: what a force confirmed survives SIGKILL, and what nobody can confirm is named.

SIGKILL leaves in the kernel what was written and not synced; disks that forget are in the unit tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from bookkeeper import BookKeeper
from bookkeeper import blocking as blocking_face
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import BookKeeperError, NotDurable
from tests.support.cluster import STEADY, local_cluster

SETTINGS = ClientSettings(
    use_v2=False, add_timeout_s=60.0, read_timeout_s=60.0, reconnect_delay_min_s=0.05, reconnect_delay_max_s=0.5
)

SHAPE = {"ensemble": 3, "write_quorum": 3, "ack_quorum": 2}

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(
        zookeeper.address, "/deferred-sync", 3, directory=tmp_path_factory.mktemp("deferred"), settings=STEADY
    ) as running:
        yield running


def payload(entry_id: int) -> bytes:
    return b"entry %d " % entry_id * 10


def start_all(cluster: LocalCluster) -> None:
    for bookie in cluster.bookies:
        bookie.start(wait=False)
    for bookie in cluster.bookies:
        bookie.wait_ready()


async def read_all(bk: BookKeeper, ledger_id: int) -> int:
    """Open with recovery and check every entry; the last entry id."""
    async with await bk.open(ledger_id) as reader:
        expected = 0
        async for entry in reader.entries():
            assert (entry.entry_id, entry.payload) == (expected, payload(expected))
            expected += 1
        assert expected == reader.last_add_confirmed + 1
        return reader.last_add_confirmed


def test_what_was_forced_survives_sigkill_of_all_bookies_under_load(cluster: LocalCluster, rng: Any) -> None:
    """Aim: entries are added and forced at the same time; the kill falls anywhere. The LAC follows the forces alone."""

    async def one_round(bk: BookKeeper) -> int:
        ledger = await bk.create(**SHAPE, deferred_sync=True)
        forced, wanted, reached = -1, rng.randint(20, 400), asyncio.Event()

        async def add() -> None:
            while True:
                first = ledger.last_add_pushed + 1
                await ledger.append_many([payload(entry_id) for entry_id in range(first, first + 10)])

        async def force() -> None:
            nonlocal forced
            while True:
                before = ledger.last_add_confirmed
                lac = await ledger.force()
                assert before <= lac <= ledger.last_add_pushed
                assert lac <= ledger.last_add_confirmed
                forced = lac
                if forced >= wanted:
                    reached.set()
                await asyncio.sleep(0)

        adding, forcing = asyncio.create_task(add()), asyncio.create_task(force())
        await reached.wait()
        for bookie in cluster.bookies:
            bookie.kill()
        for task in (adding, forcing):
            with pytest.raises(BookKeeperError):
                await task
        ledger.abort()
        start_all(cluster)
        assert await read_all(bk, ledger.id) >= forced
        return forced

    async def main() -> None:
        async with await BookKeeper.connect(cluster.uri, SETTINGS) as bk:
            for _ in range(3):
                assert await one_round(bk) >= 20

    asyncio.run(main())


def test_a_bookie_killed_before_the_force_ends_the_ledger_at_the_durable_lac(cluster: LocalCluster) -> None:
    """It is back before the force, and would answer it with OK: that proves nothing of what it acknowledged before."""

    async def main() -> None:
        async with await BookKeeper.connect(cluster.uri, SETTINGS) as bk:
            ledger = await bk.create(**SHAPE, deferred_sync=True)
            await ledger.append_many([payload(entry_id) for entry_id in range(5)])
            assert await ledger.force() == 4
            await ledger.append_many([payload(entry_id) for entry_id in range(5, 12)])
            assert ledger.last_add_confirmed == 4
            cluster.bookies[1].kill()
            cluster.bookies[1].start()
            with pytest.raises(NotDurable):
                await ledger.force()
            with pytest.raises(NotDurable, match=r"closed at entry 4: entries 5\.\.11") as told:
                await ledger.close()
            assert told.value.entry_ids == range(5, 12)
            metadata = await bk.metadata(ledger.id)
            assert (metadata.is_closed, metadata.last_entry_id) == (True, 4)
            assert await read_all(bk, ledger.id) == 4

    asyncio.run(main())


def test_a_tail_sees_entries_once_they_are_forced_and_close_forces_the_rest(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with await BookKeeper.connect(cluster.uri, SETTINGS) as bk:
            ledger = await bk.create_advanced(**SHAPE, deferred_sync=True)
            await ledger.append_many(0, [payload(entry_id) for entry_id in range(10)])
            reader = await bk.open_without_recovery(ledger.id)
            assert await reader.read_last_confirmed() == -1
            assert await ledger.force() == 9
            await ledger.append(10, payload(10))  # carries the LAC
            assert await reader.read_last_confirmed() == 9
            assert (await ledger.close()).last_entry_id == 10
            assert await read_all(bk, ledger.id) == 10

    asyncio.run(main())


def test_the_blocking_face_forces_ledgers_of_either_kind(cluster: LocalCluster) -> None:
    with blocking_face.connect(cluster.uri, SETTINGS) as bk:
        for deferred_sync in (True, False):
            with bk.create(**SHAPE, deferred_sync=deferred_sync) as ledger:
                assert ledger.append(payload(0)) == 0
                assert ledger.last_add_confirmed == (-1 if deferred_sync else 0)
                assert ledger.force() == 0
                assert ledger.last_add_confirmed == 0
            assert bk.metadata(ledger.id).last_entry_id == 0
