"""The three faces of the client on a real cluster: asyncio, blocking, Deferreds."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import bookkeeper.blocking
from bookkeeper import BookKeeper
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.errors import (
    BookKeeperError,
    ClientClosed,
    InvalidArgument,
    MetadataUnavailable,
    NoSuchLedger,
    NotEnoughBookies,
    NotInitialised,
    WrongPassword,
)
from bookkeeper.model import DigestType
from tests.support.cluster import STEADY, local_cluster, with_long_timeouts

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster(zookeeper: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    root = f"/faces-{os.getpid()}-{os.urandom(3).hex()}"
    directory = tmp_path_factory.mktemp("faces")
    with local_cluster(zookeeper.address, root, 3, directory=directory, settings=STEADY) as running:
        yield running


def with_client(
    cluster: LocalCluster, scenario: Callable[[BookKeeper], Awaitable[None]], settings: ClientSettings | None = None
) -> None:
    async def main() -> None:
        async with await BookKeeper.connect(cluster.uri, with_long_timeouts(settings)) as bk:
            await scenario(bk)

    asyncio.run(main())


@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
@pytest.mark.parametrize("digest", list(DigestType))
def test_asyncio_writes_and_reads_every_digest_in_both_versions(
    cluster: LocalCluster, digest: DigestType, use_v2: bool
) -> None:
    async def scenario(bk: BookKeeper) -> None:
        batch = [b"entry %d " % number * 20 for number in range(2000)]
        async with await bk.create(digest=digest, password=b"secret", custom={"app": b"test"}) as ledger:
            assert await ledger.append(b"one") == 0
            assert await ledger.append_many(batch) == range(1, 2001)
        async with await bk.open(ledger.id, b"secret") as handle:
            assert (handle.last_add_confirmed, handle.length) == (2000, 3 + sum(map(len, batch)))
            entries = [entry async for entry in handle.entries()]
            assert [entry.payload for entry in entries] == [b"one", *batch]
            assert [entry.length for entry in entries] == list(accumulate(map(len, batch), initial=3))
            assert dict(handle.metadata.custom) == {"app": b"test"}

    with_client(cluster, scenario, ClientSettings(use_v2=use_v2))


def test_asyncio_tails_a_ledger_while_it_is_written(cluster: LocalCluster) -> None:
    async def scenario(bk: BookKeeper) -> None:
        ledger = await bk.create()
        handle = await bk.open_without_recovery(ledger.id)
        seen: list[int] = []

        async def follow() -> None:
            async for batch in handle.tail():
                seen.extend(entry.entry_id for entry in batch)

        tailing = asyncio.create_task(follow())
        for _ in range(5):
            await ledger.append_many([b"x"] * 20)
        await ledger.close()
        await tailing
        assert seen == list(range(100))

    with_client(cluster, scenario, ClientSettings(explicit_lac_interval_s=0.1))


@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
def test_asyncio_waits_for_an_entry_until_the_next_add_confirms_it(cluster: LocalCluster, use_v2: bool) -> None:
    async def scenario(bk: BookKeeper) -> None:
        ledger = await bk.create(ensemble=3, write_quorum=3, ack_quorum=2)
        await ledger.append_many([b"0", b"1", b"2"])
        await ledger.append(b"3")
        handle = await bk.open_without_recovery(ledger.id)
        assert await handle.read_last_confirmed() == 2
        assert await handle.read_last_confirmed_and_entry(1, 0.0) == (2, (1, b"1", 2))
        assert await handle.read_last_confirmed_and_entry(3, 0.1) == (2, None)
        waiting = asyncio.ensure_future(handle.read_last_confirmed_and_entry(3, 60.0, parallel=use_v2))
        await asyncio.sleep(0)
        await ledger.append(b"4")
        assert await waiting == (3, (3, b"3", 4))
        await ledger.close()
        assert await (await bk.open(ledger.id)).read_last_confirmed_and_entry(9, 60.0) == (4, None)

    # Nothing but the next add may confirm an entry here.
    with_client(cluster, scenario, ClientSettings(use_v2=use_v2, explicit_lac_interval_s=0.0))


@pytest.mark.parametrize("batch_read", [True, False])
def test_asyncio_reads_batches_and_lists_what_a_bookie_holds(cluster: LocalCluster, batch_read: bool) -> None:
    async def scenario(bk: BookKeeper) -> None:
        payloads = [b"%06d" % number * 100 for number in range(5000)]
        async with await bk.create(ensemble=3, write_quorum=3, ack_quorum=2) as ledger:
            await ledger.append_many(payloads)
        handle = await bk.open(ledger.id)
        assert [entry.payload async for entry in handle.entries()] == payloads
        assert [entry.payload for entry in await handle.read(17, 4321)] == payloads[17:4322]
        some = await handle.read_batch(100, 50)
        assert [entry.payload for entry in some] == payloads[100 : 100 + len(some)]
        assert 1 <= len(some) <= 50
        assert len(await handle.read_batch(100, 50, 1)) == 1
        held = [await bk.list_entries(ledger.id, bookie) for bookie in handle.metadata.last_fragment.ensemble]
        assert sum(runs == [range(5000)] for runs in held) >= 2  # the ack quorum has them all, the third may lag

    with_client(cluster, scenario, ClientSettings(batch_read=batch_read))


def test_blocking_waits_reads_batches_and_lists(cluster: LocalCluster) -> None:
    with bookkeeper.blocking.connect(cluster.uri) as bk:
        with bk.create(ensemble=3, write_quorum=3, ack_quorum=3) as ledger:
            ledger.append_many([b"0", b"1", b"2"])
        handle = bk.open(ledger.id)
        assert handle.read_last_confirmed_and_entry(2, 1.0) == (2, (2, b"2", 3))
        assert [entry.payload for entry in handle.read_batch(1)] == [b"1", b"2"]
        assert bk.list_entries(ledger.id, handle.metadata.last_fragment.ensemble[0]) == [range(3)]


def test_cancelling_carries_over_and_the_ledger_goes_on(cluster: LocalCluster) -> None:
    async def scenario(bk: BookKeeper) -> None:
        ledger = await bk.create()
        adding = asyncio.ensure_future(ledger.append(b"cancelled while under way"))
        await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert await ledger.append(b"next") == 1
        await ledger.close()
        handle = await bk.open(ledger.id)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await handle.read(0, 1)
        assert len(await handle.read(0, 1)) == 2

    with_client(cluster, scenario)


def test_errors_name_the_thing_and_pass_unchanged(cluster: LocalCluster) -> None:
    async def scenario(bk: BookKeeper) -> None:
        async with await bk.create(password=b"right") as ledger:
            with pytest.raises(InvalidArgument, match="is larger than"):
                await ledger.append(b"x" * (6 * 1024 * 1024))
            assert await ledger.append(b"x" * (4 * 1024 * 1024)) == 0
        with pytest.raises(WrongPassword, match=f"ledger {ledger.id}"):
            await bk.open(ledger.id, b"wrong")
        with pytest.raises(NoSuchLedger, match="123456789"):
            await bk.open(123456789)
        with pytest.raises(InvalidArgument, match="need ensemble >= write quorum"):
            await bk.create(ensemble=2, write_quorum=3)
        with pytest.raises(NotEnoughBookies, match="needs 9 bookies and 3 are writable"):
            await bk.create(ensemble=9)
        await bk.delete(ledger.id)
        with pytest.raises(NoSuchLedger):
            await bk.metadata(ledger.id)

    with_client(cluster, scenario)


def test_bookies_tell_their_disk_space(cluster: LocalCluster) -> None:
    async def scenario(bk: BookKeeper) -> None:
        bookies = await bk.available_bookies()
        assert set(bookies.writable) == {bookie.bookie_id for bookie in cluster.bookies}
        for bookie_id in bookies.writable:
            info = await bk.bookie_info(bookie_id)
            assert 0 < info.free_bytes <= info.total_bytes

    with_client(cluster, scenario)


def test_an_asyncio_program_leaves_no_sockets_and_no_global_reactor(cluster: LocalCluster, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import asyncio, os, sys
from bookkeeper import BookKeeper

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # -X dev reports slower callbacks on standard error
    async with await BookKeeper.connect({cluster.uri!r}) as bk:
        async with await bk.create(ensemble=3, write_quorum=2, ack_quorum=2) as ledger:
            await ledger.append(b"one")
        async for entry in (await bk.open(ledger.id)).entries():
            print(entry.payload.decode())

asyncio.run(main())
assert "twisted.internet.reactor" not in sys.modules
"""
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\n", "")


