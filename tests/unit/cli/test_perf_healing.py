"""Watching a repair in a simulated cluster: when it is said to begin and to end, and what that asks of the store."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from bookkeeper.cli.perf.healing import Healing, await_healing
from bookkeeper.console.output import CommandFailed
from bookkeeper.errors import NoSuchLedger
from bookkeeper.metadata.memory.store import MemoryMetadata, MemoryMetadataStore
from bookkeeper.model import BookieId, EntryId, Fragment, LedgerId
from tests.support.metadata_contract import ledger
from tests.support.simulated_clock import SimulatedClock

VICTIM = BookieId("bookie-a:3181")
SPARE = BookieId("bookie-d:3181")


class Damage:
    """A cluster whose ledgers all have the victim as a member, somebody who repairs, and somebody who watches."""

    def __init__(self, count: int) -> None:
        self.clock = SimulatedClock()
        shared = MemoryMetadata(clock=self.clock)
        self.others = MemoryMetadataStore(shared, self.clock, Random(1))
        self.watching = MemoryMetadataStore(shared, self.clock, Random(2))
        self.watching.ledgers.prepare()  # as whoever opens a cluster: it makes what is missing of the layout
        self.asked: Counter[str] = Counter()
        for name in ("read", "stat", "children", "create", "write", "delete", "transact", "sync"):
            self._count(name)
        self.look_used_s = 0.0  # for each directory that is listed
        self.ids: list[LedgerId] = []
        for _ in range(count):
            self.others.ledgers.create(ledger(bookies="abc")).addCallback(lambda made: self.ids.append(made[0]))
        assert len(self.ids) == count

    def _count(self, name: str) -> None:
        real = getattr(self.watching.tree, name)

        def counted(*args: Any) -> Any:
            self.asked[name] += 1
            return real(*args)

        setattr(self.watching.tree, name, counted)

    def at(self, when_s: float, do: Callable[[LedgerId], object], *ledger_ids: LedgerId) -> None:
        for ledger_id in ledger_ids:
            self.clock.callLater(when_s - self.clock.seconds(), do, ledger_id)

    def mark(self, ledger_id: LedgerId) -> None:
        self.others.underreplication.mark(ledger_id, [VICTIM], now_ms=None)

    def repair(self, ledger_id: LedgerId) -> None:
        Deferred.fromCoroutine(self._repair(ledger_id))

    async def _repair(self, ledger_id: LedgerId) -> None:
        found = await self.others.ledgers.read(ledger_id)
        members = tuple(SPARE if each == VICTIM else each for each in found.value.fragments[0].ensemble)
        whole = dataclasses.replace(found.value, fragments=(Fragment(EntryId(0), members),))
        await self.others.ledgers.write(ledger_id, whole, found.version)
        mark = await self.others.underreplication.read(ledger_id)
        assert mark is not None
        await self.others.underreplication.remove(mark)

    def watch(self, limit_s: float = 60.0) -> Healing:
        outcome: list[Healing | Failure] = []
        watching = await_healing(
            self.watching,
            self.clock,
            self.ids,
            VICTIM,
            since_loss_s=self.clock.seconds,
            limit_s=limit_s,
            copied=None,
            now_ms=lambda: int(self.clock.seconds() * 1000),
            used_s=lambda: self.look_used_s * self.asked["children"],
        )
        Deferred.fromCoroutine(watching).addBoth(outcome.append)
        assert self.clock.run_until(lambda: bool(outcome), seconds=2 * limit_s)
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        assert isinstance(outcome[0], Healing)
        return outcome[0]


def test_begin_and_end_of_a_repair_are_told_exactly_however_seldom_somebody_looks() -> None:
    damage = Damage(3)
    damage.at(4.033, damage.mark, *damage.ids)
    damage.at(6.25, damage.repair, damage.ids[1])
    damage.at(7.321, damage.repair, damage.ids[2], damage.ids[0])
    healing = damage.watch()
    assert 4.033 <= healing.marked_s <= 4.2
    assert healing.healed_s == pytest.approx(7.321, abs=0.002)


def test_a_pause_between_two_batches_of_marks_is_not_the_end() -> None:
    damage = Damage(4)
    damage.at(1.0, damage.mark, *damage.ids[:2])
    damage.at(2.0, damage.repair, *damage.ids[:2])
    damage.at(8.0, damage.mark, *damage.ids[2:])
    damage.at(9.5, damage.repair, *damage.ids[2:])
    assert damage.watch().healed_s == pytest.approx(9.5, abs=0.002)


def test_the_first_of_thousands_that_still_names_the_victim_ends_a_look() -> None:
    """As long as nothing is left but what the auditor has not come to, a look reads a few ledgers, not all."""
    damage = Damage(3000)
    damage.at(1.0, damage.mark, *damage.ids[:100])
    damage.at(2.0, damage.repair, *damage.ids[:100])
    damage.at(30.0, damage.mark, *damage.ids[100:])
    damage.at(31.0, damage.repair, *damage.ids[100:])
    damage.at(29.0, lambda _: before.append(damage.asked["read"]), damage.ids[0])
    before: list[int] = []
    assert damage.watch().healed_s == pytest.approx(31.0, abs=0.002)
    assert before[0] <= 10 + 60 * 64


def test_a_repair_that_comes_and_goes_between_two_looks_is_seen_to_be_over() -> None:
    damage = Damage(1)
    damage.at(1.01, damage.mark, *damage.ids)
    damage.at(1.02, damage.repair, *damage.ids)
    healing = damage.watch()
    assert 0.9 <= healing.marked_s <= 1.01
    assert healing.healed_s == pytest.approx(1.02, abs=0.002)


def test_a_look_during_the_repair_asks_as_little_of_a_thousand_ledgers_as_of_one() -> None:
    """Two clusters, the same story of 20 s; only the last look reads each ledger."""
    asked = []
    for count in (1, 1000):
        damage = Damage(count)
        damage.at(1.0, damage.mark, *damage.ids)
        for number, ledger_id in enumerate(damage.ids):
            damage.at(20.0 - 0.01 * number, damage.repair, ledger_id)
        damage.watch()
        asked.append(damage.asked)
    one, thousand = asked
    assert thousand["children"] - one["children"] <= 4
    assert thousand["read"] - one["read"] <= 1000 + 20  # those of a listing that stands still: one each


def test_looks_that_cost_more_are_taken_less_often() -> None:
    asked = []
    for look_used_s in (0.0, 0.1):
        damage = Damage(50)
        damage.look_used_s = look_used_s
        damage.at(1.0, damage.mark, *damage.ids)
        for number, ledger_id in enumerate(damage.ids):
            damage.at(10.0 + number, damage.repair, ledger_id)
        assert damage.watch(limit_s=100.0).healed_s == pytest.approx(59.0, abs=0.002)
        asked.append(damage.asked["children"])
    cheap, dear = asked
    assert dear < cheap / 5


def test_who_watches_changes_nothing_and_leaves_empty_directories_to_others() -> None:
    """A worker that finds a directory empty twice removes it, and looks here are close to each other."""
    damage = Damage(2)
    damage.others.underreplication.prepare()
    path = f"{damage.others.root}/underreplication/ledgers"
    for _ in range(3):
        path += "/0000"
        damage.others.tree.create(path, b"")
    damage.at(1.0, damage.mark, *damage.ids)
    damage.at(5.0, damage.repair, *damage.ids)
    damage.watch()
    assert set(damage.asked) <= {"read", "stat", "children"}


def test_the_end_of_patience_says_how_many_are_left() -> None:
    damage = Damage(3)
    with pytest.raises(CommandFailed, match=r"not whole 5 s after the loss of bookie-a:3181: none was ever marked"):
        damage.watch(limit_s=5.0)
    damage.at(damage.clock.seconds() + 1.0, damage.mark, *damage.ids)
    damage.at(damage.clock.seconds() + 2.0, damage.repair, damage.ids[0])
    with pytest.raises(CommandFailed, match="2 are left"):
        damage.watch(limit_s=damage.clock.seconds() + 5.0)


def test_a_ledger_that_is_gone_is_named() -> None:
    damage = Damage(1)
    damage.others.ledgers.delete(damage.ids[0], 0)
    with pytest.raises(NoSuchLedger, match=f"ledger {damage.ids[0]} is gone"):
        damage.watch()


def test_the_repair_began_with_the_first_mark() -> None:
    assert Healing(marked_s=4.0, healed_s=9.5).repair_s == 5.5
