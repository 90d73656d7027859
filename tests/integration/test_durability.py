"""Nothing acknowledged is lost: SIGKILL of bookies and writers, ZooKeeper outages, full disks, all under load.

Real processes and files. Each test writes as fast as it can, lets something die in the middle, and reads everything
back with a fresh client that recovers the ledger. What must be there is what the writer's acknowledgements said.
Processes are started from the main thread, since they die with the thread that starts them.

SIGKILL leaves what the kernel has not yet written; that no answer relies on it is shown by test_sync_before_answer.py
and, with disks that forget, by the simulation.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bookkeeper import BookKeeper
from bookkeeper.client.faces.aio import AsyncWriteHandle
from bookkeeper.embedded.cluster import LocalBookie, LocalCluster
from bookkeeper.embedded.process import dying_with_parent
from bookkeeper.embedded.zookeeper import EmbeddedZooKeeper
from bookkeeper.errors import NotEnoughBookies
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts
from tests.support.ledger_load import Load, check_entries, check_ledger
from tests.support.small_disk import fill, mounted

T = TypeVar("T")

ROUNDS = 20
SESSION_MS = "2000"
"""Session timeout of bookies in tests that wait for the end of a session."""

WAIT_S = 120.0

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three bookies that the tests below kill and start again."""
    directory = tmp_path_factory.mktemp("durability")
    root = f"/durability-{os.urandom(3).hex()}"
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as cluster:
        yield cluster


def run(awaitable: Awaitable[T]) -> T:
    """Run a coroutine in an event loop of its own, bounded."""

    async def bounded() -> T:
        return await asyncio.wait_for(awaitable, WAIT_S)

    return asyncio.run(bounded())


def kill_all(bookies: list[LocalBookie]) -> None:
    """SIGKILL to all before waiting for any."""
    for bookie in bookies:
        os.kill(bookie.pid, signal.SIGKILL)
    for bookie in bookies:
        bookie.kill()


def start_all(bookies: list[LocalBookie]) -> None:
    for bookie in bookies:
        bookie.start(wait=False)
    for bookie in bookies:
        bookie.wait_ready()


# --- bookies --------------------------------------------------------------------------------------------------------


def test_kill_of_all_bookies_under_load_loses_nothing_acknowledged(cluster: LocalCluster, seed: int) -> None:
    """In odd rounds the writer dies with them, in even rounds it fails.

    An even round's writer may continue on the restarted bookies if all its entries had been acknowledged by the kill.
    """
    rng = random.Random(seed)
    written: dict[int, int] = {}

    async def one_round(number: int) -> None:
        async with await BookKeeper.connect(cluster.uri, with_long_timeouts()) as bk:
            load = Load(await bk.create(ensemble=3, write_quorum=2, ack_quorum=2))
            await load.reached(rng.randrange(200, 4000))
            kill_all(cluster.bookies)  # mostly with hundreds of entries in flight
            if number % 2:
                await load.abandon()
            start_all(cluster.bookies)
            if not number % 2:
                with suppress(NotEnoughBookies):
                    await load.reached(load.acknowledged + 1000)
                await load.stop()
        written[load.ledger.id] = load.acknowledged
        await check_ledger(cluster.uri, load.ledger.id, load.acknowledged)

    for number in range(ROUNDS):
        run(one_round(number))
    assert len(written) == ROUNDS

    async def all_again() -> None:
        async with await BookKeeper.connect(cluster.uri, with_long_timeouts()) as bk:
            for ledger_id, acknowledged in written.items():
                await check_entries(await bk.open(ledger_id), acknowledged)

    run(all_again())
    assert all(b"Replayed" in bookie.log_path.read_bytes() for bookie in cluster.bookies)


def test_a_spare_takes_the_place_of_a_bookie_killed_while_a_ledger_is_written(cluster: LocalCluster) -> None:
    spare = cluster.add_bookie()

    async def scenario() -> None:
        async with await BookKeeper.connect(cluster.uri, with_long_timeouts()) as bk:
            load = Load(await bk.create(ensemble=3, write_quorum=2, ack_quorum=2))
            await load.reached(2000)
            ensemble = load.ledger.metadata.last_fragment.ensemble
            victim = next(bookie for bookie in cluster.bookies if bookie.bookie_id in ensemble)
            victim.kill()
            await load.reached(load.acknowledged + 15_000)  # more than was in flight
            await load.stop()
            metadata = await load.ledger.close()
            assert len(metadata.fragments) == 2
            assert victim.bookie_id not in metadata.last_fragment.ensemble
            assert metadata.last_entry_id == load.acknowledged - 1
        assert await check_ledger(cluster.uri, load.ledger.id, load.acknowledged) == load.acknowledged
        victim.start()

    run(scenario())
    assert spare.running


