"""Bookies are killed while ledgers are written: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper import BookKeeper
from bookkeeper.client.faces.aio import AsyncWriteHandle
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import BookKeeperError, LedgerFencedOff, NotEnoughBookies, RecoveryFailed, WindowFull
from tests.support.cluster import STEADY, local_cluster
from tests.support.process_output import await_output

ROUNDS = 5
"""Kills of all three bookies; `test_durability.py` has the long run."""

SETTINGS = ClientSettings(
    add_timeout_s=30.0, read_timeout_s=30.0, reconnect_delay_min_s=0.05, reconnect_delay_max_s=0.5
)
"""The client waits for a bookie that pauses for seconds. The connections of a killed bookie end at once."""


@pytest.fixture
def cluster(zookeeper: Any, ledgers_root: str, tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(zookeeper.address, ledgers_root, 3, directory=tmp_path, settings=STEADY) as running:
        yield running


def payload(entry_id: int) -> bytes:
    return b"entry %d " % entry_id * 10


async def write_until(ledger: AsyncWriteHandle, enough: asyncio.Event) -> None:
    """Keep the window full of entries until the handle fails or `enough` is set."""
    while not enough.is_set():
        try:
            first = ledger.last_add_pushed + 1
            ledger.append_batch_nowait([payload(entry_id) for entry_id in range(first, first + 50)])
        except WindowFull:
            await ledger.ready()
        await asyncio.sleep(0)


async def check_all(bk: BookKeeper, ledger_id: int, last_acknowledged: int) -> None:
    handle = await bk.open(ledger_id)
    assert handle.last_add_confirmed >= last_acknowledged
    expected = 0
    async for batch in handle.batches():
        for entry in batch:
            assert (entry.entry_id, entry.payload) == (expected, payload(expected))
            expected += 1
    assert expected == handle.last_add_confirmed + 1


@pytest.mark.timeout(400)
def test_everything_acknowledged_survives_sigkill_of_all_bookies(cluster: LocalCluster, rng: Any) -> None:
    async def created(bk: BookKeeper) -> AsyncWriteHandle:
        while True:
            try:
                return await bk.create(ensemble=3, write_quorum=2, ack_quorum=2)
            except NotEnoughBookies:  # the client may see the end of a connection only after the restart
                await bk.available_bookies()

    async def one_round(bk: BookKeeper) -> int:
        ledger = await created(bk)
        acknowledged, wanted, reached = -1, rng.randint(1, 3000), asyncio.Event()

        def note(entry_ids: range) -> None:
            nonlocal acknowledged
            acknowledged = entry_ids[-1]
            if acknowledged >= wanted and not reached.is_set():
                for bookie in cluster.bookies:
                    bookie.kill()
                reached.set()

        ledger.on_acknowledged = note
        writing = asyncio.create_task(write_until(ledger, asyncio.Event()))
        await reached.wait()
        with pytest.raises(BookKeeperError):
            await writing
        for bookie in cluster.bookies:
            bookie.start(wait=False)
        for bookie in cluster.bookies:
            bookie.wait_ready()
        await check_all(bk, ledger.id, acknowledged)
        return acknowledged

    async def main() -> None:
        async with await BookKeeper.connect(cluster.uri, SETTINGS) as bk:
            counts = [await one_round(bk) for _ in range(ROUNDS)]
            assert min(counts) >= 1

    asyncio.run(main())


SUSPENDED = """
import asyncio, sys
from bookkeeper import BookKeeper
from bookkeeper.config import ClientSettings

async def main():
    async with await BookKeeper.connect(sys.argv[1], ClientSettings(add_timeout_s=5.0)) as bk:
        ledgers = [await bk.create(ensemble=3, write_quorum=2, ack_quorum=2) for _ in range(20)]
        while True:
            await asyncio.gather(*(ledger.append_many([b"x" * 100] * 200) for ledger in ledgers))
            changed = sum(len(ledger.metadata.fragments) - 1 for ledger in ledgers)
            print("round", ledgers[0].last_add_confirmed, "changes", changed, flush=True)

