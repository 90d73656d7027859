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

from bookkeeper.bookie.gc.candidates import CompactionSettings, Suspects
from bookkeeper.bookie.gc.collector import HISTORY_BEAT_S, GarbageCollector
from bookkeeper.bookie.gc.logs import EntryLogCollection
from bookkeeper.bookie.gc.proof import DeletedLedgers
from bookkeeper.bookie.gc.settings import GarbageSettings
from bookkeeper.bookie.storage.disks import LedgerDirectories
from bookkeeper.errors import LedgerExists, MetadataOutcomeUnknown, MetadataUnavailable, NoSuchLedger
from bookkeeper.metadata.cluster.history import ZnodeHistory
from bookkeeper.metadata.cluster.history_format import Decision, GeneratedIds, Verdict
from bookkeeper.metadata.memory.store import INSTANCE_ID, MemoryFaults, MemoryMetadata, MemoryMetadataStore
from bookkeeper.metadata.memory.tree import TreeCopy
from bookkeeper.metadata.outcome import Errand
from bookkeeper.metadata.store import MetadataSettings
from bookkeeper.metadata.tree import NodeKind
from bookkeeper.metadata.underreplication.format import leaf_name
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
        self.empty: set[int] = set()  # held ledgers without an entry
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
        """Do nothing: all is in memory."""

    def exists(self, ledger_id: int) -> bool:
        return ledger_id in self.held

    def last_entry_id(self, ledger_id: int) -> int | None:
        return None if ledger_id in self.empty else 0


class Cluster:
    """Servers, one collecting bookie, one client that creates and deletes."""

    def __init__(self, seed: int, *, faults: bool = True, beside: Cluster | None = None) -> None:
        self.rng = random.Random(f"collection/{seed}")
        self.clock = SimulatedClock() if beside is None else beside.clock
        self.shared = MemoryMetadata(clock=self.clock) if beside is None else beside.shared
        self.bookie_id = OURS if beside is None else OTHER
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
            bookie_id=self.bookie_id,
            wall_s=self.clock.seconds,
            on_failure=self.errors.append,
        )

    def hold(self, ledger_ids: range) -> None:
        """Hold these ledgers here, with ids that were given out; the store lacks them."""
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
            await self.pause(self.rng.random() * 0.5)
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

    def pause(self, seconds: float) -> Deferred[None]:
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