# --- writers --------------------------------------------------------------------------------------------------------

WRITER = """
import asyncio, sys
from bookkeeper import BookKeeper
from tests.support.ledger_load import Load

async def main():
    async with await BookKeeper.connect(sys.argv[1]) as bk:
        load = Load(await bk.create(custom={"log": b"primary"}))
        print(load.ledger.id, flush=True)
        while True:
            await load.reached(load.acknowledged + 1)
            print(load.acknowledged, flush=True)

asyncio.run(main())
"""


class WriterProcess:
    """A program that writes a ledger and tells what was acknowledged."""

    def __init__(self, uri: str) -> None:
        command = dying_with_parent([sys.executable, "-c", WRITER, uri])
        root = str(Path(__file__).resolve().parents[2])
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root}
        )
        assert self.process.stdout is not None
        self._told = self.process.stdout
        line = self._told.readline()
        assert line, self.process.communicate()[1]
        self.ledger_id = int(line)

    def wait_for(self, count: int) -> None:
        """Return once it has told of `count` acknowledged entries."""
        while int(self._told.readline()) < count:
            pass

    def end(self) -> tuple[int, str]:
        """Wait for its end; the last count it told, and what it said on standard error."""
        told, said = self.process.communicate(timeout=WAIT_S)
        whole_lines = told[: told.rfind("\n") + 1].split()
        return int(whole_lines[-1]) if whole_lines else 0, said


def test_a_backup_finds_everything_that_a_killed_writer_was_told_is_acknowledged(cluster: LocalCluster) -> None:
    for _ in range(3):
        writer = WriterProcess(cluster.uri)
        writer.wait_for(3000)
        writer.process.kill()
        acknowledged, _ = writer.end()
        assert run(check_ledger(cluster.uri, writer.ledger_id, max(acknowledged, 3000))) >= 3000


def test_a_writer_that_was_only_asleep_acknowledges_nothing_after_the_backup_took_over(cluster: LocalCluster) -> None:
    """It is stopped with entries in flight, its ledger is recovered, and it wakes up: I-23, I-24."""
    writer = WriterProcess(cluster.uri)
    writer.wait_for(3000)
    writer.process.send_signal(signal.SIGSTOP)
    try:
        count = run(check_ledger(cluster.uri, writer.ledger_id, 3000))
    finally:
        writer.process.send_signal(signal.SIGCONT)
    acknowledged, said = writer.end()
    assert acknowledged <= count
    assert "LedgerFencedOff" in said
    assert run(check_ledger(cluster.uri, writer.ledger_id, acknowledged)) == count


# --- ZooKeeper ------------------------------------------------------------------------------------------------------


def test_appends_go_on_while_zookeeper_is_away_and_all_is_well_when_it_is_back(tmp_path: Path) -> None:
    """A ledger needs ZooKeeper to begin, to change its ensemble and to end; not for entries in between."""
    with EmbeddedZooKeeper(data_dir=tmp_path / "zookeeper") as server:
        settings = {"zkTimeout": SESSION_MS}
        with local_cluster(server.address, "/ledgers", 4, directory=tmp_path / "c", settings=settings) as cluster:
            run(_outage(server, cluster))


