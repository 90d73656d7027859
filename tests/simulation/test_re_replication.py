"""Re-replication under the simulator: workers killed at every step, cut off, side by side; no listed copy is lost."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred, succeed

from bookkeeper.metadata.underreplication.tree import ZnodeUnderreplication
from bookkeeper.model import LedgerId
from bookkeeper.replication.copies.copy import LedgerCopying
from bookkeeper.replication.copies.fragments import CopyPlan
from tests.simulation.history import Violation
from tests.simulation.repairs import RepairRun
from tests.simulation.world import WALL_BACK, WALL_FORWARD

KILLS = 40


@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v3"])
def test_everything_that_a_lost_bookie_had_is_made_anew(seed: int, use_v2: bool) -> None:
    run = RepairRun(seed, use_v2=use_v2)
    run.prepare()
    run.add_worker()
    run.finish()
    assert run.watch.moves >= 4
    faults = run.world.all_faults()
    assert faults[WALL_BACK] + faults[WALL_FORWARD]
    _, worker = run.workers[0]
    assert {trouble.ledger_id for trouble in worker.troubles} == set(run.ledgers) - set(run.repairable)


def steps_of_a_repair(seed: int) -> range:
    """The clock's steps between a worker's start and the end of its work."""
    run = RepairRun(seed)
    run.prepare()
    first = run.world.clock.steps
    run.add_worker()
    run.finish()
    return range(first, run.world.clock.steps)


def test_a_worker_killed_at_any_step_leaves_no_entry_with_fewer_listed_holders(seed: int) -> None:
    """I-75. The same run again and again, the worker dead at another step each time; a second one ends the work."""
    steps = steps_of_a_repair(seed)
    stride = max(1, len(steps) // KILLS)
    for kill_at in range(steps.start + seed % stride, steps.stop, stride):
        run = RepairRun(seed)
        run.prepare()
        client, _ = run.add_worker()
        world = run.world
        world.run_until(lambda at=kill_at, world=world: world.clock.steps >= at or bool(world.errors), seconds=60.0)
        run.crash_worker(client)
        run.add_worker()
        run.finish()


def test_two_workers_and_a_target_that_loses_power_right_after_it_is_named(seed: int) -> None:
    """I-75: what the metadata names is durable. Mutant: commit before the acknowledgement."""
    run = RepairRun(seed)
    run.prepare()
    cut: list[str] = []

    def on_change() -> None:
        if run.watch.moves > len(cut):
            cut.append("")
            metadata = [run.watch.stored(ledger_id) for ledger_id in run.repairable]
            members = {bookie for each in metadata if each for bookie in each.fragments[0].ensemble}
            target = next(bookie for bookie in run.world.bookies[1:] if bookie.bookie_id in members and bookie.running)
            target.cut_power()
            run.world.clock.callLater(1.0, target.ensure_running)

    run.world.metadata.znodes.on_change.append(on_change)
    run.add_worker()
    run.add_worker()
    run.do(run.world.pause(10.0), "some time")
    run.world.metadata.znodes.on_change.remove(on_change)
    for bookie in run.world.bookies[1:]:
        bookie.ensure_running()
    run.finish()
    assert cut


@pytest.mark.parametrize("each", range(6))
def test_sessions_that_end_links_that_break_and_answers_that_get_lost_only_delay_the_repair(
    seed: int, each: int
) -> None:
    """I-16, I-77, L-4."""
    run = RepairRun(seed * 101 + each)
    run.prepare()
    world, rng = run.world, run.rng
    for _ in range(2):
        run.add_worker()
    world.metadata_faults.failed_before_probability = 0.05
    world.metadata_faults.reply_lost_probability = 0.05
    for _ in range(12):
        run.run(rng.random())
        choice = rng.randrange(5)
        client, _ = rng.choice(run.workers)
        if choice == 0:
            client.store.expire_session(rng.random())
        elif choice == 1:
            world.network.cut_some_connection()
        elif choice == 2:
            world.network.partition(client.name, rng.choice(world.bookies[1:]).name)
        elif choice == 3:
            rng.choice(world.bookies[1:]).kill()
        else:
            run.crash_worker(client)
            run.add_worker()
        for bookie in world.bookies[1:]:
            if rng.random() < 0.6:
                bookie.ensure_running()
    world.metadata_faults.failed_before_probability = world.metadata_faults.reply_lost_probability = 0.0
    world.network.heal()
    for bookie in world.bookies[1:]:
        bookie.ensure_running()
    run.finish()


def test_a_worker_that_names_a_member_before_it_has_its_copies_is_found_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checker bites (I-75)."""

    async def copy_nothing(self: LedgerCopying, plan: CopyPlan) -> None:
        pass

    monkeypatch.setattr(LedgerCopying, "copy", copy_nothing)
    run = RepairRun(seed)
    run.prepare()
    run.add_worker()
    with pytest.raises(Violation, match=r"I-75.*became a member"):
        run.finish()


class NoLock:
    """A lock that keeps nobody out."""

    def __init__(self, ledger_id: LedgerId) -> None:
        self.ledger_id, self.held, self.mark_removed = ledger_id, True, False

    def release(self) -> Deferred[None]:
        self.held = False
        return succeed(None)


@pytest.mark.parametrize("each", range(4))
def test_locks_that_keep_nobody_out_cost_work_and_nothing_else(
    seed: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-20: everyone holds the lock; three workers at the same ledgers at once."""
    run = RepairRun(seed * 211 + each)
    run.prepare()
    monkeypatch.setattr(
        ZnodeUnderreplication, "lock", lambda self, ledger_id, host, on_lost: succeed(NoLock(ledger_id))
    )
    for _ in range(3):
        run.add_worker()
    run.finish()
    assert sum(worker.tally.entries_written for _, worker in run.workers) > 0