def test_copies_that_cannot_be_locked_stay_and_the_others_go() -> None:
    cluster = Cluster(1, faults=False)
    locks = "/ledgers/underreplication/locks"
    made: list[int] = []

    async def story() -> None:
        for _ in range(3):
            ledger_id, _ = await cluster.client.ledgers.create(_metadata(OTHER, LedgerState.CLOSED))
            made.append(ledger_id)
        cluster.ids.held.update(made)
        cluster.shared.plant(f"{locks}/{leaf_name(made[0])}/child")
        cluster.shared.plant(f"{locks}/{leaf_name(made[1])}", b"\xff")
        await cluster.collector.force()
        made.append(-1)

    Deferred.fromCoroutine(story()).addErrback(lambda failure: cluster.errors.append(failure.value))
    assert cluster.clock.run_until(lambda: -1 in made or bool(cluster.errors), seconds=30.0)
    assert not cluster.errors
    assert cluster.collector.status.last_error == ""
    assert cluster.ids.held == {made[0]}
    assert not cluster.wrong


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
    """A cluster with metadata that is restored from older copies while clients write.

    acknowledged: ledgers with entries that no client deleted, before or after a restore.
    """

    def __init__(self, seed: int, *, faults: bool, beside: Cluster | None = None) -> None:
        self.processes = 0
        super().__init__(seed, faults=faults, beside=beside)
        self.acknowledged: set[int] = set()
        self.named = 10_000
        self.lost: list[int] = []
        self.gated = self.young = self.creating = False

    def make_collector(self, instance_id: str) -> GarbageCollector:
        """That of a new process, with a session of its own."""
        if self.processes:
            self.store.close()
            self.store = MemoryMetadataStore(
                self.shared, self.bookie.clock, random.Random(self.processes), self.faults, settings=SETTINGS
            )
        self.processes += 1
        return super().make_collector(instance_id)

    def note(self, copy: TreeCopy) -> bytes | None:
        node = copy.nodes.get(f"/ledgers/underreplication/history/{OURS}")
        return None if node is None else node.data

    def _remove(self, ledger_ids: Sequence[int], *, moved: bool) -> Deferred[list[int]]:
        self.lost += self.acknowledged.intersection(ledger_ids)
        return super()._remove(ledger_ids, moved=moved)

    async def live(self, ledgers: int) -> None:
        """Create ledgers, some with chosen ids, and delete some."""
        for _ in range(ledgers):
            await self.pause(self.rng.random() * 0.3)
            while self.gated and not self.collector.history.is_current:
                await self.pause(0.05)
            self.gated = False
            self.creating = True
            with contextlib.suppress(MetadataUnavailable, MetadataOutcomeUnknown, NoSuchLedger, LedgerExists):
                named = None
                if self.rng.random() < 0.2:
                    self.named = named = self.named + self.rng.randint(1, 3)
                ledger_id, _ = await self.client.ledgers.create(_metadata(OURS), named)
                if ledger_id in self.ids.held:  # a writer that finds other entries under its id takes another id
                    await self._end(ledger_id)
                    continue
                self.ids.held.add(ledger_id)
                self.acknowledged.add(ledger_id)
                if self.rng.random() < 0.5 and self.acknowledged:
                    gone = self.rng.choice(sorted(self.acknowledged))
                    self.acknowledged.discard(gone)
                    await self._delete(gone)
            self.creating = False

    def create(self, count: int, *, named: int | None = None) -> list[int]:
        """Create ledgers with entries on this bookie."""
        made: list[int] = []

        async def work() -> None:
            for number in range(count):
                ledger_id = None if named is None else LedgerId(named + number)
                made.append((await self.client.ledgers.create(_metadata(self.bookie_id), ledger_id))[0])

        Deferred.fromCoroutine(work()).addErrback(lambda failure: self.errors.append(failure.value))
        assert self.clock.run_until(lambda: len(made) == count or bool(self.errors), seconds=60.0)
        assert not self.errors
        self.ids.held.update(made)
        self.acknowledged.update(made)
        return made

    def delete(self, *ledger_ids: int) -> None:
        """Delete ledgers in the store, as their writers do."""
        self.acknowledged.difference_update(ledger_ids)
        gone: list[int] = []

        async def work() -> None:
            for ledger_id in ledger_ids:
                await self._delete(ledger_id)
                gone.append(ledger_id)

        Deferred.fromCoroutine(work()).addErrback(lambda failure: self.errors.append(failure.value))
        assert self.clock.run_until(lambda: len(gone) == len(ledger_ids) or bool(self.errors), seconds=60.0)
        assert not self.errors

    def close(self, ledger_id: int, bookie_id: BookieId) -> None:
        """Close a ledger as its writer does, with its one fragment on the bookie."""

        async def work() -> None:
            found = await self.client.ledgers.read(LedgerId(ledger_id))
            await self.client.ledgers.write(
                LedgerId(ledger_id), _metadata(bookie_id, LedgerState.CLOSED), found.version
            )

        assert _at_once(Deferred.fromCoroutine(work()), self) is None

    def decide(self, decision: Decision) -> None:
        done: list[object] = []
        self.client.history.decide(self.bookie_id, decision).addBoth(done.append)
        assert self.clock.run_until(lambda: bool(done), seconds=10.0)
        assert done == [False]

    def begin(self) -> None:
        """Start the collector; return once it has checked the store's history."""
        self.collector.start()
        assert self.clock.run_until(lambda: self.collector.history.is_current, seconds=10.0)

    def rounds(self, count: int) -> None:
        wanted = self.collector.status.rounds + count
        assert self.clock.run_until(lambda: self.collector.status.rounds >= wanted, seconds=10 * WAIT_S * count)

    async def _delete(self, ledger_id: int) -> None:
        found = await self.client.ledgers.read(LedgerId(ledger_id))
        await self.client.ledgers.delete(LedgerId(ledger_id), found.version)

    async def _end(self, ledger_id: int) -> None:
        await self._delete(ledger_id)

    def restore(self, copy: TreeCopy) -> None:
        """Restore a copy of the store.

        If the copy has the newest counter, only the generators show that the store went back, and only until they have
        given out again the ids that they gave out since the copy.
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
    """Copies of any age, from a moment to many rounds; the bookie is running, restarted, or away for a long time."""
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
        cluster.gated &= way != "running"  # servers refuse its session, whatever ids were given out again
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


def test_an_operator_decides_after_a_restore() -> None:
    """After keep, collection continues and forgotten ledgers stay. Discard deletes exactly its ids, at any time."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    early = cluster.create(4)
    cluster.rounds(1)
    copy = cluster.shared.copy()
    late = cluster.create(6)
    cluster.rounds(1)
    cluster.restore(copy)
    cluster.rounds(3)
    assert cluster.ids.held == {*early, *late}
    assert cluster.collector.status.finding

    cluster.decide(Decision(Verdict.DISCARD, ((late[0], late[1]),)))
    cluster.acknowledged.difference_update(late[:2])
    cluster.rounds(4)
    assert cluster.ids.held == {*early, *late[2:]}
    assert cluster.collector.status.finding

    cluster.decide(Decision(Verdict.KEEP))
    cluster.rounds(2)
    assert not cluster.collector.status.finding
    assert cluster.collector.status.kept_count == len(late) - 2
    cluster.delete(early[0])
    again = cluster.create(2)
    cluster.delete(again[0])
    cluster.rounds(4)
    assert cluster.ids.held == {*early[1:], *late[2:], again[1]}

    cluster.decide(Decision(Verdict.DISCARD, ((late[2], late[2]),)))
    cluster.acknowledged.discard(late[2])
    cluster.rounds(4)
    assert cluster.ids.held == {*early[1:], *late[3:], again[1]}
    assert not cluster.lost


