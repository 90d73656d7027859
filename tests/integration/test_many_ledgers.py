"""Many ledgers on three bookies: index pages, open files and memory stay bounded, and everything is readable.

Scaled down: more ledgers by far than a bookie may hold files open, and an index cache much smaller than what the index
takes. tests/benchmarks/bench_many_ledgers.py is the same at full size, with rates.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bookkeeper import BookKeeper
from bookkeeper.client.faces.aio import AsyncWriteHandle
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.ledger_load import payload_of

pytestmark = pytest.mark.timeout(300)

LEDGERS = 1500
ENTRIES = 5
BATCHES = 4
CREATES_AT_ONCE = 64
OPEN_FILES = 128
OTHER_DESCRIPTORS_MAX = 80
"""Journals, entry logs, connections, what Python itself holds."""

RESIDENT_MAX_KB = 150 * 1024
SMALL: dict[str, str] = {
    **STEADY,
    "openFileLimit": str(OPEN_FILES),
    "indexCacheBytesMax": str(2 << 20),
    "skipListSizeLimit": str(1 << 20),
    "nettyMaxFrameSizeBytes": str(1 << 18),  # a frame must fit into the write buffer
    "flushInterval": "200",
}


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(zookeeper.address, ledgers_root, 3, directory=tmp_path, settings=SMALL) as cluster:
        yield cluster


@dataclass(slots=True)
class Footprint:
    """The most a bookie was seen to take."""

    resident_kb: int = 0
    descriptors: int = 0

    def look(self, bookie: LocalBookie) -> None:
        status = Path(f"/proc/{bookie.pid}/status").read_text()
        self.resident_kb = max(self.resident_kb, int(status.split("VmRSS:")[1].split()[0]))
        self.descriptors = max(self.descriptors, len(os.listdir(f"/proc/{bookie.pid}/fd")))


def index_files(bookie: LocalBookie) -> int:
    return sum(1 for _ in (bookie.ledger_directory / "current").rglob("*.idx"))


async def create(bk: BookKeeper, count: int) -> list[AsyncWriteHandle]:
    room = asyncio.Semaphore(CREATES_AT_ONCE)

    async def one() -> AsyncWriteHandle:
        async with room:
            return await bk.create(ensemble=3, write_quorum=2, ack_quorum=2)

    return await asyncio.gather(*(one() for _ in range(count)))


async def write_all(ledgers: list[AsyncWriteHandle], footprints: dict[LocalBookie, Footprint]) -> None:
    """A few entries to each ledger, in rounds over all of them."""
    for _ in range(BATCHES):
        for start in range(0, len(ledgers), 500):
            some = ledgers[start : start + 500]
            await asyncio.gather(
                *(
                    ledger.append_many(
                        [payload_of(ledger.id, ledger.last_add_pushed + 1 + number) for number in range(ENTRIES)]
                    )
                    for ledger in some
                )
            )
            for bookie, footprint in footprints.items():
                footprint.look(bookie)


async def read_some(bk: BookKeeper, ledger_ids: list[int]) -> None:
    """Recover and read ledgers from all over the range."""
    step = max(1, len(ledger_ids) // 150)
    for ledger_id in ledger_ids[::step]:
        async with await bk.open(ledger_id) as reader:
            entries = await reader.read(0, ENTRIES * BATCHES - 1)
            assert [entry.payload for entry in entries] == [
                payload_of(ledger_id, entry_id) for entry_id in range(ENTRIES * BATCHES)
            ]


def test_many_ledgers_stay_within_the_bounds_of_files_and_memory(cluster: LocalCluster) -> None:
    footprints = {bookie: Footprint() for bookie in cluster.bookies}
    ledger_ids: list[int] = []

    async def write() -> None:
        async with await BookKeeper.connect(cluster.uri, with_long_timeouts()) as bk:
            ledgers = await create(bk, LEDGERS)
            ledger_ids.extend(ledger.id for ledger in ledgers)
            await write_all(ledgers, footprints)
            for ledger in ledgers:
                ledger.abort()

    async def read() -> None:
        async with await BookKeeper.connect(cluster.uri, with_long_timeouts()) as bk:
            await read_some(bk, sorted(ledger_ids))
        for bookie, footprint in footprints.items():
            footprint.look(bookie)

    asyncio.run(write())
    asyncio.run(read())
    for bookie in cluster.bookies:
        assert bookie.stop() == 0
        bookie.start()
    asyncio.run(read())

    for bookie, footprint in footprints.items():
        assert index_files(bookie) >= LEDGERS  # each ledger has all three in its ensemble
        assert index_files(bookie) > 2 * OPEN_FILES, "too few ledgers to show anything"
        assert footprint.descriptors <= OPEN_FILES + OTHER_DESCRIPTORS_MAX
        assert footprint.resident_kb < RESIDENT_MAX_KB
