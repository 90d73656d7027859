"""Which ledgers lose what with a bookie."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from bookkeeper.cli.perf.damage import DamagePlan, for_each
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


def test_thousands_that_are_done_as_soon_as_they_are_begun_do_not_begin_inside_each_other() -> None:
    """As ledgers that wait for a place, and need no look any more once one had it: too deep for Python otherwise."""
    first: Deferred[None] = Deferred()
    done: list[int] = []

    async def work(number: int) -> None:
        if number == 0:
            await first
        done.append(number)

    outcome: list[object] = []
    Deferred.fromCoroutine(for_each(range(5000), work, 1)).addBoth(outcome.append)
    assert (outcome, done) == ([], [])
    first.callback(None)
    assert outcome == [None]
    assert done == list(range(5000))


def test_a_few_are_done_at_a_time_and_none_is_begun_after_an_error() -> None:
    begun: list[Deferred[None]] = []

    async def work(_: int) -> None:
        begun.append(Deferred())
        await begun[-1]

    failed: list[BaseException] = []
    Deferred.fromCoroutine(for_each(range(10), work, 3)).addErrback(lambda failure: failed.append(failure.value))
    assert len(begun) == 3
    begun[1].callback(None)
    assert len(begun) == 4
    error = RuntimeError("no")
    begun[0].errback(error)
    assert failed == [error]
    begun[2].callback(None)
    assert len(begun) == 4