def test_a_discarded_id_that_is_given_out_again_is_not_discarded_again() -> None:
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    cluster.create(3)
    cluster.rounds(1)
    copy = cluster.shared.copy()
    cluster.rounds(1)
    cluster.restore(copy)
    cluster.rounds(2)
    assert cluster.collector.status.finding
    late = cluster.create(2)
    cluster.rounds(1)
    cluster.restore(copy)
    cluster.rounds(1)
    cluster.decide(Decision(Verdict.DISCARD, ((late[0], late[1]),)))
    cluster.acknowledged.difference_update(late)
    cluster.rounds(3)
    assert not cluster.ids.held.intersection(late)
    assert cluster.create(2) == late
    cluster.rounds(1)
    cluster.restore(copy)
    cluster.rounds(4)
    assert cluster.ids.held.issuperset(late)
    assert not cluster.lost


def test_a_decision_is_forgotten_while_no_check_of_the_history_runs() -> None:
    """Both change the bookie's memory; the later one must not undo the earlier one."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    cluster.rounds(1)
    copy = cluster.shared.copy()
    late = cluster.create(4)
    cluster.rounds(1)
    cluster.restore(copy)
    cluster.rounds(1)
    ledgers, locked = cluster.collector._ledgers, []  # noqa: SLF001 - its lock
    forget = ledgers._guard.on_removed  # noqa: SLF001

    async def seen(removed: Sequence[int]) -> None:
        locked.append(ledgers._comparing.locked)  # noqa: SLF001
        await forget(removed)

    with mock.patch.object(ledgers._guard, "on_removed", seen):  # noqa: SLF001
        cluster.decide(Decision(Verdict.DISCARD, ((late[0], late[1]),)))
        cluster.acknowledged.difference_update(late[:2])
        cluster.rounds(4)
    assert cluster.ids.held == {*late[2:]}
    assert locked
    assert all(locked)


def test_a_decision_outlives_the_process_that_applied_it() -> None:
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    cluster.rounds(1)
    copy = cluster.shared.copy()
    late = cluster.create(3)
    cluster.rounds(1)
    cluster.restore(copy)
    cluster.rounds(1)
    cluster.decide(Decision(Verdict.KEEP))
    cluster.rounds(2)
    cluster.collector.stop()
    cluster.collector = cluster.make_collector(INSTANCE_ID)
    cluster.begin()
    cluster.rounds(4)
    assert cluster.ids.held == set(late)
    assert cluster.collector.status.kept_count == 3


def test_collection_continues_after_a_newer_copy_is_restored() -> None:
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    early = cluster.create(3)
    older = cluster.shared.copy()
    late = cluster.create(3)
    cluster.rounds(1)
    newer = cluster.shared.copy()
    cluster.restore(older)
    cluster.rounds(2)
    assert cluster.collector.status.finding
    cluster.restore(newer)
    cluster.rounds(1)
    assert not cluster.collector.status.finding
    cluster.delete(early[0], late[0])
    cluster.rounds(4)
    assert cluster.ids.held == {*early[1:], *late[1:]}
    assert not cluster.lost


def test_ids_are_not_given_out_again_after_a_restore_and_every_bookie_keeps_its_ledgers() -> None:
    """One bookie raises the generators before the other looks; the copy is newer than any counter."""
    first = RestoredCluster(1, faults=False)
    second = RestoredCluster(2, faults=False, beside=first)
    first.begin()
    second.begin()
    copy = first.shared.copy()
    held = first.create(5), second.create(5)
    second.collector.stop()
    second.advance(0.1)
    first.shared.restore(copy, first.store, first.client, second.store, second.client)
    assert first.clock.run_until(lambda: first.collector.history.is_current, seconds=10.0)
    first.advance(0.5)
    new = first.create(3)
    assert min(new) > max(held[0])
    second.collector = second.make_collector(INSTANCE_ID)
    second.begin()
    first.rounds(4)
    second.rounds(4)
    assert first.ids.held == {*held[0], *new}
    assert second.ids.held == set(held[1])


def test_ledgers_with_chosen_ids_are_collected_if_the_store_never_went_back() -> None:
    """Also across restarts and broken connections, once a round has listed the ledger here."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    named = cluster.create(20, named=10**12)
    cluster.delete(*named[:5])
    cluster.rounds(4)
    cluster.delete(*named[5:10])
    cluster.store.cut_connection(0.3)
    cluster.rounds(4)
    cluster.delete(*named[10:15])
    cluster.collector.stop()
    cluster.collector = cluster.make_collector(INSTANCE_ID)
    cluster.begin()
    cluster.rounds(4)
    assert cluster.ids.held == set(named[15:])
    assert cluster.collector.status.kept_count == 0
    assert not cluster.lost


