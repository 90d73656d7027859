"""Who has what the cluster has not: told twice, looked up twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from bookkeeper.client.client import LedgerClient
from bookkeeper.model import LedgerId
from bookkeeper.spark.audit.ledger_ends import ids_there
from bookkeeper.spark.audit.orphans import Held, find_orphans, held_in
from bookkeeper.spark.options.id_ranges import IdRanges
from tests.support.fake_bookie import FakeCluster


class Cluster:
    """Ledgers 0 to 5 in a metadata store; as the blocking client of a driver."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(3)
        self.client = self.cluster.client()
        for _ in range(6):
            self.made()

    def run(self, start: Callable[[LedgerClient], Deferred[Any]]) -> Any:
        return self.cluster.wait(start(self.client))

    def made(self) -> int:
        return int(self.cluster.wait(self.client.create()).ledger_id)

    def delete(self, *ledger_ids: int) -> None:
        for ledger_id in ledger_ids:
            self.cluster.wait(self.client.delete(LedgerId(ledger_id)))

    def suspects(self, told: Held) -> Held:
        driver: Any = self
        return told.without(IdRanges(tuple(ids_there(driver).runs())))

    def orphans(self, running: Held, again: Held, stored: Held | None = None, chosen: Any = None) -> Held:
        driver: Any = self
        return find_orphans(running, stored or Held(), driver, chosen or (lambda _: True), lambda: again)


def held(*rows: Any) -> Held:
    """Bookie, first and last ledger of each."""
    return held_in((*each, None) if len(each) == 3 else each for each in rows)


def test_a_ledger_that_was_gone_at_both_looks_and_is_held_at_both_is_an_orphan() -> None:
    cluster = Cluster()
    cluster.delete(1, 2)
    suspects = cluster.suspects(held(("a", 0, 3), ("b", 2, 2), ("c", 0, 0)))
    assert suspects.ledgers == {"a": IdRanges(((1, 2),)), "b": IdRanges(((2, 2),))}
    cluster.delete(3)  # meanwhile
    made = cluster.made()
    cluster.delete(made)
    again = held(("a", 0, 3), ("a", made, made), ("c", 0, 0))
    assert cluster.orphans(suspects, again).rows() == [("a", 1, 2)]


def test_an_id_that_is_there_again_is_no_orphan() -> None:
    """Whoever chooses ids may choose one that was deleted."""
    cluster = Cluster()
    cluster.delete(4)
    suspects = cluster.suspects(held(("a", 4, 4)))
    cluster.run(lambda client: client.create(ledger_id=4))
    assert cluster.orphans(suspects, held(("a", 4, 4))).rows() == []


def test_a_bookie_that_does_not_tell_at_the_end_is_named_and_has_no_orphan() -> None:
    cluster = Cluster()
    cluster.delete(1)
    suspects = cluster.suspects(held(("a", 0, 5), ("b", 0, 5), ("c", None, None, "it serves no HTTP")))
    found = cluster.orphans(suspects, held(("a", 0, 5), ("b", None, None, "it went")))
    assert (found.rows(), found.untold) == ([("a", 1, 1)], {"b": "it went", "c": "it serves no HTTP"})


def test_what_was_found_in_directories_needs_no_second_answer_and_what_is_not_asked_about_is_left_out() -> None:
    cluster = Cluster()
    cluster.delete(1, 5)
    stored = cluster.suspects(held(("d", 0, 5)))
    found = cluster.orphans(Held(), held(("d", None, None, "it does not run")), stored, lambda each: each < 3)
    assert (found.rows(), found.untold) == ([("d", 1, 1)], {})


def test_answers_that_come_in_parts_are_joined() -> None:
    found = held(("a", 0, 3), ("a", 4, 9), ("a", 11, 11), ("b", None, None, None))
    assert found.ledgers == {"a": IdRanges(((0, 9), (11, 11)))}
    assert found.untold == {"b": "it does not say why"}