async def _outage(server: EmbeddedZooKeeper, cluster: LocalCluster) -> None:
    async with await BookKeeper.connect(cluster.uri, with_long_timeouts()) as bk:
        load = Load(await bk.create(ensemble=3, write_quorum=2, ack_quorum=2))
        await load.reached(1000)
        ensemble = load.ledger.metadata.last_fragment.ensemble
        spare = next(bookie for bookie in cluster.bookies if bookie.bookie_id not in ensemble)
        victim = next(bookie for bookie in cluster.bookies if bookie.bookie_id in ensemble)

        async def registered(count: int) -> None:
            while len((await bk.available_bookies()).writable) != count:
                await load.reached(load.acknowledged + 100)

        server.kill()
        away_since = time.monotonic()
        await load.reached(load.acknowledged + 20_000)
        while time.monotonic() < away_since + 2 * int(SESSION_MS) / 1000:  # long enough for sessions to end
            await load.reached(load.acknowledged + 100)
        server.restart()
        await registered(4)

        async def spare_is(*, present: bool) -> None:
            while (spare.bookie_id in (await bk.available_bookies()).writable) is not present:
                await load.reached(load.acknowledged + 100)

        os.kill(spare.pid, signal.SIGSTOP)  # its session ends, and it learns that only when it wakes up
        try:
            await spare_is(present=False)
        finally:
            os.kill(spare.pid, signal.SIGCONT)
        await spare_is(present=True)
        await registered(4)
        assert len(load.ledger.metadata.fragments) == 1

        victim.kill()  # what came back is good enough for a change of the ensemble
        await load.reached(load.acknowledged + 15_000)
        await load.stop()
        metadata = await load.ledger.close()
        assert spare.bookie_id in metadata.last_fragment.ensemble
    assert await check_ledger(cluster.uri, load.ledger.id, load.acknowledged) == load.acknowledged


# --- disks ----------------------------------------------------------------------------------------------------------

DISK_SIZE = 160 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that a test can fill."""
    with mounted(tmp_path / "disk", DISK_SIZE) as path:
        yield path


@pytest.mark.parametrize(
    ("leave", "on_disk"),
    [
        pytest.param(40 << 20, ("journal", "ledger"), id="nearly-full"),
        pytest.param(0, ("ledger",), id="no-byte-left-for-ledgers"),
        pytest.param(0, ("journal", "ledger"), id="no-byte-left-at-all"),
    ],
)
def test_a_bookie_whose_disk_fills_up_takes_no_more_loses_nothing_and_comes_back(
    zookeeper: Any, ledgers_root: str, tmp_path: Path, small_disk: Path, leave: int, on_disk: tuple[str, ...]
) -> None:
    """One of four bookies is on the small disk; the others take over its share. When even the journal cannot grow
    it may end instead of turning read-only (I-48), and is started again once there is space."""
    settings = {**STEADY, "diskCheckInterval": "100", "flushInterval": "200"}
    with local_cluster(zookeeper.address, ledgers_root, 3, directory=tmp_path / "c", settings=settings) as cluster:
        small = cluster.add_bookie(start=False)
        small.settings |= {f"{kind}Directories": str(small_disk / kind) for kind in on_disk}
        small.start()
        run(_full_disk(cluster, small, small_disk, leave, may_end="journal" in on_disk and not leave))


async def _full_disk(cluster: LocalCluster, small: LocalBookie, disk: Path, leave: int, *, may_end: bool) -> None:
    async with await BookKeeper.connect(cluster.uri, with_long_timeouts()) as bk:
        ledger = await bk.create(ensemble=3, write_quorum=2, ack_quorum=2)
        while small.bookie_id not in ledger.metadata.last_fragment.ensemble:
            await ledger.close()
            ledger = await bk.create(ensemble=3, write_quorum=2, ack_quorum=2)
        load = Load(ledger)
        await load.reached(10_000)
        ballast = fill(disk, leave)
        while small.bookie_id in ledger.metadata.last_fragment.ensemble:
            await load.reached(load.acknowledged + 100)
        await load.reached(load.acknowledged + 5000)
        await load.stop()
        await ledger.close()
        assert may_end or small.running, small.log_path.read_text()[-3000:]
        while small.running and small.bookie_id in (await bk.available_bookies()).writable:
            pass  # it refuses adds first, and registers as read-only later
        assert await check_ledger(cluster.uri, ledger.id, load.acknowledged) == load.acknowledged

        ballast.unlink()
        after = Load(await _create_on_all(bk, 4, small))
        await after.reached(2000)
        kill_all(cluster.bookies)
        await after.abandon()
        start_all(cluster.bookies)
    for each in (load, after):
        await check_ledger(cluster.uri, each.ledger.id, each.acknowledged)


async def _create_on_all(bk: BookKeeper, count: int, small: LocalBookie) -> AsyncWriteHandle:
    """Create a ledger on all `count` bookies. The client may see a restarted bookie a moment after others do.

    small: a bookie to start again if it ended for lack of space; it may also end during the call.
    """
    while True:
        if not small.running:
            assert "No space left on device" in small.log_path.read_text()
            small.start()
        try:
            return await bk.create(ensemble=count, write_quorum=count, ack_quorum=count)
        except NotEnoughBookies:
            await bk.available_bookies()
