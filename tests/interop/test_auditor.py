"""Our auditor beside Apache's: each takes over when the other is killed, and both publish the same nodes."""

import random
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor, threads

from bookkeeper.client.faces.blocking import connect as connect_client
from bookkeeper.config import ClientSettings
from bookkeeper.embedded.cluster import LocalCluster
from bookkeeper.metadata.outcome import pause
from bookkeeper.metadata.underreplication.format import CheckKind, mark_path
from bookkeeper.metadata.zookeeper import ZooKeeperStore, connect
from bookkeeper.model import BookieId, LedgerId
from tests.interop.ground import REQUEST_TIMEOUT_S, SESSION_TIMEOUT
from tests.support.apache import Apache
from tests.support.apache_admin import ApacheAutoRecovery
from tests.support.auto_recovery import LocalAutoRecovery
from tests.support.zookeeper_sessions import end_dead_session

PATIENCE_S = 60.0
OURS = BookieId("ours.example:3181")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three bookies, and no spare: nobody can repair anything, so that marks stay."""
    with LocalCluster(3, directory=tmp_path / "cluster", settings=SESSION_TIMEOUT) as cluster:
        yield cluster


@pytest_twisted.async_yield_fixture
async def store(cluster: LocalCluster) -> AsyncIterator[ZooKeeperStore]:
    store = await connect(cluster.uri, clock=reactor, call_from_thread=reactor.callFromThread, random=random.Random(1))
    yield store
    await store.close()


async def eventually(condition: Any, what: str) -> None:
    """Return once the coroutine function says True."""
    deadline_s = reactor.seconds() + PATIENCE_S
    while not await condition():
        assert reactor.seconds() < deadline_s, f"not within {PATIENCE_S:g} s: {what}"
        await pause(reactor, 0.1)


def is_auditor(store: ZooKeeperStore, bookie_id: str) -> Any:
    async def look() -> bool:
        return await store.underreplication.current_auditor() == bookie_id

    return look


async def nodes(store: ZooKeeperStore, root: str) -> dict[str, bytes]:
    """Every mark: its path and bytes, but for the time in it."""
    found = {}
    async for batch in store.underreplication.ids():
        for ledger_id in batch:
            path = f"{root}/underreplication/ledgers{mark_path(ledger_id)}"
            data, _ = await store.tree.read(path)
            assert re.search(rb"^ctime: \d{13}$", data, re.MULTILINE), data
            found[path] = re.sub(rb"ctime: \d+", b"ctime: TIME", data)
    return found


def marks_exactly(store: ZooKeeperStore, root: str, ids: set[LedgerId]) -> Any:
    async def look() -> bool:
        return {path.rpartition("/")[2] for path in await nodes(store, root)} == {f"urL{each:010d}" for each in ids}

    return look


async def forget_marks(store: ZooKeeperStore) -> None:
    """As if nothing had been found yet."""
    async for batch in store.underreplication.ids():
        for ledger_id in batch:
            mark = await store.underreplication.read(ledger_id)
            assert mark is not None
            await store.underreplication.remove(mark)


def write_ledgers(cluster: LocalCluster) -> set[LedgerId]:
    """Ledgers on all bookies, one of them open; there are others that the last one has no part in."""
    *kept, dead = [bookie.bookie_id for bookie in cluster.bookies]
    with connect_client(cluster.uri, ClientSettings(read_timeout_base_s=REQUEST_TIMEOUT_S)) as client:

        def write(members: list[BookieId], *, close: bool = True) -> LedgerId:
            ledger = client.create(ensemble=len(members), write_quorum=2, ack_quorum=2, bookies=members)
            for _ in range(2):  # the second says that the first is confirmed: of an open ledger no more is looked at
                ledger.append_many([b"entry"] * 10)
            if close:
                ledger.close()
            return LedgerId(ledger.id)

        hit = {write([*kept, dead]) for _ in range(20)} | {write([dead, *kept], close=False)}
        for _ in range(5):
            write(kept)
        return hit


@pytest_twisted.ensureDeferred
async def test_each_auditor_takes_over_from_the_other_and_both_publish_the_same(
    apache: Apache, cluster: LocalCluster, store: ZooKeeperStore, tmp_path: Path
) -> None:
    """Apache's is first and is killed; then ours is. After each election a bookie that was lost before it counts."""
    root, dead = cluster.root, cluster.bookies[-1]
    hit = await threads.deferToThread(write_ledgers, cluster)
    settings = {**SESSION_TIMEOUT, "bookieId": OURS, "auditorPeriodicCheckInterval": "0"}
    theirs = await threads.deferToThread(ApacheAutoRecovery, apache, tmp_path, cluster.uri, "theirs")
    ours = LocalAutoRecovery(tmp_path / "ours", cluster.uri, settings)
    try:
        await eventually(is_auditor(store, theirs.bookie_id), "Apache's is the auditor")
        await threads.deferToThread(ours.start)
        await threads.deferToThread(dead.kill)
        await threads.deferToThread(end_dead_session, cluster.uri, dead.bookie_id)
        await eventually(marks_exactly(store, root, hit), "Apache's marks what the bookie had")
        published_by_apache = await nodes(store, root)
        assert await store.underreplication.current_auditor() == theirs.bookie_id

        theirs.process.kill()
        await threads.deferToThread(theirs.process.wait)
        await forget_marks(store)
        await threads.deferToThread(theirs.close)  # ends its session; the next auditor finds no marks
        await eventually(is_auditor(store, OURS), "ours is the auditor after the end of Apache's")
        await eventually(marks_exactly(store, root, hit), "ours marks it too")
        assert await nodes(store, root) == published_by_apache

        theirs = await threads.deferToThread(ApacheAutoRecovery, apache, tmp_path, cluster.uri, "again")

        async def both_stand() -> bool:
            return len(await store.tree.children(f"{root}/underreplication/auditorelection")) == 2

        await eventually(both_stand, "Apache's stands again")
        assert await store.underreplication.current_auditor() == OURS
        await threads.deferToThread(ours.kill)
        await forget_marks(store)
        await threads.deferToThread(end_dead_session, cluster.uri, OURS)
        await eventually(is_auditor(store, theirs.bookie_id), "Apache's is the auditor after the end of ours")
        await eventually(marks_exactly(store, root, hit), "and marks it once more")
        assert await nodes(store, root) == published_by_apache
    finally:
        await threads.deferToThread(theirs.close)
        await threads.deferToThread(ours.kill)


