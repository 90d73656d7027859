"""Everything that some bookies have goes to others: by recovery, and by waiting for the workers to do it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.config import ClientSettings
from bookkeeper.errors import InvalidArgument
from bookkeeper.metadata.memory.store import MemoryMetadataStore
from bookkeeper.model import BookieId, LedgerId, LedgerMetadata
from bookkeeper.replication.bookie_recovery import (
    LOCK_TRIES,
    LOOK_PAUSE_S,
    TELL_TRIES,
    BookieRecovery,
    RecoveryProgress,
)
from bookkeeper.replication.repair.settings import WorkerSettings
from bookkeeper.replication.repair.worker import ReplicationWorker
from bookkeeper.wire import messages
from tests.support.damaged_ledgers import holders_missing, payloads, write_ledger
from tests.support.fake_bookie import HOLD, FakeBookie, FakeCluster
from tests.support.simulated_clock import SimulatedProcess

CLIENT = ClientSettings(add_timeout_s=2.0, read_timeout_s=2.0, explicit_lac_interval_s=0.0)


class Scene:
    """A cluster with ledgers, and a recovery."""

    def __init__(self, bookie_count: int, **settings: Any) -> None:
        self.cluster = FakeCluster(bookie_count)
        self.writer = self.cluster.client()
        process = SimulatedProcess("test", self.cluster.clock)
        self.store = MemoryMetadataStore(self.cluster.metadata, process.clock, random.Random("test"))
        self.said: list[str] = []
        self.progress = RecoveryProgress(self.note)
        self.recovery = BookieRecovery(
            self.cluster.client(CLIENT), WorkerSettings(**settings), "test-host", self.progress
        )

    def note(self, progress: RecoveryProgress) -> None:
        assert progress.ledgers_left >= 0
        if not self.said or self.said[-1] != progress.waits_for:
            self.said.append(progress.waits_for)

    def recover(self, *bookies: FakeBookie, **options: Any) -> RecoveryProgress:
        ids = [bookie.bookie_id for bookie in bookies]
        progress: RecoveryProgress = self.cluster.wait(self.recovery.recover(ids, **options))
        return progress

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        metadata: LedgerMetadata = self.cluster.wait(self.writer.metadata(ledger_id))
        return metadata

    def names(self, ledger_id: int, *bookies: FakeBookie) -> bool:
        gone = {bookie.bookie_id for bookie in bookies}
        return any(not gone.isdisjoint(fragment.ensemble) for fragment in self.metadata(ledger_id).fragments)


def test_all_ledgers_of_two_bookies_move_and_neither_gets_copies_of_the_other() -> None:
    """Both are alive: they are the last to be asked, and no targets. Mutant: forget `exclude`."""
    scene = Scene(6)
    one, two, *others = scene.cluster.bookies

    async def write() -> list[int]:
        return [
            (await write_ledger(scene.writer, [first, *others[:2]], 30, write_quorum=2)).id
            for first in (one, two, one, others[3])
        ]

    ids = scene.cluster.wait(write())
    progress = scene.recover(one, two)
    assert not any(scene.names(ledger_id, one, two) for ledger_id in ids)
    assert all(holders_missing(scene.cluster, each, scene.metadata(each)) == [] for each in ids)
    assert (progress.ledgers_seen, progress.ledgers_found, progress.ledgers_done) == (4, 3, 3)
    assert (progress.ledgers_left, progress.ledgers_failed, progress.ledgers_skipped) == (0, 0, 0)
    assert progress.entries == 3 * 20
    assert progress.bytes > 0
    assert scene.said[:2] == ["the list of registered bookies", "the list of ledgers"]
    assert scene.said[-1] == ""


def test_a_ledger_being_written_is_ended_first_or_skipped() -> None:
    scene = Scene(4)
    lost, *others = scene.cluster.bookies

    async def write() -> int:
        return int((await write_ledger(scene.writer, [lost, *others[:2]], 10, close=False)).id)

    ledger_id = scene.cluster.wait(write())
    progress = scene.recover(lost, skip_open=True)
    assert (progress.ledgers_skipped, progress.ledgers_done) == (1, 0)
    assert not scene.metadata(ledger_id).is_closed
    assert not any(bookie.fenced for bookie in scene.cluster.bookies)
    lost.leave()
    progress = scene.recover(lost)
    assert progress.ledgers_done == 1
    assert scene.metadata(ledger_id).last_entry_id == 9
    assert not scene.names(ledger_id, lost)
    assert holders_missing(scene.cluster, ledger_id, scene.metadata(ledger_id)) == []


def test_closed_fragments_of_an_open_ledger_move_and_its_writer_goes_on() -> None:
    """I-74: the bookie is no member of the last one."""
    scene = Scene(5)
    lost, *others = scene.cluster.bookies

    async def write() -> Any:
        ledger = await write_ledger(scene.writer, [lost, *others[:2]], 10, close=False)
        lost.leave()
        await ledger.append_many(payloads(5))
        return ledger

    ledger = scene.cluster.wait(write())
    assert scene.recover(lost).ledgers_done == 1
    assert not scene.names(ledger.id, lost)
    assert scene.cluster.wait(ledger.append(b"goes on")) == 15


def test_a_dry_run_counts_and_changes_nothing_and_one_ledger_may_be_named() -> None:
    scene = Scene(5)
    lost, *others = scene.cluster.bookies

    async def write() -> list[int]:
        return [(await write_ledger(scene.writer, [lost, *others[:2]], 10)).id for _ in range(3)]

    ids = scene.cluster.wait(write())
    assert scene.recover(lost, dry_run=True).ledgers_found == 3
    assert all(scene.names(ledger_id, lost) for ledger_id in ids)
    scene.recover(lost, ledger_id=LedgerId(ids[1]))
    assert [scene.names(ledger_id, lost) for ledger_id in ids] == [True, False, True]


def test_a_ledger_that_cannot_be_read_is_told_with_its_reason_and_the_others_move() -> None:
    scene = Scene(5)
    lost, *others = scene.cluster.bookies

    async def write() -> list[int]:
        ids = [(await write_ledger(scene.writer, [lost, *others[:2]], 10)).id for _ in range(3)]
        for bookie in scene.cluster.bookies:
            bookie.entries.get(ids[1], {}).pop(4, None)
        return ids

    ids = scene.cluster.wait(write())
    progress = scene.recover(lost)
    assert (progress.ledgers_done, progress.ledgers_failed) == (2, 1)
    assert "entry 4" in progress.failures[LedgerId(ids[1])]
    assert scene.recover(lost, skip_unreadable=True).ledgers_skipped == 1


def test_a_ledger_that_somebody_repairs_is_waited_for() -> None:
    scene = Scene(4)
    lost, *others = scene.cluster.bookies

    async def write() -> Any:
        ledger = await write_ledger(scene.writer, [lost, *others[:2]], 10)
        return await scene.store.underreplication.lock(ledger.id, "somebody", lambda: None)

    lock = scene.cluster.wait(write())
    outcome: list[Any] = []
    Deferred.fromCoroutine(scene.recovery.recover([lost.bookie_id])).addBoth(outcome.append)
    scene.cluster.run(5.0)
    assert not outcome
    assert any("somebody else is at work" in said for said in scene.said)
    assert f"ledger {lock.ledger_id}: locked by somebody" in scene.said
    scene.cluster.wait(lock.release())
    scene.cluster.run(2.0)
    assert outcome[0].ledgers_done == 1


def test_an_unreadable_lock_is_waited_for_and_one_of_no_session_is_not() -> None:
    scene = Scene(4)
    lost, *others = scene.cluster.bookies

    async def write() -> Any:
        ledger = await write_ledger(scene.writer, [lost, *others[:2]], 10)
        return await scene.store.underreplication.lock(ledger.id, "somebody", lambda: None)

    lock = scene.cluster.wait(write())
    scene.cluster.metadata.damage(lock.path, b"\x00\xff")
    outcome: list[Any] = []
    Deferred.fromCoroutine(scene.recovery.recover([lost.bookie_id])).addBoth(outcome.append)
    scene.cluster.run(5.0)
    assert not outcome
    assert any(f"locked by an unknown holder ({lock.path}: " in said for said in scene.said)
    scene.cluster.wait(lock.release())
    scene.cluster.metadata.plant(lock.path, b"\x00\xff")
    scene.cluster.run(2.0)
    assert outcome[0].ledgers_done == 1


def test_a_ledger_that_a_worker_keeps_locked_because_nobody_is_left_is_told_so_and_not_waited_for() -> None:
    """The worker's back-off keeps the lock: to wait for it would be to wait for more bookies, without saying so."""
    scene = Scene(3)
    lost, *others = scene.cluster.bookies

    async def write() -> Any:
        ledger = await write_ledger(scene.writer, [lost, *others], 10)
        return await scene.store.underreplication.lock(ledger.id, "worker", lambda: None)

    lock = scene.cluster.wait(write())
    lost.leave()
    progress = scene.recover(lost)
    assert progress.ledgers_failed == 1
    reason = progress.failures[lock.ledger_id]
    assert f"no bookie is left to take the copies of {lost.bookie_id}" in reason
    assert reason.endswith("other writable bookies: none: start more bookies")


