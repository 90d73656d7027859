"""No ledger is ever deleted that exists (I-64, I-65): the collector against a store that lags, fails and ends sessions.

Method: the real collector over a storage that only knows ids; clients create and delete ledgers all the time; half of
the calls go to servers that are behind, connections are cut, sessions end. After every deletion the znode itself is
looked at. Planted bugs show that the check can fail.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from twisted.internet.defer import Deferred, succeed

from bookkeeper.bookie.deleted_ledgers import DeletedLedgers
from bookkeeper.bookie.garbage_collector import GarbageCollector
from bookkeeper.bookie.garbage_settings import GarbageSettings
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.bookie.storage.garbage import CompactionSettings, Suspects
from bookkeeper.errors import LedgerExists, MetadataOutcomeUnknown, MetadataUnavailable, NoSuchLedger
from bookkeeper.metadata.memory import INSTANCE_ID, MemoryFaults, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.memory_tree import TreeCopy
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import NodeKind
from bookkeeper.metadata.znode_store import ZnodeStore
from bookkeeper.model import BookieId, Fragment, LedgerId, LedgerMetadata, LedgerState
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.simulated_clock import SimulatedClock, SimulatedProcess, SimulatedWorker

OURS = BookieId("b1:3181")
OTHER = BookieId("b2:3181")
SETTINGS = MetadataSettings(session_timeout_s=1.5, operation_timeout_s=3.0)
WAIT_S = 2.0
OFF = CompactionSettings(minor_interval_s=0.0, major_interval_s=0.0)


def _metadata(bookie_id: BookieId, state: LedgerState = LedgerState.OPEN) -> LedgerMetadata:
    closed = state is LedgerState.CLOSED
    return LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(0, (bookie_id,)),),
        state=state,
        last_entry_id=-1 if closed else None,
        length=0 if closed else None,
    )


class Ids:
    """The storage: which ledgers are here. It has no logs."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.empty: set[int] = set()  # of those held, without an entry
        self.tombstones = SimpleNamespace(tidy=lambda: None)
        self.entry_logs = SimpleNamespace(
            closed=list, unfinished=[], checksums=None, active_bytes=lambda: None, path_of=lambda _: None
        )
        self.ledger_cache = self.needs_checkpoint = None
        self.unfinished_files = list

    def ledger_ids(self) -> Iterable[int]:
        return list(self.held)

    def ledgers_with_checksums(self) -> Iterable[list[int]]:
        return []

    def load_cold(self, ledger_id: int) -> None:
        """In memory as it is."""

    def exists(self, ledger_id: int) -> bool:
        return ledger_id in self.held

    def last_entry_id(self, ledger_id: int) -> int | None:
        return None if ledger_id in self.empty else 0


