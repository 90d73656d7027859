"""Deferred sync on one simulated bookie: what its answers promise when the process or the whole machine dies."""

from __future__ import annotations

from functools import partial

import pytest

from bookkeeper.model import Status
from bookkeeper.wire.messages import AddBatch, ForceLedger
from tests.simulation.world import SimulatedBookie, World
from tests.support.bookie_fakes import KEY, TOKEN, body_of

DEFERRED, ORDINARY = 7, 8
ENTRIES = 60


class Load:
    """Adds to two ledgers, one of them deferred, and forces in between; remembers what was answered."""

    def __init__(self, world: World, bookie: SimulatedBookie) -> None:
        assert bookie.bookie is not None
        self._bookie = bookie.bookie
        self._rng = world.derive("load")
        self.acknowledged: dict[int, list[int]] = {DEFERRED: [], ORDINARY: []}
        self.forced: list[int] = []
        for entry_id in range(ENTRIES):
            world.clock.callLater(self._rng.random() * 0.1, self._send, entry_id)

    def _send(self, entry_id: int) -> None:
        ledger_id = self._rng.choice((DEFERRED, ORDINARY))
        body = body_of(ledger_id, entry_id, b"x" * self._rng.randrange(500))
        batch = AddBatch(ledger_id, KEY, [entry_id], [body], -1, False, False, ledger_id == DEFERRED, TOKEN)
        self._bookie.add(batch, partial(self._acknowledge, ledger_id, entry_id))
        if self._rng.random() < 0.3:
            covered = list(self.acknowledged[DEFERRED])
            self._bookie.force(ForceLedger(DEFERRED, TOKEN), partial(self._force, covered))

    def _acknowledge(self, ledger_id: int, entry_id: int, status: Status) -> None:
        if status is Status.OK:
            self.acknowledged[ledger_id].append(entry_id)

    def _force(self, covered: list[int], status: Status) -> None:
        if status is Status.OK:
            self.forced = covered

    def lost(self, bookie: SimulatedBookie, ledger_id: int, entry_ids: list[int]) -> list[int]:
        """Those of the entries that the bookie does not hold."""
        return [entry_id for entry_id in entry_ids if not bookie.holds(ledger_id, entry_id)]


def started(seed: int) -> tuple[World, SimulatedBookie]:
    world = World(seed)
    bookie = world.add_bookie()
    assert world.run_until(lambda: bookie.serves, seconds=5)
    return world, bookie


def restarted(world: World, bookie: SimulatedBookie) -> None:
    bookie.ensure_running()
    assert world.run_until(lambda: bookie.serves, seconds=30)


def test_the_death_of_the_process_loses_nothing_and_that_of_the_machine_nothing_forced() -> None:
    unforced_lost = told_before_the_sync = 0
    for seed in range(60):
        world, bookie = started(seed)
        load = Load(world, bookie)
        world.run_until(lambda: False, seconds=0.12 * world.derive("moment").random())
        power = seed % 2
        (bookie.cut_power if power else bookie.kill)()
        acknowledged = {ledger_id: list(entry_ids) for ledger_id, entry_ids in load.acknowledged.items()}
        forced = list(load.forced)
        restarted(world, bookie)
        assert load.lost(bookie, ORDINARY, acknowledged[ORDINARY]) == []
        assert load.lost(bookie, DEFERRED, forced) == []
        lost = load.lost(bookie, DEFERRED, acknowledged[DEFERRED])
        assert power or lost == []
        unforced_lost += len(lost)
        told_before_the_sync += len(set(acknowledged[DEFERRED]) - set(forced))
    # Otherwise nothing was deferred, and the above proves nothing.
    assert told_before_the_sync > 0
    assert unforced_lost > 0


@pytest.mark.parametrize("moment", range(1, 25))
def test_a_kill_in_the_middle_of_a_file_operation_loses_nothing_acknowledged(moment: int) -> None:
    world, bookie = started(moment)
    load = Load(world, bookie)
    bookie.kill_at_operation(moment)
    world.run_until(lambda: not bookie.running, seconds=5)
    acknowledged = {ledger_id: list(entry_ids) for ledger_id, entry_ids in load.acknowledged.items()}
    bookie.forget_faults()
    restarted(world, bookie)
    for ledger_id, entry_ids in acknowledged.items():
        assert load.lost(bookie, ledger_id, entry_ids) == []