def test_who_keeps_a_ledger_locked_for_long_is_asked_and_told() -> None:
    scene = Scene(4)
    lost, *others = scene.cluster.bookies
    asked: list[int] = []

    async def ask(ledger_id: LedgerId) -> str:
        asked.append(ledger_id)
        return "worker 7 waits: its disk is full"

    async def write() -> Any:
        ledger = await write_ledger(scene.writer, [lost, *others[:2]], 10)
        return await scene.store.underreplication.lock(ledger.id, "worker", lambda: None)

    ledger_id = scene.cluster.wait(write()).ledger_id
    scene.recovery = BookieRecovery(
        scene.cluster.client(CLIENT), WorkerSettings(), "test-host", scene.progress, ask=ask
    )
    progress = scene.recover(lost)
    assert f"ledger {ledger_id}: worker 7 waits: its disk is full" in scene.said
    assert len(asked) == LOCK_TRIES / TELL_TRIES + 1, "not at every try"
    assert progress.failures[ledger_id] == (
        f"ledger {ledger_id}: locked by somebody else for 60 s: worker 7 waits: its disk is full"
    )


def test_a_ledger_deleted_meanwhile_is_done() -> None:
    """I-78."""
    scene = Scene(4)
    lost, *others = scene.cluster.bookies
    ledger = scene.cluster.wait(write_ledger(scene.writer, [lost, *others[:2]], 10))
    scene.cluster.wait(scene.writer.delete(ledger.id))
    assert scene.recover(lost, ledger_id=LedgerId(ledger.id)).ledgers_done == 1