@pytest.mark.parametrize("returned", [False, True])
def test_a_first_start_keeps_absent_ledgers_alone(returned: bool) -> None:
    """A deleted ledger with a chosen id, or a stranger's entry, does not make the bookie keep ledgers of the store.

    returned: an older release without a history ran in between, and wrote most of the ledgers.
    """
    cluster = RestoredCluster(1, faults=False)
    if returned:
        cluster.begin()
        cluster.rounds(1)
        cluster.collector.stop()
        cluster.advance(0.1)
    mine = cluster.create(20)
    for ledger_id in mine[:10]:
        cluster.close(ledger_id, OURS)
    gone = cluster.create(1, named=10**12)
    cluster.delete(*gone)
    if returned:
        cluster.collector = cluster.make_collector(INSTANCE_ID)
    cluster.begin()
    cluster.rounds(3)
    still_open = mine[10:] if returned else []
    assert cluster.collector.status.kept_count == len(gone) + len(still_open)
    cluster.delete(*mine)
    cluster.rounds(6)
    assert cluster.ids.held == {*gone, *still_open}


def test_a_bookie_with_a_new_id_collects_and_keeps_ledgers_of_its_former_id() -> None:
    """Until `updateledgers` changes the metadata, none of them is taken for another bookie's."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    ledgers = cluster.create(10)
    for ledger_id in ledgers[5:]:
        cluster.close(ledger_id, OURS)
    cluster.rounds(2)
    cluster.delete(ledgers[0])
    recent = cluster.create(2)
    cluster.collector.stop()
    cluster.advance(0.2)
    cluster.bookie_id = BookieId("bk1.example:3181")
    for _ in range(2):
        cluster.collector = cluster.make_collector(INSTANCE_ID)
        cluster.begin()
        cluster.rounds(8)
        assert not cluster.collector.status.finding
        assert cluster.collector.status.kept_count == 0
        assert cluster.ids.held == {*ledgers[1:], *recent}
        cluster.collector.stop()
        cluster.advance(0.2)


def test_a_finding_outlives_a_new_id_of_the_bookie() -> None:
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    copy = cluster.shared.copy()
    ledgers = cluster.create(3)
    cluster.rounds(2)
    cluster.restore(copy)
    cluster.rounds(1)
    cluster.collector.stop()
    cluster.advance(0.2)
    cluster.bookie_id = BookieId("bk1.example:3181")
    cluster.collector = cluster.make_collector(INSTANCE_ID)
    cluster.begin()
    cluster.rounds(3)
    assert cluster.collector.status.finding
    assert cluster.ids.held == set(ledgers)
    cluster.decide(Decision(Verdict.KEEP))
    cluster.rounds(2)
    assert not cluster.collector.status.finding
    assert cluster.ids.held == set(ledgers)


@pytest.mark.parametrize("entries", [True, False])
def test_entries_of_strangers_under_ids_not_given_out_stop_no_collection(entries: bool) -> None:
    """Such a ledger is collected like a deleted one. If a connection broke before, it is kept, if it has entries."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    mine = cluster.create(4)
    cluster.rounds(1)
    not_given_out = set(range(50, 60)) | {2**31 - 2, 2**62}
    cluster.ids.held |= not_given_out
    cluster.ids.empty = set() if entries else not_given_out
    cluster.rounds(4)
    assert cluster.ids.held == set(mine)
    cluster.ids.held |= not_given_out
    cluster.store.cut_connection(0.3)
    cluster.delete(mine[0])
    cluster.rounds(4)
    assert cluster.ids.held == set(mine[1:]) | (not_given_out if entries else set())
    assert not cluster.collector.status.finding
    assert cluster.collector.status.kept_count == (len(not_given_out) if entries else 0)
    after, _ = _at_once(cluster.client.ledgers.create(_metadata(OURS)), cluster)
    assert after < 200_000, "strangers used up the ids"