@pytest_twisted.ensureDeferred
async def test_our_auditor_checks_the_copies_on_apaches_rhythm_and_heeds_its_switches(
    apache: Apache, cluster: LocalCluster, store: ZooKeeperStore, tmp_path: Path
) -> None:
    """A check that Apache's noted is not repeated by ours before its time; a missing copy is found by reading."""
    emptied = cluster.bookies[-1]
    hit = await threads.deferToThread(write_ledgers, cluster)
    often = {"auditorPeriodicCheckInterval": "3600"}
    with ApacheAutoRecovery(apache, tmp_path, cluster.uri, "theirs", often):

        async def noted() -> bool:
            return await store.underreplication.check_time_ms(CheckKind.ALL_LEDGERS) is not None

        await eventually(noted, "Apache's notes the end of its check")
    noted_ms = await store.underreplication.check_time_ms(CheckKind.ALL_LEDGERS)
    assert noted_ms is not None

    def empty() -> None:
        emptied.stop()
        for directory in (emptied.journal_directory, emptied.ledger_directory):
            for path in (directory / "current").rglob("*"):
                if path.is_file() and path.name != "VERSION":
                    path.unlink()
        emptied.start()

    await threads.deferToThread(empty)
    await store.underreplication.disable()
    settings = {**SESSION_TIMEOUT, "bookieId": OURS, "auditorPeriodicCheckInterval": "3600"}
    with LocalAutoRecovery(tmp_path / "ours", cluster.uri, settings):
        await eventually(is_auditor(store, OURS), "ours is the auditor")
        await store.underreplication.set_check_time(CheckKind.ALL_LEDGERS, noted_ms - 3600 * 1000)
    with LocalAutoRecovery(tmp_path / "ours", cluster.uri, settings):
        await eventually(is_auditor(store, OURS), "ours is the auditor again")
        assert await nodes(store, cluster.root) == {}, "while auto-recovery is off"
        for ledger_id in hit:  # our worker, in the same process, would repair them
            assert await store.underreplication.lock(ledger_id, "test", lambda: None) is not None
        await store.underreplication.enable()

        async def checked() -> bool:
            ended_ms = await store.underreplication.check_time_ms(CheckKind.ALL_LEDGERS)
            return ended_ms is not None and ended_ms > noted_ms

        await eventually(checked, "the check that is due is made, and noted")
        found = {path.rpartition("/")[2] for path in await nodes(store, cluster.root)}
        assert found == {f"urL{ledger_id:010d}" for ledger_id in hit}