def test_a_bookie_is_decommissioned_once_no_ledger_names_it() -> None:
    scene = Scene(4)
    lost, *others = scene.cluster.bookies

    async def write() -> list[int]:
        return [(await write_ledger(scene.writer, [lost, *others[:2]], 10)).id for _ in range(5)]

    ids = scene.cluster.wait(write())
    with pytest.raises(InvalidArgument, match="registered: stop it"):
        scene.cluster.wait(scene.recovery.decommission(lost.bookie_id))
    lost.leave()
    scene.cluster.run(1.0)
    outcome: list[Any] = []
    Deferred.fromCoroutine(scene.recovery.decommission(lost.bookie_id)).addBoth(outcome.append)
    scene.cluster.run(LOOK_PAUSE_S)
    assert "no process runs auto-recovery" in scene.said[-1]
    assert not outcome
    ReplicationWorker(scene.cluster.client(CLIENT), WorkerSettings(), "worker").start()

    async def audit() -> None:
        for ledger_id in ids:
            await scene.store.underreplication.mark(LedgerId(ledger_id), [BookieId(lost.bookie_id)], now_ms=None)

    scene.cluster.wait(audit())
    scene.cluster.run(4 * LOOK_PAUSE_S)
    (progress,) = outcome
    assert (progress.ledgers_found, progress.ledgers_done, progress.ledgers_left) == (5, 5, 0)
    assert progress.ledgers_seen == 5, "each ledger is counted once, though all are looked at twice"


def test_a_decommission_asks_an_auditor_that_is_elected_later_and_asks_it_again_once() -> None:
    """The auditor has not seen the earlier order, and may miss an order at the start of its term."""
    scene = Scene(3)
    lost = scene.cluster.bookies[0]
    tree = scene.store.underreplication
    scene.cluster.wait(write_ledger(scene.writer, scene.cluster.bookies, 10))
    scene.cluster.wait(tree.set_recovery_delay(70))
    lost.leave()
    scene.cluster.run(1.0)
    waiting = Deferred.fromCoroutine(scene.recovery.decommission(lost.bookie_id))
    asked: list[int | None] = []
    scene.cluster.run(2 * LOOK_PAUSE_S)
    watch = tree.watch_recovery_delay(asked.append)
    scene.cluster.run(2 * LOOK_PAUSE_S)
    assert asked == [70], "the delay was written once; no auditor exists yet"
    for count in (3, 5):
        candidate = tree.candidate(
            BookieId("auditor:1"), on_elected=lambda: None, on_lost=lambda: None, on_failed=lambda _: None
        )
        candidate.join()
        scene.cluster.run(5 * LOOK_PAUSE_S)
        assert asked == [70] * count
        scene.store.expire_session()
        scene.cluster.wait(candidate.leave())
    watch.cancel()
    waiting.addErrback(lambda _: None)
    waiting.cancel()


