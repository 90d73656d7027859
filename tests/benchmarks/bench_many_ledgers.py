"""Adds over very many ledgers against adds on one, in the same run. Prints figures, asserts nothing.

    python tests/benchmarks/bench_many_ledgers.py [ledgers] [seconds a cell]      (20000, 6)

A cluster of three bookies with their usual settings; 128 bytes, E=3 Qw=2 Qa=2, 1000 entries in flight over all ledgers
together. `burst` entries go to a ledger, then as many to the next: with 1 hardly two entries of a ledger ever meet in a
batch, which is the worst case for bookies and client. CPU is per add; a bookie stores two of three adds.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from bookkeeper import BookKeeper
from bookkeeper.client.faces.aio import AsyncWriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster

BURSTS = (1, 10, 100, 1000)
WINDOW = 1000
CREATES_AT_ONCE = 64
"""Ledgers created, and given their first entry, together: bookies on a disturbed disk need not time out over it."""

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Drive:
    """WINDOW entries in flight, `burst` of them to one ledger before the next."""

    def __init__(self, ledgers: list[AsyncWriteHandle], burst: int) -> None:
        self._ledgers, self._burst = ledgers, burst
        self._payloads = [bytes(128)] * burst
        self._next = self.acknowledged = 0
        self._credit = WINDOW
        self._stopping = False
        self._idle = asyncio.Event()
        for ledger in ledgers:
            ledger.on_acknowledged = self._on_acknowledged

    def _fill(self) -> None:
        while self._credit >= self._burst and not self._stopping:
            self._ledgers[self._next].append_batch_nowait(self._payloads)
            self._next = (self._next + 1) % len(self._ledgers)
            self._credit -= self._burst

    def _on_acknowledged(self, entry_ids: range) -> None:
        self.acknowledged += len(entry_ids)
        self._credit += len(entry_ids)
        self._fill()
        if self._stopping and self._credit == WINDOW:
            self._idle.set()

    async def measure(self, bookies: list[LocalBookie], seconds: float) -> tuple[float, float, float]:
        """Adds/s, client us per add, us per add of all bookies together; the first quarter is not counted."""
        self._fill()
        await asyncio.sleep(seconds / 4)
        first, began, cpu, bookie_cpu = self.acknowledged, time.perf_counter(), time.process_time(), cpu_s(bookies)
        await asyncio.sleep(seconds * 3 / 4)
        adds = max(1, self.acknowledged - first)
        elapsed = time.perf_counter() - began
        cpu, bookie_cpu = time.process_time() - cpu, cpu_s(bookies) - bookie_cpu
        self._stopping = True
        await self._idle.wait()
        return adds / elapsed, cpu / adds * 1e6, bookie_cpu / adds * 1e6


def cpu_s(bookies: list[LocalBookie]) -> float:
    """User and system time of the bookies so far."""
    total = 0
    for bookie in bookies:
        fields = Path(f"/proc/{bookie.pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_S


def footprint(bookies: list[LocalBookie]) -> str:
    """Resident memory and open descriptors of each bookie."""
    sizes, descriptors = [], []
    for bookie in bookies:
        status = Path(f"/proc/{bookie.pid}/status").read_text()
        sizes.append(int(status.split("VmRSS:")[1].split()[0]) // 1024)
        descriptors.append(len(os.listdir(f"/proc/{bookie.pid}/fd")))
    return f"bookies: {sizes} MiB resident, {descriptors} descriptors"


async def create(bk: BookKeeper, count: int) -> list[AsyncWriteHandle]:
    """Ledgers with an entry each, some at a time."""
    room = asyncio.Semaphore(CREATES_AT_ONCE)

    async def one() -> AsyncWriteHandle:
        async with room:
            ledger = await bk.create()
            await ledger.append(b"first")
            return ledger

    return await asyncio.gather(*(one() for _ in range(count)))


async def run(cluster: LocalCluster, count: int, seconds: float) -> None:
    """The whole measurement, without explicit LACs and then with them."""
    for interval_s in (0.0, 1.0):
        settings = ClientSettings(metadata_service_uri=cluster.uri, explicit_lac_interval_s=interval_s)
        async with await BookKeeper.connect(cluster.uri, settings) as bk:
            print(f"\nexplicit LAC {f'after {interval_s:g} s of quiet' if interval_s else 'off'}")
            one, many = await create(bk, 1), await create(bk, count)
            print(f"{count:,} ledgers with an entry each; {footprint(cluster.bookies)}")
            print("burst   one ledger   many ledgers   ratio   us/add client, bookies: one        many")
            for burst in BURSTS:
                alone = await Drive(one, burst).measure(cluster.bookies, seconds)
                spread = await Drive(many, burst).measure(cluster.bookies, seconds)
                print(
                    f"{burst:5} {alone[0]:12,.0f} {spread[0]:14,.0f} {spread[0] / alone[0]:7.2f}"
                    f"{alone[1]:26.1f} {alone[2]:6.1f} {spread[1]:8.1f} {spread[2]:6.1f}",
                    flush=True,
                )
            print(footprint(cluster.bookies))
            for ledger in (*one, *many):
                ledger.abort()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 6.0
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with LocalCluster(3) as cluster:
        asyncio.run(run(cluster, count, seconds))


if __name__ == "__main__":
    main()