class Cluster:
    """Servers, one collecting bookie, one client that creates and deletes."""

    def __init__(self, seed: int, *, faults: bool = True) -> None:
        self.rng = random.Random(f"collection/{seed}")
        self.clock = SimulatedClock()
        self.shared = MemoryMetadata(clock=self.clock)
        self.ids = Ids()
        self.wrong: list[int] = []
        self.deleted = 0
        self.moved = 0
        trouble = MemoryFaults(delay_max_s=0.01, lag_max_s=1.0) if faults else MemoryFaults(delay_max_s=0.001)
        if faults:
            trouble.failed_before_probability = trouble.reply_lost_probability = 0.01
            trouble.session_lost_probability = 0.003
        self.faults = trouble
        self.bookie = SimulatedProcess("bookie", self.clock)
        self.store = MemoryMetadataStore(
            self.shared, self.bookie.clock, random.Random(seed), trouble, settings=SETTINGS
        )
        self.client = MemoryMetadataStore(
            self.shared, self.clock, random.Random(seed + 1), MemoryFaults(delay_max_s=0.005), settings=SETTINGS
        )
        self.errors: list[BaseException] = []
        self.fs = FaultyFileSystem()
        self.fs.make_dirs("/a/current")
        self.collector = self.make_collector(INSTANCE_ID)

    def make_collector(self, instance_id: str) -> GarbageCollector:
        def worker(name: str) -> SimulatedWorker:
            return SimulatedWorker(name, self.bookie, self.rng)

        return GarbageCollector(
            self.fs,
            LedgerDirectories(("/a",)),
            self.ids,  # type: ignore[arg-type]
            SimpleNamespace(remove=self._remove),  # type: ignore[arg-type]
            SimpleNamespace(checkpoint_now=lambda: succeed(None)),  # type: ignore[arg-type]
            self.store,
            self.bookie.clock,
            worker=worker("garbage"),
            storage_worker=worker("storage"),
            settings=GarbageSettings(wait_s=WAIT_S, overreplicated_wait_s=3 * WAIT_S, compaction=OFF),
            instance_id=instance_id,
            bookie_id=OURS,
            wall_s=self.clock.seconds,
            on_failure=self.errors.append,
        )

    def hold(self, ledger_ids: range) -> None:
        """These ledgers are here, their ids were given out, and the store does not have them."""
        self.shared.znodes.create("/ledgers/idgen", b"", NodeKind.PERSISTENT, 0)
        self.shared.set_sequence("/ledgers/idgen", ledger_ids.stop)
        self.ids.held.update(ledger_ids)

    def _remove(self, ledger_ids: Sequence[int], *, moved: bool) -> Deferred[list[int]]:
        for ledger_id in ledger_ids:
            there = self._truth(ledger_id)
            if there is not None and not (moved and there == OTHER):
                self.wrong.append(ledger_id)
        self.ids.held.difference_update(ledger_ids)
        self.moved += moved * len(ledger_ids)
        self.deleted += len(ledger_ids)
        return succeed(list(ledger_ids))

    def _truth(self, ledger_id: int) -> BookieId | None:
        """Who has the ledger by what the leader knows at this moment; None where there is no such ledger."""
        leader = MemoryMetadataStore(self.shared, SimulatedClock(), random.Random(0), None)
        found: list[Any] = []
        leader.ledgers.read(ledger_id).addBoth(found.append)
        leader.crash()
        answer = found[0]
        if hasattr(answer, "value") and isinstance(answer.value, LedgerMetadata):
            metadata = answer.value
            return metadata.fragments[0].ensemble[0]
        assert isinstance(answer.value, NoSuchLedger), answer
        return None

    async def live(self, ledgers: int) -> None:
        """Create ledgers, write to them here, delete some, move some."""
        mine: list[int] = []
        for _ in range(ledgers):
            await self._pause(self.rng.random() * 0.5)
            try:
                ledger_id, _ = await self.client.ledgers.create(_metadata(OURS))
                self.ids.held.add(ledger_id)
                mine.append(ledger_id)
                if self.rng.random() < 0.6:
                    await self._end(mine.pop(self.rng.randrange(len(mine))))
            except MetadataUnavailable:
                continue

    async def _end(self, ledger_id: int) -> None:
        found = await self.client.ledgers.read(ledger_id)
        if self.rng.random() < 0.3:
            await self.client.ledgers.write(ledger_id, _metadata(OTHER, LedgerState.CLOSED), found.version)
        else:
            await self.client.ledgers.delete(ledger_id, found.version)

    def _pause(self, seconds: float) -> Deferred[None]:
        waiting: Deferred[None] = Deferred()
        self.clock.callLater(seconds, waiting.callback, None)
        return waiting

    def run(self, rounds: int) -> None:
        self.collector.start()
        Deferred.fromCoroutine(self.live(rounds * 5)).addErrback(lambda failure: self.errors.append(failure.value))
        self.clock.run_until(
            lambda: bool(self.wrong or self.errors) or self.collector.status.rounds >= rounds, seconds=1e6
        )


def _run(seed: int, rounds: int) -> Cluster:
    cluster = Cluster(seed)
    cluster.run(rounds)
    assert not cluster.errors
    return cluster


