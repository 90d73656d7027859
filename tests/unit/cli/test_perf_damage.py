"""Which ledgers lose what with a bookie, and what follows from how long the repair took."""

from __future__ import annotations

import pytest

from bookkeeper.cli.perf.damage import DamagePlan, Healing
from bookkeeper.cli.perf.worker import Replication
from bookkeeper.protocol.schedule import write_set

OTHERS = ["b:1", "b:2", "b:3"]


@pytest.mark.parametrize(("ensemble", "copies"), [(1, 1), (3, 2), (3, 3), (4, 2)])
def test_every_ledger_has_the_victim_once_and_its_lost_copies_are_those_of_its_write_sets(
    ensemble: int, copies: int
) -> None:
    plan = DamagePlan(ledgers=13, entries=7, entry_size=1, replication=Replication(ensemble, copies, copies, "CRC32C"))
    lost = 0
    for number in range(plan.ledgers):
        members = plan.ensemble(number, "victim", OTHERS)
        assert len(set(members)) == ensemble
        place = members.index("victim")
        lost += sum(place in write_set(entry_id, ensemble, copies) for entry_id in range(plan.entries))
    assert plan.lost_copies == lost


def test_the_repair_began_with_the_first_mark() -> None:
    assert Healing(marked_s=4.0, healed_s=9.5).repair_s == 5.5