def test_two_loops_in_two_threads_each_have_their_own_client(cluster: LocalCluster) -> None:
    failures: list[BaseException] = []

    async def scenario(bk: BookKeeper) -> None:
        async with await bk.create() as ledger:
            assert await ledger.append_many([b"x"] * 200) == range(200)

    def run() -> None:
        try:
            with_client(cluster, scenario)
        except Exception as error:  # noqa: BLE001 - carried to the test's thread
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []


# --- blocking


def test_blocking_reads_and_writes_with_plain_with_and_for(cluster: LocalCluster) -> None:
    with bookkeeper.blocking.connect(cluster.uri) as bk:
        with bk.create() as ledger:
            assert ledger.append(b"one") == 0
            assert ledger.append_many([b"%d" % number for number in range(5000)]) == range(1, 5001)
            assert ledger.flush() == 5000
        with bk.open(ledger.id) as handle:
            assert [entry.entry_id for entry in handle.entries()] == list(range(5001))
            batches = list(handle.batches(1))
            assert min(map(len, batches[:-1])) >= 1000
            assert [len(batch) for batch in handle.payload_batches(1, 2)] == [2]
            payloads = [payload for batch in handle.payload_batches() for payload in batch.payloads]
            assert payloads == [b"one", *(b"%d" % number for number in range(5000))]
            abandoned = handle.payload_batches()
            assert next(abandoned).first_entry_id == 0
            abandoned.close()
            assert handle.read_last().payload == b"4999"
        assert any(ledger.id in batch for batch in bk.ids())
        bk.delete(ledger.id)
        with pytest.raises(NoSuchLedger):
            bk.open(ledger.id)