def _at_once(deferred: Deferred[Any], cluster: Cluster) -> Any:
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert cluster.clock.run_until(lambda: bool(found), seconds=10.0)
    return found[0]


def test_a_bookie_with_a_damaged_history_deletes_nothing_until_an_operator_decides() -> None:
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    ledgers = cluster.create(4)
    cluster.rounds(1)
    cluster.collector.stop()
    cluster.fs.poke("/a/current/metadata.history", 30, b"\xff\xff")
    cluster.delete(ledgers[0])
    cluster.collector = cluster.make_collector(INSTANCE_ID)
    cluster.collector.start()
    cluster.rounds(3)
    assert "memory" in cluster.collector.status.finding
    assert cluster.ids.held == set(ledgers)
    cluster.decide(Decision(Verdict.KEEP))
    cluster.rounds(2)
    cluster.delete(ledgers[1])
    cluster.rounds(4)
    assert cluster.ids.held == {ledgers[0], *ledgers[2:]}


def test_collection_continues_on_a_full_disk_and_keeps_ledgers_after_a_restore() -> None:
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    ledgers = cluster.create(4)
    cluster.rounds(1)
    cluster.fs.quota_bytes = cluster.fs.used_bytes
    cluster.delete(ledgers[0])
    cluster.rounds(4)
    assert cluster.ids.held == set(ledgers[1:])
    copy = cluster.shared.copy()
    late = cluster.create(3)
    cluster.restore(copy)
    cluster.rounds(3)
    assert cluster.ids.held == {*ledgers[1:], *late}
    assert cluster.collector.status.kept_count == 3
    assert not cluster.lost


def test_a_full_disk_keeps_no_ledger_that_came_after_the_look_that_found_the_evidence() -> None:
    """Another bookie noted a restore. No process can save that it has seen the note, and each look meets it again."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    cluster.rounds(1)
    cluster.fs.quota_bytes = 0
    cluster.collector.stop()
    cluster.advance(0.1)
    cluster.collector = cluster.make_collector(INSTANCE_ID)
    cluster.begin()
    cluster.rounds(1)
    _at_once(cluster.client.history.raise_ids(GeneratedIds()), cluster)
    before = set(cluster.ids.held)
    for _ in range(3):
        made = cluster.create(5)
        cluster.rounds(1)
        cluster.delete(*made)
        cluster.rounds(6)
    assert set(cluster.ids.held) == before
    assert cluster.collector.status.kept_count == 0


def test_a_decision_to_keep_is_applied_only_once_it_is_on_disk() -> None:
    """A later process reads the file, and must not conclude that a newer copy ended the finding."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    early = cluster.create(3)
    cluster.rounds(1)
    copy = cluster.shared.copy()
    late = cluster.create(4)
    cluster.rounds(3)
    cluster.restore(copy)
    cluster.rounds(2)
    cluster.fs.quota_bytes = 0
    cluster.decide(Decision(Verdict.KEEP))
    cluster.rounds(2)
    assert cluster.collector.status.finding
    cluster.collector.stop()
    cluster.advance(0.1)
    cluster.fs.quota_bytes = None
    cluster.collector = cluster.make_collector(INSTANCE_ID)
    cluster.begin()
    cluster.rounds(4)
    assert not cluster.collector.status.finding, "the decision waited for room"
    assert cluster.collector.status.kept_count == len(late)
    assert cluster.ids.held == {*early, *late}
    assert not cluster.lost
    assert not cluster.errors