def test_a_decommission_stores_no_recovery_delay() -> None:
    """A decommission once stored 0, which every later auditor preferred to its configured delay."""
    scene = Scene(3)
    lost = scene.cluster.bookies[0]
    scene.cluster.wait(write_ledger(scene.writer, scene.cluster.bookies, 10))
    lost.leave()
    scene.cluster.run(1.0)
    waiting = Deferred.fromCoroutine(scene.recovery.decommission(lost.bookie_id))
    scene.cluster.run(2 * LOOK_PAUSE_S)
    assert scene.cluster.wait(scene.store.underreplication.recovery_delay_s()) is None
    waiting.addErrback(lambda _: None)
    waiting.cancel()


def test_a_decommission_says_why_the_worker_waits() -> None:
    scene = Scene(3)
    lost = scene.cluster.bookies[0]

    async def write() -> int:
        return int((await write_ledger(scene.writer, scene.cluster.bookies, 10)).id)

    ledger_id = scene.cluster.wait(write())
    lost.leave()
    scene.cluster.run(1.0)

    async def ask(asked: LedgerId) -> str:
        return f"somebody waits for room for {asked}"

    said: list[str] = []
    progress = RecoveryProgress(on_change=lambda state: said.append(state.waits_for))
    recovery = BookieRecovery(scene.cluster.client(CLIENT), WorkerSettings(), "test-host", progress, ask=ask)
    scene.cluster.wait(scene.store.underreplication.mark(LedgerId(ledger_id), [lost.bookie_id], now_ms=None))
    candidate = scene.store.underreplication.candidate(
        BookieId("auditor:1"), on_elected=lambda: None, on_lost=lambda: None, on_failed=lambda _: None
    )
    candidate.join()
    waiting = Deferred.fromCoroutine(recovery.decommission(lost.bookie_id))
    scene.cluster.run(LOOK_PAUSE_S / 2)
    assert f"workers to repair 1 ledgers, ledger {ledger_id} first: somebody waits for room for {ledger_id}" in said
    waiting.addErrback(lambda _: None)
    waiting.cancel()


def test_a_bookie_is_not_decommissioned_while_auto_recovery_is_disabled() -> None:
    scene = Scene(4)
    lost = scene.cluster.bookies[0]
    lost.leave()
    scene.cluster.wait(scene.store.underreplication.disable())
    scene.cluster.run(1.0)
    with pytest.raises(InvalidArgument, match="autorecovery -enable"):
        scene.cluster.wait(scene.recovery.decommission(lost.bookie_id))


def test_a_ledger_whose_lock_was_lost_keeps_its_metadata_and_is_told() -> None:
    """I-66: without the lock the target may have taken the copies for too many. Mutant: go on without it."""
    scene = Scene(4)
    *members, spare = scene.cluster.bookies

    async def write() -> int:
        return int((await write_ledger(scene.writer, members, 20)).id)

    ledger_id = scene.cluster.wait(write())
    before = scene.metadata(ledger_id)
    spare.rule = lambda request: HOLD if isinstance(request, messages.AddBatch) else None
    done: list[object] = []
    Deferred.fromCoroutine(scene.recovery.recover([members[0].bookie_id])).addBoth(done.append)
    assert scene.cluster.clock.run_until(lambda: bool(spare.held), seconds=30)
    store = scene.recovery._store  # noqa: SLF001
    assert isinstance(store, MemoryMetadataStore)
    store.expire_session()
    scene.cluster.run(0.5)
    spare.rule = lambda request: None
    spare.release()
    assert scene.cluster.clock.run_until(lambda: bool(done), seconds=30)
    assert scene.metadata(ledger_id) == before
    assert scene.progress.ledgers_failed == 1
    assert "lock" in scene.progress.failures[LedgerId(ledger_id)]