def test_only_ledgers_that_do_not_exist_are_deleted_whatever_the_store_does(
    seed: int, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = max(1, pytestconfig.getoption("--sim-seeds") // 30)
    rounds = deleted = moved = 0
    for each in range(seed, seed + seeds):
        cluster = _run(each, 40)
        assert not cluster.wrong, f"seed {each}: deleted although they exist: {cluster.wrong}"
        rounds += cluster.collector.status.rounds
        deleted += cluster.deleted
        moved += cluster.moved
    with capsys.disabled():
        print(f"\ncollection: {rounds} rounds, {deleted} deletions, {moved} of them moved; wrong 0")  # noqa: T201
    assert deleted > 10 * seeds
    assert moved > seeds


@contextmanager
def _one_look_and_no_proof() -> Iterator[None]:
    async def credulous(self: DeletedLedgers, ledger_ids: Sequence[int]) -> list[int]:
        return list(ledger_ids)

    def hasty(self: Suspects, missing: Iterable[int], now_s: float, *, grace_s: float) -> list[int]:
        return list(missing)

    with (
        mock.patch.object(DeletedLedgers, "_prove_gone", credulous),
        mock.patch.object(Suspects, "observe", hasty),
        _no_sync(),
    ):
        yield


@contextmanager
def _no_sync() -> Iterator[None]:
    async def skip(self: Errand) -> None:
        return

    with mock.patch.object(ZnodeStore, "sync", return_value=succeed(None)), mock.patch.object(Errand, "sync", skip):
        yield


@contextmanager
def _errors_mean_gone() -> Iterator[None]:
    def credulous(self: DeletedLedgers, ledger_id: int) -> Deferred[bool]:
        return self._store.ledgers.read(ledger_id).addCallbacks(lambda _: False, lambda _: True)

    def all_of_them(self: Suspects, missing: Iterable[int], now_s: float, *, grace_s: float) -> list[int]:
        return list(range(60))  # so that existing ledgers are asked for as well

    with (
        mock.patch.object(DeletedLedgers, "_is_gone", credulous),
        mock.patch.object(Suspects, "observe", all_of_them),
    ):
        yield


@pytest.mark.parametrize("planted", [_one_look_and_no_proof, _errors_mean_gone])
def test_a_planted_bug_is_found(planted: Callable[[], Any]) -> None:
    with planted():
        assert any(_run(each, 40).wrong for each in range(1, 60))


def test_nothing_is_collected_in_another_cluster_or_under_an_empty_root() -> None:
    """I-65: the root is swapped under a running bookie."""
    cluster = Cluster(1, faults=False)
    cluster.ids.held.update(range(500))
    cluster.collector = cluster.make_collector("another-instance")
    cluster.run(4)
    assert cluster.deleted == 0
    assert "another-instance" in cluster.collector.status.last_error
    empty = Cluster(2, faults=False)
    empty.ids.held.update(range(500))
    empty.shared.znodes = MemoryMetadata.empty().znodes
    empty.store = MemoryMetadataStore(
        MemoryMetadata.empty(clock=empty.clock), empty.bookie.clock, random.Random(0), None, settings=SETTINGS
    )
    empty.collector = empty.make_collector(INSTANCE_ID)
    empty.run(4)
    assert empty.deleted == 0
    assert empty.collector.status.last_error


def test_an_empty_listing_is_an_alarm_and_bounds_what_a_round_deletes() -> None:
    cluster = Cluster(1, faults=False)
    cluster.hold(range(3000))
    cluster.run(3)
    assert cluster.collector.status.alarms >= 2
    assert 0 < cluster.deleted - cluster.moved <= 2 * 1000
    assert not cluster.wrong


def test_a_forced_round_deletes_what_was_deleted_before_the_order() -> None:
    cluster = Cluster(1, faults=False)
    created: list[int] = []

    async def order() -> None:
        ledger_id, stored = await cluster.client.ledgers.create(_metadata(OURS))
        kept, _ = await cluster.client.ledgers.create(_metadata(OURS))
        cluster.ids.held.update((ledger_id, kept))
        await cluster.client.ledgers.delete(ledger_id, stored.version)
        created.append(kept)
        await cluster.collector.force()
        created.append(-1)

    Deferred.fromCoroutine(order()).addErrback(cluster.errors.append)
    assert cluster.clock.run_until(lambda: -1 in created or bool(cluster.errors), seconds=30.0)
    assert not cluster.errors
    assert cluster.ids.held == {created[0]}
    assert not cluster.collector.status.forced


def test_a_collector_that_is_stopped_in_the_middle_lets_go_at_once() -> None:
    cluster = Cluster(3)
    cluster.ids.held.update(range(50))
    cluster.collector.start()
    cluster.clock.run_until(lambda: cluster.collector.status.stage.name == "CHECKING", seconds=10.0)
    stopped: list[object] = []
    forced: list[object] = []
    cluster.collector.force().addBoth(forced.append)
    cluster.collector.stop().addBoth(stopped.append)
    cluster.clock.run_until(lambda: bool(stopped), seconds=10.0)
    assert stopped == [None]
    assert forced == [None]
    rounds = cluster.collector.status.rounds
    cluster.clock.run_until(lambda: False, seconds=20.0)
    assert cluster.collector.status.rounds == rounds


def test_a_collector_that_is_stopped_anywhere_lets_go_soon_and_ends_no_bookie() -> None:
    """Bound: what was under way when the stop came ends; nothing is begun after it, and no error is made of it."""
    stages = set()
    for steps in range(0, 4000, 97):
        cluster = Cluster(3, faults=False)
        cluster.hold(range(1000, 1200))
        made: list[object] = []

        async def moved(cluster: Cluster = cluster, made: list[object] = made) -> None:
            for _ in range(70):
                ledger_id, _ = await cluster.client.ledgers.create(_metadata(OTHER, LedgerState.CLOSED))
                cluster.ids.held.add(ledger_id)
            made.append(True)

        Deferred.fromCoroutine(moved())
        assert cluster.clock.run_until(lambda made=made: bool(made), seconds=10.0)  # type: ignore[misc]
        cluster.collector.force()
        for _ in range(steps):
            cluster.clock.step()
        if cluster.collector.status.rounds:
            break
        stages.add(cluster.collector.status.stage.name)
        stopped: list[object] = []
        cluster.collector.stop().addBoth(stopped.append)
        deleted, began_s = cluster.deleted, cluster.clock.seconds()
        assert cluster.clock.run_until(lambda stopped=stopped: bool(stopped), seconds=0.1), steps  # type: ignore[misc]
        assert (stopped, cluster.errors) == ([None], []), f"after {steps} steps"
        cluster.clock.run_until(lambda: False, seconds=20.0)
        assert cluster.deleted == deleted, f"after {steps} steps, stopped at {began_s}"
        assert cluster.errors == []
    assert {"CHECKING", "OVERREPLICATED"} <= stages


# --- a store that goes back in time ---------------------------------------------------------------------------------


class RestoredCluster(Cluster):
    """A cluster whose metadata is restored from older copies while clients write.

    acknowledged: ledgers with entries that no client deleted, in any of the store's times.
    """

    def __init__(self, seed: int, *, faults: bool) -> None:
        super().__init__(seed, faults=faults)
        self.acknowledged: set[int] = set()
        self.named = 10_000
        self.lost: list[int] = []
        self.gated = self.young = self.creating = False

    def note(self, copy: TreeCopy) -> bytes | None:
        node = copy.nodes.get(f"/ledgers/underreplication/history/{OURS}")
        return None if node is None else node.data

    def _remove(self, ledger_ids: Sequence[int], *, moved: bool) -> Deferred[list[int]]:
        self.lost += self.acknowledged.intersection(ledger_ids)
        return super()._remove(ledger_ids, moved=moved)

    async def live(self, ledgers: int) -> None:
        """Create ledgers, a part of them with ids of their own, and delete some."""
        for _ in range(ledgers):
            await self._pause(self.rng.random() * 0.3)
            while self.gated and not self.collector.history.is_current:
                await self._pause(0.05)
            self.gated = False
            self.creating = True
            with contextlib.suppress(MetadataUnavailable, MetadataOutcomeUnknown, NoSuchLedger, LedgerExists):
                named = None
                if self.rng.random() < 0.2:
                    self.named = named = self.named + self.rng.randint(1, 3)
                ledger_id, _ = await self.client.ledgers.create(_metadata(OURS), named)
                if ledger_id in self.acknowledged:  # a writer finds other entries under its id, and takes another
                    await self._end(ledger_id)
                    continue
                self.ids.held.add(ledger_id)
                self.acknowledged.add(ledger_id)
                if self.rng.random() < 0.5 and self.acknowledged:
                    gone = self.rng.choice(sorted(self.acknowledged))
                    self.acknowledged.discard(gone)
                    await self._delete(gone)
            self.creating = False

    async def _delete(self, ledger_id: int) -> None:
        found = await self.client.ledgers.read(LedgerId(ledger_id))
        await self.client.ledgers.delete(LedgerId(ledger_id), found.version)

    async def _end(self, ledger_id: int) -> None:
        await self._delete(ledger_id)

    def restore(self, copy: TreeCopy) -> None:
        """Where the copy has the newest counter, the generator alone shows that the store went back: until it has
        given out again what it gave out since the copy.
        """
        self.gated = self.young = self.note(copy) == self.note(self.shared.znodes.leader)
        if self.young:
            self.clock.run_until(lambda: not self.creating, seconds=10.0)
        self.shared.restore(copy, self.store, self.client)

    def advance(self, seconds: float) -> None:
        until_s = self.clock.seconds() + seconds
        self.clock.run_until(lambda: self.clock.seconds() >= until_s, seconds=seconds + 1)


def test_no_acknowledged_ledger_is_deleted_when_an_older_copy_is_restored_under_load(
    seed: int, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copies of any age, from a moment to many rounds; the bookie is running, restarted, or away for long."""
    runs = max(1, pytestconfig.getoption("--sim-seeds") // 6)
    deleted = young = found = kept = 0
    for each in range(seed, seed + runs):
        cluster = RestoredCluster(each, faults=bool(each % 2))
        rng = random.Random(f"restored/{each}")
        cluster.collector.start()
        cluster.advance(0.5)
        Deferred.fromCoroutine(cluster.live(150)).addErrback(
            lambda failure, cluster=cluster: cluster.errors.append(failure.value)
        )
        cluster.advance(rng.uniform(0.1, 12.0))
        copy = cluster.shared.copy()
        cluster.advance(rng.choice((rng.uniform(0.01, 0.5), rng.uniform(0.5, 10.0))))
        way = rng.choice(("running", "restarted", "away"))
        if way != "running":
            cluster.collector.stop()
            cluster.advance(0.1)
        cluster.restore(copy)
        if way == "away":
            cluster.advance(rng.uniform(1.0, 20.0))
        if way != "running":
            cluster.collector = cluster.make_collector(INSTANCE_ID)
            cluster.collector.start()
        cluster.advance(15.0)
        assert not cluster.errors
        assert not cluster.lost, f"seed {each}, {way}: deleted although acknowledged: {cluster.lost}"
        young += cluster.young
        deleted += cluster.deleted
        found += bool(cluster.collector.status.finding)
        kept += cluster.collector.status.kept_count
    with capsys.disabled():
        print(  # noqa: T201
            f"\nrestored: {runs} times, {young} from copies with the newest counter; {found} findings, "
            f"{kept} ledgers kept besides, {deleted} deletions; lost 0"
        )
    assert min(found, young, kept) > 0