@pytest.mark.parametrize("named", [None, 10**12])
def test_a_counter_that_is_written_to_a_restored_store_covers_no_ledgers(named: int | None) -> None:
    """The write is repeated after the restore, and replaces the note in the copy."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    early = cluster.create(3)
    cluster.rounds(1)
    copy = cluster.shared.copy()
    late = cluster.create(4, named=named)
    real, restored = ZnodeHistory.write, []

    def write(*args: Any) -> Deferred[Any]:
        if not restored:
            restored.append(True)
            cluster.restore(copy)
        return real(*args)

    with mock.patch.object(ZnodeHistory, "write", write):
        cluster.rounds(8)
    assert restored
    assert cluster.ids.held == {*early, *late}
    assert cluster.collector.status.kept_count == len(late)


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.CLOSED, None])
@pytest.mark.parametrize("to", [OURS, OTHER])
def test_a_decision_to_keep_covers_ids_that_were_given_out_again(state: LedgerState | None, to: BookieId) -> None:
    """The ids were given out before a bookie that was away looked. Its copies stay, for any end of the new ledgers.

    state: of the new ledgers when the operator decides; None: an unreadable record.
    """
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    early = cluster.create(10)
    cluster.rounds(1)
    copy = cluster.shared.copy()
    late = cluster.create(5)
    cluster.rounds(2)
    cluster.collector.stop()
    cluster.advance(0.2)
    cluster.restore(copy)
    cluster.advance(2)
    again = [_at_once(cluster.client.ledgers.create(_metadata(to)), cluster)[0] for _ in range(3)]
    assert again == late[:3]
    for ledger_id in again:
        if state is None:
            cluster.shared.damage(f"/ledgers/00/0000/L{ledger_id:04}", b"?")
        elif state is LedgerState.CLOSED:
            cluster.close(ledger_id, to)
    cluster.collector = cluster.make_collector(INSTANCE_ID)
    cluster.begin()
    cluster.rounds(2)
    cluster.decide(Decision(Verdict.KEEP))
    cluster.rounds(3)
    assert not cluster.collector.status.finding
    if state is not None:
        for ledger_id in again:
            cluster.close(ledger_id, to)
        cluster.rounds(8)
        cluster.delete(again[0])
        cluster.acknowledged.add(again[0])  # the earlier ledger of this id
    cluster.rounds(8)
    assert cluster.ids.held == {*early, *late}
    assert not cluster.lost
    cluster.delete(early[0])
    cluster.rounds(4)
    assert cluster.ids.held == {*early[1:], *late}


def _young_copy(*clusters: RestoredCluster, running: Sequence[RestoredCluster]) -> list[list[int]]:
    """Restore a copy with all counters, and set the generator past the ids of the ledgers made since; return these.

    running: clusters with collectors that are not stopped before.
    """
    for each in clusters:
        each.begin()
        each.create(3)
    for each in clusters:
        each.rounds(1)
    shared = clusters[0].shared
    copy = shared.copy()
    late = [each.create(4) for each in clusters]
    for each in clusters:
        if each not in running:
            each.collector.stop()
    clusters[0].advance(0.1)
    shared.restore(copy, *[store for each in clusters for store in (each.store, each.client)])
    shared.set_sequence("/ledgers/idgen", 1 + max(ledger_id for ids in late for ledger_id in ids))
    return late


def test_a_refused_session_shows_that_the_store_went_back_if_ids_do_not() -> None:
    """The generator passed the ids of all forgotten ledgers before any bookie looked."""
    cluster = RestoredCluster(1, faults=False)
    (late,) = _young_copy(cluster, running=[cluster])
    cluster.rounds(6)
    assert cluster.ids.held >= set(late)
    assert not cluster.lost
    assert cluster.collector.status.kept_count == len(late)


def test_a_finding_of_one_bookie_is_evidence_for_bookies_that_look_later() -> None:
    first = RestoredCluster(1, faults=False)
    second = RestoredCluster(2, faults=False, beside=first)
    late = _young_copy(first, second, running=[first])
    first.rounds(3)
    again = late[1][0]  # created again, by a client that asks no bookie first
    _at_once(second.client.ledgers.create(_metadata(second.bookie_id), LedgerId(again)), second)
    second.collector = second.make_collector(INSTANCE_ID)
    second.begin()
    second.rounds(2)
    second.delete(again)
    second.acknowledged.add(again)  # the earlier ledger of this id
    second.rounds(6)
    for cluster, ids in zip((first, second), late, strict=True):
        assert cluster.ids.held >= set(ids)
        assert not cluster.lost
    new = second.create(2)
    second.delete(new[0])
    second.rounds(4)
    assert second.ids.held >= {new[1], *late[1]}
    assert new[0] not in second.ids.held


@contextmanager
def _compaction_for_an_hour(cluster: Cluster) -> Iterator[None]:
    def compact(*_: object) -> Deferred[None]:
        return cluster.pause(3600)

    with mock.patch.object(EntryLogCollection, "compact", compact):
        yield


def test_a_long_compaction_does_not_hold_up_the_look_at_the_store() -> None:
    """While the round continues, the finding is reported, and the generators are raised before the bookie registers."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    early = cluster.create(10)
    cluster.rounds(1)
    copy = cluster.shared.copy()
    late = cluster.create(5)
    cluster.rounds(2)
    with _compaction_for_an_hour(cluster):
        cluster.advance(WAIT_S + 1)
    rounds = cluster.collector.status.rounds
    cluster.restore(copy)
    looked: list[float] = []
    began_s = cluster.clock.seconds()
    cluster.advance(0.1)
    cluster.collector.wait_history_checked().addCallback(lambda _: looked.append(cluster.clock.seconds() - began_s))
    cluster.advance(5)
    assert looked
    assert cluster.collector.history.is_current
    assert cluster.collector.status.finding
    assert not set(cluster.create(3)).intersection(late)
    assert cluster.collector.status.rounds == rounds
    stopped: list[object] = []
    cluster.collector.stop().addBoth(stopped.append)
    cluster.advance(0.1)
    assert stopped == [None]
    assert cluster.ids.held >= {*early, *late}