def test_blocking_calls_raise_where_they_are_made(cluster: LocalCluster) -> None:
    bk = bookkeeper.blocking.connect(cluster.uri)
    used = []

    def use() -> None:
        with bk.create() as ledger:
            used.append(ledger)
            ledger.append(b"x")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        use()
    ledger = used[0]
    assert bk.metadata(ledger.id).last_entry_id == 0
    bk.close()
    bk.close()
    with pytest.raises(ClientClosed, match="connect again"):
        bk.metadata(ledger.id)


def _use_in_child(bk: Any, outcome: Any) -> None:
    try:
        bk.metadata(0)
    except BookKeeperError as error:
        outcome.put(f"{type(error).__name__}: {error}")


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_is_told_to_connect_again(cluster: LocalCluster) -> None:
    context = multiprocessing.get_context("fork")
    outcome = context.Queue()
    with bookkeeper.blocking.connect(cluster.uri) as bk:
        child = context.Process(target=_use_in_child, args=(bk, outcome))
        child.start()
        assert outcome.get(timeout=60) == (
            "ClientClosed: this client was connected before a fork; connect again in the child process"
        )
        child.join(30)
        assert bk.available_bookies().writable


def test_many_threads_share_one_blocking_client(cluster: LocalCluster) -> None:
    with bookkeeper.blocking.connect(cluster.uri) as bk, bk.create() as ledger:
        taken: list[int] = []

        def run() -> None:
            taken.extend([ledger.append(b"x") for _ in range(25)])

        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(taken) == list(range(200))


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("zk+hierarchical://127.0.0.1:1/ledgers", MetadataUnavailable),
        ("nonsense", BookKeeperError),
    ],
)
def test_a_cluster_that_is_not_there_is_named(uri: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"127\.0\.0\.1:1|nonsense"):
        bookkeeper.blocking.connect(uri, ClientSettings(zk_session_timeout_s=2.0))


def test_a_root_without_a_cluster_is_named(zookeeper: Any) -> None:
    with pytest.raises(NotInitialised, match="/nobody/here"):
        bookkeeper.blocking.connect(f"zk+hierarchical://{zookeeper.address}/nobody/here")


# --- Deferreds


def test_the_core_runs_on_twisteds_own_reactor(cluster: LocalCluster, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"""
from twisted.internet.task import react
from twisted.internet.defer import Deferred
from bookkeeper.client.client import connect

async def main(reactor):
    async with await connect({cluster.uri!r}, reactor) as client:
        async with await client.create() as ledger:
            acknowledged = []
            ledger.on_acknowledged = acknowledged.append
            ledger.append_batch_nowait([b"x"] * 100)
            await ledger.append_many([b"y"] * 100)
            assert [e for r in acknowledged for e in r] == list(range(200))
        handle = await client.open(ledger.ledger_id)
        print(len(await handle.read(0, 199)))

react(lambda reactor: Deferred.fromCoroutine(main(reactor)))
"""
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "200\n", "")