asyncio.run(main())
"""


@pytest.mark.timeout(300)
def test_a_suspended_writer_goes_on_and_blames_no_bookie(cluster: LocalCluster, tmp_path: Path) -> None:
    """Stopped for longer than its timeout with answers under way: all bookies are healthy, and none is replaced."""
    output = tmp_path / "writer.txt"
    with (
        output.open("wb") as file,
        subprocess.Popen([sys.executable, "-c", SUSPENDED, cluster.uri], stdout=file, stderr=subprocess.STDOUT) as one,
    ):
        try:
            failure = await_output(one, output, re.compile(rb"(round.*\n.*){5}"), timeout_s=90)
            assert failure is None, output.read_text()
            one.send_signal(signal.SIGSTOP)
            with pytest.raises(subprocess.TimeoutExpired):
                one.wait(6.5)
            one.send_signal(signal.SIGCONT)
            start = output.stat().st_size
            failure = await_output(one, output, re.compile(rb"(round.*\n.*){5}"), timeout_s=90, start=start)
            assert failure is None, output.read_text()
        finally:
            one.kill()
    assert not re.search(rb"changes [1-9]", output.read_bytes()), output.read_text()


@pytest.mark.timeout(300)
def test_the_writer_goes_on_over_a_killed_bookie_when_there_is_a_spare(cluster: LocalCluster) -> None:
    cluster.add_bookie()

    async def main() -> None:
        async with await BookKeeper.connect(cluster.uri, SETTINGS) as bk:
            async with await bk.create(ensemble=3, write_quorum=2, ack_quorum=2) as ledger:
                enough = asyncio.Event()
                killed: list[str] = []

                def note(entry_ids: range) -> None:
                    if entry_ids[-1] > 5000 and not killed:
                        victim = ledger.metadata.last_fragment.ensemble[1]
                        next(bookie for bookie in cluster.bookies if bookie.bookie_id == victim).kill()
                        killed.append(victim)
                    if entry_ids[-1] > 20_000:
                        enough.set()

                ledger.on_acknowledged = note
                await write_until(ledger, enough)
                last = await ledger.flush()
            metadata = await bk.metadata(ledger.id)
            assert killed
            assert killed[0] in metadata.fragments[0].ensemble
            assert killed[0] not in metadata.last_fragment.ensemble
            await check_all(bk, ledger.id, last)

    asyncio.run(main())


@pytest.mark.timeout(300)
def test_a_backup_takes_over_and_the_old_writer_can_never_acknowledge_again(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with (
            await BookKeeper.connect(cluster.uri, SETTINGS) as primary,
            await BookKeeper.connect(cluster.uri, SETTINGS) as backup,
        ):
            ledger = await primary.create()
            under_way, acknowledged = asyncio.Event(), [-1]

            def note(entry_ids: range) -> None:
                acknowledged.append(entry_ids[-1])
                if entry_ids[-1] > 1000:
                    under_way.set()

            ledger.on_acknowledged = note
            writing = asyncio.create_task(write_until(ledger, asyncio.Event()))
            await under_way.wait()
            handle = await backup.open(ledger.id)
            with pytest.raises(LedgerFencedOff):
                await writing
            assert handle.last_add_confirmed >= acknowledged[-1]
            await check_all(primary, ledger.id, acknowledged[-1])

    asyncio.run(main())


@pytest.mark.timeout(300)
def test_recovery_waits_for_bookies_it_cannot_do_without(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with await BookKeeper.connect(cluster.uri, SETTINGS) as bk:
            ledger = await bk.create(ensemble=3, write_quorum=3, ack_quorum=2)
            await ledger.append_many([payload(entry_id) for entry_id in range(100)])
            ledger.abort()
            first, second = cluster.bookies[:2]
            first.kill()
            second.kill()
            with pytest.raises(RecoveryFailed, match=f"ledger {ledger.id}"):
                await bk.open(ledger.id)
            second.start()
            await check_all(bk, ledger.id, 99)

    asyncio.run(main())