def test_the_counter_is_raised_during_a_long_compaction() -> None:
    """Otherwise all ledgers since the round began would be in doubt if the connection breaks."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    cluster.rounds(1)
    with _compaction_for_an_hour(cluster):
        cluster.advance(WAIT_S + 1)
        rounds, before = cluster.collector.status.rounds, cluster.note(cluster.shared.znodes.leader)
        cluster.advance(2 * HISTORY_BEAT_S + 1)
    assert cluster.collector.status.rounds == rounds
    assert cluster.note(cluster.shared.znodes.leader) != before


def test_a_newer_copy_may_lack_what_came_after_the_older_one() -> None:
    """Ledgers that were made between the copies are kept, for any ids that the newer copy gave out since."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    early = cluster.create(3)
    older = cluster.shared.copy()
    late = cluster.create(3)
    cluster.rounds(1)
    newer = cluster.shared.copy()
    cluster.restore(older)
    cluster.rounds(2)
    assert cluster.collector.status.finding
    between = cluster.create(3)
    cluster.collector.stop()
    cluster.advance(0.1)
    cluster.restore(newer)
    cluster.shared.set_sequence("/ledgers/idgen", between[-1] + 1)
    cluster.collector = cluster.make_collector(INSTANCE_ID)
    cluster.begin()
    cluster.rounds(4)
    assert not cluster.collector.status.finding
    assert cluster.ids.held == {*early, *late, *between}
    assert not cluster.lost


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_written_after_a_decision_to_keep_outlives_the_copy_that_was_given_up(restarted: bool) -> None:
    """The copy has a counter as high as any that was seen, and generators that others raised already."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    early = cluster.create(3)
    cluster.rounds(1)
    older = cluster.shared.copy()
    late = cluster.create(3)
    cluster.rounds(5)
    newer = cluster.shared.copy()
    cluster.restore(older)
    cluster.rounds(1)
    cluster.decide(Decision(Verdict.KEEP))
    cluster.rounds(1)
    since = cluster.create(3)
    cluster.rounds(1)
    if restarted:
        cluster.collector.stop()
        cluster.advance(0.1)
    cluster.restore(newer)
    cluster.shared.set_sequence("/ledgers/idgen", since[-1] + 1)
    if restarted:
        cluster.collector = cluster.make_collector(INSTANCE_ID)
        cluster.collector.start()
    cluster.rounds(4)
    assert cluster.ids.held == {*early, *late, *since}
    assert cluster.collector.status.finding
    cluster.decide(Decision(Verdict.KEEP))
    cluster.rounds(2)
    assert not cluster.collector.status.finding
    cluster.delete(early[0])
    cluster.rounds(4)
    assert cluster.ids.held == {*early[1:], *late, *since}


def test_recent_ledgers_that_the_store_gives_to_others_stay_as_long_as_the_process() -> None:
    """They were moved, or the store is a newer copy that gave their ids out again: nothing shows which."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    early = cluster.create(3)
    cluster.rounds(1)
    copy = cluster.shared.copy()
    late = cluster.create(4)
    cluster.collector.stop()
    cluster.advance(0.1)
    cluster.restore(copy)
    for ledger_id in late:
        assert _at_once(cluster.client.ledgers.create(_metadata(OTHER)), cluster)[0] == ledger_id
        cluster.close(ledger_id, OTHER)
    for held in ({*early, *late}, {*early}):
        cluster.collector = cluster.make_collector(INSTANCE_ID)
        cluster.begin()
        cluster.rounds(8)
        assert cluster.ids.held == held
        assert cluster.collector.status.kept_count == 0
        cluster.collector.stop()
        cluster.advance(0.1)


def test_a_damaged_record_of_raises_stops_no_collection() -> None:
    """Every bookie reads the record."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    ledgers = cluster.create(3)
    cluster.rounds(1)
    cluster.shared.damage("/ledgers/underreplication/history", b"garbage")
    cluster.delete(ledgers[0])
    cluster.store.cut_connection(0.3)
    cluster.rounds(4)
    assert cluster.ids.held == set(ledgers[1:])
    assert cluster.collector.status.last_error == ""


def test_a_damaged_note_is_read_again_at_growing_delays_and_the_error_has_a_remedy() -> None:
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    ledgers = cluster.create(3)
    cluster.rounds(1)
    note = f"/ledgers/underreplication/history/{OURS}"
    cluster.shared.damage(note, b"garbage")
    cluster.delete(ledgers[0])
    with mock.patch.object(ZnodeHistory, "look", autospec=True, side_effect=ZnodeHistory.look) as looks:
        cluster.store.cut_connection(0.3)
        rounds = cluster.collector.status.rounds
        cluster.advance(600)
        assert looks.call_count - (cluster.collector.status.rounds - rounds) in range(10, 20)
    cluster.rounds(1)
    assert "remove that znode, then run `bookkeeper metadata keep`" in cluster.collector.status.last_error
    assert cluster.ids.held == set(ledgers)
    cluster.shared.znodes.delete(note, cluster.shared.znodes.leader.nodes[note].version)
    cluster.rounds(2)
    assert cluster.collector.status.finding
    cluster.decide(Decision(Verdict.KEEP))
    cluster.rounds(3)
    cluster.delete(ledgers[1])
    cluster.rounds(3)
    assert cluster.ids.held == {ledgers[0], ledgers[2]}


def test_ledgers_that_a_full_disk_did_not_note_as_kept_are_kept_by_the_next_process() -> None:
    """Their ids were given out again in between; that the generators were raised is in the store."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    early = cluster.create(3)
    cluster.rounds(1)
    copy = cluster.shared.copy()
    late = cluster.create(4)
    cluster.collector.stop()
    cluster.advance(0.1)
    cluster.restore(copy)
    cluster.fs.quota_bytes = 0
    cluster.collector = cluster.make_collector(INSTANCE_ID)
    cluster.collector.start()
    cluster.rounds(2)
    assert cluster.collector.status.kept_count == len(late)
    assert not set(cluster.create(2)).intersection(late)
    cluster.collector.stop()
    cluster.advance(0.1)
    cluster.fs.quota_bytes = None
    cluster.collector = cluster.make_collector(INSTANCE_ID)
    cluster.begin()
    cluster.rounds(4)
    assert cluster.ids.held >= {*early, *late}
    assert not cluster.lost
    assert not cluster.errors


def test_copies_are_not_moved_by_metadata_that_went_back() -> None:
    """The newest metadata lists this bookie; the older one lists the bookies that it replaced."""
    cluster = RestoredCluster(1, faults=False)
    cluster.begin()
    (ledger_id,) = cluster.create(1)
    moved: list[object] = []

    async def write(bookie_id: BookieId) -> None:
        found = await cluster.client.ledgers.read(LedgerId(ledger_id))
        await cluster.client.ledgers.write(LedgerId(ledger_id), _metadata(bookie_id, LedgerState.CLOSED), found.version)

    def change(bookie_id: BookieId) -> None:
        Deferred.fromCoroutine(write(bookie_id)).addBoth(moved.append)
        assert cluster.clock.run_until(lambda: bool(moved), seconds=10.0)
        assert moved.pop() is None

    cluster.ids.held.discard(ledger_id)
    change(OTHER)
    copies = [cluster.shared.copy()]
    cluster.rounds(1)
    copies.append(cluster.shared.copy())  # as new as the counter
    change(OURS)
    cluster.ids.held.add(ledger_id)
    for copy in reversed(copies):
        cluster.restore(copy)
        for _ in range(3):
            done: list[object] = []
            cluster.collector.force().addBoth(done.append)
            assert cluster.clock.run_until(lambda done=done: bool(done), seconds=60.0)  # type: ignore[misc]
            assert cluster.ids.held == {ledger_id}
    assert cluster.moved == 0
